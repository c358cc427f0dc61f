//! The codec by which read caches understand the simulated application's protocol, with faults that can be built in.

use super::fault::Broken;
use super::request::{ANSWER_VALUE_AT, Answer, OBJECT, Request, VALUE_AT};
use landfall_pmnet::cache::codec::KeyRanges;
use landfall_pmnet::cache::{Effect, KeyCodec, Query};
use landfall_pmnet::device::{CacheConfig, Codec};
use std::ops::Range;

/// The positions of registers and counters in requests and answers. A value is the part of an answer behind its tag;
/// that of a register includes its padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimCodec {
    wrong: Option<Wrong>,
}

/// A fault of the codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Updates,
    Additions,
    Names,
}

/// Settings of a read cache for the simulator's devices, with the default bounds.
pub fn cache_config() -> CacheConfig {
    CacheConfig::new(SimCodec::of(None))
}

impl SimCodec {
    /// The codec of a system with the fault `broken`.
    pub(super) fn of(broken: Option<Broken>) -> Codec {
        Codec::Custom(match broken {
            Some(Broken::CacheMissesUpdates) => &Self { wrong: Some(Wrong::Updates) },
            Some(Broken::CacheMissesAdditions) => &Self { wrong: Some(Wrong::Additions) },
            Some(Broken::CacheConfusesKeys) => &Self { wrong: Some(Wrong::Names) },
            _ => &Self { wrong: None },
        })
    }

    /// The bytes that name the object. Without the last byte, all registers have one name, and all counters.
    fn object(&self) -> Range<usize> {
        match self.wrong {
            Some(Wrong::Names) => OBJECT.start..OBJECT.end - 1,
            _ => OBJECT,
        }
    }
}

impl KeyCodec for SimCodec {
    fn update(&self, request: &[u8]) -> Effect {
        match Request::from_bytes(request) {
            Some(Request::Set { .. }) if self.wrong == Some(Wrong::Updates) => Effect::None,
            Some(Request::Set { .. }) => Effect::Sets { key: self.object(), value: VALUE_AT..request.len() },
            _ => Effect::TouchesAll,
        }
    }

    fn keys_of_start(&self, start: &[u8], total: usize) -> Option<KeyRanges> {
        match Request::is_start_of_update(start, total) {
            true if self.wrong == Some(Wrong::Updates) => Some(KeyRanges::new()),
            true => Some(KeyRanges::from_elem(self.object(), 1)),
            false => None,
        }
    }

    fn bypass(&self, request: &[u8]) -> Query {
        match Request::from_bytes(request) {
            Some(Request::Get { .. } | Request::Count { .. }) => Query::Reads { key: self.object() },
            Some(Request::Add { .. }) if self.wrong == Some(Wrong::Additions) => Query::None,
            Some(Request::Add { .. }) => Query::Touches(KeyRanges::from_elem(self.object(), 1)),
            _ => Query::TouchesAll,
        }
    }

    fn response_value(&self, _key: &[u8], response: &[u8]) -> Option<Range<usize>> {
        let answer = Answer::from_bytes(response)?;
        matches!(answer, Answer::Value(_)).then_some(ANSWER_VALUE_AT..response.len())
    }

    fn render(&self, value: &[u8], into: &mut Vec<u8>) {
        into.extend_from_slice(&Answer::Value(0).to_bytes(0)[..ANSWER_VALUE_AT]);
        into.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: SimCodec = SimCodec { wrong: None };

    fn rendered(value: &[u8]) -> Vec<u8> {
        let mut response = Vec::new();
        RIGHT.render(value, &mut response);
        response
    }

    #[test]
    fn the_value_of_an_update_is_rendered_as_the_server_answers_it() {
        let request = Request::Set { key: 3, id: 77, pad: 50 }.to_bytes();
        let Effect::Sets { key, value } = RIGHT.update(&request) else { panic!("it sets a key") };
        let answer = Answer::Value(77).to_bytes(50);
        assert_eq!(rendered(&request[value]), answer);
        let get = Request::Get { key: 3 }.to_bytes();
        assert_eq!(RIGHT.bypass(&get), Query::Reads { key: key.clone() });
        assert_eq!(request[key.clone()], get[key.clone()]);
        let kept = RIGHT.response_value(&get[key], &answer).expect("it is a value");
        assert_eq!(rendered(&answer[kept]), answer);
        assert_eq!(RIGHT.response_value(b"", &Answer::Lost.to_bytes(0)), None);
    }

    #[test]
    fn counters_and_registers_have_different_names() {
        let name = |request: Request| {
            let bytes = request.to_bytes();
            match RIGHT.bypass(&bytes) {
                Query::Reads { key } => bytes[key].to_vec(),
                Query::Touches(keys) => bytes[keys[0].clone()].to_vec(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(name(Request::Add { key: 2, id: 9 }), name(Request::Count { key: 2 }));
        assert_ne!(name(Request::Get { key: 2 }), name(Request::Count { key: 2 }));
        assert_ne!(name(Request::Count { key: 1 }), name(Request::Count { key: 2 }));
        assert_eq!(RIGHT.bypass(b"?"), Query::TouchesAll);
    }
}
