//! What a command or request is executed with, and what may come of it.

pub use crate::ahead::KnownCrc;
use crate::shared::Shared;
use crate::writes::Destination;
use landfall_heap::{HeapError, Until, Writer};
use landfall_kv::{Engine, KvError};
use landfall_sockets::ConnId;
use landfall_wal::Logs;
use std::ops::Range;

/// What a command gets.
pub struct Context<'a> {
    /// Settings, counters, clients.
    pub shared: &'a Shared,
    /// The store.
    pub engine: &'a Engine,
    /// The logs.
    pub logs: &'a Logs,
    /// The worker's writer: what is appended is durable after the commit that ends the loop's round.
    pub writer: &'a mut Writer,
    /// Now, Unix milliseconds.
    pub now_ms: u64,
    /// Arrival of the request, Unix nanoseconds.
    pub arrival_ns: u64,
    /// The connection.
    pub conn: ConnId,
    /// The worker's number.
    pub worker: usize,
    /// What this request, if it is executed again, has been waiting for.
    pub tail: Option<Tail>,
    /// The checksum of a long value of the command, computed while it arrived.
    pub known_crc: Option<KnownCrc>,
}

impl Context<'_> {
    /// What plain writes are written with.
    pub(crate) fn destination(&mut self) -> Destination<'_> {
        Destination { engine: self.engine, writer: self.writer, worker: self.worker }
    }

    /// What is known of the checksum of a range of the received stream.
    pub(crate) fn known_crc_of(&self, range: &Range<usize>) -> Option<KnownCrc> {
        self.known_crc.clone().filter(|known| known.of(range).is_some())
    }
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The reply has been written.
    Done,
    /// The reply has been written; close the connection once it is sent.
    Close,
    /// Nothing was changed and nothing written: wait, then execute again.
    Wait(Until),
    /// The same: execute again once a log has grown, or when it need not wait any longer.
    Tail(Tail),
}

/// A read of a log that waits for entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Offset of the entry that it waits for.
    pub from: u64,
    /// Until when it waits, Unix milliseconds.
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

/// The RESP error for what has failed below an engine.
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

/// The HTTP status for what has failed below an engine.
pub fn http_heap_status(error: &HeapError) -> u16 {
    match error {
        HeapError::Full => 507,
        HeapError::TooLarge { .. } => 413,
        _ => 503,
    }
}
