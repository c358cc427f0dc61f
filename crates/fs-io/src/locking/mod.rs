//! Locks of shared mounts: one kernel's would not count at another mount, so that the server keeps them.
//!
//! What outlives the server, and who may claim what of the next one: `docs/format/fs-offload.md`, "Locks".

mod book;

use crate::errors::{INVALID, NO_LOCKS};
use crate::interrupts::Interrupts;
use crate::ledger::Ledger;
use crate::lives::{MountId, MountNumber};
use crate::random::random_bytes;
use crate::transport::Later;
pub(crate) use book::{Book, book_of};
use landfall_fs::{
    Access, FileLock, FileLocks, InodeNumber, LockChange, LockEvents, LockFamily, LockOwner, LockRefusal,
    LockRequestNumber, Patience, Released,
};
use landfall_fuse::{Errno, Handle, Lock, LockKind, LockRequest, Release, Reply, Unique};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `EINPROGRESS`: the answer to a holder on another machine whose request waits. The outcome follows as a message.
pub(crate) const WAITS: Errno = Errno::from_raw(libc::EINPROGRESS);
/// `EAGAIN`: somebody else has the lock.
const HELD: Errno = Errno::from_raw(libc::EAGAIN);
/// `EDEADLK`.
const DEADLOCK: Errno = Errno::from_raw(libc::EDEADLK);

/// How long mounts on other machines have time to claim what they had under an earlier server. A holder takes 10 seconds
/// to see that its server is gone, and then connects anew.
const CLAIMS_LIMIT: Duration = Duration::from_secs(15);
/// How long the end of an open file may follow the end of a descriptor. The kernel reports the former behind the back of
/// whoever has closed it: a lock that ended with it would be seen still.
const CLOSING_LIMIT: Duration = Duration::from_secs(1);
/// Mounts that are away and whose locks are remembered.
const AWAY_MAX: usize = 64;

/// Tells the holder of a mount on another machine what has become of a request that waited. False: not now.
pub(crate) type Say = Box<dyn Fn(Unique, Option<Errno>) -> bool + Send>;

/// Where a mount's kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// On this machine.
    Here,
    /// On another one: the mount may come back when its connection has ended.
    Elsewhere,
}

/// A mount whose locks count.
pub(crate) struct Member {
    pub(crate) id: MountId,
    pub(crate) kernel: Kernel,
    /// Keeps its locks for the next server.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) say: Say,
}

/// Who may claim locks of an earlier server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimants {
    /// These mounts on other machines.
    Known(Vec<MountId>),
    /// Any mount: another machine has served them before.
    Any,
}

/// The locks of all mounts, and who waits for one.
pub(crate) struct Locking {
    state: Mutex<State>,
    /// The next open file's handle.
    handles: AtomicU64,
}

#[derive(Default)]
struct State {
    locks: FileLocks,
    requests: u64,
    waiting: BTreeMap<LockRequestNumber, Waiter>,
    members: BTreeMap<u32, Known>,
    /// What mounts had whose connection has ended. Others may take it; what nobody has taken is theirs when they are back.
    away: Vec<(MountId, Vec<(InodeNumber, FileLock)>)>,
    /// Open files with locks of which a descriptor was closed: by client and handle, until when that may have been the last
    /// one.
    closing: BTreeMap<(u32, u64), Instant>,
    /// Outcomes that holders could not be told yet.
    unsaid: Vec<(u32, Unique, Option<Errno>)>,
    /// Until when mounts may claim, and which are expected.
    claims: Option<(Instant, Claimants)>,
    /// Mounts on other machines that have locks, for the next server.
    book: Option<Book>,
    /// Those that have lost theirs, and are named in it because it could not be written.
    unstruck: Vec<MountId>,
}

struct Known {
    member: Member,
    interrupted: Interrupts,
}

/// A request that waits.
struct Waiter {
    mount: u32,
    unique: Unique,
    to: WaiterPlace,
    /// The file, and the lock.
    asked: (InodeNumber, FileLock),
    /// Until when it waits; `None`: as long as it must.
    until: Option<Instant>,
}

/// Who hears the outcome of a request that waits.
enum WaiterPlace {
    Kernel(Later),
    Holder,
}

/// Replies that are to be sent when the state is free.
type Replies = Vec<(Later, Reply)>;

