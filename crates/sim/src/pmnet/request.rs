//! The application's own protocol: registers, a journal for each session, counters.

use crate::rng::Rng;
use std::ops::Range;

const SET: u8 = 1;
const GET: u8 = 2;
const ADD: u8 = 3;
const COUNT: u8 = 4;
const VALUE: u8 = 1;
const LOST: u8 = 2;
/// What objects are, in front of their number.
const REGISTER: u8 = b'r';
const COUNTER: u8 = b'c';
/// Where in a request the object is that it is about.
pub(super) const OBJECT: Range<usize> = 1..3;
/// Tag, object, length of the padding, identity.
const HEAD: usize = 15;
/// Where in an update the value begins, padding included: as it lies in answers.
pub(super) const VALUE_AT: usize = 7;
/// Tag, value.
const ANSWER_HEAD: usize = 9;
/// Where in an answer the value begins.
pub(super) const ANSWER_VALUE_AT: usize = 1;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An update: the register holds `id` from now on, and the session's journal ends with it.
    Set {
        /// Which register.
        key: u8,
        /// Unlike any other.
        id: u64,
        /// Bytes of padding: longer than a packet, it is cut into fragments. They belong to the value: who reads it
        /// gets them.
        pad: u32,
    },
    /// A bypass: what the register holds.
    Get {
        /// Which register.
        key: u8,
    },
    /// A bypass: adds one to a counter, and returns what it is then.
    Add {
        /// Which counter.
        key: u8,
        /// Unlike any other.
        id: u64,
    },
    /// A bypass: what the counter is.
    Count {
        /// Which counter.
        key: u8,
    },
}

impl Request {
    /// Whether it is an update.
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

    /// Whether bytes are the first ones of an update of `total` bytes.
    pub(super) fn is_start_of_update(bytes: &[u8], total: usize) -> bool {
        let Some((head, _)) = bytes.split_at_checked(HEAD) else { return false };
        let pad: [u8; 4] = head[3..VALUE_AT].try_into().expect("four bytes");
        (head[0], head[1]) == (SET, REGISTER) && HEAD + u32::from_le_bytes(pad) as usize == total
    }

    /// The reverse; `None` for bytes that are not exactly those of one request.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
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
        rest.iter().copied().eq(padding(id, pad)).then_some(request)
    }
}

/// What a bypass is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The value; of a register that nobody has set, 0.
    Value(u64),
    /// It was executed before, or not, and the answer is lost.
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
        let (head, rest) = bytes.split_at_checked(ANSWER_HEAD)?;
        let value = u64::from_le_bytes(head[1..].try_into().ok()?);
        if rest != padding(value, rest.len() as u32).collect::<Vec<u8>>() {
            return None;
        }
        match head[0] {
            VALUE => Some(Self::Value(value)),
            LOST => Some(Self::Lost),
            _ => None,
        }
    }
}

/// Bytes that tell whose they are, and where they belong.
fn padding(of: u64, len: u32) -> impl Iterator<Item = u8> {
    let mut rng = Rng::new(of);
    (0..len.div_ceil(8)).flat_map(move |_| rng.draw().to_le_bytes()).take(len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_their_bytes_and_nothing_else_is_one() {
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
