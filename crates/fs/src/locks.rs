//! Locks of files that several mounts have: `flock`, and locks on ranges of bytes (`fcntl`), as a state machine.
//!
//! One kernel keeps such locks itself. Where several mounts, on several machines, have the same files, the server does. A
//! lock belongs to an owner: an open file for `flock` and OFD locks, a process for POSIX locks, each of one client (a
//! mount). What a lock excludes, replaces and splits is as in `fcntl(2)` and `flock(2)`.
//!
//! Each request has a number. Whatever changes something returns [`LockEvents`]: which requests have ended with it, and
//! which locks came and went, so that whoever keeps them for the next server can follow.

use crate::key::InodeNumber;
use crate::leases::Access;
use std::collections::BTreeMap;

/// Locks that one client may have, and requests of it that may wait.
pub const LOCKS_MAX: usize = 4000;
/// Owners that the search for a deadlock visits at most.
const DEADLOCK_OWNERS_MAX: usize = 64;

/// The two kinds of locks. They do not exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockFamily {
    /// Of bytes: POSIX locks and OFD locks.
    Range,
    /// Of the whole file: `flock`.
    Whole,
}

/// Who has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner {
    /// The client, which is a mount.
    pub client: u32,
    /// The kind of lock.
    pub family: LockFamily,
    /// What the client's kernel calls the owner.
    pub id: u64,
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileLock {
    /// Who has it.
    pub owner: LockOwner,
    /// The open file by which it was taken. It ends with that.
    pub handle: u64,
    /// Shared or exclusive.
    pub access: Access,
    /// The first byte.
    pub first: u64,
    /// The last byte, inclusive.
    pub last: u64,
    /// The process, as its kernel calls it.
    pub process: u32,
}

impl FileLock {
    fn overlaps(&self, first: u64, last: u64) -> bool {
        self.first <= last && first <= self.last
    }

    /// True if not both can be. Both are of one file.
    pub fn excludes(&self, other: &Self) -> bool {
        let is_exclusive = self.access == Access::Write || other.access == Access::Write;
        is_exclusive
            && self.owner != other.owner
            && self.owner.family == other.owner.family
            && self.overlaps(other.first, other.last)
    }

    /// One lock for both, if they are next to each other and equal otherwise.
    fn joined(&self, other: &Self) -> Option<Self> {
        let is_next = self.last.checked_add(1) == Some(other.first);
        let joined = Self { last: other.last, ..*self };
        (is_next && Self { first: self.first, ..*other } == joined).then_some(joined)
    }
}

/// The number of a request for a lock. No number is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockRequestNumber(pub u64);

/// What becomes of a request that cannot be granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It is refused.
    None,
    /// It waits, until somebody cancels it: whoever is in the way is about to end.
    Briefly,
    /// It waits.
    Waits,
}

/// Why a lock is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockRefusal {
    /// Somebody else has a lock that excludes it.
    #[error("somebody else has a lock that excludes this one")]
    Held,
    /// Its owner would wait for somebody who waits for its owner.
    #[error("who has the lock waits for who asks for it")]
    Deadlock,
    /// The client has as many locks, or requests that wait, as it may.
    #[error("the client has {LOCKS_MAX} locks")]
    Many,
}

/// A lock has come or gone. What has come is named before what it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockChange {
    /// It is held from now on.
    Came(InodeNumber, FileLock),
    /// It is not held any more.
    Went(InodeNumber, FileLock),
}

/// What has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockEvents {
    /// Requests that have ended.
    pub ended: Vec<(LockRequestNumber, Result<(), LockRefusal>)>,
    /// Locks that came and went, in order.
    pub changes: Vec<LockChange>,
}

/// Which locks end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Those that were taken by an open file of a client: it is closed.
    Handle {
        /// The client.
        client: u32,
        /// The open file.
        handle: u64,
    },
    /// Those of an owner: it has closed a descriptor of the file.
    Owner(LockOwner),
}

impl Released {
    /// True if a lock is among them.
    pub fn has(&self, lock: &FileLock) -> bool {
        match self {
            Self::Handle { client, handle } => lock.owner.client == *client && lock.handle == *handle,
            Self::Owner(owner) => lock.owner == *owner,
        }
    }
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    inode: InodeNumber,
    lock: FileLock,
    patience: Patience,
}