impl Default for Locking {
    fn default() -> Self {
        // Handles of an earlier server are open still: no number is given twice, but by a chance of one in billions.
        let bytes = random_bytes().unwrap_or_default();
        let first = bytes.first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes));
        Self { state: Mutex::default(), handles: AtomicU64::new(first) }
    }
}

impl Locking {
    /// A handle for an open file.
    pub(crate) fn handle(&self) -> Handle {
        Handle(self.handles.fetch_add(1, Ordering::Relaxed))
    }

    /// Those who had locks under an earlier server may claim them. Nobody else gets one meanwhile.
    pub(crate) fn begin(&self, book: Book, any: bool) {
        let mut state = self.state.lock();
        let known = book.mounts().to_vec();
        state.book = Some(book);
        if any || !known.is_empty() {
            tracing::info!("locks are not granted until mounts elsewhere have claimed what they had");
            let claimants = if any { Claimants::Any } else { Claimants::Known(known) };
            state.claims = Some((Instant::now() + CLAIMS_LIMIT, claimants));
            state.locks.begin_claims();
        }
    }

    /// When [`Self::go_on`] has something to do.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let state = self.state.lock();
        let claims = state.claims.iter().map(|(until, _)| *until);
        let brief = state.waiting.values().filter_map(|waiter| waiter.until);
        claims.chain(brief).min().map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Grants locks again when it is time, and tells holders what they could not be told before.
    pub(crate) fn go_on(&self) {
        let mut state = self.state.lock();
        let unsaid = std::mem::take(&mut state.unsaid);
        unsaid.into_iter().for_each(|(mount, unique, errno)| state.say(mount, unique, errno));
        let now = Instant::now();
        let mut replies = state.end_brief_waits(now);
        if state.claims.as_ref().is_some_and(|(until, _)| *until <= now) {
            replies.extend(state.end_claims());
        }
        send(state, replies);
    }

    /// A mount is served from now on. What it had under an earlier server, or before its connection has ended, is its own
    /// again. Returns the handles of open files whose locks are lost: somebody else has, or had, what excludes them.
    pub(crate) fn join(&self, mount: MountNumber, member: Member) -> Vec<u64> {
        let mut state = self.state.lock();
        let (lost, replies) = state.join(mount.0, member);
        send(state, replies);
        lost
    }

    /// A mount has ended, and with it its locks.
    pub(crate) fn end_mount(&self, mount: MountNumber) {
        let mut state = self.state.lock();
        let replies = state.end_mount(mount.0);
        send(state, replies);
    }

    /// Answers SETLK and SETLKW. `None`: the reply follows when the lock is granted.
    pub(crate) fn set(
        &self,
        mount: MountNumber,
        (unique, inode): (Unique, InodeNumber),
        asked: &LockRequest,
        patience: Patience,
        to: Later,
    ) -> Option<Reply> {
        // A kernel does not ask for that, but a holder elsewhere may say anything.
        if asked.lock.start > asked.lock.end {
            return Some(Reply::error(unique, INVALID));
        }
        let mut state = self.state.lock();
        let Some(lock) = lock_of(mount.0, asked) else {
            let owner = owner_of(mount.0, asked);
            let (reply, replies) = state.unlock(inode, owner, (asked.lock.start, asked.lock.end));
            send(state, replies);
            return Some(reply.map_or_else(|errno| Reply::error(unique, errno), |()| Reply::ok(unique)));
        };
        let waiter = match to {
            Later::Connection(_) => WaiterPlace::Holder,
            kernel => WaiterPlace::Kernel(kernel),
        };
        let is_elsewhere = matches!(waiter, WaiterPlace::Holder);
        let waiter = Waiter { mount: mount.0, unique, to: waiter, asked: (inode, lock), until: None };
        let (outcome, replies) = state.request(waiter, patience);
        send(state, replies);
        match outcome {
            Some(None) => Some(Reply::ok(unique)),
            Some(Some(errno)) => Some(Reply::error(unique, errno)),
            None if is_elsewhere => Some(Reply::error(unique, WAITS)),
            None => None,
        }
    }

    /// Answers GETLK: the lock that is in the way. Processes of other mounts mean nothing to the caller.
    pub(crate) fn conflict(
        &self,
        mount: MountNumber,
        inode: InodeNumber,
        asked: &LockRequest,
    ) -> Option<Lock> {
        let wanted = lock_of(mount.0, asked)?;
        let held = self.state.lock().locks.conflict(inode, &wanted)?;
        let kind = if held.access == Access::Write { LockKind::Write } else { LockKind::Read };
        let pid = if held.owner.client == mount.0 { held.process } else { 0 };
        Some(Lock { start: held.first, end: held.last, kind, pid })
    }

