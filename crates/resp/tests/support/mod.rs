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

/// The work of parsing `bytes` as they arrive up to each of `points`: bytes shown to the parser, those of each command
/// once more when it is whole. And how many receives it took.
pub(crate) fn work_of_arriving(
    bytes: &[u8],
    points: impl IntoIterator<Item = usize>,
    limits: Limits,
) -> (Outcome, usize, usize) {
    let (mut feed, mut receives) = (Feed::new(limits), 0);
    for have in points.into_iter().chain([bytes.len()]) {
        let dropped = feed.position;
        feed.receive(&bytes[dropped..have], &[], dropped);
        receives += 1;
    }
    (feed.outcome, feed.work, receives)
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
    /// What a look ahead has seen.
    looked: Command,
    /// Offset in the whole stream that the parser is to go on from.
    position: usize,
    outcome: Outcome,
    /// Bytes shown to the parser.
    work: usize,
}

impl Feed {
    fn new(limits: Limits) -> Self {
        let outcome = Outcome { commands: Vec::new(), end: 0, error: None };
        let (command, looked) = (Command::default(), Command::default());
        Self { parser: Parser::new(limits), command, looked, position: 0, outcome, work: 0 }
    }

    /// Parses what the chain over `bytes` holds; `dropped` bytes came before it.
    fn receive(&mut self, bytes: &[u8], cuts: &[usize], dropped: usize) {
        if bytes.len() < self.parser.bytes_wanted() || !self.goes_on(bytes, cuts) {
            return;
        }
        let segments = segments(bytes, cuts);
        let chain = Chain::new(&segments);
        while self.outcome.error.is_none() {
            let from = self.position - dropped;
            let looked = self.parser.look_into(&chain, from, &mut self.looked);
            let next = self.parser.next_into(&chain, from, &mut self.command);
            assert!(!looked || next == Ok(true) && self.looked == self.command, "a look sees something else");
            match next {
                Ok(true) => {
                    self.work += self.command.end - from;
                    self.accept(&chain, dropped);
                }
                Ok(false) => {
                    self.work += chain.len() - from;
                    let skipped = self.parser.take_skipped();
                    self.position += skipped;
                    let left =
                        chain.len().checked_sub(from + skipped).expect("no more is skipped than there is");
                    if left < self.parser.bytes_wanted() {
                        return;
                    }
                    assert!(skipped > 0, "asks for what it has");
                }
                Err(error) => self.outcome.error = Some(error),
            }
        }
    }

    /// Shows what is new of a command that has begun; true if it is worth showing all of it.
    fn goes_on(&mut self, bytes: &[u8], cuts: &[usize]) -> bool {
        let understood = self.parser.understood();
        if understood == 0 {
            return true;
        }
        let segments = segments(&bytes[understood..], cuts);
        let tail = Chain::new(&segments);
        self.work += tail.len();
        self.parser.go_on(&tail)
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
