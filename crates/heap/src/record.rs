//! Records: persistent packet metadata. Byte table: `docs/format/records.md`.
//!
//! [`RecordView::parse`] is the only way from bytes to a record. It validates all of them. [`Draft`] is the only way
//! from a record to bytes.

#[cfg(test)]
mod tests;

use crate::bond::{Bond, Group, TransactionId};
use crate::crc;
use crate::error::Damage;
use crate::layout::{KEY_BYTES_MAX, RECORD_SIZE, SlotId, VALUE_BYTES_MAX};
use landfall_media::{Extent, Sum};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a record's body: group, key and value, or references to key and value.
pub const BODY_SIZE: usize = 64;
/// Longest key that a record holds itself, bytes: one extent of the value has room beside it.
pub(crate) const KEY_INLINE_MAX: usize = BODY_SIZE - EXTENT_SIZE;
/// Bytes of one extent on the medium.
pub const EXTENT_SIZE: usize = 12;
/// Bytes of the mark of a group or a transaction.
pub const GROUP_SIZE: usize = 16;

/// With [`FLAG_INDIRECT`]: the body's one extent is a list of extents.
const EXTENT_LIST: u8 = 1;
/// With [`FLAG_INDIRECT`]: the body's one extent is a list of pieces. The next number stands for a list of such lists.
const PIECE_LIST: u8 = 2;

/// The kind of a record. Zero is an empty slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A version of a key.
    Put = 1,
    /// A tombstone: it supersedes all older versions of the key.
    Tombstone = 2,
    /// A flush mark: it supersedes all older records of its space. Space 255 stands for every space.
    Flush = 3,
    /// A bound: it supersedes the records with its space and its `aux` that have a lower *mark*. Like a tombstone it
    /// may be written when the region is full.
    Bound = 4,
    /// A commit record: the records of the transaction that its key names count.
    Commit = 5,
}

impl Kind {
    #[inline]
    fn from_u8(byte: u8) -> Option<Self> {
        [Self::Put, Self::Tombstone, Self::Flush, Self::Bound, Self::Commit]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

const FLAG_GROUP: u8 = 1;
const FLAG_KEY_INLINE: u8 = 2;
const FLAG_VALUE_INLINE: u8 = 4;
const FLAG_INDIRECT: u8 = 8;
const FLAG_SUMS: u8 = 16;
const FLAG_SUMS_ONLY: u8 = 32;
const FLAG_SHARED: u8 = 64;
const FLAGS_KNOWN: u8 = 127;

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

/// The place of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace<'a> {
    /// In the record.
    Inline(&'a [u8]),
    /// In frames.
    Stored(Extent),
}

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlace<'a> {
    /// In the record.
    Inline(&'a [u8]),
    /// In frames: encoded extents.
    Extents(ExtentList<'a>),
    /// In frames: a stored list of extents that ends in a CRC-32C.
    Indirect(Extent),
    /// In frames: a stored list of pieces.
    Pieces(PieceList),
}

/// The list of a value's pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceList {
    /// Extent of the list.
    pub at: Extent,
    /// Whether its entries are pieces, or lists of pieces.
    pub depth: PieceDepth,
}

/// What the entries of a list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceDepth {
    /// Pieces.
    Pieces,
    /// Lists of pieces.
    Lists,
}

/// The checksum of a value in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The CRC-32C of the value.
    Crc(u32),
    /// The one's-complement sums of its extents. Each extent has one. The data were durable before the record was
    /// written.
    Sums,
}

