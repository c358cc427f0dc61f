//! Keys by Zipf's law, as YCSB draws them.

use super::Random;
use std::rc::Rc;

/// YCSB's constant.
const THETA: f64 = 0.99;
/// A prime above every number of keys: multiples of it meet every key once.
const SCATTER: u64 = 2_654_435_761;

/// Draws from a range of numbers by Zipf's law.
#[derive(Clone, Debug)]
pub(crate) struct Zipf(Rc<[f64]>);

impl Zipf {
    /// `count` is at least 1.
    pub(crate) fn new(count: u64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| 1.0 / (rank as f64).powf(THETA);
        let sums: Vec<f64> = (1..=count.max(1))
            .map(|rank| {
                sum += weight(rank);
                sum
            })
            .collect();
        Self(sums.iter().map(|part| part / sum).collect())
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let at = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        // Hot keys are scattered over all keys, as in YCSB.
        let rank = self.0.partition_point(|sum| *sum <= at).min(self.0.len() - 1) as u64;
        rank * SCATTER % self.0.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, Zipf};

    #[test]
    fn few_keys_are_asked_for_most_of_the_time_and_every_key_sometimes() {
        let (zipf, mut random) = (Zipf::new(100), Random::new(7));
        let mut counts = [0u32; 100];
        (0..100_000).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // 1 / H(100, 0.99) = 0.189 of the draws are the hottest key's; the second has half of that.
        assert!((17_500..20_500).contains(&counts[0]), "{counts:?}");
        assert!(counts[0] > counts[1] * 3 / 2 && counts[99] > 0, "{counts:?}");
    }
}
