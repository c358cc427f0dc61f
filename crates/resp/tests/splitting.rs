//! The meaning of a stream does not depend on how it is cut into segments, nor on how it arrives.

mod support;

use landfall_resp::Limits;
use proptest::prelude::*;
use support::{encode, parse, parse_arriving, parse_arriving_at};

/// Limits near enough to be met.
const SMALL: Limits = Limits { args_max: 6, bulk_bytes_max: 40, inline_bytes_max: 24 };

fn command() -> impl Strategy<Value = Vec<u8>> {
    let arg = prop::collection::vec(any::<u8>(), 0..45);
    prop::collection::vec(arg, 1..7).prop_map(|args| encode(&args))
}

/// Streams of valid commands, near misses and noise.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => command(),
        3 => "[a-z \"'\\\\]{0,26}\r?\n".prop_map(String::into_bytes),
        1 => "[*$][0-9-]{0,26}\r\n".prop_map(String::into_bytes),
        1 => "(\r\n|[*]0\r\n){1,3}".prop_map(String::into_bytes),
        1 => "[*$:\r\n0-9a]{0,6}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn segments_do_not_change_the_meaning(bytes in stream(), cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        prop_assert_eq!(parse(&bytes, &cuts, SMALL), parse(&bytes, &[], SMALL));
    }

    #[test]
    fn arrival_does_not_change_the_meaning(
        bytes in stream(),
        step in 1_usize..20,
        cuts in prop::collection::vec(any::<usize>(), 0..4),
    ) {
        prop_assert_eq!(parse_arriving(&bytes, step, &cuts, SMALL), parse(&bytes, &[], SMALL));
    }

    #[test]
    fn commands_read_back_as_they_were_written(bytes in prop::collection::vec(command(), 0..5)) {
        let limits = Limits { bulk_bytes_max: 45, ..SMALL };
        let got = parse(&bytes.concat(), &[], limits);
        prop_assert_eq!(got.error, None);
        let again: Vec<Vec<u8>> = got.commands.iter().map(|args| encode(args)).collect();
        prop_assert_eq!(again, bytes);
    }
}

#[test]
fn every_cut_of_a_pipeline_means_the_same() {
    let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nhello\r\nworld\r\nset \"a b\" '\\x'\r\n*0\r\n\r\n*1\r\n$4\r\nPING\r\n";
    let want = parse(bytes, &[], Limits::default());
    assert_eq!((want.commands.len(), want.end), (3, bytes.len()));
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            assert_eq!(parse(bytes, &[first, second], Limits::default()), want, "{first}, {second}");
        }
        assert_eq!(parse_arriving(bytes, first + 1, &[first], Limits::default()), want);
    }
}

#[test]
fn every_two_interruptions_of_a_pipeline_mean_the_same() {
    let bytes = b"*1\r\n$4\r\nPING\r\na\n*2\r\n$3\r\nGET\r\n$1\r\na\r\nb\nPING\r\n";
    let want = parse(bytes, &[], Limits::default());
    assert_eq!((want.commands.len(), &want.error), (5, &None));
    for first in 1..bytes.len() {
        for second in first..bytes.len() {
            let got = parse_arriving_at(bytes, [first, second], &[], Limits::default());
            assert_eq!(got, want, "{first}, {second}");
        }
    }
}

#[test]
fn every_cut_of_an_error_means_the_same() {
    for bytes in [
        &b"PING\r\n*2\r\n$1\r\na\r\n:1\r\n"[..],
        b"*1\r\n$2\r\nabc\r\n",
        b"*1x\r\n",
        b"*1\rx",
        b"*1\r\n$-1\r\n",
        b"a 'b\r\n",
        b"*1234567890123456789012345",
        b"aaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
    ] {
        let want = parse(bytes, &[], SMALL);
        assert!(want.error.is_some(), "{}", bytes.escape_ascii());
        for cut in 0..=bytes.len() {
            assert_eq!(parse(bytes, &[cut], SMALL), want);
            assert_eq!(parse_arriving(bytes, cut + 1, &[], SMALL), want);
        }
    }
}