    /// A descriptor of an open file is closed: the locks of its process end.
    pub(crate) fn flush(&self, mount: MountNumber, inode: InodeNumber, (fh, owner): (Handle, u64)) {
        let owner = LockOwner { client: mount.0, family: LockFamily::Range, id: owner };
        self.release(inode, Released::Owner(owner));
        self.state.lock().note_closing(inode, (mount.0, fh.0));
    }

    /// An open file is closed: the locks that were taken by it end.
    pub(crate) fn close(&self, mount: MountNumber, inode: InodeNumber, release: &Release) {
        self.state.lock().closing.remove(&(mount.0, release.fh.0));
        self.release(inode, Released::Handle { client: mount.0, handle: release.fh.0 });
    }

    fn release(&self, inode: InodeNumber, released: Released) {
        let mut state = self.state.lock();
        let events = state.locks.release(inode, released);
        let (_, replies) = state.finish(None, events);
        send(state, replies);
    }

    /// The caller of a request was interrupted: it does not wait any longer.
    pub(crate) fn interrupt(&self, mount: MountNumber, unique: Unique) {
        let mut state = self.state.lock();
        let replies = state.interrupt(mount.0, unique.first());
        send(state, replies);
    }

    /// Locks, and requests that wait for one.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.locks.count(), state.locks.waiting())
    }
}

/// Sends replies. Nobody waits for the kernel meanwhile.
fn send(state: MutexGuard<'_, State>, replies: Replies) {
    drop(state);
    for (to, reply) in replies {
        if let Err(error) = to.reply(&reply) {
            tracing::error!(%error, "the kernel refuses a reply");
        }
    }
}

/// Whose lock a request is about.
pub(crate) fn owner_of(client: u32, asked: &LockRequest) -> LockOwner {
    let family = if asked.flock { LockFamily::Whole } else { LockFamily::Range };
    LockOwner { client, family, id: asked.owner }
}

/// The lock that a request asks for; `None`: it unlocks.
pub(crate) fn lock_of(client: u32, asked: &LockRequest) -> Option<FileLock> {
    let Lock { start: first, end: last, kind, pid: process } = asked.lock;
    let access = match kind {
        LockKind::Read => Access::Read,
        LockKind::Write => Access::Write,
        LockKind::Unlock => return None,
    };
    Some(FileLock { owner: owner_of(client, asked), handle: asked.fh.0, access, first, last, process })
}

/// True if a mount had what it claims.
fn covers(had: &[(InodeNumber, FileLock)], inode: InodeNumber, lock: &FileLock) -> bool {
    had.iter().any(|(at, held)| {
        let is_same_owner = (held.owner.family, held.owner.id) == (lock.owner.family, lock.owner.id);
        let is_around = held.first <= lock.first && lock.last <= held.last;
        *at == inode && is_same_owner && is_around && held.access == lock.access
    })
}

/// What the lock of a granted request has replaced. The changes of one request are next to each other.
fn replaced(changes: &[LockChange], (inode, lock): (InodeNumber, FileLock)) -> Vec<FileLock> {
    let is_its = |at: InodeNumber, held: &FileLock| at == inode && held.owner == lock.owner;
    let came = |change: &LockChange| match change {
        LockChange::Came(at, held) if is_its(*at, held) => Some(*held),
        _ => None,
    };
    let has_it = |held: FileLock| held.first <= lock.first && lock.last <= held.last;
    let own = changes.iter().skip_while(|change| !came(change).is_some_and(has_it));
    let went = own.skip_while(|change| came(change).is_some()).map_while(|change| match change {
        LockChange::Went(at, held) if is_its(*at, held) => Some(*held),
        _ => None,
    });
    went.collect()
}

/// The file that names mounts with locks could not be written.
fn report(noted: io::Result<()>) {
    if let Err(error) = noted {
        tracing::error!(%error, "the next server may not know which mounts have locks");
    }
}

fn errno_of(refusal: LockRefusal) -> Errno {
    match refusal {
        LockRefusal::Held => HELD,
        LockRefusal::Deadlock => DEADLOCK,
        LockRefusal::Many => NO_LOCKS,
    }
}

