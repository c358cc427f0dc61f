//! Comparing the records of two nodes, range by range: `docs/format/chain.md`, "Comparing".

use crate::bits::Bits;
use crate::record::{Record, RecordKind};
use crate::room::{REPORT_BYTES, Report};
use crate::wire::{Code, WireError, message, u32_at, u64_at};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Records of a bucket, on average.
const BUCKET_RECORDS: usize = 8;
/// Most buckets, and most digests of a message.
const COUNT_MAX: usize = 4096;
const FIXED_BYTES: usize = 24;
/// A length that says that there is no key.
const NO_KEY: u32 = u32::MAX;
const SUMS: u8 = 1;
const RECORDS: u8 = 2;
const KEYED: u8 = 3;
const NOTHING: u8 = 1;
const STOPPED: u8 = 2;

/// Keys of a space that follow each other: of a database in the order of their bytes, of files in that of the numbers of
/// which they consist. Of a log, the first and the last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange<'a> {
    /// The database, the space of logs, or one of files.
    pub space: u8,
    /// The range begins behind this key, or with this entry; `None`: with the first key that there can be.
    pub after: Option<&'a [u8]>,
    /// Its last key; `None`: the last one that there can be.
    pub until: Option<&'a [u8]>,
}

/// What stands for a record in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The bucket of its key.
    pub bucket: usize,
    /// The digest of its key alone.
    pub key: u64,
    /// The digest of key, value and everything else that nodes have in common.
    pub digest: u64,
}

/// How the records of a range are digested. Both sides do it in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digester {
    seed: u64,
    buckets: u16,
}

impl Digester {
    /// For a page of so many records.
    pub fn for_page(seed: u64, records: usize) -> Self {
        let buckets = records.div_ceil(BUCKET_RECORDS).clamp(1, COUNT_MAX);
        Self { seed, buckets: buckets as u16 }
    }

    /// Number of buckets.
    pub fn buckets(&self) -> usize {
        usize::from(self.buckets)
    }

    /// The digest of a version of a key. Where the record is placed in a message does not count.
    pub fn digest(&self, record: &Record<'_>) -> Digest {
        let mut bytes = Vec::with_capacity(64 + record.key.len());
        Record { kind: RecordKind::Put, more: false, ..*record }.encode(&mut bytes);
        self.of(record.key, &bytes)
    }

    /// As [`Self::digest`], of a record whose value counts as the bytes that it has, and not by its checksum.
    pub fn digest_with_value<'v>(
        &self,
        record: &Record<'_>,
        value: impl IntoIterator<Item = &'v [u8]>,
    ) -> Digest {
        let mut bytes = Vec::with_capacity(64 + record.key.len());
        Record { kind: RecordKind::Put, more: false, value_crc: 0, ..*record }.encode(&mut bytes);
        let mut hash = Xxh3::with_seed(self.seed);
        value.into_iter().for_each(|part| hash.update(part));
        bytes.extend_from_slice(&hash.digest().to_le_bytes());
        self.of(record.key, &bytes)
    }

    fn of(&self, key: &[u8], bytes: &[u8]) -> Digest {
        let key = xxh3_64_with_seed(key, self.seed);
        let bucket = (key % u64::from(self.buckets)) as usize;
        Digest { bucket, key, digest: xxh3_64_with_seed(bytes, self.seed) }
    }

    /// The sum of each bucket.
    pub fn sums(&self, digests: impl IntoIterator<Item = Digest>) -> Vec<u64> {
        let mut sums = vec![0_u64; self.buckets()];
        for Digest { bucket, digest, .. } in digests {
            sums[bucket] = sums[bucket].wrapping_add(digest);
        }
        sums
    }
}

/// What is compared of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The sum of each bucket.
    Sums(Vec<u64>),
    /// The digest of each record of some buckets.
    Records {
        /// The buckets.
        buckets: Bits,
        /// The digests.
        digests: Vec<u64>,
        /// Of files: the digests of their keys.
        keys: Option<Vec<u64>>,
    },
}

/// What does the receiver have of a range, beside what the sender has?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare<'a> {
    /// The range.
    pub range: KeyRange<'a>,
    /// How it is digested.
    pub digester: Digester,
    /// What the sender has.
    pub with: Compared,
}

