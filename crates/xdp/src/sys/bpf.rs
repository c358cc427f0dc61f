//! `bpf(2)`: maps, programs, links and pins. Structures and constants are those of `linux/bpf.h`.

use super::checked::checked;
use crate::bpf::Instruction;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const OBJ_PIN: libc::c_int = 6;
const OBJ_GET: libc::c_int = 7;
#[cfg(test)]
const PROG_TEST_RUN: libc::c_int = 10;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const LINK_DETACH: libc::c_int = 34;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_DEVMAP: u32 = 14;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
/// `BPF_LINK_TYPE_XDP`.
const LINK_TYPE_XDP: u32 = 6;
/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`: the program supports packets of several buffers.
const HAS_FRAGMENTS: u32 = 1 << 5;
/// Size of the buffer for the verifier's log, bytes.
const LOG_BYTES: usize = 64 << 10;
/// Licence of the programs, which call no helper that requires a GPL-compatible one.
const LICENCE: &std::ffi::CStr = c"MIT";

/// `union bpf_attr`, the part for `MAP_CREATE`.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// For `MAP_LOOKUP_ELEM` and `MAP_UPDATE_ELEM`.
#[repr(C)]
struct MapEntry {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// For `PROG_LOAD`, up to `expected_attach_type`.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    program_type: u32,
    instructions: u32,
    code: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
}

/// For `OBJ_PIN` and `OBJ_GET`.
#[repr(C)]
struct Object {
    path: u64,
    fd: u32,
    flags: u32,
}

/// For `LINK_CREATE`.
#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

/// For `LINK_UPDATE`.
#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

/// For `OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct ObjectInfo {
    fd: u32,
    bytes: u32,
    into: u64,
}

/// `struct bpf_link_info`, up to the part of XDP links.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    ifindex: u32,
    rest: u32,
}

const _: () = assert!(size_of::<LinkInfo>() == 24);

/// Where the driver or the kernel runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachFlags {
    /// `XDP_FLAGS_SKB_MODE`.
    Skb = 2,
    /// `XDP_FLAGS_DRV_MODE`.
    Driver = 4,
}

/// The error for a rejected program, with the verifier's log.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) source: io::Error,
    pub(crate) log: String,
}

/// `bpf(2)` with the attributes `attr`; the result is an fd or zero.
fn call<T>(command: libc::c_int, attr: &mut T) -> io::Result<usize> {
    let (attr, bytes) = (std::ptr::from_mut(attr), size_of::<T>());
    // SAFETY: the kernel reads, and for some commands writes, `bytes` bytes of `attr`; the addresses in `attr` are
    // those of buffers that the callers below borrow until this returns.
    checked(unsafe { libc::syscall(libc::SYS_bpf, command, attr, bytes) })
}

fn owned(fd: usize) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the caller's command returned a new descriptor with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<u8>().expose_provenance() as u64
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// A map from queue to AF_XDP socket.
#[derive(Debug)]
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    pub(crate) fn new(queues: u32) -> io::Result<Self> {
        new_map(MAP_TYPE_XSKMAP, (queues, 4)).map(Self)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn set(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        set_entry(&self.0, queue, socket.cast_unsigned())
    }
}

/// A map with one interface to redirect to. The kernel empties the map when the interface is removed.
#[derive(Debug)]
pub(crate) struct DeviceMap(OwnedFd);

