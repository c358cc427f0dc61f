//! Tests of the codecs against interpreters of the requests: every key that changes is in the effect.

use std::collections::BTreeMap;
use std::ops::Range;

use landfall_pmnet::cache::{Effect, KeyCodec, PlainCodec, Query, RespCodec};
use proptest::prelude::*;

type Store = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// A server's commands on strings, at least one for each form of arguments.
fn execute(store: &mut Store, args: &[String]) {
    let name = args[0].to_ascii_uppercase();
    let rest: Vec<Vec<u8>> = args[1..].iter().map(|arg| arg.as_bytes().to_vec()).collect();
    match (name.as_str(), &rest[..]) {
        ("SET", [key, value]) | ("GETSET", [key, value]) | ("SETEX", [key, _, value]) => {
            store.insert(key.clone(), value.clone());
        }
        ("SET", [key, value, option]) if option == b"NX" && !store.contains_key(key) => {
            store.insert(key.clone(), value.clone());
        }
        ("APPEND", [key, more]) => store.entry(key.clone()).or_default().extend(more),
        ("INCR", [key]) => store.entry(key.clone()).or_default().push(b'+'),
        ("DEL" | "UNLINK", keys) => keys.iter().for_each(|key| drop(store.remove(key))),
        ("GETDEL", [key]) => drop(store.remove(key)),
        ("MSET", pairs) if pairs.len() % 2 == 0 => {
            pairs.chunks(2).for_each(|pair| drop(store.insert(pair[0].clone(), pair[1].clone())));
        }
        ("RENAME", [from, to]) => {
            if let Some(value) = store.remove(from) {
                store.insert(to.clone(), value);
            }
        }
        ("COPY", [from, to]) => {
            if let Some(value) = store.get(from).cloned() {
                store.insert(to.clone(), value);
            }
        }
        ("BITOP", [_, to, from @ ..]) => {
            store.insert(to.clone(), from.concat());
        }
        ("FLUSHALL", []) => store.clear(),
        _ => {}
    }
}

fn resp(command: &[String], into: &mut Vec<u8>) {
    into.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    command.iter().for_each(|arg| RespCodec::default().render(arg.as_bytes(), into));
}

fn arb_command() -> impl Strategy<Value = Vec<String>> {
    let names = [
        "SET", "set", "GET", "GETSET", "SETEX", "APPEND", "INCR", "DEL", "Unlink", "GETDEL", "MSET",
        "RENAME", "COPY", "BITOP", "FLUSHALL", "MGET", "STRLEN", "NOSUCH",
    ];
    let arg = prop::sample::select(
        KEYS.iter().chain(&["NX", "7"]).map(|arg| (*arg).to_owned()).collect::<Vec<_>>(),
    );
    (prop::sample::select(names.to_vec()), prop::collection::vec(arg, 0..5)).prop_map(|(name, mut args)| {
        args.insert(0, name.to_owned());
        args
    })
}

/// The keys whose values differ before and after.
fn changed(before: &Store, after: &Store) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = before.keys().chain(after.keys()).cloned().collect();
    keys.retain(|key| before.get(key) != after.get(key));
    keys
}

fn covers(request: &[u8], ranges: &[Range<usize>], changed: &[Vec<u8>]) -> bool {
    changed.iter().all(|key| ranges.iter().any(|range| request[range.clone()] == key[..]))
}

/// Compares the codec's result for a request, as an update and as a bypass, with what the request has done.
fn check(codec: &impl KeyCodec, request: &[u8], before: &Store, after: &Store) {
    let changed = changed(before, after);
    match codec.update(request) {
        Effect::None => assert!(changed.is_empty(), "{changed:?}"),
        Effect::Sets { key, value } => {
            assert!(covers(request, std::slice::from_ref(&key), &changed), "{changed:?}");
            assert_eq!(after.get(&request[key]).map(Vec::as_slice), Some(&request[value]));
        }
        Effect::Touches(keys) => assert!(covers(request, &keys, &changed), "{changed:?}"),
        Effect::TouchesAll => {}
    }
    for known in 0..request.len() {
        let keys = codec.keys_of_start(&request[..known], request.len());
        assert!(keys.is_none_or(|keys| covers(&request[..known], &keys, &changed)), "{known}: {changed:?}");
    }
    match codec.bypass(request) {
        Query::None | Query::Reads { .. } => assert!(changed.is_empty(), "{changed:?}"),
        Query::Touches(keys) => assert!(covers(request, &keys, &changed), "{changed:?}"),
        Query::TouchesAll => {}
    }
}

