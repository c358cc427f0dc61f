//! The hot path: small commands in, small replies out.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use landfall_media::{Chain, Segment};
use landfall_resp::{Command, Limits, Parser, Protocol, Writer, glob_match};

/// `SET key:0000000001 <1 KiB>`.
fn set_command() -> Vec<u8> {
    let mut bytes = b"*3\r\n$3\r\nSET\r\n$14\r\nkey:0000000001\r\n$1024\r\n".to_vec();
    bytes.resize(bytes.len() + 1024, b'v');
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Parses the one command in `segments`.
fn parse(c: &mut Criterion, name: &str, segments: &[Segment<'_>]) {
    let chain = Chain::new(segments);
    let mut parser = Parser::new(Limits::default());
    let mut command = Command::default();
    c.bench_function(name, |b| {
        b.iter(|| parser.next_into(black_box(&chain), 0, &mut command).map(|_| command.end));
    });
}

fn parsing(c: &mut Criterion) {
    let bytes = set_command();
    parse(c, "parse SET 1 KiB", &[Segment::new(0, &bytes)]);
    let (head, tail) = bytes.split_at(500);
    parse(c, "parse SET 1 KiB, value split", &[Segment::new(0, head), Segment::new(4096, tail)]);
    parse(c, "parse inline GET", &[Segment::new(0, b"GET key:0000000001\r\n")]);
}

fn waiting(c: &mut Criterion) {
    let bytes = set_command();
    let segments = [Segment::new(0, &bytes[..1000])];
    let chain = Chain::new(&segments);
    let mut parser = Parser::new(Limits::default());
    let mut command = Command::default();
    c.bench_function("wait for a value", |b| {
        b.iter(|| parser.next_into(black_box(&chain), 0, &mut command));
    });
}

fn writing(c: &mut Criterion) {
    let mut out = Vec::with_capacity(4096);
    c.bench_function("write OK and a bulk header", |b| {
        b.iter(|| {
            out.clear();
            let mut writer = Writer::new(&mut out, Protocol::Resp2);
            writer.ok();
            writer.bulk_header(black_box(1024));
            writer.crlf();
        });
    });
}

fn globs(c: &mut Criterion) {
    c.bench_function("glob key:*:name", |b| {
        b.iter(|| glob_match(black_box(b"key:*:name"), b"key:0000000001:name"))
    });
}

criterion_group!(benches, parsing, waiting, writing, globs);
criterion_main!(benches);
