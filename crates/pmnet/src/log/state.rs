//! The state of a log.

use super::index::Index;
use crate::identity::Identity;
use landfall_heap::{Gated, Heap, SlotId, Writer};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of the log's writer among the writers of its region.
const WRITER_ID: u8 = 0;

/// Limits of a log. An update beyond a limit is forwarded, but neither logged nor acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries.
    pub entries_max: usize,
    /// Bytes of their packets.
    pub bytes_max: u64,
    /// Entries of one session.
    pub session_entries_max: usize,
    /// Sessions whose state is stored, including sessions without entries.
    pub sessions_max: usize,
    /// Updates that wait for a fence. This is the queue in front of persistent memory (§IV-B2).
    pub queue_max: usize,
    /// Bytes of the longest packet. A packet must fit into a frame.
    pub packet_bytes_max: u32,
    /// Entries of one client in sessions of which no server has said anything.
    pub client_unknown_max: usize,
    /// Entries of all clients in sessions of which no server has said anything.
    pub unknown_max: usize,
    /// Paths that are stored.
    pub paths_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries_max: 1 << 20,
            bytes_max: 1 << 30,
            session_entries_max: 4096,
            sessions_max: 1 << 16,
            queue_max: 1024,
            packet_bytes_max: 2048,
            client_unknown_max: 1 << 12,
            unknown_max: 1 << 18,
            paths_max: 1 << 16,
        }
    }
}

/// An update that has been appended, and that is to be acknowledged after the fence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    pub(super) identity: Identity,
    /// The hash in the update's header, which the acknowledgement repeats.
    pub(super) hash: u32,
    pub(super) slot: SlotId,
}

/// The `aux` field of an entry's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aux {
    /// Number of bytes before the PMNet header.
    pub(super) header_at: u16,
    /// True if the device had not seen the server accept the session.
    pub(super) not_started: bool,
    /// The relay's port from which the update is forwarded; 0 if the device is no relay.
    pub(super) port: u16,
}

impl Aux {
    /// A bit that no offset in a frame needs: frames are shorter than this value.
    const NOT_STARTED: u16 = 1 << 15;

    pub(super) fn of(aux: u32) -> Self {
        let low = aux as u16;
        Self {
            header_at: low & !Self::NOT_STARTED,
            not_started: low & Self::NOT_STARTED != 0,
            port: (aux >> 16) as u16,
        }
    }

    pub(super) fn to_u32(self) -> u32 {
        let flag = if self.not_started { Self::NOT_STARTED } else { 0 };
        u32::from(self.port) << 16 | u32::from(self.header_at | flag)
    }
}

/// The state that the log shares with its keeper.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) heap: Arc<Heap>,
    pub(super) index: Mutex<Index>,
}

/// Updates by identity, stored in a heap that belongs to the log alone.
///
/// Contract: call [`Self::append`] for each update that arrives. Then call [`Self::commit`]; or
/// [`Self::begin_commit`], a fence on another thread, and [`Self::finish_commit`]. The commit names the updates to
/// acknowledge.
#[derive(Debug)]
pub struct Log {
    pub(super) shared: Arc<Shared>,
    pub(super) writer: Writer,
    pub(super) limits: Limits,
    /// Updates to acknowledge once they are durable, in the order in which they were appended.
    pub(super) pending: VecDeque<Gated<Appended>>,
}

impl Log {
    pub(super) fn new(shared: Arc<Shared>, limits: Limits) -> Self {
        let writer = Writer::new(Arc::clone(&shared.heap), WRITER_ID);
        Self { shared, writer, limits, pending: VecDeque::new() }
    }
}