impl State {
    fn join(&mut self, mount: u32, member: Member) -> (Vec<u64>, Replies) {
        let (id, kernel, ledger) = (member.id, member.kernel, Arc::clone(&member.ledger));
        let away = self.away.iter().position(|(other, _)| *other == id);
        let had = away.map_or_else(Vec::new, |at| self.away.remove(at).1);
        self.members.insert(mount, Known { member, interrupted: Interrupts::default() });
        let mut lost = BTreeSet::new();
        for (inode, lock) in ledger.locks() {
            let lock = FileLock { owner: LockOwner { client: mount, ..lock.owner }, ..lock };
            let is_its_own = match kernel {
                // It was served by the server before, and nobody since.
                Kernel::Here => true,
                Kernel::Elsewhere => covers(&had, inode, &lock) || self.may_claim(id),
            };
            if !is_its_own || !self.locks.claim(inode, lock) {
                ledger.forget_lock(inode, lock);
                lost.insert(lock.handle);
            }
        }
        let mut replies = self.release_lost(mount, &lost);
        let has_any = self.locks.all().any(|(_, lock)| lock.owner.client == mount);
        if has_any {
            report(self.note(mount));
        } else {
            self.strike_soon(id);
        }
        if !lost.is_empty() {
            tracing::warn!(files = lost.len(), "locks of a mount that was away are lost: others had them");
        }
        replies.extend(self.end_claims_of(id));
        (lost.into_iter().collect(), replies)
    }

    /// Frees what open files have besides the locks that they have lost: they are of no use any more, and their mount says
    /// nothing of them.
    fn release_lost(&mut self, client: u32, lost: &BTreeSet<u64>) -> Replies {
        let is_theirs = |lock: &FileLock| lock.owner.client == client && lost.contains(&lock.handle);
        let theirs: Vec<(InodeNumber, FileLock)> =
            self.locks.all().filter(|(_, lock)| is_theirs(lock)).collect();
        let mut replies = Replies::new();
        for (inode, FileLock { handle, .. }) in theirs {
            let events = self.locks.release(inode, Released::Handle { client, handle });
            replies.extend(self.finish(None, events).1);
        }
        replies
    }

    /// True if a mount may claim what it had under an earlier server.
    fn may_claim(&self, id: MountId) -> bool {
        match &self.claims {
            Some((_, Claimants::Known(mounts))) => mounts.contains(&id),
            Some((_, Claimants::Any)) => true,
            None => false,
        }
    }

    /// A mount has claimed what it had. Locks are granted again if it was the last one.
    fn end_claims_of(&mut self, id: MountId) -> Replies {
        let Some((_, Claimants::Known(mounts))) = &mut self.claims else { return Vec::new() };
        mounts.retain(|mount| *mount != id);
        if mounts.is_empty() { self.end_claims() } else { Vec::new() }
    }

    fn end_claims(&mut self) -> Replies {
        if let Some((_, Claimants::Known(mounts))) = self.claims.take() {
            // Those that have not come have lost their locks.
            mounts.into_iter().for_each(|id| self.strike_soon(id));
        }
        tracing::info!("locks are granted");
        let events = self.locks.end_claims();
        self.finish(None, events).1
    }

    fn end_mount(&mut self, mount: u32) -> Replies {
        self.waiting.retain(|_, waiter| waiter.mount != mount);
        self.unsaid.retain(|(other, ..)| *other != mount);
        self.closing.retain(|(other, _), _| *other != mount);
        let known = self.members.remove(&mount);
        let (ended, events) = self.locks.end_client(mount);
        // Before others take what it had.
        match known {
            Some(Known { member, .. }) if member.kernel == Kernel::Elsewhere && !ended.is_empty() => {
                self.away.push((member.id, ended));
                if self.away.len() > AWAY_MAX {
                    let (id, _) = self.away.remove(0);
                    self.strike_soon(id);
                }
            }
            // It has nothing that it could claim.
            Some(Known { member, .. }) => report(self.strike(member.id)),
            None => {}
        }
        self.finish(None, events).1
    }

    fn unlock(
        &mut self,
        inode: InodeNumber,
        owner: LockOwner,
        range: (u64, u64),
    ) -> (Result<(), Errno>, Replies) {
        match self.locks.unlock(inode, owner, range) {
            Ok(events) => (Ok(()), self.finish(None, events).1),
            Err(refusal) => (Err(errno_of(refusal)), Vec::new()),
        }
    }

