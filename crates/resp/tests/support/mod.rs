//! Ways to feed a byte stream to the parser, and what they all must agree on.
#![allow(dead_code, reason = "each test file uses some of it")]

use landfall_media::{Chain, Segment};
use landfall_resp::{Command, Limits, Parser, ProtocolError};

/// What a stream means: its commands, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) commands: Vec<Vec<Vec<u8>>>,
    /// Stream offset after the last command.
    pub(crate) end: usize,
    pub(crate) error: Option<ProtocolError>,
}

/// `bytes` as segments cut at `cuts` (taken modulo the length), at scattered addresses.
pub(crate) fn segments<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<Segment<'a>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let piece = |pair: &[usize]| Segment::new(4096 * pair[0] as u64, &bytes[pair[0]..pair[1]]);
    cuts.windows(2).map(piece).collect()
}

/// Parses all of `bytes` at once, cut into segments.
pub(crate) fn parse(bytes: &[u8], cuts: &[usize], limits: Limits) -> Outcome {
    let mut feed = Feed::new(limits);
    feed.receive(bytes, cuts, 0);
    feed.outcome
}

/// Parses `bytes` as they arrive, `step` at a time; bytes of finished commands are dropped, as a server does.
pub(crate) fn parse_arriving(bytes: &[u8], step: usize, cuts: &[usize], limits: Limits) -> Outcome {
    parse_arriving_at(bytes, (0..bytes.len()).step_by(step).skip(1), cuts, limits)
}

/// The same, up to each of `points` in turn, and then the rest.
pub(crate) fn parse_arriving_at(
    bytes: &[u8],
    points: impl IntoIterator<Item = usize>,
    cuts: &[usize],
    limits: Limits,
) -> Outcome {
    let mut feed = Feed::new(limits);
    for have in points.into_iter().chain([bytes.len()]) {
        let dropped = feed.position;
        feed.receive(&bytes[dropped..have], cuts, dropped);
    }
    feed.outcome
}

/// A connection's parser and what it has yielded.
struct Feed {
    parser: Parser,
    command: Command,
    /// Offset in the whole stream that the parser is to go on from.
    position: usize,
    outcome: Outcome,
}

impl Feed {
    fn new(limits: Limits) -> Self {
        let outcome = Outcome { commands: Vec::new(), end: 0, error: None };
        Self { parser: Parser::new(limits), command: Command::default(), position: 0, outcome }
    }

    /// Parses what the chain over `bytes` holds; `dropped` bytes came before it.
    fn receive(&mut self, bytes: &[u8], cuts: &[usize], dropped: usize) {
        let segments = segments(bytes, cuts);
        let chain = Chain::new(&segments);
        while self.outcome.error.is_none() {
            match self.parser.next_into(&chain, self.position - dropped, &mut self.command) {
                Ok(true) => self.accept(&chain, dropped),
                Ok(false) => {
                    let from = self.position - dropped;
                    assert!(self.parser.bytes_wanted() > chain.len() - from, "asks for what it has");
                    self.position += self.parser.take_skipped();
                    assert!(self.position - dropped <= chain.len());
                    return;
                }
                Err(error) => self.outcome.error = Some(error),
            }
        }
    }

    /// Checks a command's ranges and keeps its arguments.
    fn accept(&mut self, chain: &Chain<'_>, dropped: usize) {
        let mut at = self.position - dropped;
        assert!(self.command.end > at && self.command.end <= chain.len(), "no progress, or past the end");
        assert!(!self.command.args.is_empty());
        for range in self.command.args.iter().filter_map(|arg| arg.range()) {
            assert!(range.start >= at && range.end <= self.command.end, "{range:?} is not in order");
            at = range.end;
        }
        let bytes = self.command.args.iter().map(|arg| arg.bytes(chain).into_owned());
        self.outcome.commands.push(bytes.collect());
        self.position = dropped + self.command.end;
        self.outcome.end = self.position;
    }
}

/// The canonical encoding of a command.
pub(crate) fn encode(args: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend(format!("${}\r\n", arg.len()).bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}
