//! Answers while there is no server: programs that do not want to wait any longer get `EIO`.

use crate::counter::wait;
use landfall_fuse::{Device, Errno, HEAD_BYTES, Negotiated, Notification, Received, Reply};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Refuses what the kernel asks for.
pub(super) struct Refusing<'d> {
    device: &'d Device,
    negotiated: Negotiated,
    room: Vec<u8>,
}

impl<'d> Refusing<'d> {
    /// Begins: also what the dead server had received is refused, if the kernel delivers it again.
    pub(super) fn begin(device: &'d Device, negotiated: Negotiated) -> Self {
        // A kernel that cannot do this leaves these requests waiting for the next server.
        let _ = device.notify(&Notification::resend());
        Self { device, negotiated, room: vec![0; negotiated.frame_bytes()] }
    }

    /// Refuses everything for `limit`, or until `waker` is readable.
    ///
    /// # Errors
    /// An error of the device.
    pub(super) fn go_on(&mut self, limit: Duration, waker: BorrowedFd<'_>) -> io::Result<()> {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match wait(&[waker, self.device.as_fd()], Some(left))? {
                Some(1) if self.refuse_one()? => {}
                _ => return Ok(()),
            }
        }
    }

    /// Refuses one request. False if the mount has ended.
    fn refuse_one(&mut self) -> io::Result<bool> {
        let (mut head, mut joined) = ([0; HEAD_BYTES], Vec::new());
        let received = self.device.receive(&mut head, &mut [IoSliceMut::new(&mut self.room)])?;
        let len = match received {
            Received::Ended => return Ok(false),
            Received::Retry => return Ok(true),
            Received::Request { len } => len,
        };
        let unique = match self.negotiated.decoder().decode(&head, &[&self.room[..]], len, &mut joined) {
            Ok(request) => request.op.wants_reply().then_some(request.unique),
            Err(malformed) => malformed.unique,
        };
        if let Some(unique) = unique {
            self.device.reply(&Reply::error(unique, Errno::IO))?;
        }
        Ok(true)
    }
}
