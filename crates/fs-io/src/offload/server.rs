//! The server of mounts that other processes hold.
//!
//! Each has a session of its own, and they share what is in [`Common`]. A server that follows another one waits for the
//! mounts of that one before it serves the first of them ([`Gathering`]).

use super::asks::{asks, asks_known};
use super::attached::{AttachError, Attached, MOUNTS_MAX, refuse, report};
use super::beside::{Before, Beside};
use super::channel::{Channel, ChannelError};
use super::current::Current;
use super::earlier;
use super::ending::{Ender, Ending, Return};
use super::gathering::{Admitted, Gathering};
use super::greeted::Greeted;
use super::mark;
use super::message::{Attach, EVERYTHING, Message, Over, ServerLife, Since};
use super::place::ServedAt;
use super::postponed::Postponed;
use crate::common::{Common, Sharing};
use crate::counter::{counter, raise, wait};
use crate::forget::{Forgetter, Forgetting, Questions};
use crate::household::{HeapKeeper, Household};
use crate::keeping::{Keeper, Keeping};
use crate::line::Line;
use crate::link::{Accepted, Libraries, Link, Listener};
use crate::lives::{MountId, MountNumber};
use crate::locking::{Book, Kernel, Member, book_of};
use crate::losses::Losses;
use crate::mates::{Asking, Gone, KernelAt};
use crate::panics::Holder;
use crate::random::random_bytes;
use crate::rounds::Rounds;
use crate::service::{Service, Which, Written};
use crate::session::{Elsewhere, End, Lines, Memory, Session, SessionError, Settings, libraries, release};
use crate::sys;
use landfall_fs::{Files, FsError, InodeNumber, Publisher, Recovered, Witness};
use landfall_fs_link::is_same_user;
use landfall_fuse::{Features, Mount, Negotiated};
use landfall_heap::{LANDING_RESERVE_RUNS, Ticket};
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the landing runs of several mounts reserve is one part in so many of the region at most.
const RESERVE_SHARE: usize = 2;
/// Inode numbers that a server does not give, above those it has found: a mount may know some of them by operations that were
/// lost with the server before. No server has so many that are not durable, and the first number of each is.
const NUMBERS_APART: u64 = 1 << 20;
/// How long after which what could not be noted is noted again.
const NOTE_AGAIN: Duration = Duration::from_secs(1);

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

/// Serves mounts that other processes hold.
pub struct Server {
    files: Arc<Files>,
    publisher: Arc<Mutex<Publisher>>,
    settings: Settings,
    listener: Listener,
    common: Common,
    household: Household,
    libraries: Option<Libraries>,
    /// Workers of the program.
    workers_beside: usize,
    /// Names the mounts that are served.
    known: PathBuf,
    /// Names those of them on other machines, and those that may have leases still.
    elsewhere: PathBuf,
    before: Before,
    greeted: Greeted,
    gathering: Gathering,
    served: Vec<Served>,
    ending: Vec<Ending>,
    /// Mounts that wait until one of those has ended.
    behind: Vec<Attached>,
    /// Mounts that are back and cannot be served yet.
    postponed: Postponed,
    /// Names this server, from now to its end.
    life: ServerLife,
    /// The number of the next mount.
    next: u32,
    current: Current,
    stop: Arc<OwnedFd>,
    /// The notes name the mounts that are served. If not, they name some that have ended, too.
    is_noted: bool,
}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct ServerStopper {
    stop: Arc<OwnedFd>,
}

impl ServerStopper {
    /// Ends the server. Its mounts wait for the next one.
    pub fn stop(&self) {
        raise(&self.stop);
    }
}

/// A mount that is served.
struct Served {
    session: Session,
    number: MountNumber,
    attach: Attach,
    channel: Arc<Channel>,
    workers: usize,
    questions: Arc<Questions>,
    /// Its holder asks whether this is durable; `None`: nothing has been done so far.
    point: Option<(u64, Option<Ticket>)>,
    /// Ends its workers.
    stop: OwnedFd,
    /// Readable when they have ended.
    ended: OwnedFd,
    ender: Ender,
}

impl Served {
    fn point(&self) -> &Path {
        self.session.point()
    }
}

/// What one mount has said to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// Its workers have ended: it is unmounted.
    Ended,
    /// Its holder has said something, or died.
    Word,
}

