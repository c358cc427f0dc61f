//! What requests do with keys, and the interface of codecs.

use std::ops::Range;

use smallvec::SmallVec;

/// The byte ranges of a request that contain keys.
pub type KeyRanges = SmallVec<[Range<usize>; 4]>;

/// The effect of an update when the server applies it. Ranges are bytes of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No key changes.
    None,
    /// One key gets this value, whatever value it had before.
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

/// What a bypass does. Ranges are bytes of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// It changes no key, and its response is of no use for the cache.
    None,
    /// It reads the value of one key, and does nothing else.
    Reads {
        /// The key.
        key: Range<usize>,
    },
    /// These keys may change, and no others.
    Touches(KeyRanges),
    /// Any key may change.
    TouchesAll,
}

/// What a cache must know about an application's requests and responses.
///
/// A wrong codec makes the cache incoherent. So in doubt a codec returns [`Effect::TouchesAll`]. A codec sees one
/// request at a time: the effect of a request must not depend on other requests of its session, such as one that
/// selects a database.
pub trait KeyCodec: std::fmt::Debug + Send + Sync + std::panic::RefUnwindSafe {
    /// The effect of an update.
    fn update(&self, request: &[u8]) -> Effect;

    /// The only keys that an update may change, as ranges of its first bytes `start`. The update is longer and has
    /// `total` bytes. The result must hold whatever the other bytes are. `None`: the first bytes do not name the
    /// keys, and any key may change.
    fn keys_of_start(&self, start: &[u8], total: usize) -> Option<KeyRanges> {
        let _ = (start, total);
        None
    }

    /// What a bypass does.
    fn bypass(&self, request: &[u8]) -> Query;

    /// The range of the value in the response to a read, if the value may be stored. It may be stored if only
    /// updates and bypasses ever change it.
    fn response_value(&self, key: &[u8], response: &[u8]) -> Option<Range<usize>>;

    /// Appends the response that the server would send to a read with this value as result.
    fn render(&self, value: &[u8], into: &mut Vec<u8>);
}
