//! The context that commands and requests are executed in, and their outcomes.

pub use crate::ahead::KnownCrc;
use crate::shared::Shared;
use crate::writes::Destination;
use landfall_heap::{HeapError, Until, Writer};
use landfall_kv::{Engine, KvError};
use landfall_sockets::ConnId;
use landfall_wal::Logs;
use std::ops::Range;

/// The context of a command.
pub struct Context<'a> {
    /// Settings, counters, clients.
    pub shared: &'a Shared,
    /// The store.
    pub engine: &'a Engine,
    /// The logs.
    pub logs: &'a Logs,
    /// The worker's writer: records that it appends become durable with the commit that ends the round.
    pub writer: &'a mut Writer,
    /// Current time, Unix milliseconds.
    pub now_ms: u64,
    /// The same on the clock that never jumps, milliseconds since the server started: for waits and limits.
    pub steady_ms: u64,
    /// Arrival time of the request, Unix nanoseconds.
    pub arrival_ns: u64,
    /// The connection.
    pub conn: ConnId,
    /// Number of the worker.
    pub worker: usize,
    /// The wait of this request, if it is executed again.
    pub tail: Option<Tail>,
    /// The checksum of a long value of the command, if it was computed during arrival.
    pub known_crc: Option<KnownCrc>,
}

impl Context<'_> {
    /// What plain writes need.
    pub(crate) fn destination(&mut self) -> Destination<'_> {
        Destination { engine: self.engine, writer: self.writer, worker: self.worker }
    }

    /// What is known of the checksum of a range of the received stream.
    pub(crate) fn known_crc_of(&self, range: &Range<usize>) -> Option<KnownCrc> {
        self.known_crc.clone().filter(|known| known.of(range).is_some())
    }
}

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The reply has been written.
    Done,
    /// The reply has been written. The connection must be closed after the reply is sent.
    Close,
    /// Nothing was changed or written: execute the command again after the wait.
    Wait(Until),
    /// Nothing was changed or written: execute the command again once the log has grown, or at the time limit.
    Tail(Tail),
}

/// A read that waits for entries of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Offset of the entry that the read waits for.
    pub from: u64,
    /// Time limit of the wait, as [`Context::steady_ms`].
    pub until_ms: u64,
}

/// The RESP error for a failed command; `None` when the command has to wait.
pub fn resp_error(error: &KvError) -> Option<String> {
    Some(match error {
        KvError::Wait(_) => return None,
        KvError::Heap(error) => resp_heap_error(error),
        KvError::Damaged { .. } => format!("DAMAGED {error}"),
        KvError::NotDurable => format!("MISCONF {error}"),
        other => format!("ERR {other}"),
    })
}

/// The RESP error for an error of the heap.
pub fn resp_heap_error(error: &HeapError) -> String {
    match error {
        HeapError::Full => {
            "OOM command not allowed: the region is full. Delete keys, or restart with a larger --capacity"
                .into()
        }
        HeapError::TooLarge { what: "a value", .. } => {
            "ERR string exceeds maximum allowed size (proto-max-bulk-len)".into()
        }
        HeapError::Media(error) => format!("MISCONF {error}"),
        other => format!("ERR {other}"),
    }
}

/// The HTTP status and text for a failed request; `None` when the request has to wait.
pub fn http_error(error: &KvError) -> Option<(u16, String)> {
    let status = match error {
        KvError::Wait(_) => return None,
        KvError::Heap(error) => http_heap_status(error),
        KvError::NotDurable => 503,
        _ => 500,
    };
    Some((status, error.to_string()))
}

/// The HTTP status for an error of the heap.
pub fn http_heap_status(error: &HeapError) -> u16 {
    match error {
        HeapError::Full => 507,
        HeapError::TooLarge { .. } => 413,
        _ => 503,
    }
}