impl Check {
    /// The CRC-32C, if there is one.
    pub fn crc(self) -> Option<u32> {
        match self {
            Self::Crc(crc) => Some(crc),
            Self::Sums => None,
        }
    }
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

/// Encodes an extent: 48-bit offset, 32-bit length, 16-bit one's-complement sum (0: no sum).
#[inline]
pub fn encoded_extent(extent: Extent) -> [u8; EXTENT_SIZE] {
    let sum = extent.sum().map_or(0, Sum::to_stored);
    let mut bytes = [0; EXTENT_SIZE];
    bytes[..6].copy_from_slice(&extent.off.to_le_bytes()[..6]);
    bytes[6..10].copy_from_slice(&extent.len().to_le_bytes());
    bytes[10..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[inline]
fn decode_extent(bytes: &[u8]) -> Extent {
    let mut off = [0; 8];
    off[..6].copy_from_slice(&bytes[..6]);
    let len = u32::from_le_bytes(bytes[6..10].try_into().expect("four bytes"));
    let sum = u16::from_le_bytes([bytes[10], bytes[11]]);
    Extent::new(u64::from_le_bytes(off), len).with_sum(Sum::from_stored(sum))
}

/// The fixed fields of a record.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// The kind of record.
    pub kind: Kind,
    /// Namespace of the key: the number of a database, or a space of a system.
    pub space: u8,
    /// Version. The highest version of a key is current.
    pub seq: u64,
    /// Number of moves of the version. The highest revision is current.
    pub rev: u32,
    /// Hash of space and key, seeded by the region.
    pub hash: u64,
    /// Arrival of the packet, Unix nanoseconds.
    pub arrival_ns: u64,
    /// Expiry of the key, Unix milliseconds; 0 never.
    pub expiry_ms: u64,
    /// A field for the owner's use.
    pub aux: u32,
}

/// A record under construction, as the bytes that will be stored. Group, key and value are added to its body in this
/// order, then [`Self::seal`] completes it.
#[derive(Clone, Copy)]
pub struct Draft {
    raw: Raw,
    /// Bytes of the body in use.
    at: usize,
}

impl Draft {
    /// A record with an empty body: no group, an empty stored key and no value yet.
    #[inline]
    pub fn new(fields: &Fields) -> Self {
        let raw = Raw {
            crc: U32::new(0),
            kind: fields.kind as u8,
            flags: 0,
            extents: 0,
            space: fields.space,
            seq: U64::new(fields.seq),
            rev: U32::new(fields.rev),
            key_len: U32::new(0),
            value_len: U32::new(0),
            value_crc: U32::new(0),
            hash: U64::new(fields.hash),
            arrival_ns: U64::new(fields.arrival_ns),
            expiry_ms: U64::new(fields.expiry_ms),
            durable_before: U32::new(0),
            aux: U32::new(fields.aux),
            body: [0; BODY_SIZE],
        };
        Self { raw, at: 0 }
    }

    /// Adds the group or the transaction. A transaction is encoded as a group of zero records.
    #[inline]
    pub(crate) fn bond(&mut self, bond: Bond) {
        let Group { first_seq, count, place } = match bond {
            Bond::Alone => return,
            Bond::Group(group) => group,
            Bond::Transaction(id) => Group { first_seq: id.0, count: 0, place: 0 },
        };
        self.raw.flags |= FLAG_GROUP;
        self.put(&first_seq.to_le_bytes());
        self.put(&count.to_le_bytes());
        self.put(&place.to_le_bytes());
    }

    /// Free bytes of the body.
    #[inline]
    pub fn room(&self) -> usize {
        BODY_SIZE - self.at
    }

    /// True if a key of this length fits together with one extent of the value. Longer keys are stored in frames.
    #[inline]
    pub fn holds_key(&self, key_len: usize) -> bool {
        key_len + EXTENT_SIZE <= self.room()
    }

    /// Adds an inline key.
    #[inline]
    pub fn key_inline(&mut self, key: &[u8]) {
        self.raw.flags |= FLAG_KEY_INLINE;
        self.raw.key_len.set(key.len() as u32);
        self.put(key);
    }

    /// Adds a key that is stored in frames.
    pub fn key_stored(&mut self, at: Extent) {
        self.raw.key_len.set(at.len());
        self.put(&encoded_extent(at));
    }

    /// Adds an inline value; `crc` is its CRC-32C.
    #[inline]
    pub fn value_inline(&mut self, bytes: &[u8], crc: u32) {
        self.raw.flags |= FLAG_VALUE_INLINE;
        self.raw.value_len.set(bytes.len() as u32);
        self.raw.value_crc.set(crc);
        self.put(bytes);
    }

    /// Adds a value in frames.
    #[inline]
    pub fn value_extents(&mut self, extents: &[Extent], check: Check) {
        self.raw.extents = u8::try_from(extents.len()).expect("the body holds five extents at most");
        self.raw.value_len.set(extents.iter().map(|extent| extent.len()).sum());
        self.set_check(check);
        if extents.iter().any(|extent| extent.sum().is_some()) {
            self.raw.flags |= FLAG_SUMS;
        }
        extents.iter().for_each(|extent| self.put(&encoded_extent(*extent)));
    }

    #[inline]
    fn set_check(&mut self, check: Check) {
        match check {
            Check::Crc(crc) => self.raw.value_crc.set(crc),
            Check::Sums => self.raw.flags |= FLAG_SUMS_ONLY,
        }
    }

    /// Adds a value of `len` bytes with a stored list of extents.
    pub fn value_indirect(&mut self, list: Extent, len: u32, check: Check) {
        self.raw.extents = EXTENT_LIST;
        self.put_list(list, len, check);
    }

    /// Adds a value of `len` bytes in pieces; `crc` is the CRC-32C of the whole value.
    pub fn value_pieces(&mut self, list: PieceList, len: u32, crc: u32) {
        self.raw.extents = match list.depth {
            PieceDepth::Pieces => PIECE_LIST,
            PieceDepth::Lists => PIECE_LIST + 1,
        };
        self.put_list(list.at, len, Check::Crc(crc));
    }

    fn put_list(&mut self, list: Extent, len: u32, check: Check) {
        self.raw.flags |= FLAG_INDIRECT;
        self.raw.value_len.set(len);
        self.set_check(check);
        self.put(&encoded_extent(list));
    }

    /// Sets the flag that other records may refer to the same bytes of the value.
    #[inline]
    pub fn shared(&mut self) {
        self.raw.flags |= FLAG_SHARED;
    }

    /// The bytes to store, with the checksum for their slot. `durable_before` is an embedded watermark: the number of
    /// slots of the slab that are known to be durable now.
    #[inline]
    pub fn seal(mut self, slot: SlotId, durable_before: u32, seal: Seal) -> [u8; RECORD_SIZE as usize] {
        self.raw.durable_before.set(durable_before);
        self.raw.crc.set(slot.0);
        let crc = seal.of_image(self.raw.as_bytes());
        self.raw.crc.set(crc);
        self.raw.as_bytes().try_into().expect("a record's size")
    }

    /// # Panics
    /// If the bytes exceed [`Self::room`].
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.raw.body[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// Binds record checksums to one epoch of one slab. Derived from the region's salt and the slab's epoch.
///
/// The checksum is CRC-32C over the salt, the slot number, and the record's bytes after the checksum. The epoch is
/// XORed into the end of the salt. CRCs are linear: for inputs of one length, a different prefix adds a constant. That
/// constant is kept here, so that each record costs one pass over its own bytes. A CRC-32C distinguishes all bursts of
/// 32 bits, so different epochs add different constants: a record is never valid in another epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal(u32);

impl Seal {
    /// The seal of a slab of epoch `epoch` in a region with this salt.
    pub fn new(salt: &[u8; 16], epoch: u32) -> Self {
        const ZEROES: [u8; RECORD_SIZE as usize] = [0; RECORD_SIZE as usize];
        let mut salt = *salt;
        salt[12..].iter_mut().zip(epoch.to_le_bytes()).for_each(|(byte, of_epoch)| *byte ^= of_epoch);
        Self(crc::append(crc::of(&salt), &ZEROES) ^ crc::of(&ZEROES))
    }

    /// The seal as one word.
    pub fn to_word(self) -> u32 {
        self.0
    }

    /// The inverse of [`Self::to_word`].
    pub fn from_word(word: u32) -> Self {
        Self(word)
    }

    /// True if the bytes of a slot have a checksum with this seal.
    pub(crate) fn holds(self, bytes: &[u8; RECORD_SIZE as usize], slot: SlotId) -> bool {
        self.of_stored(bytes, slot).to_le_bytes() == bytes[..4]
    }

    /// The checksum of an image: a record with its slot number in place of the checksum.
    #[inline]
    fn of_image(self, image: &[u8]) -> u32 {
        crc::of(image) ^ self.0
    }

    #[inline]
    fn of_stored(self, bytes: &[u8; RECORD_SIZE as usize], slot: SlotId) -> u32 {
        let mut image = *bytes;
        image[..4].copy_from_slice(&slot.0.to_le_bytes());
        self.of_image(&image)
    }
}

/// The content of a slot.
#[derive(Clone, Copy, Debug)]
pub enum Slot<'a> {
    /// Zeroes. (A slot that was not written since its run became a slab may hold other bytes, and is then reported as
    /// damaged.)
    Empty,
    /// A valid record.
    Record(RecordView<'a>),
    /// Bytes that fail a check.
    Damaged(Damage),
}

/// A validated record on the medium.
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
            .field("transaction", &self.transaction())
            .field("key", &self.key())
            .field("value", &self.value())
            .finish_non_exhaustive()
    }
}

impl<'a> RecordView<'a> {
    /// Validates the untrusted bytes of slot `slot` in a region of `region_bytes`.
    #[inline]
    pub fn parse(
        bytes: &'a [u8; RECORD_SIZE as usize],
        slot: SlotId,
        seal: Seal,
        region_bytes: u64,
    ) -> Slot<'a> {
        let raw = Raw::ref_from_bytes(bytes).expect("a record's size, and no alignment");
        if seal.of_stored(bytes, slot) != raw.crc.get() {
            let empty = bytes.iter().all(|byte| *byte == 0);
            return if empty { Slot::Empty } else { Slot::Damaged(Damage::RecordChecksum) };
        }
        let Some(kind) = Kind::from_u8(raw.kind) else {
            return Slot::Damaged(Damage::RecordFields);
        };
        let view = Self { raw, kind };
        if view.fields_hold(region_bytes) { Slot::Record(view) } else { Slot::Damaged(Damage::RecordFields) }
    }

    #[inline]
    fn fields_hold(&self, region_bytes: u64) -> bool {
        let raw = self.raw;
        let is_indirect = raw.flags & FLAG_INDIRECT != 0 && raw.flags & FLAG_VALUE_INLINE == 0;
        let sizes_hold = raw.flags & !FLAGS_KNOWN == 0
            && (!is_indirect || (EXTENT_LIST..=PIECE_LIST + 1).contains(&raw.extents))
            && raw.key_len.get() as usize <= KEY_BYTES_MAX
            && u64::from(raw.value_len.get()) <= VALUE_BYTES_MAX
            && self.value_at() + self.value_body_len() <= BODY_SIZE;
        sizes_hold && self.places_hold(region_bytes)
    }

    #[inline]
    fn places_hold(&self, region_bytes: u64) -> bool {
        let inside = |e: Extent| e.end() <= region_bytes;
        let key_holds = match self.key() {
            KeyPlace::Inline(_) => true,
            KeyPlace::Stored(extent) => inside(extent) && extent.len() == self.raw.key_len.get(),
        };
        let value_holds = match self.value() {
            ValuePlace::Inline(_) => true,
            ValuePlace::Indirect(list) => inside(list) && list.len() as usize % EXTENT_SIZE == 4,
            ValuePlace::Pieces(list) => inside(list.at) && self.check() != Check::Sums,
            ValuePlace::Extents(list) => {
                let total: u64 = list.iter().map(|e| u64::from(e.len())).sum();
                list.iter().all(inside) && total == u64::from(self.raw.value_len.get())
            }
        };
        key_holds && value_holds
    }

    /// The kind of record.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Namespace of the key.
    #[inline]
    pub fn space(&self) -> u8 {
        self.raw.space
    }

    /// Version.
    #[inline]
    pub fn seq(&self) -> u64 {
        self.raw.seq.get()
    }

    /// Number of moves of this version.
    pub fn rev(&self) -> u32 {
        self.raw.rev.get()
    }

    /// Hash of space and key.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.raw.hash.get()
    }

