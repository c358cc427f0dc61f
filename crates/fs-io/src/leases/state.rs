//! The leases that holders have, without threads and clocks.

use crate::lives::{MountId, MountNumber};
use landfall_fs::InodeNumber;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long a holder may use its leases after it has sent an answer that the server has heard.
pub(crate) const LEASE_TERM: Duration = Duration::from_secs(1);
/// By how much more the server waits: its clock may be faster by a twentieth.
const DRIFT: Duration = Duration::from_millis(50);
/// After so long nobody has leases of a server that has ended.
pub(crate) const LEASES_END: Duration = LEASE_TERM.saturating_add(DRIFT);
/// After a recall of an inode nobody but who has changed it gets a lease of it for so long: what several mounts change in
/// turn is not recalled each time.
pub(super) const COOLING: Duration = Duration::from_secs(1);
/// Cooling inodes from which on those that have cooled down are dropped.
const COOLING_MANY: usize = 1024;
/// Most leases of a mount.
const LEASES_MAX: usize = 1 << 18;
/// How soon a recall is sent again that could not be sent.
const SEND_AGAIN: Duration = Duration::from_millis(5);

/// A mount that never comes back: no mount draws these bytes.
const NOBODY: MountId = [0; 16];

/// Inodes of one request.
pub(crate) type Inodes = SmallVec<[InodeNumber; 4]>;

/// Sends a recall with a number. False if that would have to wait.
pub(crate) type Recall = Box<dyn Fn(u64, &[InodeNumber]) -> bool + Send>;

/// A mount whose holder may have leases.
struct Holder {
    mount: MountNumber,
    id: MountId,
    /// `None`: its connection has ended, and perhaps it does not know yet.
    recall: Option<Recall>,
    /// When it has none any more, whatever it has had; `None`: it has answered nothing so far.
    until: Option<Instant>,
    /// The last question to which its answer was heard.
    heard: u64,
    inodes: HashSet<InodeNumber>,
    recalled: u64,
    dropped: u64,
}

impl Holder {
    fn is_able(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn has_any(&self, inodes: &[InodeNumber]) -> bool {
        inodes.iter().any(|inode| self.inodes.contains(inode))
    }

    fn drop_all(&mut self, inodes: &[InodeNumber]) {
        inodes.iter().for_each(|inode| _ = self.inodes.remove(inode));
    }

    /// Sends a recall. Returns its number, if it is on its way.
    fn send(&mut self, inodes: &[InodeNumber]) -> Option<u64> {
        let number = self.recalled + 1;
        let is_sent = self.recall.as_ref().is_some_and(|recall| recall(number, inodes));
        is_sent.then(|| {
            self.recalled = number;
            number
        })
    }
}

/// Who may have a lease of an inode that was recalled.
struct Cooling {
    until: Instant,
    changed_by: MountNumber,
}

/// Leases of an earlier server.
struct Earlier {
    /// Nobody has any then.
    until: Instant,
    /// Whose mounts are not back yet; `None`: that is not known.
    missing: Option<Vec<MountId>>,
}

/// The leases that holders have, and what is in their way.
#[derive(Default)]
pub(crate) struct State {
    holders: Vec<Holder>,
    /// How many requests change an inode now.
    changing: HashMap<InodeNumber, usize>,
    cooling: HashMap<InodeNumber, Cooling>,
    /// A holder may have leases of an earlier server.
    earlier: Option<Earlier>,
    /// Requests that have waited for a recall.
    recalls: u64,
}

impl State {
    fn may_lease(&self, mount: MountNumber, inode: InodeNumber, now: Instant) -> bool {
        let is_cool = |cooling: &Cooling| cooling.changed_by == mount || cooling.until <= now;
        !self.changing.contains_key(&inode) && self.cooling.get(&inode).is_none_or(is_cool)
    }

