//! Kernel sockets that receive directly into frames.
//!
//! Read [`Transport`] first. A transport owns the sockets of one worker. It accepts connections, receives *into runs of
//! the region* that a [`Frames`] source lends it, and sends from extents of the region, so that user space never copies
//! payload. [`open`] selects io_uring where the kernel supports it, and epoll elsewhere, and reports the choice with
//! its reason.

mod conn_id;
mod epoll;
mod error;
mod event;
mod frames;
mod options;
mod outgoing;
mod policy;
mod poller;
mod sending;
mod slots;
mod sys;
mod transport;
mod uring;
mod waker;
mod write_back;

pub use conn_id::ConnId;
pub use error::TransportError;
pub use event::Event;
pub use frames::Frames;
pub use outgoing::{Outgoing, Part};
pub use policy::run_soon_when_woken;
pub use poller::Poller;
pub use transport::{LIMITED_BYTES_MAX, OpenedTransport, Transport, Wait};
pub use waker::Waker;
pub use write_back::WriteBack;

/// Which transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportRequest {
    /// io_uring where it works, epoll elsewhere.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll.
    Epoll,
}

/// Opens a worker's transport over the region image at `image` (address, bytes).
///
/// # Errors
/// io_uring was requested by name and is refused.
pub fn open(request: TransportRequest, image: (usize, u64)) -> Result<OpenedTransport, TransportError> {
    match request {
        TransportRequest::Epoll => epoll::open(image, "asked for".into()),
        TransportRequest::Uring => uring::open(image, "asked for"),
        TransportRequest::Auto => uring::open(image, "the best there is here")
            .or_else(|error| epoll::open(image, format!("io_uring is not usable here: {error}"))),
    }
}