    /// Length of the key, bytes.
    #[inline]
    pub fn key_len(&self) -> usize {
        self.raw.key_len.get() as usize
    }

    /// Length of the value, bytes.
    #[inline]
    pub fn value_len(&self) -> usize {
        self.raw.value_len.get() as usize
    }

    /// What certifies the value.
    #[inline]
    pub fn check(&self) -> Check {
        if self.raw.flags & FLAG_SUMS_ONLY != 0 { Check::Sums } else { Check::Crc(self.raw.value_crc.get()) }
    }

    /// Arrival of the packet, Unix nanoseconds.
    pub fn arrival_ns(&self) -> u64 {
        self.raw.arrival_ns.get()
    }

    /// Expiry, Unix milliseconds; 0 never.
    #[inline]
    pub fn expiry_ms(&self) -> u64 {
        self.raw.expiry_ms.get()
    }

    /// The mark, which spaces whose records do not expire keep in the field of the expiry: see [`Kind::Bound`].
    pub fn mark(&self) -> u64 {
        self.raw.expiry_ms.get()
    }

    /// Number of slots of the slab that were durable when this record was appended.
    pub fn durable_before(&self) -> u32 {
        self.raw.durable_before.get()
    }

    /// A field for the owner's use.
    pub fn aux(&self) -> u32 {
        self.raw.aux.get()
    }

