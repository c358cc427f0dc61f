//! Fault injection: decide from a seed what a middlebox does to each frame. The decision uses no clock.

use std::time::Duration;

/// Bytes that are never damaged or cut: the Ethernet header. The far end would drop a frame with a damaged header.
const HEADER_BYTES: usize = 14;

/// The faults that a middlebox injects, in each direction. Chances are per 10,000 frames. By default, it forwards all
/// frames at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Seed of the generator from which all faults are drawn.
    pub seed: u64,
    /// Chance that a frame is lost.
    pub lose: u32,
    /// Chance that a frame is sent twice.
    pub duplicate: u32,
    /// Chance that a frame is held back by [`Faults::hold`], so that later ones overtake it.
    pub reorder: u32,
    /// How long such a frame is held back.
    pub hold: Duration,
    /// Chance that one bit behind the Ethernet header is flipped.
    pub corrupt: u32,
    /// Chance that a frame is cut at some point behind the Ethernet header.
    pub truncate: u32,
    /// Delay of every frame.
    pub delay: Duration,
    /// Rate limit, bytes a second; 0 for no limit.
    pub bytes_per_second: u64,
    /// Length of the queue of each direction, frames. Frames that find it full are dropped. 0 stands for 1000.
    pub queue_frames: usize,
}

/// Counts of what was done to the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames that came in.
    pub received: u64,
    /// Frames that went out, including duplicates.
    pub sent: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames sent twice.
    pub duplicated: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames that were cut.
    pub truncated: u64,
    /// Frames dropped because the queue was full.
    pub overflowed: u64,
    /// Frames that the far interface refused.
    pub refused: u64,
}

/// Decides what happens to the frames of one direction.
#[derive(Debug)]
pub(super) struct Judge {
    seed: u64,
    frames: u64,
}

/// Copies to send, each after a delay of its own.
pub(super) type Verdict = Vec<(Duration, Vec<u8>)>;

impl Judge {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, frames: 0 }
    }

    pub(super) fn judge(&mut self, frame: &[u8], faults: &Faults, tally: &mut Tally) -> Verdict {
        // Each frame has a generator of its own, so that its fate does not depend on the other frames.
        let mut draws = Draws(mix(self.seed ^ mix(self.frames)));
        self.frames += 1;
        tally.received += 1;
        if draws.chance(faults.lose, &mut tally.lost) {
            return Vec::new();
        }
        let mut copies = vec![(faults.delay, frame.to_vec())];
        if draws.chance(faults.duplicate, &mut tally.duplicated) {
            copies.push((faults.delay, frame.to_vec()));
        }
        // Only the first copy is changed, so that the receiver can tell the copies apart.
        let (delay, first) = &mut copies[0];
        if draws.chance(faults.reorder, &mut tally.reordered) {
            *delay += faults.hold;
        }
        let behind = first.len().saturating_sub(HEADER_BYTES);
        if behind > 0 && draws.chance(faults.corrupt, &mut tally.corrupted) {
            let bit = draws.below(behind * 8);
            first[HEADER_BYTES + bit / 8] ^= 1 << (bit % 8);
        }
        if behind > 0 && draws.chance(faults.truncate, &mut tally.truncated) {
            first.truncate(HEADER_BYTES + draws.below(behind));
        }
        copies
    }
}

/// A pseudo-random number generator (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, limit: usize) -> usize {
        // The bias of the remainder is too small for any test to notice.
        (self.next() % limit as u64) as usize
    }

    fn chance(&mut self, of_10_000: u32, count: &mut u64) -> bool {
        let hit = self.next() % 10_000 < u64::from(of_10_000);
        *count += u64::from(hit);
        hit
    }
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 64] = [0x55; 64];
    const CHANCES: Faults = Faults {
        seed: 7,
        lose: 1000,
        duplicate: 500,
        reorder: 300,
        hold: Duration::from_millis(5),
        corrupt: 200,
        truncate: 100,
        delay: Duration::from_millis(1),
        bytes_per_second: 0,
        queue_frames: 0,
    };

    fn fates(faults: &Faults, frames: usize) -> (Vec<Verdict>, Tally) {
        let (mut judge, mut tally) = (Judge::new(faults.seed), Tally::default());
        ((0..frames).map(|_| judge.judge(&FRAME, faults, &mut tally)).collect(), tally)
    }

    #[test]
    fn same_seed_means_same_fate() {
        assert_eq!(fates(&CHANCES, 1000), fates(&CHANCES, 1000));
        assert_ne!(fates(&CHANCES, 1000), fates(&Faults { seed: 8, ..CHANCES }, 1000));
    }

    #[test]
    fn chances_come_out_about_right() {
        let (_, tally) = fates(&CHANCES, 100_000);
        let about = |count: u64, of_10_000: u64, of: u64| {
            let expected = of * of_10_000 / 10_000;
            assert!(count.abs_diff(expected) < expected / 8, "{count}, not {expected}");
        };
        let kept = tally.received - tally.lost;
        about(tally.lost, 1000, tally.received);
        about(tally.duplicated, 500, kept);
        about(tally.reordered, 300, kept);
        about(tally.corrupted, 200, kept);
        about(tally.truncated, 100, kept);
    }

    #[test]
    fn the_tally_counts_what_was_done_to_the_copies() {
        let (verdicts, tally) = fates(&CHANCES, 10_000);
        let copies: Vec<_> = verdicts.iter().flatten().collect();
        assert_eq!(copies.len() as u64, tally.received - tally.lost + tally.duplicated);
        let cut = copies.iter().filter(|(_, f)| f.len() < FRAME.len()).count();
        let damaged = copies.iter().filter(|(_, f)| f.iter().any(|byte| *byte != 0x55)).count();
        let held = copies.iter().filter(|(delay, _)| *delay == Duration::from_millis(6)).count();
        assert_eq!((cut as u64, held as u64), (tally.truncated, tally.reordered));
        // A flipped bit behind the cut is not in the frame any more.
        assert!(damaged as u64 <= tally.corrupted && damaged > 0);
        assert!(copies.iter().all(|(_, f)| f[..HEADER_BYTES] == FRAME[..HEADER_BYTES]));
    }

    #[test]
    fn frames_are_forwarded_unchanged_by_default() {
        let (verdicts, tally) = fates(&Faults::default(), 100);
        assert!(verdicts.iter().all(|verdict| *verdict == [(Duration::ZERO, FRAME.to_vec())]));
        assert_eq!(tally, Tally { received: 100, ..Tally::default() });
    }
}
