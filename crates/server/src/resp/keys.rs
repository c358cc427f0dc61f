//! Commands on keys of any content: existence, deletion, renaming.

use super::command::{Call, Parts, Spec};
use super::databases::copy_options;
use super::fail::Fail;
use super::flags::Flags;
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_heap::{Gate, Tickets};
use landfall_kv::{TXN_KEYS_MAX, TxnKey};
use std::borrow::Cow;

const READ: Flags = Flags::READ.and(Flags::FAST);

pub(super) const SPECS: &[Spec] = &[
    Spec::new("del", -2, Flags::WRITE, del, "generic", "Deletes one or more keys.").keys(1, -1, 1),
    Spec::new("unlink", -2, Flags::WRITE.and(Flags::FAST), del, "generic", "Deletes one or more keys.")
        .keys(1, -1, 1),
    Spec::new("exists", -2, READ, exists, "generic", "Determines whether one or more keys exist.")
        .keys(1, -1, 1),
    Spec::new(
        "touch",
        -2,
        READ,
        exists,
        "generic",
        "Returns the number of existing keys out of those given.",
    )
    .keys(1, -1, 1),
    Spec::new("type", 2, READ, kind, "generic", "Determines the type of value stored at a key.")
        .keys(1, 1, 1),
    Spec::new(
        "copy",
        -3,
        Flags::WRITE.and(Flags::DENY_OOM),
        copy,
        "generic",
        "Copies the value of a key to a new key.",
    )
    .keys(1, 2, 1),
    Spec::new("rename", 3, Flags::WRITE, rename, "generic", "Renames a key and overwrites the destination.")
        .keys(1, 2, 1),
    Spec::new(
        "renamenx",
        3,
        Flags::WRITE.and(Flags::FAST),
        renamenx,
        "generic",
        "Renames a key if the target is new.",
    )
    .keys(1, 2, 1),
];

/// Deletes the keys as one transaction, or in parts where the region has no room for the records of one.
fn del(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let keys: Vec<Cow<'_, [u8]>> = call.words.rest(1).collect();
    let may_part = call.txn.is_none() && keys.len() > GROUP_RECORDS_MAX;
    let goes_on_in_parts = call.session.parts.is_some() || may_part && keys.len() > TXN_KEYS_MAX;
    let count = if goes_on_in_parts {
        delete_in_parts(call, &keys)?
    } else {
        match delete_all(call, &keys) {
            // A delete makes room, so that it must not wait for room without end.
            Err(fail) if may_part && fail.is_for_space() => delete_in_parts(call, &keys)?,
            done => done?,
        }
    };
    call.reply_integer(count)
}

/// Deletes the keys, a group of records at a time. If it has to wait in between, it continues from there.
fn delete_in_parts(call: &mut Call<'_, '_, '_>, keys: &[Cow<'_, [u8]>]) -> Result<i64, Fail> {
    let mut parts = call.session.parts.take().unwrap_or_default();
    call.reply.hold_until(&parts.written);
    while parts.done < keys.len() {
        let group = &keys[parts.done..keys.len().min(parts.done + GROUP_RECORDS_MAX)];
        match delete_all(call, group) {
            Ok(count) => parts.count += count,
            Err(fail) => {
                if let Fail::Wait(_) = fail {
                    let written = call.ctx.writer.so_far().into_tickets();
                    let written = if parts.done > 0 { written } else { Tickets::default() };
                    call.session.parts = Some(Parts { written, ..parts });
                }
                return Err(fail);
            }
        }
        parts = Parts { done: parts.done + group.len(), ..parts };
    }
    Ok(parts.count)
}

fn delete_all(call: &mut Call<'_, '_, '_>, keys: &[Cow<'_, [u8]>]) -> Result<i64, Fail> {
    let borrowed: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    call.update(&borrowed, |txn, space| {
        let mut count = 0;
        for key in keys {
            count += i64::from(txn.delete(space, key)?);
        }
        Ok(count)
    })
}

fn exists(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let mut count = 0;
    for key in call.words.rest(1) {
        count += i64::from(call.peek(&key)?.is_some());
    }
    call.reply_integer(count)
}

fn kind(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let key = call.word(1);
    let kind = if call.peek(&key)?.is_some() { "string" } else { "none" };
    call.out().simple(kind);
    Ok(())
}

/// Gives a key the value of another one, by reference: both records refer to one copy of the bytes.
fn copy(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (from, to) = (call.word(1), call.word(2));
    let source = call.database();
    let options = copy_options(call.words)?;
    let target = options.database.unwrap_or(source);
    if (source, &from) == (target, &to) {
        return Err(Fail::error("ERR source and destination objects are the same"));
    }
    let keys = [TxnKey { space: source, key: &from }, TxnKey { space: target, key: &to }];
    let copied = call.update_across(&keys, |txn| {
        let Some(item) = txn.peek(source, &from)? else { return Ok(false) };
        if !options.replaces && txn.peek(target, &to)?.is_some() {
            return Ok(false);
        }
        txn.copy_item(target, &to, &item, item.expiry_ms)?;
        Ok(true)
    })?;
    call.reply_integer(copied.into())
}

fn rename(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    rename_unless(call, false)?;
    call.ok()
}

fn renamenx(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let renamed = rename_unless(call, true)?;
    call.reply_integer(renamed.into())
}

/// Renames a key, by reference; with `only_new`, only if the new name is not in use.
fn rename_unless(call: &mut Call<'_, '_, '_>, only_new: bool) -> Result<bool, Fail> {
    let (from, to) = (call.word(1), call.word(2));
    call.update(&[&from, &to], |txn, space| {
        let item = txn.read(space, &from)?.ok_or(Fail::error("ERR no such key"))?;
        if only_new && txn.peek(space, &to)?.is_some() {
            return Ok(false);
        }
        if from != to {
            txn.delete(space, &from)?;
            txn.put_item(space, &to, &item, item.expiry_ms);
        }
        Ok(true)
    })
}