    /// True if the extents have one's-complement sums.
    pub fn has_sums(&self) -> bool {
        self.raw.flags & FLAG_SUMS != 0
    }

    /// True if other records may refer to the same bytes of the value.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.raw.flags & FLAG_SHARED != 0
    }

    /// True if the value is in pieces.
    #[inline]
    pub fn is_in_pieces(&self) -> bool {
        matches!(self.value(), ValuePlace::Pieces(_))
    }

    /// The group, if any.
    pub fn group(&self) -> Option<Group> {
        match self.bond() {
            Bond::Group(group) => Some(group),
            _ => None,
        }
    }

    /// The transaction, if any.
    #[inline]
    pub fn transaction(&self) -> Option<TransactionId> {
        self.bond().transaction()
    }

    /// The transaction that a commit record commits.
    #[inline]
    pub fn commits(&self) -> Option<TransactionId> {
        match self.key() {
            KeyPlace::Inline(key) if self.kind == Kind::Commit => TransactionId::from_key(key),
            _ => None,
        }
    }

    /// The group or the transaction with which the record counts.
    #[inline]
    pub(crate) fn bond(&self) -> Bond {
        if self.raw.flags & FLAG_GROUP == 0 {
            return Bond::Alone;
        }
        let body = &self.raw.body;
        let group = Group {
            first_seq: u64::from_le_bytes(body[..8].try_into().expect("eight bytes")),
            count: u32::from_le_bytes(body[8..12].try_into().expect("four bytes")),
            place: u32::from_le_bytes(body[12..16].try_into().expect("four bytes")),
        };
        if group.count == 0 { Bond::Transaction(TransactionId(group.first_seq)) } else { Bond::Group(group) }
    }

    /// The place of the key.
    #[inline]
    pub fn key(&self) -> KeyPlace<'a> {
        let at = self.key_at();
        if self.raw.flags & FLAG_KEY_INLINE != 0 {
            KeyPlace::Inline(&self.raw.body[at..at + self.key_len()])
        } else {
            KeyPlace::Stored(decode_extent(&self.raw.body[at..at + EXTENT_SIZE]))
        }
    }

    /// The place of the value.
    #[inline]
    pub fn value(&self) -> ValuePlace<'a> {
        let at = self.value_at();
        let bytes = &self.raw.body[at..at + self.value_body_len()];
        if self.raw.flags & FLAG_VALUE_INLINE != 0 {
            ValuePlace::Inline(bytes)
        } else if self.raw.flags & FLAG_INDIRECT != 0 {
            let at = decode_extent(bytes);
            match self.raw.extents {
                EXTENT_LIST => ValuePlace::Indirect(at),
                PIECE_LIST => ValuePlace::Pieces(PieceList { at, depth: PieceDepth::Pieces }),
                _ => ValuePlace::Pieces(PieceList { at, depth: PieceDepth::Lists }),
            }
        } else {
            ValuePlace::Extents(ExtentList(bytes))
        }
    }

    #[inline]
    fn key_at(&self) -> usize {
        if self.raw.flags & FLAG_GROUP != 0 { GROUP_SIZE } else { 0 }
    }

    #[inline]
    fn value_at(&self) -> usize {
        let key = if self.raw.flags & FLAG_KEY_INLINE != 0 { self.key_len() } else { EXTENT_SIZE };
        self.key_at().saturating_add(key)
    }

    #[inline]
    fn value_body_len(&self) -> usize {
        if self.raw.flags & FLAG_VALUE_INLINE != 0 {
            self.value_len()
        } else if self.raw.flags & FLAG_INDIRECT != 0 {
            EXTENT_SIZE
        } else {
            usize::from(self.raw.extents) * EXTENT_SIZE
        }
    }
}