/// Whether new locks are granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Granting {
    #[default]
    Yes,
    /// Clients may claim what they had before. All requests wait.
    ClaimsOnly,
}

/// The locks of a file, where those of one owner change.
struct Replaced {
    /// What goes, or is joined with others.
    old: Vec<FileLock>,
    /// What the owner has in the place of these.
    pieces: Vec<FileLock>,
    /// The others, of all owners.
    rest: Vec<FileLock>,
}

/// The locks of all files.
#[derive(Debug, Default)]
pub struct FileLocks {
    held: BTreeMap<InodeNumber, Vec<FileLock>>,
    /// In the order in which they have come.
    waiting: BTreeMap<LockRequestNumber, Waiting>,
    /// Locks of each client.
    counts: BTreeMap<u32, usize>,
    granting: Granting,
}

impl FileLocks {
    /// A client asks for a lock. Its request ends at once, unless it waits.
    pub fn request(
        &mut self,
        number: LockRequestNumber,
        inode: InodeNumber,
        lock: FileLock,
        patience: Patience,
    ) -> LockEvents {
        let mut events = LockEvents::default();
        if lock.owner.family == LockFamily::Whole {
            self.begin_conversion(inode, &lock, &mut events);
        }
        let must_wait = self.granting == Granting::ClaimsOnly;
        let is_held = self.conflict(inode, &lock).is_some();
        let refusal = match patience {
            _ if !must_wait && !is_held => {
                let outcome = self.set(inode, lock, &mut events);
                events.ended.push((number, outcome));
                None
            }
            _ if self.waiting_of(lock.owner.client) >= LOCKS_MAX => Some(LockRefusal::Many),
            Patience::None if !must_wait => Some(LockRefusal::Held),
            Patience::Waits if self.would_deadlock(inode, &lock) => Some(LockRefusal::Deadlock),
            _ => {
                self.waiting.insert(number, Waiting { inode, lock, patience });
                None
            }
        };
        events.ended.extend(refusal.map(|refusal| (number, Err(refusal))));
        self.grant(inode, &mut events);
        events
    }

    /// An owner unlocks bytes.
    ///
    /// # Errors
    /// [`LockRefusal::Many`]: it would have more locks than it may, as one is split. Nothing is unlocked.
    pub fn unlock(
        &mut self,
        inode: InodeNumber,
        owner: LockOwner,
        (first, last): (u64, u64),
    ) -> Result<LockEvents, LockRefusal> {
        let mut events = LockEvents::default();
        self.replace(inode, owner, (first, last), None, &mut events)?;
        self.grant(inode, &mut events);
        Ok(events)
    }

    /// Locks of a file end.
    pub fn release(&mut self, inode: InodeNumber, released: Released) -> LockEvents {
        let mut events = LockEvents::default();
        self.take_where(inode, |lock| released.has(lock), &mut events);
        self.grant(inode, &mut events);
        events
    }

    /// A request does not wait any longer. False if it has ended already.
    pub fn cancel(&mut self, number: LockRequestNumber) -> bool {
        self.waiting.remove(&number).is_some()
    }

    /// A client has ended, and with it its requests and locks. Returns the locks.
    pub fn end_client(&mut self, client: u32) -> (Vec<(InodeNumber, FileLock)>, LockEvents) {
        let mut events = LockEvents::default();
        self.waiting.retain(|_, waiting| waiting.lock.owner.client != client);
        let inodes: Vec<InodeNumber> = self.held.keys().copied().collect();
        for inode in inodes {
            self.take_where(inode, |lock| lock.owner.client == client, &mut events);
        }
        let ended = events.changes.iter().filter_map(|change| match change {
            LockChange::Went(inode, lock) => Some((*inode, *lock)),
            LockChange::Came(..) => None,
        });
        let ended: Vec<(InodeNumber, FileLock)> = ended.collect();
        ended.iter().for_each(|(inode, _)| self.grant(*inode, &mut events));
        (ended, events)
    }

    /// A client claims a lock that it had under an earlier server. False if somebody else has one that excludes it.
    pub fn claim(&mut self, inode: InodeNumber, lock: FileLock) -> bool {
        self.conflict(inode, &lock).is_none() && self.adopt(inode, lock).is_ok()
    }

    /// A client has a lock: somebody else has decided so, and keeps account of it.
    ///
    /// # Errors
    /// [`LockRefusal::Many`].
    pub fn adopt(&mut self, inode: InodeNumber, lock: FileLock) -> Result<(), LockRefusal> {
        self.set(inode, lock, &mut LockEvents::default())
    }

