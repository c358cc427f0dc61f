//! The protocol of the simulated application: registers, a journal for each session, counters.

use crate::rng::Rng;
use std::ops::Range;

const SET: u8 = 1;
const GET: u8 = 2;
const ADD: u8 = 3;
const COUNT: u8 = 4;
const VALUE: u8 = 1;
const LOST: u8 = 2;
/// Type of an object, in front of its number.
const REGISTER: u8 = b'r';
const COUNTER: u8 = b'c';
/// Position of the object in a request.
pub(super) const OBJECT: Range<usize> = 1..3;
/// Length of tag, object, length of the padding, and number of the request.
const HEAD: usize = 15;
/// Position of the value in an update. Value and padding have the form that they have in answers.
pub(super) const VALUE_AT: usize = 7;
/// Length of tag and value.
const ANSWER_HEAD: usize = 9;
/// Position of the value in an answer.
pub(super) const ANSWER_VALUE_AT: usize = 1;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An update: sets a register to `id`, and appends `id` to the journal of the session.
    Set {
        /// Number of the register.
        key: u8,
        /// Unique number of the request.
        id: u64,
        /// Length of the padding, bytes. With a padding longer than a packet, the request is sent in fragments. The
        /// padding belongs to the value, so that reads return it.
        pad: u32,
    },
    /// A bypass: reads a register.
    Get {
        /// Number of the register.
        key: u8,
    },
    /// A bypass: adds one to a counter, and returns its new value.
    Add {
        /// Number of the counter.
        key: u8,
        /// Unique number of the request.
        id: u64,
    },
    /// A bypass: reads a counter.
    Count {
        /// Number of the counter.
        key: u8,
    },
}

impl Request {
    /// True for an update.
    pub fn is_update(&self) -> bool {
        matches!(self, Self::Set { .. })
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (tag, object, id, pad) = match self {
            Self::Set { key, id, pad } => (SET, [REGISTER, key], id, pad),
            Self::Get { key } => (GET, [REGISTER, key], 0, 0),
            Self::Add { key, id } => (ADD, [COUNTER, key], id, 0),
            Self::Count { key } => (COUNT, [COUNTER, key], 0, 0),
        };
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&object);
        bytes.extend_from_slice(&pad.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend(padding(id, pad));
        bytes
    }

    /// True if `bytes` are the first bytes of an update of `total` bytes.
    pub(super) fn is_start_of_update(bytes: &[u8], total: usize) -> bool {
        let Some((head, _)) = bytes.split_at_checked(HEAD) else { return false };
        let pad: [u8; 4] = head[3..VALUE_AT].try_into().expect("four bytes");
        (head[0], head[1]) == (SET, REGISTER) && HEAD + u32::from_le_bytes(pad) as usize == total
    }

    /// Parses a request; `None` for bytes that are not exactly one request.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, tail) = bytes.split_at_checked(HEAD)?;
        let (kind, key) = (head[1], head[2]);
        let pad = u32::from_le_bytes(head[3..VALUE_AT].try_into().ok()?);
        let id = u64::from_le_bytes(head[VALUE_AT..].try_into().ok()?);
        let request = match (head[0], kind) {
            (SET, REGISTER) => Self::Set { key, id, pad },
            (GET, REGISTER) => Self::Get { key },
            (ADD, COUNTER) => Self::Add { key, id },
            (COUNT, COUNTER) => Self::Count { key },
            _ => return None,
        };
        tail.iter().copied().eq(padding(id, pad)).then_some(request)
    }
}

/// The answer to a bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The value; 0 for a register that was never set.
    Value(u64),
    /// The answer is lost, and it is unknown whether the bypass was executed.
    Lost,
}

impl Answer {
    pub(super) fn to_bytes(self, pad: u32) -> Vec<u8> {
        let (tag, value) = match self {
            Self::Value(value) => (VALUE, value),
            Self::Lost => (LOST, 0),
        };
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&value.to_le_bytes());
        bytes.extend(padding(value, pad));
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, tail) = bytes.split_at_checked(ANSWER_HEAD)?;
        let value = u64::from_le_bytes(head[1..].try_into().ok()?);
        if tail != padding(value, tail.len() as u32).collect::<Vec<u8>>() {
            return None;
        }
        match head[0] {
            VALUE => Some(Self::Value(value)),
            LOST => Some(Self::Lost),
            _ => None,
        }
    }
}

/// Padding whose bytes depend on the value and on their position, so that mixed-up fragments are detected.
fn padding(of: u64, len: u32) -> impl Iterator<Item = u8> {
    let mut rng = Rng::new(of);
    (0..len.div_ceil(8)).flat_map(move |_| rng.draw().to_le_bytes()).take(len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed_from_their_bytes_and_other_bytes_are_refused() {
        let requests = [
            Request::Set { key: 1, id: 77, pad: 100 },
            Request::Get { key: 2 },
            Request::Add { key: 3, id: 78 },
            Request::Count { key: 4 },
        ];
        for request in requests {
            let mut bytes = request.to_bytes();
            assert_eq!(Request::from_bytes(&bytes), Some(request));
            let is_start = Request::is_start_of_update(&bytes[..HEAD], bytes.len());
            assert_eq!(is_start, request.is_update());
            assert!(!Request::is_start_of_update(&bytes[..HEAD - 1], bytes.len()));
            assert!(!Request::is_start_of_update(&bytes, bytes.len() + 1));
            bytes.push(0);
            assert_eq!(Request::from_bytes(&bytes), None);
        }
        let mut swapped = requests[0].to_bytes();
        swapped.swap(HEAD, HEAD + 50);
        assert_eq!(Request::from_bytes(&swapped), None);
        assert_eq!(Answer::from_bytes(&Answer::Value(5).to_bytes(40)), Some(Answer::Value(5)));
        assert_eq!(Answer::from_bytes(&Answer::Lost.to_bytes(0)), Some(Answer::Lost));
    }
}
