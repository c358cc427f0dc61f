//! Why there is no mount by a server, or why it has ended.

use super::channel::ChannelError;
use super::message::{Again, Message, MessageError};
use crate::session::SessionError;
use std::io;
use std::path::PathBuf;

/// Why there is no mount, or why it has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// Environment: nobody listens.
    #[error(
        "{server}: no server listens there ({source}): start `landfall fs serve --dir DIR` first, or `landfall serve` \
         with --files-offload, or name its socket"
    )]
    NoServer {
        /// The socket.
        server: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// Environment: nobody answers at an address.
    #[error(
        "{server}: no server of files answers there ({source}): start `landfall fs serve` with --listen, or \
         `landfall serve` with --files-offload and --files-listen, or name its address"
    )]
    Unreachable {
        /// The address.
        server: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// Peer: the door does not let this mount in.
    #[error("{server}: {why}")]
    NotLetIn {
        /// The address.
        server: String,
        /// Why.
        why: String,
    },
    /// None of several servers serves the mount.
    #[error("none of these servers serves the mount: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    None(Vec<HoldError>),
    /// Misuse: the password cannot be sent.
    #[error("a password of a server has at most 255 bytes")]
    Password,
    /// Environment: the socket belongs to somebody else.
    #[error("{server}: the server's own user may mount, nobody else")]
    NotYours {
        /// The socket.
        server: String,
    },
    /// Peer: the server is of another release. Only people can help.
    #[error("{server}: {why}")]
    OtherRelease {
        /// The socket, or the address.
        server: String,
        /// Which one, and which one this is.
        why: String,
    },
    /// Peer: what listens is no server, or does not answer.
    #[error("{server}: {source}")]
    Server {
        /// The socket, or the address.
        server: String,
        /// The cause.
        source: ChannelError,
    },
    /// Peer: the server does not want this mount.
    #[error("{server}: the server refuses: {why}")]
    Refused {
        /// The socket, or the address.
        server: String,
        /// In the server's words.
        why: String,
    },
    /// Peer: the server will never serve this mount any more.
    #[error("{server}: the server refuses for good: {why}")]
    Final {
        /// The socket, or the address.
        server: String,
        /// In the server's words.
        why: String,
    },
    /// Peer: the server has other files than those of the mount.
    #[error("{server}: the server has another region than the one that is mounted")]
    OtherRegion {
        /// The socket, or the address.
        server: String,
    },
    /// Peer: the server could not end the mount in good order.
    #[error("the server says: {0}")]
    NotClean(String),
    /// Environment: nothing can be mounted.
    #[error(transparent)]
    Mount(#[from] SessionError),
    /// Environment: there is no such NVDIMM.
    #[error(
        "{}: this machine's NVDIMM cannot be opened ({source}): name the device that the kernel has made of the region, \
         such as /dev/dax0.0", device.display()
    )]
    Nvdimm {
        /// The device.
        device: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Environment: libraries cannot connect.
    #[error("{}: cannot listen for libraries: {source}", socket.display())]
    Libraries {
        /// The socket.
        socket: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Environment: an error of the kernel.
    #[error("the mount cannot be kept: {0}")]
    Io(#[from] io::Error),
}

impl HoldError {
    /// True if a server is there, or one of several, that is of another release.
    pub(super) fn is_of_other_release(&self) -> bool {
        match self {
            Self::OtherRelease { .. } => true,
            Self::None(all) => all.iter().any(Self::is_of_other_release),
            _ => false,
        }
    }
}

/// Why a server cannot be talked to.
pub(super) fn failed(server: &str, source: ChannelError) -> HoldError {
    let server = server.to_owned();
    match source {
        ChannelError::Message(error @ MessageError::Version(_)) => {
            HoldError::OtherRelease { server, why: error.to_string() }
        }
        source => HoldError::Server { server, source },
    }
}

/// Why a message is not the expected one.
pub(super) fn refusal(server: &str, message: Message) -> HoldError {
    let server = server.to_owned();
    match message {
        Message::Refused { ever: Again::Later, why } => HoldError::Refused { server, why },
        Message::Refused { ever: Again::Never, why } => HoldError::Final { server, why },
        _ => HoldError::Server { server, source: MessageError::Malformed.into() },
    }
}
