//! A mount is taken from the tree.

use crate::sys;
use landfall_fuse::{Mount, MountError, Unmount};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// How long the end waits for programs that still use a mount which was detached.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

/// How a mount was taken from the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    /// Nobody used it: it has ended.
    Idle,
    /// It ends with the programs that use it.
    InUse,
}

/// Takes a mount from the tree. Before it is detached while programs use it, `prepare` is called with the mountpoint.
pub(crate) fn detach(mount: &mut Mount, prepare: impl FnOnce(&Path)) -> Detached {
    match mount.unmount(Unmount::WhenIdle) {
        Ok(()) => return Detached::Idle,
        Err(MountError::Busy { point }) => tracing::warn!(
            "{}: programs still use it; it is detached, and their files end in {} s",
            point.display(),
            LINGER.as_secs()
        ),
        Err(error) => tracing::warn!(%error, "it is detached instead"),
    }
    prepare(mount.point());
    if let Err(error) = mount.unmount(Unmount::Lazily) {
        tracing::error!(%error, "it stays mounted, without a server");
    }
    Detached::InUse
}

/// Writes back what the kernel keeps, as far as it can be reached.
pub(crate) fn write_back(point: &Path) {
    if let Ok(directory) = std::fs::File::open(point)
        && let Err(error) = sys::sync_file_system(directory.as_fd())
    {
        tracing::warn!(%error, "what the kernel keeps is not written back");
    }
}
