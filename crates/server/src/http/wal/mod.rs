//! Logs: `/wal` and below. The resources are listed in the documentation of [`super`].

mod append;
mod read;

use super::answer::{Answer, Failure, Refusal, TEXT};
use super::params::{bad, number, pairs, unknown};
use super::resource::Resource;
use super::scan::field;
use crate::context::Context;
use landfall_http::{Method, Request, ResponseWriter};
use landfall_media::Chain;
use landfall_wal::Settings;
use std::io::Write as _;

/// Content type of lists.
const LINES: &[u8] = b"application/x-ndjson";
/// Content type of one JSON object.
const JSON: &[u8] = b"application/json";
/// Logs that a list has by default, and at most.
const LOGS_LISTED: u64 = 1000;

/// Answers a request whose method the resource has.
pub(super) fn answer(
    ctx: &mut Context<'_>,
    request: &Request,
    chain: &Chain<'_>,
    resource: &Resource,
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    match (resource, &request.method) {
        (Resource::Logs, _) => list(ctx, request, answer),
        (Resource::Log(log), Method::Post) => append::append(ctx, request, chain, log, answer),
        (Resource::Log(log), Method::Delete) => delete(ctx, request, log, answer),
        (Resource::Log(log), _) => read::read(ctx, request, log, answer),
        (Resource::Entry(log, offset), _) => read::entry(ctx, request, log, *offset, answer),
        (Resource::Consumers(log), _) => consumers(ctx, request, log, answer),
        (Resource::Consumer(log, consumer), method) => match method {
            Method::Put => commit(ctx, request, chain, log, consumer, answer),
            Method::Delete => forget(ctx, request, log, consumer, answer),
            _ => position(ctx, request, log, consumer, answer),
        },
        (Resource::Config(log), Method::Put) => set_config(ctx, request, log, answer),
        (Resource::Config(log), _) => config(ctx, request, log, answer),
    }
}

/// Refuses parameters for resources without any.
fn no_params(request: &Request) -> Result<(), Refusal> {
    match pairs(request.query())?.first() {
        Some((name, _)) => Err(unknown(name, "none here")),
        None => Ok(()),
    }
}

fn header_number(writer: &mut ResponseWriter<'_>, name: &str, value: u64) {
    let mut digits = itoa::Buffer::new();
    writer.header(name, digits.format(value).as_bytes());
}

fn list(ctx: &mut Context<'_>, request: &Request, answer: &mut Answer<'_, '_>) -> Result<(), Failure> {
    let (mut after, mut limit) = (None, LOGS_LISTED);
    for (name, value) in pairs(request.query())? {
        match &*name {
            b"after" => after = Some(String::from_utf8_lossy(&value).into_owned()),
            b"limit" => limit = number(&value).ok_or_else(|| bad("limit", "a number of logs"))?,
            _ => return Err(unknown(&name, "after, limit").into()),
        }
    }
    let mut body = Vec::new();
    for log in ctx.logs.logs(after.as_deref(), limit.min(LOGS_LISTED) as usize) {
        let log = log.open(answer.reply);
        let (first, next, bytes, consumers) = (log.first, log.next, log.bytes, log.consumers);
        // Writing to a vector cannot fail, and a name needs no escapes.
        let _ = writeln!(
            body,
            "{{\"log\":\"{}\",\"first\":{first},\"next\":{next},\"bytes\":{bytes},\"consumers\":{consumers}}}",
            log.name
        );
    }
    answer.body(200, LINES, &body);
    Ok(())
}

/// `DELETE`: with `before`, the entries below that offset; without it, the log.
fn delete(
    ctx: &mut Context<'_>,
    request: &Request,
    log: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    let mut before = None;
    for (name, value) in pairs(request.query())? {
        match &*name {
            b"before" => before = Some(number(&value).ok_or_else(|| bad("before", "an offset"))?),
            _ => return Err(unknown(&name, "before").into()),
        }
    }
    let Some(before) = before else {
        let ended = ctx.logs.delete(ctx.writer, log, ctx.arrival_ns)?;
        ended.ok_or(landfall_wal::WalError::NoLog)?.open(answer.reply);
        answer.status(204).no_body();
        return Ok(());
    };
    let first = ctx.logs.trim(ctx.writer, log, before, ctx.arrival_ns)?.open(answer.reply);
    let mut writer = answer.status(204);
    header_number(&mut writer, "X-Landfall-First", first);
    writer.no_body();
    Ok(())
}

fn consumers(
    ctx: &mut Context<'_>,
    request: &Request,
    log: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    no_params(request)?;
    let mut body = Vec::new();
    for (consumer, offset) in ctx.logs.positions(log)?.open(answer.reply) {
        body.push(b'{');
        field(&mut body, "consumer", consumer.as_bytes());
        let _ = writeln!(body, ",\"offset\":{offset}}}");
    }
    answer.body(200, LINES, &body);
    Ok(())
}

fn position(
    ctx: &mut Context<'_>,
    request: &Request,
    log: &[u8],
    consumer: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    no_params(request)?;
    let offset = ctx.logs.position(log, consumer)?.open(answer.reply);
    answer.body(200, TEXT, format!("{offset}\n").as_bytes());
    Ok(())
}

/// `PUT` of a position: the body is a decimal offset.
fn commit(
    ctx: &mut Context<'_>,
    request: &Request,
    chain: &Chain<'_>,
    log: &[u8],
    consumer: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    no_params(request)?;
    let mut body = Vec::new();
    if request.body_len <= 32 {
        request.body.iter().for_each(|range| body.extend_from_slice(&chain.gather(range.clone())));
    }
    let offset = number(body.trim_ascii()).ok_or_else(|| bad("the body", "an offset in decimal"))?;
    ctx.logs.commit_position(ctx.writer, log, consumer, offset, ctx.arrival_ns)?.open(answer.reply);
    answer.status(204).no_body();
    Ok(())
}

fn forget(
    ctx: &mut Context<'_>,
    request: &Request,
    log: &[u8],
    consumer: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    no_params(request)?;
    let forgotten = ctx.logs.delete_position(ctx.writer, log, consumer, ctx.arrival_ns)?;
    forgotten.ok_or(landfall_wal::WalError::NoConsumer)?.open(answer.reply);
    answer.status(204).no_body();
    Ok(())
}

fn set_config(
    ctx: &mut Context<'_>,
    request: &Request,
    log: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    let mut settings = Settings::default();
    for (name, value) in pairs(request.query())? {
        let value = number(&value).ok_or_else(|| bad("what to keep", "a number, 0 for everything"))?;
        match &*name {
            b"bytes" => settings.retain_bytes = value,
            b"entries" => settings.retain_entries = value,
            b"ms" => settings.retain_ms = value,
            _ => return Err(unknown(&name, "bytes, entries, ms").into()),
        }
    }
    ctx.logs.set_settings(ctx.writer, log, settings, ctx.arrival_ns)?.open(answer.reply);
    answer.status(204).no_body();
    Ok(())
}

fn config(
    ctx: &mut Context<'_>,
    request: &Request,
    log: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    no_params(request)?;
    let settings = ctx.logs.settings(log)?.open(answer.reply);
    let Settings { retain_bytes, retain_entries, retain_ms } = settings;
    let body = format!("{{\"bytes\":{retain_bytes},\"entries\":{retain_entries},\"ms\":{retain_ms}}}\n");
    answer.body(200, JSON, body.as_bytes());
    Ok(())
}
