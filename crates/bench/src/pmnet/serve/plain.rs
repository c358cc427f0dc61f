//! Plain client-server over UDP. A request is a tag and its bytes; the response begins with that tag. Requests that
//! arrive together are a batch and share a commit. With [`Stamps`], each reply ends with the times at which its batch
//! was received, executed and durable.

use super::handler::{self, Handler};
use super::replicas::Replicas;
use super::{Batch, announce, open_udp};
use crate::common::error::BenchError;
use crate::common::sys::{note_stop_signals, stop_asked};
use crate::pmnet::args::PmnetServerArgs;
use std::net::UdpSocket;
use std::time::{SystemTime, UNIX_EPOCH};

/// The times at which a batch was received, executed and durable, ns of the system's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamps {
    pub(crate) taken: u64,
    pub(crate) executed: u64,
    pub(crate) durable: u64,
}

/// Bytes of [`Stamps`] behind a response.
const STAMPS_BYTES: usize = 24;

impl Stamps {
    fn to_bytes(self) -> [u8; STAMPS_BYTES] {
        let mut bytes = [0; STAMPS_BYTES];
        for (place, stamp) in bytes.chunks_exact_mut(8).zip([self.taken, self.executed, self.durable]) {
            place.copy_from_slice(&stamp.to_le_bytes());
        }
        bytes
    }

    /// Reads the stamps at the end of a reply.
    pub(crate) fn of_reply(reply: &[u8]) -> Option<Self> {
        let bytes: &[u8; STAMPS_BYTES] = reply.last_chunk()?;
        let stamp = |at: usize| bytes[at..].first_chunk().map(|stamp| u64::from_le_bytes(*stamp));
        Some(Self { taken: stamp(0)?, executed: stamp(8)?, durable: stamp(16)? })
    }
}

/// Returns the time of the system's clock, ns. Packets' time stamps have that clock, too.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn run(args: &PmnetServerArgs) -> Result<(), BenchError> {
    note_stop_signals();
    let socket = open_udp(args.listen)?;
    let mut handler = Handler::open(args)?;
    let mut replicas = Replicas::open(&args.replicas, args.spin)?;
    announce();
    let (mut batch, mut replies) = (Batch::default(), Vec::new());
    while !stop_asked() {
        batch.receive(&socket, args.spin).map_err(BenchError::connection("a client"))?;
        serve(&socket, &batch, (&mut handler, &mut replicas), &mut replies, args.stamps)?;
    }
    Ok(())
}

fn serve(
    socket: &UdpSocket,
    batch: &Batch,
    (handler, replicas): (&mut Handler, &mut Replicas),
    replies: &mut Vec<Vec<u8>>,
    has_stamps: bool,
) -> Result<(), BenchError> {
    let clock = || if has_stamps { now_ns() } else { 0 };
    let taken = clock();
    // Replicas execute requests while this server does.
    replicas.send(batch.requests().map(|(_, _, request)| request))?;
    replies.clear();
    for (_, tag, request) in batch.requests() {
        let response = handler.apply(request, None).map_err(handler::failed)?;
        replies.push([tag, &response].concat());
    }
    let executed = clock();
    handler.commit().map_err(handler::failed)?;
    replicas.wait()?;
    let stamps = Stamps { taken, executed, durable: clock() };
    if has_stamps {
        replies.iter_mut().for_each(|reply| reply.extend(stamps.to_bytes()));
    }
    for ((to, _, _), reply) in batch.requests().zip(replies.iter()) {
        // If a reply is lost, the client sends its request again.
        let _ = socket.send_to(reply, to);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_at_a_replys_end() {
        let stamps = Stamps { taken: 1, executed: u64::MAX, durable: 3 };
        assert_eq!(Stamps::of_reply(&[b"O".as_slice(), &stamps.to_bytes()].concat()), Some(stamps));
        assert_eq!(Stamps::of_reply(b"O"), None);
    }
}
