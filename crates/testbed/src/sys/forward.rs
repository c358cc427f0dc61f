//! A BPF program in the kernel's traffic control that forwards frames to another interface, or drops them.

use super::checked::checked;
use super::interface::index_of;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

// Values of linux/bpf.h.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;
const FUNC_GET_PRANDOM_U32: i32 = 7;
const FUNC_REDIRECT: i32 = 23;
/// Verdict: the frame is dropped.
const TCX_DROP: i32 = 2;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// Destination register in the low half, source register in the high half.
    registers: u8,
    off: i16,
    imm: i32,
}

const fn instruction(code: u8, register: u8, off: i16, imm: i32) -> Instruction {
    Instruction { code, registers: register, off, imm }
}

const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// `if (register as u32) < imm goto off`.
const JUMP_IF_LESS: u8 = 0xa6;
const MOVE: u8 = 0xb7;

#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
}

#[repr(C)]
struct Link {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    _padding: u32,
    revision: u64,
}

/// Forwards frames that arrive on one interface to another, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Forwarder {
    _link: OwnedFd,
}

impl Forwarder {
    /// Attaches the program between two interfaces of the calling thread's namespace. It drops `lose` of 10,000 frames.
    pub(crate) fn new(from: &str, to: &str, lose: u32) -> io::Result<Self> {
        let (from, to) = (index_of(from)?, index_of(to)?);
        let bound = (u64::from(lose.min(10_000)) << 32) / 10_000;
        let bound = u32::try_from(bound).unwrap_or(u32::MAX).cast_signed();
        let code = [
            instruction(CALL, 0, 0, FUNC_GET_PRANDOM_U32),
            instruction(JUMP_IF_LESS, 0, 4, bound),
            instruction(MOVE, 1, 0, to.cast_signed()),
            instruction(MOVE, 2, 0, 0),
            instruction(CALL, 0, 0, FUNC_REDIRECT),
            instruction(EXIT, 0, 0, 0),
            instruction(MOVE, 0, 0, TCX_DROP),
            instruction(EXIT, 0, 0, 0),
        ];
        let license = c"Apache-2.0";
        let mut load = Load {
            kind: BPF_PROG_TYPE_SCHED_CLS,
            instructions: code.len() as u32,
            code: code.as_ptr().expose_provenance() as u64,
            license: license.as_ptr().expose_provenance() as u64,
            ..Load::default()
        };
        let program = call(BPF_PROG_LOAD, &mut load)?;
        let mut link = Link {
            program: program.as_raw_fd().cast_unsigned(),
            ifindex: from,
            attach_type: BPF_TCX_INGRESS,
            flags: 0,
            relative: 0,
            _padding: 0,
            revision: 0,
        };
        Ok(Self { _link: call(BPF_LINK_CREATE, &mut link)? })
    }
}

/// `bpf(2)` with the attributes `attr`, for commands that return a new descriptor.
fn call<T>(command: libc::c_int, attr: &mut T) -> io::Result<OwnedFd> {
    let (attr, bytes) = (std::ptr::from_mut(attr), size_of::<T>());
    // SAFETY: the kernel reads `bytes` bytes of `attr`; the addresses in it are of buffers that the caller borrows.
    let fd = checked(unsafe { libc::syscall(libc::SYS_bpf, command, attr, bytes) })?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the command returned a new descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
