//! The device's log: each update is stored as it was received, and is found by its identity.
//!
//! Read [`Log`] first. Records, commit, recovery, and why a crash loses no acknowledged update:
//! `docs/format/pmnet.md`.

mod index;
mod keep;
mod recover;
mod session;
mod state;

pub use keep::{Keeper, Progress};
pub use recover::Recovered;
pub use session::{SessionEntries, Standing};
pub use state::{Limits, Log};

use crate::error::LogError;
use crate::identity::{Flow, Identity};
use crate::wire::Header;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use index::Index;
use landfall_heap::{
    Entry, Extents, FEATURE_PMNET, Heap, HeapError, Kind, SlotId, Source, ValuePlace, spaces,
};
use landfall_media::{CommitMode, Dirty, Extent, MediaError};
use state::{Appended, Aux};
use std::sync::Arc;

/// Instead of a client, in the record that says that sessions were forgotten.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Result of [`Log::append`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// The update has been appended. It may be acknowledged after the fence.
    New,
    /// An identical update is in the log. If it is durable, the device acknowledges it again. Otherwise the fence of
    /// the first copy leads to the acknowledgement.
    Known {
        /// Whether a fence has made the update durable.
        durable: bool,
    },
    /// The update is not logged.
    Not(NotLogged),
}

/// Why an update is not logged. The device forwards it nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotLogged {
    /// The log has reached its limit of entries or bytes, or the region is full.
    Full,
    /// The session has reached its limit of entries.
    SessionFull,
    /// No server has said anything of the session, and the limit for entries of such sessions is reached, for the
    /// client or for all clients.
    Unknown,
    /// The queue in front of the fence is full.
    QueueFull,
    /// The log has another packet with this identity.
    Collision,
    /// The packet is longer than a frame.
    TooLong,
    /// The server has already confirmed the update.
    Applied,
}

/// An update of the log whose bytes are held. The caller must call [`Log::release`].
#[derive(Clone, Debug)]
pub struct Stored {
    /// The packet's bytes in the region. Empty if the packet is so short that its record contains it.
    pub extents: Extents,
    /// The packet's bytes, if its record contains them.
    inline: Vec<u8>,
    /// Number of bytes before the PMNet header.
    pub header_at: usize,
}

