//! Random bytes, as names of what must not be taken for something else.

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// Random bytes of the kernel.
///
/// # Errors
/// The kernel has none.
pub(crate) fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(bytes)
}
