//! Tells a worker that a node behind has answered.

use parking_lot::Mutex;
use rustix::event::epoll;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A descriptor that becomes readable whenever an answer comes for one of the streams that announce theirs by it: an epoll
/// instance, which is watched edge-triggered and never waited on.
#[derive(Clone, Debug)]
pub struct Answers(Arc<OwnedFd>);

impl Answers {
    /// Nothing announces anything yet.
    ///
    /// # Errors
    /// The process has no free file descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)))
    }

    fn add(&self, socket: &TcpStream) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&*self.0, socket, epoll::EventData::new_u64(0), flags)?)
    }

    fn remove(&self, socket: &TcpStream) {
        let _ = epoll::delete(&*self.0, socket);
    }
}

impl AsFd for Answers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Where a stream announces its answers, and its socket as long as it is connected.
#[derive(Debug, Default)]
pub(crate) struct Announced(Mutex<(Option<Answers>, Option<Arc<TcpStream>>)>);

impl Announced {
    /// Answers are announced there from now on, or nowhere.
    ///
    /// # Errors
    /// The kernel's: they are announced nowhere.
    pub(crate) fn set_answers(&self, answers: Option<&Answers>) -> io::Result<()> {
        let (place, socket) = &mut *self.0.lock();
        let before = place.take();
        if let Some(socket) = socket {
            before.iter().for_each(|place| place.remove(socket));
            answers.into_iter().try_for_each(|answers| answers.add(socket))?;
        }
        *place = answers.cloned();
        Ok(())
    }

    /// The stream is connected.
    ///
    /// # Errors
    /// The kernel's: its answers are not announced.
    pub(crate) fn connected(&self, socket: &Arc<TcpStream>) -> io::Result<()> {
        let (place, known) = &mut *self.0.lock();
        *known = Some(Arc::clone(socket));
        place.iter().try_for_each(|place| place.add(socket))
    }

    /// The stream is not connected any more.
    pub(crate) fn lost(&self) {
        let (place, known) = &mut *self.0.lock();
        if let Some(socket) = known.take() {
            place.iter().for_each(|place| place.remove(&socket));
        }
    }

    /// True if the stream is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.lock().1.is_some()
    }
}
