//! A device whose packets land in the region's frames: it forwards them in place, keeps some, and answers those.

#![allow(clippy::print_stderr, reason = "a skipped test reports why")]

mod common;

use common::wire::*;
use common::*;
use landfall_media::{Extent, RUN_SIZE};
use landfall_packets::{Departures, Landing, LandingMemory, Mode};
use landfall_sockets::Frames;
use landfall_testbed::Memory;
use landfall_xdp::{Bridge, Received, Socket};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const FRAME: u64 = 2048;
/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;
/// Space for the chunks of two sockets, the packets under way, and the packets that the device keeps.
const RUNS: u64 = 32;
/// The device keeps one of so many updates.
const KEEP_EVERY: u32 = 7;

/// A region for the test: its memory, its free runs, and the number of holds of each frame.
struct Region {
    memory: Memory,
    /// Memory that packets are copied to if they land outside the region. The kernel does not write to it.
    copy: Vec<u8>,
    free: Vec<u64>,
    lent: BTreeSet<u64>,
    holds: BTreeMap<u64, u32>,
}

impl Region {
    fn new() -> Self {
        let bytes = (RUNS * RUN_SIZE) as usize;
        let free = (0..RUNS).map(|run| run * RUN_SIZE).collect();
        let memory = Memory::new(bytes).unwrap();
        Self { memory, copy: vec![0; bytes], free, lent: BTreeSet::new(), holds: BTreeMap::new() }
    }

    /// The bytes of a packet that has landed.
    fn packet(&self, at: Extent, in_region: bool) -> Vec<u8> {
        if in_region { self.memory.read(at.off, at.len()) } else { self.bytes(at).to_vec() }
    }
}

impl Frames for Region {
    fn take_run(&mut self) -> Option<u64> {
        let run = self.free.pop()?;
        assert!(self.lent.insert(run));
        Some(run)
    }
    fn retire_run(&mut self, off: u64) {
        assert!(self.lent.remove(&off), "run {off} was not lent");
    }
    fn hold(&mut self, extent: Extent) {
        *self.holds.entry(extent.off / FRAME).or_default() += 1;
    }
    fn release(&mut self, extent: Extent) {
        let holds = self.holds.get_mut(&(extent.off / FRAME)).expect("a frame that is held");
        *holds -= 1;
        if *holds == 0 {
            self.holds.remove(&(extent.off / FRAME));
        }
    }
    fn bytes(&self, extent: Extent) -> &[u8] {
        &self.copy[extent.off as usize..][..extent.len() as usize]
    }
    fn write(&mut self, off: u64, bytes: &[u8]) -> bool {
        self.memory.write(off, bytes);
        self.copy[off as usize..][..bytes.len()].copy_from_slice(bytes);
        true
    }
    fn is_held(&self, off: u64) -> bool {
        self.holds.contains_key(&(off / FRAME))
    }
}

/// One worker of a device. It forwards every packet; of the client's packets, it keeps and answers some.
struct Device {
    region: Region,
    landing: Landing,
    sockets: [Socket; 2],
    departures: [Departures; 2],
    kept: Vec<(Extent, Vec<u8>)>,
    updates: u32,
}

impl Device {
    fn new(wire: &Wire, bridges: &[Bridge; 2], beside: bool) -> Self {
        let region = Region::new();
        let [left, right] = &wire.sides;
        let register = || LandingMemory::register(region.memory.area(), &[left, right], 1, beside).unwrap();
        let memory = wire.device.enter(register);
        assert_eq!((memory.is_in_region(), memory.chunk()), (!beside, 2048));
        let open = |side: usize| memory.open(&wire.sides[side], 0, Mode::Auto).unwrap();
        let sockets = wire.device.enter(|| [0, 1].map(open));
        for (bridge, socket) in bridges.iter().zip(&sockets) {
            bridge.set_socket(0, socket).unwrap();
        }
        let departures = [0, 1].map(|side| memory.departures(0, side));
        let (landing, kept) = (memory.landing(0), Vec::new());
        let mut device = Self { region, landing, sockets, departures, kept, updates: 0 };
        device.fill();
        device
    }

