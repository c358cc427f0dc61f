//! Writes replies, and error replies for requests that cannot be answered.

use super::dates::Dates;
use crate::context::{Tail, http_error};
use crate::logs::http_wal_error;
use crate::reply::Reply;
use crate::writes::WriteError;
use landfall_heap::{HeapError, Until};
use landfall_http::{Connection, HttpError, ResponseWriter};
use landfall_kv::KvError;
use landfall_media::MediaError;
use landfall_wal::WalError;
use std::borrow::Cow;

/// Content type of plain text.
pub(super) const TEXT: &[u8] = b"text/plain; charset=utf-8";

/// Why a request has no normal reply.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request must be executed again after a wait.
    Wait(Until),
    /// The request must be executed again once a log has grown.
    Tail(Tail),
    /// The request is refused with this reply.
    Refused(Refusal),
}

/// A reply with an error: one line that says what is wrong and what to do.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: Cow<'static, str>,
    /// Methods of the resource, for 405.
    pub(super) allow: Option<&'static str>,
    /// First and next offset of a log, for 416.
    pub(super) range: Option<(u64, u64)>,
    /// Length of a value, for 416.
    pub(super) content_range: Option<usize>,
}

impl Refusal {
    pub(super) fn new(status: u16, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, message: message.into(), allow: None, range: None, content_range: None }
    }

    /// True for replies that count as errors. A missing key and a failed condition are normal answers.
    pub(super) fn is_error(&self) -> bool {
        !matches!(self.status, 404 | 412 | 416)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        match (http_error(&error), error) {
            (Some((status, message)), _) => Self::Refused(Refusal::new(status, message)),
            (None, KvError::Wait(until)) => Self::Wait(until),
            (None, _) => Self::Wait(Until::Commit),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Kv(error) => error.into(),
            other @ WriteError::StandIn(_) => Refusal::new(503, other.to_string()).into(),
        }
    }
}

impl From<WalError> for Failure {
    fn from(error: WalError) -> Self {
        let refused = http_wal_error(&error).map(|(status, message)| Refusal::new(status, message));
        match (refused, error) {
            (Some(refusal), WalError::OutOfRange { first, next, .. }) => {
                Self::Refused(Refusal { range: Some((first, next)), ..refusal })
            }
            (Some(refusal), _) => Self::Refused(refusal),
            (None, WalError::Wait(until)) => Self::Wait(until),
            (None, _) => Self::Wait(Until::Commit),
        }
    }
}

impl From<HeapError> for Failure {
    fn from(error: HeapError) -> Self {
        KvError::from(error).into()
    }
}

impl From<MediaError> for Failure {
    fn from(error: MediaError) -> Self {
        KvError::from(error).into()
    }
}

/// The parser's errors for a target; the rest of the request was valid.
impl From<HttpError> for Refusal {
    fn from(error: HttpError) -> Self {
        Self::new(error.status, error.message)
    }
}

/// A reply that is being written.
pub(super) struct Answer<'x, 'r> {
    pub(super) reply: &'x mut Reply<'r>,
    pub(super) dates: &'x mut Dates,
    /// Current time, Unix milliseconds.
    pub(super) now_ms: u64,
    pub(super) connection: Connection,
    /// The request is a `HEAD`: no body follows.
    pub(super) is_head: bool,
}

impl Answer<'_, '_> {
    /// Begins a head.
    pub(super) fn status(&mut self, status: u16) -> ResponseWriter<'_> {
        let mut writer = ResponseWriter::new(self.reply.bytes());
        writer.status(status, self.dates.now.text(self.now_ms / 1000), self.connection);
        writer
    }

    /// Writes a complete reply with a body outside the region.
    pub(super) fn body(&mut self, status: u16, content_type: &[u8], body: &[u8]) {
        let is_head = self.is_head;
        let mut writer = self.status(status);
        writer.header("Content-Type", content_type);
        if is_head {
            writer.content_length(body.len());
        } else {
            writer.body(body);
        }
    }

    /// Writes a complete reply that is a refusal.
    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        let is_head = self.is_head;
        let mut writer = self.status(refusal.status);
        if let Some(allow) = refusal.allow {
            writer.header("Allow", allow.as_bytes());
        }
        if let Some((first, next)) = refusal.range {
            writer.header("X-Landfall-First", first.to_string().as_bytes());
            writer.header("X-Landfall-End", next.to_string().as_bytes());
        }
        if let Some(len) = refusal.content_range {
            writer.header("Content-Range", format!("bytes */{len}").as_bytes());
        }
        if refusal.status == 401 {
            writer.header("WWW-Authenticate", b"Basic realm=\"landfall\", charset=\"UTF-8\"");
            writer.header("WWW-Authenticate", b"Bearer realm=\"landfall\"");
        }
        writer.header("Content-Type", TEXT);
        writer.content_length(refusal.message.len() + 1);
        if !is_head {
            self.reply.bytes().extend_from_slice(refusal.message.as_bytes());
            self.reply.bytes().push(b'\n');
        }
    }
}
