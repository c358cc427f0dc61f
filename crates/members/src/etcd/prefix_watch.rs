//! Watching the keys with a prefix, from a revision on.
//!
//! A watch is a stream of etcd that lasts for some seconds and is then opened again from the revision behind the last
//! change. So a member of etcd that hangs is noticed, another one takes over, and no change is lost or seen twice. If
//! etcd has compacted the history that is wanted, or was restored from an older copy, the keys are read anew.

use super::cluster::{EtcdClient, Repeat};
use super::http::{Endpoint, Failure};
use super::keys::{Entry, KeyJson, Range, Revision};
use super::stream::{Interrupt, Lines};
use super::txn::all;
use super::wire::{number, refused, streamed_refusal};
use crate::backoff::Backoff;
use crate::error::MembersError;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most reports that wait for the owner. While so many wait, etcd is not read.
const QUEUED_MAX: usize = 256;
/// How long a stream lasts. A member that hangs is noticed after this time.
const LASTS: Duration = Duration::from_secs(5);
/// Time limit of opening a stream, over all addresses, and of reading all keys.
const LIMIT: Duration = Duration::from_secs(2);
/// Failures in a row before etcd counts as lost. One is a member that was killed.
const FAILURES_MAX: u32 = 2;

/// Something that a watch reports.
#[derive(Debug)]
#[non_exhaustive]
pub enum Seen {
    /// Changes, in order. All those of one revision come together.
    Changes(Vec<Change>),
    /// The history that was wanted is compacted, or etcd was restored from an older copy. These are the keys as they are
    /// now: they replace everything known before. Changes since then follow.
    Anew(Range),
    /// etcd cannot be watched. What was seen remains the best known state.
    Lost(MembersError),
    /// etcd is watched again. Changes since then follow.
    Back,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was written.
    Put(Entry),
    /// It was deleted, by somebody or with its lease.
    Deleted {
        /// Which key.
        key: String,
        /// The revision in which it was deleted.
        revision: u64,
    },
}

/// A watch of the keys with a prefix, which a thread follows. Dropping it ends the thread.
#[derive(Debug)]
pub struct PrefixWatch {
    seen: Option<Receiver<Seen>>,
    interrupt: Arc<Interrupt>,
    thread: Option<JoinHandle<()>>,
}

impl EtcdClient {
    /// Watches the keys with a prefix, which is not empty: changes of revision `from` and later. After a read of
    /// revision `r`, that is `r + 1`.
    ///
    /// # Errors
    /// [`MembersError::Thread`].
    pub fn watch_prefix(&self, prefix: &str, from: u64) -> Result<PrefixWatch, MembersError> {
        let (queue, seen) = sync_channel(QUEUED_MAX);
        let interrupt = Arc::new(Interrupt::default());
        let watcher = Watcher {
            client: self.clone(),
            prefix: prefix.to_owned(),
            next: from.max(1),
            cluster: None,
            failures: 0,
            queue,
            interrupt: Arc::clone(&interrupt),
        };
        let thread = std::thread::Builder::new().name("etcd-watch".to_owned());
        let thread = thread.spawn(move || watcher.run()).map_err(MembersError::Thread)?;
        Ok(PrefixWatch { seen: Some(seen), interrupt, thread: Some(thread) })
    }
}

impl PrefixWatch {
    /// The next report. Blocks for `wait` at most.
    pub fn next(&self, wait: Duration) -> Option<Seen> {
        self.seen.as_ref()?.recv_timeout(wait).ok()
    }
}

