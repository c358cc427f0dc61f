//! The server of mounts that other processes hold, one at a time.

use super::channel::{Channel, ChannelError};
use super::earlier;
use super::message::{Again, Attach, Message, Since};
use crate::counter::{counter, raise, wait};
use crate::forget::Questions;
use crate::keeping::Keeper;
use crate::ledger::Ledger;
use crate::link::{Accepted, Listener};
use crate::session::{Earlier, Elsewhere, End, Inspector, Ready, Session, SessionError, Settings, release};
use crate::sys;
use landfall_fs::{Files, FsError, InodeNumber, Publisher, Recovered};
use landfall_fs_link::is_same_user;
use landfall_fuse::{Device, Features, Mount, Negotiated};
use landfall_media::RUN_SIZE;
use landfall_metrics::Text;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a holder may take to mount.
const MOUNT_LIMIT: Duration = Duration::from_secs(10);
/// The kernel's counts are in pages of so many bytes.
const PAGE_BYTES: u32 = 4096;

/// Why there is no server, or why it has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Environment: nobody can connect.
    #[error("{}: cannot listen: {source}", socket.display())]
    Listen {
        /// The socket.
        socket: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Environment: an error of the kernel.
    #[error("mounts cannot be served: {0}")]
    Io(#[from] io::Error),
    /// What was not published stays in the log.
    #[error("the region is not left clean: {0}; nothing durable is lost")]
    NotClean(#[from] FsError),
    /// As above, or a mount failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Why a mount is not served.
#[derive(Debug, thiserror::Error)]
enum AttachError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("its own user may mount, and user {0} is another one")]
    User(u32),
    #[error("the files were mounted elsewhere since, or that mount has ended")]
    Stale,
    #[error("what it gets of the mount makes no sense")]
    Invalid,
    #[error("its ledger or its queues cannot be used: {0}")]
    Descriptors(io::Error),
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// What recovery has found: for a mount that has outlived its server.
#[derive(Clone, Debug, Default)]
struct Found {
    log_end: u64,
    orphans: Vec<InodeNumber>,
}

/// Serves mounts that other processes hold.
pub struct Server {
    files: Arc<Files>,
    publisher: Arc<Mutex<Publisher>>,
    settings: Settings,
    listener: Listener,
    /// Names the mount that was accepted last.
    last: PathBuf,
    /// Until the first mount is served.
    found: Option<Found>,
    current: Current,
    stop: Arc<OwnedFd>,
}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct ServerStopper {
    stop: Arc<OwnedFd>,
}

impl ServerStopper {
    /// Ends the server. Its mount waits for the next one.
    pub fn stop(&self) {
        raise(&self.stop);
    }
}

/// Shows what the server does now.
#[derive(Clone, Default)]
pub struct Current {
    inspector: Arc<Mutex<Option<Inspector>>>,
}

impl Current {
    /// The page of metrics of the mount that is served: Prometheus text format.
    pub fn metrics(&self) -> String {
        let inspector = self.inspector.lock().clone();
        let mut text = Text::new("landfall_fs");
        text.gauge("mounts", "Mounts that are served now.", u8::from(inspector.is_some()));
        let own: String = text.into();
        own + &inspector.map(|inspector| inspector.metrics()).unwrap_or_default()
    }

    fn set(&self, inspector: Option<Inspector>) {
        *self.inspector.lock() = inspector;
    }
}

/// A mount that is served.
struct Served {
    session: Session,
    channel: Arc<Channel>,
    questions: Arc<Questions>,
    point: PathBuf,
    /// Ends its workers.
    stop: OwnedFd,
    /// Readable when they have ended.
    ended: OwnedFd,
}

impl Server {
    /// Listens at `socket`. The files were opened with their orphans kept; `recovered` is what was found.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(
        files: Arc<Files>,
        publisher: Publisher,
        recovered: &Recovered,
        socket: &Path,
        settings: Settings,
    ) -> Result<Self, ServerError> {
        let listener = Listener::bind(socket)
            .map_err(|source| ServerError::Listen { socket: socket.to_owned(), source })?;
        let found = Found { log_end: recovered.log_end, orphans: recovered.orphans.clone() };
        Ok(Self {
            files,
            publisher: Arc::new(Mutex::new(publisher)),
            settings,
            listener,
            last: earlier::file_of(socket),
            found: Some(found),
            current: Current::default(),
            stop: Arc::new(counter()?),
        })
    }

    /// Ends the server from another thread.
    pub fn stopper(&self) -> ServerStopper {
        ServerStopper { stop: Arc::clone(&self.stop) }
    }

    /// Shows what the server does, from another thread.
    pub fn current(&self) -> Current {
        self.current.clone()
    }

    /// Serves one mount after the other until it is stopped, and leaves the region clean.
    ///
    /// # Errors
    /// An error of the kernel, or of the region.
    pub fn run(mut self) -> Result<(), ServerError> {
        let stop = Arc::clone(&self.stop);
        while wait(&[stop.as_fd(), self.listener.as_fd()], None)? == Some(1) {
            let served = match self.accept() {
                Ok(served) => served,
                Err(error) => {
                    tracing::warn!(%error, "a mount is refused");
                    continue;
                }
            };
            let end = self.attend(&served)?;
            self.end(served, end)?;
            if end == End::Leave {
                return Ok(());
            }
        }
        while self.publisher.lock().step()?.operations > 0 {}
        self.files.heap().mark_slabs(1).map_err(FsError::Heap)?;
        Ok(())
    }

    /// Accepts a connection, and serves its mount.
    fn accept(&mut self) -> Result<Served, AttachError> {
        let (channel, questions) = (Arc::new(self.greet()?), Arc::<Questions>::default());
        let served = self.attach(&channel, &questions);
        match served {
            Ok((session, point, stop, ended)) => {
                channel.send(&Message::Accepted, &[])?;
                questions.open(asks(&channel));
                tracing::info!(point = %point.display(), "a mount is served");
                self.current.set(Some(session.inspector()));
                Ok(Served { session, channel, questions, point, stop, ended })
            }
            Err(error) => {
                let ever = if matches!(error, AttachError::Stale) { Again::Never } else { Again::Later };
                // If it is gone, it needs no answer.
                let _ = channel.send(&Message::Refused { ever, why: error.to_string() }, &[]);
                Err(error)
            }
        }
    }

    /// Accepts a connection of the server's own user.
    fn greet(&self) -> Result<Channel, AttachError> {
        let Accepted { socket, user, .. } = self.listener.accept().map_err(ChannelError::from)?;
        let channel = Channel::new(socket);
        if is_same_user(user, sys::own_user()) {
            return Ok(channel);
        }
        let error = AttachError::User(user);
        // As above.
        let _ = channel.send(&Message::Refused { ever: Again::Never, why: error.to_string() }, &[]);
        Err(error)
    }

    /// Offers the files to a holder, and serves its mount.
    fn attach(
        &mut self,
        channel: &Channel,
        questions: &Arc<Questions>,
    ) -> Result<(Session, PathBuf, OwnedFd, OwnedFd), AttachError> {
        let workers = u32::try_from(self.settings.workers).unwrap_or(u32::MAX);
        channel.send(&Message::Offer { workers, region: self.files.identity() }, &[])?;
        let answered = wait(&[channel.as_fd(), self.stop.as_fd()], Some(MOUNT_LIMIT));
        if answered.map_err(ChannelError::from)? != Some(0) {
            return Err(ChannelError::Silent.into());
        }
        let (Message::Attach(attach), descriptors) = channel.receive()? else {
            return Err(AttachError::Invalid);
        };
        let (ledger, queues) = checked(&attach, descriptors)?;
        let earlier = self.earlier(&attach, &ledger)?;
        earlier::note(&self.last, attach.mount).map_err(AttachError::Descriptors)?;
        let features = Features::of_bits(attach.features);
        let negotiated =
            Negotiated::elsewhere(attach.minor, features, attach.max_write, attach.max_readahead);
        let point = PathBuf::from(OsString::from_vec(attach.point));
        let ready = Ready { mount: Mount::of_another(point.clone(), attach.id), queues, negotiated };
        let (stop, ended) = (new_counter()?, new_counter()?);
        let copy = |counter: &OwnedFd| counter.try_clone().map_err(AttachError::Descriptors);
        let (ledger, questions) = (Arc::new(ledger), Arc::clone(questions));
        let elsewhere = Elsewhere { ledger, earlier, ended: copy(&ended)?, questions };
        let files = (Arc::clone(&self.files), Arc::clone(&self.publisher));
        let session =
            Session::serve(files, ready, (copy(&stop)?, Some(elsewhere)), (&self.settings, Keeper::Session))?;
        Ok((session, point, stop, ended))
    }

    /// What an earlier server has left of a mount. Only the mount that was accepted last may resume: others have not seen
    /// what was done since.
    fn earlier(&mut self, attach: &Attach, ledger: &Ledger) -> Result<Option<Earlier>, AttachError> {
        if attach.since == Since::New {
            // Whoever had them open is gone.
            let found = self.found.take().unwrap_or_default();
            release(&self.files, found.orphans);
            return Ok(None);
        }
        if earlier::last(&self.last) != Some(attach.mount) {
            return Err(AttachError::Stale);
        }
        let Found { log_end, orphans } = self.found.take().ok_or(AttachError::Stale)?;
        Ok(Some(Earlier { lost: ledger.settle(log_end), orphans }))
    }

    /// Waits until a mount ends. Others are refused meanwhile.
    fn attend(&self, served: &Served) -> Result<End, ServerError> {
        let Served { channel, questions, point, stop, ended, .. } = served;
        loop {
            let files = [self.stop.as_fd(), ended.as_fd(), channel.as_fd(), self.listener.as_fd()];
            match wait(&files, None)? {
                Some(0) => {
                    raise(stop);
                    return Ok(End::Leave);
                }
                Some(1) => return Ok(End::Unmount),
                Some(2) => {
                    if let Ok((Message::Forgotten { question }, _)) = channel.receive() {
                        questions.note_answered(question);
                        continue;
                    }
                    tracing::info!(point = %point.display(), "the mount's holder has ended");
                    raise(stop);
                    return Ok(End::Unmount);
                }
                _ => self.refuse(point),
            }
        }
    }

    /// Refuses a mount while there is one.
    fn refuse(&self, point: &Path) {
        let Ok(channel) = self.greet() else { return };
        let why = format!("the files are mounted on {}", point.display());
        tracing::warn!("a second mount is refused: {why}");
        // If it is gone, it needs no answer.
        let _ = channel.send(&Message::Refused { ever: Again::Later, why }, &[]);
    }

    /// Ends what was served, and says so to its holder, unless the mount stays.
    fn end(&self, served: Served, end: End) -> Result<(), ServerError> {
        let Served { session, channel, point, .. } = served;
        self.current.set(None);
        let outcome = session.end(end);
        if end == End::Leave {
            return Ok(outcome?);
        }
        earlier::forget(&self.last)?;
        match &outcome {
            Ok(()) => tracing::info!(point = %point.display(), "the mount has ended; everything is durable"),
            Err(error) => tracing::error!(%error, point = %point.display(), "the mount has ended"),
        }
        let what = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        // A holder that has died needs no answer.
        let _ = channel.send(&Message::Ended(what), &[]);
        Ok(())
    }
}

/// Asks the holder to make the kernel drop what it keeps.
fn asks(channel: &Arc<Channel>) -> crate::forget::Ask {
    let channel = Arc::clone(channel);
    Box::new(move |question, inode: InodeNumber| {
        channel.send(&Message::Forget { question, inode: inode.0 }, &[]).is_ok()
    })
}

fn new_counter() -> Result<OwnedFd, AttachError> {
    counter().map_err(AttachError::Descriptors)
}

/// The ledger and the queues of a mount, if what its holder says makes sense.
fn checked(attach: &Attach, descriptors: Vec<OwnedFd>) -> Result<(Ledger, Vec<Device>), AttachError> {
    let run_bytes = u32::try_from(RUN_SIZE).unwrap_or(u32::MAX);
    let is_size = (PAGE_BYTES..=run_bytes).contains(&attach.max_write);
    let mut descriptors = descriptors.into_iter();
    let ledger = descriptors.next().filter(|_| is_size).ok_or(AttachError::Invalid)?;
    let ledger = Ledger::open(ledger).map_err(AttachError::Descriptors)?;
    let queues: io::Result<Vec<Device>> = descriptors.map(Device::from_fd).collect();
    let queues = queues.map_err(AttachError::Descriptors)?;
    if queues.is_empty() { Err(AttachError::Invalid) } else { Ok((ledger, queues)) }
}
