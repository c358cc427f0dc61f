//! `fusermount3`, which mounts and unmounts for users other than root.

use super::error::MountError;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = "fusermount3";
/// Names the descriptor of the socket over which the helper sends the device.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Mounts, and returns the device.
pub(super) fn mount(point: &Path, options: &str) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = UnixStream::pair().map_err(|source| kernel(point, source))?;
    // The socket is the helper's standard input: no other program that is started meanwhile inherits it.
    let output = run(Command::new(PROGRAM)
        .args(["-o", options, "--"])
        .arg(point)
        .env(SOCKET_VARIABLE, "0")
        .stdin(Stdio::from(OwnedFd::from(theirs))))?;
    let device = receive_fd(&ours).map_err(|source| kernel(point, source))?;
    device.filter(|_| output.status.success()).ok_or_else(|| refusal(point, &output))
}

/// Unmounts.
pub(super) fn unmount(point: &Path, lazily: bool) -> Result<(), MountError> {
    let how = if lazily { "-uz" } else { "-u" };
    let output = run(Command::new(PROGRAM).args([how, "--"]).arg(point).stdin(Stdio::null()))?;
    if output.status.success() { Ok(()) } else { Err(refusal(point, &output)) }
}

fn run(command: &mut Command) -> Result<Output, MountError> {
    // Refusals are told apart by their text.
    command.env("LC_ALL", "C").output().map_err(|error| match error.kind() {
        // The search fails so, too, if the user may not read one of the folders of `PATH`.
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => MountError::NoHelper,
        _ => MountError::Helper { message: error.to_string() },
    })
}

fn kernel(point: &Path, source: io::Error) -> MountError {
    MountError::Kernel { point: point.to_owned(), source }
}

/// The descriptor that the helper, which has ended, has sent.
fn receive_fd(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags) {
        Ok(_) => {}
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// What the helper has complained about.
fn refusal(point: &Path, output: &Output) -> MountError {
    let text = String::from_utf8_lossy(&output.stderr);
    let point = point.to_owned();
    if text.contains("user_allow_other") {
        MountError::AllowOther
    } else if text.contains("no write access") || text.contains("not owner") {
        MountError::NotYours { point }
    } else if text.contains("device not found") {
        MountError::NoDevice { source: io::Error::from_raw_os_error(libc::ENODEV) }
    } else if text.contains("failed to open /dev/fuse: Permission denied") {
        MountError::DeviceRefused
    } else if text.contains("Device or resource busy") {
        MountError::Busy { point }
    } else {
        let text = text.trim();
        let message = text.strip_prefix("fusermount3: ").unwrap_or(text).to_owned();
        MountError::Helper { message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn refused(stderr: &str) -> String {
        let status = ExitStatus::from_raw(256);
        let output = Output { status, stdout: Vec::new(), stderr: stderr.as_bytes().to_vec() };
        refusal(Path::new("/m"), &output).to_string()
    }

    #[test]
    fn refusals_say_what_to_do() {
        for (stderr, says) in [
            (
                "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\n",
                "`user_allow_other` to /etc/fuse.conf",
            ),
            ("fusermount3: user has no write access to mountpoint /m\n", "a directory of your own"),
            ("fusermount3: fuse device not found, try 'modprobe fuse' first\n", "modprobe fuse"),
            ("fusermount3: failed to open /dev/fuse: Permission denied\n", "chmod 666 /dev/fuse"),
            ("fusermount3: failed to unmount /m: Device or resource busy\n", "unmount it lazily"),
            ("fusermount3: too many FUSE filesystems mounted\n", "fusermount3: too many FUSE"),
        ] {
            assert!(refused(stderr).contains(says), "{stderr}: {}", refused(stderr));
        }
    }
}