impl Log {
    /// The log's heap.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.shared.heap
    }

    /// True if the region has never held an update, so that no device has used it before.
    pub fn is_new(&self) -> bool {
        self.shared.heap.geometry().features & FEATURE_PMNET == 0
    }

    /// The log's background work. Any thread may run it, from time to time.
    pub fn keeper(&self) -> Keeper {
        Keeper::new(Arc::clone(&self.shared))
    }

    /// Number of entries, including entries that are not yet durable.
    pub fn len(&self) -> usize {
        self.shared.index.lock().len()
    }

    /// True if the log has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the entries' packets.
    pub fn bytes(&self) -> u64 {
        self.shared.index.lock().bytes()
    }

    /// Logs the update in `packet`, which the caller holds. Its PMNet header begins `header_at` bytes into the
    /// packet.
    ///
    /// # Errors
    /// The medium's error. The region is then closed for writing.
    pub fn append(
        &mut self,
        identity: Identity,
        packet: Extent,
        header_at: usize,
        arrival_ns: u64,
    ) -> Result<Logged, LogError> {
        if let Some(settled) = self.find_or_refuse(&identity, packet, header_at)? {
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
            Err(HeapError::Full | HeapError::Cleaning) => Ok(Logged::Not(NotLogged::Full)),
            Err(HeapError::Busy) => Ok(Logged::Not(NotLogged::QueueFull)),
            Err(error) => Err(error.into()),
        }
    }

    /// The hash in the header of the packet at this place.
    fn hash(&self, packet: Extent, header_at: usize) -> Result<u32, LogError> {
        let bytes = self.shared.heap.media().bytes(packet)?;
        Ok(Header::parse(bytes.get(header_at..).unwrap_or_default()).map_or(0, |header| header.hash))
    }

    /// Returns a result if the update is already in the log, or must not be logged. `None`: append it.
    fn find_or_refuse(
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

    /// What the device knows of a session, from the server's packets that have passed it.
    pub fn standing(&self, flow: Flow, session: u16) -> Standing {
        self.shared.index.lock().standing(&Identity { flow, session, seq: 0 })
    }

    /// Registers a session that begins without a session start and may replace an older session of the same name.
    /// False while updates of the older session are in the log.
    pub fn begin(&mut self, flow: Flow, session: u16) -> bool {
        self.shared.index.lock().begin(&Identity { flow, session, seq: 0 })
    }

    /// Raises a session's standing, because a server has said something of the session.
    pub fn raise(&mut self, flow: Flow, session: u16, to: Standing) {
        self.shared.index.lock().raise(flow, session, to, self.limits.sessions_max);
    }

    /// Handles a refusal: a server does not know an update's session. The update is removed, unless a server has
    /// accepted the session. In that case the update may have been acknowledged to its client, and must be kept
    /// whatever happens to servers. True if the update was removed.
    pub fn refused(&mut self, identity: &Identity) -> bool {
        let standing = self.shared.index.lock().standing(identity);
        standing < Standing::Started && self.remove(identity)
    }

    /// True if the PMNet packets in `slot` and in `packet` are identical. The headers before them differ between
    /// retransmissions.
    fn is_same(&self, slot: SlotId, packet: Extent, header_at: usize) -> Result<bool, LogError> {
        let heap = &self.shared.heap;
        let view = heap.record(slot)?;
        let known = heap.value_bytes(slot, &view)?;
        let new = heap.media().bytes(packet)?;
        Ok(known.get(Aux::of(view.aux()).header_at.into()..) == new.get(header_at..))
    }

    /// True if an append waits for a fence.
    pub fn has_pending(&self) -> bool {
        self.writer.has_work()
    }

    /// True between [`Self::begin_commit`] and [`Self::finish_commit`].
    pub fn is_committing(&self) -> bool {
        self.writer.is_committing()
    }

    /// True if the fence is slow enough to be done on another thread.
    pub fn commits_elsewhere(&self) -> bool {
        self.shared.heap.media().commit_mode() == CommitMode::Deferred
    }

    /// Fences all appended updates. Calls `durable` with each update that is now durable, and with the hash of its
    /// header.
    ///
    /// # Errors
    /// The medium's error. Nothing may be acknowledged then.
    pub fn commit(&mut self, durable: impl FnMut(Identity, u32)) -> Result<(), LogError> {
        if let Some(mut dirty) = self.begin_commit() {
            let outcome = self.shared.heap.media().fence(&mut dirty, landfall_media::Site::Commit);
            self.finish_commit(outcome, durable)?;
        }
        Ok(())
    }

    /// Ends the batch and returns what must be fenced to make it durable. `None` if there is nothing to do, or if
    /// another commit is in progress.
    pub fn begin_commit(&mut self) -> Option<Dirty> {
        if self.writer.is_committing() {
            return None;
        }
        self.writer.begin_commit()
    }

    /// Ends a commit after its fence. Calls `durable` with each update that the fence covers and that is still in
    /// the log, and with the hash of its header.
    ///
    /// # Errors
    /// The error in `outcome`.
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
                // The update was removed meanwhile. Its frames had to be held until the fence ended.
                self.shared.heap.drop_record(slot);
            }
        }
        Ok(())
    }

    /// Removes every update of a session up to `seq`, because the server has applied them. Calls `removed` with the
    /// number of each. Writes nothing to the medium.
    pub fn remove_upto(&mut self, flow: Flow, session: u16, seq: u32, mut removed: impl FnMut(u32)) {
        let mut index = self.shared.index.lock();
        index.remove_upto(flow, session, seq, self.limits.sessions_max, |seq, entry| {
            removed(seq);
            self.drop_if_durable(entry);
        });
    }

    /// Removes one update. True if it was in the log.
    pub fn remove(&mut self, identity: &Identity) -> bool {
        let Some(entry) = self.shared.index.lock().remove(identity) else { return false };
        self.drop_if_durable(entry);
        true
    }

    /// Drops the record of a removed entry. If the entry is not yet durable, [`Self::finish_commit`] drops its
    /// record.
    fn drop_if_durable(&self, entry: index::Indexed) {
        if entry.durable {
            self.shared.heap.drop_record(entry.slot);
        }
    }

    /// Whether a fence has made the update durable; `None` if it is not in the log.
    pub fn durable(&self, identity: &Identity) -> Option<bool> {
        self.shared.index.lock().get(identity).map(|entry| entry.durable)
    }

    /// True if the server is known to have confirmed the update. The log may have deleted that knowledge.
    pub fn is_applied(&self, identity: &Identity) -> bool {
        self.shared.index.lock().is_applied(identity)
    }

    /// Holds a packet, which the caller holds as well, in the form that [`Self::hold`] returns.
    pub fn hold_packet(&self, packet: Extent, header_at: usize) -> Stored {
        self.shared.heap.runs().hold(packet);
        Stored { extents: Extents::from_slice(&[packet]), inline: Vec::new(), header_at }
    }

    /// True if the update is in the log.
    pub fn contains(&self, identity: &Identity) -> bool {
        self.durable(identity).is_some()
    }

    /// Sequence numbers of a session's updates in the log, in order, from `from` on, at most `max`.
    pub fn seqs(&self, flow: Flow, session: u16, from: u32, max: usize) -> Vec<u32> {
        self.shared.index.lock().seqs(flow, session, from, max)
    }

    /// All updates in the log whose flow satisfies `wanted`, by session and sequence number.
    pub fn identities(&self, mut wanted: impl FnMut(&Flow) -> bool) -> Vec<Identity> {
        self.shared.index.lock().identities(&mut wanted)
    }

    /// The log's entries, session by session.
    pub fn sessions(&self) -> Vec<SessionEntries> {
        self.shared.index.lock().sessions()
    }

    /// Deletes every update of a session durably: their records become invalid. Only for a log to which nobody
    /// appends. Returns the number of deleted updates.
    ///
    /// # Errors
    /// The medium's error.
    pub fn discard(&mut self, flow: Flow, session: u16) -> Result<u64, LogError> {
        let mut count = 0;
        for seq in self.seqs(flow, session, 0, usize::MAX) {
            let entry = self.shared.index.lock().remove(&Identity { flow, session, seq });
            if let Some(entry) = entry {
                self.drop_if_durable(entry);
                self.shared.heap.overwrite_with_tombstone(entry.slot)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Finds an update's packet and holds its bytes. `None` if the packet is not in the log, or is damaged. A
    /// damaged packet is never sent.
    ///
    /// # Errors
    /// The medium's error.
    pub fn hold(&self, identity: &Identity) -> Result<Option<Stored>, LogError> {
        let heap = &self.shared.heap;
        // The lock keeps the keeper from moving the record meanwhile.
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

    /// Copies the bytes of a stored packet into one buffer.
    ///
    /// # Errors
    /// The medium's error.
    pub fn bytes_of(&self, stored: &Stored) -> Result<Vec<u8>, LogError> {
        let mut bytes = stored.inline.clone();
        for extent in &stored.extents {
            bytes.extend_from_slice(self.shared.heap.media().bytes(*extent)?);
        }
        Ok(bytes)
    }

    /// Releases the frames that [`Self::hold`] has held.
    pub fn release(&self, stored: &Stored) {
        stored.extents.iter().for_each(|extent| self.shared.heap.runs().release(*extent));
    }

    /// The port from which the relay sends a client's packets, if the client has one.
    pub fn path(&self, flow: &Flow) -> Option<u16> {
        self.shared.index.lock().path(flow)
    }

    /// True if the log has updates of a client, so that its path must stay.
    pub fn has_entries(&self, flow: &Flow) -> bool {
        self.shared.index.lock().has_entries(flow)
    }

    /// Removes a client's path, so that another client may get its port. False if the client has no path, or updates
    /// in the log. Writes nothing to the medium: see `docs/format/pmnet.md`, "Removing".
    pub fn remove_path(&mut self, flow: &Flow) -> bool {
        let Some(slot) = self.shared.index.lock().remove_path(flow) else { return false };
        self.shared.heap.drop_record(slot);
        true
    }

    /// Every client's path.
    pub fn paths(&self) -> Vec<(Flow, u16)> {
        let mut paths = self.shared.index.lock().paths();
        paths.retain(|(flow, _)| flow.client != NOBODY);
        paths
    }

    /// True if [`Self::set_forgotten`] was called for this server, also before a restart.
    pub fn has_forgotten(&self, server: SocketAddr) -> bool {
        self.shared.index.lock().path(&Flow { client: NOBODY, server }).is_some()
    }

    /// The paths that are younger than what [`Self::set_forgotten`] has stored: an earlier path of such a client may be
    /// among those that were removed.
    pub fn paths_after_forgetting(&self) -> Vec<Flow> {
        let index = self.shared.index.lock();
        let seq = |flow: &Flow| {
            index.path_slot(flow).and_then(|slot| self.shared.heap.record(slot).ok()).map(|view| view.seq())
        };
        let is_younger = |flow: &Flow| {
            let forgotten = seq(&Flow { client: NOBODY, ..*flow });
            flow.client != NOBODY && forgotten.is_some_and(|forgotten| seq(flow) > Some(forgotten))
        };
        index.paths().into_iter().map(|(flow, _)| flow).filter(is_younger).collect()
    }

    /// Stores that a path was removed whose client may have had sessions at this server. It is durable with the next
    /// commit.
    ///
    /// # Errors
    /// As [`Self::set_path`].
    pub fn set_forgotten(&mut self, server: SocketAddr, arrival_ns: u64) -> Result<(), LogError> {
        self.write_path(Flow { client: NOBODY, server }, 0, arrival_ns)
    }

    /// Stores a client's path. It is durable with the next commit. False if the limit of paths is reached.
    ///
    /// # Errors
    /// The heap is full, or the medium's error.
    pub fn set_path(&mut self, flow: Flow, port: u16, arrival_ns: u64) -> Result<bool, LogError> {
        let others = usize::from(self.has_forgotten(flow.server));
        if self.shared.index.lock().path_count() >= self.limits.paths_max + others {
            return Ok(false);
        }
        self.write_path(flow, port, arrival_ns).map(|()| true)
    }

    fn write_path(&mut self, flow: Flow, port: u16, arrival_ns: u64) -> Result<(), LogError> {
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
        Ok(())
    }
}
