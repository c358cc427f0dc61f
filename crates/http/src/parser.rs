//! The request parser: a state machine whose progress is relative to the start of the request.

use landfall_media::Chain;
use std::ops::Range;

use crate::chunked::{Chunked, ChunkedStep};
use crate::error::HttpError;
use crate::framing::Framing;
use crate::head;
use crate::limits::{HEAD_BYTES_CAP, HEADERS_CAP, Limits};
use crate::request::Request;
use crate::stream::{Line, LineScan, Stream};

/// Empty lines before a request are ignored (RFC 9112, section 2.2) up to this many bytes.
const LEADING_BYTES_MAX: usize = 16;

/// What [`Parser::next`] has come to.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "moved once, into the caller's frame; a box would cost more")]
pub enum Progress {
    /// More bytes are needed.
    NeedMore,
    /// The head has been read ([`Parser::head`]), and its body is not all there. Decide by the head whether it is
    /// wanted, and call again; or refuse with a final reply, and close or call [`Parser::refuse_body`]. Yielded at
    /// most once a request.
    AwaitsBody {
        /// The client waits for permission before it sends the body: if it is wanted, send [`CONTINUE`].
        ///
        /// [`CONTINUE`]: crate::CONTINUE
        wants_continue: bool,
    },
    /// A whole request; the next one starts at `Request::end`.
    Request(Request),
}

/// Parses the requests of one connection.
///
/// Call [`Parser::next`] with the chain of everything received and not yet dropped, and the stream offset at
/// which the next request starts; when it needs more, call again when there are at least
/// [`Parser::bytes_wanted`] bytes from that offset on. Bytes before the offset may be dropped in between (the
/// offset then shrinks); bytes after it must stay as they were.
///
/// Bytes already understood are not read again: waiting for a long body costs a comparison a call. A caller that holds
/// a body of many chunks in many segments need not list them all for each packet, either: [`Parser::go_on`] takes what
/// lies behind [`Parser::understood`] alone.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    /// Bytes understood; everything here is relative to the start of the request.
    pos: usize,
    /// Bytes needed before the next step can be taken.
    wanted: usize,
    lines: LineScan,
    stage: Stage,
    /// The request whose body is awaited.
    request: Option<Request>,
    /// What to ask before more of the body is awaited.
    question: Question,
}

/// What is to be asked of the caller before a body is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Nothing: it has been asked, or there is no head yet.
    None,
    /// Whether the body is wanted.
    Body,
    /// The same, of a client that sends it only when it has been told to.
    Continue,
}

#[derive(Debug)]
enum Stage {
    /// Reading lines of a head that starts at `start`.
    Head { start: usize },
    /// Waiting for a body of `len` bytes.
    Fixed { len: usize },
    /// Reading chunks.
    Chunked(Chunked),
    /// All of the request is there.
    Whole,
}

/// What one step has come to.
enum Step {
    Again,
    NeedMore,
    Done,
}

impl Parser {
    /// A parser at the start of a connection. Limits above the caps are lowered to them.
    pub fn new(limits: Limits) -> Self {
        let limits = Limits {
            head_bytes_max: limits.head_bytes_max.min(HEAD_BYTES_CAP),
            headers_max: limits.headers_max.min(HEADERS_CAP),
            ..limits
        };
        Self {
            limits,
            pos: 0,
            wanted: 1,
            lines: LineScan::default(),
            stage: Stage::Head { start: 0 },
            request: None,
            question: Question::None,
        }
    }

    /// How many bytes from the request's start on are needed, at least, before [`Parser::next`] can do more.
    pub fn bytes_wanted(&self) -> usize {
        self.wanted
    }

    /// Where the body lies that is awaited, from the request's start on, if its length is known.
    pub fn awaited(&self) -> Option<Range<usize>> {
        match self.stage {
            Stage::Fixed { len } => Some(self.pos..self.pos.saturating_add(len)),
            _ => None,
        }
    }

