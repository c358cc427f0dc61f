//! One map, and the rows that say which requests have been applied to it. Byte table: `docs/format/pool.md`.

use crate::error::{HandlerError, Result};
use crate::maps::{Map, Structure};
use crate::pool::item::check_len;
use crate::pool::{Block, LOG_BYTES, Pool, Transaction, check_tiling};
use crate::request::{Op, Request};
use landfall_media::Media;
use std::sync::Arc;

/// Maximum length of the floor, bytes.
pub const FLOOR_BYTES_MAX: usize = 64;

const ROOT_BYTES: u64 = 96;
const FLOOR_LEN: u64 = 24;
const FLOOR: u64 = 32;

/// The options of a new store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// The map's structure.
    pub structure: Structure,
    /// Bytes of one half of the log: see [`Pool::create`].
    pub log_bytes: u64,
    /// The seed for hashing. Draw it at random where clients choose keys.
    pub seed: u64,
}

impl StoreOptions {
    /// Options for that structure, with a log of [`LOG_BYTES`] and seed 0.
    pub const fn new(structure: Structure) -> Self {
        Self { structure, log_bytes: LOG_BYTES, seed: 0 }
    }
}

/// A map that requests are applied to, and the rows that cover them, in one pool.
///
/// Requests form a batch; [`Store::commit`] makes it durable, and only then may they be answered. After
/// [`HandlerError::BatchFull`], commit and repeat the call: nothing was changed. Any other error of a call that changes
/// something, except [`Store::commit`], also changes nothing, and the batch keeps what it held before.
pub struct Store {
    pool: Pool,
    root: u64,
    structure: Structure,
    map: Box<dyn Map>,
    rows: Box<dyn Map>,
}

impl Store {
    /// Creates a store in the whole region, which must begin with a zero word. It is durable when this returns.
    ///
    /// # Errors
    /// Those of [`Pool::create`]; [`HandlerError::TooLarge`] for a log that cannot hold the initial transaction.
    pub fn create(media: Arc<dyn Media>, options: StoreOptions) -> Result<Self> {
        Self::begin(Pool::create(media, options.log_bytes)?, options)
    }

    /// Opens the region's store. A store without a map, whose creation a crash has interrupted, is created with
    /// `options`. Otherwise the existing structure is used.
    ///
    /// # Errors
    /// Those of [`Pool::open`].
    pub fn open(media: Arc<dyn Media>, options: StoreOptions) -> Result<Self> {
        let pool = Pool::open(media)?;
        if pool.root()? == 0 { Self::begin(pool, options) } else { Self::with(pool) }
    }

    fn begin(mut pool: Pool, options: StoreOptions) -> Result<Self> {
        let mut tx = pool.begin()?;
        let root = tx.alloc(ROOT_BYTES)?;
        let map = options.structure.create(&mut tx, options.seed)?;
        let rows = ROWS.create(&mut tx, 0)?;
        tx.set_words(root, &[options.structure.tag(), map, rows, 0])?;
        tx.set_root(root)?;
        tx.keep()?;
        pool.commit()?;
        Self::with(pool)
    }

    fn with(pool: Pool) -> Result<Self> {
        let root = pool.root()?;
        let [tag, map, rows] = pool.words(root)?;
        let structure = Structure::tagged(tag).ok_or(HandlerError::damaged("tag of the structure", root))?;
        Ok(Self { root, structure, map: structure.open(map), rows: ROWS.open(rows), pool })
    }

    /// The map's structure.
    pub fn structure(&self) -> Structure {
        self.structure
    }

    /// The medium that holds the store.
    pub fn media(&self) -> &Arc<dyn Media> {
        self.pool.media()
    }

    // ---- the batch ----

    /// Executes a request and stores a row (key, row) with it, atomically. Returns the response.
    ///
    /// A bad request changes nothing in the map, but its row is stored: it counts as applied.
    ///
    /// # Errors
    /// [`HandlerError::BatchFull`], [`HandlerError::Full`], [`HandlerError::Closed`]; those of the pool.
    pub fn apply(&mut self, request: &[u8], row: Option<(&[u8], &[u8])>) -> Result<Vec<u8>> {
        let Self { pool, map, rows, .. } = self;
        let mut tx = pool.begin()?;
        let response = execute(&**map, &mut tx, request)?;
        if let Some((key, row)) = row {
            rows.insert(&mut tx, key, row)?;
        }
        tx.keep()?;
        Ok(response)
    }