    fn holder(&mut self, mount: MountNumber) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.mount == mount)
    }

    fn cool(&mut self, inodes: &[InodeNumber], changed_by: MountNumber, now: Instant) {
        if self.cooling.len() >= COOLING_MANY {
            self.cooling.retain(|_, cooling| now < cooling.until);
        }
        let until = now + COOLING;
        self.cooling.extend(inodes.iter().map(|inode| (*inode, Cooling { until, changed_by })));
    }

    /// Holders whose connections have ended, and which have noticed by now.
    fn drop_ended(&mut self, now: Instant) {
        self.holders.retain(|holder| holder.recall.is_some() || holder.is_able(now));
    }

    /// An earlier server may have given leases until now, to these mounts or to any (`None`).
    pub(crate) fn follow(&mut self, missing: Option<Vec<MountId>>, now: Instant) {
        self.earlier = Some(Earlier { until: now + LEASES_END, missing });
        self.forget_earlier(now);
    }

    /// An earlier server's leases are over when their time is, or all mounts are back that may have some.
    fn forget_earlier(&mut self, now: Instant) {
        let is_over = |earlier: &mut Earlier| {
            earlier.until <= now || earlier.missing.as_ref().is_some_and(Vec::is_empty)
        };
        self.earlier.take_if(is_over);
    }

    /// The mounts whose holders may have leases, also of an earlier server. If it is not known who has some of those, one of
    /// them is [`NOBODY`].
    pub(crate) fn mounts(&self) -> Vec<MountId> {
        let earlier = self.earlier.iter().flat_map(|earlier| earlier.missing.clone().unwrap_or(vec![NOBODY]));
        self.holders.iter().map(|holder| holder.id).chain(earlier).collect()
    }

    /// A mount is served whose holder may get leases. What an earlier connection of it has had is gone.
    pub(crate) fn join(&mut self, mount: MountNumber, id: MountId, recall: Recall, now: Instant) {
        self.drop_ended(now);
        self.holders.retain(|holder| holder.id != id);
        let missing = self.earlier.iter_mut().filter_map(|earlier| earlier.missing.as_mut());
        missing.for_each(|missing| missing.retain(|other| *other != id));
        let (recall, inodes) = (Some(recall), HashSet::new());
        self.holders.push(Holder {
            mount,
            id,
            recall,
            until: None,
            heard: 0,
            inodes,
            recalled: 0,
            dropped: 0,
        });
    }

    /// The connection of a mount has ended. Its holder may not know that yet.
    pub(crate) fn leave(&mut self, mount: MountNumber, now: Instant) {
        self.holder(mount).into_iter().for_each(|holder| holder.recall = None);
        self.drop_ended(now);
    }

    /// The holder of a mount has answered a question.
    pub(crate) fn note_answer(&mut self, mount: MountNumber, number: u64, now: Instant) {
        if let Some(holder) = self.holder(mount) {
            holder.heard = holder.heard.max(number);
            holder.until = Some(now + LEASES_END);
        }
    }

    /// The last question to which the holder's answer was heard; 0: none.
    pub(crate) fn heard(&mut self, mount: MountNumber) -> u64 {
        self.holder(mount).map_or(0, |holder| holder.heard)
    }

    /// The holder of a mount has dropped what it kept, for the recalls up to this one.
    pub(crate) fn note_dropped(&mut self, mount: MountNumber, number: u64) {
        self.holder(mount).into_iter().for_each(|holder| holder.dropped = holder.dropped.max(number));
    }

    /// Gives a mount's holder the lease of an inode. False if it gets none.
    pub(crate) fn give(&mut self, mount: MountNumber, inode: InodeNumber, now: Instant) -> bool {
        if !self.may_lease(mount, inode, now) {
            return false;
        }
        let Some(holder) = self.holder(mount).filter(|holder| holder.is_able(now)) else { return false };
        let has_room = holder.inodes.len() < LEASES_MAX || holder.inodes.contains(&inode);
        has_room && {
            holder.inodes.insert(inode);
            true
        }
    }

    /// A mount's kernel has forgotten an inode: its holder keeps nothing of it.
    pub(crate) fn forget(&mut self, mount: MountNumber, inode: InodeNumber) {
        self.holder(mount).into_iter().for_each(|holder| _ = holder.inodes.remove(&inode));
    }

    /// A mount is about to change inodes: `named` are those that its request names, `found` others.
    pub(crate) fn begin(
        &mut self,
        mount: MountNumber,
        named: &[InodeNumber],
        found: &[InodeNumber],
    ) -> Change {
        let inodes: Inodes = named.iter().chain(found).copied().collect();
        inodes.iter().for_each(|inode| *self.changing.entry(*inode).or_default() += 1);
        // What it has itself its holder drops without being told, but for what that cannot know. Until then it hears of changes
        // by others: names may lead elsewhere than it believes.
        let had_unnamed = self.holder(mount).is_some_and(|holder| holder.has_any(found));
        Change { mount, inodes, had_unnamed, asked: SmallVec::new(), has_waited: false }
    }

    /// Recalls the leases that are in the way of a change. `None`: there are none any more. Otherwise it goes on when a holder
    /// has answered, at this time at the latest.
    pub(crate) fn go_on(&mut self, change: &mut Change, now: Instant) -> Option<Instant> {
        self.forget_earlier(now);
        let mut until = self.earlier.as_ref().map(|earlier| earlier.until);
        for holder in &mut self.holders {
            if holder.mount != change.mount && holder.has_any(&change.inodes) {
                until = until.into_iter().chain(change.recall(holder, now)).min();
            }
        }
        if until.is_some() && self.earlier.is_none() && !std::mem::replace(&mut change.has_waited, true) {
            self.recalls += 1;
            self.cool(&change.inodes, change.mount, now);
        }
        until
    }

    /// A change is over. If it was executed, the mount that has sent it has no leases of its inodes any more: its holder knows.
    pub(crate) fn end(&mut self, change: &Change, is_executed: bool) {
        if let Some(holder) = self.holder(change.mount).filter(|_| is_executed) {
            holder.drop_all(&change.inodes);
        }
        for inode in &change.inodes {
            let left = self.changing.get(inode).map_or(0, |requests| requests - 1);
            match left {
                0 => drop(self.changing.remove(inode)),
                left => drop(self.changing.insert(*inode, left)),
            }
        }
    }

    /// How many leases holders have, and how many requests have waited for a recall.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.holders.iter().map(|holder| holder.inodes.len()).sum(), self.recalls)
    }
}

/// A request that changes inodes: nobody gets a lease of them.
pub(crate) struct Change {
    mount: MountNumber,
    inodes: Inodes,
    /// The mount that has sent it had leases of inodes that its holder cannot know by the request.
    pub(crate) had_unnamed: bool,
    /// The recalls that are on their way.
    asked: SmallVec<[(MountNumber, u64); 4]>,
    has_waited: bool,
}

impl Change {
    /// Recalls a holder's leases, unless that is done. `None`: it has none any more. Otherwise when to look again.
    fn recall(&mut self, holder: &mut Holder, now: Instant) -> Option<Instant> {
        let asked = self.asked.iter().find(|(mount, _)| *mount == holder.mount).map(|(_, number)| *number);
        let number = asked.or_else(|| {
            let number = holder.send(&self.inodes)?;
            self.asked.push((holder.mount, number));
            Some(number)
        });
        if number.is_some_and(|number| holder.dropped >= number) || !holder.is_able(now) {
            holder.drop_all(&self.inodes);
            return None;
        }
        let is_unsent = number.is_none() && holder.recall.is_some();
        if is_unsent { Some(now + SEND_AGAIN) } else { holder.until }
    }
}
