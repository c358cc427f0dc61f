//! The process that mounts, and keeps the mount while its server is away.

use super::channel::{Channel, ChannelError};
use super::message::{Again, Attach, Message, MessageError, Since};
use super::refuse::Refusing;
use crate::common::Sharing;
use crate::counter::{counter, raise, wait};
use crate::forget;
use crate::ledger::Ledger;
use crate::mates::Gone;
use crate::session::{Detached, LINGER, Ready, SessionError, Settings, detach, write_back};
use crate::sys::SharedMemory;
use landfall_fs::InodeNumber;
use landfall_fuse::{Device, MountOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The first pause before a dead server is asked for again.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest one.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Most workers of a server.
const WORKERS_MAX: u32 = 64;

/// Questions that wait to be answered. Each thread of a server asks one thing at a time.
const QUESTIONS_MAX: usize = 1024;

/// How to mount by a server.
#[derive(Clone, Debug)]
pub struct HoldSettings {
    /// The server's socket.
    pub socket: PathBuf,
    /// Options of the mount.
    pub mount: MountOptions,
    /// How long programs wait while there is no server; then their calls fail with `EIO`. `None`: for ever.
    pub patience: Option<Duration>,
    /// Whether the server's other mounts change the files, too.
    pub sharing: Sharing,
}

/// Why there is no mount, or why it has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// Environment: nobody listens.
    #[error(
        "{}: no server listens there ({source}): start `landfall fs serve --dir DIR` first, or `landfall serve` with \
         --files-offload, or name its socket",
        socket.display()
    )]
    NoServer {
        /// The socket.
        socket: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Environment: the socket belongs to somebody else.
    #[error("{}: the server's own user may mount, nobody else", socket.display())]
    NotYours {
        /// The socket.
        socket: PathBuf,
    },
    /// Peer: what listens is no server, or of another version, or does not answer.
    #[error("{}: {source}", socket.display())]
    Server {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: ChannelError,
    },
    /// Peer: the server does not want this mount.
    #[error("{}: the server refuses: {why}", socket.display())]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// In the server's words.
        why: String,
    },
    /// Peer: the server will never serve this mount any more.
    #[error("{}: the server refuses for good: {why}", socket.display())]
    Final {
        /// The socket.
        socket: PathBuf,
        /// In the server's words.
        why: String,
    },
    /// Peer: the server has other files than those of the mount.
    #[error("{}: the server has another region than the one that is mounted", socket.display())]
    OtherRegion {
        /// The socket.
        socket: PathBuf,
    },
    /// Peer: the server could not end the mount in good order.
    #[error("the server says: {0}")]
    NotClean(String),
    /// Environment: nothing can be mounted.
    #[error(transparent)]
    Mount(#[from] SessionError),
    /// Environment: an error of the kernel.
    #[error("the mount cannot be kept: {0}")]
    Io(#[from] io::Error),
}

/// A mount that is held for a server.
pub struct Hold {
    settings: HoldSettings,
    ready: Ready,
    ledger: SharedMemory,
    /// Names the mount.
    mount: [u8; 16],
    /// Identity of the files.
    region: [u8; 16],
    channel: Arc<Channel>,
    questions: mpsc::SyncSender<Question>,
    stop: Arc<OwnedFd>,
}

/// What the kernel is to drop.
enum Question {
    /// What it keeps of an inode: the server waits for it.
    Forget { number: u64, inode: InodeNumber, channel: Arc<Channel> },
    /// A name.
    Gone(Gone),
}

/// Ends a mount from another thread.
#[derive(Clone, Debug)]
pub struct HoldStopper {
    stop: Arc<OwnedFd>,
}

impl HoldStopper {
    /// Unmounts. Programs that still use the mount lose it, after some seconds.
    pub fn stop(&self) {
        raise(&self.stop);
    }
}

/// How the absence of a server has ended.
enum Absence {
    /// There is one again.
    Served(Channel),
    /// The mount has ended.
    Unmounted,
    /// The mount is to end.
    Stopped,
}

impl Hold {
    /// Mounts on `point`, and has a server serve it.
    ///
    /// # Errors
    /// [`HoldError`] says what is wrong and what to do. Nothing is mounted then.
    pub fn start(point: &Path, settings: HoldSettings) -> Result<Self, HoldError> {
        let (channel, workers, region) = connect(&settings.socket)?;
        let stop = Arc::new(counter()?);
        let (mount, sharing) = (settings.mount.clone(), settings.sharing);
        let mount_settings = Settings { workers, mount, sharing, ..Settings::default() };
        let ready = Ready::make(point, &mount_settings, stop.as_fd())?;
        let mut mount = [0; 16];
        getrandom(&mut mount[..], GetRandomFlags::empty()).map_err(io::Error::from)?;
        let (ledger, questions) = (Ledger::memory()?, answering(&ready)?);
        let channel = Arc::new(channel);
        let hold = Self { settings, ready, ledger, mount, region, channel, questions, stop };
        hold.attach(&hold.channel, Since::New)?;
        Ok(hold)
    }

    /// The mountpoint.
    pub fn point(&self) -> &Path {
        self.ready.mount.point()
    }

    /// Ends the mount from another thread.
    pub fn stopper(&self) -> HoldStopper {
        HoldStopper { stop: Arc::clone(&self.stop) }
    }

    /// Keeps the mount until it has ended.
    ///
    /// # Errors
    /// The server could not end it in good order, or no server may serve it any more.
    pub fn run(mut self) -> Result<(), HoldError> {
        loop {
            if wait(&[self.stop.as_fd(), self.channel.as_fd()], None)? == Some(0) {
                return self.stop();
            }
            match self.channel.receive() {
                Ok((Message::Ended(what), _)) => return ended(what),
                Ok((Message::Forget { question, inode }, _)) => {
                    self.forget(question, inode);
                    continue;
                }
                Ok((Message::Gone(gone), _)) => {
                    self.note_gone(gone);
                    continue;
                }
                Ok((Message::Ask, _)) => {
                    self.channel.try_send(&Message::Alive);
                    continue;
                }
                _ => {}
            }
            match self.wait_for_server()? {
                Absence::Served(channel) => {
                    self.channel = Arc::new(channel);
                    self.invalidate()?;
                }
                Absence::Unmounted => return Ok(()),
                Absence::Stopped => {
                    // Nobody could write anything back.
                    detach(&mut self.ready.mount, |_| ());
                    return Ok(());
                }
            }
        }
    }

    /// Unmounts, and waits until the server has made everything durable.
    fn stop(mut self) -> Result<(), HoldError> {
        if detach(&mut self.ready.mount, write_back) == Detached::InUse
            && let Some(said) = self.last_word(Some(Instant::now() + LINGER))?
        {
            return said;
        }
        self.channel.finish();
        self.last_word(None)?.unwrap_or(Ok(()))
    }

    /// Waits until the server says that the mount has ended, or has died. It may have questions before.
    fn last_word(&self, until: Option<Instant>) -> io::Result<Option<Result<(), HoldError>>> {
        loop {
            let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
            if wait(&[self.channel.as_fd()], limit)?.is_none() {
                return Ok(None);
            }
            match self.channel.receive() {
                Ok((Message::Forget { question, inode }, _)) => self.forget(question, inode),
                Ok((Message::Gone(_), _)) => {}
                Ok((Message::Ask, _)) => _ = self.channel.try_send(&Message::Alive),
                Ok((Message::Ended(what), _)) => return Ok(Some(ended(what))),
                _ => {
                    let why = "nothing: it has died, and publishes what is durable when it is back";
                    return Ok(Some(Err(HoldError::NotClean(why.into()))));
                }
            }
        }
    }

    /// Has the kernel drop what it keeps of an inode, and tells the server.
    fn forget(&self, number: u64, inode: u64) {
        let (inode, channel) = (InodeNumber(inode), Arc::clone(&self.channel));
        let question = Question::Forget { number, inode, channel };
        // Only questions of servers that have died fill the queue.
        let _ = self.questions.try_send(question);
    }

    /// Has the kernel drop a name.
    fn note_gone(&self, gone: Gone) {
        // More than the queue holds stay with the kernel until it needs the memory.
        let _ = self.questions.try_send(Question::Gone(gone));
    }

    /// Says to a server what it is to serve.
    fn attach(&self, channel: &Channel, since: Since) -> Result<(), HoldError> {
        let negotiated = self.ready.negotiated;
        let attach = Attach {
            since,
            mount: self.mount,
            minor: negotiated.minor,
            features: negotiated.features.bits(),
            max_write: negotiated.max_write,
            max_readahead: negotiated.max_readahead,
            sharing: self.settings.sharing,
            id: self.ready.mount.id().unwrap_or_default().to_owned(),
            point: self.point().as_os_str().as_bytes().to_vec(),
        };
        let queues = self.ready.queues.iter().map(AsFd::as_fd);
        let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(self.ledger.file()).chain(queues).collect();
        let socket = &self.settings.socket;
        let failed = |source| HoldError::Server { socket: socket.clone(), source };
        channel.send(&Message::Attach(attach), &descriptors).map_err(failed)?;
        loop {
            match channel.receive().map_err(failed)?.0 {
                Message::Accepted => return Ok(()),
                // Another mount is served already.
                Message::Gone(gone) => self.note_gone(gone),
                other => return Err(refusal(socket, other)),
            }
        }
    }

    /// Waits until there is a server again. Programs wait, too, as long as they have patience.
    fn wait_for_server(&self) -> Result<Absence, HoldError> {
        tracing::warn!("the server is gone: programs wait until it is back");
        let (begun, mut pause, mut said) = (Instant::now(), PAUSE_MIN, String::new());
        let mut refusing: Option<Refusing<'_>> = None;
        loop {
            match self.resume() {
                Ok(channel) => {
                    tracing::info!(after_ms = begun.elapsed().as_millis(), "the server is back");
                    return Ok(Absence::Served(channel));
                }
                Err((Again::Never, error)) => return Err(error),
                Err((Again::Later, error)) => said = say(said, &error),
            }
            if refusing.is_none() && self.settings.patience.is_some_and(|limit| begun.elapsed() >= limit) {
                tracing::warn!("the server is not back: calls fail with EIO until it is");
                refusing = Some(Refusing::begin(self.device(), self.ready.negotiated));
            }
            match &mut refusing {
                Some(refusing) => refusing.go_on(pause, self.stop.as_fd())?,
                None => drop(wait(&[self.stop.as_fd()], Some(pause))?),
            }
            if wait(&[self.stop.as_fd()], Some(Duration::ZERO))?.is_some() {
                return Ok(Absence::Stopped);
            }
            if has_ended(self.device())? {
                return Ok(Absence::Unmounted);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Makes the kernel drop what it keeps of inodes that have lost changes with a server.
    ///
    /// It waits for READs that it has sent to the server, and nothing interrupts that: a server that did this could not be
    /// killed while it has not answered them itself.
    fn invalidate(&self) -> io::Result<()> {
        let stale = Ledger::stale(&self.ledger);
        if stale.is_empty() {
            return Ok(());
        }
        let notifier = self.device().clone_queue()?;
        let invalidate = move || {
            for number in stale {
                forget::tell(&notifier, number);
            }
        };
        std::thread::Builder::new().name("invalidate".into()).spawn(invalidate).map(drop)
    }

    fn device(&self) -> &Device {
        &self.ready.queues[0]
    }

    /// Hands the mount to the server that listens now.
    fn resume(&self) -> Result<Channel, (Again, HoldError)> {
        let socket = &self.settings.socket;
        let (channel, _, region) = connect(socket).map_err(|error| (again(&error), error))?;
        if region != self.region {
            return Err((Again::Later, HoldError::OtherRegion { socket: socket.clone() }));
        }
        match self.attach(&channel, Since::Resumed) {
            Ok(()) => Ok(channel),
            Err(error) => Err((again(&error), error)),
        }
    }
}

/// Whether asking again may help.
fn again(error: &HoldError) -> Again {
    if matches!(error, HoldError::Final { .. }) { Again::Never } else { Again::Later }
}

/// Starts the thread that answers what servers ask. The kernel waits, perhaps until there is the next server: the mount
/// must be handed to that meanwhile.
fn answering(ready: &Ready) -> io::Result<mpsc::SyncSender<Question>> {
    let (sender, questions) = mpsc::sync_channel::<Question>(QUESTIONS_MAX);
    let device = ready.queues[0].clone_queue()?;
    let answer = move || {
        for question in questions {
            match question {
                Question::Gone(gone) => gone.tell(&device),
                Question::Forget { number, inode, channel } => {
                    forget::tell(&device, inode);
                    // A server that is gone needs no answer.
                    let _ = channel.send(&Message::Forgotten { question: number }, &[]);
                }
            }
        }
    };
    std::thread::Builder::new().name("forget".into()).spawn(answer)?;
    Ok(sender)
}

/// Says why there is no server, unless that was said last. Returns what was said last.
fn say(said: String, error: &HoldError) -> String {
    let text = error.to_string();
    if text != said {
        tracing::info!("{text}");
    }
    text
}

fn ended(what: String) -> Result<(), HoldError> {
    if what.is_empty() { Ok(()) } else { Err(HoldError::NotClean(what)) }
}

/// Connects to a server. Returns its number of workers, and the identity of its files.
fn connect(socket: &Path) -> Result<(Channel, usize, [u8; 16]), HoldError> {
    let channel = Channel::connect(socket).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => HoldError::NotYours { socket: socket.to_owned() },
        _ => HoldError::NoServer { socket: socket.to_owned(), source },
    })?;
    match channel.receive() {
        Ok((Message::Offer { workers, region }, _)) => {
            let workers = usize::try_from(workers.clamp(1, WORKERS_MAX)).unwrap_or(1);
            Ok((channel, workers, region))
        }
        Ok((other, _)) => Err(refusal(socket, other)),
        Err(source) => Err(HoldError::Server { socket: socket.to_owned(), source }),
    }
}

/// Why a message is not the expected one.
fn refusal(socket: &Path, message: Message) -> HoldError {
    let socket = socket.to_owned();
    match message {
        Message::Refused { ever: Again::Later, why } => HoldError::Refused { socket, why },
        Message::Refused { ever: Again::Never, why } => HoldError::Final { socket, why },
        _ => HoldError::Server { socket, source: MessageError::Malformed.into() },
    }
}

/// True if the mount has ended.
fn has_ended(device: &Device) -> io::Result<bool> {
    let mut polled = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now))?;
    Ok(polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP))
}
