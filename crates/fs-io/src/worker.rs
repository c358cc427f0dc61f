//! A worker: it receives requests, answers them, and receives the next ones.

use crate::aside::{Aside, Deferred};
use crate::counters::RequestKind;
use crate::effects::Effects;
use crate::errors::STALE;
use crate::landing::{Data, Landing, SetAside};
use crate::names::{self, New};
use crate::service::{Answer, Answered, Service, number_of};
use crate::syncs::{Syncs, Waiting};
use crate::transport::{Incoming, Transport};
use crate::turns::{self, Turn};
use crate::{attributes, data, directories, extended};
use landfall_fs::{Access, Patience};
use landfall_fuse::{
    Decoder, DirBuffer, Errno, KeptRequest, LockRequest, Op, Opened, Read, ReadDir, Reply, Request, Sent,
    Unique,
};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

/// One worker, with a transport and landing runs of its own.
pub(crate) struct Worker<T> {
    pub(crate) service: Arc<Service>,
    pub(crate) syncs: Arc<Syncs>,
    pub(crate) aside: Arc<Aside>,
    pub(crate) transport: T,
    pub(crate) decoder: Decoder,
    pub(crate) landing: Landing,
}

impl<T: Transport> Worker<T> {
    /// Works until the transport ends.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let (mut joined, mut entries) = (Vec::new(), DirBuffer::default());
        loop {
            let sent = match self.transport.receive(&self.decoder, &mut self.landing, &mut joined)? {
                Incoming::Ended => return Ok(()),
                Incoming::Request(request) => {
                    let begun = Instant::now();
                    if self.sets_aside(&request, begun) {
                        Sent::Done
                    } else {
                        let sent = self.answer(&request, &mut entries)?;
                        self.service.common.counters.requests(RequestKind::of(&request.op)).note(begun);
                        sent
                    }
                }
                Incoming::Malformed(malformed) => {
                    tracing::error!(error = %malformed, "the kernel sends a malformed request");
                    match malformed.unique {
                        Some(unique) => self.transport.reply(&Reply::error(unique, Errno::IO))?,
                        None => Sent::Done,
                    }
                }
            };
            self.landing.answered();
            if sent == Sent::Ended {
                return Ok(());
            }
        }
    }

    /// Sets a request aside that changes something, if the log takes nothing for now: false if it is to be answered here.
    fn sets_aside(&mut self, request: &Request<'_>, begun: Instant) -> bool {
        // From another machine, no request comes before this one is answered.
        let may_wait = Effects::of(request).is_some() && !self.service.is_elsewhere();
        if !may_wait || !self.service.files.is_log_crowded() || !self.transport.may_owe_more() {
            return false;
        }
        let bytes = if let Op::Write(write) = &request.op { write.size } else { 0 };
        let Some(kept) = KeptRequest::of(request).filter(|_| self.aside.has_room(bytes.into())) else {
            return false;
        };
        let landed = match bytes {
            0 => SetAside::nothing(self.service.files.heap()),
            bytes => match self.landing.set_aside(bytes) {
                Ok(landed) => landed,
                // There is no room for it beside those that are received next.
                Err(_) => return false,
            },
        };
        self.service.note_received(request.unique);
        self.aside.add(Deferred { request: kept, landed, to: self.transport.later(), begun });
        true
    }

    /// Answers a request.
    fn answer(&mut self, request: &Request<'_>, entries: &mut DirBuffer) -> io::Result<Sent> {
        self.service.note_received(request.unique);
        match &request.op {
            Op::ReadDir(dir) => return self.list(request, *dir, directories::read, entries),
            Op::ReadDirPlus(dir) => return self.list(request, *dir, directories::read_plus, entries),
            Op::SetLock(asked) if self.service.is_shared() => {
                return self.lock(request, asked, Patience::None);
            }
            Op::SetLockWait(asked) if self.service.is_shared() => {
                return self.lock(request, asked, Patience::Waits);
            }
            Op::Interrupt { unique } if self.aside.interrupt(*unique) => {
                return Ok(Sent::Done);
            }
            _ => {}
        }
        if let Err(errno) = self.prepare(request) {
            return self.transport.reply(&Reply::error(request.unique, errno));
        }
        let (unique, answered) = match &request.op {
            Op::Read(read) => match self.read(request, read) {
                Ok(sent) => return Ok(sent),
                Err(refused) => refused,
            },
            _ => execute(&self.service, &mut self.landing, request),
        };
        let sent = match answered {
            Ok(Answer::Now(reply)) => self.transport.reply(&reply),
            Ok(Answer::Bytes(bytes)) => self.transport.reply_data(unique, &[IoSlice::new(&bytes)]),
            Ok(Answer::Nothing) => return Ok(Sent::Done),
            Ok(Answer::Durable(number, reply)) => return self.reply_durable(request, Some(number), reply),
            Ok(Answer::AllDurable(reply)) => return self.reply_durable(request, None, reply),
            Err(errno) => self.transport.reply(&refusal(&self.service, request, unique, errno)),
        };
        self.service.note_answered(request.unique);
        sent
    }

    /// What comes before a request holds a turn, or a file.
    fn prepare(&self, request: &Request<'_>) -> Result<(), Errno> {
        self.service.keep_numbers(request)?;
        if self.service.is_elsewhere() && Effects::of(request).is_some() {
            self.service.wait_for_log()?;
        }
        if let Op::Write(write) = &request.op {
            self.service.keep_pace(u64::from(write.size));
        }
        Ok(())
    }

    /// Replies to a READ, unless it is refused.
    fn read(&mut self, request: &Request<'_>, read: &Read) -> Result<Sent, (Unique, Answered)> {
        let (turn, unique) = (turns::take(&self.service, request), turns::lease(&self.service, request));
        data::read(&self.service, &mut self.transport, (request, unique), read)
            .map_err(|errno| marked(&turn, request, (unique, Err(errno))))
    }

    fn reply_durable(
        &mut self,
        request: &Request<'_>,
        number: Option<landfall_fs::InodeNumber>,
        reply: Reply,
    ) -> io::Result<Sent> {
        let (to, waiter) = (self.transport.later(), self.service.files.waiter());
        let waiting = Waiting { to, unique: request.unique, number, reply, waiter };
        self.syncs.wait(&self.service, waiting);
        Ok(Sent::Done)
    }

    /// Answers a request for a lock, unless it waits.
    fn lock(&mut self, request: &Request<'_>, asked: &LockRequest, patience: Patience) -> io::Result<Sent> {
        let (locking, mount) = (&self.service.common.locking, self.service.mount());
        let of = (request.unique, number_of(request.node));
        match locking.set(mount, of, asked, patience, self.transport.later()) {
            Some(reply) => self.transport.reply(&reply),
            None => Ok(Sent::Done),
        }
    }

    fn list(
        &mut self,
        request: &Request<'_>,
        dir: ReadDir,
        read: fn(&Service, landfall_fuse::Node, ReadDir, &mut DirBuffer) -> Result<(), Errno>,
        entries: &mut DirBuffer,
    ) -> io::Result<Sent> {
        let unique = turns::lease(&self.service, request);
        match read(&self.service, request.node, dir, entries) {
            Ok(()) => self.transport.reply_data(unique, &[IoSlice::new(entries.as_bytes())]),
            Err(errno) => self.transport.reply(&Reply::error(unique, errno)),
        }
    }
}

