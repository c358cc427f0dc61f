//! Who may use a file without asking: leases, as a state machine. Time is an argument, from any fixed point on.
//!
//! A lease belongs to a client and an inode. The mount needs none: each of its requests *enters* the inode, and takes the
//! leases back that are in its way. A lease is *pending* first: nothing is done under it yet, and it can be taken back at
//! once. What taking back an active lease needs is the caller's part; [`Leases::end`] follows.

use crate::key::InodeNumber;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::time::Duration;

/// A lease that is taken back sooner counts as a conflict.
const CONFLICT_WITHIN: Duration = Duration::from_secs(1);
/// Conflicts in a row after which an inode is left to the mount.
const CONFLICTS_MAX: u32 = 4;
/// For how long it is left then; each further conflict doubles it, up to the second one.
const LEFT_FOR: Duration = Duration::from_millis(100);
const LEFT_FOR_MAX: Duration = Duration::from_secs(10);
/// A lease that is not used for so long is taken back.
const IDLE: Duration = Duration::from_secs(10);

/// Number of a lease. No number is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseNumber(pub u64);

/// What a lease or a lock allows, or what a request of the mount does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// To read bytes and attributes.
    Read,
    /// To change them.
    Write,
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who has it.
    pub client: u32,
    /// Of which inode.
    pub inode: InodeNumber,
    /// What it allows.
    pub access: Access,
    /// Operations may be executed under it.
    pub is_active: bool,
    since: Duration,
    /// The number of uses that was reported last, and since when it is that.
    uses: (u64, Duration),
}

impl Lease {
    /// True if nobody else may have this access meanwhile.
    fn excludes(&self, access: Access) -> bool {
        access == Access::Write || self.access == Access::Write
    }
}

/// The answer to [`Leases::acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lease is pending.
    Pending(LeaseNumber),
    /// These leases are in its way: take them back, and ask again.
    Conflicts(Conflicts),
    /// The mount works on the inode now, or others have asked for it too often: leave it to the mount until then.
    Left(Duration),
}

/// Leases that must be taken back.
pub type Conflicts = SmallVec<[LeaseNumber; 4]>;

/// What is known of an inode.
#[derive(Clone, Debug, Default)]
struct Held {
    leases: Conflicts,
    /// Requests of the mount that are being executed: those that read, and those that change.
    reading: u32,
    changing: u32,
    /// Conflicts in a row.
    conflicts: u32,
    left_until: Duration,
}

/// All leases.
#[derive(Debug, Default)]
pub struct Leases {
    all: BTreeMap<LeaseNumber, Lease>,
    held: BTreeMap<InodeNumber, Held>,
    newest: u64,
}

impl Leases {
    /// A request of the mount begins on an inode; [`Self::leave`] ends it.
    ///
    /// # Errors
    /// The leases in its way. It has not begun then.
    pub fn enter(&mut self, inode: InodeNumber, access: Access) -> Result<(), Conflicts> {
        let conflicts = self.leases_where(inode, |lease| lease.excludes(access));
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        let held = self.held.entry(inode).or_default();
        match access {
            Access::Read => held.reading += 1,
            Access::Write => held.changing += 1,
        }
        Ok(())
    }

    /// A request of the mount has ended.
    ///
    /// # Panics
    /// If none has begun.
    pub fn leave(&mut self, inode: InodeNumber, access: Access) {
        let held = self.held.get_mut(&inode).expect("it has entered");
        let count = match access {
            Access::Read => &mut held.reading,
            Access::Write => &mut held.changing,
        };
        *count = count.checked_sub(1).expect("it has entered");
        self.forget_unused(inode, Duration::MAX);
    }

