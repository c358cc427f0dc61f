//! Addresses in the region, and system calls.
//!
//! Unsafe code is allowed here, because a transport passes addresses to the kernel, and no safe wrapper knows that the
//! kernel may write the bytes behind them. The rest of the crate is safe code over what this module exports.
#![allow(unsafe_code)]

mod buffers;
mod checked;
mod epoll;
mod eventfd;
mod file;
mod message;
mod region;
mod ring;
mod socket;

pub(crate) use buffers::{BUFFERS_MAX, BufferId};
pub(crate) use epoll::{Epoll, Interest, Ready};
pub(crate) use eventfd::EventFd;
pub(crate) use file::write_durably;
pub(crate) use message::Message;
pub(crate) use region::Region;
pub(crate) use ring::{Completion, Ring, SideRing};
pub(crate) use socket::{adopt, receive, send};
