//! Requests as the kernel's header lays them out, byte by byte, and bytes that are no requests.

use super::*;
use crate::types::{Handle, Lock, LockKind, Time};
use proptest::prelude::*;
use std::ffi::OsStr;

/// A message put together from little pieces, in the order of the ABI. Numbers are those of a little-endian host.
fn message(opcode: u32, body: &[&[u8]], extension_words: u16) -> Vec<u8> {
    let body = body.concat();
    let len = u32::try_from(40 + body.len()).unwrap();
    [
        &len.to_le_bytes()[..],
        &opcode.to_le_bytes(),
        &7_u64.to_le_bytes(),
        &3_u64.to_le_bytes(),
        &1000_u32.to_le_bytes(),
        &100_u32.to_le_bytes(),
        &4242_u32.to_le_bytes(),
        &extension_words.to_le_bytes(),
        &[0, 0],
        &body,
    ]
    .concat()
}

fn n4(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

fn n8(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

/// Splits a message as `readv` does, into a head and frames of `frame` bytes.
fn split(message: &[u8], frame: usize) -> ([u8; HEAD_BYTES], Vec<Vec<u8>>) {
    let mut head = [0xEE; HEAD_BYTES];
    let (first, rest) = message.split_at(message.len().min(HEAD_BYTES));
    head[..first.len()].copy_from_slice(first);
    let mut frames: Vec<Vec<u8>> = rest.chunks(frame).map(<[u8]>::to_vec).collect();
    // Memory behind the message is whatever it was.
    frames.iter_mut().for_each(|f| f.resize(frame, 0xEE));
    (head, frames)
}

/// Decodes a message of the form after INIT and hands it to `check`.
fn decoded(message: &[u8], check: impl FnOnce(Result<Request<'_>, DecodeError>)) {
    let (head, frames) = split(message, 64);
    let mut joined = Vec::new();
    check(Decoder::with_setxattr_ext(true).decode(&head, &frames, message.len(), &mut joined));
}

#[track_caller]
fn is(opcode: u32, body: &[&[u8]], op: Op<'_>) {
    decoded(&message(opcode, body, 0), |request| {
        let request = request.expect("a request");
        assert_eq!((request.unique, request.node, request.opcode), (Unique(7), Node(3), opcode));
        assert_eq!((request.uid, request.gid, request.pid), (1000, 100, 4242));
        assert_eq!(request.op, op);
    });
    in_parts(opcode, &body.concat(), op);
}

/// Decodes a request wherever its first structure may end.
#[track_caller]
fn in_parts(opcode: u32, body: &[u8], op: Op<'_>) {
    let message = message(opcode, &[body], 0);
    let (head, body) = message.split_at(40);
    for at in 0..=body.len().min(128) {
        let mut first = [0xEE; 128];
        first[..at].copy_from_slice(&body[..at]);
        let mut joined = Vec::new();
        let request = Decoder::with_setxattr_ext(true).decode_parts(head, &first, &body[at..], &mut joined);
        let request = request.expect("a request");
        assert_eq!((request.unique, request.uid, request.op), (Unique(7), 1000, op));
    }
}

#[test]
fn data_of_a_write_that_came_in_parts_stay_where_they_are() {
    let write = [&n8(5)[..], &n8(4096), &n4(3), &n4(1), &n8(0), &n4(0), &n4(0)].concat();
    let message = message(16, &[&write, b"abc"], 0);
    let mut first = [0; 128];
    first[..40].copy_from_slice(&write);
    let decode = |head: &[u8], rest: &[u8]| {
        Decoder::with_setxattr_ext(true).decode_parts(head, &first, rest, &mut Vec::new()).map(|request| {
            let Op::Write(write) = request.op else { panic!("a write") };
            (write.fh, write.offset, write.size, write.from_cache)
        })
    };
    assert_eq!(decode(&message[..40], b"abc"), Ok((Handle(5), 4096, 3, true)));
    assert_eq!(decode(&message[..40], b"abcd").unwrap_err().what, Malformed::Short, "less is in front of it");
    let mut long = message[..40].to_vec();
    long[..4].copy_from_slice(&n4(40 + 129 + 3));
    assert_eq!(decode(&long, b"abc").unwrap_err().what, Malformed::Length);
    long[..4].copy_from_slice(&n4(40 + 2));
    assert_eq!(decode(&long, b"abc").unwrap_err().what, Malformed::Length);
    assert_eq!(decode(&message[..39], b"abc").unwrap_err().unique, None);
}

#[track_caller]
fn is_malformed(opcode: u32, body: &[&[u8]], what: Malformed) {
    decoded(&message(opcode, body, 0), |request| {
        assert_eq!(request, Err(DecodeError { unique: Some(Unique(7)), opcode, what }));
    });
}

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

#[test]
fn operations_without_a_body_are_decoded() {
    for (code, op) in [(5, Op::ReadLink), (17, Op::StatFs), (38, Op::Destroy), (50, Op::SyncFs)] {
        is(code, &[], op);
    }
    for unknown in [0, 7, 19, 41, 48, 49, 54, 4096, u32::MAX] {
        is(unknown, &[b"anything"], Op::Unknown);
    }
}

#[test]
fn operations_on_names_are_decoded() {
    is(1, &[b"a\0"], Op::Lookup { name: name("a") });
    is(6, &[b"l\0", b"../to/it\0"], Op::Symlink { name: name("l"), target: name("../to/it") });
    let mknod = Op::MkNod { name: name("p"), mode: 0o10644, rdev: 5, umask: 0o22 };
    is(8, &[&n4(0o10644), &n4(5), &n4(0o22), &n4(0), b"p\0"], mknod);
    is(9, &[&n4(0o755), &n4(0o22), b"d\0"], Op::MkDir { name: name("d"), mode: 0o755, umask: 0o22 });
    is(10, &[b"f\0"], Op::Unlink { name: name("f") });
    is(11, &[b"d\0"], Op::RmDir { name: name("d") });
    let rename = |flags| Op::Rename { name: name("a"), new_parent: Node(9), new_name: name("b"), flags };
    is(12, &[&n8(9), b"a\0b\0"], rename(0));
    is(45, &[&n8(9), &n4(2), &n4(0), b"a\0b\0"], rename(2));
    is(13, &[&n8(11), b"n\0"], Op::Link { target: Node(11), name: name("n") });
}

#[test]
fn names_are_bytes_and_may_be_longer_than_a_frame() {
    let long = vec![0xFF; 255];
    let long = std::os::unix::ffi::OsStrExt::from_bytes(&long[..]);
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(long);
    is(
        12,
        &[&n8(9), bytes, b"\0", bytes, b"\0"],
        Op::Rename { name: long, new_parent: Node(9), new_name: long, flags: 0 },
    );
}

#[test]
fn forgets_are_decoded_and_want_no_reply() {
    is(2, &[&n8(5)], Op::Forget { lookups: 5 });
    is(36, &[&n8(99)], Op::Interrupt { unique: Unique(99) });
    let body: [&[u8]; 6] = [&n4(2), &n4(0), &n8(8), &n8(1), &n8(9), &n8(2)];
    decoded(&message(42, &body, 0), |request| {
        let op = request.unwrap().op;
        assert!(!op.wants_reply());
        let Op::BatchForget(forgets) = op else { panic!("{op:?}") };
        assert_eq!(forgets.collect::<Vec<_>>(), [(Node(8), 1), (Node(9), 2)]);
    });
    assert!(!Op::Forget { lookups: 1 }.wants_reply() && !Op::Interrupt { unique: Unique(1) }.wants_reply());
    assert!(Op::Destroy.wants_reply() && Op::Unknown.wants_reply());
    is_malformed(42, &[&n4(3), &n4(0), &n8(8), &n8(1)], Malformed::Short);
    is_malformed(42, &[&n4(u32::MAX), &n4(0)], Malformed::Short);
}

#[test]
fn attributes_are_decoded() {
    is(3, &[&n4(1), &n4(0), &n8(6)], Op::GetAttr { fh: Some(Handle(6)) });
    is(3, &[&n4(0), &n4(0), &n8(6)], Op::GetAttr { fh: None });
    is(
        52,
        &[&n4(1), &n4(0), &n8(6), &n4(4), &n4(0xFFF)],
        Op::Statx { fh: Some(Handle(6)), flags: 4, mask: 0xFFF },
    );
    is(34, &[&n4(4), &n4(0)], Op::Access { mask: 4 });
}

fn setattr(valid: u32) -> Vec<u8> {
    let longs = [6, 1 << 40, 77, u64::MAX, 20, 30].map(n8).concat();
    let words = [1, 2, 3, 0o100_600, 0, 1001, 101, 0].map(n4).concat();
    [&n4(valid)[..], &n4(0), &longs, &words].concat()
}

#[test]
fn only_valid_fields_of_setattr_are_some() {
    is(4, &[&setattr(0)], Op::SetAttr(SetAttr::default()));
    let all = SetAttr {
        fh: Some(Handle(6)),
        mode: Some(0o100_600),
        uid: Some(1001),
        gid: Some(101),
        size: Some(1 << 40),
        atime: Some(SetTime::To(Time { seconds: -1, nanos: 1 })),
        mtime: Some(SetTime::To(Time { seconds: 20, nanos: 2 })),
        ctime: Some(Time { seconds: 30, nanos: 3 }),
        lock_owner: Some(77),
        kill_suid_gid: true,
    };
    is(4, &[&setattr(0b1110_0111_1111)], Op::SetAttr(all));
    let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
    is(4, &[&setattr(0b1_1011_0000)], Op::SetAttr(now));
    let size = SetAttr { size: Some(1 << 40), ..SetAttr::default() };
    is(4, &[&setattr(1 << 3)], Op::SetAttr(size));
}

#[test]
fn opening_and_closing_are_decoded() {
    let open = Open { flags: 0o2001, kill_suid_gid: true };
    is(14, &[&n4(0o2001), &n4(1)], Op::Open(open));
    is(27, &[&n4(0o2001), &n4(0)], Op::OpenDir(Open { kill_suid_gid: false, ..open }));
    let create: [&[u8]; 4] = [&n4(0o2001), &n4(0o100_644), &n4(0o22), &n4(1)];
    let created = Op::Create { name: name("c"), mode: 0o100_644, umask: 0o22, open };
    is(35, &[&create.concat(), b"c\0"], created);
    is(51, &[&create.concat(), b"/\0"], Op::TmpFile { mode: 0o100_644, umask: 0o22, open });
    let release = Release { fh: Handle(5), flags: 2, lock_owner: Some(8), flock_owner: None };
    is(18, &[&n8(5), &n4(2), &n4(1), &n8(8)], Op::Release(release));
    let flock = Release { lock_owner: None, flock_owner: Some(8), ..release };
    is(18, &[&n8(5), &n4(2), &n4(2), &n8(8)], Op::Release(flock));
    is(29, &[&n8(5), &n4(2), &n4(0), &n8(8)], Op::ReleaseDir(Release { flock_owner: None, ..flock }));
    is(25, &[&n8(5), &n4(0), &n4(0), &n8(8)], Op::Flush { fh: Handle(5), lock_owner: 8 });
    is(20, &[&n8(5), &n4(1), &n4(0)], Op::Fsync { fh: Handle(5), data_only: true });
    is(30, &[&n8(5), &n4(0), &n4(0)], Op::FsyncDir { fh: Handle(5), data_only: false });
}

#[test]
fn extended_attributes_are_decoded_in_both_forms() {
    let set = |clear_sgid| Op::SetXattr { name: name("user.a"), value: b"va\0ue", flags: 1, clear_sgid };
    is(21, &[&n4(5), &n4(1), &n4(1), &n4(0), b"user.a\0va\0ue"], set(true));
    let short = message(21, &[&n4(5), &n4(1), b"user.a\0va\0ue"], 0);
    let (head, frames) = split(&short, 64);
    let mut joined = Vec::new();
    let request = Decoder::new().decode(&head, &frames, short.len(), &mut joined).unwrap();
    assert_eq!(request.op, set(false));
    is(22, &[&n4(64), &n4(0), b"user.a\0"], Op::GetXattr { name: name("user.a"), size: 64 });
    is(23, &[&n4(64), &n4(0)], Op::ListXattr { size: 64 });
    is(24, &[b"user.a\0"], Op::RemoveXattr { name: name("user.a") });
    is_malformed(21, &[&n4(6), &n4(1), &n4(1), &n4(0), b"user.a\0va\0ue"], Malformed::Short);
}

#[test]
fn reads_are_decoded() {
    let transfer: [&[u8]; 7] = [&n8(5), &n8(8192), &n4(4096), &n4(2), &n8(8), &n4(0o40000), &n4(0)];
    let read = Read { fh: Handle(5), offset: 8192, size: 4096, lock_owner: Some(8), flags: 0o40000 };
    is(15, &transfer, Op::Read(read));
    let dir = ReadDir { fh: Handle(5), offset: 8192, size: 4096 };
    is(28, &transfer, Op::ReadDir(dir));
    is(44, &transfer, Op::ReadDirPlus(dir));
}

#[test]
fn locks_are_decoded_and_unknown_kinds_are_malformed() {
    let body = |kind| [&n8(5)[..], &n8(8), &n8(0), &n8(99), &n4(kind), &n4(4242), &n4(1), &n4(0)].concat();
    let lock = Lock { start: 0, end: 99, kind: LockKind::Write, pid: 4242 };
    let request = LockRequest { fh: Handle(5), owner: 8, lock, flock: true };
    is(31, &[&body(1)], Op::GetLock(request));
    is(32, &[&body(1)], Op::SetLock(request));
    is(33, &[&body(1)], Op::SetLockWait(request));
    is_malformed(33, &[&body(3)], Malformed::Value);
}

#[test]
fn the_other_operations_are_decoded() {
    let init = Init { major: 7, minor: 45, max_readahead: 131_072, flags: 0x2_4000_0001 };
    is(26, &[&n4(7), &n4(45), &n4(131_072), &n4(0x4000_0001), &n4(2), &[0; 44]], Op::Init(init));
    let old = Init { minor: 31, flags: 1, ..init };
    is(26, &[&n4(7), &n4(31), &n4(131_072), &n4(1)], Op::Init(old));
    is(37, &[&n8(3), &n4(512), &n4(0)], Op::Bmap { block: 3, block_size: 512 });
    let ioctl = Op::Ioctl { fh: Handle(5), flags: 0, cmd: 0x6601, arg: 9, input: b"xyz", out_size: 8 };
    is(39, &[&n8(5), &n4(0), &n4(0x6601), &n8(9), &n4(3), &n4(8), b"xyz"], ioctl);
    is_malformed(39, &[&n8(5), &n4(0), &n4(0x6601), &n8(9), &n4(4), &n4(8), b"xyz"], Malformed::Short);
    let poll = Op::Poll { fh: Handle(5), kh: 6, events: 0x41, schedule_notify: true };
    is(40, &[&n8(5), &n8(6), &n4(1), &n4(0x41)], poll);
    let fallocate = Op::Fallocate { fh: Handle(5), offset: 1, length: 2, mode: 3 };
    is(43, &[&n8(5), &n8(1), &n8(2), &n4(3), &n4(0)], fallocate);
    is(46, &[&n8(5), &n8(1), &n4(3), &n4(0)], Op::Lseek { fh: Handle(5), offset: 1, whence: 3 });
    let copy = |count| {
        let (fh_in, node_out, fh_out) = (Handle(1), Node(3), Handle(4));
        Op::CopyFileRange(CopyFileRange {
            fh_in,
            offset_in: 2,
            node_out,
            fh_out,
            offset_out: 5,
            len: 6,
            flags: 0,
            count,
        })
    };
    let body = [1, 2, 3, 4, 5, 6, 0].map(n8).concat();
    is(47, &[&body], copy(CopyCount::Bits32));
    is(53, &[&body], copy(CopyCount::Bits64));
}

#[test]
fn data_of_a_write_stay_in_the_frames() {
    let transfer: [&[u8]; 8] = [&n8(5), &n8(8192), &n4(100), &n4(7), &n8(8), &n4(1), &n4(0), &[0xAB; 100]];
    let message = message(16, &transfer, 0);
    let (head, frames) = split(&message, 64);
    let mut joined = Vec::new();
    let request = Decoder::new().decode(&head, &frames, message.len(), &mut joined).unwrap();
    let write = Write {
        fh: Handle(5),
        offset: 8192,
        size: 100,
        from_cache: true,
        kill_suid_gid: true,
        lock_owner: Some(8),
        flags: 1,
    };
    assert_eq!(request.op, Op::Write(write));
    assert_eq!(joined.capacity(), 0, "nothing is copied");
    assert_eq!((&frames[0][..], &frames[1][..36]), (&[0xAB; 64][..], &[0xAB; 36][..]));
}

#[test]
fn a_write_whose_size_is_not_that_of_its_data_is_malformed() {
    for (size, data) in [(100, 99), (99, 100), (0, 1)] {
        let data = vec![0; data];
        let transfer: [&[u8]; 8] = [&n8(5), &n8(0), &n4(size), &n4(0), &n8(0), &n4(0), &n4(0), &data];
        is_malformed(16, &transfer, Malformed::Length);
    }
    is_malformed(16, &[&n8(5)], Malformed::Short);
}

#[test]
fn the_supplementary_group_is_found_behind_the_name() {
    let mkdir: [&[u8]; 3] = [&n4(0o755), &n4(0), b"dir\0\0\0\0\0"];
    let other: [&[u8]; 3] = [&n4(16), &n4(33), &n8(1)];
    let groups: [&[u8]; 4] = [&n4(16), &n4(32), &n4(1), &n4(2000)];
    let message = message(9, &[&mkdir.concat(), &other.concat(), &groups.concat()], 4);
    decoded(&message, |request| {
        let request = request.unwrap();
        assert_eq!(request.supplementary_group, Some(2000));
        assert_eq!(request.op, Op::MkDir { name: name("dir"), mode: 0o755, umask: 0 });
    });
}

#[test]
fn malformed_messages_are_errors_with_what_is_known_of_them() {
    is_malformed(1, &[b"no end"], Malformed::Unterminated);
    is_malformed(1, &[b"\0"], Malformed::Name);
    is_malformed(1, &[b"a/b\0"], Malformed::Name);
    is_malformed(14, &[&n4(0)], Malformed::Short);
    let mut wrong = message(17, &[], 0);
    wrong[0] += 1;
    decoded(&wrong, |request| assert_eq!(request.unwrap_err().what, Malformed::Length));
    decoded(&message(17, &[], 1), |request| assert_eq!(request.unwrap_err().what, Malformed::Short));
    decoded(&[1; 39], |request| assert_eq!(request.unwrap_err().unique, None));
}

/// Every shortened form of a request fails or is another request; none panics.
#[test]
fn cut_requests_do_not_panic() {
    for code in 0..=55 {
        let whole = message(code, &[&[1; 120]], 0);
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            if let Some(field) = cut.first_chunk_mut::<4>() {
                *field = n4(u32::try_from(len).unwrap());
            }
            decoded(&cut, |_| ());
        }
    }
}

proptest! {
    #[test]
    fn fuzz_arbitrary_bytes_never_panic(
        code in 0_u32..60,
        words in 0_u16..8,
        body in proptest::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..400),
        claimed in proptest::option::of(any::<usize>()),
        frame in 1_usize..200,
        extended: bool,
    ) {
        let message = message(code, &[&body], words);
        let (head, frames) = split(&message, frame);
        let mut joined = Vec::new();
        let received = claimed.unwrap_or(message.len());
        let decoder = Decoder::with_setxattr_ext(extended);
        if let Ok(request) = decoder.decode(&head, &frames, received, &mut joined)
            && let Op::BatchForget(forgets) = request.op
        {
            prop_assert!(forgets.count() * 16 <= body.len());
        }
    }

    #[test]
    fn fuzz_arbitrary_parts_never_panic(
        code in 0_u32..60,
        words in 0_u16..8,
        body in proptest::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..400),
        claimed in proptest::option::of(0_u32..600),
        at in 0_usize..400,
    ) {
        let mut message = message(code, &[&body], words);
        if let Some(claimed) = claimed {
            message[..4].copy_from_slice(&n4(claimed));
        }
        let mut joined = Vec::new();
        let rest = &body[at.min(body.len())..];
        let _ = Decoder::with_setxattr_ext(true).decode_parts(&message[..40], &[1; 128], rest, &mut joined);
    }

    #[test]
    fn fuzz_names_and_values_come_back(
        first in "[^/\0]{1,255}",
        second in "[^/\0]{1,255}",
        value in proptest::collection::vec(any::<u8>(), 0..5000),
        flags: u32,
    ) {
        let value_len = u32::try_from(value.len()).unwrap();
        let head: [&[u8]; 4] = [&n4(value_len), &n4(flags), &n4(0), &n4(0)];
        let (a, b) = (OsStr::new(&first), OsStr::new(&second));
        let set = Op::SetXattr { name: a, value: &value, flags, clear_sgid: false };
        is(21, &[&head.concat(), first.as_bytes(), b"\0", &value], set);
        let rename = Op::Rename { name: a, new_parent: Node(9), new_name: b, flags };
        is(45, &[&n8(9), &n4(flags), &n4(0), first.as_bytes(), b"\0", second.as_bytes(), b"\0"], rename);
    }
}
