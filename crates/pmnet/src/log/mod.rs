//! The device's log: updates kept as they were received, by identity.
//!
//! Read [`Log`] first. Records, commit, recovery, and why no crash loses what was acknowledged: `docs/format/pmnet.md`.

mod index;
mod keep;
mod recover;

pub use keep::{Keeper, Kept};
pub use recover::Recovered;

use crate::error::LogError;
use crate::wire::Header;
use crate::{Flow, Identity};
use index::Index;
use landfall_heap::{
    Entry, Extents, FEATURE_PMNET, Gated, Heap, HeapError, Kind, SlotId, Source, ValuePlace, Writer, spaces,
};
use landfall_media::{CommitMode, Dirty, Extent, MediaError};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// The log's writer among those of its region.
const WRITER_ID: u8 = 0;

/// How much a log takes. What goes beyond is forwarded, neither logged nor acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries.
    pub entries_max: usize,
    /// Bytes of their packets.
    pub bytes_max: u64,
    /// Entries of one session.
    pub session_entries_max: usize,
    /// Sessions that are remembered, those without entries included.
    pub sessions_max: usize,
    /// Updates that wait for a fence: the queue in front of persistent memory (§IV-B2).
    pub queue_max: usize,
    /// Bytes of the longest packet: a frame's.
    pub packet_bytes_max: u32,
    /// Entries of one client's sessions of which no server has said anything.
    pub client_unknown_max: usize,
    /// The same, in all.
    pub unknown_max: usize,
    /// Ports of relays that are remembered.
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

/// What became of an update that was to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// It is in the log; to be acknowledged after the fence.
    New,
    /// It was there, byte for byte. Durable: acknowledge it again; else its fence will.
    Known {
        /// A fence has covered it.
        durable: bool,
    },
    /// It is not logged.
    Not(NotLogged),
}

/// Why an update is not logged. It is forwarded all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotLogged {
    /// The log has as many entries or bytes as it takes, or the region is full.
    Full,
    /// The session has as many entries as it may.
    SessionFull,
    /// No server has said anything of its session, and as many such entries are there as may be, of its client or in all.
    Unknown,
    /// The queue in front of the fence is full.
    QueueFull,
    /// Another packet has the same identity.
    Collision,
    /// Longer than a frame.
    TooLong,
    /// The server has confirmed it before.
    Applied,
}

/// What the log has of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEntries {
    /// Who sends to whom.
    pub flow: Flow,
    /// The session.
    pub session: u16,
    /// The lowest number.
    pub first: u32,
    /// The highest.
    pub last: u32,
    /// Updates.
    pub count: u64,
    /// Bytes of their packets.
    pub bytes: u64,
    /// What the server has shown to know of it.
    pub standing: Standing,
}

/// What has passed here of what a server knows of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Nothing.
    #[default]
    Unknown,
    /// It has confirmed an update, as it also does of sessions that it has forgotten.
    Heard,
    /// It has taken the session.
    Started,
}

/// An update of the log, found and held: [`Log::release`] it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The packet's bytes, in the region; none for one so short that it is in its record.
    pub extents: Extents,
    /// Those of a packet that is in its record.
    inline: Vec<u8>,
    /// Bytes in front of the PMNet header.
    pub header_at: usize,
}

/// An update that has been appended.
#[derive(Clone, Copy, Debug)]
struct Appended {
    identity: Identity,
    /// Of its header: the acknowledgement bears it.
    hash: u32,
    slot: SlotId,
}

/// The `aux` of an entry's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Aux {
    /// Bytes in front of the PMNet header.
    header_at: u16,
    /// That the server has taken the session has not passed here.
    not_started: bool,
    /// The relay's port from which the update is sent on; 0 for another device's.
    port: u16,
}

impl Aux {
    /// Frames are shorter than this.
    const NOT_STARTED: u16 = 1 << 15;

