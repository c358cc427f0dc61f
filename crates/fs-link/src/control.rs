//! The control memory, as words.

use crate::layout::{
    APPENDED_AT, APPLIED_AT, BOOT_AT, CLIENT_AT, CONTROL_WORDS, DONE_AT, DURABLE_AT, HASH_SEED_AT, INODE_AT,
    LANDINGS_AT, LANDINGS_GRANTED_AT, LANDINGS_MAX, LEASE_WORDS, LEASES_AT, LEASES_MAX, LETTERS, MAGIC,
    MAGIC_AT, MTIME_AT, NUMBER_AT, REGION_BYTES_AT, SEALED, SEQ_AT, SIZE_AT, SLABS_AT, SLABS_GRANTED_AT,
    SLABS_MAX, STATE_AT, USES_AT, WORD_AT,
};
use crate::lease;
use landfall_fs::{FIRST_CLIENT_AGAIN, InodeNumber};
use landfall_heap::{RunId, Seal};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the server says once, before the library gets the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Number of the client, in keys of its operations.
    pub client: u32,
    /// Seed of the hash of keys.
    pub hash_seed: u64,
    /// Bytes of the region.
    pub region_bytes: u64,
}

impl Identity {
    /// True if the client's operations are executed again in the log of the mount: what it makes durable itself does not
    /// count.
    pub fn is_executed_again(&self) -> bool {
        self.client >= FIRST_CLIENT_AGAIN
    }
}

/// Why a memory is none of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It has another size.
    #[error("the control memory has another size")]
    Size,
    /// It does not begin as it must: another version.
    #[error("the control memory has another version")]
    Version,
}

/// Whether the server takes operations of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It does.
    Running,
    /// The client has broken a rule or has been too slow: it takes none any more.
    Fenced,
    /// The mount ends.
    Ended,
}

impl LinkState {
    fn to_word(self) -> u64 {
        match self {
            Self::Running => 0,
            Self::Fenced => 1,
            Self::Ended => 2,
        }
    }
}

/// A slab that the client may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabGrant {
    /// The run.
    pub run: RunId,
    /// What seals its records.
    pub seal: Seal,
}

/// What the server says of a lease, beside its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseFields {
    /// The inode.
    pub inode: InodeNumber,
    /// Number of the lease, in keys of operations under it.
    pub number: u64,
    /// The first of [`crate::SEQS_PER_LEASE`] seqs.
    pub seq: u64,
    /// Size of the file when the lease was granted, bytes.
    pub size: u64,
    /// Time of its last change then, Unix nanoseconds.
    pub mtime_ns: i64,
}

/// The control memory of one client. Offsets: `docs/format/fs-link.md`, "Memory".
#[derive(Clone, Copy, Debug)]
pub struct Control<'m>(&'m [AtomicU64; CONTROL_WORDS]);

impl<'m> Control<'m> {
    /// The memory in these words.
    ///
    /// # Errors
    /// [`Unusable::Size`].
    pub fn new(words: &'m [AtomicU64]) -> Result<Self, Unusable> {
        words.try_into().map(Self).map_err(|_| Unusable::Size)
    }

    fn read(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Acquire)
    }

    fn write(&self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::Release);
    }

    /// The word of the lease at a place; see [`crate::lease`].
    ///
    /// # Panics
    /// If there is no such place: places are below [`LEASES_MAX`].
    #[inline]
    pub fn lease_word(&self, place: usize) -> &'m AtomicU64 {
        &self.0[lease_at(place) + WORD_AT]
    }
}

