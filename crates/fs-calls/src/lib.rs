//! Calls of a program on files, answered in its own process: the functions of the C library that `LD_PRELOAD` replaces.
//!
//! Every descriptor stays one of the kernel. An [`Engine`] answers in the process what it can: `read`, `write`, `pread`,
//! `pwrite`, their vector forms, `lseek`, `fsync`, `fdatasync`. All else is passed on. Read [`Calls`] first: it decides.
//! It does no I/O of its own; `sys` contains the functions that programs call.
//!
//! Calling contract: a shared library links this crate and calls [`install`] when it is loaded, before the program's
//! `main`. From then on the functions of this crate replace those of the C library, so that a program that only depends
//! on this crate must not link it.
//!
//! The library answers for a descriptor only if it has seen the calls of `open` and `dup` that made it, and only as long
//! as nobody outside the process can share its offset. What a program gets in another way (by inheritance, over a socket, from
//! stdio) is the kernel's.

#![deny(unsafe_code)]

mod calls;
mod engine;
mod kernel;
// A test is a program, too: its own calls stay as they are.
#[cfg(not(test))]
mod sys;
mod table;
#[cfg(test)]
mod tests;

pub use calls::{Answered, Calls, Counts};
pub use engine::{Engine, Errno, FileId, Opened, Refused, Use, Written};
pub use kernel::Kernel;
#[cfg(not(test))]
pub use sys::install;
pub use table::{Access, Descriptor, Durable, Offset, Place, Table, Writes};
