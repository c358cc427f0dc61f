//! A link that loses, duplicates, reorders, corrupts, truncates and delays packets, and limits the rate.

use super::wire::{SYN, fix_checksums, word};
use landfall_net::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// SplitMix64: small, seeded, and good enough for tests.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True with a probability of `in_ten_thousand` / 10,000.
    pub fn chance(&mut self, in_ten_thousand: u32) -> bool {
        self.below(10_000) < u64::from(in_ten_thousand)
    }
}

/// The fault model. Probabilities are in ten thousandths.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u32,
    pub duplication: u32,
    /// Packets that are delayed by up to `reorder_by`.
    pub reordering: u32,
    pub reorder_by: Duration,
    /// Packets with flipped bits in one byte. Errors that a 16-bit sum cannot detect, such as two flips far apart, are
    /// for the link's own checksum.
    pub corruption: u32,
    pub truncation: u32,
    pub delay: Duration,
    /// Bytes a second; 0 for no limit.
    pub rate: u64,
    /// Longest queue, as time: a packet that would wait longer is lost.
    pub queue: Duration,
}

impl Faults {
    pub const NONE: Self = Self {
        loss: 0,
        duplication: 0,
        reordering: 0,
        reorder_by: Duration::ZERO,
        corruption: 0,
        truncation: 0,
        delay: Duration::from_micros(50),
        rate: 0,
        queue: Duration::from_millis(50),
    };

    /// All faults at once.
    pub const ALL: Self = Self {
        loss: 200,
        duplication: 200,
        reordering: 500,
        reorder_by: Duration::from_micros(400),
        corruption: 200,
        truncation: 100,
        delay: Duration::from_micros(100),
        rate: 20_000_000,
        queue: Duration::from_millis(20),
    };
}

/// Replaces options of a SYN over IPv4 by no-operations.
fn blank_options(frame: &mut [u8], kinds: &[u8]) {
    let is_syn = frame.len() >= 54 && word(frame, 12) == 0x0800 && frame[23] == 6 && frame[47] & SYN != 0;
    if !is_syn {
        return;
    }
    let end = 34 + usize::from(frame[46] >> 4) * 4;
    let mut at = 54;
    while at < end && frame[at] != 0 {
        let len = if frame[at] == 1 { 1 } else { usize::from(frame[at + 1]) };
        if kinds.contains(&frame[at]) {
            frame[at..at + len].fill(1);
        }
        at += len;
    }
    fix_checksums(frame);
}

pub struct Network {
    rng: Rng,
    pub faults: Faults,
    /// Packets in flight, by time of arrival and number.
    way: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    count: u64,
    /// When the link is free again, for each direction.
    free: [Instant; 2],
    /// Kinds of TCP options that a middlebox removes from SYNs.
    pub strip: Vec<u8>,
    /// The cable is cut.
    pub cut: bool,
    pub lost: u64,
    pub corrupted: u64,
}

impl Network {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            rng: Rng(seed),
            faults,
            way: BTreeMap::new(),
            count: 0,
            free: [Instant::default(); 2],
            strip: Vec::new(),
            cut: false,
            lost: 0,
            corrupted: 0,
        }
    }

    pub fn send(&mut self, now: Instant, from: usize, mut frame: Vec<u8>) {
        let faults = self.faults;
        if self.cut || self.rng.chance(faults.loss) {
            self.lost += 1;
            return;
        }
        if !self.strip.is_empty() {
            blank_options(&mut frame, &self.strip);
        }
        if self.rng.chance(faults.corruption) {
            self.corrupted += 1;
            let at = self.rng.below(frame.len() as u64) as usize;
            frame[at] ^= 1 + self.rng.below(255) as u8;
        }
        if self.rng.chance(faults.truncation) {
            frame.truncate(self.rng.below(frame.len() as u64) as usize);
        }
        let mut at = now + faults.delay;
        if let Some(nanos) = (frame.len() as u64 * 1_000_000_000).checked_div(faults.rate) {
            let busy = self.free[from].max(now);
            if busy.since(now) > faults.queue {
                self.lost += 1;
                return;
            }
            self.free[from] = busy + Duration::from_nanos(nanos);
            at = self.free[from] + faults.delay;
        }
        if self.rng.chance(faults.reordering) {
            at = at + Duration::from_nanos(self.rng.below(faults.reorder_by.as_nanos() as u64));
        }
        if self.rng.chance(faults.duplication) {
            let later = at + Duration::from_nanos(self.rng.below(200_000));
            self.put(later, 1 - from, frame.clone());
        }
        self.put(at, 1 - from, frame);
    }

    fn put(&mut self, at: Instant, to: usize, frame: Vec<u8>) {
        self.count += 1;
        self.way.insert((at, self.count), (to, frame));
    }

    pub fn deliver(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let entry = self.way.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    pub fn next(&self) -> Option<Instant> {
        self.way.keys().next().map(|(at, _)| *at)
    }
}