    /// A client asks for a lease.
    pub fn acquire(&mut self, now: Duration, client: u32, inode: InodeNumber, access: Access) -> Acquired {
        if let Some(held) = self.held.get(&inode) {
            if now < held.left_until {
                return Acquired::Left(held.left_until);
            }
            if held.changing > 0 || access == Access::Write && held.reading > 0 {
                return Acquired::Left(now);
            }
        }
        // A client that asks again gives back what it has.
        let is_in_way = |lease: &Lease| lease.client == client || lease.excludes(access);
        let conflicts = self.leases_where(inode, is_in_way);
        if !conflicts.is_empty() {
            return Acquired::Conflicts(conflicts);
        }
        self.newest += 1;
        let number = LeaseNumber(self.newest);
        let lease = Lease { client, inode, access, is_active: false, since: now, uses: (0, now) };
        self.all.insert(number, lease);
        self.held.entry(inode).or_default().leases.push(number);
        Acquired::Pending(number)
    }

    /// A pending lease becomes active. False if it was taken back meanwhile.
    pub fn activate(&mut self, number: LeaseNumber) -> bool {
        let lease = self.all.get_mut(&number);
        lease.map(|lease| lease.is_active = true).is_some()
    }

    /// A lease, unless it has ended.
    pub fn get(&self, number: LeaseNumber) -> Option<Lease> {
        self.all.get(&number).copied()
    }

    /// A lease has been taken back, because somebody else needed the inode.
    pub fn end(&mut self, now: Duration, number: LeaseNumber) {
        let Some(lease) = self.remove(number) else { return };
        let held = self.held.entry(lease.inode).or_default();
        if now.saturating_sub(lease.since) >= CONFLICT_WITHIN {
            held.conflicts = 0;
            return;
        }
        held.conflicts += 1;
        if let Some(doublings) = held.conflicts.checked_sub(CONFLICTS_MAX) {
            let left_for = LEFT_FOR.saturating_mul(1 << doublings.min(10)).min(LEFT_FOR_MAX);
            held.left_until = now + left_for;
        }
    }

    /// A client does not need a lease any more, or has ended.
    pub fn release(&mut self, number: LeaseNumber) {
        if let Some(lease) = self.remove(number) {
            self.forget_unused(lease.inode, Duration::MAX);
        }
    }

    /// True if a client has or gets a lease with which it may change the inode.
    pub fn is_held_to_write(&self, inode: InodeNumber) -> bool {
        !self.leases_where(inode, |lease| lease.access == Access::Write).is_empty()
    }

    /// Reports how often an active lease has been used. True if that is the same for so long that the lease is to be taken
    /// back.
    pub fn is_idle(&mut self, now: Duration, number: LeaseNumber, uses: u64) -> bool {
        let Some(lease) = self.all.get_mut(&number) else { return false };
        if lease.uses.0 != uses {
            lease.uses = (uses, now);
        }
        now.saturating_sub(lease.uses.1) >= IDLE
    }

    /// Forgets what does not matter any more.
    pub fn tidy(&mut self, now: Duration) {
        let inodes: Vec<InodeNumber> = self.held.keys().copied().collect();
        inodes.into_iter().for_each(|inode| self.forget_unused(inode, now));
    }

    fn leases_where(&self, inode: InodeNumber, is_wanted: impl Fn(&Lease) -> bool) -> Conflicts {
        let leases = self.held.get(&inode).into_iter().flat_map(|held| &held.leases);
        leases.filter(|number| is_wanted(&self.all[*number])).copied().collect()
    }

    fn remove(&mut self, number: LeaseNumber) -> Option<Lease> {
        let lease = self.all.remove(&number)?;
        if let Some(held) = self.held.get_mut(&lease.inode) {
            held.leases.retain(|other| *other != number);
        }
        Some(lease)
    }

    /// Forgets an inode without leases and requests, and whose conflicts are so old at `now` that they do not count.
    fn forget_unused(&mut self, inode: InodeNumber, now: Duration) {
        let Some(held) = self.held.get(&inode) else { return };
        let is_used = !held.leases.is_empty() || held.reading > 0 || held.changing > 0;
        let counts = held.conflicts > 0 && (now == Duration::MAX || now < held.left_until + CONFLICT_WITHIN);
        if !is_used && !counts {
            self.held.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests;
