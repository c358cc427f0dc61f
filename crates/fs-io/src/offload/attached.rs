//! A mount that a holder wants to have served.

use super::channel::{Channel, ChannelError};
use super::message::{Again, Attach, Message, Over};
use crate::counter::wait;
use crate::ledger::Ledger;
use crate::line::Line;
use crate::lives::MountNumber;
use crate::session::SessionError;
use landfall_fuse::Device;
use landfall_media::RUN_SIZE;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Most mounts at a time.
pub(super) const MOUNTS_MAX: usize = 16;
/// The kernel's counts are in pages of so many bytes.
const PAGE_BYTES: u32 = 4096;

/// Why a mount is not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum AttachError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("its own user may mount, and user {0} is another one")]
    User(u32),
    #[error("the files were mounted elsewhere since, or that mount has ended")]
    Stale,
    #[error("the files are mounted on {}, and not both mounts are --shared", .0.display())]
    Mounted(PathBuf),
    #[error("there are {MOUNTS_MAX} mounts, or the region is too small for the buffers of one more")]
    Many,
    #[error("what it gets of the mount makes no sense")]
    Invalid,
    #[error("its ledger or its queues cannot be used: {0}")]
    Descriptors(io::Error),
    #[error("that it is served cannot be noted for the next server: {0}")]
    Note(io::Error),
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl AttachError {
    /// True if descriptors, threads or memory are short now: what was refused may be possible soon.
    pub(super) fn may_pass(&self) -> bool {
        let (Self::Descriptors(error) | Self::Session(SessionError::Io(error))) = self else { return false };
        let short = [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM, libc::ENOBUFS];
        error.raw_os_error().is_some_and(|code| short.contains(&code))
    }
}

/// A mount whose holder waits for the server's answer.
pub(super) struct Attached {
    pub(super) number: MountNumber,
    pub(super) attach: Attach,
    pub(super) ledger: Arc<Ledger>,
    /// As its holder has opened them: what was received from one is lost with its last descriptor.
    pub(super) queues: Vec<Line>,
    pub(super) channel: Arc<Channel>,
}

impl Attached {
    /// Receives what a holder mounts.
    ///
    /// # Errors
    /// It says something else, or what makes no sense.
    pub(super) fn receive(channel: &Arc<Channel>, number: MountNumber) -> Result<Self, AttachError> {
        let (Message::Attach(attach), descriptors) = channel.receive()? else {
            return Err(AttachError::Invalid);
        };
        let (ledger, queues) = checked(&attach, descriptors)?;
        Ok(Self { number, attach, ledger: Arc::new(ledger), queues, channel: Arc::clone(channel) })
    }

    /// The mountpoint.
    pub(super) fn point(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.attach.point.clone()))
    }

    /// True if its holder does not wait any more: it says nothing until it has the answer, but for its end.
    pub(super) fn has_given_up(&self) -> bool {
        !matches!(wait(&[self.channel.as_fd()], Some(Duration::ZERO)), Ok(None))
    }
}

/// Says that a mount is not served.
pub(super) fn report(outcome: Result<(), AttachError>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, "a mount is refused");
    }
}

/// Says to a holder why its mount is not served.
pub(super) fn refuse(channel: &Channel, error: &AttachError) {
    let is_final = matches!(error, AttachError::Stale | AttachError::User(_));
    let ever = if is_final { Again::Never } else { Again::Later };
    // If it is gone, it needs no answer.
    let _ = channel.send(&Message::Refused { ever, why: error.to_string() }, &[]);
}

/// The ledger and the queues of a mount, if what its holder says makes sense.
fn checked(attach: &Attach, descriptors: Vec<OwnedFd>) -> Result<(Ledger, Vec<Line>), AttachError> {
    let run_bytes = u32::try_from(RUN_SIZE).unwrap_or(u32::MAX);
    let is_size = (PAGE_BYTES..=run_bytes).contains(&attach.max_write);
    let mut descriptors = descriptors.into_iter();
    let ledger = descriptors.next().filter(|_| is_size).ok_or(AttachError::Invalid)?;
    let ledger = Ledger::open(ledger).map_err(AttachError::Descriptors)?;
    let line = |descriptor| match attach.over {
        Over::Device => Device::from_fd(descriptor).map(Line::Device),
        Over::Connections => Line::of_connection(descriptor),
    };
    let queues: io::Result<Vec<Line>> = descriptors.map(line).collect();
    let queues = queues.map_err(AttachError::Descriptors)?;
    if queues.is_empty() { Err(AttachError::Invalid) } else { Ok((ledger, queues)) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::common::Sharing;
    use crate::offload::message::Since;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A mount without queues, and its holder's end of the connection.
    pub(in crate::offload) fn attached_by(mount: u8, since: Since, sharing: Sharing) -> (Attached, Channel) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("sockets");
        let attach = Attach {
            since,
            mount: [mount; 16],
            minor: 45,
            features: 0,
            max_write: 1 << 20,
            max_readahead: 0,
            sharing,
            over: Over::Device,
            heard: 0,
            id: "0:41".to_owned(),
            point: b"/m".to_vec(),
        };
        let memory = Ledger::memory().expect("memory");
        let ledger = Ledger::open(memory.file().try_clone_to_owned().expect("a descriptor"));
        let ledger = Arc::new(ledger.expect("a ledger"));
        let channel = Arc::new(Channel::new(ours).expect("a socket"));
        let number = MountNumber(u32::from(mount));
        let attached = Attached { number, attach, ledger, queues: Vec::new(), channel };
        (attached, Channel::new(theirs).expect("a socket"))
    }
}
