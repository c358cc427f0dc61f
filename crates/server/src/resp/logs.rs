//! Logs: `LF.APPEND` and its family, which Redis does not have.

use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use crate::logs::{self, From, READ_ENTRIES, Read, resp_wal_error};
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_heap::{Extents, Source};
use landfall_wal::{LogStats, ReadLimit, Settings, WalError};

/// Not within `MULTI`: an offset that a log has assigned cannot be revoked.
const READ: Flags = Flags::READ.and(Flags::NO_MULTI);
const WRITE: Flags = Flags::WRITE.and(Flags::NO_MULTI);
const GROUP: &str = "log";

/// Logs that one `LF.LOGS` lists, at most.
const LOGS_LISTED: usize = 1000;

pub(super) const SPECS: &[Spec] = &[
    Spec::new(
        "lf.append",
        -3,
        WRITE.and(Flags::DENY_OOM).and(Flags::FAST),
        append,
        GROUP,
        "Appends entries to a log as a group; returns the offset of the first.",
    ),
    Spec::new(
        "lf.read",
        -3,
        READ.and(Flags::BLOCKING),
        read,
        GROUP,
        "Reads entries of a log from an offset on; waits for some with BLOCK.",
    ),
    Spec::new("lf.len", 2, READ.and(Flags::FAST), len, GROUP, "Returns the number of entries in a log."),
    Spec::new("lf.trim", 3, WRITE, trim, GROUP, "Deletes a log's entries below an offset."),
    Spec::new(
        "lf.commit",
        4,
        WRITE.and(Flags::FAST),
        commit,
        GROUP,
        "Stores the offset that a consumer of a log reads next.",
    ),
    Spec::new(
        "lf.position",
        3,
        READ.and(Flags::FAST),
        position,
        GROUP,
        "Returns the offset that a consumer of a log reads next.",
    ),
    Spec::new("lf.forget", 3, WRITE.and(Flags::FAST), forget, GROUP, "Deletes a consumer of a log."),
    Spec::new("lf.logs", -1, READ, list, GROUP, "Lists logs, those after a name only if one is given."),
    Spec::new(
        "lf.retain",
        -2,
        WRITE.and(Flags::SHOWS),
        retain,
        GROUP,
        "Sets how much of a log is kept, or returns what is set.",
    ),
    Spec::new("lf.dellog", 2, WRITE, delete, GROUP, "Deletes a log."),
];

impl std::convert::From<WalError> for Fail {
    fn from(error: WalError) -> Self {
        match (&error, resp_wal_error(&error)) {
            (WalError::Wait(until), _) => Self::Wait(*until),
            (_, text) => Self::Error(text.unwrap_or_default().into()),
        }
    }
}

pub(super) fn offset(call: &Call<'_, '_, '_>, index: usize) -> Result<u64, Fail> {
    let parsed = std::str::from_utf8(&call.word(index)).ok().and_then(|text| text.parse().ok());
    parsed.ok_or(Fail::error("ERR an offset is a number from 0 on"))
}

fn reply_offset(call: &mut Call<'_, '_, '_>, offset: u64) -> Result<(), Fail> {
    call.reply_integer(i64::try_from(offset).unwrap_or(i64::MAX))
}

