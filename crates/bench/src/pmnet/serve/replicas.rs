//! Other hosts that must have an update before it is answered.

use super::{TAG_BYTES, WAIT_MS};
use crate::common::error::BenchError;
use crate::common::sys::stop_asked;
use crate::pmnet::sys::wait_readable;
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Everything is sent again after this long without an answer.
const PATIENCE: Duration = Duration::from_millis(50);

/// Servers or loggers that must have each request before it is answered.
#[derive(Debug)]
pub(super) struct Replicas {
    peers: Vec<(SocketAddr, UdpSocket)>,
    next: u64,
    /// The requests that were sent, with their numbers.
    sent: Vec<(u64, Vec<u8>)>,
    /// The peer and the number of each request that has not been answered.
    missing: BTreeSet<(usize, u64)>,
    spin: bool,
}

impl Replicas {
    pub(super) fn open(addresses: &[SocketAddr], spin: bool) -> Result<Self, BenchError> {
        let failed = BenchError::connection("a replica");
        let open = |address: &SocketAddr| {
            let socket = UdpSocket::bind(("0.0.0.0", 0))?;
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            Ok((*address, socket))
        };
        let peers = addresses.iter().map(open).collect::<std::io::Result<_>>().map_err(failed)?;
        Ok(Self { peers, next: 0, sent: Vec::new(), missing: BTreeSet::new(), spin })
    }

    /// Sends requests to every replica.
    pub(super) fn send<'a>(&mut self, requests: impl Iterator<Item = &'a [u8]>) -> Result<(), BenchError> {
        if self.peers.is_empty() {
            return Ok(());
        }
        for request in requests {
            self.next += 1;
            let bytes = [&self.next.to_le_bytes()[..], request].concat();
            for (index, (_, socket)) in self.peers.iter().enumerate() {
                // A datagram that cannot be sent now is sent again later.
                let _ = socket.send(&bytes);
                self.missing.insert((index, self.next));
            }
            self.sent.push((self.next, bytes));
        }
        Ok(())
    }

    /// Waits until every replica has everything.
    pub(super) fn wait(&mut self) -> Result<(), BenchError> {
        let mut heard = Instant::now();
        while !self.missing.is_empty() && !stop_asked() {
            if self.receive() {
                heard = Instant::now();
            } else if heard.elapsed() > PATIENCE {
                self.send_again();
                heard = Instant::now();
            } else if !self.spin {
                let sockets: Vec<_> = self.peers.iter().map(|(_, socket)| socket.as_fd()).collect();
                wait_readable(&sockets, WAIT_MS / 2).map_err(BenchError::connection("a replica"))?;
            }
        }
        self.sent.clear();
        Ok(())
    }

    fn receive(&mut self) -> bool {
        let (mut bytes, mut any) = ([0; 256], false);
        for (index, (_, socket)) in self.peers.iter().enumerate() {
            while let Ok(len) = socket.recv(&mut bytes) {
                let number = bytes[..len].first_chunk::<TAG_BYTES>().map(|tag| u64::from_le_bytes(*tag));
                any |= number.is_some_and(|number| self.missing.remove(&(index, number)));
            }
        }
        any
    }

    fn send_again(&self) {
        for (number, bytes) in &self.sent {
            for (index, (_, socket)) in self.peers.iter().enumerate() {
                if self.missing.contains(&(index, *number)) {
                    let _ = socket.send(bytes);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replica_is_waited_for_and_what_is_lost_is_sent_again() {
        let peers: Vec<UdpSocket> = (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<SocketAddr> = peers.iter().map(|peer| peer.local_addr().unwrap()).collect();
        let threads = peers.into_iter().enumerate().map(|(index, peer)| {
            std::thread::spawn(move || {
                let (mut bytes, mut count) = ([0; 64], 0);
                // The second one loses the first datagram.
                for _ in 0..2 + index {
                    let (len, from) = peer.recv_from(&mut bytes).unwrap();
                    count += 1;
                    if index == 0 || count > 1 {
                        peer.send_to(&bytes[..len.min(TAG_BYTES + 1)], from).unwrap();
                    }
                }
                count
            })
        });
        let threads: Vec<_> = threads.collect();
        let mut replicas = Replicas::open(&addresses, false).unwrap();
        replicas.send([&b"one"[..], b"two"].into_iter()).unwrap();
        replicas.wait().unwrap();
        assert!(replicas.missing.is_empty() && replicas.sent.is_empty());
        let counts: Vec<usize> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(counts, [2, 3]);
    }
}
