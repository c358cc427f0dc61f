//! The entries of a directory in one record, in order of their positions. Byte table: `docs/format/fs.md`, "Names".

use crate::fields::Fields;
use crate::inode::FileType;
use crate::key::InodeNumber;
use crate::name::{NAME_BYTES_MAX, Name};
use landfall_heap::Damage;
use std::ops::{Range, RangeInclusive};

/// A record of names is divided when it would have more bytes.
pub const NAMES_BYTES_MAX: usize = 4096;
/// Two neighbours are joined when together they have fewer bytes.
pub const NAMES_BYTES_MIN: usize = 1024;
/// Positions at which a name may lie.
pub const POSITIONS_OF_A_NAME: u64 = 256;

/// The lowest position of an entry: those below stand for `.`, `..` and what may follow.
const FIRST_POSITION: u64 = 16;
/// Bytes of an entry without its name.
const ENTRY_BYTES: usize = 18;

/// The place of an entry in its directory, for life: a stable offset for `readdir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

impl Position {
    /// The positions at which a name with this hash may lie. They fit into a signed offset.
    pub fn candidates(hash: u64) -> RangeInclusive<Self> {
        let first = (hash >> 2).max(FIRST_POSITION);
        Self(first)..=Self(first + POSITIONS_OF_A_NAME - 1)
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEntry {
    /// Its place.
    pub position: Position,
    /// The inode.
    pub number: InodeNumber,
    /// The inode's type.
    pub file_type: FileType,
    name: Box<[u8]>,
}

impl NameEntry {
    /// An entry.
    pub fn new(position: Position, number: InodeNumber, file_type: FileType, name: Name<'_>) -> Self {
        Self { position, number, file_type, name: name.bytes().into() }
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    fn encoded_len(&self) -> usize {
        ENTRY_BYTES + self.name.len()
    }
}

/// The entries of one record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    entries: Vec<NameEntry>,
    /// Bytes of the encoded entries.
    bytes: usize,
}

/// The second part of a divided record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divided {
    /// Its first position, which becomes part of its key.
    pub first: Position,
    /// Its entries.
    pub names: Names,
}

impl Names {
    /// The entries, in order of their positions.
    pub fn entries(&self) -> &[NameEntry] {
        &self.entries
    }

    /// Bytes of the record's value.
    pub fn encoded_len(&self) -> usize {
        self.bytes
    }

