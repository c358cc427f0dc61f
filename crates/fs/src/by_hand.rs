//! Records of files that tests write by hand.

pub(crate) mod plan;

use crate::header::{Header, LogFields};
use crate::inode::{ATTRIBUTE_BYTES, FileType, Inode, Mode};
use crate::key::{DataKey, InodeNumber, NamesKey, OperationKey, WritePlace};
use crate::recover::{FilesRecovery, Settled};
use landfall_heap::{
    Entry, FEATURE_FILES, Heap, Kind, NewRegion, Region, SlotId, Source, Transaction, Writer, create, spaces,
};
use landfall_media::RUN_SIZE;
use landfall_media::sim::{SimMedia, SimOptions};
use std::sync::Arc;

const RUNS: u64 = 32;
pub(crate) const FIELDS: LogFields = LogFields { epoch: 1, lease: 2, next_number: InodeNumber(100) };

/// A region with a writer of records.
pub(crate) struct World {
    pub(crate) media: Arc<SimMedia>,
    pub(crate) heap: Arc<Heap>,
    pub(crate) writer: Writer,
}

/// What recovery of an image has found.
pub(crate) struct Opened {
    pub(crate) heap: Arc<Heap>,
    pub(crate) region: landfall_heap::Recovered,
    pub(crate) settled: Settled,
}

pub(crate) fn open(image: Vec<u8>) -> Opened {
    open_on(SimMedia::from_image(image, SimOptions::default()))
}

pub(crate) fn open_on(media: Arc<SimMedia>) -> Opened {
    let files = Arc::new(FilesRecovery::default());
    let (heap, region) = Region::run(media, vec![Arc::clone(&files) as _]).expect("opens");
    Opened { heap, region, settled: files.take_settled() }
}

/// A record to write.
pub(crate) struct Draft {
    pub(crate) kind: Kind,
    pub(crate) space: u8,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) mark: u64,
    pub(crate) aux: u32,
    pub(crate) arrival_ns: u64,
}

pub(crate) fn draft(kind: Kind, space: u8, key: &[u8], value: &[u8]) -> Draft {
    Draft { kind, space, key: key.to_vec(), value: value.to_vec(), mark: 0, aux: 0, arrival_ns: 0 }
}

pub(crate) fn inode(number: u64) -> Draft {
    draft(Kind::Put, spaces::FILES_INODE, &InodeNumber(number).key(), &attributes())
}

pub(crate) fn no_inode(number: u64) -> Draft {
    draft(Kind::Tombstone, spaces::FILES_INODE, &InodeNumber(number).key(), b"")
}

pub(crate) fn attributes() -> [u8; ATTRIBUTE_BYTES] {
    let inode = Inode {
        mode: Mode::new(FileType::File, 0o644),
        uid: 0,
        gid: 0,
        nlink: 1,
        size: 0,
        atime_ns: 0,
        btime_ns: 0,
        extra: 0,
        has_content: false,
        has_extended: false,
    };
    inode.encode()
}

pub(crate) fn data(number: u64, first: u32, value: &[u8]) -> Draft {
    let key = DataKey { file: InodeNumber(number), first }.encode();
    Draft { mark: u64::from(first), ..draft(Kind::Put, spaces::FILES_DATA, &key, value) }
}

pub(crate) fn no_data(number: u64, first: u32) -> Draft {
    Draft { kind: Kind::Tombstone, ..data(number, first, b"") }
}

pub(crate) fn names(number: u64, first: u64) -> Draft {
    let key = NamesKey { directory: InodeNumber(number), first }.encode();
    Draft { mark: first, ..draft(Kind::Put, spaces::FILES_NAMES, &key, b"some names") }
}

pub(crate) fn extended(number: u64) -> Draft {
    draft(Kind::Put, spaces::FILES_EXTENDED, &InodeNumber(number).key(), b"some attributes")
}

pub(crate) fn header(next_client: u32) -> Draft {
    header_with(next_client, None, 0)
}

pub(crate) fn header_with(next_client: u32, seed: Option<u64>, floor: u64) -> Draft {
    let header = Header { identity: [5; 16], next_client, seed, floor, under_repair: false };
    draft(Kind::Put, spaces::FILES_HEADER, b"tree", &header.encode())
}

pub(crate) fn bound(client: u32, first: u64) -> Draft {
    let fields = draft(Kind::Bound, spaces::FILES_LOG, &client.to_le_bytes(), &FIELDS.encode());
    Draft { mark: first, aux: client, ..fields }
}

/// The bound of the mount's log, with the floor of the tree; 0 as earlier releases have it.
pub(crate) fn bound_with_floor(floor: u64) -> Draft {
    Draft { arrival_ns: floor, ..bound(0, 0) }
}

pub(crate) fn operation(client: u32, index: u64) -> Draft {
    let place = WritePlace { file: InodeNumber(1), offset: 0, lease: 2 };
    let key = OperationKey { client, index, write: Some(place) };
    Draft { mark: index, aux: client, ..draft(Kind::Put, spaces::FILES_LOG, &key.encode(), &[7; 5000]) }
}

impl World {
    pub(crate) fn new() -> Self {
        let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        let heap = open_on(Arc::clone(&media)).heap;
        heap.require_features(FEATURE_FILES).expect("stored");
        let writer = Writer::new(Arc::clone(&heap), 0);
        Self { media, heap, writer }
    }

    /// A bound and operations of a client need no transaction here.
    pub(crate) fn append(&mut self, drafts: &[Draft]) -> Vec<SlotId> {
        let slots = drafts.iter().map(|draft| {
            let entry = draft.entry(&self.heap);
            self.writer.append(&entry).expect("there is room")
        });
        let slots = slots.collect();
        self.writer.commit_now().expect("durable");
        slots
    }

    /// Appends to another slab.
    pub(crate) fn append_by_another_writer(&self, drafts: &[Draft]) -> Vec<SlotId> {
        let mut writer = Writer::new(Arc::clone(&self.heap), 1);
        let append = |draft: &Draft| writer.append(&draft.entry(&self.heap)).expect("there is room");
        let slots = drafts.iter().map(append).collect();
        writer.commit_now().expect("durable");
        slots
    }

    pub(crate) fn begin(&mut self, drafts: &[Draft]) -> Transaction {
        let mut transaction = self.writer.begin_transaction(1 << 20).expect("there is room");
        for draft in drafts {
            let entry = draft.entry(&self.heap);
            self.writer.append_to(&mut transaction, &entry).expect("there is room");
        }
        transaction
    }

    pub(crate) fn publish(&mut self, drafts: &[Draft]) -> Vec<SlotId> {
        let transaction = self.begin(drafts);
        self.writer.commit(transaction).expect("durable")
    }

    /// The bytes that a crash leaves that loses all that is not durable.
    pub(crate) fn image(&self) -> Vec<u8> {
        self.media.crash_state().durable_image()
    }

    pub(crate) fn crash(&self) -> Settled {
        open(self.image()).settled
    }

    pub(crate) fn hash(&self, draft: &Draft) -> u64 {
        self.heap.hash(draft.space, &draft.key)
    }
}

impl Draft {
    pub(crate) fn entry(&self, heap: &Heap) -> Entry<'_> {
        Entry {
            kind: self.kind,
            space: self.space,
            hash: heap.hash(self.space, &self.key),
            key: &self.key,
            key_at: None,
            value: Source::Bytes(&self.value),
            arrival_ns: self.arrival_ns,
            expiry_ms: self.mark,
            aux: self.aux,
        }
    }
}