/// Executes a request, in its turn among those of all mounts. Returns the id that the reply is for.
pub(crate) fn execute(service: &Service, data: &mut impl Data, request: &Request<'_>) -> (Unique, Answered) {
    let (turn, unique) = (turns::take(service, request), turns::lease(service, request));
    let answered = match &request.op {
        Op::Write(write) => data::write(service, data, request, write),
        _ => answer(service, request),
    };
    marked(&turn, request, (unique, answered))
}

/// The answer, and the id that it is for, as the turn says that they are marked.
fn marked(
    turn: &Turn<'_>,
    request: &Request<'_>,
    (unique, answered): (Unique, Answered),
) -> (Unique, Answered) {
    let unique = if turn.is_marked() { request.unique.marked() } else { unique };
    let mark = |reply: Reply| if unique.is_marked() { reply.marked() } else { reply };
    (unique, answered.map(|answer| answer.with(mark)))
}

/// The reply that refuses a request.
pub(crate) fn refusal(service: &Service, request: &Request<'_>, unique: Unique, errno: Errno) -> Reply {
    Reply::error(unique, service.refusal(number_of(request.node), errno))
}

/// Answers a request without data of files or entries of directories.
fn answer(service: &Service, request: &Request<'_>) -> Answered {
    let unique = request.unique;
    match request.op {
        Op::Lookup { name } => names::lookup(service, request, name),
        Op::Forget { lookups } => {
            names::forget(service, request.node, lookups);
            Ok(Answer::Nothing)
        }
        Op::BatchForget(forgets) => {
            forgets.for_each(|(node, lookups)| names::forget(service, node, lookups));
            Ok(Answer::Nothing)
        }
        Op::GetAttr { .. } => attributes::get(service, request),
        Op::Statx { .. } => attributes::statx(service, request),
        Op::SetAttr(set) => attributes::set(service, request, &set),
        Op::StatFs => attributes::statfs(service, request),
        Op::Fsync { .. } | Op::FsyncDir { .. } => {
            // What libraries have done is durable when it is in the tree.
            drop(service.enter(number_of(request.node), Access::Read));
            service.check_kept(number_of(request.node))?;
            Ok(Answer::Durable(number_of(request.node), Reply::ok(unique)))
        }
        Op::SyncFs => {
            service.adopt_all();
            Ok(Answer::AllDurable(Reply::ok(unique)))
        }
        Op::Release(ref release) => {
            service.common.locking.close(service.mount(), number_of(request.node), release);
            Ok(Answer::Now(Reply::ok(unique)))
        }
        Op::Destroy => Ok(Answer::Now(Reply::ok(unique))),
        Op::Interrupt { unique } => {
            service.common.locking.interrupt(service.mount(), unique);
            Ok(Answer::Nothing)
        }
        Op::SetXattr { name, value, flags, clear_sgid } => {
            extended::set(service, request, name, value, (flags, clear_sgid))
        }
        Op::GetXattr { name, size } => extended::get(service, request, name, size),
        Op::ListXattr { size } => extended::list(service, request, size),
        Op::RemoveXattr { name } => extended::remove(service, request, name),
        Op::Fallocate { offset, length, mode, .. } => {
            data::allocate(service, request, (offset, length), mode)
        }
        Op::Lseek { offset, whence, .. } => data::seek(service, request, offset, whence),
        Op::CopyFileRange(copy) => data::copy(service, request, &copy),
        _ => answer_names(service, request),
    }
}

