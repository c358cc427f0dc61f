//! Files in a region: what a mount calls. Changes are in [`crate::change`], bytes in [`crate::bytes`].

use crate::data_map::DataMap;
use crate::error::FsError;
use crate::inode::Inode;
use crate::key::InodeNumber;
use crate::name::Name;
use crate::names::{NameEntry, Position};
use crate::node::{Body, Node};
use crate::pace::Pace;
use crate::state::State;
use crate::tree::{Tree, TreeError};
use crate::witness::Witness;
use landfall_heap::{Heap, SlotId};
use landfall_media::MediaError;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is known of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its number.
    pub number: InodeNumber,
    /// Its attributes.
    pub inode: Inode,
    /// Last change of the data, Unix nanoseconds.
    pub mtime_ns: i64,
    /// Last change of the inode, Unix nanoseconds.
    pub ctime_ns: i64,
    /// Blocks of 4 KiB that are written or reserved.
    pub blocks: u64,
}

impl Stat {
    pub(crate) fn of(number: InodeNumber, node: &Node) -> Self {
        let blocks = node.data().map_or(0, DataMap::blocks);
        Self { number, inode: node.inode, mtime_ns: node.mtime_ns, ctime_ns: node.ctime_ns, blocks }
    }
}

/// A batch of the log whose fence has returned, and which the log's successor has been sent if it is durable here.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) fenced: Result<(), MediaError>,
}

/// The files of a region. All threads share it.
///
/// A change is visible to everybody at once, and durable after [`Self::sync`]. [`crate::Publisher`] moves what is durable
/// in the log to the published tree.
#[derive(Debug)]
pub struct Files {
    pub(crate) heap: Arc<Heap>,
    pub(crate) state: Mutex<State>,
    /// Held by whoever makes a batch of the log durable: the one under way.
    pub(crate) commit: Mutex<Option<UnderWay>>,
    /// Held while the log is written to the medium.
    pub(crate) fence: Mutex<()>,
    pub(crate) pace: Pace,
    /// Other machines get what is appended to the log.
    pub(crate) has_successor: AtomicBool,
    /// What acknowledgements wait for is in this region only.
    pub(crate) acknowledges_alone: AtomicBool,
    /// Nothing is sent before somebody waits for it.
    pub(crate) sends_when_asked: AtomicBool,
    /// Chunks are sent as they fill.
    pub(crate) sends_chunks: AtomicBool,
    next_number: AtomicU64,
}

impl Files {
    pub(crate) fn new(state: State, next_number: u64) -> Self {
        Self {
            heap: Arc::clone(&state.heap),
            state: Mutex::new(state),
            commit: Mutex::default(),
            fence: Mutex::default(),
            pace: Pace::default(),
            has_successor: AtomicBool::new(false),
            acknowledges_alone: AtomicBool::new(false),
            sends_when_asked: AtomicBool::new(false),
            sends_chunks: AtomicBool::new(false),
            next_number: AtomicU64::new(next_number),
        }
    }

    /// The heap with the files.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Sets how many inodes stay in memory once they are published. Each takes a few hundred bytes, and what its blocks or
    /// names take.
    pub fn set_nodes_max(&self, most: usize) {
        self.lock().nodes_max = most;
    }

    /// Number of inodes, those without a name included.
    pub fn inode_count(&self) -> usize {
        self.lock().tree.len()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A number for a new inode. It is never returned again.
    pub fn take_number(&self) -> InodeNumber {
        InodeNumber(self.next_number.fetch_add(1, Ordering::Relaxed))
    }

    /// The number that [`Self::take_number`] returns next.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// Numbers below this one are not given.
    pub fn raise_next_number(&self, number: u64) {
        self.next_number.fetch_max(number, Ordering::Relaxed);
    }

    /// Identity of the tree: random bytes, drawn when it was made.
    pub fn identity(&self) -> [u8; 16] {
        self.lock().header.identity
    }

    /// From now on `witness` learns of each operation; `None`: nobody does.
    pub fn set_witness(&self, witness: Option<Arc<dyn Witness>>) {
        self.lock().witness = witness;
    }

    /// An inode.
    ///
    /// # Errors
    /// [`TreeError::NotFound`]; [`FsError::Wait`], [`FsError::Heap`].
    pub fn stat(&self, number: InodeNumber) -> Result<Stat, FsError> {
        self.lock().node(number).map(|node| Stat::of(number, node))
    }

    /// The inode of a name in a directory.
    ///
    /// # Errors
    /// As [`Self::stat`]; [`TreeError::NotADirectory`].
    pub fn lookup(&self, parent: InodeNumber, name: Name<'_>) -> Result<Stat, FsError> {
        let mut state = self.lock();
        let find = |tree: &Tree| Ok(tree.find(parent, name)?.map(|entry| entry.number));
        let number = state.ask(find)?.ok_or(TreeError::NotFound)?;
        state.node(number).map(|node| Stat::of(number, node))
    }

    /// Visits the entries of a directory at and behind a position, in order of their positions, until `visit` returns
    /// false.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub fn entries(
        &self,
        directory: InodeNumber,
        from: Position,
        visit: &mut dyn FnMut(&NameEntry) -> bool,
    ) -> Result<(), FsError> {
        let (mut state, mut from) = (self.lock(), from);
        while let Some(entry) = state.ask(|tree| Ok(tree.next_entry(directory, from)?.cloned()))? {
            if !visit(&entry) {
                break;
            }
            from = Position(entry.position.0 + 1);
        }
        Ok(())
    }

    /// What a symbolic link refers to.
    ///
    /// # Errors
    /// As [`Self::stat`]; [`TreeError::Invalid`] for what is no link.
    pub fn link_target(&self, number: InodeNumber) -> Result<Box<[u8]>, FsError> {
        match &self.lock().node(number)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(TreeError::Invalid.into()),
        }
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// As [`Self::stat`]; [`TreeError::NoAttribute`].
    pub fn extended(&self, number: InodeNumber, name: &[u8]) -> Result<Box<[u8]>, FsError> {
        let mut state = self.lock();
        let value = state.node(number)?.extended.get(name).cloned();
        Ok(value.ok_or(TreeError::NoAttribute)?)
    }

    /// The names of all extended attributes, in order.
    ///
    /// # Errors
    /// As [`Self::stat`].
    pub fn extended_names(&self, number: InodeNumber) -> Result<Vec<Box<[u8]>>, FsError> {
        Ok(self.lock().node(number)?.extended.keys().cloned().collect())
    }

    /// Inodes in memory with blocks in records that are not current. There are none: tests ask for them.
    pub fn dangling(&self) -> Vec<InodeNumber> {
        let state = self.lock();
        let stored = state.stored.data.values().chain(state.logs().flat_map(|log| &log.slots));
        let current: BTreeSet<SlotId> = stored.copied().collect();
        state.tree.files_with_blocks_outside(&current)
    }
}
