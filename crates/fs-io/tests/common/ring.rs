//! Permission to use FUSE over io_uring, for the moment in which a mount begins.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Mounts may use io_uring as long as this lives.
pub(crate) struct RingAllowed {
    _parameter: Parameter,
}

/// Mounts may not use io_uring as long as this lives.
pub(crate) struct RingForbidden {
    _parameter: Parameter,
}

impl RingAllowed {
    /// Allows it, if this user may. `None` where that is not possible, which was said.
    pub(crate) fn new() -> Option<Self> {
        Some(Self { _parameter: Parameter::with("Y")? })
    }
}

impl RingForbidden {
    /// As [`RingAllowed::new`].
    pub(crate) fn new() -> Option<Self> {
        Some(Self { _parameter: Parameter::with("N")? })
    }
}

/// The kernel's parameter with a value of the test's. It gets the value back that it had.
struct Parameter {
    /// Locked, so that no other test changes it meanwhile.
    _lock: File,
    before: String,
}

impl Parameter {
    fn with(value: &str) -> Option<Self> {
        match Self::try_with(value) {
            Ok(parameter) => Some(parameter),
            Err(error) => {
                eprintln!("SKIP: FUSE over io_uring: {PARAMETER}: {error}");
                None
            }
        }
    }

    fn try_with(value: &str) -> io::Result<Self> {
        let mut lock = File::open(PARAMETER)?;
        lock.lock()?;
        let mut before = String::new();
        lock.read_to_string(&mut before)?;
        let before = before.trim().to_owned();
        if before != value {
            set(value)?;
        }
        Ok(Self { _lock: lock, before })
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        // Who could change it can change it back; who need not have changed it may not be able to.
        let _ = set(&self.before);
    }
}

fn set(value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(PARAMETER)?.write_all(value.as_bytes())
}
