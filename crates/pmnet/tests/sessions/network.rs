//! A simulated network that loses, repeats, reorders and delays packets, and the devices on its path.

use landfall_pmnet::Instant;
use landfall_pmnet::wire::{Body, Packet};
use std::collections::BTreeMap;
use std::time::Duration;

/// A Xorshift generator. The seed determines the whole run.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Probabilities of faults in percent.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u64,
    pub twice: u64,
    pub late: u64,
}

/// A datagram in the network, and its destination: place 0 is the client, the last place the server, devices are
/// between.
#[derive(Clone, Debug)]
pub struct Datagram {
    pub client: usize,
    pub to: usize,
    pub up: bool,
    pub bytes: Vec<u8>,
}

pub struct Network {
    faults: Faults,
    under_way: BTreeMap<(Instant, u64), Datagram>,
    count: u64,
}

impl Network {
    pub fn new(faults: Faults) -> Self {
        Self { faults, under_way: BTreeMap::new(), count: 0 }
    }

    pub fn send(&mut self, datagram: Datagram, now: Instant, rng: &mut Rng) {
        let copies = 1 + u64::from(rng.percent(self.faults.twice));
        for _ in 0..copies {
            if rng.percent(self.faults.loss) {
                continue;
            }
            let late = if rng.percent(self.faults.late) { 20_000 } else { 100 };
            let delay = Duration::from_micros(20 + rng.below(late));
            self.count += 1;
            self.under_way.insert((now + delay, self.count), datagram.clone());
        }
    }

    pub fn next_at(&self) -> Option<Instant> {
        self.under_way.keys().next().map(|(at, _)| *at)
    }

    pub fn pop(&mut self, now: Instant) -> Option<Datagram> {
        let (key, _) = self.under_way.first_key_value().filter(|((at, _), _)| *at <= now)?;
        let key = *key;
        self.under_way.remove(&key)
    }
}

/// A simple device: it logs and acknowledges at once, and deletes nothing before a server-ACK.
#[derive(Default)]
pub struct Device {
    /// By client, session and number.
    pub log: BTreeMap<(usize, u16, u32), Vec<u8>>,
    /// Percentage of updates that it does not log.
    pub declines: u64,
    /// The device was removed: packets pass its place unchanged.
    pub is_gone: bool,
}

/// The packets that a device sends: true if towards the server, and the bytes.
pub type Sent = Vec<(bool, Vec<u8>)>;

impl Device {
    pub fn handle(&mut self, number: u8, datagram: &Datagram, rng: &mut Rng) -> Sent {
        let mut sent = Vec::new();
        let packet = Packet::parse(&datagram.bytes).unwrap();
        let (session, seq) = (packet.header.session, packet.header.seq);
        let range = |from: u32, to: u32| (datagram.client, session, from)..=(datagram.client, session, to);
        let mut forward = true;
        match packet.body {
            _ if self.is_gone => {}
            Body::Update(_) | Body::UpdateFragment(..) => {
                let taken = self.takes((datagram.client, session, seq), &datagram.bytes, rng);
                let mut ack = Packet::new(session, seq, Body::PmnetAck);
                ack.header.ack_count = number;
                sent.extend(taken.then(|| (false, ack.to_bytes())));
            }
            Body::ServerAck => {
                let keys: Vec<_> = self.log.range(range(0, seq)).map(|(key, _)| *key).collect();
                keys.iter().for_each(|key| drop(self.log.remove(key)));
            }
            Body::Retransmit { count } => {
                let wanted = self.log.range(range(seq, seq + count - 1));
                sent.extend(wanted.map(|(_, bytes)| (true, bytes.clone())));
                forward = sent.len() < count as usize;
            }
            Body::Recover { .. } => {
                let above = self.log.range(range(seq.saturating_add(1), u32::MAX));
                sent.extend(above.map(|(_, bytes)| (true, bytes.clone())));
            }
            _ => {}
        }
        if forward {
            sent.push((datagram.up, datagram.bytes.clone()));
        }
        sent
    }

    fn takes(&mut self, key: (usize, u16, u32), bytes: &[u8], rng: &mut Rng) -> bool {
        match self.log.get(&key) {
            Some(known) => known == bytes,
            None if rng.percent(self.declines) => false,
            None => {
                self.log.insert(key, bytes.to_vec());
                true
            }
        }
    }
}
