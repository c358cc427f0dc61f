//! `GET` of entries.

use super::append::BATCH;
use super::{LINES, header_number, no_params};
use crate::context::Context;
use crate::http::answer::{Answer, Failure, Refusal};
use crate::http::params::{Format, bad, number, pairs, parse_format, unknown, wants_lines};
use crate::http::scan::{TOO_LONG, field, line_bytes_max};
use crate::logs::{self, From, READ_ENTRIES, Read, WAIT_MS_MAX};
use crate::shared::Shared;
use landfall_heap::{CopyPath, Item};
use landfall_http::Request;
use landfall_wal::{Page, ReadLimit, WalError};
use std::io::Write as _;

/// Entries with their offsets.
type Entries<'h> = Vec<(u64, Item<'h>)>;

/// Parameters of a read.
struct Params {
    from: From,
    limit: ReadLimit,
    wait_ms: Option<u64>,
    format: Format,
}

fn params(ctx: &Context<'_>, request: &Request) -> Result<Params, Refusal> {
    let lines = wants_lines(request.header_values("accept"));
    let bytes_max = ctx.shared.config.max_output.0 / 2;
    let mut params = Params {
        from: From::First,
        limit: ReadLimit { entries: READ_ENTRIES, bytes: bytes_max },
        wait_ms: None,
        format: if lines { Format::Lines } else { Format::Octets },
    };
    for (name, value) in pairs(request.query())? {
        match &*name {
            b"from" => {
                params.from = From::parse(&value).ok_or_else(|| bad("from", "an offset, first or end"))?;
            }
            b"limit" => {
                let entries = number(&value).ok_or_else(|| bad("limit", "a number of entries"))?;
                params.limit.entries = usize::try_from(entries).unwrap_or(usize::MAX);
            }
            b"bytes" => {
                let bytes = number(&value).ok_or_else(|| bad("bytes", "a number of bytes"))?;
                params.limit.bytes = bytes.min(bytes_max);
            }
            b"wait" => {
                let wait = number(&value).filter(|ms| *ms <= WAIT_MS_MAX);
                params.wait_ms =
                    Some(wait.ok_or_else(|| bad("wait", "milliseconds, at most an hour of them"))?);
            }
            b"format" if &*value == b"batch" => params.format = Format::Octets,
            b"format" => params.format = parse_format(&value)?,
            _ => return Err(unknown(&name, "from, limit, bytes, wait, format")),
        }
    }
    Ok(params)
}

pub(super) fn read(
    ctx: &mut Context<'_>,
    request: &Request,
    log: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    let params = params(ctx, request)?;
    let page = match logs::read(ctx, answer.reply, log, params.from, params.limit, params.wait_ms)? {
        Read::Page(page) => page,
        Read::Tail(tail) => return Err(Failure::Tail(tail)),
    };
    let (first, end) = (page.first, page.end);
    let (from, next, items) = whole(page)?;
    let heap = ctx.engine.heap();
    let lines = (params.format == Format::Lines).then(|| lines_of(ctx.shared, &items)).transpose()?;
    let batch_len = items.iter().map(|(_, item)| item.len + 4).sum();
    let is_head = answer.is_head;
    let mut writer = answer.status(if items.is_empty() { 204 } else { 200 });
    header_number(&mut writer, "X-Landfall-Offset", from);
    header_number(&mut writer, "X-Landfall-Next", next);
    header_number(&mut writer, "X-Landfall-First", first);
    header_number(&mut writer, "X-Landfall-End", end);
    if items.is_empty() {
        writer.no_body();
        return Ok(());
    }
    writer.header("Content-Type", if lines.is_some() { LINES } else { BATCH });
    writer.content_length(lines.as_ref().map_or(batch_len, Vec::len));
    if is_head {
        return Ok(());
    }
    if let Some(lines) = lines {
        heap.copies.add(CopyPath::Reply, items.iter().map(|(_, item)| item.len).sum());
        answer.reply.bytes().extend_from_slice(&lines);
        return Ok(());
    }
    for (_, item) in items {
        answer.reply.bytes().extend_from_slice(&(item.len as u32).to_le_bytes());
        answer.reply.item(item);
    }
    Ok(())
}

/// The entries before the first damaged one, with the first offset and the next one.
fn whole(page: Page<'_>) -> Result<(u64, u64, Entries<'_>), Failure> {
    let from = page.next - page.entries.len() as u64;
    let mut items = Vec::with_capacity(page.entries.len());
    for (offset, item) in page.entries {
        match item {
            Ok(item) => items.push((offset, item)),
            Err(WalError::Damaged { what }) if items.is_empty() => {
                let next = offset + 1;
                let message =
                    format!("entry {offset} is damaged ({what}): not served; continue at from={next}");
                return Err(Refusal::new(500, message).into());
            }
            Err(WalError::Damaged { .. }) => return Ok((from, offset, items)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((from, page.next, items))
}

fn lines_of(shared: &Shared, items: &[(u64, Item<'_>)]) -> Result<Vec<u8>, Failure> {
    let mut lines = Vec::new();
    for (offset, item) in items {
        if item.len > line_bytes_max(shared) {
            return Err(Refusal::new(413, format!("entry {offset} is {TOO_LONG}")).into());
        }
        // Writing to a vector cannot fail.
        let _ = write!(lines, "{{\"offset\":{offset},\"arrival_ns\":{},", item.arrival_ns);
        field(&mut lines, "value", &item.bytes()?);
        lines.extend_from_slice(b"}\n");
    }
    Ok(lines)
}

pub(super) fn entry(
    ctx: &mut Context<'_>,
    request: &Request,
    log: &[u8],
    offset: u64,
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    no_params(request)?;
    let item = match ctx.logs.get(log, offset) {
        Err(error @ WalError::OutOfRange { first, next, .. }) => {
            let refusal = Refusal::new(404, error.to_string());
            return Err(Refusal { range: Some((first, next)), ..refusal }.into());
        }
        found => found?.open(answer.reply),
    };
    let is_head = answer.is_head;
    let mut writer = answer.status(200);
    header_number(&mut writer, "X-Landfall-Offset", offset);
    writer.header("Content-Type", b"application/octet-stream");
    writer.content_length(item.len);
    if !is_head {
        answer.reply.item(item);
    }
    Ok(())
}