impl DeviceMap {
    /// An empty map.
    pub(crate) fn new() -> io::Result<Self> {
        new_map(MAP_TYPE_DEVMAP, (1, 4)).map(Self)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sets the interface. `ifindex` belongs to the calling thread's network namespace.
    pub(crate) fn set(&self, ifindex: u32) -> io::Result<()> {
        set_entry(&self.0, 0, ifindex)
    }
}

/// A counter that a program increments.
#[derive(Debug)]
pub(crate) struct Counter(OwnedFd);

impl Counter {
    /// A counter at zero.
    pub(crate) fn new() -> io::Result<Self> {
        new_map(MAP_TYPE_ARRAY, (1, 8)).map(Self)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn get(&self) -> io::Result<u64> {
        let (key, mut value) = (0u32, 0u64);
        let into = (&raw mut value).expose_provenance() as u64;
        let mut attr =
            MapEntry { map: number(&self.0), padding: 0, key: address(&key), value: into, flags: 0 };
        call(MAP_LOOKUP_ELEM, &mut attr)?;
        Ok(value)
    }
}

/// A map from numbers below `entries` to values of `value_bytes` bytes.
fn new_map(map_type: u32, (entries, value_bytes): (u32, u32)) -> io::Result<OwnedFd> {
    let mut attr = MapCreate { map_type, key_bytes: 4, value_bytes, entries, flags: 0 };
    owned(call(MAP_CREATE, &mut attr)?)
}

fn set_entry(map: &OwnedFd, key: u32, value: u32) -> io::Result<()> {
    let (key, value) = (address(&key), address(&value));
    let mut attr = MapEntry { map: number(map), padding: 0, key, value, flags: 0 };
    call(MAP_UPDATE_ELEM, &mut attr).map(drop)
}

/// A loaded XDP program.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads `code` under a readable name. The verifier's log is requested only if the program was rejected.
    pub(crate) fn load(name: [u8; 16], code: &[Instruction], fragments: bool) -> Result<Self, Refused> {
        let mut attr = ProgramLoad {
            program_type: PROG_TYPE_XDP,
            instructions: u32::try_from(code.len()).unwrap_or(u32::MAX),
            code: address(code),
            licence: address(LICENCE.to_bytes_with_nul()),
            flags: if fragments { HAS_FRAGMENTS } else { 0 },
            name,
            attach_type: ATTACH_XDP,
            ..ProgramLoad::default()
        };
        let first = match call(PROG_LOAD, &mut attr).and_then(owned) {
            Ok(fd) => return Ok(Self(fd)),
            Err(source) => source,
        };
        let mut log = vec![0u8; LOG_BYTES];
        (attr.log_level, attr.log_bytes, attr.log) = (1, LOG_BYTES as u32, address(log.as_mut_slice()));
        match call(PROG_LOAD, &mut attr).and_then(owned) {
            Ok(fd) => Ok(Self(fd)),
            Err(_) => {
                log.truncate(log.iter().position(|byte| *byte == 0).unwrap_or(LOG_BYTES));
                Err(Refused { source: first, log: String::from_utf8_lossy(&log).into_owned() })
            }
        }
    }

    /// The verdict of the program on `packet` on queue 0 (`BPF_PROG_TEST_RUN`).
    #[cfg(test)]
    pub(crate) fn test_run(&self, packet: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        /// For `PROG_TEST_RUN`, up to `duration`.
        #[repr(C)]
        #[derive(Default)]
        struct TestRun {
            program: u32,
            answer: u32,
            bytes_in: u32,
            bytes_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
        }
        let mut out = vec![0u8; packet.len() + 64];
        let mut attr = TestRun {
            program: number(&self.0),
            bytes_in: u32::try_from(packet.len()).map_err(io::Error::other)?,
            bytes_out: u32::try_from(out.len()).map_err(io::Error::other)?,
            data_in: address(packet),
            data_out: address(out.as_mut_slice()),
            ..TestRun::default()
        };
        call(PROG_TEST_RUN, &mut attr)?;
        out.truncate(attr.bytes_out as usize);
        Ok((attr.answer, out))
    }
}

/// A program attached to an interface. It stays attached while the descriptor is open or a pin exists.
#[derive(Debug)]
pub(crate) struct Attachment(OwnedFd);

impl Attachment {
    pub(crate) fn new(program: &Program, ifindex: u32, flags: AttachFlags) -> io::Result<Self> {
        let mut attr = LinkCreate {
            program: number(&program.0),
            target: ifindex,
            attach_type: ATTACH_XDP,
            flags: flags as u32,
        };
        Ok(Self(owned(call(LINK_CREATE, &mut attr)?)?))
    }

    /// Replaces the attached program atomically: every packet meets one of the two.
    pub(crate) fn replace(&self, program: &Program) -> io::Result<()> {
        let (link, program) = (number(&self.0), number(&program.0));
        call(LINK_UPDATE, &mut LinkUpdate { link, program, flags: 0, old_program: 0 }).map(drop)
    }

    /// Index of the interface, in whichever network namespace it is; `None` if the interface was removed, or if this is
    /// not an XDP link.
    pub(crate) fn ifindex(&self) -> io::Result<Option<u32>> {
        let mut info = LinkInfo::default();
        let (bytes, into) = (size_of::<LinkInfo>() as u32, (&raw mut info).expose_provenance() as u64);
        call(OBJ_GET_INFO_BY_FD, &mut ObjectInfo { fd: number(&self.0), bytes, into })?;
        Ok((info.kind == LINK_TYPE_XDP && info.ifindex != 0).then_some(info.ifindex))
    }

    /// Pins the attachment, so that the program stays attached when this process ends.
    pub(crate) fn pin(&self, path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let path = address(path.as_bytes_with_nul());
        call(OBJ_PIN, &mut Object { path, fd: number(&self.0), flags: 0 }).map(drop)
    }

    /// Opens the attachment pinned at `path`.
    pub(crate) fn pinned(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let path = address(path.as_bytes_with_nul());
        Ok(Self(owned(call(OBJ_GET, &mut Object { path, fd: 0, flags: 0 })?)?))
    }

    /// Detaches at once, even if other processes hold the link.
    pub(crate) fn detach(&self) -> io::Result<()> {
        call(LINK_DETACH, &mut number(&self.0)).map(drop)
    }
}
