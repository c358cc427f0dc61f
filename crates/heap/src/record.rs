//! Records: persistent packet metadata. Byte table: `docs/format/records.md`.
//!
//! [`RecordView::parse`] is the only way from bytes to a record: it trusts nothing. [`encode`] is the
//! only way back.

use crate::error::Damage;
use crate::layout::{KEY_BYTES_MAX, RECORD_SIZE, SlotId, VALUE_BYTES_MAX};
use landfall_media::Extent;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a record's body: group, key and value, or what refers to them.
pub const BODY_SIZE: usize = 64;
/// Bytes of one extent on the medium.
pub const EXTENT_SIZE: usize = 12;
/// Bytes of the group mark.
pub const GROUP_SIZE: usize = 16;

/// Which system a record belongs to, and what it means there. Zero is an empty slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A version of a key.
    Put = 1,
    /// The end of a key: everything older is gone.
    Tombstone = 2,
    /// Everything older in its space is gone; space 255 means every space.
    Flush = 3,
}

impl Kind {
    fn from_u8(byte: u8) -> Option<Self> {
        [Self::Put, Self::Tombstone, Self::Flush].into_iter().find(|kind| *kind as u8 == byte)
    }
}

const FLAG_GROUP: u8 = 1;
const FLAG_KEY_INLINE: u8 = 2;
const FLAG_VALUE_INLINE: u8 = 4;
const FLAG_INDIRECT: u8 = 8;
const FLAG_SUMS: u8 = 16;
const FLAGS_KNOWN: u8 = 31;

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
struct Raw {
    crc: U32,
    kind: u8,
    flags: u8,
    extents: u8,
    space: u8,
    seq: U64,
    rev: U32,
    key_len: U32,
    value_len: U32,
    value_crc: U32,
    hash: U64,
    arrival_ns: U64,
    expiry_ms: U64,
    durable_before: U32,
    aux: U32,
    body: [u8; BODY_SIZE],
}

const _: () = assert!(size_of::<Raw>() == RECORD_SIZE as usize);
const _: () = assert!(std::mem::offset_of!(Raw, seq) == 8);
const _: () = assert!(std::mem::offset_of!(Raw, hash) == 32);
const _: () = assert!(std::mem::offset_of!(Raw, body) == 64);

