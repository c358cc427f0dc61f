//! One execution of a command: its words, and its access to the store.

use super::command::Call;
use super::fail::Fail;
use super::words::Words;
use crate::args::Arg;
use crate::counters::count;
use crate::reply::{REPLY_BYTES_MAX, Reply};
use crate::shared::Shared;
use landfall_heap::{Extents, Gate, Gated, Source, Tickets};
use landfall_kv::{
    Item, ItemPart, KvError, Page, PageLimit, Patchable, RangeQuery, TXN_KEYS_MAX, Txn, TxnKey,
};
use landfall_media::Extent;
use landfall_resp::Writer;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::{Deref, DerefMut, Range};

/// Keys at least this long may be kept where they landed instead of being copied.
const LONG_KEY_MIN: usize = 48;
/// Values up to this length are staged as bytes, because they are copied into their record anyway.
const STAGED_COPY_MAX: usize = 64;

impl<'c, 'e> Call<'c, 'e, '_> {
    pub(super) fn shared(&self) -> &'e Shared {
        self.ctx.shared
    }

    pub(super) fn database(&self) -> u8 {
        self.session.state.database
    }

    /// A word's bytes, which outlive every borrow of the call.
    pub(super) fn word(&self, index: usize) -> Cow<'c, [u8]> {
        self.words.bytes(index)
    }

    /// A word as text for an error message.
    pub(super) fn text(&self, index: usize) -> String {
        String::from_utf8_lossy(&self.word(index)).into_owned()
    }

    /// A word as an integer.
    pub(super) fn integer(&self, index: usize) -> Result<i64, Fail> {
        landfall_resp::parse_i64(&self.word(index)).ok_or(Fail::not_an_integer())
    }

    /// A word as a positive count.
    pub(super) fn positive(&self, index: usize) -> Result<usize, Fail> {
        let out_of_range = Fail::error("ERR value is out of range, must be positive");
        usize::try_from(self.integer(index)?).map_err(|_| out_of_range)
    }

    /// The writer of the reply.
    pub(super) fn out(&mut self) -> Writer<'_> {
        let protocol = self.session.state.protocol;
        Writer::new(self.reply.bytes(), protocol)
    }

    pub(super) fn ok(&mut self) -> Result<(), Fail> {
        self.out().ok();
        Ok(())
    }

    pub(super) fn reply_integer(&mut self, number: i64) -> Result<(), Fail> {
        self.out().integer(number);
        Ok(())
    }

    /// A stored value as a bulk string, or null.
    pub(super) fn reply_value(&mut self, item: Option<Item<'_>>) -> Result<(), Fail> {
        let Some(item) = item else {
            self.out().null();
            return Ok(());
        };
        let start = self.reply.bytes().len();
        self.out().bulk_header(item.len);
        self.reply.framed_item(item, start, b"\r\n");
        Ok(())
    }

    /// A key's value, verified against its checksum, so that it may be sent.
    pub(super) fn read(&mut self, key: &[u8]) -> Result<Option<Item<'e>>, Fail> {
        let space = self.session.state.database;
        let seen = match &self.txn {
            Some(txn) => txn.read(space, key)?,
            None => self.ctx.engine.get(space, key, self.ctx.now_ms)?,
        };
        let item = seen.open(self.reply);
        let counters = &self.ctx.shared.counters;
        count(if item.is_some() { &counters.hits } else { &counters.misses }, 1);
        Ok(item)
    }

    /// A part of a key's value, checked against its checksum, for showing it; `part` chooses it.
    pub(super) fn read_part(
        &mut self,
        key: &[u8],
        part: impl FnOnce(usize) -> Range<usize>,
    ) -> Result<Option<ItemPart<'e>>, Fail> {
        let space = self.session.state.database;
        let seen = match &self.txn {
            Some(txn) => txn.read_part(space, key, part)?,
            None => self.ctx.engine.get_part(space, key, self.ctx.now_ms, part)?,
        };
        let part = seen.open(self.reply);
        let counters = &self.ctx.shared.counters;
        count(if part.is_some() { &counters.hits } else { &counters.misses }, 1);
        Ok(part)
    }

    /// A key's length, expiry or existence, for a reply.
    pub(super) fn peek(&mut self, key: &[u8]) -> Result<Option<Item<'e>>, Fail> {
        let space = self.session.state.database;
        let seen = match &self.txn {
            Some(txn) => txn.peek(space, key)?,
            None => self.ctx.engine.peek(space, key, self.ctx.now_ms)?,
        };
        let item = seen.open(self.reply);
        let counters = &self.ctx.shared.counters;
        count(if item.is_some() { &counters.hits } else { &counters.misses }, 1);
        Ok(item)
    }

    /// Reads and writes keys atomically: `body` sees no other worker's changes in between, and what it stages becomes
    /// durable as a whole or not at all. The reply waits for what was read and for what was written.
    pub(super) fn update<T>(
        &mut self,
        keys: &[&[u8]],
        body: impl FnOnce(&mut Within<'_, 'e>, u8) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let space = self.session.state.database;
        let keys: SmallVec<[TxnKey<'_>; 2]> = keys.iter().map(|key| TxnKey { space, key }).collect();
        self.update_across(&keys, |within| body(within, space))
    }

    /// As [`Self::update`], in several databases.
    pub(super) fn update_across<T>(
        &mut self,
        keys: &[TxnKey<'_>],
        body: impl FnOnce(&mut Within<'_, 'e>) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        if let Some(mut within) = self.within() {
            return body(&mut within);
        }
        let engine = self.ctx.engine;
        let mut txn = engine.transaction(keys.iter().copied(), self.ctx.now_ms);
        for TxnKey { space, key } in keys {
            txn.check_writable(self.ctx.writer, *space, key)?;
        }
        let done = body(&mut Within { txn: &mut txn, reply: self.reply })?;
        self.commit(txn)?;
        Ok(done)
    }

    /// The transaction of `EXEC`, if there is one.
    pub(super) fn within(&mut self) -> Option<Within<'_, 'e>> {
        Some(Within { txn: self.txn.as_deref_mut()?, reply: self.reply })
    }

    /// Makes a transaction's writes current; the reply waits for them.
    pub(super) fn commit(&mut self, txn: Txn<'_>) -> Result<(), Fail> {
        check_keys(txn.staged_len())?;
        txn.commit(self.ctx.writer, self.ctx.arrival_ns)?.open(self.reply);
        Ok(())
    }

    /// Opens a result that a crash could still revoke: the reply waits for the tickets that it depends on.
    pub(super) fn open<T>(&mut self, gated: Gated<T>) -> T {
        gated.open(self.reply)
    }
}

/// A transaction, and the reply that waits for what is read in it.
pub(super) struct Within<'t, 'e> {
    txn: &'t mut Txn<'e>,
    reply: &'t mut dyn Gate,
}

impl<'e> Within<'_, 'e> {
    /// As [`Txn::read`].
    pub(super) fn read(&mut self, space: u8, key: &[u8]) -> Result<Option<Item<'e>>, KvError> {
        Ok(self.txn.read(space, key)?.open(self))
    }

    /// As [`Txn::peek`].
    pub(super) fn peek(&mut self, space: u8, key: &[u8]) -> Result<Option<Item<'e>>, KvError> {
        Ok(self.txn.peek(space, key)?.open(self))
    }

    /// As [`Txn::patchable`].
    pub(super) fn patchable(&mut self, space: u8, key: &[u8]) -> Result<Option<Patchable>, KvError> {
        Ok(self.txn.patchable(space, key)?.open(self))
    }

    /// As [`Txn::page`].
    pub(super) fn page(&mut self, query: &RangeQuery, limit: PageLimit) -> Result<Page<'e>, KvError> {
        Ok(self.txn.page(query, limit)?.open(self))
    }

    /// As [`Txn::delete`].
    pub(super) fn delete(&mut self, space: u8, key: &[u8]) -> Result<bool, KvError> {
        Ok(self.txn.delete(space, key)?.open(self))
    }
}

