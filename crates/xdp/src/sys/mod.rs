//! System calls, mapped rings and the bytes in front of packets.
//!
//! Unsafe code is allowed here, because rings and packets are memory that the kernel writes. The rest of the crate is
//! safe code over what this module exports.
#![allow(unsafe_code)]

mod area;
pub(crate) mod bpf;
mod checked;
#[cfg(test)]
mod model;
mod netdev;
mod rings;
mod socket;

pub(crate) use area::Area;
pub(crate) use netdev::{addresses, current_namespace, join_all, join_multicast, link, set_promiscuous};
pub(crate) use rings::Mapped;
pub(crate) use socket::{BindFlags, RawSocket, RingKind, raise_memlock};
