//! The meaning of a stream does not depend on how it is cut into segments, nor on how it arrives.

mod support;

use landfall_http::Limits;
use proptest::prelude::*;
use support::{parse, parse_arriving, work_of_arriving};

/// Limits near enough to be met.
const SMALL: Limits = Limits { head_bytes_max: 160, headers_max: 5, body_bytes_max: 60, key_bytes_max: 12 };

/// A request, and the body that it carries.
fn request() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let chunks = prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..4);
    let target = "/[a-z%2F]{0,10}(\\?[a-z=&]{0,5})?";
    (target, "(X-[A-Z]: [a-z ]{0,8}\r\n){0,2}", chunks, any::<bool>()).prop_map(
        |(target, headers, chunks, chunked)| {
            let body = chunks.concat();
            let mut bytes = format!("PUT {target} HTTP/1.1\r\nHost: h\r\n{headers}").into_bytes();
            if chunked {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in &chunks {
                    bytes.extend(format!("{:x};e\r\n", chunk.len()).bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\nT: 1\r\n\r\n");
            } else {
                bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
                bytes.extend(&body);
            }
            (bytes, body)
        },
    )
}

/// Streams of valid requests, near misses and noise.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let damaged = (request(), any::<prop::sample::Index>(), prop::sample::select(b"\r\n :;,0a\0".to_vec()));
    let piece = prop_oneof![
        6 => request().prop_map(|(bytes, _)| bytes),
        3 => damaged.prop_map(|((mut bytes, _), at, with)| { let at = at.index(bytes.len()); bytes[at] = with; bytes }),
        1 => "[ -~\r\n]{0,20}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn segments_do_not_change_the_meaning(bytes in stream(), cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        prop_assert_eq!(parse(&bytes, &cuts, SMALL).meaning(), parse(&bytes, &[], SMALL).meaning());
    }

    #[test]
    fn arrival_does_not_change_the_meaning(
        bytes in stream(),
        step in 1_usize..40,
        cuts in prop::collection::vec(any::<usize>(), 0..4),
    ) {
        prop_assert_eq!(parse_arriving(&bytes, step, &cuts, SMALL).meaning(), parse(&bytes, &[], SMALL).meaning());
    }

    #[test]
    fn bodies_arrive_as_they_were_sent(requests in prop::collection::vec(request(), 0..4)) {
        let limits = Limits { head_bytes_max: 1000, key_bytes_max: 100, ..SMALL };
        let bytes = requests.iter().flat_map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>();
        let got = parse(&bytes, &[], limits);
        prop_assert_eq!((got.error, got.end), (None, bytes.len()));
        let bodies: Vec<_> = got.requests.iter().map(|request| request.body()).collect();
        let want: Vec<_> = requests.into_iter().map(|(_, body)| body).collect();
        prop_assert_eq!(bodies, want);
    }
}

#[test]
fn every_cut_of_a_pipeline_means_the_same() {
    let bytes: &[u8] = b"\r\nPUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
        3;x\r\nabc\r\n2\r\n\r\n\r\n0\r\nT: 1\r\n\r\nPUT /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\
        Content-Length: 2\r\n\r\nxyGET / HTTP/1.0\r\n\r\n";
    let want = parse(bytes, &[], Limits::default()).meaning();
    assert_eq!((want.requests.len(), want.end, want.error), (3, bytes.len(), None));
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            assert_eq!(parse(bytes, &[first, second], Limits::default()), want, "{first}, {second}");
        }
        let arriving = parse_arriving(bytes, first + 1, &[first], Limits::default());
        assert_eq!(arriving.meaning(), want);
    }
    assert_eq!(parse_arriving(bytes, 1, &[], Limits::default()).continues, 1);
}

#[test]
fn body_of_many_chunks_that_arrive_one_by_one_is_parsed_once() {
    let head = "PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bytes = format!("{head}{}0\r\n\r\n", "1\r\na\r\n".repeat(4000)).into_bytes();
    let limits = Limits { body_bytes_max: 4000, ..SMALL };
    let (outcome, work) = work_of_arriving(&bytes, 6, limits);
    assert_eq!((outcome.requests.len(), outcome.error), (1, None));
    assert!(work <= 4 * bytes.len() + head.len() * head.len(), "{work} bytes were shown of {}", bytes.len());
}
