//! The simulator compared with a list of what was promised.

use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Dirty, Extent, LINE_SIZE, Media, Site};
use proptest::prelude::*;

const LINES: u64 = 16;
const LEN: usize = (LINES * LINE_SIZE) as usize;
const WRITERS: usize = 2;

/// One step of a workload.
#[derive(Clone, Debug)]
enum Op {
    Store { off: usize, len: usize, value: u8 },
    Word { word: usize, value: u8 },
    Flush { writer: usize, off: usize, len: usize },
    Fence { writer: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let range = || (0..LEN - 200, 1..200_usize);
    let op = prop_oneof![
        4 => (range(), any::<u8>()).prop_map(|((off, len), value)| Op::Store { off, len, value }),
        1 => (0..LEN / 8, any::<u8>()).prop_map(|(word, value)| Op::Word { word, value }),
        3 => (0..WRITERS, range()).prop_map(|(writer, (off, len))| Op::Flush { writer, off, len }),
        2 => (0..WRITERS).prop_map(|writer| Op::Fence { writer }),
    ];
    prop::collection::vec(op, 1..60)
}

/// For each byte, every value that it has had since it was last certain, oldest first. For each writer's open flushes,
/// up to which value of that history each flushed byte was promised.
struct Oracle {
    history: Vec<Vec<u8>>,
    /// Values dropped from the front of each history.
    dropped: Vec<usize>,
    promised: [Vec<(usize, usize)>; WRITERS],
}

impl Oracle {
    fn new() -> Self {
        Self { history: vec![vec![0]; LEN], dropped: vec![0; LEN], promised: Default::default() }
    }

    fn store(&mut self, off: usize, len: usize, value: u8) {
        self.history[off..off + len].iter_mut().for_each(|history| history.push(value));
    }

    fn flush(&mut self, writer: usize, off: usize, len: usize) {
        let line = LINE_SIZE as usize;
        for at in off / line * line..(off + len).next_multiple_of(line).min(LEN) {
            self.promised[writer].push((at, self.dropped[at] + self.history[at].len() - 1));
        }
    }

    fn fence(&mut self, writer: usize) {
        for (at, version) in std::mem::take(&mut self.promised[writer]) {
            let older = version.saturating_sub(self.dropped[at]);
            self.history[at].drain(..older);
            self.dropped[at] += older;
        }
    }

    /// The first byte of an image that no crash can produce.
    fn impossible(&self, image: &[u8]) -> Option<(usize, u8)> {
        (0..).zip(image.iter().copied()).find(|(at, byte): &(usize, u8)| !self.history[*at].contains(byte))
    }
}

fn run(ops: &[Op], media: &SimMedia) -> Oracle {
    let (mut oracle, mut dirty) = (Oracle::new(), [Dirty::new(), Dirty::new()]);
    for op in ops {
        match *op {
            Op::Store { off, len, value } => {
                media.store(off as u64, &vec![value; len]).expect("in bounds");
                oracle.store(off, len, value);
            }
            Op::Word { word, value } => {
                let word_of_it = u64::from(value) * 0x0101_0101_0101_0101;
                media.store_u64(word as u64 * 8, word_of_it).expect("aligned");
                oracle.store(word * 8, 8, value);
            }
            Op::Flush { writer, off, len } => {
                media.flush(&mut dirty[writer], Site::Data, Extent::new(off as u64, len as u32));
                oracle.flush(writer, off, len);
            }
            Op::Fence { writer } => {
                media.fence(&mut dirty[writer], Site::Commit).expect("no fault was asked for");
                oracle.fence(writer);
            }
        }
    }
    oracle
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_crash_image_holds_what_was_fenced_and_only_bytes_once_stored(ops in ops(), seed: u64) {
        let media = SimMedia::new(LEN as u64, SimOptions::default());
        let oracle = run(&ops, &media);
        for seed in (0..12).map(|step| seed.wrapping_add(step)) {
            prop_assert_eq!(oracle.impossible(&media.crash_image_seeded(seed)), None, "seed {}", seed);
        }
        let state = media.crash_state();
        for image in state.crash_images_exhaustive(6).into_iter().flatten() {
            prop_assert_eq!(oracle.impossible(&image.to_vec()), None);
        }
        let mut medium = vec![0; LEN];
        media.read_medium(Extent::new(0, LEN as u32), &mut medium).expect("in bounds");
        prop_assert_eq!(medium, state.durable_image());
    }

    #[test]
    fn a_skipped_fence_is_caught_by_the_oracle(value in 1_u8.., line in 0..LINES) {
        let ops = [
            Op::Store { off: (line * LINE_SIZE) as usize, len: 64, value },
            Op::Flush { writer: 0, off: (line * LINE_SIZE) as usize, len: 64 },
            Op::Fence { writer: 0 },
        ];
        let media = SimMedia::new(LEN as u64, SimOptions::default());
        media.skip_site(Site::Commit);
        let oracle = run(&ops, &media);
        let caught = (0..64).any(|seed| oracle.impossible(&media.crash_image_seeded(seed)).is_some());
        prop_assert!(caught);
    }
}
