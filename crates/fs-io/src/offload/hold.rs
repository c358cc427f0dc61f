//! The process that mounts, and keeps the mount while its server is away.

use super::channel::{Channel, ChannelError};
use super::error::{HoldError, failed, refusal};
use super::machine::Machine;
use super::message::{Again, Attach, EVERYTHING, LOCKS_OF_A_MESSAGE, Message, Over, Region, Since};
use super::place::ServerPlace;
use super::questions::Questions;
use super::reach::{Reached, reach};
use super::refuse::Refusing;
use super::relay::{Link, Relay};
use super::waiting::Waiting;
use crate::clock::since_start;
use crate::common::Sharing;
use crate::counter::{counter, raise, wait};
use crate::detach::{Detached, LINGER, detach, write_back};
use crate::forget::{Forgetter, Forgetting};
use crate::ledger::Ledger;
use crate::lives::MountId;
use crate::random::random_bytes;
use crate::session::{Ready, Settings, device_of};
use crate::sys::SharedMemory;
use landfall_fs::InodeNumber;
use landfall_fuse::{Device, Mount, MountOptions, Negotiated};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The first pause before a dead server is asked for again.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest one.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// A server on another machine that has not asked for so long whether this process is there is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How to mount by a server.
#[derive(Clone, Debug)]
pub struct HoldSettings {
    /// The server.
    pub server: ServerPlace,
    /// Options of the mount.
    pub mount: MountOptions,
    /// How long programs wait while there is no server; then their calls fail with `EIO`. `None`: for ever, but for a minute at
    /// most while a server is there that is of another release.
    pub patience: Option<Duration>,
    /// Whether the server's other mounts change the files, too. They do so always if the server is on a network.
    pub sharing: Sharing,
    /// Memory for what is kept of the files of a server on a network: as long as nobody changes it, it is not asked for again. 0:
    /// nothing is kept.
    pub cache_bytes: usize,
    /// In a virtual machine: how libraries of its programs share the region of a server on a network.
    pub nvdimm: Option<Nvdimm>,
}

/// A virtual machine's NVDIMM, which is the server's region.
#[derive(Clone, Debug)]
pub struct Nvdimm {
    /// The device that the machine's kernel has made of it.
    pub device: PathBuf,
    /// The socket to which libraries in the machine connect.
    pub libraries: PathBuf,
}

/// A mount that is held for a server.
pub struct Hold {
    settings: HoldSettings,
    /// Locked by who unmounts.
    mounted: Mutex<Mount>,
    point: PathBuf,
    /// Names the mount in the kernel's table.
    id: String,
    queues: Vec<Device>,
    negotiated: Negotiated,
    by: By,
    /// Libraries in this virtual machine.
    machine: Option<Machine>,
    /// Names the mount, for each of its servers.
    mount: MountId,
    /// Identity of the files.
    region: Region,
    channel: Arc<Channel>,
    questions: Questions,
    /// The server has ended in good order: all that it has done is durable.
    has_all_durable: AtomicBool,
    stop: Arc<OwnedFd>,
}

/// How requests come to the server.
enum By {
    /// From the kernel: the server has the queues.
    Kernel {
        ledger: SharedMemory,
        /// Has the kernel drop what was lost with a server.
        stale: Arc<Forgetter>,
    },
    /// This process passes them on.
    Relay {
        relay: Arc<Relay>,
        /// Ends its threads.
        over: OwnedFd,
    },
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

/// What a server has said.
enum Said {
    /// Something that was done.
    Word,
    /// The mount has ended.
    LastWord(Result<(), HoldError>),
    /// It has gone, or does not serve the mount.
    Nothing,
}

/// How the absence of a server has ended.
enum Absence {
    /// There is one again.
    Served(Arc<Channel>),
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
        let reached = reach(&settings.server)?;
        let (is_near, stop) = (matches!(settings.server, ServerPlace::Socket(_)), Arc::new(counter()?));
        let sharing = if is_near { settings.sharing } else { Sharing::Shared };
        let (workers, mount) = (reached.workers, settings.mount.clone());
        let mount_settings = Settings { workers, mount, sharing, ..Settings::default() };
        let Ready { mount: mounted, queues, negotiated } = Ready::make(point, &mount_settings, stop.as_fd())?;
        let questions = Questions::start(&queues[0])?;
        let by = if is_near {
            By::Kernel { ledger: Ledger::memory()?, stale: start_dropping(&queues[0])? }
        } else {
            let over = counter()?;
            By::Relay { relay: Relay::start(&queues, negotiated, &over, settings.cache_bytes)?, over }
        };
        let (region, channel) = (reached.region, Arc::clone(&reached.channel));
        let settings = HoldSettings { sharing, ..settings };
        let mount = random_bytes()?;
        let (point, id) = (mounted.point().to_owned(), mounted.id().unwrap_or_default().to_owned());
        let machine = match (&settings.nvdimm, &by) {
            (Some(nvdimm), By::Relay { relay, over }) => {
                let of = (mount, device_of(&id).unwrap_or_default());
                let machine = Machine::start((&nvdimm.device, &nvdimm.libraries), of, relay);
                let machine = machine.inspect_err(|_| raise(over))?;
                relay.name_libraries(machine.socket().to_owned());
                Some(machine)
            }
            _ => None,
        };
        let mounted = Mutex::new(mounted);
        let hold = Self {
            settings,
            mounted,
            point,
            id,
            queues,
            negotiated,
            by,
            machine,
            mount,
            region,
            channel,
            questions,
            has_all_durable: AtomicBool::new(false),
            stop,
        };
        hold.attach(reached, Since::New)?;
        Ok(hold)
    }

