//! Mounts that end: what they have done becomes durable, which may take as long as a chain stands still. Other mounts are
//! served meanwhile.

use super::channel::Channel;
use super::message::{Attach, Message, Over};
use crate::clock;
use crate::common::Sharing;
use crate::counter::{counter, raise, wait};
use crate::session::{End, Session, SessionError};
use landfall_fs::Files;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a holder on another machine may take to say that its mount has ended, when it has ended its queues.
const WORD_LIMIT: Duration = Duration::from_millis(500);

/// Whether a mount comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// Its holder has said that it has ended.
    Never,
    /// Its holder may say so yet.
    Perhaps,
    /// It is back already.
    Now,
}

/// A mount that ends.
pub(super) struct Ending {
    pub(super) attach: Attach,
    /// Its workers, which may still do something.
    pub(super) workers: usize,
    point: PathBuf,
    /// Hears that it has ended.
    channel: Arc<Channel>,
    /// Readable when it has ended.
    ended: Arc<OwnedFd>,
    thread: JoinHandle<Result<(), SessionError>>,
}

/// What an ending mount has left to do.
type Work = Box<dyn FnOnce() -> Result<(), SessionError> + Send>;

/// A thread in which a mount ends. It is there before the mount is served: nothing that ends may fail for want of one.
pub(super) struct Ender {
    give: mpsc::SyncSender<Work>,
    /// Readable when it has ended.
    over: Arc<OwnedFd>,
    thread: JoinHandle<Result<(), SessionError>>,
}

impl Ender {
    /// # Errors
    /// There can be no such thread, or no counter.
    pub(super) fn start() -> io::Result<Self> {
        let (give, given) = mpsc::sync_channel::<Work>(1);
        let over = Arc::new(counter()?);
        let ended = Arc::clone(&over);
        let work = move || {
            // There is none if the mount is left to the next server.
            let outcome = given.recv().map_or(Ok(()), |work| work());
            raise(&ended);
            outcome
        };
        let thread = std::thread::Builder::new().name("ending".into()).spawn(work)?;
        Ok(Self { give, over, thread })
    }
}

impl Ending {
    /// Ends a session in its thread.
    pub(super) fn begin(
        (session, ender): (Session, Ender),
        (attach, returns): (Attach, Return),
        workers: usize,
        (channel, files): (Arc<Channel>, Arc<Files>),
    ) -> Self {
        let Ender { give, over, thread } = ender;
        let (point, holder) = (session.point().to_owned(), Arc::clone(&channel));
        let elsewhere = (attach.over == Over::Connections).then_some(attach.mount);
        let end = move || {
            session.end_with(End::Unmount, || {
                let has_ended = || match returns {
                    Return::Never => true,
                    Return::Perhaps => says_that_it_has_ended(&holder),
                    Return::Now => false,
                };
                if let Some(mount) = elsewhere.filter(|_| has_ended())
                    && let Err(error) = files.end_calls(clock::now_ns(), mount)
                {
                    tracing::debug!(%error, "calls of a mount that has ended are known until others take their place");
                }
            })
        };
        give.send(Box::new(end)).expect("it waits for work");
        Self { attach, workers, point, channel, ended: over, thread }
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

    /// Waits until it has ended, and says so to its holder.
    pub(super) fn finish(self) {
        let Self { point, channel, thread, .. } = self;
        let outcome = thread.join().expect("a panic ends the process");
        match &outcome {
            Ok(()) => tracing::info!(point = %point.display(), "the mount has ended; everything is durable"),
            Err(error) => tracing::error!(%error, point = %point.display(), "the mount has ended"),
        }
        let what = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        // A holder that has died needs no answer. One that is stopped has perhaps so much to read that there is no room for
        // one: it finds the end of the connection.
        if !channel.try_send(&Message::Ended(what)) {
            channel.close();
        }
    }
}

/// Whether the holder of a mount whose queues have ended says that it does not come back.
fn says_that_it_has_ended(holder: &Channel) -> bool {
    let until = Instant::now() + WORD_LIMIT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !matches!(wait(&[holder.as_fd()], Some(left)), Ok(Some(_))) {
            return false;
        }
        match holder.receive() {
            Ok((Message::Ended(_), _)) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}
