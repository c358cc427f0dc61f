//! Errors of the files as error numbers of Linux.

use landfall_fs::{FsError, NameError, TreeError};
use landfall_fuse::Errno;
use landfall_heap::HeapError;
use landfall_media::MediaError;

/// `EINVAL`: an argument makes no sense.
pub(crate) const INVALID: Errno = Errno::from_raw(libc::EINVAL);
/// `ENOSPC`: the region is full.
pub(crate) const NO_SPACE: Errno = Errno::from_raw(libc::ENOSPC);
/// `EOPNOTSUPP`: not this file, or not in this way.
pub(crate) const NOT_SUPPORTED: Errno = Errno::from_raw(libc::EOPNOTSUPP);
/// `ESTALE`: there is no such inode any more.
pub(crate) const STALE: Errno = Errno::from_raw(libc::ESTALE);
/// `ENOLCK`: the mount has as many locks as it may.
pub(crate) const NO_LOCKS: Errno = Errno::from_raw(libc::ENOLCK);
/// `ERANGE`: there is more than the caller has room for.
pub(crate) const TOO_SMALL: Errno = Errno::from_raw(libc::ERANGE);

/// The error number for a failure. Damage and errors of the medium are logged here: the kernel learns no more than `EIO`.
pub(crate) fn errno_of(error: &FsError) -> Errno {
    match error {
        FsError::Tree(error) => of_tree(*error),
        FsError::Heap(HeapError::Full) => NO_SPACE,
        FsError::Heap(HeapError::TooLarge { .. }) => Errno::from_raw(libc::EFBIG),
        // The thread that keeps the region has said it once.
        FsError::Heap(HeapError::Media(MediaError::Closed { .. })) => Errno::IO,
        error => {
            tracing::error!(%error, "a request fails");
            Errno::IO
        }
    }
}

fn of_tree(error: TreeError) -> Errno {
    Errno::from_raw(match error {
        TreeError::NotFound => libc::ENOENT,
        TreeError::Exists => libc::EEXIST,
        TreeError::NotADirectory => libc::ENOTDIR,
        TreeError::IsADirectory => libc::EISDIR,
        TreeError::NotEmpty => libc::ENOTEMPTY,
        TreeError::Invalid => libc::EINVAL,
        TreeError::NotPermitted => libc::EPERM,
        TreeError::TooManyLinks => libc::EMLINK,
        TreeError::NoSpace => libc::ENOSPC,
        TreeError::TooLarge => libc::EFBIG,
        TreeError::NoAttribute => libc::ENODATA,
        TreeError::Unread(_) => libc::EIO,
    })
}

/// The error number for a name that no file may have.
pub(crate) fn of_name(error: NameError) -> Errno {
    Errno::from_raw(match error {
        NameError::TooLong => libc::ENAMETOOLONG,
        NameError::Invalid => libc::EINVAL,
    })
}
