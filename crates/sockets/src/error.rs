//! Errors of the transport itself. Errors of a connection are events.

use std::io;
use std::time::Duration;

/// Why a transport could not be opened, or cannot continue. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// `io_uring_setup` failed with `EPERM` or `EACCES`.
    #[error(
        "io_uring is refused here ({source}): set the sysctl kernel.io_uring_disabled to 0, or allow \
         io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile"
    )]
    Refused {
        /// The kernel's error.
        source: io::Error,
    },
    /// `io_uring_setup` failed with `ENOSYS`.
    #[error("this kernel is built without io_uring ({source}): use epoll, or a kernel of 6.12 or later")]
    Absent {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel has io_uring, but not a feature that receiving into whole runs requires.
    #[error("this kernel's io_uring lacks {feature} (Linux {since} has it): use epoll, or a later kernel")]
    MissingFeature {
        /// The feature's name in the kernel's interface.
        feature: &'static str,
        /// The first kernel release with it.
        since: &'static str,
    },
    /// Not enough lockable memory, `ENOMEM`.
    #[error(
        "{what} needs more memory than it may lock ({source}): raise RLIMIT_MEMLOCK (ulimit -l), or free memory"
    )]
    LockedMemory {
        /// What was being set up.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The process or the machine has no free file descriptor.
    #[error(
        "{what} found no free file descriptor ({source}): raise RLIMIT_NOFILE (ulimit -n) or fs.file-max"
    )]
    TooManyFiles {
        /// What was being set up.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another operation of the transport itself failed.
    #[error("{what} failed: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Operations were still in flight when the transport was shut down.
    #[error(
        "{operations} operations were still in flight {waited:?} after they were cancelled: keep the region mapped"
    )]
    NotDrained {
        /// The number of operations that were still in flight.
        operations: usize,
        /// How long the transport waited for them.
        waited: Duration,
    },
}

impl TransportError {
    /// Sorts an error of `what` by what a person can do about it.
    pub(crate) fn sort(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOMEM) => Self::LockedMemory { what, source },
            Some(libc::EMFILE | libc::ENFILE) => Self::TooManyFiles { what, source },
            _ => Self::System { what, source },
        }
    }

    /// Sorts an error of `io_uring_setup`.
    pub(crate) fn sort_setup(source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Refused { source },
            Some(libc::ENOSYS) => Self::Absent { source },
            Some(libc::EINVAL) => Self::MissingFeature { feature: "IORING_SETUP_NO_SQARRAY", since: "6.6" },
            _ => Self::sort("io_uring_setup", source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice_for(errno: i32) -> String {
        TransportError::sort_setup(io::Error::from_raw_os_error(errno)).to_string()
    }

    #[test]
    fn each_refusal_names_the_setting_that_lifts_it() {
        assert!(advice_for(libc::EPERM).contains("kernel.io_uring_disabled"));
        assert!(advice_for(libc::ENOSYS).contains("epoll"));
        assert!(advice_for(libc::ENOMEM).contains("RLIMIT_MEMLOCK"));
        assert!(advice_for(libc::EMFILE).contains("RLIMIT_NOFILE"));
        assert!(advice_for(libc::EINVAL).contains("6.6"));
    }
}
