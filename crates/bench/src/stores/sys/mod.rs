//! LevelDB through its C interface (`leveldb/c.h`), loaded at run time: no build needs it.

// A library loaded at run time has no safe interface.
#![allow(unsafe_code)]

mod api;

use crate::stores::error::StoreError;
use api::{Api, Pointer};
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// Most that LevelDB takes as its write buffer, bytes: a run that writes less is never compacted.
const WRITE_BUFFER_BYTES: usize = 1 << 30;
/// `leveldb_no_compression`.
const NO_COMPRESSION: i32 = 0;

/// An open LevelDB.
#[derive(Debug)]
pub(crate) struct LevelDb {
    api: Api,
    db: Pointer,
    write_options: Pointer,
    read_options: Pointer,
    log_in_memory: bool,
}

/// When a write of LevelDB is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Before the call returns: its log is synced.
    Synced,
    /// Later.
    Unsynced,
}

// SAFETY: `leveldb::DB` may be used by several threads at once (doc/index.md, "Concurrency"); write options are only
// read after `open`.
unsafe impl Send for LevelDb {}
// SAFETY: as above.
unsafe impl Sync for LevelDb {}

/// A request in LevelDB's form, reused for every write of a worker.
#[derive(Debug)]
pub(crate) struct Batch {
    batch: Pointer,
    destroy: unsafe extern "C" fn(Pointer),
}

// SAFETY: a batch belongs only to its owner and has no thread-local state.
unsafe impl Send for Batch {}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: made by `leveldb_writebatch_create`, destroyed once; the library stays loaded for ever.
        unsafe { (self.destroy)(self.batch) };
    }
}

/// A place in the order of the keys.
pub(crate) struct Cursor<'d> {
    db: &'d LevelDb,
    iterator: Pointer,
}

impl Cursor<'_> {
    /// Goes to the first key.
    pub(crate) fn rewind(&mut self) {
        // SAFETY: the iterator is live and ours alone; the database lives as long as this.
        unsafe { (self.db.api.iter_seek_to_first)(self.iterator) };
    }

    /// The length of the value here, and goes on to the next one; `None` behind the last one.
    ///
    /// # Errors
    /// What LevelDB said.
    pub(crate) fn next_len(&mut self) -> Result<Option<usize>, StoreError> {
        let (api, mut error, mut len): (_, *mut c_char, usize) = (&self.db.api, ptr::null_mut(), 0);
        // SAFETY: as above; value and next are asked for only where the iterator is valid. The value stays LevelDB's.
        let is_here = unsafe {
            let is_here = (api.iter_valid)(self.iterator) != 0;
            if is_here {
                (api.iter_value)(self.iterator, &raw mut len);
                (api.iter_next)(self.iterator);
            }
            (api.iter_get_error)(self.iterator, &raw mut error);
            is_here
        };
        check(api, error)?;
        Ok(is_here.then_some(len))
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `leveldb_create_iterator`, destroyed once, before its database is closed.
        unsafe { (self.db.api.iter_destroy)(self.iterator) };
    }
}

