//! However a stream arrives, parsing it costs in proportion to its bytes: nothing is shown to the parser again and
//! again, and what is understood and empty can be dropped at once.

mod support;

use landfall_media::{Chain, Segment};
use landfall_resp::{Limits, Parser};
use proptest::prelude::*;
use support::{encode, parse, work_of_arriving};

/// Bytes of a count line or an inline line that is not complete are shown again with each receive.
const LIMITS: Limits = Limits { args_max: 5000, bulk_bytes_max: 4096, inline_bytes_max: 64 };

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let arg = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        3 => prop::collection::vec(arg, 1..40).prop_map(|args| encode(&args)),
        1 => prop::collection::vec(any::<u8>(), 1000..3000).prop_map(|value| encode(&[b"SET".into(), value])),
        2 => (1..200_usize).prop_map(|count| b"\r\n".repeat(count)),
        1 => (1..200_usize).prop_map(|count| b"*0\r\n".repeat(count)),
        1 => "[a-z ]{0,26}\r?\n".prop_map(String::into_bytes),
    ]
}

/// Points up to which a stream has arrived, in order.
fn points(len: usize, cuts: &[usize]) -> Vec<usize> {
    let mut points: Vec<usize> = cuts.iter().map(|cut| cut % (len + 1)).collect();
    points.sort_unstable();
    points
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn work_is_in_proportion_to_the_bytes_however_they_arrive(
        pieces in prop::collection::vec(piece(), 1..8),
        cuts in prop::collection::vec(any::<usize>(), 0..60),
    ) {
        let bytes = pieces.concat();
        let (outcome, work, receives) = work_of_arriving(&bytes, points(bytes.len(), &cuts), LIMITS);
        prop_assert_eq!(outcome, parse(&bytes, &[], LIMITS));
        let most = 4 * bytes.len() + LIMITS.inline_bytes_max * receives;
        prop_assert!(work <= most, "{} bytes were shown of {} in {} receives", work, bytes.len(), receives);
    }
}

#[test]
fn command_of_many_arguments_that_arrive_one_by_one_is_parsed_once() {
    let bytes = encode(&vec![b"a".to_vec(); 4000]);
    let (outcome, work, receives) = work_of_arriving(&bytes, (0..bytes.len()).step_by(7), LIMITS);
    assert_eq!((outcome.commands.len(), outcome.error), (1, None));
    assert!(work <= 4 * bytes.len() + 32 * receives, "{work} bytes were shown of {}", bytes.len());
}

#[test]
fn empty_commands_are_let_go_of_at_once_and_a_thousand_at_a_time() {
    for empty in [&b"\r\n"[..], b"\n", b"*0\r\n", b"*-1\r\n", b" \r\n"] {
        let bytes = empty.repeat(3000);
        let (mut parser, mut dropped) = (Parser::new(LIMITS), 0);
        for call in 0..3 {
            let segments = [Segment::new(0, &bytes[dropped..])];
            assert!(parser.next(&Chain::new(&segments), 0).unwrap().is_none());
            let skipped = parser.take_skipped();
            assert!((1000 * empty.len()..=1100 * empty.len()).contains(&skipped) || call == 2, "{skipped}");
            dropped += skipped;
        }
        assert_eq!(dropped, bytes.len(), "{}", empty.escape_ascii());
        assert_eq!(parser.bytes_wanted(), 1);
    }
}

#[test]
fn inline_line_without_end_is_searched_once_and_refused_at_its_limit() {
    let bytes = vec![b'x'; LIMITS.inline_bytes_max + 1];
    let (outcome, work, receives) = work_of_arriving(&bytes, 0..bytes.len(), LIMITS);
    assert!(outcome.error.is_some());
    assert!(work <= LIMITS.inline_bytes_max * receives);
}
