//! Mounts that end: what they have done becomes durable, which may take as long as a chain stands still. Other mounts are
//! served meanwhile.

use super::channel::Channel;
use super::message::{Attach, Message};
use crate::common::Sharing;
use crate::counter::{counter, raise};
use crate::ledger::{Ledger, Unheard};
use crate::session::{End, Session, SessionError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A mount that ends.
pub(super) struct Ending {
    pub(super) attach: Attach,
    /// Its workers, which may still do something.
    pub(super) workers: usize,
    point: PathBuf,
    ledger: Option<Arc<Ledger>>,
    /// Hears that it has ended.
    channel: Arc<Channel>,
    /// Readable when it has ended.
    ended: Arc<OwnedFd>,
    thread: JoinHandle<Result<(), SessionError>>,
}

impl Ending {
    /// Ends a session in a thread of its own.
    ///
    /// # Errors
    /// There can be no such thread, or no counter.
    pub(super) fn begin(
        session: Session,
        attach: Attach,
        workers: usize,
        channel: Arc<Channel>,
    ) -> io::Result<Self> {
        let (point, ended) = (session.point().to_owned(), Arc::new(counter()?));
        let ledger = session.ledger();
        let over = Arc::clone(&ended);
        let end = move || {
            let outcome = session.end(End::Unmount);
            raise(&over);
            outcome
        };
        let thread = std::thread::Builder::new().name("ending".into()).spawn(end)?;
        Ok(Self { attach, workers, point, ledger, channel, ended, thread })
    }

    /// Readable when it has ended.
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// True if a mount cannot be served before this one has ended: it is the same one, or one of the two is alone.
    pub(super) fn is_in_the_way_of(&self, attach: &Attach) -> bool {
        let are_shared = attach.sharing == Sharing::Shared && self.attach.sharing == Sharing::Shared;
        attach.mount == self.attach.mount || !are_shared
    }

    /// What its holder may not have heard, when it has ended.
    pub(super) fn unheard(&self) -> Vec<Unheard> {
        self.ledger.iter().flat_map(|ledger| ledger.unheard()).collect()
    }

    /// Waits until it has ended, and says so to its holder.
    pub(super) fn finish(self) {
        let Self { point, channel, thread, .. } = self;
        let outcome = thread.join().expect("a panic ends the process");
        match &outcome {
            Ok(()) => tracing::info!(point = %point.display(), "the mount has ended; everything is durable"),
            Err(error) => tracing::error!(%error, point = %point.display(), "the mount has ended"),
        }
        let what = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        // A holder that has died needs no answer.
        let _ = channel.send(&Message::Ended(what), &[]);
    }
}
