//! Items: a key and its value in one block, each with its checksum. Byte table: `docs/format/pool.md`.

use super::alloc::{Block, same_class};
use super::blocks::Pool;
use super::layout::crc_of;
use super::transaction::Transaction;
use crate::error::{HandlerError, Result};
use std::borrow::Cow;

/// Maximum length of a key, bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// Maximum length of a value, bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

const HEAD_BYTES: u64 = 16;

/// The header before key and value.
struct Head {
    lens: u64,
    key_len: u32,
    value_len: u32,
    key_crc: u32,
    value_crc: u32,
}

impl Head {
    const fn block_len(&self) -> u64 {
        HEAD_BYTES + self.key_len as u64 + self.value_len as u64
    }
}

impl Pool {
    /// The key of an item.
    pub(crate) fn item_key(&self, off: u64) -> Result<Cow<'_, [u8]>> {
        let head = self.item_head(off)?;
        let key = self.bytes(off + HEAD_BYTES, head.key_len)?;
        if head.key_crc != crc_of(&[&head.lens.to_le_bytes(), &key]) {
            return Err(HandlerError::damaged("key", off));
        }
        Ok(key)
    }

    /// The value of an item. The key, and with it the lengths, has been checked.
    pub(crate) fn item_value(&self, off: u64) -> Result<Vec<u8>> {
        let head = self.item_head(off)?;
        let both = self.bytes(off + HEAD_BYTES, head.key_len + head.value_len)?;
        let value = &both[head.key_len as usize..];
        if head.value_crc != crc_of(&[value]) {
            return Err(HandlerError::damaged("value", off));
        }
        Ok(value.to_vec())
    }

    /// The block that contains an item.
    pub(crate) fn item_block(&self, off: u64) -> Result<Block> {
        Block::of(off, self.item_head(off)?.block_len())
    }

    fn item_head(&self, off: u64) -> Result<Head> {
        let [lens, sums] = self.words(off)?;
        let (key_len, value_len) = (lens as u32, (lens >> 32) as u32);
        if key_len as usize > KEY_BYTES_MAX || value_len as usize > VALUE_BYTES_MAX {
            return Err(HandlerError::damaged("length of an item", off));
        }
        Ok(Head { lens, key_len, value_len, key_crc: sums as u32, value_crc: (sums >> 32) as u32 })
    }
}

impl Transaction<'_> {
    /// Allocates and writes a new item.
    pub(crate) fn new_item(&mut self, key: &[u8], value: &[u8]) -> Result<u64> {
        let off = self.alloc(item_len(key, value)?)?;
        self.write_item(off, key, value)?;
        Ok(off)
    }

    /// Replaces the value of the item at `off`. Returns the item's new offset.
    pub(crate) fn replace_item(&mut self, off: u64, key: &[u8], value: &[u8]) -> Result<u64> {
        let len = item_len(key, value)?;
        if same_class(len, self.item_head(off)?.block_len()) {
            self.write_item(off, key, value)?;
            return Ok(off);
        }
        self.free_item(off)?;
        self.new_item(key, value)
    }

    pub(crate) fn free_item(&mut self, off: u64) -> Result<()> {
        let len = self.item_head(off)?.block_len();
        self.free(off, len)
    }

    fn write_item(&mut self, off: u64, key: &[u8], value: &[u8]) -> Result<()> {
        let lens = key.len() as u64 | (value.len() as u64) << 32;
        let sums = u64::from(crc_of(&[&lens.to_le_bytes(), key])) | u64::from(crc_of(&[value])) << 32;
        let head = [lens.to_le_bytes(), sums.to_le_bytes()].concat();
        self.write(off, &[&head, key, value].concat())
    }
}

/// Size of the block that holds an item, bytes.
fn item_len(key: &[u8], value: &[u8]) -> Result<u64> {
    check_len("key", key, KEY_BYTES_MAX)?;
    check_len("value", value, VALUE_BYTES_MAX)?;
    Ok(HEAD_BYTES + key.len() as u64 + value.len() as u64)
}

/// Checks that `bytes` are not longer than `max`.
pub(crate) fn check_len(what: &'static str, bytes: &[u8], max: usize) -> Result<()> {
    if bytes.len() > max {
        return Err(HandlerError::TooLong { what, len: bytes.len() as u64, max: max as u64 });
    }
    Ok(())
}