impl Gate for Within<'_, '_> {
    fn hold_until(&mut self, tickets: &Tickets) {
        self.reply.hold_until(tickets);
    }
}

impl<'e> Deref for Within<'_, 'e> {
    type Target = Txn<'e>;

    fn deref(&self) -> &Txn<'e> {
        self.txn
    }
}

impl<'e> DerefMut for Within<'_, 'e> {
    fn deref_mut(&mut self) -> &mut Txn<'e> {
        self.txn
    }
}

/// Refuses a reply that exceeds the limit.
pub(super) fn check_reply(shared: &Shared, reply: &Reply<'_>) -> Result<(), Fail> {
    let limit = shared.config.reply_memory_max();
    if reply.memory_len() <= limit && reply.len() <= REPLY_BYTES_MAX {
        return Ok(());
    }
    count(&shared.counters.overflows, 1);
    let text = format!(
        "ERR the reply is too long: beside long values it may take {limit} bytes (64 times --max-output), and in all \
         {REPLY_BYTES_MAX}. Ask for less at once"
    );
    Err(Fail::Error(text.into()))
}

/// Refuses more keys than one transaction may write.
pub(super) fn check_keys(count: usize) -> Result<(), Fail> {
    if count <= TXN_KEYS_MAX {
        return Ok(());
    }
    Err(Fail::Error(format!("ERR one command or transaction can change at most {TXN_KEYS_MAX} keys").into()))
}

/// Where a key lies, if it is long enough to be kept there.
#[inline]
pub(super) fn key_place(words: Words<'_>, index: usize) -> Option<Extent> {
    if words.len_of(index) < LONG_KEY_MIN { None } else { words.arg(index).place() }
}

/// Stages a value, by reference if it lies in frames and is not tiny.
pub(super) fn stage(
    txn: &mut Txn<'_>,
    space: u8,
    key: &[u8],
    key_at: Option<Extent>,
    value: &Arg<'_>,
    expiry_ms: u64,
) {
    let mut scratch = Extents::new();
    match value.source(&mut scratch) {
        Source::Landed { extents, crc } if value.len() > STAGED_COPY_MAX => {
            txn.put_landed(space, key, key_at, extents, crc, expiry_ms);
        }
        _ => txn.put_bytes(space, key, value.bytes().into_owned(), expiry_ms),
    }
}
