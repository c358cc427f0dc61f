//! The first exchange of a mount: INIT.

use crate::device::{Device, Ready, Received};
use crate::errno::Errno;
use crate::init::{InitError, Negotiated, Wanted, frame_bytes};
use crate::reply::Reply;
use crate::request::{DecodeError, Decoder, HEAD_BYTES, Op};
use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;

/// Why a mount did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The kernel's protocol is not served.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The first request is malformed.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The first request is not INIT: somebody else has answered INIT on this device.
    #[error("the first request has opcode {opcode}, not that of INIT")]
    NotInit {
        /// Its opcode.
        opcode: u32,
    },
    /// The mount has ended, or the waker became readable, before INIT came.
    #[error("the mount has ended before it began")]
    Ended,
    /// An error of the device.
    #[error(transparent)]
    Device(#[from] io::Error),
}

/// Waits for INIT on the device of a new mount, and answers it. Clone queues and start workers afterwards.
///
/// # Errors
/// The kernel is not served (it is told so, and what uses the mount fails), or there is no INIT.
pub fn handshake(
    device: &Device,
    wanted: &Wanted,
    waker: BorrowedFd<'_>,
) -> Result<Negotiated, HandshakeError> {
    let (mut head, mut room, mut joined) = ([0; HEAD_BYTES], vec![0; frame_bytes(0)], Vec::new());
    let len = loop {
        match device.receive(&mut head, &mut [IoSliceMut::new(&mut room)])? {
            Received::Request { len } => break len,
            Received::Ended => return Err(HandshakeError::Ended),
            Received::Retry => {}
        }
        if device.wait(waker)? == Ready::Woken {
            return Err(HandshakeError::Ended);
        }
    };
    let request = Decoder::new().decode(&head, &[&room[..]], len, &mut joined)?;
    let Op::Init(init) = request.op else {
        return Err(HandshakeError::NotInit { opcode: request.opcode });
    };
    let negotiated = Negotiated::new(&init, wanted);
    let reply = match &negotiated {
        Ok(negotiated) => negotiated.reply(request.unique),
        Err(_) => Reply::error(request.unique, Errno::PROTO),
    };
    device.reply(&reply)?;
    Ok(negotiated?)
}
