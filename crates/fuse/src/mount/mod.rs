//! Mounts and unmounts: by `mount(2)` where the user may, else through `fusermount3`.

mod error;
mod helper;
mod options;
mod table;

pub use error::MountError;
pub use options::{Access, MountFlags, MountOptions, OptionError, OtherOption, Permissions};

use crate::device::Device;
use crate::sys;
use rustix::fs::{AtFlags, CWD, StatxFlags, statfs, statx};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `STATX_MNT_ID_UNIQUE`.
const MOUNT_NUMBER: u32 = 0x4000;

/// What to do where programs use the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Nothing: [`MountError::Busy`].
    WhenIdle,
    /// It disappears from the tree at once, and ends when the last program has closed its last file of it.
    Lazily,
}

/// A mount. When it is dropped, it is unmounted lazily, so that no directory is left that answers "Transport endpoint is
/// not connected".
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    /// What the kernel has mounted there, as long as it is ours to unmount.
    mounted: Option<Mounted>,
}

/// What the kernel calls a mount.
#[derive(Debug)]
struct Mounted {
    /// `major:minor`. It is given again when the file system has ended.
    device: String,
    /// A number that no other mount has, nor had since the machine was started (Linux 6.8); `None`: unknown.
    number: Option<u64>,
}

impl Mounted {
    /// What is mounted on a directory.
    fn on(point: &Path) -> Option<Self> {
        let device = table::mounted_on(point)?;
        Some(Self { device, number: mount_number(point) })
    }

    /// True if what is mounted now is this, as far as it is known.
    fn is(&self, here: &Self) -> bool {
        self.device == here.device && (self.number.is_none() || self.number == here.number)
    }
}

/// Mounts on a directory. The kernel sends INIT first; what uses the mount waits until it is answered.
///
/// # Errors
/// A refusal, with what to do about it.
pub fn mount(point: &Path, options: &MountOptions) -> Result<(Device, Mount), MountError> {
    let point = checked(point)?;
    let device = match mount_directly(&point, options)? {
        Some(device) => device,
        None => {
            let fd = helper::mount(&point, &options.as_text())?;
            Device::from_fd(fd).map_err(|source| MountError::NoDevice { source })?
        }
    };
    let mounted = Mounted::on(&point);
    Ok((device, Mount { point, mounted }))
}

/// Unmounts whatever is mounted on `point`: a mount of another process, or one whose server has died. It is no error
/// if nothing is mounted there.
///
/// Unless it is lazy, the kernel writes back what it keeps first, so that the server must go on answering meanwhile.
///
/// # Errors
/// [`MountError::Busy`], or another refusal.
pub fn unmount(point: &Path, how: Unmount) -> Result<(), MountError> {
    let flags = if how == Unmount::Lazily { libc::MNT_DETACH } else { 0 } | libc::UMOUNT_NOFOLLOW;
    let kernel = |source| MountError::Kernel { point: point.to_owned(), source };
    let path = CString::new(point.as_os_str().as_bytes()).map_err(|error| kernel(error.into()))?;
    let Err(error) = sys::umount(&path, flags) else { return Ok(()) };
    match error.raw_os_error() {
        Some(libc::EPERM) => helper::unmount(point, how == Unmount::Lazily),
        Some(libc::EBUSY) => Err(MountError::Busy { point: point.to_owned() }),
        // Nothing is mounted there, or the directory is gone.
        Some(libc::EINVAL | libc::ENOENT) => Ok(()),
        _ => Err(kernel(error)),
    }
}

/// Unmounts what a server of the same kind has mounted on `point`, if it has died. Returns whether there was such a mount.
///
/// # Errors
/// As for [`unmount`].
pub fn unmount_dead(point: &Path, options: &MountOptions) -> Result<bool, MountError> {
    let Some(place) = place_of(point).filter(|_| is_dead(point)) else { return Ok(false) };
    if table::kind_of(&place).as_deref() != Some(&options.kind()) {
        return Ok(false);
    }
    unmount(&place, Unmount::Lazily)?;
    Ok(true)
}