/// The library's side.
impl Control<'_> {
    /// What the server says of the link.
    ///
    /// # Errors
    /// [`Unusable::Version`].
    pub fn identity(&self) -> Result<Identity, Unusable> {
        if self.read(MAGIC_AT) != MAGIC {
            return Err(Unusable::Version);
        }
        Ok(Identity {
            client: self.read(CLIENT_AT) as u32,
            hash_seed: self.read(HASH_SEED_AT),
            region_bytes: self.read(REGION_BYTES_AT),
        })
    }

    /// Whether the server takes operations.
    pub fn state(&self) -> LinkState {
        match self.read(STATE_AT) {
            0 => LinkState::Running,
            1 => LinkState::Fenced,
            _ => LinkState::Ended,
        }
    }

    /// Number of operations that are adopted.
    pub fn applied(&self) -> u64 {
        self.read(APPLIED_AT)
    }

    /// The slab with this number, if it is granted already. Only for the slab in use and those behind it.
    pub fn slab(&self, number: u64) -> Option<SlabGrant> {
        let is_granted = number < self.read(SLABS_GRANTED_AT);
        let word = self.read(SLABS_AT + (number % SLABS_MAX) as usize);
        is_granted.then(|| SlabGrant { run: RunId(word as u32), seal: Seal::from_word((word >> 32) as u32) })
    }

    /// The landing run with this number, if it is granted already. Only for the run in use and those behind it.
    pub fn landing(&self, number: u64) -> Option<RunId> {
        let is_granted = number < self.read(LANDINGS_GRANTED_AT);
        let word = self.read(LANDINGS_AT + (number % LANDINGS_MAX) as usize);
        is_granted.then_some(RunId(word as u32))
    }

    /// Says that one more operation is appended behind `count`: its record and its bytes are stored. False if the server takes
    /// none any more: then it does not count.
    #[inline]
    #[must_use]
    pub fn append(&self, count: u64) -> bool {
        let appended = &self.0[APPENDED_AT];
        appended.compare_exchange(count, count + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Says that so many operations are appended. A library that keeps to the rules says so by [`Self::append`].
    pub fn set_appended(&self, count: u64) {
        self.write(APPENDED_AT, count);
    }

    /// Says that so many operations are durable.
    #[inline]
    pub fn set_durable(&self, count: u64) {
        self.write(DURABLE_AT, count);
    }

    /// Says that so many landing runs are not stored to any more, and that what refers to them is appended.
    pub fn set_done(&self, count: u64) {
        self.write(DONE_AT, count);
    }

    /// What the server says of the lease at a place that it has just granted.
    pub fn lease(&self, place: usize) -> LeaseFields {
        let at = lease_at(place);
        LeaseFields {
            inode: InodeNumber(self.read(at + INODE_AT)),
            number: self.read(at + NUMBER_AT),
            seq: self.read(at + SEQ_AT),
            size: self.read(at + SIZE_AT),
            mtime_ns: self.read(at + MTIME_AT).cast_signed(),
        }
    }

    /// Notes that the lease at a place is used.
    #[inline]
    pub fn note_use(&self, place: usize) {
        let uses = &self.0[lease_at(place) + USES_AT];
        // A use that is lost when threads meet does no harm: the number changes.
        uses.store(uses.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// The server's side. It keeps its own counts: what it has written may have been changed.
impl Control<'_> {
    /// True if a link has begun, of whatever version: state and words of leases are at the same offsets in all.
    pub fn has_begun(&self) -> bool {
        self.read(MAGIC_AT) & LETTERS == MAGIC & LETTERS
    }

    /// Begins a link in memory that is all zeroes.
    pub fn begin(&self, identity: Identity) {
        for place in 0..LEASES_MAX {
            lease::close(self.lease_word(place), 0);
        }
        self.identify(identity);
    }

    /// Begins a link in memory that clients of a virtual machine have had before, of which some may look at it still: they enter
    /// no lease, since no place has a generation twice. False if one of them may be in a lease still, or has been in one for so
    /// long that it was fenced, and may not know yet: that is so until the machine is booted anew. `boot` is its present one.
    pub fn begin_again(&self, identity: Identity, boot: [u64; 2]) -> bool {
        let places = || (0..LEASES_MAX).map(|place| self.lease_word(place));
        places().for_each(lease::revoke);
        let is_same_boot = [self.read(BOOT_AT), self.read(BOOT_AT + 1)] == boot;
        if is_same_boot && (self.state() == LinkState::Fenced || !places().all(lease::is_empty)) {
            return false;
        }
        places().for_each(|word| lease::close(word, lease::generation(word)));
        boot.into_iter().zip(BOOT_AT..).for_each(|(word, at)| self.write(at, word));
        let begins = [APPLIED_AT, SLABS_GRANTED_AT, LANDINGS_GRANTED_AT, APPENDED_AT, DURABLE_AT, DONE_AT];
        begins.into_iter().for_each(|at| self.write(at, 0));
        self.set_state(LinkState::Running);
        self.identify(identity);
        true
    }

    fn identify(&self, identity: Identity) {
        self.write(CLIENT_AT, u64::from(identity.client));
        self.write(HASH_SEED_AT, identity.hash_seed);
        self.write(REGION_BYTES_AT, identity.region_bytes);
        self.write(MAGIC_AT, MAGIC);
    }

    /// Says whether operations are taken.
    pub fn set_state(&self, state: LinkState) {
        self.write(STATE_AT, state.to_word());
    }

    /// Says how many operations are adopted.
    pub fn set_applied(&self, count: u64) {
        self.write(APPLIED_AT, count);
    }

    /// Grants slab `number`. The slab before whose place it takes is adopted.
    pub fn grant_slab(&self, number: u64, slab: SlabGrant) {
        let word = u64::from(slab.run.0) | u64::from(slab.seal.to_word()) << 32;
        self.write(SLABS_AT + (number % SLABS_MAX) as usize, word);
        self.write(SLABS_GRANTED_AT, number + 1);
    }

    /// Grants landing run `number`. The run before whose place it takes is done.
    pub fn grant_landing(&self, number: u64, run: RunId) {
        self.write(LANDINGS_AT + (number % LANDINGS_MAX) as usize, u64::from(run.0));
        self.write(LANDINGS_GRANTED_AT, number + 1);
    }

    /// Number of operations that the library has appended, as it says.
    pub fn appended(&self) -> u64 {
        self.read(APPENDED_AT) & !SEALED
    }

    /// What is appended by now counts, and nothing else. The library learns which it is for each operation.
    pub fn seal(&self) {
        self.0[APPENDED_AT].fetch_or(SEALED, Ordering::AcqRel);
    }

    /// Number of operations that the library has made durable, as it says.
    pub fn durable(&self) -> u64 {
        self.read(DURABLE_AT)
    }

    /// Number of landing runs that the library does not store to any more, as it says. To be read before
    /// [`Self::appended`].
    pub fn done(&self) -> u64 {
        self.read(DONE_AT)
    }

    /// How often the lease at a place has been used, as the library says.
    pub fn uses(&self, place: usize) -> u64 {
        self.read(lease_at(place) + USES_AT)
    }

    /// Writes what a lease says. [`crate::lease::grant`] follows.
    pub fn set_lease(&self, place: usize, fields: &LeaseFields) {
        let at = lease_at(place);
        self.write(at + INODE_AT, fields.inode.0);
        self.write(at + NUMBER_AT, fields.number);
        self.write(at + SEQ_AT, fields.seq);
        self.write(at + SIZE_AT, fields.size);
        self.write(at + MTIME_AT, fields.mtime_ns.cast_unsigned());
    }
}

fn lease_at(place: usize) -> usize {
    assert!(place < LEASES_MAX, "there are {LEASES_MAX} places");
    LEASES_AT + place * LEASE_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Kind, Refused};

    fn memory() -> Vec<AtomicU64> {
        (0..CONTROL_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_client_that_has_had_the_memory_before_enters_no_lease_of_the_next_one() {
        let memory = memory();
        let control = Control::new(&memory).unwrap();
        let identity = |client| Identity { client, hash_seed: 5, region_bytes: 7 };
        let (boot, next_boot) = ([1, 2], [1, 3]);
        assert!(control.begin_again(identity(1), boot));
        let word = control.lease_word(7);
        lease::grant(word, lease::generation(word) + 1, Kind::Write);
        let stale = lease::generation(word);
        lease::enter(word, stale, Kind::Write).unwrap();
        assert!((0..9).all(|count| control.append(count)));
        control.set_state(LinkState::Ended);
        assert!(!control.begin_again(identity(2), boot), "a thread of the first one is in");
        assert_eq!(control.identity().unwrap().client, 1);
        assert_eq!(control.state(), LinkState::Ended, "it is not told that all is well");
        lease::leave(word);
        control.set_state(LinkState::Fenced);
        assert!(!control.begin_again(identity(2), boot), "it has yet to find that it was fenced");
        control.set_state(LinkState::Ended);
        assert!(control.begin_again(identity(2), boot));
        assert_eq!((control.identity().unwrap().client, control.appended()), (2, 0));
        assert_eq!(control.state(), LinkState::Running);
        lease::grant(word, lease::generation(word) + 1, Kind::Write);
        assert_eq!(lease::enter(word, stale, Kind::Write), Err(Refused::Revoked));
        lease::enter(word, stale + 1, Kind::Write).unwrap();
        assert!(control.begin_again(identity(3), next_boot), "nobody is in who was before the boot");
        assert!(lease::is_empty(word) && lease::generation(word) == stale + 1);
    }

    /// The offsets are those of `docs/format/fs-link.md`.
    #[test]
    fn the_layout_is_that_of_the_document() {
        let memory = memory();
        let control = Control::new(&memory).unwrap();
        let word = |bytes: usize| memory[bytes / 8].load(Ordering::Relaxed);
        control.begin(Identity { client: 3, hash_seed: 5, region_bytes: 7 });
        assert_eq!(word(0).to_le_bytes(), *b"LFLINK\x04\0");
        assert_eq!([word(8), word(16), word(24)], [3, 5, 7]);
        control.set_state(LinkState::Fenced);
        control.set_applied(11);
        control.grant_slab(9, SlabGrant { run: RunId(13), seal: Seal::from_word(17) });
        control.grant_landing(65, RunId(19));
        assert_eq!([word(64), word(72), word(80), word(88)], [1, 11, 10, 66]);
        assert_eq!([word(512 + 8), word(1024 + 8)], [17 << 32 | 13, 19]);
        assert!((0..21).all(|count| control.append(count)));
        control.set_durable(22);
        control.set_done(23);
        assert_eq!([word(128), word(136), word(144)], [21, 22, 23]);
        control.seal();
        assert_eq!((word(128), control.appended()), (1 << 63 | 21, 21));
        assert!(!control.append(21), "nothing counts any more");
        assert_eq!(control.appended(), 21);
        let fields = LeaseFields { inode: InodeNumber(31), number: 32, seq: 33, size: 34, mtime_ns: -1 };
        control.set_lease(2, &fields);
        control.note_use(2);
        let at = 4096 + 2 * 64;
        assert_eq!([word(at), word(at + 8), word(at + 16), word(at + 24)], [1 << 16, 31, 32, 33]);
        assert_eq!([word(at + 32), word(at + 40), word(at + 48), word(at + 56)], [34, u64::MAX, 1, 0]);
        assert_eq!(control.lease(2), fields);
    }

    #[test]
    fn the_library_sees_what_was_granted_and_no_more() {
        let memory = memory();
        let control = Control::new(&memory).unwrap();
        assert_eq!(control.identity(), Err(Unusable::Version));
        let identity = Identity { client: 1, hash_seed: 2, region_bytes: 3 };
        control.begin(identity);
        assert_eq!((control.identity(), control.state()), (Ok(identity), LinkState::Running));
        assert_eq!((control.slab(0), control.landing(0)), (None, None));
        let slab = SlabGrant { run: RunId(4), seal: Seal::from_word(u32::MAX) };
        control.grant_slab(0, slab);
        control.grant_landing(0, RunId(5));
        assert_eq!((control.slab(0), control.slab(1)), (Some(slab), None));
        assert_eq!((control.landing(0), control.landing(1)), (Some(RunId(5)), None));
        assert_eq!(lease::enter(control.lease_word(0), 0, Kind::Read), Err(Refused::Revoked));
    }

    #[test]
    fn a_memory_of_another_size_is_refused() {
        let memory = memory();
        assert!(matches!(Control::new(&memory[1..]), Err(Unusable::Size)));
    }
}
