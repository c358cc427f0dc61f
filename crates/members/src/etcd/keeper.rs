//! A member's registration: a key in etcd that exists as long as a process renews its lease.

use super::keys::Lease;
use super::source::{Etcd, TRIES_MAX};
use super::wire::is_not_found;
use crate::backoff::Backoff;
use crate::chain::check_name;
use crate::error::MembersError;
use crate::member::Member;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// The shortest TTL of a registration. etcd raises it to 2 s unless its heartbeats are faster than by default.
pub const TTL_MIN: Duration = Duration::from_secs(1);
/// The longest TTL of a registration.
pub const TTL_MAX: Duration = Duration::from_secs(3600);
/// Most changes of standing that wait for the owner. Later ones are merged until the owner takes some.
const CHANGES_MAX: usize = 16;
/// Renewals within one TTL.
const RENEWALS: u32 = 3;

/// Whether other processes may rely on this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// The key exists.
    Member,
    /// The lease has ended, or may have ended, and other processes may have noticed. The keeper tries to register again.
    Lost,
    /// Another process has registered under this name. The keeper has stopped.
    Replaced,
}

/// Keeps a member registered; a thread renews the lease. When the keeper is dropped or its process ends, etcd deletes
/// the key at the end of the lease. [`Keeper::resign`] deletes the key at once.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    changes: Receiver<Standing>,
    etcd: Etcd,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<Option<Lease>>>,
}

/// State that the owner and the thread share.
#[derive(Debug)]
struct Shared {
    begun: Instant,
    /// Time until which the lease is certain to last, nanoseconds after `begun`; 0 without a lease.
    until: AtomicU64,
}

impl Shared {
    fn is_certain(&self) -> bool {
        self.begun.elapsed().as_nanos() < u128::from(self.until.load(Ordering::Acquire))
    }

    fn set(&self, until: Option<Instant>) {
        let nanos = until.map_or(0, |until| until.saturating_duration_since(self.begun).as_nanos());
        self.until.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Release);
    }
}

impl Etcd {
    /// Registers a member under its name, replacing one that is registered under it, and keeps it registered. Sets `since`
    /// to the current time.
    pub(crate) fn register(&self, mut member: Member, ttl: Duration) -> Result<Keeper, MembersError> {
        check_name("member", &member.name)?;
        if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
            let [asked, min, max] = [ttl, TTL_MIN, TTL_MAX].map(|ttl| ttl.as_secs());
            return Err(MembersError::Ttl { asked, min, max });
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        member.since = now.map_or(0, |now| now.as_secs());
        let shared = Arc::new(Shared { begun: Instant::now(), until: AtomicU64::new(0) });
        let (changed, changes) = sync_channel(CHANGES_MAX);
        // A renewal that hangs must leave time for another one.
        let etcd = self.clone().with_limit(self.limit().min(ttl / RENEWALS));
        let mut keep = Keep::new(etcd, member, ttl, Arc::clone(&shared), changed);
        keep.enter_first()?;
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new().name("keeper".to_owned());
        let thread = thread.spawn(move || keep.run(&stopped)).map_err(MembersError::Thread)?;
        Ok(Keeper { shared, changes, etcd: self.clone(), stop: Some(stop), thread: Some(thread) })
    }
}

impl Keeper {
    /// Whether other processes certainly rely on this member. The answer depends on the clock, so it is right even if the
    /// keeper's thread has not run: it is false at the latest when etcd ends the lease.
    pub fn is_member(&self) -> bool {
        self.shared.is_certain()
    }

    /// The next change of standing. Blocks for `wait` at most. The first change is [`Standing::Member`].
    pub fn change(&self, wait: Duration) -> Option<Standing> {
        self.changes.recv_timeout(wait).ok()
    }

    /// Ends the membership at once.
    ///
    /// # Errors
    /// Those of etcd. etcd then deletes the key at the end of the lease.
    pub fn resign(mut self) -> Result<(), MembersError> {
        match self.end() {
            Some(lease) => self.etcd.calls().revoke(lease),
            None => Ok(()),
        }
    }