    /// True without entries: the record is then deleted.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Index of the entry at `position`, or where it would be.
    fn index(&self, position: Position) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&position, |entry| entry.position)
    }

    /// Indices of the entries with positions in `positions`.
    fn indices(&self, positions: &RangeInclusive<Position>) -> Range<usize> {
        let start = self.entries.partition_point(|entry| entry.position < *positions.start());
        let end = self.entries.partition_point(|entry| entry.position <= *positions.end());
        start..end.max(start)
    }

    /// The entry of a name, if it lies in this record. `candidates` are the positions at which it may lie.
    pub fn find(&self, name: Name<'_>, candidates: &RangeInclusive<Position>) -> Option<&NameEntry> {
        self.entries[self.indices(candidates)].iter().find(|entry| *entry.name == *name.bytes())
    }

    /// The lowest position of `candidates` that no entry of this record has. The record covers all of `candidates`: where
    /// those of a name lie in two records, the caller asks each about its part.
    pub fn free_position(&self, candidates: &RangeInclusive<Position>) -> Option<Position> {
        let taken = self.entries[self.indices(candidates)].iter().map(|entry| entry.position.0);
        let free = (candidates.start().0..).zip(taken).find(|(expected, taken)| expected != taken);
        let count = self.indices(candidates).len() as u64;
        let position = free.map_or(candidates.start().0 + count, |(expected, _)| expected);
        (position <= candidates.end().0).then_some(Position(position))
    }

    /// Puts an entry at its position. Returns the entry that was there.
    pub fn insert(&mut self, entry: NameEntry) -> Option<NameEntry> {
        self.bytes += entry.encoded_len();
        let old = match self.index(entry.position) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at], entry)),
            Err(at) => {
                self.entries.insert(at, entry);
                None
            }
        };
        self.bytes -= old.as_ref().map_or(0, NameEntry::encoded_len);
        old
    }

    /// Takes the entry at a position out.
    pub fn remove(&mut self, position: Position) -> Option<NameEntry> {
        let at = self.index(position).ok()?;
        let entry = self.entries.remove(at);
        self.bytes -= entry.encoded_len();
        Some(entry)
    }

    /// Divides a record with more than [`NAMES_BYTES_MAX`] bytes: about half of the bytes go to a new record. `None`
    /// if the record may stay as it is.
    pub fn divide(&mut self) -> Option<Divided> {
        if self.bytes <= NAMES_BYTES_MAX {
            return None;
        }
        let mut before = 0;
        let half = self.entries.iter().position(|entry| {
            before += entry.encoded_len();
            before * 2 > self.bytes
        });
        let at = half?.max(1);
        let names = Self::of(self.entries.split_off(at));
        self.bytes -= names.bytes;
        names.entries.first().map(|entry| entry.position).map(|first| Divided { first, names })
    }

    /// Appends the next record's entries if both together are shorter than [`NAMES_BYTES_MIN`]. Gives them back if not.
    ///
    /// # Errors
    /// `next`, which stays a record of its own.
    pub fn join(&mut self, next: Self) -> Result<(), Self> {
        if self.bytes + next.bytes >= NAMES_BYTES_MIN {
            return Err(next);
        }
        self.bytes += next.bytes;
        self.entries.extend(next.entries);
        Ok(())
    }

    fn of(entries: Vec<NameEntry>) -> Self {
        let bytes = entries.iter().map(NameEntry::encoded_len).sum();
        Self { entries, bytes }
    }

    /// The record's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.position.0.to_le_bytes());
            bytes.extend_from_slice(&entry.number.key());
            bytes.push(entry.file_type.code());
            bytes.push(u8::try_from(entry.name.len()).expect("a name has at most 255 bytes"));
            bytes.extend_from_slice(&entry.name);
        }
        bytes
    }

    /// Reads a value. `covers` are the positions that its record covers.
    ///
    /// # Errors
    /// [`Damage::RecordFields`]: cut off, a type or name that cannot be, or positions out of order or not covered.
    pub fn decode(value: &[u8], covers: &Range<Position>) -> Result<Self, Damage> {
        let mut fields = Fields(value);
        let (mut entries, mut lowest) = (Vec::new(), covers.start);
        while !fields.is_empty() {
            let entry = decode_entry(&mut fields)?;
            if entry.position < lowest || entry.position >= covers.end {
                return Err(Damage::RecordFields);
            }
            lowest = Position(entry.position.0 + 1);
            entries.push(entry);
        }
        Ok(Self { entries, bytes: value.len() })
    }
}

fn decode_entry(fields: &mut Fields<'_>) -> Result<NameEntry, Damage> {
    let (position, number) = (Position(fields.u64()?), InodeNumber(fields.u64()?));
    let file_type = FileType::of_code(fields.u8()?).ok_or(Damage::RecordFields)?;
    let len = fields.u8()?;
    let name = Name::new(fields.bytes(usize::from(len))?).map_err(|_| Damage::RecordFields)?;
    Ok(NameEntry::new(position, number, file_type, name))
}

