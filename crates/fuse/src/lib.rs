//! The kernel's FUSE protocol, version 7.45 (Linux 6.18; from 7.31, Linux 5.4, on), for a file system whose data stay
//! where they are received.
//!
//! Read [`mount()`] and [`Device`] first: a worker receives from it, decodes ([`Decoder::decode`]) and replies. This crate knows no file
//! system.
//!
//! - **A WRITE is received into the caller's memory.** [`HEAD_BYTES`] are received apart, so that the data begin at the
//!   first byte of the first frame. Requests other than WRITE spill past the head into the frames; they are decoded from
//!   there, and the frames can be used again.
//! - **A READ leaves from where the data are stored**: [`Reply::data`] is the head, the slices follow it.
//! - INIT comes first. [`handshake()`] answers it, and [`Negotiated`] gives the decoder for what follows.
//! - Each request but those for which [`Op::wants_reply`] is false gets one reply.
//!
//! No data of READ and WRITE are copied here. Only the bodies of other requests are, into one buffer.
//!
//! Requests may come over io_uring instead ([`Ring`]): fewer system calls, but the kernel copies the data of a WRITE into
//! memory that is fixed, and replies leave from there.

mod abi;
mod attr;
mod device;
mod dir;
mod errno;
mod handshake;
mod init;
mod kept;
mod mount;
mod notify;
mod reply;
mod request;
mod ring;
mod sys;
mod types;

pub use attr::{Attr, Entry, OpenFlags, Opened, StatFs, Statx};
pub use device::{Device, Ready, Received, Sent, Waiter};
pub use dir::{DirBuffer, DirEntry, NAME_BYTES_MAX};
pub use errno::Errno;
pub use handshake::{HandshakeError, handshake};
pub use init::{EPOCH_MINOR, Feature, Features, InitError, MINOR_MIN, Negotiated, Wanted, frame_bytes};
pub use kept::KeptRequest;
pub use mount::{
    Access, Mount, MountError, MountFlags, MountOptions, OptionError, OtherOption, Permissions, Unmount,
    check_point, mount, unmount, unmount_dead,
};
pub use notify::{Entries, Notification};
pub use reply::{REPLY_HEADER_BYTES, Reply};
pub use request::{
    CopyCount, CopyFileRange, DecodeError, Decoder, Forgets, HEAD_BYTES, Init, LockRequest, Malformed, Op,
    Open, Read, ReadDir, Release, Request, SetAttr, SetTime, Write,
};
pub use ring::{Arrived, EntryId, Ring, RingError, Share, check_ring, queue_count};
pub use types::{Handle, Lock, LockKind, Node, Time, Unique};
