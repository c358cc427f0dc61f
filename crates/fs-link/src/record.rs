//! The record of a write: as a library makes it, and as the server checks it.

use crate::layout::{BLOCK_BYTES, ENTRY_BYTES_MAX, ENTRY_EXTENTS_MAX};
use landfall_fs::{OperationKey, WritePlace};
use landfall_heap::{
    Check, Draft, Fields, KeyPlace, Kind, RECORD_SIZE, RecordView, Seal, Slot, SlotId, ValuePlace, hash_of,
    spaces,
};
use landfall_media::{Extent, RUN_SIZE};

/// A write that a library appends.
#[derive(Clone, Copy, Debug)]
pub struct WriteRecord<'a> {
    /// The client.
    pub client: u32,
    /// Index in its log.
    pub index: u64,
    /// File, offset and lease.
    pub place: WritePlace,
    /// Its version: of the block of its lease.
    pub seq: u64,
    /// When it is executed, Unix nanoseconds.
    pub time_ns: i64,
    /// Where its bytes are: one or two extents.
    pub extents: &'a [Extent],
    /// CRC-32C of all its bytes ([`landfall_heap::crc`]).
    pub crc: u32,
}

impl WriteRecord<'_> {
    /// The bytes to store into a slot. `durable_before` is the number of slots of the slab that the library has fenced.
    ///
    /// # Panics
    /// If there are more than [`ENTRY_EXTENTS_MAX`] extents.
    pub fn seal(
        &self,
        hash_seed: u64,
        slot: SlotId,
        seal: Seal,
        durable_before: u32,
    ) -> [u8; RECORD_SIZE as usize] {
        let key = OperationKey { client: self.client, index: self.index, write: Some(self.place) }.encode();
        let mut draft = Draft::new(&Fields {
            kind: Kind::Put,
            space: spaces::FILES_LOG,
            seq: self.seq,
            rev: 0,
            hash: hash_of(hash_seed, spaces::FILES_LOG, &key),
            arrival_ns: self.time_ns.cast_unsigned(),
            expiry_ms: self.index,
            aux: self.client,
        });
        draft.key_inline(&key);
        draft.value_extents(self.extents, Check::Crc(self.crc));
        draft.seal(slot, durable_before, seal)
    }
}

/// The rule that a record breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The slot holds no valid record.
    #[error("the slot holds no valid record")]
    Record,
    /// A field of the record has a value that no operation of a library has.
    #[error("a field of the record is wrong")]
    Fields,
    /// It is not the operation that follows.
    #[error("the operation has another client or index")]
    Order,
    /// The place in the file, or the length.
    #[error("the place in the file or the length is wrong")]
    Place,
    /// The extents of its bytes.
    #[error("the extents of the bytes are wrong")]
    Extents,
    /// The bytes.
    #[error("the bytes do not match their checksum")]
    Data,
    /// The lease, or a seq that is none of it.
    #[error("the lease is none of the client, or the seq is none of the lease")]
    Lease,
}

/// A write in a slot, as far as it can be checked without the state of the client: the record is valid, its fields are
/// those of a write, place and extents are aligned and within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// File, offset and lease.
    pub place: WritePlace,
    /// Its version.
    pub seq: u64,
    /// When it was executed, Unix nanoseconds.
    pub time_ns: i64,
    /// Bytes.
    pub len: u64,
    extents: [Extent; ENTRY_EXTENTS_MAX],
    count: usize,
    /// CRC-32C of all its bytes.
    pub crc: u32,
}

impl Checked {
    /// Checks the bytes of a slot, which must hold operation `index` of `client`.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn new(
        bytes: &[u8; RECORD_SIZE as usize],
        slot: SlotId,
        seal: Seal,
        region_bytes: u64,
        hash_seed: u64,
        (client, index): (u32, u64),
    ) -> Result<Self, Broken> {
        let Slot::Record(view) = RecordView::parse(bytes, slot, seal, region_bytes) else {
            return Err(Broken::Record);
        };
        let KeyPlace::Inline(key) = view.key() else { return Err(Broken::Fields) };
        let operation = OperationKey::decode(key).map_err(|_| Broken::Fields)?;
        let place = operation.write.ok_or(Broken::Fields)?;
        let is_bare = view.group().is_none() && view.transaction().is_none();
        let is_write = view.kind() == Kind::Put && view.space() == spaces::FILES_LOG && view.rev() == 0;
        let is_plain = is_bare && is_write && !view.has_sums() && !view.is_shared();
        let is_hashed = view.hash() == hash_of(hash_seed, spaces::FILES_LOG, key);
        if !is_plain || !is_hashed || view.durable_before() > slot.index() {
            return Err(Broken::Fields);
        }
        let named = (operation.client, operation.index);
        if named != (client, index) || (view.aux(), view.mark()) != (client, index) {
            return Err(Broken::Order);
        }
        let (extents, count) = extents_of(&view)?;
        let len = view.value_len() as u64;
        let fits = place.offset.checked_add(len).is_some_and(|end| end <= landfall_fs::FILE_BYTES_MAX);
        if !place.offset.is_multiple_of(BLOCK_BYTES) || !fits {
            return Err(Broken::Place);
        }
        let crc = view.check().crc().ok_or(Broken::Fields)?;
        let time_ns = view.arrival_ns().cast_signed();
        Ok(Self { place, seq: view.seq(), time_ns, len, extents, count, crc })
    }

    /// Where its bytes are.
    pub fn extents(&self) -> &[Extent] {
        &self.extents[..self.count]
    }
}

