//! A deterministic load of overwrites, as in a server: commands land in runs one after the other, values stay where
//! they landed, and a compactor runs between batches, as the background thread does.

#![allow(clippy::cast_sign_loss, reason = "shares and counts are not negative")]

use landfall_heap::{CompactGoal, Compactor, CopyPath, HeapError, RECORD_SIZE, Source, Until, Writer};
use landfall_kv::{Engine, KvError, SetRequest};
use landfall_media::{Extent, RUN_SIZE};
use std::sync::Arc;

/// Commands in one batch.
const BATCH: u64 = 32;
/// Most steps of the compactor that may pass until there is room.
const STEPS_MAX: usize = 10_000;

/// The distribution of overwritten keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// Every key is equally likely.
    Uniform,
    /// Zipf's law with this exponent.
    Zipf(f64),
}

/// Bytes received, and bytes written by cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub received: u64,
    /// Data that the compactor moved.
    pub moved: u64,
    /// Records, rewritten ones included.
    pub records: u64,
    /// Zeroes written to runs that became slabs.
    pub zeroes: u64,
}

impl Traffic {
    /// Bytes written to the medium over bytes received.
    pub fn amplification(&self) -> f64 {
        (self.received + self.moved + self.records + self.zeroes) as f64 / self.received as f64
    }

    fn since(self, before: Self) -> Self {
        Self {
            received: self.received - before.received,
            moved: self.moved - before.moved,
            records: self.records - before.records,
            zeroes: self.zeroes - before.zeroes,
        }
    }
}

/// A store under a load of overwrites.
pub struct Churn {
    pub engine: Engine,
    writer: Writer,
    compactor: Compactor,
    landing: (u64, u64),
    value_bytes: usize,
    keys: u64,
    rng: u64,
    sets: u64,
    received: u64,
    moved_records: u64,
    freed_slabs: u64,
}

impl Churn {
    /// A store whose keys take `share` of the region once they are loaded.
    pub fn new(engine: Engine, value_bytes: usize, share: f64) -> Self {
        let heap = Arc::clone(engine.heap());
        let live = value_bytes as u64 + RECORD_SIZE;
        let keys = (heap.geometry().bytes() as f64 * share / live as f64) as u64;
        let run = heap.take_landing_run().expect("an empty region");
        Self {
            writer: Writer::new(Arc::clone(&heap), 0),
            compactor: Compactor::new(heap),
            engine,
            landing: (run, 0),
            value_bytes,
            keys,
            rng: 0x9e37_79b9_7f4a_7c15,
            sets: 0,
            received: 0,
            moved_records: 0,
            freed_slabs: 0,
        }
    }

    /// Stores every key once.
    pub fn load(&mut self) {
        (0..self.keys).for_each(|key| self.set(key));
    }

    /// Overwrites keys until `times` times the region's size has been received; returns the traffic.
    pub fn overwrite(&mut self, keys: Keys, times: f64) -> Traffic {
        let before = self.traffic();
        let bytes = (self.engine.heap().geometry().bytes() as f64 * times) as u64;
        while self.received - before.received < bytes {
            let key = self.next_key(keys);
            self.set(key);
        }
        self.traffic().since(before)
    }

    fn traffic(&self) -> Traffic {
        let heap = self.engine.heap();
        Traffic {
            received: self.received,
            moved: heap.copies.get(CopyPath::Moved),
            records: (self.sets + self.moved_records) * RECORD_SIZE,
            zeroes: heap.zeroed_bytes(),
        }
    }

    fn next_key(&mut self, keys: Keys) -> u64 {
        let uniform = (self.random() >> 11) as f64 / (1u64 << 53) as f64;
        match keys {
            Keys::Uniform => (uniform * self.keys as f64) as u64,
            // The inverse of the continuous distribution, scattered so that neighbouring keys differ in frequency.
            Keys::Zipf(exponent) => {
                let (n, s) = (self.keys as f64, 1.0 - exponent);
                let rank = ((n.powf(s) - 1.0) * uniform + 1.0).powf(1.0 / s);
                (rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.keys
            }
        }
    }

    fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    fn set(&mut self, key: u64) {
        let key = format!("key:{key:012}");
        let len = self.value_bytes;
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len());
        let command = head.len() + len + 2;
        let landed = self.land(command);
        let value = part(&landed, head.len(), len);
        let request = SetRequest {
            space: 0,
            key: key.as_bytes(),
            key_at: None,
            value: Source::Landed { extents: &value, crc: None },
            expiry_ms: 0,
            arrival_ns: 1,
        };
        for _ in 0..STEPS_MAX {
            match self.engine.set(&mut self.writer, &request) {
                Ok(done) => {
                    let _ = done.ungated();
                    break;
                }
                Err(KvError::Wait(Until::Space)) => drop(self.clean()),
                Err(KvError::Wait(_)) => self.writer.commit_now().expect("commits"),
                Err(error) => panic!("{error}"),
            }
        }
        landed.iter().for_each(|extent| self.engine.heap().runs().release(*extent));
        self.received += command as u64;
        self.sets += 1;
        if self.sets.is_multiple_of(BATCH) {
            self.writer.commit_now().expect("commits");
            while self.clean() {}
        }
    }

    /// Lets bytes land behind the last ones.
    fn land(&mut self, mut len: usize) -> Vec<Extent> {
        let mut extents = Vec::new();
        while len > 0 {
            if self.landing.1 == RUN_SIZE {
                self.engine.heap().retire_landing_run(self.landing.0);
                self.landing = (self.landing_run(), 0);
            }
            let now = len.min((RUN_SIZE - self.landing.1) as usize);
            extents.push(Extent::new(self.landing.0 + self.landing.1, now as u32));
            self.landing.1 += now as u64;
            len -= now;
        }
        extents.iter().for_each(|extent| self.engine.heap().runs().hold(*extent));
        extents
    }

    fn landing_run(&mut self) -> u64 {
        for _ in 0..STEPS_MAX {
            if let Some(run) = self.engine.heap().take_landing_run() {
                return run;
            }
            self.clean();
        }
        panic!("no landing space is found");
    }

    /// Runs a step of the compactor; false if it is idle.
    fn clean(&mut self) -> bool {
        let goal = CompactGoal::free(self.engine.heap().clean_below());
        let done = match self.compactor.step(&self.engine, goal, 1 << 20) {
            Err(HeapError::Full) => return false,
            done => done.expect("cleans"),
        };
        self.moved_records += done.moved_records;
        self.freed_slabs += done.freed_slabs;
        !done.is_idle
    }
}

/// The extents of the bytes `from..from + len` in the concatenation of `extents`.
fn part(extents: &[Extent], mut from: usize, mut len: usize) -> Vec<Extent> {
    let mut parts = Vec::new();
    for extent in extents {
        let here = (extent.len() as usize).saturating_sub(from).min(len);
        if here > 0 {
            parts.push(Extent::new(extent.off + from as u64, here as u32));
        }
        from = from.saturating_sub(extent.len() as usize);
        len -= here;
    }
    parts
}
