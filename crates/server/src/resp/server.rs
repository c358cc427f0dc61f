//! Commands about the whole server and its data: flushing, saving, waiting, stopping.

use super::call::{Within, check_keys};
use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use landfall_heap::Until;
use landfall_kv::{DATABASES, PageLimit, RangeQuery, TXN_KEYS_MAX};

/// Keys that `FLUSHDB` deletes before the worker's other clients have their turn.
const FLUSH_STEP_KEYS: usize = 4096;

const FLUSH: Flags = Flags::WRITE.and(Flags::ALL_KEYS);
const SAVES: Flags = Flags::ADMIN.and(Flags::NO_SCRIPT);

pub(super) const SPECS: &[Spec] = &[
    Spec::new("flushall", -1, FLUSH, flushall, "server", "Removes all keys from all databases."),
    Spec::new("flushdb", -1, FLUSH, flushdb, "server", "Removes all keys from the current database."),
    Spec::new("time", 1, Flags::SERVER.and(Flags::FAST), time, "server", "Returns the server time."),
    Spec::new(
        "lastsave",
        1,
        Flags::SERVER.and(Flags::FAST),
        lastsave,
        "server",
        "Returns the time of the last save: now.",
    ),
    Spec::new("save", 1, SAVES.and(Flags::NO_MULTI), save, "server", "Does nothing: everything is saved."),
    Spec::new("bgsave", -1, SAVES, bgsave, "server", "Does nothing: everything is saved."),
    Spec::new("bgrewriteaof", 1, SAVES, bgrewriteaof, "server", "Does nothing: there is no log to rewrite."),
    Spec::new(
        "wait",
        3,
        Flags::BLOCKING,
        wait,
        "generic",
        "Returns how many servers behind this one in a chain have all writes.",
    ),
    Spec::new(
        "waitaof",
        4,
        Flags::BLOCKING,
        waitaof,
        "generic",
        "Waits until all writes so far are durable.",
    ),
    Spec::new(
        "shutdown",
        -1,
        SAVES.and(Flags::SERVER).and(Flags::NO_MULTI),
        shutdown,
        "server",
        "Stops the server.",
    ),
];

/// `FLUSHALL` and `FLUSHDB` accept `ASYNC` and `SYNC`, without a difference.
fn check_flush_mode(call: &Call<'_, '_, '_>) -> Result<(), Fail> {
    let words = call.words;
    let fine = words.len() == 1 || words.len() == 2 && (words.is(1, "ASYNC") || words.is(1, "SYNC"));
    if fine { Ok(()) } else { Err(Fail::syntax()) }
}

fn flushall(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    check_flush_mode(call)?;
    if let Some(mut txn) = call.within() {
        (0..DATABASES as u8).try_for_each(|space| stage_flush(&mut txn, space))?;
        return call.ok();
    }
    let flushed = call.ctx.engine.flush_all(call.ctx.writer, call.ctx.arrival_ns)?;
    call.open(flushed);
    call.ok()
}

/// Deletes every key of a database within a transaction, one by one.
fn stage_flush(txn: &mut Within<'_, '_>, space: u8) -> Result<(), Fail> {
    let mut query = RangeQuery::all(space);
    let mut keys = Vec::new();
    loop {
        let page =
            txn.page(&query, PageLimit { keys: TXN_KEYS_MAX + 1, bytes: usize::MAX, verify: false })?;
        keys.extend(page.items.into_iter().map(|(key, _)| key));
        check_keys(txn.staged_len() + keys.len())?;
        let Some(last) = page.last else { break };
        query.resume_after(last);
    }
    for key in keys {
        txn.delete(space, &key)?;
    }
    Ok(())
}

