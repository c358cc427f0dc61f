//! Two stacks on one link, in memory: a client sends a line, the server sends it back.
//!
//! `cargo run -p landfall-net --example two_hosts`

use landfall_media::Extent;
use landfall_net::{Config, Event, Frames, Instant, Packet, Piece, Stack};
use std::net::{IpAddr, SocketAddr};

/// Frames of 2 KiB that are never freed: enough for an example.
#[derive(Default)]
struct Memory(Vec<u8>);

impl Memory {
    fn land(&mut self, frame: &[u8]) -> Extent {
        let off = self.0.len().next_multiple_of(2048);
        self.0.resize(off, 0);
        self.0.extend_from_slice(frame);
        Extent::new(off as u64, frame.len() as u32)
    }
}

impl Frames for Memory {
    fn bytes(&self, extent: Extent) -> &[u8] {
        &self.0[extent.off as usize..extent.end() as usize]
    }

    fn hold(&mut self, _: Extent) {}

    fn release(&mut self, _: Extent) {}
}

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn main() {
    let host = |number: u8| {
        (Stack::new(Config::new([2, 0, 0, 0, 0, number], vec![address(number)]), [1, 2]), Memory::default())
    };
    let mut hosts = [host(1), host(2)];
    hosts[1].0.listen(7, 0);
    let now = Instant::from_nanos(1);
    let client = hosts[0].0.connect(now, SocketAddr::new(address(2), 7), address(2)).expect("room");
    hosts[0].0.send_bytes(client, b"where a packet lands is where its data lives").expect("open");
    let mut packet = Packet::default();
    for _ in 0..8 {
        for from in 0..2 {
            while let (stack, memory) = &mut hosts[from]
                && stack.poll_transmit(now, memory, &mut packet)
            {
                let mut frame = Vec::new();
                for piece in &packet.pieces {
                    match piece {
                        Piece::Bytes { start, end } => {
                            frame.extend_from_slice(&packet.bytes[usize::from(*start)..usize::from(*end)]);
                        }
                        Piece::Stored(extent) => frame.extend_from_slice(memory.bytes(*extent)),
                    }
                }
                let (stack, memory) = &mut hosts[1 - from];
                let landed = memory.land(&frame);
                stack.receive(now, memory, landed, 0);
            }
        }
        let (server, memory) = &mut hosts[1];
        while let Some(event) = server.poll_event() {
            if let Event::Received { conn, extent, sum, .. } = event {
                // By reference: the reply is sent from the frame in which the request landed.
                server.send_stored(memory, conn, extent, Some(sum)).expect("open");
            }
        }
        while let Some(event) = hosts[0].0.poll_event() {
            if let Event::Received { extent, .. } = event {
                println!("{}", String::from_utf8_lossy(hosts[0].1.bytes(extent)));
            }
        }
    }
}