    /// What has become of a request: `None`: it waits; `Some(None)`: it is granted.
    fn request(&mut self, waiter: Waiter, patience: Patience) -> (Option<Option<Errno>>, Replies) {
        let (inode, lock) = waiter.asked;
        let until = self.closing_until(inode, &lock).filter(|_| patience == Patience::None);
        let patience = if until.is_some() { Patience::Briefly } else { patience };
        let waiter = Waiter { until, ..waiter };
        // What the next server would not know of is not granted.
        let is_free = self.claims.is_none() && self.locks.conflict(inode, &lock).is_none();
        if is_free && !self.locks.has_room_for(inode, &lock) {
            // Who is away loses nothing to a request that is refused.
            return (Some(Some(NO_LOCKS)), Vec::new());
        }
        let noted = self.note(waiter.mount);
        let noted = noted.and_then(|()| if is_free { self.strike_losers(inode, &lock) } else { Ok(()) });
        if let Err(error) = noted {
            tracing::error!(%error, "mounts with locks cannot be named for the next server: no lock is granted");
            return (Some(Some(NO_LOCKS)), Vec::new());
        }
        self.requests += 1;
        let number = LockRequestNumber(self.requests);
        let events = self.locks.request(number, inode, lock, patience);
        let (own, replies) = self.finish(Some(number), events);
        if own.is_some() {
            return (own, replies);
        }
        let known = self.members.get(&waiter.mount);
        if known.is_none_or(|known| known.interrupted.has(waiter.unique)) {
            self.locks.cancel(number);
            return (Some(Some(Errno::INTR)), replies);
        }
        self.waiting.insert(number, waiter);
        (None, replies)
    }

    /// A descriptor of an open file is closed. If it was the last one, the end of its locks follows.
    fn note_closing(&mut self, inode: InodeNumber, (client, handle): (u32, u64)) {
        let is_its = |lock: &FileLock| (lock.owner.client, lock.handle) == (client, handle);
        if self.locks.held(inode).iter().any(is_its) {
            self.closing.insert((client, handle), Instant::now() + CLOSING_LIMIT);
        }
    }

    /// Until when a lock that is in the way may be about to end.
    fn closing_until(&self, inode: InodeNumber, lock: &FileLock) -> Option<Instant> {
        let held = self.locks.conflict(inode, lock)?;
        let until = self.closing.get(&(held.owner.client, held.handle)).copied();
        until.filter(|until| Instant::now() < *until)
    }

    /// Refuses what has waited for the end of an open file that was not about to end.
    fn end_brief_waits(&mut self, now: Instant) -> Replies {
        self.closing.retain(|_, until| now < *until);
        let is_over = |waiter: &Waiter| waiter.until.is_some_and(|until| until <= now);
        let over = self.waiting.iter().filter(|(_, waiter)| is_over(waiter)).map(|(number, _)| *number);
        let over: Vec<LockRequestNumber> = over.collect();
        let cancelled = over.into_iter().filter_map(|number| {
            self.locks.cancel(number);
            self.answer(number, Some(HELD))
        });
        cancelled.collect()
    }

    fn interrupt(&mut self, mount: u32, unique: Unique) -> Replies {
        let is_meant = |waiter: &Waiter| waiter.mount == mount && waiter.unique.first() == unique;
        let found = self.waiting.iter().find(|(_, waiter)| is_meant(waiter)).map(|(number, _)| *number);
        let Some(number) = found else {
            // It may not have come to wait yet.
            if let Some(known) = self.members.get_mut(&mount) {
                known.interrupted.note(unique);
            }
            return Vec::new();
        };
        self.locks.cancel(number);
        self.answer(number, Some(Errno::INTR)).into_iter().collect()
    }

    /// Notes what came and went, before anybody hears of it. Returns what has become of the request `own`, whose losers were
    /// struck, and the replies to others.
    fn finish(
        &mut self,
        own: Option<LockRequestNumber>,
        mut events: LockEvents,
    ) -> (Option<Option<Errno>>, Replies) {
        self.strike_losers_of_waiters(&mut events);
        for change in events.changes {
            let (LockChange::Came(_, lock) | LockChange::Went(_, lock)) = change;
            let Some(known) = self.members.get(&lock.owner.client) else { continue };
            match change {
                LockChange::Came(inode, lock) => known.member.ledger.note_lock(inode, lock),
                LockChange::Went(inode, lock) => known.member.ledger.forget_lock(inode, lock),
            }
        }
        let (mut outcome, mut replies) = (None, Vec::new());
        for (number, ended) in events.ended {
            let errno = ended.err().map(errno_of);
            if own == Some(number) {
                outcome = Some(errno);
            } else {
                replies.extend(self.answer(number, errno));
            }
        }
        (outcome, replies)
    }

