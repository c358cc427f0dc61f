//! Bodies of requests: which structure and which names follow, by opcode.

use super::body::Body;
use super::error::Malformed;
use super::op::{
    CopyCount, CopyFileRange, Forgets, Init, LockRequest, Op, Open, Read, ReadDir, Release, SetAttr, SetTime,
    Write,
};
use crate::abi::{self, fattr, opcode};
use crate::types::{Handle, Lock, Node, Time, Unique};

type Decoded<'a> = Result<Op<'a>, Malformed>;

/// Decodes the body of a request other than WRITE. `setxattr_ext`: SETXATTR has its extended form.
pub(super) fn op<'a>(code: u32, mut body: Body<'a>, setxattr_ext: bool) -> Decoded<'a> {
    let body = &mut body;
    match code {
        opcode::INIT => init(body),
        opcode::DESTROY => Ok(Op::Destroy),
        opcode::STATFS => Ok(Op::StatFs),
        opcode::SYNCFS => Ok(Op::SyncFs),
        opcode::INTERRUPT => Ok(Op::Interrupt { unique: Unique(body.take()?) }),
        opcode::FORGET => Ok(Op::Forget { lookups: body.take()? }),
        opcode::BATCH_FORGET => batch_forget(body),
        opcode::GETATTR | opcode::SETATTR | opcode::STATX | opcode::ACCESS => attributes(code, body),
        opcode::SETXATTR => set_xattr(body, setxattr_ext),
        opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => xattrs(code, body),
        opcode::LOOKUP..=opcode::LINK | opcode::RENAME2 => names(code, body),
        opcode::OPEN | opcode::OPENDIR | opcode::CREATE | opcode::TMPFILE => opening(code, body),
        opcode::RELEASE | opcode::RELEASEDIR | opcode::FLUSH => closing(code, body),
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => lock(code, body),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => reading(code, body),
        opcode::FSYNC | opcode::FSYNCDIR => fsync(code, body),
        opcode::COPY_FILE_RANGE => copy(body, CopyCount::Bits32),
        opcode::COPY_FILE_RANGE_64 => copy(body, CopyCount::Bits64),
        _ => others(code, body),
    }
}

/// Decodes WRITE, whose data the caller has counted.
pub(super) fn write<'a>(mut body: Body<'_>, data_bytes: usize) -> Decoded<'a> {
    let raw: abi::TransferIn = body.take()?;
    if usize::try_from(raw.size) != Ok(data_bytes) {
        return Err(Malformed::Length);
    }
    Ok(Op::Write(Write {
        fh: Handle(raw.fh),
        offset: raw.offset,
        size: raw.size,
        from_cache: raw.transfer_flags & abi::WRITE_CACHE != 0,
        kill_suid_gid: raw.transfer_flags & abi::WRITE_KILL_SUIDGID != 0,
        lock_owner: transfer_owner(&raw),
        flags: raw.flags,
    }))
}

fn transfer_owner(raw: &abi::TransferIn) -> Option<u64> {
    (raw.transfer_flags & abi::TRANSFER_LOCKOWNER != 0).then_some(raw.lock_owner)
}

fn init<'a>(body: &mut Body<'_>) -> Decoded<'a> {
    let raw: abi::InitIn = body.take()?;
    // Before 7.36 there is no second word of flags.
    let high = body.take::<u32>().unwrap_or(0);
    let flags = u64::from(raw.flags) | u64::from(high) << 32;
    Ok(Op::Init(Init { major: raw.major, minor: raw.minor, max_readahead: raw.max_readahead, flags }))
}

fn batch_forget<'a>(body: &mut Body<'a>) -> Decoded<'a> {
    let raw: abi::BatchForgetIn = body.take()?;
    let bytes = raw.count.checked_mul(16).ok_or(Malformed::Short)?;
    Ok(Op::BatchForget(Forgets { bytes: body.bytes(bytes)? }))
}

fn attributes<'a>(code: u32, body: &mut Body<'_>) -> Decoded<'a> {
    Ok(match code {
        opcode::GETATTR => {
            let raw: abi::GetAttrIn = body.take()?;
            Op::GetAttr { fh: open_handle(raw.flags, raw.fh) }
        }
        opcode::STATX => {
            let raw: abi::StatxIn = body.take()?;
            Op::Statx { fh: open_handle(raw.getattr_flags, raw.fh), flags: raw.flags, mask: raw.mask }
        }
        opcode::ACCESS => Op::Access { mask: body.take::<abi::AccessIn>()?.mask },
        _ => Op::SetAttr(set_attr(&body.take()?)),
    })
}

