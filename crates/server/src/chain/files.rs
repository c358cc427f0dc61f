//! The files of a node: what the node before has sent is made durable and published, unless a mount does that.

use super::stop::Stop;
use crate::shared::Shared;
use landfall_chain::{Reason, Refusal, Replicate, Sending};
use landfall_chain_io::{Answers, Link, Node, NodeError};
use landfall_fs::{Advanced, Files, FsError, Publisher};
use landfall_media::CommitMode;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between looks for work. What comes from the node before wakes the first thread, unless a worker makes that durable, and
/// a full chunk the second one.
const PAUSE: Duration = Duration::from_millis(50);
/// The log is published at least this often, so that what was deleted becomes free.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failure.
const PAUSE_FAILED: Duration = Duration::from_millis(500);

/// Sends the log of files to the node behind.
pub(super) fn join(shared: &Arc<Shared>, node: &Arc<Node>, files: &Arc<Files>) {
    let link = link(shared, node);
    // Whoever makes files durable waits for the node behind, or is told of its answer.
    link.is_waited_for();
    let to_wake = Arc::downgrade(shared);
    link.wake_by(move || {
        if let Some(shared) = to_wake.upgrade() {
            shared.wake_committer();
        }
    });
    files.set_successor(Arc::new(link));
    let replicate = shared.config.chain.as_ref().map(|chain| chain.replicate);
    files.set_acknowledges_alone(replicate == Some(Replicate::Background));
    let sending = shared.config.chain.as_ref().map(|chain| chain.sending);
    files.set_sends_when_asked(sending.is_some_and(Sending::waits_to_be_asked));
    files.set_sends_chunks(sending == Some(Sending::Pipelined));
    if !node.is_in_step() {
        files.pass_over();
    }
    // The files know the node: if it knew them, a server that starts anew would have the region still.
    let files = Arc::downgrade(files);
    node.carry_files(Box::new(move || files.upgrade().map_or(0, |files| files.next_operation())));
}

/// The stream behind those of the workers.
fn link(shared: &Shared, node: &Arc<Node>) -> Link {
    node.link(shared.config.workers)
}

/// Publishes what an earlier life has left, now that the node behind has it.
///
/// # Errors
/// As [`Publisher::step`].
pub(super) fn prepare(shared: &Shared) -> io::Result<()> {
    let Some(files) = shared.files.files() else { return Ok(()) };
    files.publish_again();
    let published = shared.files.with_publisher(Publisher::step).unwrap_or(Ok(Default::default()));
    published.map(drop).map_err(io::Error::other)
}

/// Starts the threads: one makes durable what comes from the node before, which waits for that, and one publishes.
///
/// # Errors
/// [`NodeError::Thread`].
pub(super) fn start(shared: &Arc<Shared>, node: &Arc<Node>) -> Result<(), NodeError> {
    let Some(files) = shared.files.files().cloned() else { return Ok(()) };
    let link = link(shared, node);
    let follower = Arc::new(Follower { shared: Arc::clone(shared), node: Arc::clone(node), files, link });
    let publisher = Arc::clone(&follower);
    node.spawn("chain-files", move || {
        follower.shared.files.set_follower(thread::current());
        let mut told = 0;
        follower.repeat("made durable", || follower.commit(&mut told));
    })?;
    node.spawn("chain-publish", move || {
        publisher.shared.files.set_publishing(thread::current());
        let mut published_at = Instant::now();
        publisher.repeat("published", || publisher.publish(&mut published_at));
    })
}

/// What the threads share.
struct Follower {
    shared: Arc<Shared>,
    node: Arc<Node>,
    files: Arc<Files>,
    link: Link,
}

impl Follower {
    /// Tries `work` again and again, until the node stops. Says once that it fails.
    fn repeat(&self, what: &'static str, mut work: impl FnMut() -> Result<(), FsError>) {
        let mut complains = true;
        while !self.node.is_stopping() {
            let outcome = work();
            if let Err(error) = &outcome
                && std::mem::replace(&mut complains, false)
                && !self.node.is_stopping()
            {
                tracing::error!(%error, "files of the chain are not {what}; it is tried again");
            }
            complains |= outcome.is_ok();
            thread::park_timeout(if outcome.is_ok() { PAUSE } else { PAUSE_FAILED });
        }
    }

