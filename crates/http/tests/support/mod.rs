//! Ways to feed a byte stream to the parser, and what they all must agree on.
#![allow(dead_code, reason = "each test file uses some of it")]

use landfall_http::{HttpError, Limits, Parser, Progress, Request, Version};
use landfall_media::{Chain, Segment};

/// What a stream means: its requests, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) requests: Vec<Seen>,
    /// Stream offset after the last request.
    pub(crate) end: usize,
    pub(crate) error: Option<HttpError>,
    /// How often the parser asked for `100 Continue`; not the same however a stream arrives.
    pub(crate) continues: usize,
}

impl Outcome {
    /// What does not depend on how the stream arrived.
    pub(crate) fn meaning(self) -> Self {
        Self { continues: 0, ..self }
    }
}

/// A request by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) version: Version,
    pub(crate) path: Vec<u8>,
    pub(crate) query: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) keep_alive: bool,
    /// The body, one element a range.
    pub(crate) chunks: Vec<Vec<u8>>,
}

impl Seen {
    fn new(request: &Request, chain: &Chain<'_>) -> Self {
        Self {
            method: request.method.as_str().to_owned(),
            version: request.version,
            path: request.path().to_vec(),
            query: request.query().map(<[u8]>::to_vec),
            headers: request.headers().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
            keep_alive: request.keep_alive,
            chunks: request.body.iter().map(|range| chain.gather(range.clone()).into_owned()).collect(),
        }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }
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

/// Parses `bytes` as they arrive, `step` at a time; bytes of finished requests are dropped, as a server does.
pub(crate) fn parse_arriving(bytes: &[u8], step: usize, cuts: &[usize], limits: Limits) -> Outcome {
    let mut feed = Feed::new(limits);
    for have in (0..bytes.len()).step_by(step).skip(1).chain([bytes.len()]) {
        let dropped = feed.outcome.end;
        feed.receive(&bytes[dropped..have], cuts, dropped);
    }
    feed.outcome
}

/// The work of parsing `bytes` as they arrive, `step` at a time: bytes shown to the parser, those of each request once
/// more when it is whole.
pub(crate) fn work_of_arriving(bytes: &[u8], step: usize, limits: Limits) -> (Outcome, usize) {
    let mut feed = Feed::new(limits);
    for have in (0..bytes.len()).step_by(step).skip(1).chain([bytes.len()]) {
        let dropped = feed.outcome.end;
        feed.receive(&bytes[dropped..have], &[], dropped);
    }
    (feed.outcome, feed.work)
}

/// A connection's parser and what it has yielded.
struct Feed {
    parser: Parser,
    outcome: Outcome,
    /// Bytes shown to the parser.
    work: usize,
}

impl Feed {
    fn new(limits: Limits) -> Self {
        let outcome = Outcome { requests: Vec::new(), end: 0, error: None, continues: 0 };
        Self { parser: Parser::new(limits), outcome, work: 0 }
    }

    /// Parses what the chain over `bytes` holds; `dropped` bytes came before it.
    fn receive(&mut self, bytes: &[u8], cuts: &[usize], dropped: usize) {
        if bytes.len() < self.parser.bytes_wanted() || !self.goes_on(bytes, cuts) {
            return;
        }
        let segments = segments(bytes, cuts);
        let chain = Chain::new(&segments);
        while self.outcome.error.is_none() {
            let from = self.outcome.end - dropped;
            match self.parser.next(&chain, from) {
                Ok(Progress::Request(request)) => {
                    self.work += request.end - from;
                    self.accept(&request, &chain, dropped);
                }
                Ok(Progress::AwaitsBody { wants_continue }) => {
                    self.outcome.continues += usize::from(wants_continue);
                }
                Ok(Progress::NeedMore) => {
                    assert!(self.parser.bytes_wanted() > chain.len() - from, "asks for what it has");
                    self.work += chain.len() - from;
                    return;
                }
                Err(error) => self.outcome.error = Some(error),
            }
        }
    }

    /// Shows what is new of a request whose body has begun; true if it is worth showing all of it.
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

    /// Checks a request's ranges and keeps it.
    fn accept(&mut self, request: &Request, chain: &Chain<'_>, dropped: usize) {
        let mut at = self.outcome.end - dropped;
        assert!(request.end > at && request.end <= chain.len(), "no progress, or past the end");
        for range in &request.body {
            assert!(range.start >= at && range.end <= request.end, "{range:?} is not in order");
            at = range.end;
        }
        assert_eq!(request.body.iter().map(|range| range.len()).sum::<usize>(), request.body_len);
        self.outcome.requests.push(Seen::new(request, chain));
        self.outcome.end = dropped + request.end;
    }
}
