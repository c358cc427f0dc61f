//! A network that loses, repeats, reorders and delays, and the devices on its path.

use landfall_pmnet::Instant;
use landfall_pmnet::wire::{Body, Packet};
use std::collections::BTreeMap;
use std::time::Duration;

/// Xorshift: the whole run follows from its seed.
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

/// How bad it is, in percent.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u64,
    pub twice: u64,
    pub late: u64,
}

/// A datagram on its way to a place on the path: 0 is the client, the last one the server, devices between them.
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

/// Stands in for a device: logs and acknowledges at once, forgets nothing until a server-ACK.
#[derive(Default)]
pub struct Device {
    /// By client, session and number.
    pub log: BTreeMap<(usize, u16, u32), Vec<u8>>,
    /// Percent of updates that it does not take.
    pub declines: u64,
    /// It is gone and a cable is in its place.
    pub is_gone: bool,
}

/// What a device sends: towards the server or the client, and bytes.
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
