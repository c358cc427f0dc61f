//! One transaction of a batch.

use super::batch::{LINE, first_line};
use super::blocks::Pool;
use super::layout::ROOT_AT;
use super::log;
use crate::error::{HandlerError, Result};
use landfall_media::Extent;
use std::ops::Deref;

/// Changes that join the pool's batch together ([`Transaction::keep`]) or, if it is dropped, not at all.
///
/// It can be read like the pool; reads include its own changes.
pub struct Transaction<'a> {
    pool: &'a mut Pool,
    kept: bool,
}

impl Deref for Transaction<'_> {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        self.pool
    }
}

impl Pool {
    /// Opens a transaction. If it is dropped, it has changed nothing; [`Transaction::keep`] adds it to the batch.
    ///
    /// # Errors
    /// [`HandlerError::Closed`].
    pub fn begin(&mut self) -> Result<Transaction<'_>> {
        self.check_open()?;
        Ok(Transaction { pool: self, kept: false })
    }
}

impl Transaction<'_> {
    /// Adds the changes to the batch.
    ///
    /// # Errors
    /// [`HandlerError::BatchFull`] where a commit would make room, [`HandlerError::TooLarge`] where it would not.
    /// Nothing is changed then.
    pub fn keep(mut self) -> Result<()> {
        let (lines, log_bytes) = (self.batch.len(), self.layout.log_bytes);
        if log::bytes_max(lines) > log_bytes {
            let alone = self.batch.is_first();
            return Err(if alone {
                HandlerError::TooLarge { lines, log_bytes }
            } else {
                HandlerError::BatchFull
            });
        }
        self.pool.batch.keep();
        self.kept = true;
        Ok(())
    }

    /// Stores bytes into the heap, starting at the 8-byte aligned offset `off`.
    ///
    /// # Errors
    /// [`HandlerError::Damaged`] for a range outside the heap or not aligned; those of the medium.
    pub fn write(&mut self, off: u64, bytes: &[u8]) -> Result<()> {
        self.check_heap(off, bytes.len() as u64)?;
        self.change(off, bytes)
    }

    /// Stores one word into the heap, at an 8-byte aligned offset.
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn set_word(&mut self, off: u64, word: u64) -> Result<()> {
        self.write(off, &word.to_le_bytes())
    }

    /// Stores words into the heap, starting at the 8-byte aligned offset `off`.
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn set_words(&mut self, off: u64, words: &[u64]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(off, &bytes)
    }

    /// Sets the offset of the root block.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn set_root(&mut self, off: u64) -> Result<()> {
        self.set_state(ROOT_AT, off)
    }

    pub(super) fn set_state(&mut self, off: u64, word: u64) -> Result<()> {
        self.change(off, &word.to_le_bytes())
    }

    fn change(&mut self, mut off: u64, mut bytes: &[u8]) -> Result<()> {
        let Pool { batch, media, .. } = &mut *self.pool;
        while !bytes.is_empty() {
            let line = first_line(off);
            let from = (off - line) as usize;
            let (part, rest) = bytes.split_at(bytes.len().min(LINE - from));
            batch.change(line, from, part, || {
                let home = media.bytes(Extent::new(line, LINE as u32))?;
                Ok::<_, HandlerError>(*home.first_chunk().expect("as long as asked for"))
            })?;
            off += part.len() as u64;
            bytes = rest;
        }
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.pool.batch.revert();
        }
    }
}
