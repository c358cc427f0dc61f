//! Unsafe code: clocks, a packet socket, and memory that the kernel writes.

#![allow(unsafe_code)]

mod clock;
mod segments;
mod zone;

pub(crate) use clock::{monotonic_ns, unix_ns};
pub(crate) use segments::{SegmentSocket, cut_header};
pub(crate) use zone::Zone;
