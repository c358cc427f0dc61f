//! What both servers hold: a hot set, and cold values of three kinds, scattered among each other.

use crate::common::clients::{Random, Walk, loader, value_of};
use crate::common::error::BenchError;
use crate::common::peers::{Peer, Server};
use std::ops::Range;

/// Length of a hot value, bytes.
pub(super) const HOT_BYTES: usize = 1 << 10;
/// The hot set takes one part in so many of the memory: each of its values has a block of 4 KiB to itself.
const HOT_PARTS: u64 = 8;
const BLOCK_BYTES: u64 = 4096;
/// Of the region, so many parts in a hundred are values; the rest is for records, ends of runs and the compactor.
const VALUES_PERCENT: u64 = 75;

/// Cold values of one kind.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Lengths that take turns, bytes.
    lens: &'static [usize],
    /// The lengths of direct reads of as many bytes, with their shares, as fio's `--bssplit` takes them.
    pub(super) reads: &'static str,
}

/// Every kind has as many bytes as any other.
pub(super) const KINDS: [Kind; 3] = [
    Kind { name: "4 KiB", lens: &[4 << 10], reads: "4k/100" },
    Kind { name: "64 KiB", lens: &[64 << 10], reads: "64k/100" },
    Kind {
        name: "100 B to 1 MiB",
        lens: &[100, 1 << 10, 10 << 10, 100 << 10, 1 << 20],
        reads: "4k/40:12k/20:100k/20:1m/20",
    },
];

/// Which of `KINDS` has lengths from 100 B to 1 MiB.
pub(super) const MIXED: usize = 2;

/// Which numbers of keys are what.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) hot: u64,
    cold: Vec<Range<u64>>,
}

impl Data {
    /// As much as suits a region and its memory, bytes.
    pub(super) fn of(region: u64, memory: u64) -> Self {
        let hot = memory / HOT_PARTS / BLOCK_BYTES;
        let bytes = (region / 100 * VALUES_PERCENT - hot * HOT_BYTES as u64) / KINDS.len() as u64;
        let mut next = hot;
        let cold = KINDS.iter().map(|kind| {
            let start = next;
            next += bytes * kind.lens.len() as u64 / kind.lens.iter().sum::<usize>() as u64;
            start..next
        });
        Self { hot, cold: cold.collect() }
    }

    pub(super) fn keys(&self) -> u64 {
        self.cold.last().map_or(self.hot, |last| last.end)
    }

    /// Bytes of all values.
    pub(super) fn bytes(&self) -> u64 {
        (0..self.keys()).map(|number| self.len(number) as u64).sum()
    }

    /// Bytes of the values of the longest kind.
    pub(super) fn bytes_of_a_kind(&self) -> u64 {
        let bytes = |range: &Range<u64>| range.clone().map(|number| self.len(number) as u64).sum();
        self.cold.iter().map(bytes).max().unwrap_or(0)
    }

    /// Length of a key's value.
    fn len(&self, number: u64) -> usize {
        let kinds = KINDS.iter().zip(&self.cold);
        let kind = kinds.into_iter().find(|(_, range)| range.contains(&number));
        kind.map_or(HOT_BYTES, |(kind, range)| kind.lens[(number - range.start) as usize % kind.lens.len()])
    }

    /// Sets every key, in an order without order.
    pub(super) fn load(&self, peer: &dyn Peer, server: &Server) -> Result<(), BenchError> {
        let longest = KINDS.iter().flat_map(|kind| kind.lens).max();
        let value = value_of(longest.copied().unwrap_or(HOT_BYTES));
        let numbers = Random::new(self.keys()).permutation(self.keys());
        let values = numbers.into_iter().map(|number| (number, &value[..self.len(number)]));
        loader::load_each(server.resp, peer.name(), values)
    }

    /// Through all hot keys.
    pub(super) fn hot_walk(&self) -> Walk {
        Walk::new((0..self.hot).collect())
    }

    /// Through the cold keys of each kind, in an order without order.
    pub(super) fn cold_walks(&self) -> Vec<Walk> {
        let walk = |range: &Range<u64>| {
            let numbers = Random::new(range.end).permutation(range.end - range.start);
            Walk::new(numbers.into_iter().map(|number| range.start + number).collect())
        };
        self.cold.iter().map(walk).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, Data, HOT_BYTES, KINDS, MIXED};

    const MIB: u64 = 1 << 20;

    #[test]
    fn values_take_three_quarters_of_the_region_and_each_kind_a_third_of_them() {
        let data = Data::of(640 * MIB, 64 * MIB);
        assert!(data.bytes() > 470 * MIB && data.bytes() <= 480 * MIB, "{}", data.bytes());
        for (kind, range) in KINDS.iter().zip(&data.cold) {
            let bytes: u64 = range.clone().map(|number| data.len(number) as u64).sum();
            assert!(bytes.abs_diff(data.bytes() / 3) < 4 * MIB, "{}: {bytes}", kind.name);
        }
    }

    #[test]
    fn hot_keys_come_first_and_their_blocks_fit_into_an_eighth_of_the_memory() {
        let data = Data::of(640 * MIB, 64 * MIB);
        assert_eq!(data.hot * BLOCK_BYTES, 8 * MIB);
        assert_eq!((data.len(0), data.len(data.hot)), (HOT_BYTES, KINDS[0].lens[0]));
    }

    #[test]
    fn walks_go_through_each_key_of_a_kind_once() {
        let data = Data::of(640 * MIB, 64 * MIB);
        let walk = &data.cold_walks()[MIXED];
        let mut numbers: Vec<u64> = (0..walk.len()).map(|_| walk.next()).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(data.cold[MIXED].clone()));
    }

    #[test]
    fn direct_reads_have_the_shares_and_lengths_of_the_values_in_whole_blocks() {
        for kind in &KINDS {
            let read = |part: &str| {
                let (len, percent) = part.split_once('/').unwrap();
                let (number, unit) = len.split_at(len.len() - 1);
                let unit = if unit == "m" { MIB } else { 1 << 10 };
                number.parse::<u64>().unwrap() * unit * percent.parse::<u64>().unwrap()
            };
            let reads: u64 = kind.reads.split(':').map(read).sum();
            let blocks = |len: &usize| (*len as u64).next_multiple_of(BLOCK_BYTES);
            let values: u64 = kind.lens.iter().map(blocks).sum();
            assert_eq!(reads, values * 100 / kind.lens.len() as u64, "{}", kind.name);
        }
    }
}
