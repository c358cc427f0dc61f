//! Benchmark of two stacks in memory: one request with its reply, and a bulk transfer.
//! `cargo bench -p landfall-net`

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use landfall_media::{Extent, Sum};
use landfall_net::{Config, ConnId, Event, Frames, Instant, Packet, Piece, Stack};
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const FRAME: u64 = 2048;
const FRAMES: u64 = 4096;

/// A ring of frames with reference counts; a frame is reused when its count is zero.
struct Memory {
    bytes: Vec<u8>,
    refs: Vec<u32>,
    next: u64,
}

impl Memory {
    fn new() -> Self {
        let frames = FRAMES as usize;
        Self { bytes: vec![0; frames * FRAME as usize], refs: vec![0; frames], next: 0 }
    }

    fn take(&mut self) -> u64 {
        loop {
            self.next = (self.next + 1) % FRAMES;
            if self.refs[self.next as usize] == 0 {
                self.refs[self.next as usize] = 1;
                return self.next * FRAME;
            }
        }
    }
}

impl Frames for Memory {
    fn bytes(&self, extent: Extent) -> &[u8] {
        &self.bytes[extent.off as usize..extent.end() as usize]
    }

    fn hold(&mut self, extent: Extent) {
        self.refs[(extent.off / FRAME) as usize] += 1;
    }

    fn release(&mut self, extent: Extent) {
        self.refs[(extent.off / FRAME) as usize] -= 1;
    }
}

struct Host {
    stack: Stack,
    memory: Memory,
    packet: Packet,
    conn: Option<ConnId>,
    got: usize,
}

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

struct Pair {
    hosts: [Host; 2],
    now: Instant,
}

impl Pair {
    fn connected() -> Self {
        let host = |number: u8| Host {
            stack: Stack::new(
                Config::new([2, 0, 0, 0, 0, number], vec![address(number)]),
                [u64::from(number), 2],
            ),
            memory: Memory::new(),
            packet: Packet::default(),
            conn: None,
            got: 0,
        };
        let mut pair = Self { hosts: [host(1), host(2)], now: Instant::from_nanos(1_000_000_000) };
        pair.hosts[1].stack.listen(80, 0);
        let to = SocketAddr::new(address(2), 80);
        pair.hosts[0].conn = pair.hosts[0].stack.connect(pair.now, to, address(2)).ok();
        while pair.hosts[1].conn.is_none() {
            pair.exchange();
        }
        pair
    }

    /// Moves every packet that is ready; each round takes a microsecond.
    fn exchange(&mut self) {
        self.now = self.now + Duration::from_micros(1);
        for from in 0..2 {
            let (left, right) = self.hosts.split_at_mut(1);
            let (sender, receiver) =
                if from == 0 { (&mut left[0], &mut right[0]) } else { (&mut right[0], &mut left[0]) };
            while sender.stack.poll_transmit(self.now, &mut sender.memory, &mut sender.packet) {
                carry(sender, receiver, self.now);
            }
        }
        for host in &mut self.hosts {
            if host.stack.deadline().is_some_and(|at| at <= self.now) {
                host.stack.handle_time(self.now, &mut host.memory);
            }
            while let Some(event) = host.stack.poll_event() {
                host.take(event);
            }
        }
    }
}

/// Copies packets from sender to receiver, as a network card does.
fn carry(sender: &Host, receiver: &mut Host, now: Instant) {
    let off = receiver.memory.take();
    let mut at = off as usize;
    for piece in &sender.packet.pieces {
        let bytes = match piece {
            Piece::Bytes { start, end } => &sender.packet.bytes[usize::from(*start)..usize::from(*end)],
            Piece::Stored(extent) => sender.memory.bytes(*extent),
        };
        receiver.memory.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    let landed = Extent::new(off, (at as u64 - off) as u32);
    receiver.stack.receive(now, &mut receiver.memory, landed, 0);
    receiver.memory.release(landed);
}

impl Host {
    fn take(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, .. } => self.conn = Some(conn),
            Event::Received { extent, .. } => {
                self.got += extent.len() as usize;
                self.memory.release(extent);
            }
            _ => {}
        }
    }

    fn send(&mut self, len: u32) {
        let extent = Extent::new(self.memory.take(), len);
        let sum = Sum::of(self.memory.bytes(extent));
        let conn = self.conn.expect("connected");
        self.stack.send_stored(&mut self.memory, conn, extent, Some(sum)).expect("open");
    }
}

fn request_and_reply(c: &mut Criterion) {
    let mut pair = Pair::connected();
    c.bench_function("request of 1 KiB, reply of 1 KiB", |b| {
        b.iter(|| {
            for (from, to) in [(0, 1), (1, 0)] {
                let before = pair.hosts[to].got;
                pair.hosts[from].send(1024);
                while pair.hosts[to].got < before + 1024 {
                    pair.exchange();
                }
            }
            black_box(pair.hosts[0].got)
        });
    });
}

fn bulk(c: &mut Criterion) {
    let mut group = c.benchmark_group("bulk");
    group.throughput(Throughput::Bytes(1 << 20));
    group.bench_function("1 MiB in pieces of 1 KiB", |b| {
        let mut pair = Pair::connected();
        b.iter(|| {
            let end = pair.hosts[1].got + (1 << 20);
            (0..1024).for_each(|_| pair.hosts[0].send(1024));
            while pair.hosts[1].got < end {
                pair.exchange();
            }
        });
    });
    group.finish();
}

criterion_group!(benches, request_and_reply, bulk);
criterion_main!(benches);
