//! A logger beside the client or the server (Figure 17). It makes a request durable, replicates it if it has replicas,
//! replies, and passes it on. Its log is a ring that is never read, which is to the logger's advantage.

use super::replicas::Replicas;
use super::{Batch, announce, open_udp};
use crate::common::error::BenchError;
use crate::common::sys::{note_stop_signals, stop_asked};
use crate::pmnet::args::PmnetServerArgs;
use landfall_media::{Dirty, Extent, Media, MediaError, OpenOptions, RUN_SIZE, Site, open};
use std::net::UdpSocket;
use std::sync::Arc;

/// Bytes of an entry's header, which holds the entry's length.
const HEAD_BYTES: usize = 8;

pub(super) fn run(args: &PmnetServerArgs) -> Result<(), BenchError> {
    note_stop_signals();
    let failed = |error: MediaError| BenchError::Store(error.to_string());
    let socket = open_udp(args.listen)?;
    let forward = args.forward.map(connect).transpose()?;
    let capacity = args.capacity.next_multiple_of(RUN_SIZE);
    let options = OpenOptions { create: Some(capacity), ..OpenOptions::default() };
    let media = open(&args.dir.join("log"), &options).map_err(failed)?.media;
    let mut log = Circle { media, at: 0 };
    let mut replicas = Replicas::open(&args.replicas, args.spin)?;
    announce();
    let mut batch = Batch::default();
    while !stop_asked() {
        batch.receive(&socket, args.spin).map_err(BenchError::connection("a client"))?;
        replicas.send(batch.requests().map(|(_, _, request)| request))?;
        log.append(batch.requests().map(|(_, _, request)| request)).map_err(failed)?;
        replicas.wait()?;
        for (to, tag, _) in batch.requests() {
            let _ = socket.send_to(&[tag, b"O"].concat(), to);
        }
        forward.iter().for_each(|forward| pass_on(forward, &batch));
    }
    Ok(())
}

fn connect(server: std::net::SocketAddr) -> Result<UdpSocket, BenchError> {
    let connect = || {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    connect().map_err(BenchError::connection("the server"))
}

/// Passes requests on, off the critical path. Replies are received and dropped, so that they do not fill the socket.
fn pass_on(forward: &UdpSocket, batch: &Batch) {
    for (_, tag, request) in batch.requests() {
        let _ = forward.send(&[tag, request].concat());
    }
    let mut reply = [0; 256];
    while forward.recv(&mut reply).is_ok() {}
}

/// A log that continues at its start when its region is full.
struct Circle {
    media: Arc<dyn Media>,
    at: u64,
}

impl Circle {
    /// Makes entries durable, with one fence.
    fn append<'a>(&mut self, entries: impl Iterator<Item = &'a [u8]>) -> Result<(), MediaError> {
        let mut dirty = Dirty::new();
        for entry in entries {
            let len = (HEAD_BYTES + entry.len()).next_multiple_of(8) as u64;
            if self.at + len > self.media.len() {
                self.at = 0;
            }
            self.media.store(self.at, &(entry.len() as u64).to_le_bytes())?;
            self.media.store(self.at + HEAD_BYTES as u64, entry)?;
            let extent = Extent::new(self.at, len as u32);
            self.media.flush(&mut dirty, Site::Record, extent);
            self.at += len;
        }
        if dirty.is_empty() { Ok(()) } else { self.media.fence(&mut dirty, Site::Commit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_media::sim::{SimMedia, SimOptions};

    #[test]
    fn entries_are_durable_and_the_log_goes_round() {
        let media = SimMedia::new(RUN_SIZE, SimOptions::default());
        let mut log = Circle { media: media.clone(), at: 0 };
        log.append([&b"first"[..], b"second"].into_iter()).unwrap();
        let image = media.crash_state().durable_image();
        assert_eq!(image[..21], *b"\x05\0\0\0\0\0\0\0first\0\0\0\x06\0\0\0\0");
        log.at = RUN_SIZE - 8;
        log.append([&b"again"[..]].into_iter()).unwrap();
        assert_eq!(log.at, 16);
        assert_eq!(media.crash_state().durable_image()[8..13], *b"again");
    }
}