const _: () =
    assert!(NAMES_BYTES_MAX > 2 * (ENTRY_BYTES + NAME_BYTES_MAX), "a record of two halves has entries");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const ALL: Range<Position> = Position(0)..Position(u64::MAX);

    fn entry(position: u64, name: &[u8]) -> NameEntry {
        NameEntry::new(
            Position(position),
            InodeNumber(position + 1),
            FileType::File,
            Name::new(name).unwrap(),
        )
    }

    /// The bytes are those of `docs/format/fs.md`: later versions must read what earlier versions wrote.
    #[test]
    fn names_are_frozen() {
        let mut names = Names::default();
        assert_eq!(names.insert(entry(0x0203, b"b")), None);
        assert_eq!(names.insert(entry(16, b"aa")), None);
        let first = [16, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 8, 2, b'a', b'a'];
        let second = [3, 2, 0, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 8, 1, b'b'];
        assert_eq!(names.encode(), [&first[..], &second[..]].concat());
    }

    #[test]
    fn what_cannot_have_been_encoded_is_damage() {
        let mut names = Names::default();
        names.insert(entry(20, b"a"));
        names.insert(entry(30, b"b"));
        let good = names.encode();
        assert_eq!(Names::decode(&good, &ALL), Ok(names));
        for covers in [Position(21)..Position(99), Position(0)..Position(30)] {
            assert_eq!(Names::decode(&good, &covers), Err(Damage::RecordFields), "{covers:?}");
        }
        let twice = [&good[..19], &good[..19]].concat();
        let mut no_type = good.clone();
        no_type[16] = 3;
        let mut slash = good.clone();
        slash[18] = b'/';
        for bad in [&good[..18], &good[..30], &twice, &no_type, &slash] {
            assert_eq!(Names::decode(bad, &ALL), Err(Damage::RecordFields), "{bad:?}");
        }
    }

    #[test]
    fn a_name_takes_the_lowest_free_one_of_its_positions() {
        let candidates = Position::candidates(40 << 2);
        let mut names = Names::default();
        for expected in 40..40 + POSITIONS_OF_A_NAME {
            assert_eq!(names.free_position(&candidates), Some(Position(expected)));
            names.insert(entry(expected, format!("n{expected}").as_bytes()));
        }
        assert_eq!(names.free_position(&candidates), None);
        assert_eq!(names.remove(Position(77)).map(|gone| gone.position), Some(Position(77)));
        assert_eq!(names.free_position(&candidates), Some(Position(77)));
        assert_eq!(names.find(Name::new(b"n295").unwrap(), &candidates).map(|e| e.position.0), Some(295));
        assert_eq!(names.find(Name::new(b"n295").unwrap(), &Position::candidates(39 << 2)), None);
    }

    #[test]
    fn positions_leave_room_for_dot_and_fit_into_a_signed_offset() {
        assert_eq!(*Position::candidates(0).start(), Position(FIRST_POSITION));
        assert!(Position::candidates(u64::MAX).end().0 < i64::MAX as u64);
    }

    fn some_names() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
        let name = prop::collection::vec(b'a'..=b'z', 1..=NAME_BYTES_MAX);
        prop::collection::vec((16..4000_u64, name), 0..120)
    }

    proptest! {
        #[test]
        fn names_are_a_sorted_map_that_survives_encoding(steps in some_names(), removed in 16..4000_u64) {
            let (mut names, mut model) = (Names::default(), BTreeMap::new());
            for (position, name) in steps {
                let new = entry(position, &name);
                prop_assert_eq!(names.insert(new.clone()), model.insert(position, new));
            }
            prop_assert_eq!(names.remove(Position(removed)), model.remove(&removed));
            prop_assert!(names.entries().iter().eq(model.values()));
            let bytes = names.encode();
            prop_assert_eq!(bytes.len(), names.encoded_len());
            prop_assert_eq!(Names::decode(&bytes, &ALL), Ok(names));
        }

        #[test]
        fn a_divided_record_keeps_all_entries_in_two_halves(steps in some_names()) {
            let mut names = Names::default();
            steps.iter().for_each(|(position, name)| drop(names.insert(entry(*position, name))));
            let (before, bytes) = (names.clone(), names.encoded_len());
            match names.divide() {
                None => prop_assert!(bytes <= NAMES_BYTES_MAX && names == before),
                Some(divided) => {
                    prop_assert!(bytes > NAMES_BYTES_MAX);
                    let (left, right) = (names.encoded_len(), divided.names.encoded_len());
                    prop_assert_eq!(left + right, bytes);
                    prop_assert!(left.abs_diff(right) <= 2 * (ENTRY_BYTES + NAME_BYTES_MAX));
                    prop_assert!(names.entries().last().unwrap().position < divided.first);
                    let both = names.entries().iter().chain(divided.names.entries());
                    prop_assert!(both.eq(before.entries()));
                    prop_assert!(names.join(divided.names).is_err(), "both together are long");
                }
            }
        }

        #[test]
        fn any_bytes_are_names_or_damage(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(names) = Names::decode(&bytes, &ALL) {
                prop_assert_eq!(names.encode(), bytes);
            }
        }
    }

    #[test]
    fn short_neighbours_are_joined() {
        let (mut names, mut next) = (Names::default(), Names::default());
        names.insert(entry(20, b"a"));
        next.insert(entry(30, b"b"));
        let bytes = names.encoded_len() + next.encoded_len();
        assert_eq!(names.join(next), Ok(()));
        assert_eq!((names.entries().len(), names.encoded_len()), (2, bytes));
    }
}