/// A group: records that count together or not at all. They lie in one slab, in order of `place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Sequence number of the group's first record.
    pub first_seq: u64,
    /// Records in the group.
    pub count: u32,
    /// This record's place, from 0.
    pub place: u32,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace<'a> {
    /// In the record.
    Inline(&'a [u8]),
    /// In frames.
    Stored(Extent),
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlace<'a> {
    /// In the record.
    Inline(&'a [u8]),
    /// In frames: encoded extents, to be read with [`ExtentList`].
    Extents(ExtentList<'a>),
    /// In frames, by way of a stored list of extents that ends in a CRC-32C.
    Indirect(Extent),
}

/// Encoded extents, `EXTENT_SIZE` bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentList<'a>(pub &'a [u8]);

impl<'a> ExtentList<'a> {
    /// The extents, in value order.
    pub fn iter(self) -> impl Iterator<Item = Extent> + 'a {
        self.0.chunks_exact(EXTENT_SIZE).map(decode_extent)
    }

    /// Number of extents.
    pub fn len(self) -> usize {
        self.0.len() / EXTENT_SIZE
    }

    /// True when there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// An encoded extent: 48-bit offset, 32-bit length, 16-bit one's-complement sum (0: none kept).
pub fn encoded_extent(extent: Extent, sum: u16) -> [u8; EXTENT_SIZE] {
    let mut bytes = [0; EXTENT_SIZE];
    bytes[..6].copy_from_slice(&extent.off.to_le_bytes()[..6]);
    bytes[6..10].copy_from_slice(&extent.len.to_le_bytes());
    bytes[10..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode_extent(bytes: &[u8]) -> Extent {
    let mut off = [0; 8];
    off[..6].copy_from_slice(&bytes[..6]);
    let len = u32::from_le_bytes(bytes[6..10].try_into().expect("four bytes"));
    Extent::new(u64::from_le_bytes(off), len)
}

/// What to write into a slot, with key and value already placed.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// Which system and what it means there.
    pub kind: Kind,
    /// Namespace of the key: a database number, or a system's own.
    pub space: u8,
    /// Version: the highest of a key wins.
    pub seq: u64,
    /// Counts moves of the same version: the highest wins.
    pub rev: u32,
    /// Hash of space and key, seeded by the region.
    pub hash: u64,
    /// Length of the key, bytes.
    pub key_len: u32,
    /// Length of the value, bytes.
    pub value_len: u32,
    /// CRC-32C of the value.
    pub value_crc: u32,
    /// When the packet arrived, Unix nanoseconds.
    pub arrival_ns: u64,
    /// When the key expires, Unix milliseconds; 0 never.
    pub expiry_ms: u64,
    /// Slots of the same slab known durable when this record was made: an embedded watermark.
    pub durable_before: u32,
    /// For the owner's own use.
    pub aux: u32,
    /// The group, if the record is one of several that count together.
    pub group: Option<Group>,
    /// The key.
    pub key: KeyPlace<'a>,
    /// The value.
    pub value: ValuePlace<'a>,
}

/// Bytes of the body that remain for the value once group and key are in it; `None` if the key must be
/// stored in frames because not even one extent would fit beside it.
pub fn room_for_value(grouped: bool, key_len: usize) -> Option<usize> {
    let fixed = if grouped { GROUP_SIZE } else { 0 };
    (BODY_SIZE - fixed).checked_sub(key_len).filter(|room| *room >= EXTENT_SIZE)
}

/// Bytes of the body that remain for the value beside a key that is stored in frames.
pub fn room_beside_stored_key(grouped: bool) -> usize {
    BODY_SIZE - EXTENT_SIZE - if grouped { GROUP_SIZE } else { 0 }
}

/// The bytes of a record, checksummed for the slot it will lie in.
///
/// # Panics
/// If key and value do not fit the body: the caller has asked [`room_for_value`].
pub fn encode(record: &NewRecord<'_>, slot: SlotId, salt_crc: u32) -> [u8; RECORD_SIZE as usize] {
    let mut raw = Raw {
        crc: U32::new(0),
        kind: record.kind as u8,
        flags: 0,
        extents: 0,
        space: record.space,
        seq: U64::new(record.seq),
        rev: U32::new(record.rev),
        key_len: U32::new(record.key_len),
        value_len: U32::new(record.value_len),
        value_crc: U32::new(record.value_crc),
        hash: U64::new(record.hash),
        arrival_ns: U64::new(record.arrival_ns),
        expiry_ms: U64::new(record.expiry_ms),
        durable_before: U32::new(record.durable_before),
        aux: U32::new(record.aux),
        body: [0; BODY_SIZE],
    };
    let mut at = 0;
    if let Some(group) = record.group {
        raw.flags |= FLAG_GROUP;
        put(&mut raw.body, &mut at, &group.first_seq.to_le_bytes());
        put(&mut raw.body, &mut at, &group.count.to_le_bytes());
        put(&mut raw.body, &mut at, &group.place.to_le_bytes());
    }
    encode_key(&mut raw, &mut at, record.key);
    encode_value(&mut raw, &mut at, record.value);
    let mut bytes: [u8; RECORD_SIZE as usize] = raw.as_bytes().try_into().expect("a record's size");
    let crc = checksum(&bytes, slot, salt_crc);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn encode_key(raw: &mut Raw, at: &mut usize, key: KeyPlace<'_>) {
    match key {
        KeyPlace::Inline(bytes) => {
            raw.flags |= FLAG_KEY_INLINE;
            put(&mut raw.body, at, bytes);
        }
        KeyPlace::Stored(extent) => put(&mut raw.body, at, &encoded_extent(extent, 0)),
    }
}

fn encode_value(raw: &mut Raw, at: &mut usize, value: ValuePlace<'_>) {
    match value {
        ValuePlace::Inline(bytes) => {
            raw.flags |= FLAG_VALUE_INLINE;
            put(&mut raw.body, at, bytes);
        }
        ValuePlace::Extents(list) => {
            raw.extents = u8::try_from(list.len()).expect("the body holds five extents at most");
            put(&mut raw.body, at, list.0);
        }
        ValuePlace::Indirect(extent) => {
            raw.flags |= FLAG_INDIRECT;
            raw.extents = 1;
            put(&mut raw.body, at, &encoded_extent(extent, 0));
        }
    }
}

fn put(body: &mut [u8; BODY_SIZE], at: &mut usize, bytes: &[u8]) {
    body[*at..*at + bytes.len()].copy_from_slice(bytes);
    *at += bytes.len();
}

/// CRC-32C over the region's salt, the slot number and the record's bytes after the checksum.
fn checksum(bytes: &[u8; RECORD_SIZE as usize], slot: SlotId, salt_crc: u32) -> u32 {
    // The slot number stands where the checksum will: one pass over one buffer.
    let mut image = *bytes;
    image[..4].copy_from_slice(&slot.0.to_le_bytes());
    crc32c::crc32c_append(salt_crc, &image)
}

/// What a slot holds.
#[derive(Clone, Copy, Debug)]
pub enum Slot<'a> {
    /// Never written since the slab was zeroed.
    Empty,
    /// A record whose checks hold.
    Record(RecordView<'a>),
    /// Bytes that fail a check.
    Damaged(Damage),
}

/// A record as it lies on the medium, checked.
#[derive(Clone, Copy)]
pub struct RecordView<'a> {
    raw: &'a Raw,
    kind: Kind,
}

impl std::fmt::Debug for RecordView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("kind", &self.kind)
            .field("seq", &self.seq())
            .field("rev", &self.rev())
            .field("group", &self.group())
            .field("key", &self.key())
            .field("value", &self.value())
            .finish_non_exhaustive()
    }
}

impl<'a> RecordView<'a> {
    /// Reads the bytes of slot `slot` of a region of `region_bytes`, trusting none of them.
    pub fn parse(
        bytes: &'a [u8; RECORD_SIZE as usize],
        slot: SlotId,
        salt_crc: u32,
        region_bytes: u64,
    ) -> Slot<'a> {
        let raw = Raw::ref_from_bytes(bytes).expect("a record's size, and no alignment");
        if checksum(bytes, slot, salt_crc) != raw.crc.get() {
            let empty = bytes.iter().all(|byte| *byte == 0);
            return if empty { Slot::Empty } else { Slot::Damaged(Damage::RecordChecksum) };
        }
        let Some(kind) = Kind::from_u8(raw.kind) else {
            return Slot::Damaged(Damage::RecordFields);
        };
        let view = Self { raw, kind };
        if view.fields_hold(region_bytes) { Slot::Record(view) } else { Slot::Damaged(Damage::RecordFields) }
    }

    fn fields_hold(&self, region_bytes: u64) -> bool {
        let raw = self.raw;
        let sizes_hold = raw.flags & !FLAGS_KNOWN == 0
            && raw.key_len.get() as usize <= KEY_BYTES_MAX
            && u64::from(raw.value_len.get()) <= VALUE_BYTES_MAX
            && self.value_at() + self.value_body_len() <= BODY_SIZE;
        sizes_hold && self.places_hold(region_bytes)
    }

    fn places_hold(&self, region_bytes: u64) -> bool {
        let inside = |e: Extent| e.end() <= region_bytes;
        let key_holds = match self.key() {
            KeyPlace::Inline(_) => true,
            KeyPlace::Stored(extent) => inside(extent) && extent.len == self.raw.key_len.get(),
        };
        let value_holds = match self.value() {
            ValuePlace::Inline(_) => true,
            ValuePlace::Indirect(list) => inside(list) && list.len as usize % EXTENT_SIZE == 4,
            ValuePlace::Extents(list) => {
                let total: u64 = list.iter().map(|e| u64::from(e.len)).sum();
                list.iter().all(inside) && total == u64::from(self.raw.value_len.get())
            }
        };
        key_holds && value_holds
    }

    /// Which system and what it means there.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Namespace of the key.
    pub fn space(&self) -> u8 {
        self.raw.space
    }

    /// Version.
    pub fn seq(&self) -> u64 {
        self.raw.seq.get()
    }

    /// Moves of this version.
    pub fn rev(&self) -> u32 {
        self.raw.rev.get()
    }

    /// Hash of space and key.
    pub fn hash(&self) -> u64 {
        self.raw.hash.get()
    }

    /// Length of the key, bytes.
    pub fn key_len(&self) -> usize {
        self.raw.key_len.get() as usize
    }

    /// Length of the value, bytes.
    pub fn value_len(&self) -> usize {
        self.raw.value_len.get() as usize
    }

    /// CRC-32C of the value.
    pub fn value_crc(&self) -> u32 {
        self.raw.value_crc.get()
    }

    /// Arrival of the packet, Unix nanoseconds.
    pub fn arrival_ns(&self) -> u64 {
        self.raw.arrival_ns.get()
    }

    /// Expiry, Unix milliseconds; 0 never.
    pub fn expiry_ms(&self) -> u64 {
        self.raw.expiry_ms.get()
    }

    /// Slots of the same slab that were durable when this record was made.
    pub fn durable_before(&self) -> u32 {
        self.raw.durable_before.get()
    }

    /// The owner's own field.
    pub fn aux(&self) -> u32 {
        self.raw.aux.get()
    }

    /// True when the extents carry one's-complement sums.
    pub fn has_sums(&self) -> bool {
        self.raw.flags & FLAG_SUMS != 0
    }

    /// The group, if any.
    pub fn group(&self) -> Option<Group> {
        let body = &self.raw.body;
        (self.raw.flags & FLAG_GROUP != 0).then(|| Group {
            first_seq: u64::from_le_bytes(body[..8].try_into().expect("eight bytes")),
            count: u32::from_le_bytes(body[8..12].try_into().expect("four bytes")),
            place: u32::from_le_bytes(body[12..16].try_into().expect("four bytes")),
        })
    }

    /// The key, where it is.
    pub fn key(&self) -> KeyPlace<'a> {
        let at = self.key_at();
        if self.raw.flags & FLAG_KEY_INLINE != 0 {
            KeyPlace::Inline(&self.raw.body[at..at + self.key_len()])
        } else {
            KeyPlace::Stored(decode_extent(&self.raw.body[at..at + EXTENT_SIZE]))
        }
    }

    /// The value, where it is.
    pub fn value(&self) -> ValuePlace<'a> {
        let at = self.value_at();
        let bytes = &self.raw.body[at..at + self.value_body_len()];
        if self.raw.flags & FLAG_VALUE_INLINE != 0 {
            ValuePlace::Inline(bytes)
        } else if self.raw.flags & FLAG_INDIRECT != 0 {
            ValuePlace::Indirect(decode_extent(bytes))
        } else {
            ValuePlace::Extents(ExtentList(bytes))
        }
    }

    fn key_at(&self) -> usize {
        if self.raw.flags & FLAG_GROUP != 0 { GROUP_SIZE } else { 0 }
    }

    fn value_at(&self) -> usize {
        let key = if self.raw.flags & FLAG_KEY_INLINE != 0 { self.key_len() } else { EXTENT_SIZE };
        self.key_at().saturating_add(key)
    }

    fn value_body_len(&self) -> usize {
        if self.raw.flags & FLAG_VALUE_INLINE != 0 {
            self.value_len()
        } else {
            usize::from(self.raw.extents) * EXTENT_SIZE
        }
    }
}