impl Server {
    /// Listens. The files were opened with their orphans kept; `recovered` is what was found.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(
        files: Arc<Files>,
        publisher: Publisher,
        recovered: &Recovered,
        at: ServedAt<'_>,
        settings: Settings,
    ) -> Result<Self, ServerError> {
        let beside = Beside { keeper: Keeper::Session, workers: 0, before: Before::ThisMachine };
        Self::start_beside((files, publisher), recovered, at, settings, beside)
    }

    /// As [`Self::start`], in a program that serves something else in the region, too.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_beside(
        (files, publisher): (Arc<Files>, Publisher),
        recovered: &Recovered,
        ServedAt { socket, notes }: ServedAt<'_>,
        settings: Settings,
        beside: Beside,
    ) -> Result<Self, ServerError> {
        let listener = Listener::bind(socket)
            .map_err(|source| ServerError::Listen { socket: socket.to_owned(), source })?;
        let (common, heap_keeper) = match beside.keeper {
            Keeper::Session => (Common::default(), HeapKeeper::Thread),
            Keeper::Program(wake) => (Common::with_rounds(Rounds::beside(wake)), HeapKeeper::Program),
        };
        let (known, elsewhere) = (earlier::file_of(notes), earlier::elsewhere_of(notes));
        if beside.before == Before::ThisMachine {
            common.leases.follow(Some(earlier::known(&elsewhere)));
        }
        common.locking.begin(Book::open(book_of(notes)), beside.before == Before::Another);
        let publisher = Arc::new(Mutex::new(publisher));
        files.set_witness(Some(Arc::clone(&common.ledgers) as Arc<dyn Witness>));
        let modes = (settings.sync, Written::Through);
        let (no_mount, forgetting) = ((None, Which::default()), Forgetting::Holder(Arc::default()));
        let no_kernel = Arc::new(Forgetter::new(forgetting));
        let libraries = libraries((&files, &publisher), &common, (&settings, None), &Holder::Another)?;
        let linked = libraries.as_ref().and_then(Libraries::link).cloned();
        let available = (linked, no_kernel);
        let service = Arc::new(Service::new(Arc::clone(&files), common.clone(), modes, available, no_mount));
        let household = Household::start(&service, &publisher, &Holder::Another, heap_keeper)?;
        let life = random_bytes()?;
        if let Some(link) = libraries.as_ref().and_then(Libraries::link) {
            link.name_server(life);
            if let Err(error) = mark::write(link.region().try_clone_to_owned()?.into(), life) {
                tracing::warn!(%error, "no virtual machine can share the region");
            }
        }
        files.raise_next_number(files.take_number().0 + NUMBERS_APART);
        common.numbers.begin();
        let gathering = Gathering::new(earlier::known(&known), recovered.log_end, recovered.orphans.clone());
        let current = Current { service, roster: Arc::default() };
        let (stop, served) = (Arc::new(counter()?), Vec::new());
        Ok(Self {
            files,
            publisher,
            settings,
            listener,
            common,
            household,
            libraries,
            workers_beside: beside.workers,
            known,
            elsewhere,
            before: beside.before,
            greeted: Greeted::default(),
            gathering,
            served,
            ending: Vec::new(),
            behind: Vec::new(),
            postponed: Postponed::default(),
            life,
            next: 0,
            current,
            stop,
            is_noted: true,
        })
    }

    /// Mounts on other machines come, too. If another machine has served the files before, it may have given leases to their
    /// holders: nothing changes until these are over. What this machine has given is known.
    pub fn admit_elsewhere(&self) {
        if self.before == Before::Another {
            self.common.leases.follow(None);
        }
    }

    /// Ends the server from another thread.
    pub fn stopper(&self) -> ServerStopper {
        ServerStopper { stop: Arc::clone(&self.stop) }
    }

    /// How the program answers requests that wait for space ([`Keeper::Program`]).
    pub fn keeping(&self) -> Keeping {
        Keeping::new(Arc::clone(&self.common.rounds))
    }

    /// Shows what the server does, from another thread.
    pub fn current(&self) -> Current {
        self.current.clone()
    }

    /// Serves mounts until it is stopped, and leaves the region clean.
    ///
    /// # Errors
    /// An error of the kernel, or of the region.
    pub fn run(mut self) -> Result<(), ServerError> {
        let stop = Arc::clone(&self.stop);
        loop {
            let mounts = self.served.iter().flat_map(|served| [served.ended.as_fd(), served.channel.as_fd()]);
            // Who comes may take the place of one that has ended before.
            let files: Vec<BorrowedFd<'_>> = std::iter::once(stop.as_fd())
                .chain(mounts)
                .chain(self.ending.iter().map(Ending::ended))
                .chain(self.greeted.channels())
                .chain([self.listener.as_fd()])
                .collect();
            let endings = 1 + 2 * self.served.len();
            let (greeted, listener) = (endings + self.ending.len(), files.len() - 1);
            let limits = [
                self.greeted.limit(Instant::now()),
                self.gathering.limit(),
                self.current.roster.limit(),
                self.common.locking.limit(),
                self.postponed.limit(Instant::now()),
                (!self.is_noted).then_some(NOTE_AGAIN),
            ];
            match wait(&files, limits.into_iter().flatten().min())? {
                Some(0) => return self.leave(),
                Some(at) if at == listener => {
                    let greeted = self.greet();
                    report(greeted);
                }
                Some(at) if at >= greeted => {
                    let attached = self.attach(at - greeted);
                    report(attached);
                }
                Some(at) if at >= endings => self.finish(at - endings),
                Some(at) => {
                    let said = if at % 2 == 1 { Said::Ended } else { Said::Word };
                    self.listen((at - 1) / 2, said);
                }
                None => {}
            }
            while let Some(silent) = self.greeted.take_silent(Instant::now()) {
                let error = ChannelError::Silent.into();
                refuse(&silent, &error);
                report(Err(error));
            }
            if self.gathering.is_over() {
                self.resume_gathered();
            }
            self.serve_postponed();
            self.common.locking.go_on();
            if !self.is_noted {
                self.note_mounts();
            }
            self.ask();
            self.common.mates.ask_again();
            self.answer_points();
        }
    }

    /// Answers the holders that ask whether something is durable, if it is.
    fn answer_points(&mut self) {
        let heap = self.files.heap();
        for Served { point, channel, .. } in &mut self.served {
            // The holder asks one thing at a time: what could not be sent is sent later.
            point.take_if(|(number, ticket)| {
                ticket.is_none_or(|ticket| heap.is_durable(ticket))
                    && channel.try_send(&Message::Durable(*number))
            });
        }
    }

    /// Asks the holders whether they are there, if it is time.
    fn ask(&self) {
        self.current.roster.ask(Instant::now(), |mount, number| {
            let heard = self.common.leases.heard(mount);
            let asked = self.served.iter().find(|served| served.number == mount);
            asked.is_some_and(|served| served.channel.try_send(&Message::Ask { number, heard }))
        });
    }

    /// Leaves all mounts to the next server.
    fn leave(self) -> Result<(), ServerError> {
        let Self { files, publisher, served, ending, household, libraries, .. } = self;
        served.iter().for_each(|served| raise(&served.stop));
        let mut outcome = Ok(());
        let mut holders = Vec::new();
        for Served { session, channel, .. } in served {
            outcome = outcome.and(session.end(End::Leave));
            holders.push(channel);
        }
        ending.into_iter().for_each(Ending::finish);
        drop((libraries, household));
        while publisher.lock().step()?.operations > 0 {}
        files.heap().mark_slabs(1).map_err(FsError::Heap)?;
        outcome?;
        if !holders.is_empty() {
            tracing::info!(mounts = holders.len(), "mounts wait for the next server");
        }
        // Perhaps there was nothing to publish, or nothing could be.
        files.acknowledge_all()?;
        // Those that have a ledger know.
        holders.iter().for_each(|holder| _ = holder.try_send(&Message::Durable(EVERYTHING)));
        Ok(())
    }

    /// A greeted holder has said something: serves its mount now or later.
    fn attach(&mut self, at: usize) -> Result<(), AttachError> {
        let channel = self.greeted.take(at);
        match self.receive(&channel) {
            Ok(attached) => {
                self.end_before(&attached.attach);
                self.place(attached)
            }
            Err(error) => {
                refuse(&channel, &error);
                Err(error)
            }
        }
    }

    /// Serves a mount now, or when others have ended or come back.
    fn place(&mut self, attached: Attached) -> Result<(), AttachError> {
        if self.must_wait(&attached) {
            self.behind.push(attached);
            return Ok(());
        }
        match self.admit(&attached) {
            Ok(Admitted::Now) => self.serve(attached, None),
            Ok(Admitted::WithOthers) => {
                self.gathering.arrived.push(attached);
                Ok(())
            }
            Ok(Admitted::BehindOthers) => {
                self.gathering.waiting.push(attached);
                Ok(())
            }
            Ok(Admitted::AsBefore(number)) => {
                let attached = Attached { number, ..attached };
                self.introduce(&attached);
                self.postponed.resume(attached, Instant::now());
                Ok(())
            }
            Err(error) => {
                refuse(&attached.channel, &error);
                Err(error)
            }
        }
    }

    /// True if a mount that ends is in the way of this one, or has the room that it needs.
    fn must_wait(&self, attached: &Attached) -> bool {
        let has_room = self.has_room_for(attached);
        self.ending.iter().any(|ending| !has_room || ending.is_in_the_way_of(&attached.attach))
    }

    /// Accepts a connection of the server's own user, and offers the files to its holder.
    fn greet(&mut self) -> Result<(), AttachError> {
        let Accepted { socket, user, .. } = self.listener.accept().map_err(ChannelError::from)?;
        let channel = Channel::new(socket).map_err(ChannelError::from)?;
        if !is_same_user(user, sys::own_user()) {
            let error = AttachError::User(user);
            refuse(&channel, &error);
            return Err(error);
        }
        let workers = u32::try_from(self.settings.workers).unwrap_or(u32::MAX);
        let (sync, region) = (self.settings.sync, self.files.identity());
        channel.send(&Message::Offer { workers, sync, region, life: self.life }, &[])?;
        self.greeted.add(Arc::new(channel), Instant::now());
        Ok(())
    }

    /// Receives the mount of a holder.
    fn receive(&mut self, channel: &Arc<Channel>) -> Result<Attached, AttachError> {
        self.next += 1;
        Attached::receive(channel, MountNumber(self.next))
    }

    /// Ends what was served of a mount whose holder connects anew. What is on its way over the connections before must not be
    /// done behind what comes over the new ones.
    fn end_before(&mut self, attach: &Attach) {
        if attach.over != Over::Connections {
            return;
        }
        for waiting in [&mut self.gathering.waiting, &mut self.behind] {
            waiting.retain(|other| other.attach.mount != attach.mount);
        }
        while let Some(at) = self.served.iter().position(|served| served.attach.mount == attach.mount) {
            let served = self.served.remove(at);
            raise(&served.stop);
            self.end(served, Return::Now);
        }
    }

    /// Decides when a mount is served.
    fn admit(&mut self, attached: &Attached) -> Result<Admitted, AttachError> {
        let attach = &attached.attach;
        // A mount on another machine that comes back has lost what only its server knew.
        if attach.since == Since::Resumed && attach.over == Over::Device {
            if self.gathering.expects(attach.mount) {
                return Ok(Admitted::WithOthers);
            }
            let postponed = self.postponed.number_of(attach.mount);
            return postponed.map(Admitted::AsBefore).ok_or(AttachError::Stale);
        }
        let is_shared = attach.sharing == Sharing::Shared;
        let served = self.served.iter().map(|served| (served.attach.sharing, served.point().to_owned()));
        let come =
            self.gathering.arrived.iter().chain(&self.gathering.waiting).chain(self.postponed.waiting());
        let excludes = |(sharing, _): &(Sharing, _)| !is_shared || *sharing != Sharing::Shared;
        if let Some((_, point)) =
            served.chain(come.map(|other| (other.attach.sharing, other.point()))).find(excludes)
        {
            return Err(AttachError::Mounted(point));
        }
        if !self.has_room_for(attached) {
            return Err(AttachError::Many);
        }
        self.leave_off_away(|away, _| !is_shared || away.attach.sharing != Sharing::Shared);
        if is_shared && self.gathering.is_expecting() {
            self.gathering.begin();
            return Ok(Admitted::BehindOthers);
        }
        // Whoever was served before has lost the files to this one.
        self.gathering.give_up();
        self.resume_gathered();
        Ok(Admitted::Now)
    }

    /// True if the region has room for the landing runs of this mount, too. A mount by itself always has.
    fn has_room_for(&self, attached: &Attached) -> bool {
        let come = self.gathering.arrived.len() + self.gathering.waiting.len();
        let mounts = self.served.len() + self.ending.len() + self.postponed.mounts().count() + come;
        let workers = attached.queues.len() + self.workers();
        let runs = workers * LANDING_RESERVE_RUNS as usize * RESERVE_SHARE;
        mounts == 0 || mounts < MOUNTS_MAX && runs <= self.files.heap().geometry().runs as usize
    }

    /// Workers for which landing runs are reserved.
    fn workers(&self) -> usize {
        let served = self.served.iter().map(|served| served.workers);
        self.workers_beside + served.chain(self.ending.iter().map(|ending| ending.workers)).sum::<usize>()
    }

    /// Serves the mounts that have come back, and then those that have waited.
    fn resume_gathered(&mut self) {
        let Some(gathered) = self.gathering.take() else { return };
        let ledgers = gathered.arrived.iter().map(|attached| attached.ledger.next_number());
        ledgers.for_each(|next| self.files.raise_next_number(next));
        // No mount changes anything before all kernels can be asked.
        let below = self.files.take_number();
        gathered.arrived.iter().for_each(|attached| _ = self.meet(attached));
        for attached in &gathered.arrived {
            let is_known = |orphan: &&InodeNumber| self.common.mates.knows(attached.number, **orphan);
            let known: Vec<InodeNumber> = gathered.orphans.iter().filter(is_known).copied().collect();
            self.common.lives.resume(attached.number, below, &known);
        }
        let unknown = |orphan: &InodeNumber| !self.common.lives.is_known(*orphan);
        release(&self.files, &self.common, gathered.orphans.into_iter().filter(unknown));
        for attached in gathered.arrived {
            let earlier = Losses::new(attached.ledger.settle(gathered.log_end), below);
            report(self.serve(attached, Some(earlier)));
        }
        // Until all are served again, each of them may go on with the next server.
        self.note_mounts();
        gathered.waiting.into_iter().for_each(|attached| report(self.serve(attached, None)));
    }

    /// Tries again to serve those that are back, if it is time.
    fn serve_postponed(&mut self) {
        let (now, before) = (Instant::now(), self.postponed.mounts().count());
        self.leave_off_away(|_, until| until <= now);
        for (attached, earlier) in self.postponed.take_due(now) {
            report(self.serve(attached, Some(earlier)));
        }
        // Not before each of them is served or waits again: the next server expects nobody else.
        if self.postponed.mounts().count() < before {
            self.note_mounts();
        }
    }

    /// Forgets mounts that are postponed, and whose holders do not wait any more.
    fn leave_off_away(&mut self, is_over: impl Fn(&Attached, Instant) -> bool) {
        self.postponed.take_away(is_over).into_iter().for_each(|number| self.leave_off(number));
    }

    /// Serves a mount, and says so to its holder.
    fn serve(&mut self, mut attached: Attached, earlier: Option<Losses>) -> Result<(), AttachError> {
        let (channel, questions) = (Arc::clone(&attached.channel), Arc::<Questions>::default());
        let (is_new, number) = (earlier.is_none(), attached.number);
        let (knows, forgotten) = self.files.knows_calls(attached.attach.mount, attached.attach.heard);
        let lost = if is_new { self.meet(&attached) } else { Vec::new() };
        let noted = if is_new { self.note(Some(&attached.attach)) } else { Ok(()) };
        let started = noted.map_err(AttachError::Note);
        match started.and_then(|()| self.start_session(&mut attached, earlier.as_ref(), &questions)) {
            Ok(served) => {
                tracing::info!(point = %served.point().display(), "a mount is served");
                self.current.roster.add(number, served.point(), served.attach.sharing);
                self.served.push(served);
                self.reserve_landing();
                lost.into_iter().try_for_each(|handle| channel.send(&Message::LockLost { handle }, &[]))?;
                channel.send(&Message::Accepted { knows, forgotten }, &[])?;
                questions.open(asks(&channel));
                Ok(())
            }
            Err(error) => {
                if let Some(earlier) = earlier
                    && error.may_pass()
                {
                    self.postponed.add((attached, earlier), &error, Instant::now());
                    return Ok(());
                }
                self.leave_off(number);
                // Those that have yet to resume are named until all are served.
                if is_new {
                    self.note_mounts();
                }
                refuse(&channel, &error);
                Err(error)
            }
        }
    }

    /// Forgets a mount that was met, and is not served.
    fn leave_off(&self, number: MountNumber) {
        self.common.mates.remove(number);
        self.common.leases.leave(number);
        self.common.locking.end_mount(number);
        release(&self.files, &self.common, self.common.lives.end_mount(number));
    }

    /// From now on the other mounts know this one, and its locks count. Returns the handles of open files whose locks are
    /// lost.
    fn meet(&self, attached: &Attached) -> Vec<u64> {
        self.introduce(attached);
        if attached.attach.over == Over::Connections {
            let channel = Arc::clone(&attached.channel);
            let recall = move |number, inodes: &[InodeNumber]| {
                let inodes = inodes.iter().map(|inode| inode.0).collect();
                channel.try_send(&Message::Recall { number, inodes })
            };
            self.common.leases.join(attached.number, attached.attach.mount, Box::new(recall));
            if attached.attach.since == Since::Resumed {
                self.common.lives.resume(attached.number, self.files.take_number(), &[]);
            }
        }
        let channel = Arc::clone(&attached.channel);
        let member = Member {
            id: attached.attach.mount,
            kernel: if attached.attach.over == Over::Device { Kernel::Here } else { Kernel::Elsewhere },
            ledger: Arc::clone(&attached.ledger),
            say: Box::new(move |unique, errno| channel.try_send(&Message::lock_decided(unique, errno))),
        };
        self.common.locking.join(attached.number, member)
    }

    /// From now on the other mounts tell this one what is gone.
    fn introduce(&self, attached: &Attached) {
        let kernel = match attached.queues.first().and_then(Line::device) {
            Some(device) => device.clone_queue().map_or(KernelAt::Silent, KernelAt::Here),
            None => KernelAt::Elsewhere(Asking::by(asks_known(&attached.channel))),
        };
        let channel = Arc::clone(&attached.channel);
        // Of too many names some are not told.
        let tell = Box::new(move |gone: &Gone| _ = channel.try_send(&Message::Gone(gone.clone())));
        self.common.mates.add(attached.number, kernel, tell);
    }

    fn start_session(
        &self,
        attached: &mut Attached,
        earlier: Option<&Losses>,
        questions: &Arc<Questions>,
    ) -> Result<Served, AttachError> {
        let point = attached.point();
        // One that was served before keeps its queues until it is served: it may have to be tried again.
        let lines = match earlier {
            Some(_) => attached.queues.iter().map(Line::try_clone).collect::<io::Result<Vec<Line>>>(),
            None => Ok(std::mem::take(&mut attached.queues)),
        };
        let lines = lines.map_err(AttachError::Descriptors)?;
        let (number, attach) = (attached.number, attached.attach.clone());
        let (ledger, channel) = (Arc::clone(&attached.ledger), Arc::clone(&attached.channel));
        let features = Features::of_bits(attach.features);
        let negotiated =
            Negotiated::elsewhere(attach.minor, features, attach.max_write, attach.max_readahead);
        let workers = lines.len();
        let memory = match attach.over {
            Over::Device => Memory::Ledger(ledger),
            Over::Connections => Memory::Log(attach.mount),
        };
        let (stop, ended) = (new_counter()?, new_counter()?);
        let ender = Ender::start().map_err(AttachError::Descriptors)?;
        let copy = |counter: &OwnedFd| counter.try_clone().map_err(AttachError::Descriptors);
        let elsewhere = Elsewhere {
            memory,
            earlier: earlier.cloned(),
            ended: copy(&ended)?,
            questions: Arc::clone(questions),
            link: self.link().cloned(),
            common: self.common.clone(),
            which: Which { mount: number, sharing: attach.sharing },
        };
        let files = (Arc::clone(&self.files), Arc::clone(&self.publisher));
        let begun = (copy(&stop)?, Some(elsewhere));
        // What unmounts when it is dropped comes behind everything that may fail.
        let mount = match attach.over {
            Over::Device => Mount::of_another(point, attach.id.clone()),
            Over::Connections => Mount::elsewhere(point),
        };
        let lines = Lines { mount, lines, negotiated };
        let session = Session::serve(files, lines, begun, (&self.settings, Keeper::Session))?;
        if attach.over == Over::Device {
            session.take_mount(Mount::of_another(session.point().to_owned(), attach.id.clone()));
        }
        let questions = Arc::clone(questions);
        Ok(Served { session, number, attach, channel, workers, questions, point: None, stop, ended, ender })
    }

    /// What libraries link to, where there can be any.
    fn link(&self) -> Option<&Arc<Link>> {
        self.libraries.as_ref().and_then(Libraries::link)
    }

    /// The mounts that are served have become fewer. If that cannot be noted now, it is later: who has ended does not resume.
    fn note_mounts(&mut self) {
        self.reserve_landing();
        let noted = self.note(None);
        if let Err(error) = noted.as_ref().map_err(|error| error.to_string())
            && self.is_noted
        {
            tracing::error!(
                error,
                "the mounts that are served cannot be noted for the next server, and are again soon"
            );
        }
        self.is_noted = noted.is_ok();
    }

    /// All workers find runs in which requests land.
    fn reserve_landing(&self) {
        self.files.heap().reserve_landing(u32::try_from(self.workers().max(1)).unwrap_or(u32::MAX));
    }

    /// Notes the mounts that are served, and one that is about to be.
    fn note(&self, next: Option<&Attach>) -> io::Result<()> {
        let resumes = |attach: &&Attach| attach.over == Over::Device;
        let attached = self
            .served
            .iter()
            .map(|served| &served.attach)
            .chain(self.ending.iter().map(|ending| &ending.attach))
            .chain(self.postponed.mounts().map(|postponed| &postponed.attach))
            .chain(next);
        let mounts: Vec<MountId> = attached.filter(resumes).map(|attach| attach.mount).collect();
        earlier::note(&self.elsewhere, &self.common.leases.mounts())?;
        earlier::note(&self.known, &mounts)
    }

    /// A mount has something to say.
    fn listen(&mut self, at: usize, said: Said) {
        let Served { session, number, channel, questions, point, stop, .. } = &mut self.served[at];
        let mut returns = Return::Perhaps;
        if said == Said::Word {
            match channel.receive() {
                Ok((Message::Forgotten { question }, _)) => {
                    questions.note_answered(question);
                    return;
                }
                Ok((Message::Alive { number: question }, _)) => {
                    self.current.roster.note_answer(*number);
                    self.common.leases.note_answer(*number, question, Instant::now());
                    return;
                }
                Ok((Message::Recalled { number: recall }, _)) => {
                    self.common.leases.note_dropped(*number, recall);
                    return;
                }
                Ok((Message::NotKnown { inodes }, _)) => {
                    for inode in inodes.into_iter().map(InodeNumber) {
                        let fate = self.common.lives.end_earlier(*number, inode);
                        self.current.service.end(inode, fate);
                    }
                    return;
                }
                Ok((Message::Point(asked), _)) => {
                    *point = Some((asked, self.files.newest()));
                    return;
                }
                Ok((Message::Ended(_), _)) => returns = Return::Never,
                _ => {}
            }
            tracing::info!(point = %session.point().display(), "the mount's holder ends it, or has died");
            raise(stop);
        }
        let served = self.served.remove(at);
        self.end(served, returns);
    }

    /// Begins to end what was served.
    fn end(&mut self, served: Served, returns: Return) {
        let Served { session, number, attach, channel, workers, ender, .. } = served;
        self.common.mates.remove(number);
        self.common.leases.leave(number);
        self.current.roster.remove(number);
        let files = Arc::clone(&self.files);
        self.ending.push(Ending::begin((session, ender), (attach, returns), workers, (channel, files)));
        self.note_mounts();
    }

    /// A mount has ended.
    fn finish(&mut self, at: usize) {
        self.ending.remove(at).finish();
        self.note_mounts();
        self.behind.retain(|attached| !attached.has_given_up());
        for attached in std::mem::take(&mut self.behind) {
            report(self.place(attached));
        }
    }
}

fn new_counter() -> Result<OwnedFd, AttachError> {
    counter().map_err(AttachError::Descriptors)
}