impl<'a> Compare<'a> {
    /// The head of the message.
    ///
    /// # Panics
    /// If a key has 4 GiB.
    pub fn encode(&self) -> Vec<u8> {
        let (level, bits, digests, keys) = match &self.with {
            Compared::Sums(sums) => (SUMS, &[][..], sums, &[][..]),
            Compared::Records { buckets, digests, keys: None } => {
                (RECORDS, buckets.bytes(), digests, &[][..])
            }
            Compared::Records { buckets, digests, keys: Some(keys) } => {
                (KEYED, buckets.bytes(), digests, &keys[..])
            }
        };
        let len = |key: Option<&[u8]>| {
            key.map_or(NO_KEY, |key| u32::try_from(key.len()).expect("a key has less than 4 GiB"))
        };
        let KeyRange { space, after, until } = self.range;
        let mut head = vec![space, level];
        head.extend_from_slice(&self.digester.buckets.to_le_bytes());
        head.extend_from_slice(&(digests.len() as u32).to_le_bytes());
        head.extend_from_slice(&self.digester.seed.to_le_bytes());
        head.extend_from_slice(&len(after).to_le_bytes());
        head.extend_from_slice(&len(until).to_le_bytes());
        [after, until].into_iter().flatten().for_each(|key| head.extend_from_slice(key));
        head.extend_from_slice(bits);
        digests.iter().chain(keys).for_each(|digest| head.extend_from_slice(&digest.to_le_bytes()));
        head
    }

    /// Reads the head of the message.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong.
    pub fn decode(head: &'a [u8]) -> Result<Self, WireError> {
        let (fixed, mut rest) = head.split_at_checked(FIXED_BYTES).ok_or(WireError::Length)?;
        let buckets = u16::from_le_bytes([fixed[2], fixed[3]]);
        let (count, seed) = (u32_at(fixed, 4) as usize, u64_at(fixed, 8));
        if buckets == 0 || usize::from(buckets) > COUNT_MAX || count > COUNT_MAX {
            return Err(WireError::Length);
        }
        let digester = Digester { seed, buckets };
        let after = take_key(&mut rest, u32_at(fixed, 16))?;
        let until = take_key(&mut rest, u32_at(fixed, 20))?;
        let range = KeyRange { space: fixed[0], after, until };
        let marked = match fixed[1] {
            SUMS if count == digester.buckets() => None,
            SUMS => return Err(WireError::Length),
            RECORDS | KEYED => Some(Bits::take(&mut rest, digester.buckets())?),
            value => return Err(WireError::Unknown { what: "a comparison", value }),
        };
        let has_keys = fixed[1] == KEYED;
        if rest.len() != count * 8 * (1 + usize::from(has_keys)) {
            return Err(WireError::Length);
        }
        let mut digests: Vec<u64> = rest.chunks_exact(8).map(|bytes| u64_at(bytes, 0)).collect();
        let keys = has_keys.then(|| digests.split_off(count));
        let with = match marked {
            None => Compared::Sums(digests),
            Some(buckets) => Compared::Records { buckets, digests, keys },
        };
        Ok(Self { range, digester, with })
    }
}

/// The answer to a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// There is nothing in the range.
    pub is_nothing: bool,
    /// Only the range up to this key was compared.
    pub stopped_at: Option<Vec<u8>>,
    /// For each sum, whether it differs; for each digest, whether no record has it. Empty if there is nothing.
    pub missing: Bits,
}

impl Difference {
    /// The message, with the room of the receiver.
    ///
    /// # Panics
    /// If a key has 4 GiB.
    pub fn encode(&self, version: u64, number: u64, room: Report) -> Vec<u8> {
        let mut head = Vec::new();
        room.encode(&mut head);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        head.push(flag(self.is_nothing, NOTHING) | flag(self.stopped_at.is_some(), STOPPED));
        if let Some(key) = &self.stopped_at {
            let len = u32::try_from(key.len()).expect("a key has less than 4 GiB");
            head.extend_from_slice(&len.to_le_bytes());
            head.extend_from_slice(key);
        }
        if !self.is_nothing {
            head.extend_from_slice(self.missing.bytes());
        }
        message(Code::Compared, version, number, &head, 0)
    }

    /// Reads the head of an answer about so many sums or digests.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong.
    pub fn decode(head: &[u8], count: usize) -> Result<(Self, Report), WireError> {
        let (room, rest) = head.split_at_checked(REPORT_BYTES).ok_or(WireError::Length)?;
        let (flags, mut rest) = rest.split_first().ok_or(WireError::Length)?;
        if flags & !(NOTHING | STOPPED) != 0 {
            return Err(WireError::Unknown { what: "an answer with flags", value: *flags });
        }
        let is_nothing = flags & NOTHING != 0;
        let mut stopped_at = None;
        if flags & STOPPED != 0 {
            let (len, behind) = rest.split_at_checked(4).ok_or(WireError::Length)?;
            rest = behind;
            stopped_at = take_key(&mut rest, u32_at(len, 0))?.map(<[u8]>::to_vec);
        }
        let missing = if is_nothing { Bits::default() } else { Bits::take(&mut rest, count)? };
        if !rest.is_empty() {
            return Err(WireError::Length);
        }
        Ok((Self { is_nothing, stopped_at, missing }, Report::decode(room)?))
    }
}

