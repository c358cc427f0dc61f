//! The hot path: small requests in, small replies out.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use landfall_http::{Connection, Limits, Parser, Progress, ResponseWriter, format_date};
use landfall_media::{Chain, Segment};

/// A PUT of 1 KiB with the header fields of a common client.
fn put() -> Vec<u8> {
    let mut bytes =
        b"PUT /kv/key%3A0000000001 HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: curl/8.5.0\r\n\
        Accept: */*\r\nContent-Length: 1024\r\nContent-Type: application/octet-stream\r\n\r\n"
            .to_vec();
    bytes.resize(bytes.len() + 1024, b'v');
    bytes
}

/// Parses the one request in `segments`.
fn parse(c: &mut Criterion, name: &str, segments: &[Segment<'_>]) {
    let chain = Chain::new(segments);
    let mut parser = Parser::new(Limits::default());
    c.bench_function(name, |b| {
        b.iter(|| match parser.next(black_box(&chain), 0) {
            Ok(Progress::Request(request)) => request.end,
            other => panic!("{other:?}"),
        });
    });
}

fn parsing(c: &mut Criterion) {
    let bytes = put();
    parse(c, "parse PUT 1 KiB", &[Segment::new(0, &bytes)]);
    let (head, tail) = bytes.split_at(100);
    parse(c, "parse PUT 1 KiB, head split", &[Segment::new(0, head), Segment::new(4096, tail)]);
    parse(c, "parse GET", &[Segment::new(0, b"GET /kv/k HTTP/1.1\r\nHost: localhost\r\n\r\n")]);
}

fn writing(c: &mut Criterion) {
    let date = format_date(784_111_777);
    let mut out = Vec::with_capacity(4096);
    c.bench_function("write 204", |b| {
        b.iter(|| {
            out.clear();
            let mut writer = ResponseWriter::new(&mut out);
            writer.status(black_box(204), &date, Connection::Implied);
            writer.no_body();
        });
    });
    c.bench_function("write head of 200 with an ETag", |b| {
        b.iter(|| {
            out.clear();
            let mut writer = ResponseWriter::new(&mut out);
            writer.status(black_box(200), &date, Connection::Implied);
            writer.header("ETag", black_box(b"\"0123456789abcdef\""));
            writer.content_length(black_box(1024));
        });
    });
}

criterion_group!(benches, parsing, writing);
criterion_main!(benches);