    fn of(aux: u32) -> Self {
        let low = aux as u16;
        Self {
            header_at: low & !Self::NOT_STARTED,
            not_started: low & Self::NOT_STARTED != 0,
            port: (aux >> 16) as u16,
        }
    }

    fn to_u32(self) -> u32 {
        let flag = if self.not_started { Self::NOT_STARTED } else { 0 };
        u32::from(self.port) << 16 | u32::from(self.header_at | flag)
    }
}

/// What the log and its keeper share.
#[derive(Debug)]
struct Shared {
    heap: Arc<Heap>,
    index: Mutex<Index>,
}

/// Updates by identity, over a heap of their own.
///
/// Contract: [`Self::append`] as updates arrive; then [`Self::commit`], or [`Self::begin_commit`], a fence elsewhere and
/// [`Self::finish_commit`]: these name the updates to acknowledge.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    writer: Writer,
    limits: Limits,
    /// Updates to be acknowledged once they are durable, in the order in which they were appended.
    pending: VecDeque<Gated<Appended>>,
}

impl Log {
    fn new(shared: Arc<Shared>, limits: Limits) -> Self {
        let writer = Writer::new(Arc::clone(&shared.heap), WRITER_ID);
        Self { shared, writer, limits, pending: VecDeque::new() }
    }

