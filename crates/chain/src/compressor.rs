//! Which payloads a sender packs: `docs/format/chain.md`, "Packing".
//!
//! A batch begins with [`Compressor::begin`]. For each of its payloads [`Compressor::plan`] says whether it is worth a
//! sample, [`Compressor::note_sample`] whether the sample was good enough, and [`Compressor::note_packed`] whether the
//! result is. [`Compressor::end`] learns from the time that the batch took.

use crate::packing::{PACKED_BYTES_MAX, PACKED_BYTES_MIN};

/// A payload of up to so many bytes is packed without a sample: it is one itself.
const SAMPLED_FROM: u64 = 16 << 10;
/// Most payloads in a row that go without a sample, after misses.
const SKIPPED_MAX: u32 = 63;
/// Payloads of less than so many bytes are small, middle; the others are long.
const CLASSES: [u64; 2] = [64 << 10, 256 << 10];
/// Batches of each way before one is chosen.
const FIRST_TRIES: u32 = 4;
/// Once in so many batches the other way is tried, at first, and after it has changed nothing for long.
const TRY_EVERY: std::ops::RangeInclusive<u32> = 64..=1024;
/// The estimate changes by one part in this many of the difference.
const WEIGHT: u64 = 8;

/// Whether a node packs what it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Never.
    #[default]
    Off,
    /// What is worth it, as long as that takes no longer.
    Auto,
    /// What is worth it, by LZ4.
    Lz4,
}

impl std::str::FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(text: &str) -> Result<Self, UnknownCompression> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            "lz4" => Ok(Self::Lz4),
            _ => Err(UnknownCompression),
        }
    }
}

/// It is not known how to compress so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compression is off, auto or lz4")]
pub struct UnknownCompression;

/// What is done with a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It goes as it is.
    AsIs,
    /// It is packed if samples of it say that this is worth it.
    Sample,
    /// It is packed.
    Pack,
}

/// Decides what one stream packs.
#[derive(Clone, Debug)]
pub struct Compressor {
    setting: Compression,
    /// Payloads in a row that were not worth it.
    misses: u32,
    /// Payloads that go without a sample.
    skips: u32,
    trials: [Trial; CLASSES.len() + 1],
    /// Of the batch under way, once a payload could be packed: its class, and whether it packs.
    chosen: Option<(usize, bool)>,
}

impl Compressor {
    /// A stream that has sent nothing.
    pub fn new(setting: Compression) -> Self {
        Self { setting, misses: 0, skips: 0, trials: Default::default(), chosen: None }
    }

    /// A batch begins.
    pub fn begin(&mut self) {
        self.chosen = None;
    }

    /// What is done with a payload of so many bytes.
    pub fn plan(&mut self, payload_len: u64) -> Plan {
        if !(PACKED_BYTES_MIN..=PACKED_BYTES_MAX).contains(&payload_len) || !self.packs(payload_len) {
            return Plan::AsIs;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return Plan::AsIs;
        }
        if payload_len < SAMPLED_FROM { Plan::Pack } else { Plan::Sample }
    }

    fn packs(&mut self, payload_len: u64) -> bool {
        match self.setting {
            Compression::Off => false,
            Compression::Lz4 => true,
            Compression::Auto => {
                let trials = &mut self.trials;
                let (_, packs) = *self.chosen.get_or_insert_with(|| {
                    let class = CLASSES.iter().filter(|from| payload_len >= **from).count();
                    (class, trials[class].choose())
                });
                packs
            }
        }
    }

    /// Samples of `len` bytes were packed to `packed_len`. True if the payload is worth it.
    pub fn note_sample(&mut self, len: u64, packed_len: u64) -> bool {
        let is_worth_it = saves_enough(len, packed_len);
        if !is_worth_it {
            self.miss();
        }
        is_worth_it
    }