fn append(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let log = call.word(1);
    let count = call.words.len() - 2;
    if count > GROUP_RECORDS_MAX {
        let text = format!("ERR one command can append at most {GROUP_RECORDS_MAX} entries");
        return Err(Fail::Error(text.into()));
    }
    let limit = call.value_len_max();
    let mut scratch: smallvec::SmallVec<[Extents; 2]> = smallvec::SmallVec::new();
    scratch.resize_with(count, Extents::new);
    let args: smallvec::SmallVec<[_; 2]> = (0..count).map(|at| call.words.arg(at + 2)).collect();
    if args.iter().any(|arg| arg.len() > limit) {
        return Err(Fail::too_long());
    }
    let sources: smallvec::SmallVec<[Source<'_>; 2]> =
        args.iter().zip(&mut scratch).map(|(arg, extents)| arg.source(extents)).collect();
    let ctx = &mut *call.ctx;
    let done = ctx.logs.append(ctx.writer, &log, &sources, ctx.arrival_ns)?;
    let done = call.open(done);
    reply_offset(call, done.first)
}

fn read(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let log = call.word(1);
    let bad_from = Fail::error("ERR read from an offset, '-' for the first entry or '$' for what comes");
    let from = From::parse(&call.word(2)).ok_or(bad_from)?;
    let (limit, wait_ms) = read_options(call)?;
    let page = match logs::read(call.ctx, call.reply, &log, from, limit, wait_ms)? {
        Read::Page(page) => page,
        Read::Tail(tail) => return Err(Fail::Tail(tail)),
    };
    let damaged = page.entries.iter().position(|(_, item)| item.is_err());
    let mut entries = page.entries;
    match damaged {
        Some(0) => {
            let (offset, item) = entries.swap_remove(0);
            let why = item.err().map_or_else(String::new, |error| error.to_string());
            return Err(Fail::Error(format!("DAMAGED entry {offset}: {why}").into()));
        }
        Some(at) => entries.truncate(at),
        None => {}
    }
    if entries.is_empty() && wait_ms.is_some() {
        call.out().null_array();
        return Ok(());
    }
    call.out().array(entries.len());
    for (offset, item) in entries {
        call.out().array(2);
        reply_offset(call, offset)?;
        call.reply_value(item.ok())?;
    }
    Ok(())
}

/// Parses `[COUNT n] [BLOCK ms]`; 0 milliseconds mean for ever, as in Redis.
fn read_options(call: &Call<'_, '_, '_>) -> Result<(ReadLimit, Option<u64>), Fail> {
    let bytes = call.shared().config.max_output.0 / 2;
    let mut limit = ReadLimit { entries: READ_ENTRIES, bytes };
    let mut wait_ms = None;
    let mut at = 3;
    while at < call.words.len() {
        if at + 1 == call.words.len() {
            return Err(Fail::syntax());
        }
        let value = call.positive(at + 1)?;
        match () {
            () if call.words.is(at, "count") => limit.entries = value,
            () if call.words.is(at, "block") && value == 0 => wait_ms = Some(u64::MAX),
            () if call.words.is(at, "block") => wait_ms = Some(value as u64),
            () => return Err(Fail::syntax()),
        }
        at += 2;
    }
    Ok((limit, wait_ms))
}

fn len(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let log = match call.ctx.logs.stats_of(&call.word(1)) {
        Err(WalError::NoLog) => return call.reply_integer(0),
        found => found?,
    };
    let log = call.open(log);
    reply_offset(call, log.next - log.first)
}

fn trim(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (log, before) = (call.word(1), offset(call, 2)?);
    let ctx = &mut *call.ctx;
    let first = ctx.logs.trim(ctx.writer, &log, before, ctx.arrival_ns)?;
    let first = call.open(first);
    reply_offset(call, first)
}

fn commit(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (log, consumer, at) = (call.word(1), call.word(2), offset(call, 3)?);
    let ctx = &mut *call.ctx;
    let kept = ctx.logs.commit_position(ctx.writer, &log, &consumer, at, ctx.arrival_ns)?;
    call.open(kept);
    call.ok()
}

fn position(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    match call.ctx.logs.position(&call.word(1), &call.word(2)) {
        Err(WalError::NoLog | WalError::NoConsumer) => {
            call.out().null();
            Ok(())
        }
        found => {
            let offset = call.open(found?);
            reply_offset(call, offset)
        }
    }
}

fn forget(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (log, consumer) = (call.word(1), call.word(2));
    let ctx = &mut *call.ctx;
    let done = match ctx.logs.delete_position(ctx.writer, &log, &consumer, ctx.arrival_ns) {
        Err(WalError::NoLog) => None,
        done => done?,
    };
    let done = done.map(|done| call.open(done));
    call.reply_integer(i64::from(done.is_some()))
}

fn list(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if call.words.len() > 2 {
        return Err(Fail::syntax());
    }
    let after = (call.words.len() == 2).then(|| call.text(1));
    let logs = call.ctx.logs.logs(after.as_deref(), LOGS_LISTED);
    let logs: Vec<LogStats> = logs.into_iter().map(|log| call.open(log)).collect();
    let mut out = call.out();
    out.array(logs.len());
    for LogStats { name, first, next, bytes, consumers, .. } in logs {
        out.map(5);
        out.bulk(b"name");
        out.bulk(name.as_bytes());
        for (field, value) in [("first", first), ("next", next), ("bytes", bytes), ("consumers", consumers)] {
            out.bulk(field.as_bytes());
            out.integer(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }
    Ok(())
}

/// `LF.RETAIN log [BYTES n] [ENTRIES n] [MS n]`: a limit that is not given is removed.
fn retain(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let log = call.word(1);
    if call.words.len() == 2 {
        return show_retained(call, &log);
    }
    let mut settings = Settings::default();
    for at in (2..call.words.len()).step_by(2) {
        if at + 1 == call.words.len() {
            return Err(Fail::syntax());
        }
        let value = call.positive(at + 1)? as u64;
        match () {
            () if call.words.is(at, "bytes") => settings.retain_bytes = value,
            () if call.words.is(at, "entries") => settings.retain_entries = value,
            () if call.words.is(at, "ms") => settings.retain_ms = value,
            () => return Err(Fail::syntax()),
        }
    }
    let ctx = &mut *call.ctx;
    let set = ctx.logs.set_settings(ctx.writer, &log, settings, ctx.arrival_ns)?;
    call.open(set);
    call.ok()
}

fn show_retained(call: &mut Call<'_, '_, '_>, log: &[u8]) -> Result<(), Fail> {
    let settings = call.ctx.logs.settings(log)?;
    let settings = call.open(settings);
    let Settings { retain_bytes, retain_entries, retain_ms } = settings;
    let mut out = call.out();
    out.map(3);
    for (field, value) in [("bytes", retain_bytes), ("entries", retain_entries), ("ms", retain_ms)] {
        out.bulk(field.as_bytes());
        out.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }
    Ok(())
}

fn delete(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let log = call.word(1);
    let ctx = &mut *call.ctx;
    let ended = ctx.logs.delete(ctx.writer, &log, ctx.arrival_ns)?;
    let ended = ended.map(|ended| call.open(ended));
    call.reply_integer(i64::from(ended.is_some()))
}
