//! What can go wrong with a mount, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why something was not mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel offers no FUSE here.
    #[error(
        "/dev/fuse cannot be used: {source}: load the kernel's module (`modprobe fuse`); a container needs the device passed on to it"
    )]
    NoDevice {
        /// The kernel's error.
        source: io::Error,
    },
    /// The user may not open the device, which distributions open to everybody.
    #[error(
        "/dev/fuse may not be opened by you: make it usable by everybody, as root: `chmod 666 /dev/fuse`"
    )]
    DeviceRefused,
    /// The user may not mount, and the program that may is missing, or may not be executed.
    #[error("fusermount3 is missing, without which only root may mount: install the package fuse3")]
    NoHelper,
    /// The mountpoint cannot be reached.
    #[error("{}: {source}", point.display())]
    NoPoint {
        /// The mountpoint.
        point: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The mountpoint is something else than a directory.
    #[error("{}: not a directory: make one to mount on", point.display())]
    NotADirectory {
        /// The mountpoint.
        point: PathBuf,
    },
    /// A server has died and has left its mount behind ("Transport endpoint is not connected").
    #[error("{0}: the server of an earlier mount has died: run `fusermount3 -u {0}`, or `umount {0}` as root", point.display())]
    DeadServer {
        /// The mountpoint.
        point: PathBuf,
    },
    /// The user may not mount on the directory.
    #[error("{}: you may not write to it: mount on a directory of your own", point.display())]
    NotYours {
        /// The mountpoint.
        point: PathBuf,
    },
    /// Users other than root may not use the option `allow_other`.
    #[error(
        "allow_other is refused: add the line `user_allow_other` to /etc/fuse.conf, mount as root, or leave the option out"
    )]
    AllowOther,
    /// Programs use the mount.
    #[error("{0}: busy: end the programs that use it (`fuser -vm {0}` names them), or unmount it lazily", point.display())]
    Busy {
        /// The mountpoint.
        point: PathBuf,
    },
    /// Another refusal of `fusermount3`.
    #[error("fusermount3: {message}")]
    Helper {
        /// What it has printed.
        message: String,
    },
    /// Another error of the kernel.
    #[error("{}: the kernel refuses: {source}", point.display())]
    Kernel {
        /// The mountpoint.
        point: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}
