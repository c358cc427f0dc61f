//! Fuzz targets, run as tests on their kept corpus (`__fuzz__/*/corpus`) and on random inputs;
//! `cargo bolero test` runs them under a fuzzer.

mod support;

use bolero::{TypeGenerator, check};
use landfall_http::{
    EntityTags, Limits, Version, decode_path, encode_path, format_date, parse_date, query_pairs,
};
use support::{Outcome, Seen, parse, parse_arriving};

const SMALL: Limits =
    Limits { head_bytes_max: 400, headers_max: 8, body_bytes_max: 1000, key_bytes_max: 100 };

/// No panic, no range outside the chain (checked while parsing), the same meaning however it arrives, and
/// the same requests when they are encoded again.
fn check_stream(bytes: &[u8]) {
    let whole = parse(bytes, &[], SMALL).meaning();
    let advance = |at: &mut usize, b: &u8| {
        *at += usize::from(*b);
        Some(*at)
    };
    let cuts: Vec<usize> = bytes.iter().scan(0, advance).take(8).collect();
    assert_eq!(parse(bytes, &cuts, SMALL).meaning(), whole);
    assert_eq!(parse_arriving(bytes, 1 + bytes.len() % 7, &cuts, SMALL).meaning(), whole);
    check_encoding(&whole);
}

/// What was parsed, written in the plainest form, is parsed alike.
fn check_encoding(outcome: &Outcome) {
    let bytes: Vec<u8> = outcome.requests.iter().flat_map(encode).collect();
    let limits = Limits { head_bytes_max: 4000, ..SMALL };
    let again = parse(&bytes, &[], limits);
    assert_eq!((again.error, &again.requests), (None, &outcome.requests), "{}", bytes.escape_ascii());
    assert_eq!(again.end, bytes.len());
}

fn encode(request: &Seen) -> Vec<u8> {
    let query = request.query.as_ref().map(|query| [b"?", &query[..]].concat()).unwrap_or_default();
    let version: &[u8] = if request.version == Version::Http10 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" };
    let mut out = [request.method.as_bytes(), b" ", &request.path, &query, version].concat();
    for (name, value) in &request.headers {
        out.extend([name, &b": "[..], value, b"\r\n"].concat());
    }
    out.extend(b"\r\n");
    let is_chunked = request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"transfer-encoding"));
    for chunk in &request.chunks {
        let (before, after) =
            if is_chunked { (format!("{:x}\r\n", chunk.len()), "\r\n") } else { (String::new(), "") };
        out.extend([before.as_bytes(), chunk, after.as_bytes()].concat());
    }
    out.extend(if is_chunked { &b"0\r\n\r\n"[..] } else { b"" });
    out
}

#[test]
fn any_bytes() {
    check!().with_max_len(512).for_each(check_stream);
}

/// What streams are made of.
#[derive(Debug, TypeGenerator)]
enum Piece {
    RequestLine(u8, u8),
    Host,
    Header(u8, u8),
    Length(u8),
    LineEnd,
    Chunk(Vec<u8>),
    ChunkSize(u16),
    LastChunk,
    Byte(u8),
    Text(Vec<u8>),
}

const LINES: [&str; 8] = [
    "GET /a",
    "PUT /k%2F?x=1",
    "DELETE http://h/a?b",
    "OPTIONS *",
    "HEAD /",
    "POST /p",
    "CONNECT h:1",
    "X-Y /z",
];
const VERSIONS: [&str; 4] = ["1.1", "1.1", "1.0", "2.0"];
const NAMES: [&str; 6] = ["Connection", "Transfer-Encoding", "Expect", "Content-Length", "X", "Host"];
const VALUES: [&str; 8] = ["chunked", "close", "keep-alive", "100-continue", "5", "a, b", "", "gzip"];

fn pick<'a>(from: &[&'a str], index: u8) -> &'a str {
    from[usize::from(index) % from.len()]
}

impl Piece {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::RequestLine(line, version) => {
                out.extend(format!("{} HTTP/{}\r\n", pick(&LINES, *line), pick(&VERSIONS, *version)).bytes());
            }
            Self::Host => out.extend(b"Host: h\r\n"),
            Self::Header(name, value) => {
                out.extend(format!("{}: {}\r\n", pick(&NAMES, *name), pick(&VALUES, *value)).bytes());
            }
            Self::Length(len) => out.extend(format!("Content-Length: {}\r\n", len % 16).bytes()),
            Self::LineEnd => out.extend(b"\r\n"),
            Self::Chunk(bytes) => {
                out.extend(format!("{:X}\r\n", bytes.len()).bytes());
                out.extend(bytes);
                out.extend(b"\r\n");
            }
            Self::ChunkSize(size) => out.extend(format!("{size:x}\r\n").bytes()),
            Self::LastChunk => out.extend(b"0\r\n\r\n"),
            Self::Byte(byte) => out.push(*byte),
            Self::Text(bytes) => out.extend(bytes),
        }
    }
}

#[test]
fn any_mixture_of_pieces() {
    check!().with_type::<Vec<Piece>>().for_each(|pieces| {
        let mut bytes = b"PUT /k HTTP/1.1\r\nHost: h\r\n".to_vec();
        pieces.iter().for_each(|piece| piece.write(&mut bytes));
        check_stream(&bytes);
    });
}

#[test]
fn any_field_value() {
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        if let Ok(key) = decode_path(bytes) {
            let mut text = Vec::new();
            encode_path(&key, &mut text);
            assert_eq!(decode_path(&text).as_deref(), Ok(&key[..]));
        }
        let _ = query_pairs(bytes);
        let _ = EntityTags::parse([bytes]);
        if let Some(second) = parse_date(bytes) {
            assert_eq!(parse_date(&format_date(second)), Some(second));
        }
    });
}