    /// From now on clients claim what they had before. All requests wait until [`Self::end_claims`].
    pub fn begin_claims(&mut self) {
        self.granting = Granting::ClaimsOnly;
    }

    /// All clients have claimed what they had.
    pub fn end_claims(&mut self) -> LockEvents {
        self.granting = Granting::Yes;
        let mut events = LockEvents::default();
        for (number, Waiting { inode, lock, patience }) in std::mem::take(&mut self.waiting) {
            let now = self.request(number, inode, lock, patience);
            events.ended.extend(now.ended);
            events.changes.extend(now.changes);
        }
        events
    }

    /// A lock that excludes this one.
    pub fn conflict(&self, inode: InodeNumber, lock: &FileLock) -> Option<FileLock> {
        self.held.get(&inode)?.iter().find(|held| held.excludes(lock)).copied()
    }

    /// True if the client of a lock may have it besides those that it has: otherwise it is refused as [`LockRefusal::Many`].
    pub fn has_room_for(&self, inode: InodeNumber, lock: &FileLock) -> bool {
        self.replaced(inode, lock.owner, (lock.first, lock.last), Some(*lock)).is_ok()
    }

    /// The locks of a file.
    pub fn held(&self, inode: InodeNumber) -> &[FileLock] {
        self.held.get(&inode).map_or(&[], Vec::as_slice)
    }

    /// All locks.
    pub fn all(&self) -> impl Iterator<Item = (InodeNumber, FileLock)> {
        self.held.iter().flat_map(|(inode, locks)| locks.iter().map(|lock| (*inode, *lock)))
    }

    /// Number of locks.
    pub fn count(&self) -> usize {
        self.counts.values().sum()
    }

