//! What cargo and the landfall binary print as JSON, member by member.

use crate::error::Error;

pub(crate) use serde_json::Value as Json;

/// Reads one value that fills `text`.
///
/// # Errors
/// [`Error::Json`].
pub(crate) fn parse(text: &str) -> Result<Json, Error> {
    serde_json::from_str(text).map_err(Error::Json)
}

/// Members of objects whose presence is not certain.
pub(crate) trait Members {
    /// The string behind a member, if it is one.
    fn text(&self, name: &str) -> Option<&str>;
    /// The elements of a member that is a list; none otherwise.
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