    fn fill(&mut self) {
        self.landing.recycle_landed(&mut self.region);
        self.sockets.iter_mut().for_each(|socket| self.landing.fill(socket, &mut self.region));
        assert!(!self.landing.became_starved() && !self.landing.is_starved());
    }

    fn round(&mut self) {
        for side in [0, 1] {
            let mut received = Vec::new();
            self.sockets[side].receive(64, &mut received);
            received.iter().for_each(|packet| self.take(side, packet));
        }
        for (out, socket) in self.departures.iter_mut().zip(&mut self.sockets) {
            out.kick(socket, &mut self.region).unwrap();
        }
        self.fill();
    }

    fn take(&mut self, side: usize, packet: &Received) {
        let landed = self.landing.land(packet, &mut self.region).expect("space");
        self.send(1 - side, |out, socket, region| out.send_stored(landed, socket, region));
        if side == 0 {
            self.updates += 1;
            if self.updates.is_multiple_of(KEEP_EVERY) {
                self.keep(landed);
            }
        }
        self.landing.done(landed.off, &mut self.region);
    }

    fn send(&mut self, side: usize, queue: impl FnOnce(&mut Departures, &mut Socket, &mut Region) -> bool) {
        let (out, socket) = (&mut self.departures[side], &mut self.sockets[side]);
        assert!(out.has_room(socket, &mut self.region).unwrap());
        assert!(queue(out, socket, &mut self.region));
    }

    /// Holds an update and answers it with its first four bytes.
    fn keep(&mut self, update: Extent) {
        let frame = self.region.packet(update, self.landing.is_in_region());
        self.region.hold(update);
        let mac = |at: usize| frame[at..at + 6].try_into().unwrap();
        let port = u16::from(frame[34]) << 8 | u16::from(frame[35]);
        let mut answer = udp_headers((mac(0), mac(6)), (SERVER, PORT), (CLIENT, port), 4);
        answer.extend(&frame[HEADERS..HEADERS + 4]);
        self.send(0, |out, socket, region| out.send_bytes(&answer, socket, region));
        self.kept.push((update, frame));
    }

    /// Stops the device and checks that the packets it keeps have not changed, that no other frame is held, and that no
    /// run is lent.
    fn stop_and_check(mut self) {
        let in_region = self.landing.is_in_region();
        drop(self.sockets);
        self.landing.clear(&mut self.region);
        self.departures.iter_mut().for_each(|out| out.clear(&mut self.region));
        assert!(self.region.lent.is_empty());
        for (at, frame) in &self.kept {
            assert!(self.region.packet(*at, in_region) == *frame);
            self.region.release(*at);
        }
        assert!(self.region.holds.is_empty());
    }
}

#[test]
fn a_device_keeps_answers_and_forwards_packets_that_land_in_its_frames() {
    const BATCHES: u32 = 300;
    const BATCH: u32 = 10;

    let Some(testbed) = testbed() else { return };
    for beside in [false, true] {
        let wire = Wire::new(&testbed);
        let bridges = wire.bridges();
        let mut device = Device::new(&wire, &bridges, beside);
        let [client, server] = wire.udp_sockets();
        client.set_nonblocking(true).unwrap();
        server.set_nonblocking(true).unwrap();
        let (mut got, mut answers, started) = ([0; 2000], 0, Instant::now());
        for first in (0..BATCHES).map(|batch| batch * BATCH) {
            for number in first..first + BATCH {
                let update = number.to_le_bytes().repeat(1 + number as usize % 300);
                client.send_to(&update, (SERVER, PORT)).unwrap();
            }
            let (mut next, mut confirmed) = (first, 0);
            while next < first + BATCH || confirmed < BATCH {
                device.round();
                while let Ok((length, from)) = server.recv_from(&mut got) {
                    assert!(got[..length] == *next.to_le_bytes().repeat(1 + next as usize % 300));
                    server.send_to(b"confirmed", from).unwrap();
                    next += 1;
                }
                while let Ok(length) = client.recv(&mut got) {
                    match length {
                        4 => answers += 1,
                        _ => confirmed += 1,
                    }
                }
                assert!(started.elapsed() < PATIENCE * 3, "{next} {confirmed} of batch {first}");
            }
        }
        assert_eq!((answers, device.kept.len()), (BATCHES * BATCH / KEEP_EVERY, answers as usize));
        device.stop_and_check();
    }
}
