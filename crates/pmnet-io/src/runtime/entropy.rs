//! The system's entropy.

use super::socket::RuntimeError;

/// A random number from the system's entropy.
///
/// # Errors
/// The error of the system call.
pub(crate) fn random() -> Result<u64, RuntimeError> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        let more = rustix::rand::getrandom(&mut bytes[filled..], flags);
        filled +=
            more.map_err(|errno| RuntimeError::Kernel { what: "draw random bytes", source: errno.into() })?;
    }
    Ok(u64::from_le_bytes(bytes))
}
