//! The codec of the plain key-value handlers.

use std::ops::Range;

use smallvec::smallvec;

use super::effect::{Effect, KeyCodec, KeyRanges, Query};

/// Bytes before the key: operation (1), length of the key (2, little-endian).
const HEAD_BYTES: usize = 3;

/// A request is operation (1), length of the key (2, little-endian), key, value. The operations are `S` set, `G` get
/// and `D` delete; only `S` has a value. The response to a get is `V` and the value, or `N` if there is no value.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainCodec;

enum Request {
    Set(Range<usize>, Range<usize>),
    Get(Range<usize>),
    Delete(Range<usize>),
}

fn parse(request: &[u8]) -> Option<Request> {
    let &[operation, low, high] = request.first_chunk::<HEAD_BYTES>()?;
    let end = HEAD_BYTES + usize::from(u16::from_le_bytes([low, high]));
    let value_len = request.len().checked_sub(end)?;
    match operation {
        b'S' => Some(Request::Set(HEAD_BYTES..end, end..request.len())),
        b'G' if value_len == 0 => Some(Request::Get(HEAD_BYTES..end)),
        b'D' if value_len == 0 => Some(Request::Delete(HEAD_BYTES..end)),
        _ => None,
    }
}

impl KeyCodec for PlainCodec {
    fn update(&self, request: &[u8]) -> Effect {
        match parse(request) {
            Some(Request::Set(key, value)) => Effect::Sets { key, value },
            Some(Request::Get(_)) => Effect::None,
            Some(Request::Delete(key)) => Effect::Touches(smallvec![key]),
            None => Effect::TouchesAll,
        }
    }

    fn keys_of_start(&self, start: &[u8], _total: usize) -> Option<KeyRanges> {
        // Only a set has bytes after its key.
        match parse(start) {
            Some(Request::Set(key, _)) => Some(smallvec![key]),
            _ => None,
        }
    }

    fn bypass(&self, request: &[u8]) -> Query {
        match parse(request) {
            Some(Request::Get(key)) => Query::Reads { key },
            Some(Request::Set(key, _) | Request::Delete(key)) => Query::Touches(smallvec![key]),
            None => Query::TouchesAll,
        }
    }

    fn response_value(&self, _key: &[u8], response: &[u8]) -> Option<Range<usize>> {
        (response.first() == Some(&b'V')).then_some(1..response.len())
    }

    fn render(&self, value: &[u8], into: &mut Vec<u8>) {
        into.push(b'V');
        into.extend_from_slice(value);
    }
}