/// Corrects one flipped bit in a record, if that makes its checksum hold.
///
/// CRC-32C has Hamming distance 6 at this length, so one flipped bit has one explanation. Use it only for
/// slots below the watermark: above it, wrong bytes are more likely a torn write.
pub fn correct_single_bit(
    bytes: &[u8; RECORD_SIZE as usize],
    slot: SlotId,
    salt_crc: u32,
) -> Option<[u8; RECORD_SIZE as usize]> {
    let mut copy = *bytes;
    for bit in 0..RECORD_SIZE as usize * 8 {
        copy[bit / 8] ^= 1 << (bit % 8);
        let stored = u32::from_le_bytes(copy[..4].try_into().expect("four bytes"));
        if checksum(&copy, slot, salt_crc) == stored {
            return Some(copy);
        }
        copy[bit / 8] ^= 1 << (bit % 8);
    }
    None
}

/// What a damaged record still seems to say: space, key and hash. Believe it only if the key has the hash.
pub fn salvage(bytes: &[u8; RECORD_SIZE as usize]) -> Option<(u8, Vec<u8>, u64)> {
    let raw = Raw::ref_from_bytes(bytes).ok()?;
    let view = RecordView { raw, kind: Kind::Put };
    if raw.flags & FLAG_KEY_INLINE == 0 {
        return None;
    }
    let key = raw.body.get(view.key_at()..view.value_at())?;
    Some((raw.space, key.to_vec(), raw.hash.get()))
}

