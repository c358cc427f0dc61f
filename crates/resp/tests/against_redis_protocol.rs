//! The same bytes through this crate and through `redis-protocol`.

mod support;

use landfall_resp::{Limits, Protocol, Writer};
use proptest::prelude::*;
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::types::OwnedFrame as Frame3;
use redis_protocol::{resp2, resp3};
use support::{encode, parse};

/// A command as the peer reads it: its arguments and length. `None` for anything else.
fn peer(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (frame, len) = resp2::decode::decode(bytes).ok()??;
    let Frame2::Array(elements) = frame else { return None };
    let bulk = |element| match element {
        Frame2::BulkString(bytes) => Some(bytes),
        _ => None,
    };
    Some((elements.into_iter().map(bulk).collect::<Option<_>>()?, len))
}

fn args() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn commands_are_read_alike(args in args(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&args);
        let ours = parse(&bytes, &[], Limits::default());
        prop_assert_eq!(Some((ours.commands[0].clone(), ours.end)), peer(&bytes));
        let prefix = &bytes[..cut.index(bytes.len())];
        prop_assert!(parse(prefix, &[], Limits::default()).commands.is_empty() && peer(prefix).is_none());
    }

    #[test]
    fn damaged_commands_that_we_accept_are_read_alike(
        args in args(),
        at in any::<prop::sample::Index>(),
        with in prop::sample::select(b"*$0123456789\r\nx-".to_vec()),
    ) {
        let mut bytes = encode(&args);
        let at = at.index(bytes.len());
        bytes[at] = with;
        let ours = parse(&bytes, &[], Limits::default());
        // The peer knows no inline commands; an empty array is a frame to it and nothing to us.
        prop_assume!(bytes[0] == b'*' && !bytes.starts_with(b"*0\r\n") && !ours.commands.is_empty());
        prop_assert_eq!(peer(&bytes).map(|(args, _)| args), Some(ours.commands[0].clone()));
    }

    #[test]
    fn replies_are_understood(
        number in any::<i64>(),
        value in prop::collection::vec(any::<u8>(), 0..60),
        double in any::<f64>().prop_filter("nan", |n| !n.is_nan()),
    ) {
        let reply = |protocol, write: &dyn Fn(&mut Writer<'_>)| {
            let mut out = Vec::new();
            write(&mut Writer::new(&mut out, protocol));
            out
        };
        let two = |write: &dyn Fn(&mut Writer<'_>)| {
            resp2::decode::decode(&reply(Protocol::Resp2, write)).unwrap().unwrap().0
        };
        let three = |write: &dyn Fn(&mut Writer<'_>)| {
            resp3::decode::complete::decode(&reply(Protocol::Resp3, write)).unwrap().unwrap().0
        };
        prop_assert_eq!(two(&|w| w.integer(number)), Frame2::Integer(number));
        prop_assert_eq!(two(&|w| w.bulk(&value)), Frame2::BulkString(value.clone()));
        let double_of = |frame| match frame { Frame3::Double { data, .. } => Some(data), _ => None };
        prop_assert_eq!(double_of(three(&|w| w.double(double))), Some(double));
        let nested = |w: &mut Writer<'_>| {
            w.map(2);
            w.simple("a");
            w.bulk(&value);
            w.simple("b");
            w.array(3);
            w.null();
            w.boolean(true);
            w.verbatim(*b"txt", b"hi");
        };
        let Frame3::Map { data, .. } = three(&nested) else { panic!("not a map") };
        prop_assert_eq!(data.len(), 2);
        prop_assert!(matches!(two(&nested), Frame2::Array(elements) if elements.len() == 4));
    }
}