    /// Makes durable what has come and no worker makes durable, and tells the workers, whose replies wait for it. They were told
    /// of operations below `told`, whoever has made them durable. A mount does all this itself.
    fn commit(&self, told: &mut u64) -> Result<(), FsError> {
        if self.shared.files.mount().is_none() {
            let (come, newest) = (self.files.next_operation(), self.files.newest());
            let waits = newest.is_some_and(|newest| !self.files.heap().is_durable(newest));
            self.files.sync_all()?;
            if std::mem::replace(told, come) != come || waits {
                self.shared.wake_all();
            }
        } else {
            // Programs wait for what they sync themselves.
            self.shared.files.tell(None, || {
                self.link.announce_nowhere();
                Ok::<(), FsError>(())
            })?;
        }
        self.link.note_complete(self.files.durable_below());
        if self.files.publishing_is_due() {
            self.shared.files.wake_publishing();
        }
        Ok(())
    }

    fn publish(&self, published_at: &mut Instant) -> Result<(), FsError> {
        if !self.node.is_ready() || !self.files.publishing_is_due() && published_at.elapsed() < PUBLISH_EVERY
        {
            return Ok(());
        }
        *published_at = Instant::now();
        let published = self.shared.files.with_publisher(Publisher::step).transpose();
        // It may have completed what a worker has begun.
        self.shared.wake_committer();
        let published = published?;
        if published.is_some_and(|published| published.operations > 0) {
            // Who waits for room in the log tries again.
            self.shared.wake_all();
        }
        Ok(())
    }
}

/// A worker has received operations: it makes them durable itself if a fence is no wait and it is told of answers, as another
/// thread would have to be woken for it.
pub(super) fn received(shared: &Shared, worker: usize) {
    let is_immediate = shared.engine.heap().media().commit_mode() == CommitMode::Immediate;
    if !(is_immediate && shared.files.mount().is_none() && shared.files.set_committer(worker)) {
        shared.files.wake_follower();
    }
}

/// Goes on with making durable what a worker has received, as far as that needs no wait for the node behind. True if replies of
/// the worker may wait for what has become durable.
pub(crate) fn advance(shared: &Shared, worker: usize, answers: &Answers) -> bool {
    let (Some(node), Some(files)) = (&shared.chain, shared.files.files()) else { return false };
    if shared.files.mount().is_some() {
        // Programs wait for what they sync themselves.
        end(shared, worker);
        return false;
    }
    let link = link(shared, node);
    if let Err(error) = shared.files.tell(Some(worker), || link.announce_by(answers)) {
        tracing::warn!(%error, "operations on files take longer");
        shared.files.set_may_commit(worker, false);
        end(shared, worker);
        return false;
    }
    let advanced = files.advance();
    let has_completed = matches!(advanced, Ok(Advanced::All | Advanced::Waits { has_completed: true }));
    if has_completed && !node.is_in_step() {
        // Beside this one, the worker that takes a copy may wait for it.
        shared.wake_all();
    }
    match advanced {
        Ok(Advanced::Waits { .. }) => {}
        Ok(Advanced::All) => {
            shared.files.end_committer(worker);
            link.note_complete(files.durable_below());
            if files.publishing_is_due() {
                shared.files.wake_publishing();
            }
        }
        // The thread waits for whoever is at it, and complains of what fails.
        Ok(Advanced::Busy) | Err(_) => end(shared, worker),
    }
    has_completed
}

/// The thread goes on with what a worker has begun.
fn end(shared: &Shared, worker: usize) {
    shared.files.end_committer(worker);
    shared.files.wake_follower();
}

pub(super) fn without_files() -> Refusal {
    Refusal::new(Reason::Other, "the chain carries files, and this node has none: start it with --files")
}

/// Lets what publishes the files of this node act, if it has files. Nobody uses them.
pub(super) fn publish_by<E>(
    shared: &Shared,
    act: impl FnOnce(&mut Publisher) -> Result<(), E>,
) -> Result<(), Stop>
where
    Stop: From<E>,
{
    if shared.files.files().is_none() {
        return Ok(());
    }
    let in_use = || Refusal::new(Reason::Copy, "the files of this node are mounted: start it anew");
    let done = shared.files.with_publisher(act).ok_or_else(in_use)?;
    // It may have completed what a worker has begun.
    shared.wake_committer();
    Ok(done?)
}