fn open_handle(getattr_flags: u32, fh: u64) -> Option<Handle> {
    (getattr_flags & abi::GETATTR_FH != 0).then_some(Handle(fh))
}

fn set_attr(raw: &abi::SetAttrIn) -> SetAttr {
    let has = |flag: u32| raw.valid & flag != 0;
    let time = |seconds: u64, nanos| Time { seconds: seconds.cast_signed(), nanos };
    let set_time = |flag, now, to| match (has(now), has(flag)) {
        (true, _) => Some(SetTime::Now),
        (false, true) => Some(SetTime::To(to)),
        (false, false) => None,
    };
    SetAttr {
        fh: has(fattr::FH).then_some(Handle(raw.fh)),
        mode: has(fattr::MODE).then_some(raw.mode),
        uid: has(fattr::UID).then_some(raw.uid),
        gid: has(fattr::GID).then_some(raw.gid),
        size: has(fattr::SIZE).then_some(raw.size),
        atime: set_time(fattr::ATIME, fattr::ATIME_NOW, time(raw.atime, raw.atime_nanos)),
        mtime: set_time(fattr::MTIME, fattr::MTIME_NOW, time(raw.mtime, raw.mtime_nanos)),
        ctime: has(fattr::CTIME).then_some(time(raw.ctime, raw.ctime_nanos)),
        lock_owner: has(fattr::LOCKOWNER).then_some(raw.lock_owner),
        kill_suid_gid: has(fattr::KILL_SUIDGID),
    }
}

fn set_xattr<'a>(body: &mut Body<'a>, extended: bool) -> Decoded<'a> {
    let raw: abi::SetXattrIn = body.take()?;
    let ext = if extended { body.take()? } else { abi::SetXattrExt::default() };
    Ok(Op::SetXattr {
        name: body.string()?,
        value: body.bytes(raw.size)?,
        flags: raw.flags,
        clear_sgid: ext.flags & abi::SETXATTR_ACL_KILL_SGID != 0,
    })
}

fn xattrs<'a>(code: u32, body: &mut Body<'a>) -> Decoded<'a> {
    Ok(match code {
        opcode::GETXATTR => {
            let raw: abi::GetXattrIn = body.take()?;
            Op::GetXattr { name: body.string()?, size: raw.size }
        }
        opcode::LISTXATTR => Op::ListXattr { size: body.take::<abi::GetXattrIn>()?.size },
        _ => Op::RemoveXattr { name: body.string()? },
    })
}

/// The operations on names of a directory.
fn names<'a>(code: u32, body: &mut Body<'a>) -> Decoded<'a> {
    Ok(match code {
        opcode::LOOKUP => Op::Lookup { name: body.name()? },
        opcode::READLINK => Op::ReadLink,
        opcode::SYMLINK => Op::Symlink { name: body.name()?, target: body.string()? },
        opcode::MKNOD => {
            let raw: abi::MkNodIn = body.take()?;
            Op::MkNod { name: body.name()?, mode: raw.mode, rdev: raw.rdev, umask: raw.umask }
        }
        opcode::MKDIR => {
            let raw: abi::MkDirIn = body.take()?;
            Op::MkDir { name: body.name()?, mode: raw.mode, umask: raw.umask }
        }
        opcode::UNLINK => Op::Unlink { name: body.name()? },
        opcode::RMDIR => Op::RmDir { name: body.name()? },
        opcode::RENAME => rename(body.take()?, 0, body)?,
        opcode::RENAME2 => {
            let raw: abi::Rename2In = body.take()?;
            rename(raw.new_parent, raw.flags, body)?
        }
        opcode::LINK => Op::Link { target: Node(body.take()?), name: body.name()? },
        _ => Op::Unknown,
    })
}

fn rename<'a>(new_parent: u64, flags: u32, body: &mut Body<'a>) -> Decoded<'a> {
    Ok(Op::Rename { name: body.name()?, new_parent: Node(new_parent), new_name: body.name()?, flags })
}

fn opening<'a>(code: u32, body: &mut Body<'a>) -> Decoded<'a> {
    let open =
        |flags, open_flags: u32| Open { flags, kill_suid_gid: open_flags & abi::OPEN_KILL_SUIDGID != 0 };
    if matches!(code, opcode::OPEN | opcode::OPENDIR) {
        let raw: abi::OpenIn = body.take()?;
        let open = open(raw.flags, raw.open_flags);
        return Ok(if code == opcode::OPEN { Op::Open(open) } else { Op::OpenDir(open) });
    }
    let raw: abi::CreateIn = body.take()?;
    let (mode, umask, open) = (raw.mode, raw.umask, open(raw.flags, raw.open_flags));
    // The kernel sends a slash for the name of a file that has none.
    Ok(match code {
        opcode::TMPFILE => Op::TmpFile { mode, umask, open },
        _ => Op::Create { name: body.name()?, mode, umask, open },
    })
}

