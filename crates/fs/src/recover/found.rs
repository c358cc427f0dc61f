//! What recovery finds while it reads the records.

use crate::header::{HEADER_KEY, LogFields};
use crate::key::{DataKey, InodeNumber, NamesKey};
use landfall_heap::{Damage, Heap, SlotId, spaces};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of lists in which recovery gathers records of the tree. Those of one inode all go to one list.
const STRIPES: u64 = 64;

/// The key of a record of the tree. The order is that in which recovery decides: an inode comes before its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordKey {
    /// The inode; 0 for the header.
    pub(crate) number: InodeNumber,
    pub(super) space: u8,
    /// First position of names, first block of data; otherwise 0.
    pub(crate) place: u64,
}

impl RecordKey {
    /// `None` if no such record is written.
    pub(crate) fn decode(space: u8, key: &[u8]) -> Option<Self> {
        let (number, place) = match space {
            spaces::FILES_HEADER => (key == HEADER_KEY).then_some((InodeNumber(0), 0)),
            spaces::FILES_INODE | spaces::FILES_EXTENDED => InodeNumber::of_key(key).ok().map(|n| (n, 0)),
            spaces::FILES_NAMES => NamesKey::decode(key).ok().map(|key| (key.directory, key.first)),
            spaces::FILES_DATA => DataKey::decode(key).ok().map(|key| (key.file, u64::from(key.first))),
            _ => None,
        }?;
        Some(Self { number, space, place })
    }

    /// The hash of the key.
    pub(super) fn hash(self, heap: &Heap) -> u64 {
        let Self { number, space, place } = self;
        match space {
            spaces::FILES_HEADER => heap.hash(space, HEADER_KEY),
            spaces::FILES_NAMES => heap.hash(space, &NamesKey { directory: number, first: place }.encode()),
            spaces::FILES_DATA => heap.hash(space, &DataKey { file: number, first: place as u32 }.encode()),
            _ => heap.hash(space, &number.key()),
        }
    }

    /// The key of the inode to which the record belongs: names, data and extended attributes mean nothing without it.
    pub(super) fn inode(self) -> Option<Self> {
        let is_part = matches!(self.space, spaces::FILES_NAMES | spaces::FILES_DATA | spaces::FILES_EXTENDED);
        is_part.then_some(Self { space: spaces::FILES_INODE, place: 0, ..self })
    }

    /// The name of the record, for people.
    pub(super) fn describe(self) -> String {
        let (number, place) = (self.number.0, self.place);
        match self.space {
            spaces::FILES_HEADER => "header of the files".into(),
            spaces::FILES_INODE => format!("inode {number}"),
            spaces::FILES_NAMES => format!("names of directory {number} from position {place} on"),
            spaces::FILES_DATA => format!("data of inode {number} from block {place} on"),
            _ => format!("extended attributes of inode {number}"),
        }
    }
}

/// A record of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFound {
    pub(super) key: RecordKey,
    pub(super) is_tombstone: bool,
    /// The record of an inode that has no name.
    pub(super) is_orphan: bool,
    pub(super) slot: SlotId,
    pub(super) version: Version,
}

/// Order of the records of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) seq: u64,
    pub(super) rev: u32,
}

/// Records of some inodes, sorted when they are looked at.
#[derive(Debug, Default)]
struct Stripe {
    records: Vec<RecordFound>,
    is_sorted: bool,
}

impl Stripe {
    fn sorted(&mut self) -> &[RecordFound] {
        if !self.is_sorted {
            self.records.sort_unstable_by_key(|record| (record.key, record.version));
            self.is_sorted = true;
        }
        &self.records
    }

    /// Records of one key, in order of their versions.
    fn of(&mut self, key: RecordKey) -> &[RecordFound] {
        let all = self.sorted();
        let from = all.partition_point(|record| record.key < key);
        let until = all.partition_point(|record| record.key <= key);
        &all[from..until]
    }
}

/// All records of the tree.
#[derive(Debug)]
pub(super) struct TreeFound {
    stripes: [Mutex<Stripe>; STRIPES as usize],
    /// Records with a lower seq mean nothing.
    floor: AtomicU64,
}

impl Default for TreeFound {
    fn default() -> Self {
        Self { stripes: std::array::from_fn(|_| Mutex::default()), floor: AtomicU64::new(0) }
    }
}

impl TreeFound {
    fn stripe(&self, number: InodeNumber) -> &Mutex<Stripe> {
        &self.stripes[(number.0 % STRIPES) as usize]
    }

    pub(super) fn add(&self, record: RecordFound) {
        let mut stripe = self.stripe(record.key.number).lock();
        stripe.is_sorted = false;
        stripe.records.push(record);
    }

    pub(super) fn clear(&self) {
        self.stripes.iter().for_each(|stripe| *stripe.lock() = Stripe::default());
        self.floor.store(0, Ordering::Relaxed);
    }

    /// All records are found: those below the floor are of another tree, which a copy has replaced.
    pub(super) fn drop_below(&self, floor: u64) {
        self.floor.store(floor, Ordering::Relaxed);
        for stripe in &self.stripes {
            stripe.lock().records.retain(|record| record.version.seq >= floor);
        }
    }

    /// True if a newer record of the key has been found, or the tombstone of its inode, or if the version is below the
    /// floor.
    pub(super) fn has_newer(&self, key: RecordKey, version: Version) -> bool {
        if version.seq < self.floor.load(Ordering::Relaxed) {
            return true;
        }
        let mut stripe = self.stripe(key.number).lock();
        let is_replaced = stripe.of(key).last().is_some_and(|newest| newest.version > version);
        let ends = |inode| stripe.of(inode).last().is_some_and(|newest| newest.is_tombstone);
        is_replaced || key.inode().is_some_and(ends)
    }

    /// Hands over the records, sorted, one stripe after the other.
    pub(super) fn take_sorted(&self, mut take: impl FnMut(&[RecordFound])) {
        for stripe in &self.stripes {
            let mut stripe = std::mem::take(&mut *stripe.lock());
            take(stripe.sorted());
        }
    }
}

/// A record of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationFound {
    pub(super) index: u64,
    pub(super) version: Version,
    pub(super) client: u32,
    pub(super) slot: SlotId,
}

/// The newest bound of a client that has been found so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundFound {
    pub(super) slot: SlotId,
    pub(super) version: Version,
    /// The first index.
    pub(super) mark: u64,
    /// The floor of the tree, if it is the mount's; 0 if it does not say.
    pub(super) floor: u64,
    pub(super) fields: Result<LogFields, Damage>,
}

/// The bounds, by client.
#[derive(Debug, Default)]
pub(super) struct BoundsFound {
    pub(super) newest: BTreeMap<u32, BoundFound>,
    /// Number of older ones.
    pub(super) older: BTreeMap<u32, u64>,
}

impl BoundsFound {
    pub(super) fn add(&mut self, client: u32, new: BoundFound) {
        let known = self.newest.entry(client).or_insert(new);
        if new.slot != known.slot {
            *self.older.entry(client).or_default() += 1;
        }
        if new.version > known.version {
            *known = new;
        }
    }
}
