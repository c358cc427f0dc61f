//! Parses a request whose body lies scattered over frames, and answers it.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use landfall_http::{
    CONTINUE, HttpError, Limits, Parser, Progress, Request, ResponseWriter, decode_path, format_date,
};
use landfall_media::{Chain, Segment};

fn main() -> Result<(), HttpError> {
    let head = b"PUT /greeting%2Fen HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe";
    let segments = [Segment::new(0x1000, head), Segment::new(0x8000, b"llo\r\n7\r\n, world\r\n0\r\n\r\n")];
    let chain = Chain::new(&segments);
    let mut parser = Parser::new(Limits::default());
    let mut replies = Vec::new();
    match parser.next(&chain, 0)? {
        Progress::Request(request) => serve(&request, &chain, &mut replies)?,
        Progress::AwaitsBody { wants_continue: true } => replies.extend_from_slice(CONTINUE),
        Progress::AwaitsBody { .. } => println!("the body is wanted"),
        Progress::NeedMore => println!("{} bytes are needed", parser.bytes_wanted()),
    }
    println!("{}", String::from_utf8_lossy(&replies));
    Ok(())
}

/// Says where the value lies, and replies.
fn serve(request: &Request, chain: &Chain<'_>, replies: &mut Vec<u8>) -> Result<(), HttpError> {
    println!("{} {}", request.method.as_str(), decode_path(request.path())?.escape_ascii());
    for range in &request.body {
        chain.extents(range.clone(), |extent| println!("  {} bytes at {:#x}", extent.len(), extent.off));
    }
    // A server formats the date of its clock once a second.
    let date = format_date(784_111_777);
    let mut writer = ResponseWriter::new(replies);
    writer.status(201, &date, request.connection());
    writer.header("ETag", b"\"1\"");
    writer.no_body();
    Ok(())
}