    /// Stores a row.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn put_row(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        let mut tx = self.pool.begin()?;
        self.rows.insert(&mut tx, key, row)?;
        tx.keep()
    }

    /// Removes a row. True when it existed.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn remove_row(&mut self, key: &[u8]) -> Result<bool> {
        let mut tx = self.pool.begin()?;
        let removed = self.rows.remove(&mut tx, key)?;
        tx.keep()?;
        Ok(removed)
    }

    /// Sets the floor, at most [`FLOOR_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`HandlerError::TooLong`]; as [`Store::apply`].
    pub fn set_floor(&mut self, floor: &[u8]) -> Result<()> {
        check_len("floor", floor, FLOOR_BYTES_MAX)?;
        let mut tx = self.pool.begin()?;
        tx.set_word(self.root + FLOOR_LEN, floor.len() as u64)?;
        tx.write(self.root + FLOOR, floor)?;
        tx.keep()
    }

    /// Makes the batch durable, with one fence, which blocks where the medium is a file.
    ///
    /// # Errors
    /// Those of [`Pool::commit`]: the store is then closed for changes.
    pub fn commit(&mut self) -> Result<()> {
        self.pool.commit()
    }

    /// Discards the batch: the store is in the state of the last commit.
    pub fn abandon(&mut self) {
        self.pool.abandon();
    }

    /// Lines of 64 bytes that the batch has changed so far; 0 when there is nothing to commit.
    pub fn batch_lines(&self) -> usize {
        self.pool.batch_lines()
    }

    // ---- reading, the batch included ----

    /// The row with this key.
    ///
    /// # Errors
    /// [`HandlerError::Damaged`]; those of the medium.
    pub fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.rows.get(&self.pool, key)
    }

    /// Every row, ascending by key.
    ///
    /// # Errors
    /// As [`Store::row`].
    pub fn rows(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        entries(&*self.rows, &self.pool)
    }

    /// Every entry of the map, in ascending key order except in the hash map.
    ///
    /// # Errors
    /// As [`Store::row`].
    pub fn entries(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        entries(&*self.map, &self.pool)
    }

    /// The floor; empty if none was set.
    ///
    /// # Errors
    /// As [`Store::row`].
    pub fn floor(&self) -> Result<Vec<u8>> {
        let len = self.pool.word(self.root + FLOOR_LEN)?;
        if len > FLOOR_BYTES_MAX as u64 {
            return Err(HandlerError::damaged("length of the floor", self.root + FLOOR_LEN));
        }
        Ok(self.pool.bytes(self.root + FLOOR, len as u32)?.into_owned())
    }

    /// Number of entries in the map.
    ///
    /// # Errors
    /// As [`Store::row`].
    pub fn len(&self) -> Result<u64> {
        self.map.len(&self.pool)
    }

    /// True for a map without entries.
    ///
    /// # Errors
    /// As [`Store::row`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Checks both structures and every checksum, and that their blocks and the free blocks cover the heap, each byte
    /// once.
    ///
    /// # Errors
    /// [`HandlerError::Damaged`] for the first damage found; those of the medium.
    pub fn check(&self) -> Result<()> {
        let mut blocks = vec![Block::of(self.root, ROOT_BYTES)?];
        self.map.check(&self.pool, &mut blocks)?;
        self.rows.check(&self.pool, &mut blocks)?;
        self.floor()?;
        check_tiling(&self.pool, blocks)
    }
}

/// The structure of the rows.
const ROWS: Structure = Structure::BTree;

fn execute(map: &dyn Map, tx: &mut Transaction<'_>, request: &[u8]) -> Result<Vec<u8>> {
    let request = match Request::parse(request) {
        Ok(request) => request,
        Err(error) => return Ok([b"E", error.as_bytes()].concat()),
    };
    match request.op {
        Op::Set => map.insert(tx, request.key, request.value).map(|_| b"O".to_vec()),
        Op::Delete => map.remove(tx, request.key).map(|_| b"O".to_vec()),
        Op::Get => {
            let value = map.get(tx, request.key)?;
            Ok(value.map_or_else(|| b"N".to_vec(), |value| [&b"V"[..], &value].concat()))
        }
    }
}

fn entries(map: &dyn Map, pool: &Pool) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut entries = Vec::new();
    map.visit(pool, &mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    Ok(entries)
}