/// Whether the server of what is mounted on a directory has died. The kernel may know attributes still.
fn is_dead(point: &Path) -> bool {
    statfs(point).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

/// The path of a directory without links, of which the directory itself is not asked.
fn place_of(point: &Path) -> Option<PathBuf> {
    let point = std::path::absolute(point).ok()?;
    Some(point.parent()?.canonicalize().ok()?.join(point.file_name()?))
}

impl Mount {
    /// The mount that another process has made on `point`; `id` is its [`Mount::id`].
    pub fn of_another(point: PathBuf, id: String) -> Self {
        let here = Mounted::on(&point).filter(|mounted| mounted.device == id);
        Self { point, mounted: Some(here.unwrap_or(Mounted { device: id, number: None })) }
    }

    /// A mount on another machine: it is unmounted there.
    pub fn elsewhere(point: PathBuf) -> Self {
        Self { point, mounted: None }
    }

    /// What the kernel's table calls the mount (`major:minor`), if it is ours to unmount.
    pub fn id(&self) -> Option<&str> {
        self.mounted.as_ref().map(|mounted| mounted.device.as_str())
    }

    /// Leaves the unmounting to somebody else.
    pub fn leave(&mut self) {
        self.mounted = None;
    }

    /// The directory.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Unmounts, if it is still mounted. What somebody else has mounted there meanwhile stays.
    ///
    /// # Errors
    /// As for [`unmount`]; it is still mounted then.
    pub fn unmount(&mut self, how: Unmount) -> Result<(), MountError> {
        let Some(mounted) = &self.mounted else { return Ok(()) };
        if Mounted::on(&self.point).is_some_and(|here| mounted.is(&here)) {
            unmount(&self.point, how)?;
        }
        self.mounted = None;
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nobody is left who could be told.
        let _ = self.unmount(Unmount::Lazily);
    }
}

/// The number of the mount on a directory (`STATX_MNT_ID_UNIQUE`). The mount's server is not asked anything.
fn mount_number(point: &Path) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let number = StatxFlags::from_bits_retain(MOUNT_NUMBER);
    let found = statx(CWD, point, flags, number).ok()?;
    (found.stx_mask & MOUNT_NUMBER != 0).then_some(found.stx_mnt_id)
}

/// Checks that there is a directory to mount on.
///
/// # Errors
/// [`MountError::DeadServer`], [`MountError::NotADirectory`], [`MountError::NoPoint`].
pub fn check_point(point: &Path) -> Result<(), MountError> {
    checked(point).map(drop)
}

/// The path of a directory that can be mounted on, without links.
fn checked(point: &Path) -> Result<PathBuf, MountError> {
    let named = point.to_owned();
    if is_dead(point) {
        return Err(MountError::DeadServer { point: named });
    }
    let found = std::fs::metadata(point).and_then(|metadata| Ok((metadata, point.canonicalize()?)));
    match found {
        Ok((metadata, path)) if metadata.is_dir() => Ok(path),
        Ok(_) => Err(MountError::NotADirectory { point: named }),
        Err(source) => Err(MountError::NoPoint { point: named, source }),
    }
}

/// Mounts by `mount(2)`; `None`: the user may not.
fn mount_directly(point: &Path, options: &MountOptions) -> Result<Option<Device>, MountError> {
    let device = match Device::open() {
        Ok(device) => device,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(source) => return Err(MountError::NoDevice { source }),
    };
    let (user, group) = sys::user_and_group();
    let fd = device.as_fd().as_raw_fd();
    let mut data = vec![format!("fd={fd},rootmode=40000,user_id={user},group_id={group}")];
    data.extend(options.fuse_options());
    let mounted = sys::mount(
        &options.fs_name,
        point.as_os_str().as_bytes(),
        &options.kind(),
        options.flags.bits(),
        &data.join(","),
    );
    let Err(error) = mounted else { return Ok(Some(device)) };
    match error.raw_os_error() {
        Some(libc::EPERM) => Ok(None),
        Some(libc::ENODEV) => Err(MountError::NoDevice { source: error }),
        _ => Err(MountError::Kernel { point: point.to_owned(), source: error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_are_mounted_on() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(matches!(checked(&file), Err(MountError::NotADirectory { .. })));
        assert!(matches!(checked(&dir.path().join("none")), Err(MountError::NoPoint { .. })));
        assert_eq!(checked(dir.path()).unwrap(), dir.path().canonicalize().unwrap());
    }

    #[test]
    fn errors_say_what_to_do() {
        let point = || PathBuf::from("/m");
        let not_connected = MountError::DeadServer { point: point() };
        assert!(not_connected.to_string().contains("run `fusermount3 -u /m`"), "{not_connected}");
        assert!(MountError::NoHelper.to_string().contains("install the package fuse3"));
        assert!(MountError::Busy { point: point() }.to_string().contains("`fuser -vm /m`"));
    }
}
