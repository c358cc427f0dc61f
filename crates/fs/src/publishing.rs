//! How published records get the bytes of what they publish.

use std::str::FromStr;

/// How published records get the bytes of what they publish. The others are there to be compared with (LineFS, SOSP 2021,
/// Figure 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Publishing {
    /// They refer to the frames in which the bytes landed.
    #[default]
    Relink,
    /// The bytes are copied, and become durable with all others of the chunk.
    Copy,
    /// The bytes are copied, and become durable record by record.
    CopyEach,
}

/// A name that no way of publishing has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no way of publishing; there are relink, copy and copy-each")]
pub struct NoPublishing(String);

impl FromStr for Publishing {
    type Err = NoPublishing;

    fn from_str(text: &str) -> Result<Self, NoPublishing> {
        match text {
            "relink" => Ok(Self::Relink),
            "copy" => Ok(Self::Copy),
            "copy-each" => Ok(Self::CopyEach),
            _ => Err(NoPublishing(text.to_owned())),
        }
    }
}