/// One record empties the database if the others are empty. Otherwise its keys are deleted in steps. Other clients have
/// their turn in between, and may see a part of the keys deleted.
fn flushdb(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    check_flush_mode(call)?;
    let space = call.database();
    if let Some(mut txn) = call.within() {
        stage_flush(&mut txn, space)?;
        return call.ok();
    }
    if let Some(flushed) = call.ctx.engine.flush_only(call.ctx.writer, space, call.ctx.arrival_ns)? {
        call.open(flushed);
        return call.ok();
    }
    let mut query = RangeQuery::all(space);
    let mut deleted = 0;
    loop {
        let page = call.page(&query, PageLimit { keys: usize::MAX, bytes: usize::MAX, verify: false })?;
        for (key, _) in &page.items {
            let ctx = &mut *call.ctx;
            let deleted = ctx.engine.delete(ctx.writer, space, key, ctx.now_ms, ctx.arrival_ns)?;
            call.open(deleted);
        }
        deleted += page.items.len();
        let Some(last) = page.last else { break };
        if deleted >= FLUSH_STEP_KEYS {
            return Err(Fail::Wait(Until::Commit));
        }
        query.resume_after(last);
    }
    call.open(call.ctx.writer.so_far());
    call.ok()
}

fn time(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    // Not the arrival time: of two clients, the one that asked later could get the earlier time.
    let us = crate::shared::now_ns() / 1000;
    let mut out = call.out();
    out.array(2);
    out.bulk(itoa::Buffer::new().format(us / 1_000_000).as_bytes());
    out.bulk(itoa::Buffer::new().format(us % 1_000_000).as_bytes());
    Ok(())
}

fn lastsave(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let now_s = i64::try_from(call.ctx.now_ms / 1000).unwrap_or(i64::MAX);
    call.reply_integer(now_s)
}

fn save(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.ok()
}

fn bgsave(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if call.words.len() > 2 || call.words.len() == 2 && !call.words.is(1, "SCHEDULE") {
        return Err(Fail::syntax());
    }
    call.out().simple("Background saving started: every acknowledged write is durable already");
    Ok(())
}

fn bgrewriteaof(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.out().simple("Background append only file rewriting started: there is no log that grows");
    Ok(())
}

/// How many servers of a chain have what this one acknowledges.
fn replicas(call: &Call<'_, '_, '_>) -> i64 {
    call.shared().chain.as_ref().map_or(0, |node| node.copies_behind().into())
}

/// Whatever was acknowledged is at all servers of the chain, so there is nothing to wait for.
fn wait(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.integer(1)?;
    check_timeout(call, 2)?;
    call.open(call.ctx.writer.so_far());
    call.reply_integer(replicas(call))
}

fn check_timeout(call: &Call<'_, '_, '_>, index: usize) -> Result<(), Fail> {
    match call.integer(index) {
        Err(_) => Err(Fail::error("ERR timeout is not an integer or out of range")),
        Ok(..0) => Err(Fail::error("ERR timeout is negative")),
        Ok(_) => Ok(()),
    }
}

/// `WAITAOF numlocal numreplicas timeout`
fn waitaof(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if !matches!(call.integer(1)?, 0..=1) {
        return Err(Fail::error("ERR value is out of range, value must between 0 and 1"));
    }
    call.positive(2)?;
    check_timeout(call, 3)?;
    call.open(call.ctx.writer.so_far());
    let replicas = replicas(call);
    let mut out = call.out();
    out.array(2);
    out.integer(1);
    out.integer(replicas);
    Ok(())
}

/// `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]`: there is no reply, as in Redis; the connection ends.
fn shutdown(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    for word in call.words.rest(1) {
        match word.to_ascii_uppercase().as_slice() {
            b"NOSAVE" | b"SAVE" | b"NOW" | b"FORCE" => {}
            b"ABORT" => return Err(Fail::error("ERR No shutdown in progress.")),
            _ => return Err(Fail::syntax()),
        }
    }
    tracing::info!(client = call.session.id, "asked to shut down");
    call.session.state.closing = true;
    call.shared().stop();
    Ok(())
}