    /// The request whose body is still on its way, once its head has been read: what to decide by at
    /// [`Progress::AwaitsBody`]. Its body and end are not set yet.
    pub fn head(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Length of the request whose body is awaited, head and body, bytes; `None` where it is not known.
    pub fn len_known(&self) -> Option<usize> {
        self.awaited().map(|body| body.end)
    }

    /// Forgets the request whose body is awaited. The next one starts [`Parser::len_known`] bytes further on.
    pub fn refuse_body(&mut self) {
        self.reset();
    }

    /// Leading bytes of the request that are understood: [`Parser::go_on`] asks for none of them again.
    pub fn understood(&self) -> usize {
        match &self.stage {
            Stage::Head { .. } => 0,
            Stage::Chunked(chunked) => chunked.understood(self.pos),
            Stage::Fixed { .. } | Stage::Whole => self.pos,
        }
    }

    /// Pieces of an unfinished body that have been taken so far: one a chunk.
    pub fn chunks_taken(&self) -> usize {
        self.request.as_ref().map_or(0, |request| request.body.len())
    }

    /// Goes on with a body that has begun. `tail` holds what was received from [`Parser::understood`] on, and nothing
    /// else. True if it is worth calling [`Parser::next`], which yields the request, or its error; false if more
    /// bytes are needed.
    pub fn go_on(&mut self, tail: &Chain<'_>) -> bool {
        let stream = Stream::tail(tail, self.understood());
        if stream.len() < self.wanted {
            return false;
        }
        while !matches!(self.stage, Stage::Head { .. } | Stage::Whole) {
            match self.step(&stream) {
                Ok(Step::Again) => {}
                Ok(Step::NeedMore) => return false,
                Ok(Step::Done) => self.stage = Stage::Whole,
                // The step is taken again by `next`, which says what is wrong.
                Err(_) => return true,
            }
        }
        true
    }

    /// Parses the request that starts at stream offset `from`.
    ///
    /// # Errors
    /// [`HttpError`]: reply with it and close the connection.
    pub fn next(&mut self, chain: &Chain<'_>, from: usize) -> Result<Progress, HttpError> {
        let stream = Stream::new(chain, from);
        if stream.len() < self.wanted {
            return Ok(Progress::NeedMore);
        }
        loop {
            match self.step(&stream)? {
                Step::Again => {}
                Step::NeedMore => return Ok(self.pause(&stream)),
                Step::Done => return Ok(self.finish(from)),
            }
        }
    }

    fn step(&mut self, stream: &Stream<'_, '_>) -> Result<Step, HttpError> {
        match &mut self.stage {
            Stage::Head { start } => {
                let start = *start;
                self.head_line(stream, start)
            }
            Stage::Fixed { len } => {
                let len = *len;
                Ok(self.fixed_body(stream, len))
            }
            Stage::Whole => Ok(Step::Done),
            Stage::Chunked(chunked) => {
                let Some(request) = self.request.as_mut() else { return Ok(Step::NeedMore) };
                match chunked.step(stream, &mut self.pos, request, &self.limits)? {
                    ChunkedStep::Again => Ok(Step::Again),
                    ChunkedStep::Want(wanted) => {
                        self.wanted = wanted;
                        Ok(Step::NeedMore)
                    }
                    ChunkedStep::Done => Ok(Step::Done),
                }
            }
        }
    }

    /// More bytes are needed; of a body only if it is wanted.
    fn pause(&mut self, stream: &Stream<'_, '_>) -> Progress {
        let body_has_begun = stream.len() > self.pos;
        match std::mem::replace(&mut self.question, Question::None) {
            Question::None => Progress::NeedMore,
            asked => Progress::AwaitsBody { wants_continue: asked == Question::Continue && !body_has_begun },
        }
    }

    /// Reads one line of the head that starts at `start`.
    fn head_line(&mut self, stream: &Stream<'_, '_>, start: usize) -> Result<Step, HttpError> {
        let is_request_line = self.pos == start;
        let limit = start + self.limits.head_bytes_max;
        let end = match self.lines.line(stream, self.pos, limit) {
            Line::Ends(end) => end,
            Line::Open => {
                self.wanted = stream.len() + 1;
                return Ok(Step::NeedMore);
            }
            Line::TooLong if is_request_line => return Err(HttpError::new(414, "request line too long")),
            Line::TooLong => return Err(HttpError::new(431, "header fields too large")),
            Line::BareLineFeed => return Err(HttpError::bad("line ends with LF alone")),
        };
        let is_empty = end == self.pos;
        self.pos = end + 2;
        match (is_empty, is_request_line) {
            (true, true) => self.skip_empty_line(),
            (true, false) => self.end_head(stream, start),
            (false, _) => Ok(Step::Again),
        }
    }

    /// An empty line before the request line.
    fn skip_empty_line(&mut self) -> Result<Step, HttpError> {
        if self.pos > LEADING_BYTES_MAX {
            return Err(HttpError::bad("empty lines instead of a request"));
        }
        self.stage = Stage::Head { start: self.pos };
        Ok(Step::Again)
    }

    /// The head is complete: reads it, and chooses how to wait for the body.
    fn end_head(&mut self, stream: &Stream<'_, '_>, start: usize) -> Result<Step, HttpError> {
        let bytes = stream.gather(start..self.pos).into_owned();
        let head = head::parse(bytes, &self.limits)?;
        self.request = Some(head.request);
        self.question = if head.expects_continue { Question::Continue } else { Question::Body };
        match head.framing {
            Framing::Length(0) => return Ok(Step::Done),
            Framing::Length(len) => self.stage = Stage::Fixed { len },
            Framing::Chunked => self.stage = Stage::Chunked(Chunked::default()),
        }
        Ok(Step::Again)
    }

    /// Takes a body of known length once all of it is there.
    fn fixed_body(&mut self, stream: &Stream<'_, '_>, len: usize) -> Step {
        let end = self.pos.saturating_add(len);
        if stream.len() < end {
            self.wanted = end;
            return Step::NeedMore;
        }
        if let Some(request) = &mut self.request {
            request.body.push(self.pos..end);
            request.body_len = len;
        }
        self.pos = end;
        Step::Done
    }

    /// Yields the finished request in stream offsets, and forgets it.
    fn finish(&mut self, from: usize) -> Progress {
        let end = from + self.pos;
        let request = self.request.take();
        self.reset();
        let Some(mut request) = request else { return Progress::NeedMore };
        for range in &mut request.body {
            *range = from + range.start..from + range.end;
        }
        request.end = end;
        Progress::Request(request)
    }

    /// Stands at the start of the next request.
    fn reset(&mut self) {
        (self.pos, self.wanted, self.request) = (0, 1, None);
        (self.lines, self.stage, self.question) =
            (LineScan::default(), Stage::Head { start: 0 }, Question::None);
    }
}