    /// The mountpoint.
    pub fn point(&self) -> &Path {
        &self.point
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
            let silence = self.relay().map(|_| SILENCE_MAX);
            match wait(&[self.stop.as_fd(), self.channel.as_fd()], silence)? {
                Some(0) => return self.stop(),
                Some(_) => match self.listen() {
                    Said::LastWord(said) => return said,
                    Said::Word => continue,
                    Said::Nothing => {}
                },
                None => tracing::warn!("the server says nothing any more"),
            }
            self.relay().iter().for_each(|relay| relay.unlink());
            let has_all_durable = self.has_all_durable.load(Ordering::Acquire);
            self.machine.iter().for_each(|machine| machine.note_gone(has_all_durable));
            match self.wait_for_server()? {
                Absence::Served(channel) => {
                    self.channel = channel;
                    self.invalidate();
                }
                Absence::Unmounted => return Ok(()),
                Absence::Stopped => {
                    // Nobody could write anything back.
                    self.unmount(|_| (), |over| self.refuse_until(over))?;
                    return self.without_server();
                }
            }
        }
    }

    /// The relay, if the server is on a network.
    fn relay(&self) -> Option<&Arc<Relay>> {
        match &self.by {
            By::Kernel { .. } => None,
            By::Relay { relay, .. } => Some(relay),
        }
    }

    /// Receives what the server has said, and does it.
    fn listen(&self) -> Said {
        match self.channel.receive() {
            Ok((Message::Ended(what), _)) => Said::LastWord(ended(what)),
            Ok((message, _)) if self.hear(&message) => Said::Word,
            _ => Said::Nothing,
        }
    }

    /// Does what the server says. False if a server that serves the mount does not say so.
    fn hear(&self, message: &Message) -> bool {
        match message {
            Message::Forget { question, inode } => {
                self.questions.forget(*question, InodeNumber(*inode), Arc::clone(&self.channel));
            }
            Message::Gone(gone) => self.questions.drop_name(gone.clone()),
            Message::Ask { number, heard } => {
                self.relay().iter().for_each(|relay| relay.cache.asked(*number, *heard, since_start()));
                self.channel.try_send(&Message::Alive { number: *number });
                let asked = self.relay().and_then(|relay| relay.changes.lock().ask());
                asked.iter().for_each(|number| _ = self.channel.try_send(&Message::Point(*number)));
            }
            Message::Recall { number, inodes } => {
                self.relay().iter().for_each(|relay| relay.cache.recall(inodes));
                // A server that does not hear it waits until the leases are over.
                let _ = self.channel.send(&Message::Recalled { number: *number }, &[]);
            }
            Message::AskKnown { inodes } => self.say_unknown(&self.channel, inodes),
            Message::LockDecided { unique, errno } => {
                self.relay().iter().for_each(|relay| relay.decide(*unique, *errno));
            }
            Message::Durable(number) => {
                self.has_all_durable.fetch_or(*number == EVERYTHING, Ordering::AcqRel);
                self.relay().iter().for_each(|relay| relay.changes.lock().answer(*number));
            }
            _ => return false,
        }
        true
    }

    /// Says to a server which of these inodes the kernel does not know.
    fn say_unknown(&self, channel: &Channel, inodes: &[u64]) {
        let inodes = self.relay().map_or_else(Vec::new, |relay| relay.cache.unknown(inodes));
        if !inodes.is_empty() {
            // A server that does not hear it finds that the mount has ended.
            let _ = channel.send(&Message::NotKnown { inodes }, &[]);
        }
    }

    /// Unmounts, and waits until the server has made everything durable.
    fn stop(&self) -> Result<(), HoldError> {
        let (detached, said) = self.unmount(write_back, |over| self.go_on_until(over))?;
        if let Some(said) = said {
            return said;
        }
        if detached == Detached::InUse
            && let Some(said) = self.last_word(Some(Instant::now() + LINGER))?
        {
            return said;
        }
        self.channel.finish();
        self.last_word(None)?.unwrap_or(Ok(()))
    }

    /// Takes the mount from the tree by a thread of its own. The kernel may have something to ask of the server for that:
    /// `meanwhile` sees to that it gets an answer, until the counter is readable.
    fn unmount<R>(
        &self,
        prepare: impl FnOnce(&Path) + Send,
        meanwhile: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<(Detached, R)> {
        let over = counter()?;
        std::thread::scope(|scope| {
            let unmount = || {
                let detached = detach(&mut self.mounted.lock(), prepare);
                raise(&over);
                detached
            };
            let unmounting =
                std::thread::Builder::new().name("unmount".into()).spawn_scoped(scope, unmount)?;
            let done = meanwhile(over.as_fd());
            Ok((unmounting.join().expect("a panic ends the process"), done?))
        })
    }

    /// Does what the server says. If it goes, all requests are refused. Returns its last word, if it has said that.
    fn go_on_until(&self, over: BorrowedFd<'_>) -> io::Result<Option<Result<(), HoldError>>> {
        let silence = self.relay().map(|_| SILENCE_MAX);
        loop {
            match wait(&[over, self.channel.as_fd()], silence)? {
                Some(0) => return Ok(None),
                Some(_) => match self.listen() {
                    Said::LastWord(said) => return Ok(Some(said)),
                    Said::Word => continue,
                    Said::Nothing => {}
                },
                None => {}
            }
            self.refuse_until(over)?;
            return Ok(Some(self.without_server()));
        }
    }

    /// Has all requests fail: there is no server.
    fn refuse_until(&self, over: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(relay) = self.relay() {
            relay.unlink();
            relay.refuse();
            return wait(&[over], None).map(drop);
        }
        let mut refusing = Refusing::begin(self.device(), self.negotiated);
        while wait(&[over], Some(Duration::ZERO))?.is_none() {
            refusing.go_on(PAUSE_MAX, over)?;
        }
        Ok(())
    }

    /// Waits until the server says that the mount has ended, or has died. It may have questions before.
    fn last_word(&self, until: Option<Instant>) -> io::Result<Option<Result<(), HoldError>>> {
        loop {
            let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
            if wait(&[self.channel.as_fd()], limit)?.is_none() {
                return Ok(None);
            }
            match self.listen() {
                Said::LastWord(said) => return Ok(Some(said)),
                Said::Word => {}
                Said::Nothing => return Ok(Some(self.without_server())),
            }
        }
    }

    /// What the end of the mount is worth if the server has not seen to it.
    fn without_server(&self) -> Result<(), HoldError> {
        if self.has_all_durable.load(Ordering::Acquire) {
            return Ok(());
        }
        let why = "nothing: it has died, and publishes what is durable when it is back";
        Err(HoldError::NotClean(why.into()))
    }

    /// Says to a server what it is to serve.
    fn attach(&self, reached: Reached, since: Since) -> Result<Arc<Channel>, HoldError> {
        let Reached { channel, server, sync, life, .. } = &reached;
        let (over, lines) = match &self.by {
            By::Kernel { .. } => (Over::Device, Vec::new()),
            By::Relay { .. } => (Over::Connections, reached.queues(self.queues.len())?),
        };
        let attach = Attach {
            since,
            mount: self.mount,
            minor: self.negotiated.minor,
            features: self.negotiated.features.bits(),
            max_write: self.negotiated.max_write,
            max_readahead: self.negotiated.max_readahead,
            sharing: self.settings.sharing,
            over,
            heard: self.relay().map_or(0, |relay| relay.heard()),
            id: self.id.clone(),
            point: self.point().as_os_str().as_bytes().to_vec(),
        };
        let descriptors: Vec<BorrowedFd<'_>> = match &self.by {
            By::Kernel { ledger, .. } => {
                std::iter::once(ledger.file()).chain(self.queues.iter().map(AsFd::as_fd)).collect()
            }
            By::Relay { .. } => Vec::new(),
        };
        let failed = |source| failed(server, source);
        let claims = self.relay().map_or_else(Vec::new, |relay| relay.locks.lock().claims());
        for some in claims.chunks(LOCKS_OF_A_MESSAGE) {
            channel.send(&Message::Locks(some.to_vec()), &[]).map_err(failed)?;
        }
        channel.send(&Message::Attach(attach), &descriptors).map_err(failed)?;
        let calls = loop {
            match channel.receive().map_err(failed)?.0 {
                Message::Accepted { knows, forgotten } => break (knows, forgotten),
                Message::LockLost { handle } => {
                    self.relay().iter().for_each(|relay| relay.locks.lock().lose(handle));
                }
                // Another mount is served already.
                Message::Gone(gone) => self.questions.drop_name(gone),
                Message::AskKnown { inodes } => self.say_unknown(channel, &inodes),
                Message::Ask { number: 0, .. } => {
                    // The server is short of something, and tries again for as long as somebody waits.
                    if wait(&[self.stop.as_fd()], Some(Duration::ZERO))?.is_some() {
                        return Err(failed(ChannelError::Silent));
                    }
                }
                other => return Err(refusal(server, other)),
            }
        };
        self.has_all_durable.store(false, Ordering::Release);
        self.machine.iter().for_each(|machine| machine.end_before(*life));
        if let Some(relay) = self.relay() {
            relay.link(Link::new((*life, *sync), calls, Arc::clone(channel), lines));
        }
        // When what was lost with the server before is known.
        if let (Some(machine), Some(remote)) = (&self.machine, reached.remote()) {
            machine.set_server(remote.clone(), *life)?;
        }
        Ok(Arc::clone(channel))
    }

    /// Waits until there is a server again. Programs wait, too, as long as they have patience.
    fn wait_for_server(&self) -> Result<Absence, HoldError> {
        tracing::warn!("the server is gone: programs wait until it is back");
        let (begun, mut pause) = (Instant::now(), PAUSE_MIN);
        let mut waiting = Waiting::begin(begun, self.settings.patience);
        // Of the patience.
        let mut is_over = false;
        let mut refusing: Option<Refusing<'_>> = None;
        loop {
            match self.resume() {
                Ok(channel) => {
                    tracing::info!(after_ms = begun.elapsed().as_millis(), "the server is back");
                    return Ok(Absence::Served(channel));
                }
                Err((Again::Never, error)) => return Err(error),
                Err((Again::Later, error)) => waiting.note(&error, Instant::now()),
            }
            if !is_over && waiting.is_over(Instant::now()) {
                tracing::warn!("the server is not back: calls fail with EIO until it is");
                is_over = true;
                match self.relay() {
                    Some(relay) => relay.refuse(),
                    None => refusing = Some(Refusing::begin(self.device(), self.negotiated)),
                }
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
    fn invalidate(&self) {
        if let By::Kernel { ledger, stale } = &self.by {
            stale.forget_all_soon(Ledger::stale(ledger));
        }
    }

    fn device(&self) -> &Device {
        &self.queues[0]
    }

    /// Hands the mount to the server that listens now.
    fn resume(&self) -> Result<Arc<Channel>, (Again, HoldError)> {
        let attach = || {
            let reached = reach(&self.settings.server)?;
            if reached.region != self.region {
                return Err(HoldError::OtherRegion { server: reached.server });
            }
            self.attach(reached, Since::Resumed)
        };
        attach().map_err(|error| (self.again(&error), error))
    }

    /// Whether asking again may help.
    fn again(&self, error: &HoldError) -> Again {
        match error {
            // One of several servers may be the right one later.
            HoldError::Final { .. } if self.relay().is_none() => Again::Never,
            _ => Again::Later,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match &self.by {
            By::Kernel { stale, .. } => stale.close(),
            By::Relay { over, .. } => raise(over),
        }
    }
}

/// Starts the thread in which the kernel is asked to drop what was lost with a server. It is there before the mount has a
/// server: the mount does not end for want of a thread, or of a descriptor, when the next one serves it.
fn start_dropping(device: &Device) -> io::Result<Arc<Forgetter>> {
    let stale = Arc::new(Forgetter::new(Forgetting::This(device.clone_queue()?)));
    let dropping = Arc::clone(&stale);
    std::thread::Builder::new().name("invalidate".into()).spawn(move || dropping.run())?;
    Ok(stale)
}

fn ended(what: String) -> Result<(), HoldError> {
    if what.is_empty() { Ok(()) } else { Err(HoldError::NotClean(what)) }
}

/// True if the mount has ended.
fn has_ended(device: &Device) -> io::Result<bool> {
    let mut polled = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now))?;
    Ok(polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP))
}