fn extents_of(view: &RecordView<'_>) -> Result<([Extent; ENTRY_EXTENTS_MAX], usize), Broken> {
    let ValuePlace::Extents(list) = view.value() else { return Err(Broken::Extents) };
    let is_sized = (1..=ENTRY_BYTES_MAX).contains(&(view.value_len() as u64));
    if !(1..=ENTRY_EXTENTS_MAX).contains(&list.len()) || !is_sized {
        return Err(Broken::Extents);
    }
    let mut extents = [Extent::default(); ENTRY_EXTENTS_MAX];
    extents.iter_mut().zip(list.iter()).for_each(|(to, extent)| *to = extent);
    let is_placed = |extent: &Extent| {
        let within_run = extent.off / RUN_SIZE == (extent.end() - 1) / RUN_SIZE;
        !extent.is_empty() && extent.off.is_multiple_of(BLOCK_BYTES) && within_run
    };
    let is_whole = |extent: &Extent| u64::from(extent.len()).is_multiple_of(BLOCK_BYTES);
    let used = &extents[..list.len()];
    let (last, before) = used.split_last().ok_or(Broken::Extents)?;
    let holds = before.iter().all(|extent| is_placed(extent) && is_whole(extent)) && is_placed(last);
    holds.then_some((extents, list.len())).ok_or(Broken::Extents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_fs::InodeNumber;
    use landfall_heap::RunId;
    use proptest::prelude::*;

    const SLOT: SlotId = SlotId::new(RunId(3), 9);
    const SEED: u64 = 0x1234_5678_9abc_def0;
    const REGION: u64 = 64 * RUN_SIZE;

    fn seal() -> Seal {
        Seal::new(b"0123456789abcdef", 5)
    }

    fn write<'a>(offset: u64, extents: &'a [Extent]) -> WriteRecord<'a> {
        let place = WritePlace { file: InodeNumber(7), offset, lease: 11 };
        WriteRecord { client: 2, index: 8201, place, seq: 99, time_ns: -5, extents, crc: 0xfeed }
    }

    fn check(bytes: &[u8; 128]) -> Result<Checked, Broken> {
        Checked::new(bytes, SLOT, seal(), REGION, SEED, (2, 8201))
    }

    #[test]
    fn what_a_library_makes_passes_with_all_it_says() {
        let extents = [Extent::new(5 * RUN_SIZE + 4096, 8192), Extent::new(6 * RUN_SIZE, 100)];
        let record = write(12_288, &extents);
        let checked = check(&record.seal(SEED, SLOT, seal(), 9)).unwrap();
        assert_eq!((checked.place, checked.seq, checked.time_ns), (record.place, 99, -5));
        assert_eq!((checked.len, checked.crc, checked.extents()), (8292, 0xfeed, &extents[..]));
    }

    #[test]
    fn a_record_that_breaks_a_rule_is_refused() {
        let whole = [Extent::new(5 * RUN_SIZE, 4096)];
        let sealed = |record: &WriteRecord<'_>| record.seal(SEED, SLOT, seal(), 0);
        let with = |extents: &[Extent]| check(&sealed(&write(0, extents))).map(drop);
        assert_eq!(with(&whole), Ok(()));
        assert_eq!(with(&[]), Err(Broken::Extents), "no bytes");
        assert_eq!(with(&[Extent::new(5 * RUN_SIZE, 0)]), Err(Broken::Extents), "no bytes");
        assert_eq!(with(&[Extent::new(5 * RUN_SIZE + 2048, 10)]), Err(Broken::Extents), "not aligned");
        assert_eq!(with(&[Extent::new(5 * RUN_SIZE, 69_632)]), Err(Broken::Extents), "too long");
        assert_eq!(with(&[Extent::new(6 * RUN_SIZE - 4096, 8192)]), Err(Broken::Extents), "in two runs");
        assert_eq!(with(&[Extent::new(RUN_SIZE, 100), whole[0]]), Err(Broken::Extents), "a gap");
        assert_eq!(with(&[Extent::new(REGION, 4096)]), Err(Broken::Record), "outside");
        assert_eq!(check(&sealed(&write(100, &whole))), Err(Broken::Place));
        assert_eq!(check(&sealed(&write(u64::MAX - 4095, &whole))), Err(Broken::Place));
        assert_eq!(check(&sealed(&WriteRecord { client: 3, ..write(0, &whole) })), Err(Broken::Order));
        assert_eq!(check(&sealed(&WriteRecord { index: 8200, ..write(0, &whole) })), Err(Broken::Order));
        let good = write(0, &whole);
        assert_eq!(check(&good.seal(SEED + 1, SLOT, seal(), 0)), Err(Broken::Fields), "another hash");
        assert_eq!(check(&good.seal(SEED, SLOT, seal(), 10)), Err(Broken::Fields), "durable too early");
        assert_eq!(check(&good.seal(SEED, SLOT, Seal::new(&[0; 16], 5), 0)), Err(Broken::Record));
        assert_eq!(check(&[0; 128]), Err(Broken::Record));
    }

    proptest! {
        #[test]
        fn a_changed_record_is_refused(at in 0..128_usize, bits in 1..=255_u8) {
            let whole = [Extent::new(5 * RUN_SIZE, 4096)];
            let mut bytes = write(0, &whole).seal(SEED, SLOT, seal(), 0);
            bytes[at] ^= bits;
            prop_assert_eq!(check(&bytes), Err(Broken::Record));
        }
    }
}