/// The checksum state that every record checksum of a region starts from.
pub fn salt_crc(salt: &[u8; 16]) -> u32 {
    crc32c::crc32c(salt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample<'a>(key: &'a [u8], list: &'a [u8]) -> NewRecord<'a> {
        NewRecord {
            kind: Kind::Put,
            space: 3,
            seq: 77,
            rev: 2,
            hash: 0x1234_5678_9abc_def0,
            key_len: key.len() as u32,
            value_len: 1024,
            value_crc: 5,
            arrival_ns: 6,
            expiry_ms: 7,
            durable_before: 4,
            aux: 8,
            group: Some(Group { first_seq: 70, count: 9, place: 7 }),
            key: KeyPlace::Inline(key),
            value: ValuePlace::Extents(ExtentList(list)),
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let mut list = Vec::new();
        list.extend_from_slice(&encoded_extent(Extent::new(0xabcd_ef01_2345, 1000), 0));
        list.extend_from_slice(&encoded_extent(Extent::new(4096, 24), 0));
        let record = sample(b"key", &list);
        let bytes = encode(&record, SlotId(5), 9);
        let Slot::Record(view) = RecordView::parse(&bytes, SlotId(5), 9, 1 << 48) else {
            panic!("not read back")
        };
        assert_eq!((view.seq(), view.rev(), view.space(), view.kind()), (77, 2, 3, Kind::Put));
        assert_eq!(view.group(), record.group);
        assert_eq!(view.key(), record.key);
        assert_eq!(view.value(), record.value);
        assert!(matches!(RecordView::parse(&bytes, SlotId(6), 9, 1 << 48), Slot::Damaged(_)), "misplaced");
        assert!(
            matches!(RecordView::parse(&bytes, SlotId(5), 9, 1 << 20), Slot::Damaged(_)),
            "out of bounds"
        );
    }

    #[test]
    fn every_single_flipped_bit_is_noticed_and_corrected() {
        let mut list = Vec::new();
        list.extend_from_slice(&encoded_extent(Extent::new(4096, 1024), 0));
        let bytes = encode(&sample(b"key", &list), SlotId(5), 9);
        for bit in 0..1024 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(RecordView::parse(&bad, SlotId(5), 9, 1 << 48), Slot::Damaged(_)), "bit {bit}");
            assert_eq!(correct_single_bit(&bad, SlotId(5), 9), Some(bytes), "bit {bit}");
        }
    }
}