    /// A payload of `len` bytes was packed to `packed_len`, or to more than is worth it (`None`). True if it is sent so.
    pub fn note_packed(&mut self, len: u64, packed_len: Option<u64>) -> bool {
        let is_worth_it = packed_len.is_some_and(|packed_len| saves_enough(len, packed_len));
        if is_worth_it {
            self.misses = 0;
        } else {
            self.miss();
        }
        is_worth_it
    }

    fn miss(&mut self) {
        self.misses += 1;
        self.skips = 1_u32.checked_shl(self.misses).map_or(SKIPPED_MAX, |skips| (skips - 1).min(SKIPPED_MAX));
    }

    /// A batch with so many bytes of values was acknowledged, so long after it began.
    pub fn end(&mut self, bytes: u64, ns: u64) {
        if let Some((class, packs)) = self.chosen.take().filter(|_| bytes > 0) {
            self.trials[class].note(packs, ns.saturating_mul(1024) / bytes);
        }
    }
}

/// True if at least a tenth is saved.
fn saves_enough(len: u64, packed_len: u64) -> bool {
    packed_len <= most_packed(len)
}

/// Longest packed payload that is sent for values of so many bytes.
pub fn most_packed(values_len: u64) -> u64 {
    values_len - values_len.div_ceil(10)
}

/// How long a byte takes with packing and without, for payloads of a class.
#[derive(Clone, Debug, Default)]
struct Trial {
    plain: Estimate,
    packed: Estimate,
    /// Batches since the other way was tried.
    since: u32,
    /// After how many it is tried.
    every: u32,
    /// What was better when that was asked last.
    favourite: bool,
}

impl Trial {
    /// True if the next batch packs.
    fn choose(&mut self) -> bool {
        if self.plain.count < FIRST_TRIES {
            return false;
        }
        if self.packed.count < FIRST_TRIES {
            return true;
        }
        let favourite = self.packed.time <= self.plain.time + self.plain.time / 20;
        if favourite != self.favourite || self.every == 0 {
            (self.favourite, self.every, self.since) = (favourite, *TRY_EVERY.start(), 0);
        }
        self.since += 1;
        if self.since < self.every {
            return favourite;
        }
        self.every = (self.every * 2).min(*TRY_EVERY.end());
        self.since = 0;
        !favourite
    }

    fn note(&mut self, packs: bool, time: u64) {
        if packs { self.packed.note(time) } else { self.plain.note(time) }
    }
}

/// A mean of what was measured last, nanoseconds for 1024 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    time: u64,
    count: u32,
}

