//! What needs `unsafe`: clocks, and memory that the kernel writes to.

#![allow(unsafe_code)]

mod clock;
mod zone;

pub(crate) use clock::{monotonic_ns, unix_ns};
pub(crate) use zone::Zone;