fn in_bounds(codec: &impl KeyCodec, bytes: &[u8]) {
    let ranges: Vec<Range<usize>> = match codec.update(bytes) {
        Effect::Sets { key, value } => vec![key, value],
        Effect::Touches(keys) => keys.to_vec(),
        Effect::None | Effect::TouchesAll => Vec::new(),
    };
    ranges.into_iter().for_each(|range| assert!(bytes.get(range).is_some()));
    let ranges: Vec<Range<usize>> = match codec.bypass(bytes) {
        Query::Reads { key } => vec![key],
        Query::Touches(keys) => keys.to_vec(),
        Query::None | Query::TouchesAll => Vec::new(),
    };
    ranges.into_iter().for_each(|range| assert!(bytes.get(range).is_some()));
    for total in [bytes.len(), bytes.len() + 1, bytes.len() + 9] {
        let keys = codec.keys_of_start(bytes, total).unwrap_or_default();
        keys.into_iter().for_each(|range| assert!(bytes.get(range).is_some()));
    }
    if let Some(range) = codec.response_value(b"", bytes) {
        let mut rendered = Vec::new();
        codec.render(&bytes[range], &mut rendered);
        assert_eq!(rendered, bytes, "the cache serves the response that the server sent");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn redis_commands_change_no_key_that_is_not_in_their_effect(
        held in prop::collection::btree_map(prop::sample::select(&KEYS[..]), "[xyz]{1,2}", 0..4),
        commands in prop::collection::vec(arb_command(), 1..4),
    ) {
        let before: Store = held.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        let (mut after, mut request) = (before.clone(), Vec::new());
        for command in &commands {
            execute(&mut after, command);
            resp(command, &mut request);
        }
        check(&RespCodec::default(), &request, &before, &after);
    }

    #[test]
    fn plain_requests_change_no_key_that_is_not_in_their_effect(
        operation in prop::sample::select(&b"SGDX"[..]), key in "[ab]{0,2}", value in "[xy]{0,2}", cut in 0usize..3,
    ) {
        let before: Store = [(b"a".to_vec(), b"1".to_vec()), (Vec::new(), b"2".to_vec())].into_iter().collect();
        let mut request = vec![operation, u8::try_from(key.len()).unwrap(), 0];
        request.extend_from_slice(key.as_bytes());
        request.extend_from_slice(value.as_bytes());
        let mut after = before.clone();
        match operation {
            b'S' => drop(after.insert(key.clone().into_bytes(), value.clone().into_bytes())),
            b'D' if value.is_empty() => drop(after.remove(key.as_bytes())),
            _ => {}
        }
        check(&PlainCodec, &request, &before, &after);
        in_bounds(&PlainCodec, &request[..request.len() - cut]);
    }

    #[test]
    fn no_bytes_make_a_codec_panic(bytes in prop::collection::vec(prop::sample::select(&b"*$0129\r\nSGDVabGETSET"[..]), 0..60)) {
        in_bounds(&RespCodec { keep_responses: true }, &bytes);
        in_bounds(&PlainCodec, &bytes);
    }

    #[test]
    fn no_damage_to_a_redis_request_makes_the_codec_panic(
        commands in prop::collection::vec(arb_command(), 1..3), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut request = Vec::new();
        commands.iter().for_each(|command| resp(command, &mut request));
        let at = at.index(request.len());
        in_bounds(&RespCodec { keep_responses: true }, &request[..at]);
        request[at] = byte;
        in_bounds(&RespCodec { keep_responses: true }, &request);
    }
}