fn take_key<'a>(rest: &mut &'a [u8], len: u32) -> Result<Option<&'a [u8]>, WireError> {
    if len == NO_KEY {
        return Ok(None);
    }
    let (key, behind) = rest.split_at_checked(len as usize).ok_or(WireError::Length)?;
    *rest = behind;
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HEADER_BYTES;
    use proptest::prelude::*;

    fn record(key: &[u8]) -> Record<'_> {
        let (kind, more, space, aux) = (RecordKind::Put, false, 3, 0);
        Record { kind, more, space, aux, arrival_ns: 5, mark: 6, key, value_len: 7, value_crc: 8 }
    }

    fn bits(marks: &[bool]) -> Bits {
        let mut bits = Bits::none(marks.len());
        (0..).zip(marks).filter(|(_, mark)| **mark).for_each(|(at, _)| bits.set(at));
        bits
    }

    #[test]
    fn every_field_counts() {
        let digester = Digester::for_page(1, 100);
        let of = |record: Record<'_>| digester.digest(&record).digest;
        let same = record(b"key");
        let others = [
            Record { space: 4, ..same },
            Record { aux: 1, ..same },
            Record { arrival_ns: 4, ..same },
            Record { mark: 5, ..same },
            Record { value_len: 6, ..same },
            Record { value_crc: 7, ..same },
            record(b"kez"),
        ];
        for other in others {
            assert_ne!(of(other), of(same), "{other:?}");
        }
        assert_eq!(of(Record { more: true, ..same }), of(same));
        assert_ne!(Digester::for_page(2, 100).digest(&same).digest, of(same), "the seed counts");
        let with = |record: Record<'_>, value: &[&'static [u8]]| {
            digester.digest_with_value(&record, value.iter().copied()).digest
        };
        assert_eq!(with(same, &[b"ab", b"c"]), with(Record { value_crc: 1, ..same }, &[b"a", b"bc"]));
        assert_ne!(with(same, &[b"abc"]), with(same, &[b"abd"]));
        assert_ne!(with(same, &[b"abc"]), with(Record { mark: 5, ..same }, &[b"abc"]));
        let changed = digester.digest(&others[3]);
        assert_eq!(changed.bucket, digester.digest(&same).bucket, "a version of a key stays in its bucket");
    }

    #[test]
    fn a_bucket_that_has_another_record_has_another_sum() {
        let digester = Digester::for_page(7, 64);
        let keys: Vec<Vec<u8>> = (0..64_u8).map(|key| vec![key]).collect();
        let of = |skipped: usize| {
            let kept = keys.iter().enumerate().filter(|(at, _)| *at != skipped);
            digester.sums(kept.map(|(_, key)| digester.digest(&record(key))).collect::<Vec<_>>())
        };
        let whole = of(usize::MAX);
        assert_eq!(whole.len(), 8);
        for (at, key) in keys.iter().enumerate() {
            let differ: Vec<usize> = (0..8).filter(|bucket| of(at)[*bucket] != whole[*bucket]).collect();
            assert_eq!(differ, [digester.digest(&record(key)).bucket]);
        }
    }

    proptest! {
        #[test]
        fn comparisons_are_read_as_they_were_written(
            space: u8, seed: u64, after: Option<Vec<u8>>, until: Option<Vec<u8>>, records in 0_usize..300,
            marks in prop::collection::vec(any::<bool>(), 40), digests in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let digester = Digester::for_page(seed, records);
            let range = KeyRange { space, after: after.as_deref(), until: until.as_deref() };
            let buckets = bits(&marks[..digester.buckets()]);
            let keys = Some(digests.iter().rev().copied().collect());
            for with in [
                Compared::Sums(vec![5; digester.buckets()]),
                Compared::Records { buckets: buckets.clone(), digests: digests.clone(), keys: None },
                Compared::Records { buckets, digests, keys },
            ] {
                let compare = Compare { range, digester, with };
                let head = compare.encode();
                prop_assert_eq!(Compare::decode(&head), Ok(compare));
                prop_assert_eq!(Compare::decode(&head[..head.len() - 1]), Err(WireError::Length));
            }
        }

        #[test]
        fn answers_are_read_as_they_were_written(
            is_nothing: bool, stopped_at: Option<Vec<u8>>, marks in prop::collection::vec(any::<bool>(), 0..40),
        ) {
            let missing = if is_nothing { Bits::default() } else { bits(&marks) };
            let difference = Difference { is_nothing, stopped_at, missing };
            let room = Report { order: 1, free: 2, obtainable: 3 };
            let message = difference.encode(1, 2, room);
            prop_assert_eq!(Difference::decode(&message[HEADER_BYTES..], marks.len()), Ok((difference, room)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(head: Vec<u8>, count in 0_usize..100) {
            let _ = (Compare::decode(&head).is_ok(), Difference::decode(&head, count).is_ok());
        }
    }
}
