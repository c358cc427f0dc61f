//! Executes requests that need no transport: all but READ and READDIR.

use crate::errors::STALE;
use crate::landing::Data;
use crate::names::{self, New};
use crate::service::{Answer, Answered, Service, number_of};
use crate::turns::{self, Turn};
use crate::{attributes, data, extended};
use landfall_fs::Access;
use landfall_fuse::{Errno, Op, Opened, Reply, Request, Unique};

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
