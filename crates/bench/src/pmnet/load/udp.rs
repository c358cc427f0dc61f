//! Plain requests over one UDP socket. A request is a tag and its bytes; the response begins with that tag.

use super::channel::{By, Channel, Done, Patience, WAIT_MS};
use crate::common::error::BenchError;
use crate::pmnet::serve::TAG_BYTES;
use crate::pmnet::sys::{busy_poll_then_wait, wait_readable};
use crate::pmnet::work::Ask;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A request without a reply is sent again after this.
const PATIENCE: Duration = Duration::from_millis(500);
const NAME: &str = "the server over UDP";

#[derive(Debug, Default)]
struct Slot {
    /// The number of the client's requests so far. It is part of the tag.
    number: u32,
    datagram: Vec<u8>,
    sent: Option<Instant>,
}

/// Clients that share a socket.
#[derive(Debug)]
pub(crate) struct UdpChannel {
    socket: UdpSocket,
    slots: Vec<Slot>,
    patience: Patience,
    sent_again: u64,
    checked_at: Instant,
}

impl UdpChannel {
    pub(crate) fn open(server: SocketAddr, clients: usize, patience: Patience) -> Result<Self, BenchError> {
        let open = || {
            let socket = UdpSocket::bind(("0.0.0.0", 0))?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = open().map_err(BenchError::connection(NAME))?;
        let slots = (0..clients).map(|_| Slot::default()).collect();
        Ok(Self { socket, slots, patience, sent_again: 0, checked_at: Instant::now() })
    }

    fn take(&mut self, bytes: &[u8], done: &mut Vec<Done>) {
        let Some((tag, reply)) = bytes.split_first_chunk::<TAG_BYTES>() else { return };
        let tag = u64::from_le_bytes(*tag);
        let (client, number) = ((tag >> 32) as usize, tag as u32);
        let Some(slot) = self.slots.get_mut(client) else { return };
        if slot.number == number && slot.sent.take().is_some() {
            done.push(Done { client, reply: reply.to_vec(), by: By::Server });
        }
    }

    fn send_again(&mut self) {
        self.checked_at = Instant::now();
        for slot in &mut self.slots {
            if slot.sent.is_some_and(|sent| sent.elapsed() >= PATIENCE) {
                slot.sent = Some(Instant::now());
                self.sent_again += 1;
                // A request that is lost again is sent again after the next timeout.
                let _ = self.socket.send(&slot.datagram);
            }
        }
    }
}

impl Channel for UdpChannel {
    fn send(&mut self, client: usize, ask: &Ask) -> Result<(), BenchError> {
        let slot = &mut self.slots[client];
        slot.number = slot.number.wrapping_add(1);
        let tag = ((client as u64) << 32) | u64::from(slot.number);
        slot.datagram.clear();
        slot.datagram.extend_from_slice(&tag.to_le_bytes());
        slot.datagram.extend_from_slice(&ask.bytes);
        slot.sent = Some(Instant::now());
        match self.socket.send(&slot.datagram) {
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {
                Err(BenchError::connection(NAME)(error))
            }
            _ => Ok(()),
        }
    }

    fn receive(&mut self, done: &mut Vec<Done>) -> Result<(), BenchError> {
        let mut bytes = [0; 2048];
        while let Ok(len) = self.socket.recv(&mut bytes) {
            self.take(&bytes[..len], done);
        }
        if !done.is_empty() {
            return Ok(());
        }
        if self.checked_at.elapsed() >= PATIENCE {
            self.send_again();
        }
        if let Patience::BusyPolls(length) = self.patience {
            let sockets = [self.socket.as_fd()];
            busy_poll_then_wait(length, WAIT_MS, |ms| wait_readable(&sockets, ms))
                .map_err(BenchError::connection(NAME))?;
        }
        Ok(())
    }

    fn sent_again(&self) -> u64 {
        self.sent_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_find_their_clients_and_only_the_latest_request_counts() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut channel = UdpChannel::open(server.local_addr().unwrap(), 2, Patience::WAITS).unwrap();
        let ask = |text: &str| Ask { bytes: text.into(), ..Ask::default() };
        let mut bytes = [0; 64];
        channel.send(1, &ask("one")).unwrap();
        let (len, from) = server.recv_from(&mut bytes).unwrap();
        assert_eq!(bytes[TAG_BYTES..len], *b"one");
        for _ in 0..2 {
            server.send_to(&[&bytes[..TAG_BYTES], b"reply"].concat(), from).unwrap();
        }
        let mut done = Vec::new();
        while done.is_empty() {
            channel.receive(&mut done).unwrap();
        }
        channel.receive(&mut done).unwrap();
        let expected = Done { client: 1, reply: b"reply".to_vec(), by: By::Server };
        assert_eq!(done, [expected], "the second copy is nobody's");
    }

    #[test]
    fn what_is_not_answered_is_sent_again() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut channel = UdpChannel::open(server.local_addr().unwrap(), 1, Patience::WAITS).unwrap();
        channel.send(0, &Ask { bytes: b"x".to_vec(), ..Ask::default() }).unwrap();
        channel.slots[0].sent = Instant::now().checked_sub(PATIENCE);
        channel.send_again();
        assert_eq!(channel.sent_again(), 1);
        let mut bytes = [0; 64];
        let first = server.recv(&mut bytes).map(|len| bytes[..len].to_vec()).unwrap();
        let second = server.recv(&mut bytes).map(|len| bytes[..len].to_vec()).unwrap();
        assert_eq!(first, second);
    }
}
