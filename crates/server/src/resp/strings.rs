//! Strings: reading and writing whole values.

use super::call::{key_place, stage};
use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use super::options::{Condition, ExpiryChange, Unit, ValueOptions};
use crate::reply::REPLY_BYTES_MAX;
use landfall_heap::Extents;
use landfall_kv::{Item, SetRequest};
use std::borrow::Cow;

const READ: Flags = Flags::READ.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE.and(Flags::DENY_OOM);
const FAST_WRITE: Flags = WRITE.and(Flags::FAST);

pub(super) const SPECS: &[Spec] = &[
    Spec::new("get", 2, READ, get, "string", "Returns the string value of a key.").keys(1, 1, 1),
    Spec::new("set", -3, WRITE, set, "string", "Sets the string value of a key, ignoring its type.")
        .keys(1, 1, 1),
    Spec::new("setnx", 3, FAST_WRITE, setnx, "string", "Sets the value of a key when the key doesn't exist.")
        .keys(1, 1, 1),
    Spec::new("setex", 4, WRITE, setex, "string", "Sets the value and expiration time of a key.")
        .keys(1, 1, 1),
    Spec::new("psetex", 4, WRITE, psetex, "string", "Sets value and expiration time in milliseconds.")
        .keys(1, 1, 1),
    Spec::new(
        "getset",
        3,
        FAST_WRITE,
        getset,
        "string",
        "Returns the previous value after setting a new one.",
    )
    .keys(1, 1, 1),
    Spec::new(
        "getdel",
        2,
        Flags::WRITE.and(Flags::FAST),
        getdel,
        "string",
        "Returns a value and deletes its key.",
    )
    .keys(1, 1, 1),
    Spec::new(
        "getex",
        -2,
        Flags::WRITE.and(Flags::FAST),
        getex,
        "string",
        "Returns a value and sets its expiration.",
    )
    .keys(1, 1, 1),
    Spec::new("mget", -2, READ, mget, "string", "Returns the values of one or more keys.").keys(1, -1, 1),
    Spec::new("mset", -3, WRITE, mset, "string", "Sets the values of one or more keys.").keys(1, -1, 2),
    Spec::new("msetnx", -3, WRITE, msetnx, "string", "Sets the values of keys when none of them exists.")
        .keys(1, -1, 2),
];

fn get(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let key = call.word(1);
    let item = call.read(&key)?;
    call.reply_value(item)
}

fn set(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if call.words.len() == 3 {
        return put(call, 2, 0);
    }
    let options = call.set_options(3)?;
    match options {
        ValueOptions { condition: Condition::None, get: false, expiry: ExpiryChange::Unsaid } => {
            put(call, 2, 0)
        }
        ValueOptions { condition: Condition::None, get: false, expiry: ExpiryChange::At(at) } => {
            put(call, 2, at)
        }
        _ => set_conditionally(call, options),
    }
}

/// Stores a word, whatever the key held. This is the fast path: one record by reference.
fn put(call: &mut Call<'_, '_, '_>, value_index: usize, expiry_ms: u64) -> Result<(), Fail> {
    let value = call.words.arg(value_index);
    let key = call.word(1);
    let space = call.database();
    if let Some(txn) = call.txn.as_deref_mut() {
        stage(txn, space, &key, key_place(call.words, 1), &value, expiry_ms);
        return call.ok();
    }
    let mut scratch = Extents::new();
    let request = SetRequest {
        space,
        key: &key,
        key_at: key_place(call.words, 1),
        value: value.source(&mut scratch),
        expiry_ms,
        arrival_ns: call.ctx.arrival_ns,
    };
    let shared = call.ctx.shared;
    if let Some(written) = shared.writes.set(call.ctx.destination(), &request)? {
        call.open(written);
    }
    call.ok()
}

fn set_conditionally(call: &mut Call<'_, '_, '_>, options: ValueOptions) -> Result<(), Fail> {
    let (key, words) = (call.word(1), call.words);
    let (old, stored) = call.update(&[&key], |txn, space| {
        let old = if options.get { txn.read(space, &key)? } else { txn.peek(space, &key)? };
        let stored = match options.condition {
            Condition::None => true,
            Condition::Absent => old.is_none(),
            Condition::Present => old.is_some(),
        };
        if stored {
            let expiry = expiry_after(options.expiry, old.as_ref());
            stage(txn, space, &key, key_place(words, 1), &words.arg(2), expiry);
        }
        Ok((old, stored))
    })?;
    match (options.get, stored) {
        (true, _) => call.reply_value(old),
        (false, true) => call.ok(),
        (false, false) => call.reply_value(None),
    }
}