    /// The heap below.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.shared.heap
    }

    /// True if the region has never held an update: no device has run over it before.
    pub fn is_new(&self) -> bool {
        self.shared.heap.geometry().features & FEATURE_PMNET == 0
    }

    /// The log's background work: to be run now and then, by any thread.
    pub fn keeper(&self) -> Keeper {
        Keeper::new(Arc::clone(&self.shared))
    }

    /// Entries, those included that are not durable yet.
    pub fn len(&self) -> usize {
        self.shared.index.lock().len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the entries' packets.
    pub fn bytes(&self) -> u64 {
        self.shared.index.lock().bytes()
    }

    /// Logs the update that lies in `packet`, which the caller holds; its PMNet header is `header_at` bytes in.
    ///
    /// # Errors
    /// The medium's: the region is closed for writing then.
    pub fn append(
        &mut self,
        identity: Identity,
        packet: Extent,
        header_at: usize,
        arrival_ns: u64,
    ) -> Result<Logged, LogError> {
        if let Some(settled) = self.look(&identity, packet, header_at)? {
            return Ok(settled);
        }
        self.shared.heap.require_features(FEATURE_PMNET)?;
        let key = identity.to_bytes();
        let hash = self.hash(packet, header_at)?;
        let (not_started, port) = {
            let index = self.shared.index.lock();
            (index.standing(&identity) < Standing::Started, index.path(&identity.flow).unwrap_or(0))
        };
        let entry = Entry {
            kind: Kind::Put,
            space: spaces::PMNET_LOG,
            hash: self.shared.heap.hash(spaces::PMNET_LOG, &key),
            key: &key,
            key_at: None,
            value: Source::Landed { extents: &[packet], crc: None },
            arrival_ns,
            expiry_ms: 0,
            aux: Aux { header_at: header_at as u16, not_started, port }.to_u32(),
        };
        match self.writer.append(&entry) {
            Ok(slot) => {
                self.shared.index.lock().insert(identity, slot, packet.len());
                self.pending.push_back(self.writer.gate(Appended { identity, hash, slot }));
                Ok(Logged::New)
            }
            Err(HeapError::Full) => Ok(Logged::Not(NotLogged::Full)),
            Err(HeapError::Busy) => Ok(Logged::Not(NotLogged::QueueFull)),
            Err(error) => Err(error.into()),
        }
    }

    /// The hash in the header of the packet that lies here.
    fn hash(&self, packet: Extent, header_at: usize) -> Result<u32, LogError> {
        let bytes = self.shared.heap.media().bytes(packet)?;
        Ok(Header::parse(bytes.get(header_at..).unwrap_or_default()).map_or(0, |header| header.hash))
    }

    /// What is known of the update already, or what speaks against it.
    fn look(
        &self,
        identity: &Identity,
        packet: Extent,
        header_at: usize,
    ) -> Result<Option<Logged>, LogError> {
        let index = self.shared.index.lock();
        if let Some(known) = index.get(identity) {
            let same = self.is_same(known.slot, packet, header_at)?;
            return Ok(Some(match same {
                true => Logged::Known { durable: known.durable },
                false => Logged::Not(NotLogged::Collision),
            }));
        }
        let limits = &self.limits;
        let bytes = index.bytes() + u64::from(packet.len());
        let against = if packet.len() > limits.packet_bytes_max {
            Some(NotLogged::TooLong)
        } else if index.is_applied(identity) {
            Some(NotLogged::Applied)
        } else if index.len() >= limits.entries_max || bytes > limits.bytes_max {
            Some(NotLogged::Full)
        } else if index.session_len(identity) >= limits.session_entries_max {
            Some(NotLogged::SessionFull)
        } else if index.standing(identity) == Standing::Unknown && self.is_unknown_full(&index, identity) {
            Some(NotLogged::Unknown)
        } else if self.pending.len() >= limits.queue_max {
            Some(NotLogged::QueueFull)
        } else {
            None
        };
        Ok(against.map(Logged::Not))
    }

    fn is_unknown_full(&self, index: &Index, identity: &Identity) -> bool {
        let (of_client, in_all) = index.unknown(&identity.flow);
        of_client >= self.limits.client_unknown_max || in_all >= self.limits.unknown_max
    }

    /// What has passed here of what a server knows of a session.
    pub fn standing(&self, flow: Flow, session: u16) -> Standing {
        self.shared.index.lock().standing(&Identity { flow, session, seq: 0 })
    }

    /// A session begins without a session start, perhaps in place of one that had its name. False while updates of that one are in
    /// the log.
    pub fn begin(&mut self, flow: Flow, session: u16) -> bool {
        self.shared.index.lock().begin(&Identity { flow, session, seq: 0 })
    }

    /// A server has shown what it knows of a session.
    pub fn raise(&mut self, flow: Flow, session: u16, to: Standing) {
        self.shared.index.lock().raise(flow, session, to, self.limits.sessions_max);
    }

    /// A server knows nothing of an update's session. The update is removed, but for one of a session that a server has taken: what
    /// has been acknowledged to its client is kept, whatever becomes of servers. True if it was removed.
    pub fn refused(&mut self, identity: &Identity) -> bool {
        let standing = self.shared.index.lock().standing(identity);
        standing < Standing::Started && self.remove(identity)
    }

    /// True if the PMNet packet in `slot` is that in `packet`: headers below it differ with each repetition.
    fn is_same(&self, slot: SlotId, packet: Extent, header_at: usize) -> Result<bool, LogError> {
        let heap = &self.shared.heap;
        let view = heap.record(slot)?;
        let known = heap.value_bytes(slot, &view)?;
        let new = heap.media().bytes(packet)?;
        Ok(known.get(Aux::of(view.aux()).header_at.into()..) == new.get(header_at..))
    }

    /// True if something waits for a fence.
    pub fn has_pending(&self) -> bool {
        self.writer.has_work()
    }

    /// True between [`Self::begin_commit`] and [`Self::finish_commit`].
    pub fn is_committing(&self) -> bool {
        self.writer.is_committing()
    }

    /// True if a fence is worth doing elsewhere.
    pub fn commits_elsewhere(&self) -> bool {
        self.shared.heap.media().commit_mode() == CommitMode::Deferred
    }

    /// Fences what was appended; hands each update that is durable now to `durable`, with the hash of its header.
    ///
    /// # Errors
    /// The medium's; nothing is to be acknowledged then.
    pub fn commit(&mut self, durable: impl FnMut(Identity, u32)) -> Result<(), LogError> {
        if let Some(mut dirty) = self.begin_commit() {
            let outcome = self.shared.heap.media().fence(&mut dirty, landfall_media::Site::Commit);
            self.finish_commit(outcome, durable)?;
        }
        Ok(())
    }

    /// Ends the batch; the fence of what is returned makes it durable. `None`: nothing to do, or one is under way.
    pub fn begin_commit(&mut self) -> Option<Dirty> {
        if self.writer.is_committing() {
            return None;
        }
        self.writer.begin_commit()
    }

    /// The fence has ended. Hands each update that it covers to `durable`, with the hash of its header, if it is still wanted.
    ///
    /// # Errors
    /// The outcome's.
    pub fn finish_commit(
        &mut self,
        outcome: Result<(), MediaError>,
        mut durable: impl FnMut(Identity, u32),
    ) -> Result<(), LogError> {
        self.writer.finish_commit(outcome)?;
        while let Some(oldest) = self.pending.pop_front() {
            let Appended { identity, hash, slot } = match oldest.if_durable(&self.shared.heap) {
                Ok(appended) => appended,
                Err(later) => {
                    self.pending.push_front(later);
                    break;
                }
            };
            let is_wanted = self.shared.index.lock().mark_durable(&identity, slot);
            if is_wanted {
                durable(identity, hash);
            } else {
                // Removed meanwhile: its frames had to stay until the fence was done with them.
                self.shared.heap.drop_record(slot);
            }
        }
        Ok(())
    }

    /// Removes every update of a session up to `seq`: the server has applied them. Writes nothing. Each is handed to `removed`.
    pub fn remove_upto(&mut self, flow: Flow, session: u16, seq: u32, mut removed: impl FnMut(u32)) {
        let mut index = self.shared.index.lock();
        index.remove_upto(flow, session, seq, self.limits.sessions_max, |seq, entry| {
            removed(seq);
            self.drop_if_durable(entry);
        });
    }

    /// Removes one update; true if it was there.
    pub fn remove(&mut self, identity: &Identity) -> bool {
        let Some(entry) = self.shared.index.lock().remove(identity) else { return false };
        self.drop_if_durable(entry);
        true
    }

    /// What is not durable yet is dropped when its fence is done.
    fn drop_if_durable(&self, entry: index::Indexed) {
        if entry.durable {
            self.shared.heap.drop_record(entry.slot);
        }
    }

    /// Whether a fence has covered the update; `None` if it is not in the log.
    pub fn durable(&self, identity: &Identity) -> Option<bool> {
        self.shared.index.lock().get(identity).map(|entry| entry.durable)
    }

    /// True if the server has confirmed the update, for all that is remembered.
    pub fn is_applied(&self, identity: &Identity) -> bool {
        self.shared.index.lock().is_applied(identity)
    }

    /// Holds a packet that the caller holds, for longer, as if it were found in the log.
    pub fn hold_packet(&self, packet: Extent, header_at: usize) -> Stored {
        self.shared.heap.runs().hold(packet);
        Stored { extents: Extents::from_slice(&[packet]), inline: Vec::new(), header_at }
    }

    /// True if the update is in the log.
    pub fn contains(&self, identity: &Identity) -> bool {
        self.durable(identity).is_some()
    }

    /// Numbers of a session's updates in the log, from `from` on, in order; at most `max`.
    pub fn seqs(&self, flow: Flow, session: u16, from: u32, max: usize) -> Vec<u32> {
        self.shared.index.lock().seqs(flow, session, from, max)
    }

    /// Every update for a server that is in the log, session by session in order of number.
    pub fn identities(&self, mut wanted: impl FnMut(&Flow) -> bool) -> Vec<Identity> {
        self.shared.index.lock().identities(&mut wanted)
    }

    /// What there is of each session.
    pub fn sessions(&self) -> Vec<SessionEntries> {
        self.shared.index.lock().sessions()
    }

    /// Gives up every update of a session, durably: their records say nothing any more. For a log that nobody appends
    /// to. Returns how many there were.
    ///
    /// # Errors
    /// The medium's.
    pub fn discard(&mut self, flow: Flow, session: u16) -> Result<u64, LogError> {
        let mut count = 0;
        for seq in self.seqs(flow, session, 0, usize::MAX) {
            let entry = self.shared.index.lock().remove(&Identity { flow, session, seq });
            if let Some(entry) = entry {
                self.drop_if_durable(entry);
                self.shared.heap.entomb_slot(entry.slot)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Finds an update's packet and holds its bytes; `None` if it is not there, or damaged (then it is never sent).
    ///
    /// # Errors
    /// The medium's.
    pub fn hold(&self, identity: &Identity) -> Result<Option<Stored>, LogError> {
        let heap = &self.shared.heap;
        // Under the lock, so that the keeper cannot move it meanwhile.
        let index = self.shared.index.lock();
        let Some(entry) = index.get(identity) else { return Ok(None) };
        let view = match heap.record(entry.slot) {
            Ok(view) => view,
            Err(HeapError::Damaged { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match heap.verify_value(entry.slot, &view) {
            Ok(extents) => {
                extents.iter().for_each(|extent| heap.runs().hold(*extent));
                let inline = match view.value() {
                    ValuePlace::Inline(bytes) => bytes.to_vec(),
                    _ => Vec::new(),
                };
                Ok(Some(Stored { extents, inline, header_at: Aux::of(view.aux()).header_at.into() }))
            }
            Err(HeapError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The bytes of what was found, in one piece.
    ///
    /// # Errors
    /// The medium's.
    pub fn bytes_of(&self, stored: &Stored) -> Result<Vec<u8>, LogError> {
        let mut bytes = stored.inline.clone();
        for extent in &stored.extents {
            bytes.extend_from_slice(self.shared.heap.media().bytes(*extent)?);
        }
        Ok(bytes)
    }

    /// Lets go of what [`Self::hold`] has found.
    pub fn release(&self, stored: &Stored) {
        stored.extents.iter().for_each(|extent| self.shared.heap.runs().release(*extent));
    }

    /// The port from which a client's packets are sent on, if it has one.
    pub fn path(&self, flow: &Flow) -> Option<u16> {
        self.shared.index.lock().path(flow)
    }

    /// True if updates of a client are in the log: its path stays.
    pub fn has_entries(&self, flow: &Flow) -> bool {
        self.shared.index.lock().has_entries(flow)
    }

    /// Forgets a client's port, for another client to have. False if there is none, or updates of the client are in the log.
    /// Writes nothing: see `docs/format/pmnet.md`, "Removing".
    pub fn remove_path(&mut self, flow: &Flow) -> bool {
        let Some(slot) = self.shared.index.lock().remove_path(flow) else { return false };
        self.shared.heap.drop_record(slot);
        true
    }

    /// Every such port.
    pub fn paths(&self) -> Vec<(Flow, u16)> {
        self.shared.index.lock().paths()
    }

    /// Remembers a port, durably when this returns. False: as many are remembered as may be.
    ///
    /// # Errors
    /// Full, the medium's.
    pub fn set_path(&mut self, flow: Flow, port: u16, arrival_ns: u64) -> Result<bool, LogError> {
        if self.shared.index.lock().path_count() >= self.limits.paths_max {
            return Ok(false);
        }
        self.shared.heap.require_features(FEATURE_PMNET)?;
        let key = flow.to_bytes();
        let slot = self.writer.append(&Entry {
            kind: Kind::Put,
            space: spaces::PMNET_PATH,
            hash: self.shared.heap.hash(spaces::PMNET_PATH, &key),
            key: &key,
            key_at: None,
            value: Source::None,
            arrival_ns,
            expiry_ms: 0,
            aux: u32::from(port),
        })?;
        if let Some(old) = self.shared.index.lock().set_path(flow, port, slot) {
            self.writer.supersede(old);
        }
        Ok(true)
    }
}