impl Estimate {
    fn note(&mut self, time: u64) {
        if self.count == 0 {
            self.time = time;
        } else {
            // One pause of the machine says little.
            let time = time.min(self.time.saturating_mul(2).max(1));
            self.time = (self.time * (WEIGHT - 1) + time) / WEIGHT;
        }
        self.count = self.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: u64 = 1 << 20;

    /// Sends `count` batches of `len` bytes; packing takes `packed` and nothing `plain` ns a batch. Returns how many were
    /// packed.
    fn send(compressor: &mut Compressor, count: usize, len: u64, (packed, plain): (u64, u64)) -> usize {
        let mut batch = || {
            compressor.begin();
            let packs = compressor.plan(len) != Plan::AsIs && compressor.note_packed(len, Some(len / 2));
            compressor.end(len, if packs { packed } else { plain });
            usize::from(packs)
        };
        (0..count).map(|_| batch()).sum()
    }

    #[test]
    fn settings_are_read() {
        assert_eq!("auto".parse(), Ok(Compression::Auto));
        assert_eq!("lz4".parse(), Ok(Compression::Lz4));
        assert_eq!("off".parse(), Ok(Compression::Off));
        assert_eq!("zstd".parse::<Compression>(), Err(UnknownCompression));
    }

    #[test]
    fn only_payloads_of_some_length_are_packed() {
        let mut compressor = Compressor::new(Compression::Lz4);
        let plans = [0, 4095, 4096, 16383, 16384, 32 << 20, (32 << 20) + 1].map(|len| compressor.plan(len));
        use Plan::{AsIs, Pack, Sample};
        assert_eq!(plans, [AsIs, AsIs, Pack, Pack, Sample, Sample, AsIs]);
        assert_eq!(Compressor::new(Compression::Off).plan(LONG), AsIs);
    }

    #[test]
    fn a_tenth_must_be_saved() {
        let mut compressor = Compressor::new(Compression::Lz4);
        assert!(compressor.note_sample(1000, 900) && !compressor.note_sample(1000, 901));
        assert!(compressor.note_packed(1000, Some(900)) && !compressor.note_packed(1000, Some(901)));
        assert!(!compressor.note_packed(1000, None));
        assert_eq!((most_packed(1000), most_packed(1001), most_packed(4096)), (900, 900, 3686));
    }

    #[test]
    fn after_misses_samples_come_rarer_until_one_is_good() {
        let mut compressor = Compressor::new(Compression::Lz4);
        let mut gaps = Vec::new();
        let mut skipped = 0;
        while gaps.len() < 9 {
            match compressor.plan(LONG) {
                Plan::AsIs => skipped += 1,
                _ => {
                    gaps.push(std::mem::take(&mut skipped));
                    compressor.note_sample(100, 95);
                }
            }
        }
        assert_eq!(gaps, [0, 1, 3, 7, 15, 31, 63, 63, 63]);
        while compressor.plan(LONG) == Plan::AsIs {}
        assert!(compressor.note_sample(100, 50) && compressor.note_packed(LONG, Some(LONG / 2)));
        assert_eq!(compressor.plan(LONG), Plan::Sample);
        compressor.note_sample(100, 95);
        assert_eq!([0; 2].map(|_| compressor.plan(LONG)), [Plan::AsIs, Plan::Sample], "it begins anew");
    }

    #[test]
    fn automatic_packs_what_takes_no_longer() {
        for (packed, plain, expected) in
            [(100, 200, true), (104, 100, true), (107, 100, false), (500, 100, false)]
        {
            let mut compressor = Compressor::new(Compression::Auto);
            send(&mut compressor, 100, LONG, (packed * 10_000, plain * 10_000));
            let count = send(&mut compressor, 10_000, LONG, (packed * 10_000, plain * 10_000));
            let other = if expected { 10_000 - count } else { count };
            assert!((1..=20).contains(&other), "{packed} against {plain}: {count} of 10000");
        }
    }

    #[test]
    fn automatic_follows_what_changes() {
        let mut compressor = Compressor::new(Compression::Auto);
        assert!(send(&mut compressor, 3000, LONG, (5_000_000, 1_000_000)) < 60);
        // The path has become slow.
        send(&mut compressor, 20_000, LONG, (5_000_000, 10_000_000));
        assert!(send(&mut compressor, 1000, LONG, (5_000_000, 10_000_000)) > 950);
        send(&mut compressor, 20_000, LONG, (5_000_000, 1_000_000));
        assert!(send(&mut compressor, 1000, LONG, (5_000_000, 1_000_000)) < 50);
    }

    #[test]
    fn each_class_of_lengths_decides_for_itself() {
        let mut compressor = Compressor::new(Compression::Auto);
        for _ in 0..1000 {
            send(&mut compressor, 1, LONG, (1_000_000, 5_000_000));
            send(&mut compressor, 1, 5000, (50_000, 20_000));
        }
        assert_eq!(send(&mut compressor, 20, LONG, (1_000_000, 5_000_000)), 20);
        assert!(send(&mut compressor, 20, 5000, (50_000, 20_000)) <= 1);
    }

    proptest! {
        #[test]
        fn no_time_is_impossible(batches: Vec<(u64, u64)>) {
            let mut compressor = Compressor::new(Compression::Auto);
            for (len, ns) in batches {
                compressor.begin();
                compressor.plan(len);
                compressor.end(len, ns);
            }
        }
    }
}