/// Corrects one flipped bit in a record, if the checksum then matches.
///
/// CRC-32C has Hamming distance 6 at this length, so a flipped bit is identified uniquely. Use it only for slots below
/// the watermark: above it, wrong bytes are more likely a torn write.
pub fn correct_single_bit(
    bytes: &[u8; RECORD_SIZE as usize],
    slot: SlotId,
    seal: Seal,
) -> Option<[u8; RECORD_SIZE as usize]> {
    let mut copy = *bytes;
    for bit in 0..RECORD_SIZE as usize * 8 {
        copy[bit / 8] ^= 1 << (bit % 8);
        let stored = u32::from_le_bytes(copy[..4].try_into().expect("four bytes"));
        if seal.of_stored(&copy, slot) == stored {
            return Some(copy);
        }
        copy[bit / 8] ^= 1 << (bit % 8);
    }
    None
}

/// The version in a damaged record that says that it is a flush mark. Whether it holds is for the caller to find out.
pub fn salvage_flush(bytes: &[u8; RECORD_SIZE as usize]) -> Option<u64> {
    let raw = Raw::ref_from_bytes(bytes).ok()?;
    (raw.kind == Kind::Flush as u8 && raw.rev.get() == 0).then_some(raw.seq.get())
}

/// Space, key and hash of a damaged record with an inline key. They are trustworthy only if the key has that hash.
pub fn salvage(bytes: &[u8; RECORD_SIZE as usize]) -> Option<(u8, Vec<u8>, u64)> {
    let raw = Raw::ref_from_bytes(bytes).ok()?;
    let view = RecordView { raw, kind: Kind::Put };
    if raw.flags & FLAG_KEY_INLINE == 0 {
        return None;
    }
    let key = raw.body.get(view.key_at()..view.value_at())?;
    Some((raw.space, key.to_vec(), raw.hash.get()))
}