/// The new expiry of a key; 0 for none.
fn expiry_after(change: ExpiryChange, old: Option<&Item<'_>>) -> u64 {
    match change {
        ExpiryChange::Unsaid | ExpiryChange::Clear => 0,
        ExpiryChange::Keep => old.map_or(0, |item| item.expiry_ms),
        ExpiryChange::At(at) => at,
    }
}

fn setnx(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (key, words) = (call.word(1), call.words);
    let stored = call.update(&[&key], |txn, space| {
        let absent = txn.peek(space, &key)?.is_none();
        if absent {
            stage(txn, space, &key, key_place(words, 1), &words.arg(2), 0);
        }
        Ok(absent)
    })?;
    call.reply_integer(stored.into())
}

fn setex(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let expiry = call.expiry(2, Unit::SECONDS)?;
    put(call, 3, expiry)
}

fn psetex(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let expiry = call.expiry(2, Unit::MILLISECONDS)?;
    put(call, 3, expiry)
}

fn getset(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (key, words) = (call.word(1), call.words);
    let old = call.update(&[&key], |txn, space| {
        let old = txn.read(space, &key)?;
        stage(txn, space, &key, key_place(words, 1), &words.arg(2), 0);
        Ok(old)
    })?;
    call.reply_value(old)
}

fn getdel(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let key = call.word(1);
    let old = call.update(&[&key], |txn, space| {
        let old = txn.read(space, &key)?;
        if old.is_some() {
            txn.delete(space, &key)?;
        }
        Ok(old)
    })?;
    call.reply_value(old)
}

fn getex(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let options = call.getex_options(2)?;
    if options.is_plain() {
        return get(call);
    }
    let key = call.word(1);
    // As in Redis, an invalid time is an error only if the key exists.
    let change = options.expiry(call);
    let now_ms = call.ctx.now_ms;
    let item = call.update(&[&key], |txn, space| {
        let Some(item) = txn.read(space, &key)? else { return Ok(None) };
        match change? {
            ExpiryChange::At(at) if at <= now_ms => drop(txn.delete(space, &key)?),
            change => {
                let expiry = expiry_after(change, Some(&item));
                if expiry != item.expiry_ms {
                    txn.put_item(space, &key, &item, expiry);
                }
            }
        }
        Ok(Some(item))
    })?;
    call.reply_value(item)
}

fn mget(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    // Everything is read before anything is written, so a damaged value makes the whole command fail.
    let mut items = Vec::with_capacity(call.words.len() - 1);
    let mut len = 0;
    for key in call.words.rest(1) {
        let item = call.read(&key)?;
        len += item.as_ref().map_or(0, |item| item.len);
        if len > REPLY_BYTES_MAX {
            return Err(Fail::error("ERR the reply is too long: ask for fewer keys at once"));
        }
        items.push(item);
    }
    call.out().array(items.len());
    items.into_iter().try_for_each(|item| call.reply_value(item))
}

/// The keys of `MSET` and `MSETNX`.
fn paired_keys<'c>(call: &Call<'c, '_, '_>) -> Result<Vec<Cow<'c, [u8]>>, Fail> {
    if call.words.len().is_multiple_of(2) {
        return Err(Fail::arity(call.spec.name));
    }
    Ok(call.words.rest(1).step_by(2).collect())
}

fn mset(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let keys = paired_keys(call)?;
    set_pairs(call, &keys, false)?;
    call.ok()
}

fn msetnx(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let keys = paired_keys(call)?;
    let stored = set_pairs(call, &keys, true)?;
    call.reply_integer(stored.into())
}

/// Stores every pair, atomically; with `only_new`, only if none of the keys exists.
fn set_pairs(call: &mut Call<'_, '_, '_>, keys: &[Cow<'_, [u8]>], only_new: bool) -> Result<bool, Fail> {
    let words = call.words;
    let borrowed: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    call.update(&borrowed, |txn, space| {
        if only_new {
            for key in keys {
                if txn.peek(space, key)?.is_some() {
                    return Ok(false);
                }
            }
        }
        for (index, key) in keys.iter().enumerate() {
            let at = 1 + 2 * index;
            stage(txn, space, key, key_place(words, at), &words.arg(at + 1), 0);
        }
        Ok(true)
    })
}
