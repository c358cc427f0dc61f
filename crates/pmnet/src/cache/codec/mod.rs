//! What requests do to keys: the only thing that the cache must know about an application.

mod commands;
mod plain;
mod resp;

use std::ops::Range;

use smallvec::SmallVec;

pub use plain::PlainCodec;
pub use resp::RespCodec;

/// Where in a request keys lie, in bytes.
pub type KeyRanges = SmallVec<[Range<usize>; 4]>;

/// What an update does when the server applies it. Ranges are bytes of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No key changes.
    None,
    /// One key has this value afterwards, whatever it had before.
    Sets {
        /// The key.
        key: Range<usize>,
        /// Its value, as reads return it.
        value: Range<usize>,
    },
    /// These keys may change, and no others.
    Touches(KeyRanges),
    /// Any key may change.
    TouchesAll,
}

/// What a bypass asks for. Ranges are bytes of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// No key changes, and the response is not for the cache.
    None,
    /// The value of one key, and nothing else.
    Reads {
        /// The key.
        key: Range<usize>,
    },
    /// These keys may change, and no others.
    Touches(KeyRanges),
    /// Any key may change.
    TouchesAll,
}

/// What a cache must know of an application's requests and responses.
///
/// A codec that is wrong makes the cache incoherent, so it says less where it is in doubt: [`Effect::TouchesAll`]. It
/// sees one request at a time: what a request does must not depend on others of its session, such as a chosen database.
pub trait KeyCodec: std::fmt::Debug + Send + Sync + std::panic::RefUnwindSafe {
    /// What an update does.
    fn update(&self, request: &[u8]) -> Effect;

    /// Where in the first bytes of an update, which is longer and has `total` bytes, the keys lie that it may change, and no others,
    /// whatever its other bytes are. `None`: they do not tell, and any key may change.
    fn keys_of_start(&self, start: &[u8], total: usize) -> Option<KeyRanges> {
        let _ = (start, total);
        None
    }

    /// What a bypass asks for.
    fn bypass(&self, request: &[u8]) -> Query;

    /// Where in the response to a read of a key its value lies, if it may be kept: nothing but updates and bypasses
    /// ever changes it.
    fn response_value(&self, key: &[u8], response: &[u8]) -> Option<Range<usize>>;

    /// Appends the response that the server would send to a read that finds this value.
    fn render(&self, value: &[u8], into: &mut Vec<u8>);
}