    /// Number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn waiting_of(&self, client: u32) -> usize {
        self.waiting.values().filter(|waiting| waiting.lock.owner.client == client).count()
    }

    /// `flock` from shared to exclusive and back is not atomic: the lock is freed first, and whoever waits for it comes
    /// first, so that two that wait for each other's shared lock go on (`flock(2)`).
    fn begin_conversion(&mut self, inode: InodeNumber, wanted: &FileLock, events: &mut LockEvents) {
        let is_converted = |lock: &FileLock| lock.owner == wanted.owner && lock.access != wanted.access;
        self.take_where(inode, is_converted, events);
        self.grant(inode, events);
    }

    fn take_where(
        &mut self,
        inode: InodeNumber,
        is_taken: impl Fn(&FileLock) -> bool,
        events: &mut LockEvents,
    ) {
        let Some(locks) = self.held.get_mut(&inode) else { return };
        let taken: Vec<FileLock> = locks.extract_if(.., |lock| is_taken(lock)).collect();
        if locks.is_empty() {
            self.held.remove(&inode);
        }
        for lock in taken {
            self.count_changed(lock.owner.client, 1, 0);
            events.changes.push(LockChange::Went(inode, lock));
        }
    }

    fn set(
        &mut self,
        inode: InodeNumber,
        lock: FileLock,
        events: &mut LockEvents,
    ) -> Result<(), LockRefusal> {
        self.replace(inode, lock.owner, (lock.first, lock.last), Some(lock), events)
    }

    /// An owner has `new` in a range, instead of what it had there.
    fn replace(
        &mut self,
        inode: InodeNumber,
        owner: LockOwner,
        (first, last): (u64, u64),
        new: Option<FileLock>,
        events: &mut LockEvents,
    ) -> Result<(), LockRefusal> {
        let Replaced { old, pieces, mut rest } = self.replaced(inode, owner, (first, last), new)?;
        self.count_changed(owner.client, old.len(), pieces.len());
        let came = pieces.iter().filter(|piece| !old.contains(piece));
        events.changes.extend(came.map(|lock| LockChange::Came(inode, *lock)));
        let went = old.iter().filter(|lock| !pieces.contains(lock));
        events.changes.extend(went.map(|lock| LockChange::Went(inode, *lock)));
        rest.extend(pieces);
        match rest.is_empty() {
            true => drop(self.held.remove(&inode)),
            false => drop(self.held.insert(inode, rest)),
        }
        Ok(())
    }

    /// What becomes of a file's locks if an owner has `new` in a range. Nothing is changed.
    fn replaced(
        &self,
        inode: InodeNumber,
        owner: LockOwner,
        (first, last): (u64, u64),
        new: Option<FileLock>,
    ) -> Result<Replaced, LockRefusal> {
        let (mut old, others): (Vec<FileLock>, Vec<FileLock>) =
            self.held(inode).iter().partition(|lock| lock.owner == owner && lock.overlaps(first, last));
        let mut pieces: Vec<FileLock> = old.iter().flat_map(|lock| outside(lock, first, last)).collect();
        pieces.extend(new);
        let mut rest = Vec::with_capacity(others.len() + pieces.len());
        for other in others {
            // What is next to it may be joined with it.
            let is_next = |piece: &FileLock| piece.joined(&other).is_some() || other.joined(piece).is_some();
            if pieces.iter().any(is_next) {
                old.push(other);
                pieces.push(other);
            } else {
                rest.push(other);
            }
        }
        let pieces = joined(pieces);
        let count = self.counts.get(&owner.client).copied().unwrap_or(0);
        if count + pieces.len() > LOCKS_MAX + old.len() {
            return Err(LockRefusal::Many);
        }
        Ok(Replaced { old, pieces, rest })
    }

    fn count_changed(&mut self, client: u32, went: usize, came: usize) {
        let count = self.counts.entry(client).or_default();
        *count = (*count + came).checked_sub(went).expect("locks that went had come");
        if *count == 0 {
            self.counts.remove(&client);
        }
    }

    /// Grants requests that nothing excludes any more, until there is none.
    fn grant(&mut self, inode: InodeNumber, events: &mut LockEvents) {
        if self.granting == Granting::ClaimsOnly {
            return;
        }
        // A grant may free bytes that its owner had exclusively.
        while let Some((number, lock)) = self.next_free(inode) {
            self.waiting.remove(&number);
            let outcome = self.set(inode, lock, events);
            events.ended.push((number, outcome));
        }
    }

    fn next_free(&self, inode: InodeNumber) -> Option<(LockRequestNumber, FileLock)> {
        let here = self.waiting.iter().filter(|(_, waiting)| waiting.inode == inode);
        let mut free = here.filter(|(_, waiting)| self.conflict(inode, &waiting.lock).is_none());
        free.next().map(|(number, waiting)| (*number, waiting.lock))
    }

    /// True if somebody who would have to unlock first waits, by way of others perhaps, for the owner of `lock`.
    fn would_deadlock(&self, inode: InodeNumber, lock: &FileLock) -> bool {
        if lock.owner.family == LockFamily::Whole {
            return false;
        }
        let mut owners = self.blockers(inode, lock);
        let mut at = 0;
        while let Some(owner) = owners.get(at).copied().filter(|_| at < DEADLOCK_OWNERS_MAX) {
            at += 1;
            for waiting in self.waiting.values().filter(|waiting| waiting.lock.owner == owner) {
                for next in self.blockers(waiting.inode, &waiting.lock) {
                    if next == lock.owner {
                        return true;
                    }
                    if !owners.contains(&next) {
                        owners.push(next);
                    }
                }
            }
        }
        false
    }

    fn blockers(&self, inode: InodeNumber, lock: &FileLock) -> Vec<LockOwner> {
        self.held(inode).iter().filter(|held| held.excludes(lock)).map(|held| held.owner).collect()
    }
}

/// What is left of a lock without a range.
fn outside(lock: &FileLock, first: u64, last: u64) -> impl Iterator<Item = FileLock> {
    let before = first.checked_sub(1).filter(|end| lock.first <= *end);
    let behind = last.checked_add(1).filter(|start| *start <= lock.last);
    let before = before.map(|last| FileLock { last, ..*lock });
    before.into_iter().chain(behind.map(|first| FileLock { first, ..*lock }))
}

/// Locks of one owner, in which neighbours are one.
fn joined(mut locks: Vec<FileLock>) -> Vec<FileLock> {
    locks.sort_unstable_by_key(|lock| lock.first);
    let mut joined: Vec<FileLock> = Vec::with_capacity(locks.len());
    for lock in locks {
        match joined.last().and_then(|before| before.joined(&lock)) {
            Some(both) => *joined.last_mut().expect("there is one before") = both,
            None => joined.push(lock),
        }
    }
    joined
}

#[cfg(test)]
mod tests;
