//! A member's place: a key that lives as long as the process that keeps it alive.

use super::api::{Lease, is_not_found};
use super::source::{Etcd, TRIES_MAX};
use crate::backoff::Backoff;
use crate::chain::check_name;
use crate::error::MembersError;
use crate::member::Member;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// The shortest life without news. etcd makes 2 s of it unless its heartbeats are faster than by default.
pub const TTL_MIN: Duration = Duration::from_secs(1);
/// The longest one.
pub const TTL_MAX: Duration = Duration::from_secs(3600);
/// Changes of standing that wait for the owner; while they do, later ones are merged.
const CHANGES_MAX: usize = 16;
/// How many renewals a TTL has room for.
const RENEWALS: u32 = 3;

/// Whether others count on this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// The key is there.
    Member,
    /// The lease has ended, or may have: others may have noticed. The keeper goes on trying to come back.
    Lost,
    /// Another process has registered under this name. The keeper has given up.
    Replaced,
}

/// Keeps a member registered, from a thread of its own. When it is dropped, or its process dies, the key goes once
/// the lease has run out; [`Keeper::resign`] takes it away at once.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    changes: Receiver<Standing>,
    etcd: Etcd,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<Option<Lease>>>,
}

/// What owner and thread both look at.
#[derive(Debug)]
struct Shared {
    begun: Instant,
    /// Until when the lease lives for certain, nanoseconds after `begun`; 0 without a lease.
    until: AtomicU64,
}

impl Shared {
    fn certain(&self) -> bool {
        self.begun.elapsed().as_nanos() < u128::from(self.until.load(Ordering::Acquire))
    }

    fn set(&self, until: Option<Instant>) {
        let nanos = until.map_or(0, |until| until.saturating_duration_since(self.begun).as_nanos());
        self.until.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Release);
    }
}

impl Etcd {
    /// Registers a member under its name, in the place of one that bore it before, and keeps it registered. `since`
    /// is set to the time now.
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
    /// Whether others count on this member for certain. It reads the clock, so that it is right even where the
    /// keeper's thread has not run: false at the latest when etcd lets the lease end.
    pub fn is_member(&self) -> bool {
        self.shared.certain()
    }

    /// The next change of standing, waiting for `wait` at most. The first is [`Standing::Member`].
    pub fn change(&self, wait: Duration) -> Option<Standing> {
        self.changes.recv_timeout(wait).ok()
    }

    /// Ends the membership at once.
    ///
    /// # Errors
    /// Those of etcd; the key then goes when the lease has run out.
    pub fn resign(mut self) -> Result<(), MembersError> {
        match self.end() {
            Some(lease) => self.etcd.api().revoke(lease),
            None => Ok(()),
        }
    }

    /// Ends the thread, within the time of a call. Gives the lease that is left to itself.
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

/// The thread's side.
struct Keep {
    etcd: Etcd,
    member: Member,
    ttl: Duration,
    /// The lease, and until when it lives for certain: counted from before the call that renewed it.
    lease: Option<(Lease, Instant)>,
    shared: Arc<Shared>,
    changes: SyncSender<Standing>,
    standing: Option<Standing>,
    told: Option<Standing>,
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
        Self { etcd, member, ttl, lease: None, shared, changes, standing: None, told: None, backoff }
    }

    /// Renews until it is told to stop or another process has taken the name. Gives the lease that it has then.
    fn run(mut self, stopped: &Receiver<()>) -> Option<Lease> {
        let mut wait = self.between();
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            wait = match self.step() {
                Ok(()) => {
                    self.backoff.reset();
                    self.between()
                }
                Err(error) => self.failed(&error),
            };
            self.tell();
            if self.standing == Some(Standing::Replaced) {
                break;
            }
        }
        self.lease.map(|(lease, _)| lease)
    }

    fn between(&self) -> Duration {
        self.ttl / RENEWALS
    }

    fn step(&mut self) -> Result<(), MembersError> {
        match self.lease {
            Some((lease, _)) => self.renew(lease),
            None => self.enter(false),
        }
    }

    /// After a failure: how long to wait, at most until the lease is not certain any more.
    fn failed(&mut self, error: &MembersError) -> Duration {
        let pause = self.backoff.pause().min(self.between());
        tracing::debug!(member = self.member.name, %error, "membership could not be renewed");
        let Some((_, until)) = self.lease else { return pause };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.lose();
        }
        pause.min(left.max(Duration::from_millis(1)))
    }

    fn lose(&mut self) {
        self.lease = None;
        self.shared.set(None);
        self.standing = Some(Standing::Lost);
    }

    /// Registers, against others that start under the same name at this moment: the last one stays.
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
        let found = self.etcd.api().get(&key)?;
        if !first && found.as_ref().is_some_and(|entry| !self.is_ours(&entry.value)) {
            self.standing = Some(Standing::Replaced);
            return Ok(());
        }
        let sent = Instant::now();
        let (lease, ttl) = self.etcd.api().grant(self.ttl)?;
        if !self.write(found.map_or(0, |entry| entry.modified), lease)? {
            // Somebody was faster, or the answer to a write that succeeded was lost: the lease goes by itself, and
            // what is there now is looked at by the next attempt.
            return Err(MembersError::Conflict { key, tries: 1 });
        }
        self.hold(lease, sent + ttl);
        Ok(())
    }

    fn write(&self, modified: u64, lease: Lease) -> Result<bool, MembersError> {
        let key = self.etcd.member_key(&self.member.name);
        let json = serde_json::to_vec(&self.member);
        let json = json.map_err(|source| MembersError::Value { key: key.clone(), source })?;
        self.etcd.api().swap(&key, modified, &json, Some(lease))
    }

    fn hold(&mut self, lease: Lease, until: Instant) {
        self.lease = Some((lease, until));
        self.shared.set(Some(until));
        self.standing = Some(Standing::Member);
        self.tell();
    }

    fn renew(&mut self, lease: Lease) -> Result<(), MembersError> {
        let sent = Instant::now();
        let Some(ttl) = self.etcd.api().keep_alive(lease)? else {
            self.lose();
            self.tell();
            return self.enter(false);
        };
        if self.look_at_own_key(lease)? {
            self.hold(lease, sent + ttl);
        } else {
            self.lose();
            self.standing = Some(Standing::Replaced);
        }
        Ok(())
    }

    /// Whether the key is still ours; it is written again where somebody deleted it.
    fn look_at_own_key(&self, lease: Lease) -> Result<bool, MembersError> {
        let key = self.etcd.member_key(&self.member.name);
        match self.etcd.api().get(&key)? {
            Some(entry) => Ok(self.is_ours(&entry.value)),
            // Whatever came of it, the lease's end or another process's key: the next renewal notices.
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

    /// Tells the owner of a change; what does not fit is told later, if it still is so.
    fn tell(&mut self) {
        let Some(standing) = self.standing.filter(|standing| self.told != Some(*standing)) else { return };
        match self.changes.try_send(standing) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => self.told = Some(standing),
            Err(TrySendError::Full(_)) => {}
        }
    }
}
