//! Clients besides the mount: processes that append writes to logs of their own. `docs/format/fs-link.md` says how they do
//! it. Here their operations are executed on the tree, once they are adopted: as they are, or again, in the log of the mount,
//! which other machines get.

use crate::error::FsError;
use crate::files::Files;
use crate::key::{InodeNumber, OperationKey, WritePlace};
use crate::log::{CLIENT, Log};
use crate::operation::Stamp;
use crate::state::{Doer, State, Step};
use landfall_heap::{Crcs, HeapError, RECORD_SIZE, SlotId, Source, TakenRoom};
use landfall_media::{Dirty, Extent, MediaError, Site};

/// A write that a client has appended. Its record is adopted ([`landfall_heap::ForeignSlab::adopt`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignWrite {
    /// Its record.
    pub slot: SlotId,
    /// The bytes of the record, as they were checked.
    pub record: [u8; RECORD_SIZE as usize],
    /// File, offset and lease.
    pub place: WritePlace,
    /// Bytes.
    pub len: u64,
    /// When it was executed, Unix nanoseconds.
    pub time_ns: i64,
}

/// Clients from this number on have logs that never count: each of their operations is executed again, in the log of the
/// mount. No bound has such a number.
pub const FIRST_CLIENT_AGAIN: u32 = 1 << 31;

/// A write that a client has appended, and that is executed again in the log of the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdoptedWrite<'a> {
    /// File, offset and lease.
    pub place: WritePlace,
    /// Where its bytes are, in runs that were granted to the client. They have been verified.
    pub extents: &'a [Extent],
    /// CRC-32C of all its bytes.
    pub crc: u32,
    /// When it was executed, Unix nanoseconds.
    pub time_ns: i64,
}

/// A log ends at an operation that the tree refuses.
#[derive(Debug, thiserror::Error)]
#[error("operation {index} is refused: {error}")]
pub struct RefusedWrite {
    /// Index of the operation.
    pub index: u64,
    /// Why.
    pub error: FsError,
}

impl Files {
    /// A new client. It may append once [`crate::Publisher::step`] has returned: then its first bound is durable, and its
    /// log begins at index 0.
    ///
    /// # Errors
    /// [`HeapError::Full`] if all numbers of clients are used up.
    pub fn attach(&self) -> Result<u32, FsError> {
        let mut state = self.lock();
        let client = state.header.next_client;
        state.header.next_client =
            client.checked_add(1).filter(|next| *next < FIRST_CLIENT_AGAIN).ok_or(HeapError::Full)?;
        state.header_changed = true;
        state.others.insert(client, Log::new(client));
        Ok(client)
    }

    /// Executes writes that a client has appended, in order. They are visible at once, and durable already. Whoever else
    /// changes these files has done so before, or waits until this returns.
    ///
    /// # Errors
    /// The first operation that the tree refuses. Neither it nor what is behind it counts.
    ///
    /// # Panics
    /// If there is no such client, or if it has ended.
    pub fn execute_foreign(&self, client: u32, writes: &[ForeignWrite]) -> Result<(), RefusedWrite> {
        let mut state = self.lock();
        for (at, write) in writes.iter().enumerate() {
            let done = state.again(|tree| tree.write(&write.place, write.len, write.slot, write.time_ns));
            state.tree.take_touched();
            let log = state.log_of(client).filter(|log| !log.has_ended).expect("a client that has not ended");
            let index = log.next();
            if let Err(error) = done {
                writes[at..].iter().for_each(|write| self.heap.drop_record(write.slot));
                return Err(RefusedWrite { index, error });
            }
            log.slots.push_back(write.slot);
            log.checked.push_back((write.slot, write.record));
            log.bytes += write.len;
            log.written += write.len;
        }
        Ok(())
    }

    /// Executes writes that a client has appended, in order, as operations of the mount's log. They are visible at once, and
    /// durable with [`Self::sync_all`]. `room` is what was taken for them at the log's successor. Whoever else changes these
    /// files has done so before, or waits until this returns. Returns how many were executed, and why the next one was not.
    /// `note` is called with that number before anybody publishes them.
    pub fn execute_adopted(
        &self,
        writes: &[AdoptedWrite<'_>],
        room: &mut TakenRoom,
        note: impl Fn(usize),
    ) -> (usize, Result<(), FsError>) {
        let mut state = self.lock();
        state.writer.set_admitted(true);
        state.writer.lend_room(std::mem::take(room));
        let (mut count, mut outcome) = (0, Ok(()));
        for write in writes {
            outcome = state.execute_adopted(write);
            if outcome.is_err() {
                break;
            }
            count += 1;
            note(count);
        }
        *room = state.writer.take_lent_room();
        state.writer.set_admitted(false);
        (count, outcome)
    }

    /// Takes room at the log's successor for so many writes of clients that have so many bytes together. `None`: there is not
    /// plenty of it.
    pub fn take_spare_room(&self, writes: u64, bytes: u64) -> Option<TakenRoom> {
        let place = WritePlace { file: InodeNumber::ROOT, offset: 0, lease: 0 };
        let key = OperationKey { client: CLIENT, index: 0, write: Some(place) }.encode();
        self.lock().writer.take_spare_room((writes, key.len() as u64, bytes))
    }

    /// A client has ended: nothing that it has appended, and that was not executed, counts any more once
    /// [`crate::Publisher::step`] has returned.
    pub fn end_client(&self, client: u32) {
        if let Some(log) = self.lock().others.get_mut(&client) {
            log.has_ended = true;
        }
    }

    /// Clients besides the mount whose logs are not closed by a bound.
    pub fn clients(&self) -> Vec<u32> {
        self.lock().others.keys().copied().collect()
    }
}

impl State {
    fn execute_adopted(&mut self, write: &AdoptedWrite<'_>) -> Result<(), FsError> {
        // While publishing is held, nobody could wait for it here: the client's lease may be taken back. What it has appended
        // was granted before.
        if self.held.is_none() {
            self.check_backlog()?;
        }
        let WritePlace { file, offset, lease } = write.place;
        let crc = Some(Crcs::Whole(write.crc));
        let step = Step::Write(offset, Source::Landed { extents: write.extents, crc });
        self.apply_for(Doer::Client, Stamp { lease, time_ns: write.time_ns }, file, &[step])
    }

    /// Records of clients' operations that the clients have changed after they were checked become what they were: whoever
    /// publishes reads them again.
    pub(crate) fn restore_foreign(&self) -> Result<(), MediaError> {
        let (media, mut dirty, mut is_changed) = (self.heap.media(), Dirty::new(), false);
        for log in self.others.values() {
            for (slot, (checked, record)) in log.slots.iter().zip(&log.checked) {
                let at = Extent::new(slot.off(), RECORD_SIZE as u32);
                // The compactor has written what it moved.
                if slot == checked && media.bytes(at)? != record {
                    media.store(at.off, record)?;
                    media.flush(&mut dirty, Site::Record, at);
                    is_changed = true;
                }
            }
        }
        if is_changed { media.fence(&mut dirty, Site::Commit) } else { Ok(()) }
    }
}
