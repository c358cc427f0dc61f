//! The files of a node: what the node before has sent is made durable and published, unless a mount does that.

use crate::shared::Shared;
use landfall_chain_io::{Link, Node, NodeError};
use landfall_fs::{Files, FsError, Publisher};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between looks for work. What comes from the node before wakes the thread.
const PAUSE: Duration = Duration::from_millis(50);
/// The log is published at least this often, so that what was deleted becomes free.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failure.
const PAUSE_FAILED: Duration = Duration::from_millis(500);

/// Sends the log of files to the node behind.
pub(super) fn join(shared: &Arc<Shared>, node: &Arc<Node>, files: &Arc<Files>) {
    files.set_successor(Arc::new(link(shared, node)));
    if !node.is_in_step() {
        files.pass_over();
    }
    let files = Arc::clone(files);
    node.carry_files(Box::new(move || files.next_operation()));
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

/// Starts the thread.
///
/// # Errors
/// [`NodeError::Thread`].
pub(super) fn start(shared: &Arc<Shared>, node: &Arc<Node>) -> Result<(), NodeError> {
    let Some(files) = shared.files.files().cloned() else { return Ok(()) };
    let (shared, of) = (Arc::clone(shared), Arc::clone(node));
    let link = link(&shared, node);
    node.spawn("chain-files", move || Follower { shared: &shared, node: &of, files: &files, link }.run())
}

struct Follower<'s> {
    shared: &'s Shared,
    node: &'s Node,
    files: &'s Files,
    link: Link,
}

impl Follower<'_> {
    fn run(&self) {
        self.shared.files.set_follower(thread::current());
        let (mut published_at, mut complains) = (Instant::now(), true);
        while !self.node.is_stopping() {
            let outcome = self.commit().and_then(|()| self.publish(&mut published_at));
            if let Err(error) = &outcome
                && std::mem::replace(&mut complains, false)
                && !self.node.is_stopping()
            {
                tracing::error!(%error, "files of the chain are not made durable, or not published; it is tried again");
            }
            complains |= outcome.is_ok();
            thread::park_timeout(if outcome.is_ok() { PAUSE } else { PAUSE_FAILED });
        }
    }

    /// Makes durable what has come. A mount does this itself.
    fn commit(&self) -> Result<(), FsError> {
        let is_mounted = self.shared.files.mount().is_some();
        let newest = self.files.newest().filter(|newest| !self.files.heap().is_durable(*newest));
        if newest.is_some() && !is_mounted {
            self.files.sync_all()?;
            // Their replies wait for it.
            self.shared.wake_all();
        }
        self.link.note_complete(self.files.durable_below());
        Ok(())
    }

    fn publish(&self, published_at: &mut Instant) -> Result<(), FsError> {
        if !self.node.is_ready() || !self.files.publishing_is_due() && published_at.elapsed() < PUBLISH_EVERY
        {
            return Ok(());
        }
        *published_at = Instant::now();
        let published = self.shared.files.with_publisher(Publisher::step).transpose()?;
        if published.is_some_and(|published| published.operations > 0) {
            // Who waits for room in the log tries again.
            self.shared.wake_all();
        }
        Ok(())
    }
}