impl LevelDb {
    /// At the first key.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        // SAFETY: database and options are live.
        let iterator = unsafe { (self.api.create_iterator)(self.db, self.read_options) };
        let mut cursor = Cursor { db: self, iterator };
        cursor.rewind();
        cursor
    }

    /// Loads LevelDB, and does nothing with it.
    ///
    /// # Errors
    /// [`StoreError::NoLibrary`], [`StoreError::NoSymbol`].
    pub(crate) fn check() -> Result<(), StoreError> {
        Api::load().map(drop)
    }

    /// Loads LevelDB and opens a new, empty database that no write syncs: with its log in memory if it can be, and a
    /// write buffer that no run fills.
    ///
    /// # Errors
    /// [`StoreError`] says what is missing, or what LevelDB said.
    pub(crate) fn open(dir: &Path) -> Result<Self, StoreError> {
        let api = Api::load()?;
        let environment = memory_environment(&api);
        Self::open_with(api, dir, environment, Some(WRITE_BUFFER_BYTES), Durability::Unsynced)
    }

    /// Loads LevelDB and opens the database in a folder as programs have it: its log and its tables are files, its write
    /// buffer is LevelDB's own.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_in_files(dir: &Path, durability: Durability) -> Result<Self, StoreError> {
        Self::open_with(Api::load()?, dir, None, None, durability)
    }

    fn open_with(
        api: Api,
        dir: &Path,
        environment: Option<Pointer>,
        write_buffer: Option<usize>,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        let name = CString::new(dir.as_os_str().as_bytes())
            .map_err(|_| StoreError::LevelDb { message: "a folder's name holds a zero byte".into() })?;
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: the functions are those of `leveldb/c.h`, called as it says; options and environment live as
        // long as the process, the name until `open` returns.
        let (db, write_options, read_options) = unsafe {
            let options = (api.options_create)();
            (api.options_set_create_if_missing)(options, 1);
            if let Some(bytes) = write_buffer {
                (api.options_set_write_buffer_size)(options, bytes);
            }
            (api.options_set_compression)(options, NO_COMPRESSION);
            if let Some(environment) = environment {
                (api.options_set_env)(options, environment);
            }
            let write_options = (api.writeoptions_create)();
            (api.writeoptions_set_sync)(write_options, u8::from(durability == Durability::Synced));
            let db = (api.open)(options, name.as_ptr(), &raw mut error);
            (db, write_options, (api.readoptions_create)())
        };
        check(&api, error)?;
        Ok(Self { api, db, write_options, read_options, log_in_memory: environment.is_some() })
    }

    /// Version, and where its log lies.
    pub(crate) fn describe(&self) -> String {
        let (major, minor) = self.api.version();
        let log = if self.log_in_memory { "in memory" } else { "in a file" };
        format!("{major}.{minor} (write buffer 1 GiB, log {log}, sync off)")
    }

    /// An empty request.
    pub(crate) fn batch(&self) -> Batch {
        // SAFETY: takes nothing; the result is owned by the batch.
        Batch { batch: unsafe { (self.api.writebatch_create)() }, destroy: self.api.writebatch_destroy }
    }

    /// Makes `batch` a request that puts one key.
    pub(crate) fn prepare(&self, batch: &mut Batch, key: &[u8], value: &[u8]) {
        // SAFETY: LevelDB copies both slices before it returns; the batch is ours alone.
        unsafe {
            (self.api.writebatch_clear)(batch.batch);
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            (self.api.writebatch_put)(batch.batch, key_at, key.len(), value_at, value.len());
        }
    }

    /// Writes a request: checksum and log, then the table of recent writes.
    ///
    /// # Errors
    /// What LevelDB said.
    pub(crate) fn write(&self, batch: &mut Batch) -> Result<(), StoreError> {
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: database, options and batch are live and ours.
        unsafe { (self.api.write)(self.db, self.write_options, batch.batch, &raw mut error) };
        check(&self.api, error)
    }

    /// The length of a key's value; `None` if there is no such key.
    ///
    /// # Errors
    /// What LevelDB said.
    pub(crate) fn value_len(&self, key: &[u8]) -> Result<Option<usize>, StoreError> {
        let (mut error, mut len): (*mut c_char, usize) = (ptr::null_mut(), 0);
        // SAFETY: database and options are live; LevelDB reads the key before it returns. The value is ours to free.
        let found = unsafe {
            let (key_at, key_len) = (key.as_ptr().cast(), key.len());
            let value =
                (self.api.get)(self.db, self.read_options, key_at, key_len, &raw mut len, &raw mut error);
            if !value.is_null() {
                (self.api.free)(value.cast());
            }
            !value.is_null()
        };
        check(&self.api, error)?;
        Ok(found.then_some(len))
    }
}

impl Drop for LevelDb {
    fn drop(&mut self) {
        // SAFETY: opened by `leveldb_open`, closed once, and no thread can be inside a call: we are being dropped.
        unsafe { (self.api.close)(self.db) };
    }
}

/// LevelDB's own environment in memory, for its log: without it every write would pay for a system call that
/// NoveLSM does not make. `None` where this LevelDB does not have it, or has it in a form we do not know.
fn memory_environment(api: &Api) -> Option<Pointer> {
    let make = api.new_memory_environment.filter(|_| matches!(api.version(), (1, 20..=23)))?;
    // SAFETY: in these versions `leveldb_env_t` begins with a pointer to its `leveldb::Env` (db/c.cc), which is
    // replaced by one that wraps it. Neither is ever destroyed.
    unsafe {
        let environment = (api.create_default_env)();
        let inner = environment.cast::<Pointer>();
        *inner = make(*inner);
        Some(environment)
    }
}

/// Takes an error message, if there is one.
fn check(api: &Api, error: *mut c_char) -> Result<(), StoreError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a message of LevelDB's, ended by a zero byte, which is ours to free, once.
    let message = unsafe {
        let message = CStr::from_ptr(error).to_string_lossy().into_owned();
        (api.free)(error.cast());
        message
    };
    Err(StoreError::LevelDb { message })
}
