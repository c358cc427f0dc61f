//! The locks that a mount has, in its ledger: the next server grants nothing that they exclude.

use landfall_fs::{Access, FileLock, InodeNumber, LockFamily, LockOwner};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Locks that a ledger has room for: those that a mount may have ([`landfall_fs::LOCKS_MAX`]), and what replaces one before
/// that goes.
const SLOTS: usize = 4096;
/// Words of a lock.
const SLOT_WORDS: usize = 6;
/// Words of all of them.
pub(super) const WORDS: usize = SLOTS * SLOT_WORDS;
/// In the last word, above the process: the lock is exclusive; it is one of `flock`.
const EXCLUSIVE: u64 = 1 << 32;
const WHOLE: u64 = 1 << 33;

/// A lock and its file.
type Located = (InodeNumber, FileLock);

/// Which slot has which lock. Clients are those of one server, so that none is kept.
#[derive(Debug)]
pub(super) struct Slots {
    used: BTreeMap<Located, usize>,
    free: Vec<usize>,
}

impl Slots {
    /// Those that an earlier server has left in `words`.
    pub(super) fn of(words: &[AtomicU64]) -> Self {
        let mut slots = Self { used: BTreeMap::new(), free: Vec::new() };
        for slot in (0..words.len() / SLOT_WORDS).rev() {
            match read(words, slot) {
                Some(located) => drop(slots.used.insert(located, slot)),
                None => slots.free.push(slot),
            }
        }
        slots
    }

    pub(super) fn all(&self) -> Vec<Located> {
        self.used.keys().copied().collect()
    }

    pub(super) fn add(&mut self, words: &[AtomicU64], located: Located) {
        let located = of_no_client(located);
        if self.used.contains_key(&located) {
            return;
        }
        // A client has fewer locks than there are slots.
        let Some(slot) = self.free.pop() else { return };
        let (inode, FileLock { owner, handle, access, first, last, process }) = located;
        let exclusive = if access == Access::Write { EXCLUSIVE } else { 0 };
        let whole = if owner.family == LockFamily::Whole { WHOLE } else { 0 };
        let rest = [owner.id, handle, first, last, u64::from(process) | exclusive | whole];
        let [key, others @ ..] = slot_of(words, slot);
        others.into_iter().zip(rest).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        key.store(inode.0, Ordering::Release);
        self.used.insert(located, slot);
    }

    pub(super) fn remove(&mut self, words: &[AtomicU64], located: Located) {
        if let Some(slot) = self.used.remove(&of_no_client(located)) {
            slot_of(words, slot)[0].store(0, Ordering::Release);
            self.free.push(slot);
        }
    }
}

fn of_no_client((inode, lock): Located) -> Located {
    let owner = LockOwner { client: 0, ..lock.owner };
    (inode, FileLock { owner, ..lock })
}

/// The lock in a slot, if there is one that makes sense.
fn read(words: &[AtomicU64], slot: usize) -> Option<Located> {
    let [key, others @ ..] = slot_of(words, slot);
    let inode = InodeNumber(key.load(Ordering::Acquire));
    let [id, handle, first, last, rest] = others.map(|word| word.load(Ordering::Relaxed));
    let family = if rest & WHOLE != 0 { LockFamily::Whole } else { LockFamily::Range };
    let access = if rest & EXCLUSIVE != 0 { Access::Write } else { Access::Read };
    let process = u32::try_from(rest & u64::from(u32::MAX)).unwrap_or(0);
    let owner = LockOwner { client: 0, family, id };
    let is_lock = inode.0 > 0 && first <= last;
    is_lock.then_some((inode, FileLock { owner, handle, access, first, last, process }))
}

fn slot_of(words: &[AtomicU64], slot: usize) -> [&AtomicU64; SLOT_WORDS] {
    std::array::from_fn(|word| &words[slot * SLOT_WORDS + word])
}
