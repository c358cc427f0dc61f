//! Why a command did not complete.

use crate::context::{Tail, resp_error, resp_heap_error};
use crate::reply::Reply;
use crate::writes::WriteError;
use landfall_heap::{HeapError, Until};
use landfall_kv::KvError;
use landfall_media::MediaError;
use landfall_resp::{Protocol, Writer};
use std::borrow::Cow;

/// Why a command did not complete.
#[derive(Debug)]
pub(super) enum Fail {
    /// The command must wait, then be executed again.
    Wait(Until),
    /// The command must wait until a log has grown, then be executed again.
    Tail(Tail),
    /// The region has no room for what the command writes.
    Full,
    /// The error to reply with.
    Error(Cow<'static, str>),
}

impl Fail {
    /// An error with a fixed text.
    pub(super) const fn error(text: &'static str) -> Self {
        Self::Error(Cow::Borrowed(text))
    }

    pub(super) const fn syntax() -> Self {
        Self::error("ERR syntax error")
    }

    pub(super) const fn not_an_integer() -> Self {
        Self::error("ERR value is not an integer or out of range")
    }

    pub(super) const fn too_long() -> Self {
        Self::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
    }

    /// The error for a wrong number of arguments of `name`.
    pub(super) fn arity(name: &str) -> Self {
        Self::Error(format!("ERR wrong number of arguments for '{name}' command").into())
    }

    /// True if the command lacks room in the region, or waits for it.
    pub(super) fn is_for_space(&self) -> bool {
        matches!(self, Self::Full | Self::Wait(Until::Space))
    }

    /// Writes the error. The failure must not be a wait.
    pub(super) fn write(&self, protocol: Protocol, reply: &mut Reply<'_>) {
        let text: Cow<'_, str> = match self {
            Self::Error(text) => text.as_ref().into(),
            Self::Full => resp_heap_error(&HeapError::Full).into(),
            Self::Wait(_) | Self::Tail(_) => "ERR the command has to wait where it cannot".into(),
        };
        Writer::new(reply.bytes(), protocol).error(&text);
    }
}

impl From<KvError> for Fail {
    fn from(error: KvError) -> Self {
        match (&error, resp_error(&error)) {
            (KvError::Wait(until), _) => Self::Wait(*until),
            (KvError::Heap(HeapError::Full), _) => Self::Full,
            (_, text) => Self::Error(text.unwrap_or_default().into()),
        }
    }
}

impl From<WriteError> for Fail {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Kv(error) => error.into(),
            other @ WriteError::StandIn(_) => Self::Error(format!("ERR {other}").into()),
        }
    }
}

impl From<MediaError> for Fail {
    fn from(error: MediaError) -> Self {
        KvError::from(error).into()
    }
}

impl From<HeapError> for Fail {
    fn from(error: HeapError) -> Self {
        KvError::from(error).into()
    }
}
