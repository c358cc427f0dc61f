//! Access to the JSON that cargo and the landfall binary print.

use crate::error::Error;

pub(crate) use serde_json::Value as Json;

/// Parses `text` as one value.
///
/// # Errors
/// [`Error::Json`].
pub(crate) fn parse(text: &str) -> Result<Json, Error> {
    serde_json::from_str(text).map_err(Error::Json)
}

/// Access to members of objects that may be absent.
pub(crate) trait Members {
    /// The member's value, if it is a string.
    fn text(&self, name: &str) -> Option<&str>;
    /// The elements of the member, if it is a list; otherwise none.
    fn list(&self, name: &str) -> &[Json];
}

impl Members for Json {
    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    fn list(&self, name: &str) -> &[Json] {
        self.get(name).and_then(Json::as_array).map_or(&[], Vec::as_slice)
    }
}
