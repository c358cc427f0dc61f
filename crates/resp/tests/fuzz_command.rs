//! Fuzz targets, run as tests on their kept corpus (`__fuzz__/*/corpus`) and on random inputs;
//! `cargo bolero test` runs them under a fuzzer.

mod support;

use bolero::{TypeGenerator, check};
use landfall_resp::Limits;
use support::{encode, parse, parse_arriving};

const SMALL: Limits = Limits { args_max: 100, bulk_bytes_max: 1000, inline_bytes_max: 100 };

/// No panic, no range outside the chain (checked while parsing), the same meaning however it arrives, and
/// the same bytes when a command in array form is encoded again.
fn check_stream(bytes: &[u8]) {
    let whole = parse(bytes, &[], SMALL);
    let cuts: Vec<usize> = bytes
        .iter()
        .scan(0, |at, b| {
            *at += usize::from(*b);
            Some(*at)
        })
        .take(8)
        .collect();
    assert_eq!(parse(bytes, &cuts, SMALL), whole);
    assert_eq!(parse_arriving(bytes, 1 + bytes.len() % 7, &cuts, SMALL), whole);
    let array_first = bytes.starts_with(b"*") && !bytes.starts_with(b"*0") && !bytes.starts_with(b"*-");
    if let Some(args) = whole.commands.first().filter(|_| array_first) {
        assert!(bytes.starts_with(&encode(args)));
    }
}

#[test]
fn any_bytes() {
    check!().with_max_len(512).for_each(check_stream);
}

/// What streams are made of.
#[derive(Debug, TypeGenerator)]
enum Piece {
    Command(Vec<Vec<u8>>),
    Array(u8),
    Bulk(u8),
    LineEnd,
    Quote(bool),
    Blank,
    Backslash,
    Byte(u8),
    Text(Vec<u8>),
}

impl Piece {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Command(args) => out.extend(encode(args)),
            Self::Array(count) => out.extend(format!("*{}\r\n", count % 8).bytes()),
            Self::Bulk(len) => out.extend(format!("${}\r\n", len % 16).bytes()),
            Self::LineEnd => out.extend(b"\r\n"),
            Self::Quote(double) => out.push(if *double { b'"' } else { b'\'' }),
            Self::Blank => out.push(b' '),
            Self::Backslash => out.push(b'\\'),
            Self::Byte(byte) => out.push(*byte),
            Self::Text(bytes) => out.extend(bytes),
        }
    }
}

#[test]
fn any_mixture_of_pieces() {
    check!().with_type::<Vec<Piece>>().for_each(|pieces| {
        let mut bytes = Vec::new();
        pieces.iter().for_each(|piece| piece.write(&mut bytes));
        check_stream(&bytes);
    });
}