    /// Takes what excludes them from those who are away, for requests that have waited. What the next server would believe
    /// to be somebody else's is not granted.
    fn strike_losers_of_waiters(&mut self, events: &mut LockEvents) {
        let mut at = 0;
        while let Some((number, outcome)) = events.ended.get(at).copied() {
            let asked = self.waiting.get(&number).map(|waiter| waiter.asked);
            if let Some((inode, lock)) = asked.filter(|_| outcome.is_ok())
                && let Err(error) = self.strike_losers(inode, &lock)
            {
                tracing::error!(%error, "who has lost a lock cannot be struck for the next server: it is not granted");
                if self.withdraw((inode, lock), events) {
                    events.ended[at].1 = Err(LockRefusal::Many);
                }
            }
            at += 1;
        }
    }

    /// Takes back the lock of a request, of which nobody has heard, and restores what it has replaced. Others may get it.
    /// False if that is not possible.
    fn withdraw(&mut self, (inode, lock): (InodeNumber, FileLock), events: &mut LockEvents) -> bool {
        let had = replaced(&events.changes, (inode, lock));
        let Ok(freed) = self.locks.unlock(inode, lock.owner, (lock.first, lock.last)) else { return false };
        events.changes.extend(freed.changes);
        events.ended.extend(freed.ended);
        for lock in had {
            self.requests += 1;
            let number = LockRequestNumber(self.requests);
            let restored = self.locks.request(number, inode, lock, Patience::None);
            events.changes.extend(restored.changes);
            events.ended.extend(restored.ended);
        }
        true
    }

    /// Before a mount gets a lock: what excludes it is lost to those who are away, and the next server does not believe
    /// them, nor others who have lost theirs.
    ///
    /// # Errors
    /// The file that names them cannot be written. Nobody has lost anything then.
    fn strike_losers(&mut self, inode: InodeNumber, lock: &FileLock) -> io::Result<()> {
        let takes = |(at, had): &(InodeNumber, FileLock)| *at == inode && had.excludes(lock);
        let away = self.away.iter().filter(|(_, had)| had.iter().any(takes)).map(|(id, _)| *id);
        let losers: Vec<MountId> = away.chain(self.unstruck.iter().copied()).collect();
        self.book.as_mut().map_or(Ok(()), |book| book.remove_all(&losers))?;
        self.away.retain(|(id, _)| !losers.contains(id));
        self.unstruck.clear();
        Ok(())
    }

    /// The next server knows that a mount on another machine has locks, or may have.
    fn note(&mut self, mount: u32) -> io::Result<()> {
        let Some(Known { member, .. }) = self.members.get(&mount) else { return Ok(()) };
        match (&mut self.book, member.kernel) {
            (Some(book), Kernel::Elsewhere) => {
                self.unstruck.retain(|other| *other != member.id);
                book.add(member.id)
            }
            _ => Ok(()),
        }
    }

    /// The next server does not believe a mount that it has locks. If that cannot be written, nobody gets a lock until it
    /// is.
    fn strike_soon(&mut self, id: MountId) {
        if let Err(error) = self.strike(id) {
            report(Err(error));
            self.unstruck.push(id);
        }
    }

    /// The next server does not believe a mount that it has locks.
    fn strike(&mut self, id: MountId) -> io::Result<()> {
        self.book.as_mut().map_or(Ok(()), |book| book.remove(id))
    }

    /// Ends the wait of a request.
    fn answer(&mut self, number: LockRequestNumber, errno: Option<Errno>) -> Option<(Later, Reply)> {
        let Waiter { mount, unique, to, .. } = self.waiting.remove(&number)?;
        match to {
            WaiterPlace::Kernel(later) => {
                Some((later, errno.map_or_else(|| Reply::ok(unique), |errno| Reply::error(unique, errno))))
            }
            WaiterPlace::Holder => {
                self.say(mount, unique, errno);
                None
            }
        }
    }

    fn say(&mut self, mount: u32, unique: Unique, errno: Option<Errno>) {
        let is_said = self.members.get(&mount).is_none_or(|known| (known.member.say)(unique, errno));
        if !is_said {
            self.unsaid.push((mount, unique, errno));
        }
    }
}

#[cfg(test)]
mod tests;
