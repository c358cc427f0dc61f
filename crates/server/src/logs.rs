//! What both protocols share for logs: the texts of errors, and reads that wait for entries.

use crate::context::{Context, Tail, http_heap_status, resp_heap_error};
use landfall_heap::{Gate, HeapError};
use landfall_wal::{LogStats, Page, ReadLimit, WalError};

/// Entries of one read by default.
pub const READ_ENTRIES: usize = 100;
/// Longest wait for a log to grow, for requests that may not wait for ever, milliseconds.
pub const WAIT_MS_MAX: u64 = 3_600_000;

/// The RESP error for a failed command; `None` when the command has to wait.
pub fn resp_wal_error(error: &WalError) -> Option<String> {
    Some(match error {
        WalError::Wait(_) => return None,
        WalError::Heap(HeapError::Full) => {
            "OOM the region is full: trim logs or delete keys, or restart with a larger --capacity".into()
        }
        WalError::Heap(error) => resp_heap_error(error),
        WalError::NoLog => "NOLOG no such log: append to it first".into(),
        WalError::OutOfRange { .. } => format!("OUTOFRANGE {error}"),
        WalError::Damaged { .. } | WalError::DamagedPosition { .. } => format!("DAMAGED {error}"),
        other => format!("ERR {other}"),
    })
}

/// The HTTP status and text for a failed request; `None` when the request has to wait.
pub fn http_wal_error(error: &WalError) -> Option<(u16, String)> {
    let status = match error {
        WalError::Wait(_) => return None,
        WalError::Heap(error) => http_heap_status(error),
        WalError::NoLog | WalError::NoConsumer => 404,
        WalError::OutOfRange { .. } => 416,
        WalError::BadName { .. } | WalError::BadCount { .. } => 400,
        WalError::Exhausted { .. } => 507,
        _ => 500,
    };
    Some((status, error.to_string()))
}

/// The position to read a log from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The first entry.
    First,
    /// Behind the last durable entry: only entries that are appended from now on.
    End,
    /// This offset.
    Offset(u64),
}

impl From {
    /// Parses `first`, `end` or an offset.
    pub fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"first" | b"-" => Some(Self::First),
            b"end" | b"$" => Some(Self::End),
            digits if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
                std::str::from_utf8(digits).ok()?.parse().ok().map(Self::Offset)
            }
            _ => None,
        }
    }

    fn offset(self, log: &LogStats) -> u64 {
        match self {
            Self::First => log.first,
            Self::End => log.next,
            Self::Offset(offset) => offset,
        }
    }
}

/// Result of a read.
pub enum Read<'h> {
    /// Entries.
    Page(Page<'h>),
    /// No entry yet: execute the read again later.
    Tail(Tail),
}

/// Reads entries. If there are none yet, waits up to `wait_ms` for some, if given.
///
/// # Errors
/// Errors of the logs.
pub fn read<'a>(
    ctx: &Context<'a>,
    reply: &mut impl Gate,
    name: &[u8],
    from: From,
    limit: ReadLimit,
    wait_ms: Option<u64>,
) -> Result<Read<'a>, WalError> {
    let logs = ctx.logs;
    // A read that waits was given the log's end once, and continues from there.
    let from = match (from, ctx.tail) {
        (From::Offset(offset), _) => offset,
        (_, Some(tail)) => tail.from,
        (from, None) => from.offset(&logs.stats_of(name)?.open(reply)),
    };
    let page = logs.read(name, from, limit)?.open(reply);
    let Some(wait_ms) = wait_ms.filter(|_| page.entries.is_empty() && limit.entries > 0) else {
        return Ok(Read::Page(page));
    };
    let until_ms = ctx.tail.map_or_else(|| ctx.steady_ms.saturating_add(wait_ms), |tail| tail.until_ms);
    if ctx.steady_ms >= until_ms {
        return Ok(Read::Page(page));
    }
    if logs.watch(name, from, ctx.worker as u8)? {
        // The log has grown since.
        return Ok(Read::Page(logs.read(name, from, limit)?.open(reply)));
    }
    Ok(Read::Tail(Tail { from, until_ms }))
}