impl Drop for PrefixWatch {
    fn drop(&mut self) {
        self.interrupt.interrupt();
        // A thread that waits for room in the queue goes on.
        drop(self.seen.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Watcher {
    client: EtcdClient,
    prefix: String,
    /// The first revision whose changes have not been reported.
    next: u64,
    /// The cluster whose revisions these are.
    cluster: Option<u64>,
    /// Failures in a row.
    failures: u32,
    queue: SyncSender<Seen>,
    interrupt: Arc<Interrupt>,
}

/// Why a stream is not read any more.
enum End {
    /// The owner has dropped the watch.
    Dropped,
    Failed(MembersError),
}

impl From<MembersError> for End {
    fn from(error: MembersError) -> Self {
        Self::Failed(error)
    }
}

/// A stream that etcd has begun.
struct Opened {
    lines: Lines,
    revision: Revision,
}

impl Watcher {
    fn run(mut self) {
        let mut backoff = Backoff::new();
        while !self.interrupt.is_interrupted() {
            match self.follow() {
                Ok(()) => backoff.reset(),
                Err(End::Dropped) => return,
                Err(End::Failed(error)) => {
                    if self.failed(error).is_err() {
                        return;
                    }
                    self.interrupt.pause(backoff.pause());
                }
            }
        }
    }

    /// Opens a stream and reports what it brings, until its time is up or all keys were read anew.
    fn follow(&mut self) -> Result<(), End> {
        let (endpoint, mut opened) = self.open()?;
        let endpoint = endpoint.clone();
        self.back()?;
        if self.is_another_history(opened.revision)? {
            return self.read_anew();
        }
        self.cluster = Some(opened.revision.cluster);
        while let Some(line) = opened.lines.next()? {
            let message = understand(&endpoint, &line)?;
            if message.compact_revision > 0 {
                return self.read_anew();
            }
            message.check(&endpoint)?;
            self.report(&endpoint, message.events)?;
        }
        Ok(())
    }

    fn open(&self) -> Result<(&Endpoint, Opened), MembersError> {
        let mut request = all(&self.prefix);
        request["start_revision"] = self.next.to_string().into();
        let json = json!({"create_request": request}).to_string();
        self.client.cluster().in_turn(Repeat::Always, LIMIT, |endpoint, token, end| {
            let time = (end, LASTS);
            let mut lines = endpoint.open("/v3/watch", json.as_bytes(), token, time, &self.interrupt)?;
            let first = lines.next().and_then(|line| line.ok_or_else(|| endpoint.nonsense("no beginning")));
            let opened = first.and_then(|line| understand(endpoint, &line)).and_then(|message| {
                message.check(endpoint)?;
                Ok(Opened { lines, revision: message.header })
            });
            opened.map_err(|error| Failure { error, sent: true })
        })
    }

    /// Whether the revisions seen before are not those of this etcd. A member that lags behind the others has a lower
    /// revision for a while, so the majority decides.
    fn is_another_history(&self, revision: Revision) -> Result<bool, MembersError> {
        if self.cluster.is_some_and(|cluster| cluster != revision.cluster) {
            return Ok(true);
        }
        if revision.number + 1 >= self.next {
            return Ok(false);
        }
        let confirmed = self.client.within(LIMIT).get_prefix(&self.prefix, 1)?.revision;
        Ok(confirmed.number + 1 < self.next)
    }

    fn read_anew(&mut self) -> Result<(), End> {
        let range = self.client.within(LIMIT).get_prefix(&self.prefix, 0)?;
        self.next = range.revision.number + 1;
        self.cluster = Some(range.revision.cluster);
        self.queue(Seen::Anew(range))
    }

    fn report(&mut self, endpoint: &Endpoint, events: Vec<EventJson>) -> Result<(), End> {
        let changes = events.into_iter().map(|event| event.change(endpoint));
        let changes = changes.collect::<Result<Vec<_>, MembersError>>()?;
        let Some(last) = changes.iter().map(Change::revision).max() else { return Ok(()) };
        self.next = last + 1;
        self.queue(Seen::Changes(changes))
    }

    fn back(&mut self) -> Result<(), End> {
        let lost = self.failures >= FAILURES_MAX;
        self.failures = 0;
        if lost { self.queue(Seen::Back) } else { Ok(()) }
    }

    fn failed(&mut self, error: MembersError) -> Result<(), End> {
        self.failures = self.failures.saturating_add(1);
        tracing::debug!(prefix = self.prefix, %error, "a watch of etcd has failed");
        if self.failures == FAILURES_MAX { self.queue(Seen::Lost(error)) } else { Ok(()) }
    }

    /// Blocks until there is room.
    fn queue(&self, seen: Seen) -> Result<(), End> {
        self.queue.send(seen).map_err(|_| End::Dropped)
    }
}

impl Change {
    /// The revision of the change.
    pub fn revision(&self) -> u64 {
        match self {
            Self::Put(entry) => entry.modified,
            Self::Deleted { revision, .. } => *revision,
        }
    }
}

#[derive(Deserialize)]
struct Streamed {
    result: Message,
}

#[derive(Deserialize)]
struct Message {
    header: Revision,
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    cancel_reason: String,
    #[serde(default, deserialize_with = "number")]
    compact_revision: u64,
    #[serde(default)]
    events: Vec<EventJson>,
}

#[derive(Deserialize)]
struct EventJson {
    #[serde(default, rename = "type")]
    kind: EventKind,
    kv: KeyJson,
}

/// The JSON leaves the first kind out.
#[derive(Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventKind {
    #[default]
    Put,
    Delete,
}

impl EventJson {
    fn change(self, endpoint: &Endpoint) -> Result<Change, MembersError> {
        let entry = self.kv.entry(endpoint)?;
        Ok(match self.kind {
            EventKind::Put => Change::Put(entry),
            EventKind::Delete => Change::Deleted { key: entry.key, revision: entry.modified },
        })
    }
}

impl Message {
    /// An error if etcd has ended the stream. It gives gRPC's code in words only.
    fn check(&self, endpoint: &Endpoint) -> Result<(), MembersError> {
        const CODES: [(&str, u16, u32); 2] = [("Unauthenticated", 401, 16), ("PermissionDenied", 403, 7)];
        /// Any other reason is one of this member: gRPC's *unavailable*.
        const UNAVAILABLE: (&str, u16, u32) = ("", 503, 14);
        if !self.canceled {
            return Ok(());
        }
        let known = CODES.into_iter().find(|(word, ..)| self.cancel_reason.contains(word));
        let (_, status, code) = known.unwrap_or(UNAVAILABLE);
        Err(refused(endpoint, status, code, &self.cancel_reason))
    }
}

fn understand(endpoint: &Endpoint, line: &[u8]) -> Result<Message, MembersError> {
    streamed_refusal(endpoint, line)?;
    let streamed: Result<Streamed, _> = serde_json::from_slice(line);
    streamed.map(|streamed| streamed.result).map_err(|_| endpoint.nonsense("not the JSON that was expected"))
}