fn closing<'a>(code: u32, body: &mut Body<'_>) -> Decoded<'a> {
    if code == opcode::FLUSH {
        let raw: abi::FlushIn = body.take()?;
        return Ok(Op::Flush { fh: Handle(raw.fh), lock_owner: raw.lock_owner });
    }
    let raw: abi::ReleaseIn = body.take()?;
    let owner = |flag| (raw.release_flags & flag != 0).then_some(raw.lock_owner);
    let release = Release {
        fh: Handle(raw.fh),
        flags: raw.flags,
        lock_owner: owner(abi::RELEASE_FLUSH),
        flock_owner: owner(abi::RELEASE_FLOCK_UNLOCK),
    };
    Ok(if code == opcode::RELEASE { Op::Release(release) } else { Op::ReleaseDir(release) })
}

fn lock<'a>(code: u32, body: &mut Body<'_>) -> Decoded<'a> {
    let raw: abi::LockIn = body.take()?;
    let lock = Lock::from_abi(raw.lock).ok_or(Malformed::Value)?;
    let request =
        LockRequest { fh: Handle(raw.fh), owner: raw.owner, lock, flock: raw.flags & abi::LK_FLOCK != 0 };
    Ok(match code {
        opcode::GETLK => Op::GetLock(request),
        opcode::SETLK => Op::SetLock(request),
        _ => Op::SetLockWait(request),
    })
}

fn reading<'a>(code: u32, body: &mut Body<'_>) -> Decoded<'a> {
    let raw: abi::TransferIn = body.take()?;
    let (fh, offset, size) = (Handle(raw.fh), raw.offset, raw.size);
    Ok(match code {
        opcode::READ => {
            Op::Read(Read { fh, offset, size, lock_owner: transfer_owner(&raw), flags: raw.flags })
        }
        opcode::READDIR => Op::ReadDir(ReadDir { fh, offset, size }),
        _ => Op::ReadDirPlus(ReadDir { fh, offset, size }),
    })
}

fn fsync<'a>(code: u32, body: &mut Body<'_>) -> Decoded<'a> {
    let raw: abi::FsyncIn = body.take()?;
    let (fh, data_only) = (Handle(raw.fh), raw.flags & abi::FSYNC_FDATASYNC != 0);
    Ok(if code == opcode::FSYNC { Op::Fsync { fh, data_only } } else { Op::FsyncDir { fh, data_only } })
}

fn copy<'a>(body: &mut Body<'_>, count: CopyCount) -> Decoded<'a> {
    let raw: abi::CopyFileRangeIn = body.take()?;
    Ok(Op::CopyFileRange(CopyFileRange {
        fh_in: Handle(raw.fh_in),
        offset_in: raw.offset_in,
        node_out: Node(raw.node_out),
        fh_out: Handle(raw.fh_out),
        offset_out: raw.offset_out,
        len: raw.len,
        flags: raw.flags,
        count,
    }))
}

fn others<'a>(code: u32, body: &mut Body<'a>) -> Decoded<'a> {
    Ok(match code {
        opcode::FALLOCATE => {
            let raw: abi::FallocateIn = body.take()?;
            Op::Fallocate { fh: Handle(raw.fh), offset: raw.offset, length: raw.length, mode: raw.mode }
        }
        opcode::LSEEK => {
            let raw: abi::LseekIn = body.take()?;
            Op::Lseek { fh: Handle(raw.fh), offset: raw.offset, whence: raw.whence }
        }
        opcode::BMAP => {
            let raw: abi::BmapIn = body.take()?;
            Op::Bmap { block: raw.block, block_size: raw.block_size }
        }
        opcode::POLL => {
            let raw: abi::PollIn = body.take()?;
            let schedule_notify = raw.flags & abi::POLL_SCHEDULE_NOTIFY != 0;
            Op::Poll { fh: Handle(raw.fh), kh: raw.kh, events: raw.events, schedule_notify }
        }
        opcode::IOCTL => {
            let raw: abi::IoctlIn = body.take()?;
            let input = body.bytes(raw.in_size)?;
            let (flags, cmd, arg, out_size) = (raw.flags, raw.cmd, raw.arg, raw.out_size);
            Op::Ioctl { fh: Handle(raw.fh), flags, cmd, arg, input, out_size }
        }
        _ => Op::Unknown,
    })
}
