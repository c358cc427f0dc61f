//! Updates in flight, and the keys that they change.

use smallvec::SmallVec;

use super::codec::Effect;
use super::key::{KEYS_MAX, Key};

/// The values on which all pieces of an update must agree. Otherwise the server applies none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Number of pieces. Their sequence numbers are consecutive.
    pub count: u32,
    /// Bytes of the request.
    pub total: u32,
}

/// An update in flight: it has passed, and is not known to be applied.
#[derive(Clone, Debug)]
pub(super) struct Flight<V> {
    pub(super) keys: SmallVec<[Key; 1]>,
    /// Set if the update is a first piece whose keys are those of the whole update.
    pub(super) begins: Option<Whole>,
    /// Whether it sets its only key to a value that the cache can get.
    pub(super) sets: bool,
    pub(super) durable: bool,
    /// The value that it sets, from the time when the update is in the log until the value serves. It is dropped
    /// with the flight, whatever happens to the log entry, and counts as a waiting value.
    pub(super) value: Option<V>,
}

/// The keys that a packet may change.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The keys; `None`: any key.
    pub(super) keys: Option<SmallVec<[Key; 1]>>,
    /// Whether it sets its only key to a value that the cache can get.
    pub(super) sets: bool,
    /// Set if the packet is a first piece whose keys are those of the whole update.
    pub(super) begins: Option<Whole>,
}

impl Change {
    pub(super) fn of(request: &[u8], effect: &Effect) -> Self {
        let keys = keys_of(request, effect);
        Self { sets: matches!(effect, Effect::Sets { .. }) && keys.is_some(), keys, begins: None }
    }
}

/// The keys in these ranges of a request; `None` if there are too many, so that any key may change.
pub(super) fn keys_at(request: &[u8], ranges: &[std::ops::Range<usize>]) -> Option<SmallVec<[Key; 1]>> {
    if ranges.len() > KEYS_MAX {
        return None;
    }
    let mut keys: SmallVec<[Key; 1]> = SmallVec::new();
    for range in ranges {
        let key = request.get(range.clone())?;
        if !keys.iter().any(|known| **known == *key) {
            keys.push(Key::from(key));
        }
    }
    Some(keys)
}

fn keys_of(request: &[u8], effect: &Effect) -> Option<SmallVec<[Key; 1]>> {
    match effect {
        Effect::None => Some(SmallVec::new()),
        Effect::Sets { key, .. } => keys_at(request, std::slice::from_ref(key)),
        Effect::Touches(keys) => keys_at(request, keys),
        Effect::TouchesAll => None,
    }
}
