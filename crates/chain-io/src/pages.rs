//! What a region has, page by page, for a copy.

use landfall_heap::{HeapError, Item};
use std::fmt::Debug;

/// A record of a copy.
#[derive(Debug)]
pub struct CopiedRecord<'h> {
    /// Its space.
    pub space: u8,
    /// Its key, as other nodes know it.
    pub key: Vec<u8>,
    /// Its aux.
    pub aux: u32,
    /// What it is.
    pub part: CopiedPart<'h>,
}

/// What a record of a copy is.
#[derive(Debug)]
pub enum CopiedPart<'h> {
    /// A version of a key.
    Value(Item<'h>),
    /// Something cannot be read.
    Tombstone {
        /// Its mark.
        mark: u64,
    },
    /// A bound.
    Bound {
        /// Its mark.
        mark: u64,
    },
}

/// Takes a record of a copy.
pub type AddRecord<'a, 'h> = &'a mut dyn FnMut(CopiedRecord<'h>) -> Result<(), HeapError>;

/// Where a walk over all keys is; the default is its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The space.
    pub space: u8,
    /// The last key of the space that was visited.
    pub after: Option<Vec<u8>>,
}

/// Everything that a region has, page by page.
pub trait Pages: Debug + Send + Sync {
    /// A walk begins: the node behind has deleted what it had.
    fn begin(&self);

    /// The walk is over, or given up.
    fn end(&self);

    /// Passes some current versions to `add`; `None` at the end. A key that is there all the time is visited once.
    ///
    /// # Errors
    /// [`HeapError::Loading`]: the page is read again after a while. The medium's.
    fn page<'h>(&'h self, from: &Position, add: AddRecord<'_, 'h>) -> Result<Option<Position>, HeapError>;
}
