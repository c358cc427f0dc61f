//! Parses a pipeline that lies scattered over frames, and answers each command.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use landfall_media::{Chain, Segment};
use landfall_resp::{Command, Limits, Parser, Protocol, ProtocolError, Writer};

fn main() -> Result<(), ProtocolError> {
    // Two frames at different places of a region; the value "hello" is split over them.
    let segments = [
        Segment::new(0x1000, b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhe"),
        Segment::new(0x8000, b"llo\r\n"),
    ];
    let chain = Chain::new(&segments);
    let mut replies = Vec::new();
    let mut writer = Writer::new(&mut replies, Protocol::Resp2);
    let mut parser = Parser::new(Limits::default());
    let (mut command, mut from) = (Command::default(), 0);
    while parser.next_into(&chain, from, &mut command)? {
        from = command.end;
        println!("{}", command.args[0].bytes(&chain).escape_ascii());
        for range in command.args[1..].iter().filter_map(|arg| arg.range()) {
            chain.extents(range, |extent| println!("  {} bytes at {:#x}", extent.len(), extent.off));
        }
        writer.ok();
    }
    println!("replies: {}", replies.escape_ascii());
    Ok(())
}