    /// Ends the thread, within the time of one call. Returns the lease, which nobody renews any more.
    fn end(&mut self) -> Option<Lease> {
        drop(self.stop.take());
        let lease = self.thread.take().and_then(|thread| thread.join().ok().flatten());
        self.shared.set(None);
        lease
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// The state of the keeper's thread.
struct Keep {
    etcd: Etcd,
    member: Member,
    ttl: Duration,
    /// The lease, and the time until which it is certain to last, counted from before the call that renewed it.
    lease: Option<(Lease, Instant)>,
    shared: Arc<Shared>,
    changes: SyncSender<Standing>,
    standing: Option<Standing>,
    /// The standing that was last reported to the owner.
    reported: Option<Standing>,
    backoff: Backoff,
}

impl Keep {
    fn new(
        etcd: Etcd,
        member: Member,
        ttl: Duration,
        shared: Arc<Shared>,
        changes: SyncSender<Standing>,
    ) -> Self {
        let backoff = Backoff::new();
        Self { etcd, member, ttl, lease: None, shared, changes, standing: None, reported: None, backoff }
    }

    /// Renews until the owner ends the thread or another process has taken the name. Returns the last lease.
    fn run(mut self, stopped: &Receiver<()>) -> Option<Lease> {
        let mut wait = self.interval();
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            wait = match self.step() {
                Ok(()) => {
                    self.backoff.reset();
                    self.interval()
                }
                Err(error) => self.failed(&error),
            };
            self.report();
            if self.standing == Some(Standing::Replaced) {
                break;
            }
        }
        self.lease.map(|(lease, _)| lease)
    }

    fn interval(&self) -> Duration {
        self.ttl / RENEWALS
    }

    fn step(&mut self) -> Result<(), MembersError> {
        match self.lease {
            Some((lease, _)) => self.renew(lease),
            None => self.enter(false),
        }
    }

    /// The pause after a failure, which ends at the latest when the lease is no longer certain.
    fn failed(&mut self, error: &MembersError) -> Duration {
        let pause = self.backoff.pause().min(self.interval());
        tracing::debug!(member = self.member.name, %error, "membership could not be renewed");
        let Some((_, until)) = self.lease else { return pause };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.note_lost();
        }
        pause.min(left.max(Duration::from_millis(1)))
    }

    fn note_lost(&mut self) {
        self.lease = None;
        self.shared.set(None);
        self.standing = Some(Standing::Lost);
    }

    /// Registers, although other processes may register under the same name at this moment. The last one stays.
    fn enter_first(&mut self) -> Result<(), MembersError> {
        for _ in 1..TRIES_MAX {
            match self.enter(true) {
                Err(MembersError::Conflict { .. }) => {}
                done => return done,
            }
        }
        self.enter(true)
    }

    /// Registers with a new lease. Only the process's `first` registration takes the place of another incarnation.
    fn enter(&mut self, first: bool) -> Result<(), MembersError> {
        let key = self.etcd.member_key(&self.member.name);
        let found = self.etcd.calls().get(&key)?;
        if !first && found.as_ref().is_some_and(|entry| !self.is_ours(&entry.value)) {
            self.standing = Some(Standing::Replaced);
            return Ok(());
        }
        let sent = Instant::now();
        let (lease, ttl) = self.etcd.calls().grant(self.ttl)?;
        if !self.write(found.map_or(0, |entry| entry.modified), lease)? {
            // Another process was faster, or the answer to a successful write was lost. The lease ends by itself, and the
            // next attempt reads the key again.
            return Err(MembersError::Conflict { key, tries: 1 });
        }
        self.hold(lease, sent + ttl);
        Ok(())
    }

    fn write(&self, modified: u64, lease: Lease) -> Result<bool, MembersError> {
        let key = self.etcd.member_key(&self.member.name);
        let json = serde_json::to_vec(&self.member);
        let json = json.map_err(|source| MembersError::Value { key: key.clone(), source })?;
        self.etcd.calls().swap(&key, modified, &json, Some(lease))
    }

    fn hold(&mut self, lease: Lease, until: Instant) {
        self.lease = Some((lease, until));
        self.shared.set(Some(until));
        self.standing = Some(Standing::Member);
        self.report();
    }

    fn renew(&mut self, lease: Lease) -> Result<(), MembersError> {
        let sent = Instant::now();
        let Some(ttl) = self.etcd.calls().keep_alive(lease)? else {
            self.note_lost();
            self.report();
            return self.enter(false);
        };
        if self.check_own_key(lease)? {
            self.hold(lease, sent + ttl);
        } else {
            self.note_lost();
            self.standing = Some(Standing::Replaced);
        }
        Ok(())
    }

    /// Whether the key is still this process's. Writes it again if it has been deleted.
    fn check_own_key(&self, lease: Lease) -> Result<bool, MembersError> {
        let key = self.etcd.member_key(&self.member.name);
        match self.etcd.calls().get(&key)? {
            Some(entry) => Ok(self.is_ours(&entry.value)),
            // If the lease has ended or another process has taken the key, the next renewal notices.
            None => match self.write(0, lease) {
                Err(error) if !is_not_found(&error) => Err(error),
                _ => Ok(true),
            },
        }
    }

    fn is_ours(&self, value: &[u8]) -> bool {
        let found = serde_json::from_slice::<Member>(value);
        found.is_ok_and(|found| found.incarnation == self.member.incarnation)
    }

    /// Reports a change of standing to the owner. If the queue is full, the change is reported later unless it has been
    /// reverted by then.
    fn report(&mut self) {
        let Some(standing) = self.standing.filter(|standing| self.reported != Some(*standing)) else {
            return;
        };
        match self.changes.try_send(standing) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => self.reported = Some(standing),
            Err(TrySendError::Full(_)) => {}
        }
    }
}