/// Answers a request about names. What is not among them is unknown: the kernel does without. For OPEN, OPENDIR and
/// FLUSH that saves a round trip at each open and close, unless the mount is shared: there is nothing to do for them.
fn answer_names(service: &Service, request: &Request<'_>) -> Answered {
    match request.op {
        Op::ReadLink => names::read_link(service, request),
        Op::Symlink { name, target } => names::symlink(service, request, name, target),
        Op::MkNod { name, mode, rdev, umask } => {
            names::make(service, request, name, &New { mode, rdev, umask })
        }
        Op::MkDir { name, mode, umask } => {
            let mode = libc::S_IFDIR | mode & !libc::S_IFMT;
            names::make(service, request, name, &New { mode, rdev: 0, umask })
        }
        Op::Create { name, mode, umask, open } => {
            names::make_open(service, request, Some(name), (mode, umask), open)
        }
        Op::TmpFile { mode, umask, open } => names::make_open(service, request, None, (mode, umask), open),
        Op::Link { target, name } => names::link(service, request, target, name),
        Op::Unlink { name } => names::unlink(service, request, name, false),
        Op::RmDir { name } => names::unlink(service, request, name, true),
        Op::Rename { name, new_parent, new_name, flags } => {
            names::rename(service, request, name, (new_parent, new_name), flags)
        }
        _ if service.is_shared() => answer_shared(service, request),
        _ => Err(Errno::NOSYS),
    }
}

/// Answers a request that only the kernel of a shared mount makes: it keeps no data of files that are opened so, and no
/// locks.
fn answer_shared(service: &Service, request: &Request<'_>) -> Answered {
    let (locking, mount) = (&service.common.locking, service.mount());
    let (unique, number) = (request.unique, number_of(request.node));
    match request.op {
        Op::Open(_) if !service.exists(number)? => Err(STALE),
        Op::Open(_) => Ok(Answer::Now(Reply::opened(unique, service.opened()))),
        Op::OpenDir(_) => Ok(Answer::Now(Reply::opened(unique, Opened::default()))),
        Op::Flush { fh, lock_owner } => {
            locking.flush(mount, number, (fh, lock_owner));
            Ok(Answer::Now(Reply::ok(unique)))
        }
        Op::GetLock(asked) => Ok(Answer::Now(Reply::lock(unique, locking.conflict(mount, number, &asked)))),
        _ => Err(Errno::NOSYS),
    }
}
