//! Requests for one key: store, read, delete.

use super::answer::{Answer, Failure, Refusal};
use super::conditions::{self, Current, Fields, Verdict};
use super::params;
use super::ranges::{self, Wanted};
use super::route::Route;
use crate::context::{Context, KnownCrc};
use crate::counters::count;
use crate::shared::Shared;
use crate::walk::Walk;
use landfall_heap::{Extents, Gate, SlotId, Source, VALUE_BYTES_MAX};
use landfall_http::{Method, Request, ResponseWriter};
use landfall_kv::{Item, SetRequest, TxnKey, verify};
use landfall_media::{Chain, RUN_SIZE};

/// A body in more pieces than this is referenced piece by piece only if the pieces are long.
const PIECES_MAX: usize = 64;

/// Mean length of a piece below which a body in many pieces is copied together, bytes. Beside each piece lie headers of
/// a chunk or of a packet, which its frame would keep for as long as the value. Whole packets are not copied: half of
/// their frame is body.
const PIECE_BYTES_MIN: usize = 1 << 10;

/// A body that has not arrived completely, and what the server can do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedBody {
    /// The client sends the body only after `100 Continue`.
    pub wants_continue: bool,
    /// If the body is refused it can be skipped, and the connection stays open.
    pub passes: bool,
}

/// `PUT` and `POST`.
pub(super) fn put(
    ctx: &mut Context<'_>,
    request: &Request,
    chain: &Chain<'_>,
    key: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    let space = params::database(request.query())?;
    let fields = Fields::of_write(request)?;
    let expiry_ms = fields.expiry_ms(ctx.now_ms)?;
    let mut body = Body::default();
    let value = body.source(ctx, request, chain);
    let request = SetRequest { space, key, key_at: None, value, expiry_ms, arrival_ns: ctx.arrival_ns };
    let stored = if fields.is_conditional() {
        put_if(ctx, &request, &fields, answer.reply)?
    } else {
        let shared = ctx.shared;
        let Some(written) = shared.writes.set(ctx.destination(), &request)? else {
            answer.status(204).no_body();
            return Ok(());
        };
        let written = written.open(answer.reply);
        Stored { slot: written.slot, replaced: written.has_replaced(ctx.now_ms) }
    };
    let tag = Tags::of(ctx.shared).of_seq(ctx.engine.heap().record(stored.slot)?.seq());
    let mut writer = answer.status(if stored.replaced { 204 } else { 201 });
    etag(&mut writer, tag);
    time_to_live(&mut writer, expiry_ms, ctx.now_ms);
    writer.no_body();
    Ok(())
}

/// A write that was appended.
struct Stored {
    slot: SlotId,
    replaced: bool,
}

/// A body's extents, or its bytes if they must be copied together.
#[derive(Default)]
pub(super) struct Body {
    extents: Extents,
    known_crc: Option<KnownCrc>,
    gathered: Vec<u8>,
}

impl Body {
    /// The body in the form that a write takes: by reference to where it landed.
    pub(super) fn source(&mut self, ctx: &Context<'_>, request: &Request, chain: &Chain<'_>) -> Source<'_> {
        let walk = Walk::new(*chain);
        for range in &request.body {
            let (chain, place) = walk.at(range);
            chain.extents(place, |extent| self.extents.push(extent));
        }
        if self.extents.len() <= PIECES_MAX || request.body_len / self.extents.len() >= PIECE_BYTES_MIN {
            let [whole] = request.body.as_slice() else {
                return Source::Landed { extents: &self.extents, crc: None };
            };
            self.known_crc = ctx.known_crc_of(whole);
            let crc = self.known_crc.as_ref().and_then(|known| known.of(whole));
            return Source::Landed { extents: &self.extents, crc };
        }
        self.gathered.reserve(request.body_len);
        for range in &request.body {
            let (chain, place) = walk.at(range);
            chain.pieces(place, |_, bytes| self.gathered.extend_from_slice(bytes));
        }
        Source::Bytes(&self.gathered)
    }
}

/// A write that depends on the current value.
fn put_if(
    ctx: &mut Context<'_>,
    request: &SetRequest<'_>,
    fields: &Fields<'_>,
    reply: &mut impl Gate,
) -> Result<Stored, Failure> {
    let (space, key, tags) = (request.space, request.key, Tags::of(ctx.shared));
    let mut txn = ctx.engine.transaction([TxnKey { space, key }], ctx.now_ms);
    txn.check_writable(ctx.writer, space, key)?;
    let replaced = txn.peek(space, key)?.open(reply).map(|item| tags.current(&item));
    if fields.verdict(false, replaced) != Verdict::Proceed {
        return Err(conditions::failed().into());
    }
    match request.value {
        // The body has landed completely.
        Source::Landed { extents, crc } | Source::Stored { extents, crc, .. } => {
            txn.put_landed(space, key, request.key_at, extents, crc, request.expiry_ms);
        }
        Source::Bytes(bytes) => txn.put_bytes(space, key, bytes.to_vec(), request.expiry_ms),
        Source::None => txn.put_bytes(space, key, Vec::new(), request.expiry_ms),
        Source::Patched(_) => unreachable!("a body is no change of a stored value"),
    }
    let slot = txn.commit(ctx.writer, request.arrival_ns)?.open(reply).unwrap_or(SlotId::NONE);
    Ok(Stored { slot, replaced: replaced.is_some() })
}

/// `GET` and `HEAD`.
pub(super) fn get(
    ctx: &mut Context<'_>,
    request: &Request,
    key: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    let space = params::database(request.query())?;
    let fields = Fields::read(request)?;
    if let Some(wanted) = fields.range().filter(|_| !answer.is_head)
        && let Some(done) = get_part(ctx, (space, key), &fields, wanted, answer)?
    {
        return Ok(done);
    }
    let Some(item) = ctx.engine.peek(space, key, ctx.now_ms)?.open(answer.reply) else {
        count(&ctx.shared.counters.misses, 1);
        return Err(missing().into());
    };
    let tags = Tags::of(ctx.shared);
    let verdict = fields.verdict(true, Some(tags.current(&item)));
    // A value is checked before it is sent; its length and version were checked with the record.
    let is_shown = verdict == Verdict::Proceed && !answer.is_head;
    if is_shown {
        verify(&item)?;
    }
    count(&ctx.shared.counters.hits, 1);
    match verdict {
        Verdict::Failed => return Err(conditions::failed().into()),
        Verdict::NotModified => describe(answer, 304, &item, tags).no_body(),
        Verdict::Proceed => describe(answer, 200, &item, tags).content_length(item.len),
    }
    if is_shown {
        answer.reply.item(item);
    }
    Ok(())
}

/// A `GET` of a part: `None` where it is to be answered as if none was asked for.
fn get_part(
    ctx: &mut Context<'_>,
    (space, key): (u8, &[u8]),
    fields: &Fields<'_>,
    wanted: Wanted,
    answer: &mut Answer<'_, '_>,
) -> Result<Option<()>, Failure> {
    let found = ctx.engine.get_part(space, key, ctx.now_ms, |len| wanted.of(len))?;
    let Some(part) = found.open(answer.reply) else { return Ok(None) };
    let tags = Tags::of(ctx.shared);
    let current = tags.current(part.item());
    // Conditions come first (RFC 9110, section 13.2.2).
    if fields.verdict(true, Some(current)) != Verdict::Proceed || !fields.wants_part_of(current) {
        return Ok(None);
    }
    count(&ctx.shared.counters.hits, 1);
    if part.is_empty() {
        return Err(ranges::unsatisfiable(part.value_len).into());
    }
    let mut writer = describe(answer, 206, part.item(), tags);
    writer.header("Content-Range", ranges::content_range(&part).as_bytes());
    writer.content_length(part.len());
    answer.reply.part(&part)?;
    Ok(Some(()))
}

/// Writes the head of a reply about a value, up to its length.
fn describe<'w>(
    answer: &'w mut Answer<'_, '_>,
    status: u16,
    item: &Item<'_>,
    tags: Tags,
) -> ResponseWriter<'w> {
    let current = tags.current(item);
    let modified = *answer.dates.modified.text(current.modified);
    let now_ms = answer.now_ms;
    let mut writer = answer.status(status);
    if matches!(status, 200 | 206) {
        writer.header("Content-Type", b"application/octet-stream");
    }
    etag(&mut writer, current.tag);
    writer.header("Last-Modified", &modified);
    time_to_live(&mut writer, item.expiry_ms, now_ms);
    writer
}

/// `DELETE`.
pub(super) fn delete(
    ctx: &mut Context<'_>,
    request: &Request,
    key: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    let space = params::database(request.query())?;
    let fields = Fields::read(request)?;
    let deleted = if fields.is_conditional() {
        delete_if(ctx, space, key, &fields, answer.reply)?
    } else {
        ctx.engine.delete(ctx.writer, space, key, ctx.now_ms, ctx.arrival_ns)?.open(answer.reply)
    };
    if !deleted {
        return Err(missing().into());
    }
    answer.status(204).no_body();
    Ok(())
}

/// A delete that depends on the current value. A missing key is reported as missing whatever the condition is (RFC
/// 9110, section 13.2.1: conditions do not count if the reply without them would not be a success).
fn delete_if(
    ctx: &mut Context<'_>,
    space: u8,
    key: &[u8],
    fields: &Fields<'_>,
    reply: &mut impl Gate,
) -> Result<bool, Failure> {
    let mut txn = ctx.engine.transaction([TxnKey { space, key }], ctx.now_ms);
    txn.check_writable(ctx.writer, space, key)?;
    let Some(item) = txn.peek(space, key)?.open(reply) else { return Ok(false) };
    if fields.verdict(false, Some(Tags::of(ctx.shared).current(&item))) != Verdict::Proceed {
        return Err(conditions::failed().into());
    }
    drop(item);
    txn.delete(space, key)?.open(reply);
    txn.commit(ctx.writer, ctx.arrival_ns)?.open(reply);
    Ok(true)
}

/// Reports before a body arrives whether it would be refused.
pub(super) fn accepts_body(
    ctx: &Context<'_>,
    route: &Route<'_>,
    head: &Request,
    body: AwaitedBody,
) -> Result<(), Refusal> {
    match (route, &head.method) {
        (Route::Key(_), Method::Put | Method::Post) => {
            params::database(head.query())?;
            Fields::of_write(head)?;
        }
        (Route::Wal(_), Method::Post) => {}
        _ => return Ok(()),
    }
    let max = ctx.shared.config.max_request.0.min(VALUE_BYTES_MAX);
    let len = head.header("content-length").and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    if len.is_some_and(|len: u64| len > max) {
        return Err(Refusal::new(
            413,
            format!("a body of more than {max} bytes: split it, or raise --max-request"),
        ));
    }
    let heap = ctx.engine.heap();
    if let Some(reason) = heap.media().closed() {
        return Err(Refusal::new(503, format!("closed for writing: {reason}")));
    }
    // A short body may be accepted nevertheless: space is found while it arrives.
    let is_long = len.is_some_and(|len| len >= RUN_SIZE && len > heap.room_bytes());
    if ctx.shared.writes.keeps_values() && (is_long || (body.wants_continue && heap.room_bytes() == 0)) {
        return Err(Refusal::new(507, landfall_heap::HeapError::Full.to_string()));
    }
    Ok(())
}

fn missing() -> Refusal {
    Refusal::new(404, "no such key: PUT it first")
}

fn etag(writer: &mut ResponseWriter<'_>, tag: u64) {
    let mut quoted = [b'"'; 22];
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(tag).as_bytes();
    quoted[1..=digits.len()].copy_from_slice(digits);
    writer.header("ETag", &quoted[..digits.len() + 2]);
}

/// Writes the remaining time to live, if the value has one.
fn time_to_live(writer: &mut ResponseWriter<'_>, expiry_ms: u64, now_ms: u64) {
    if expiry_ms != 0 {
        let left = format!("{}ms", expiry_ms.saturating_sub(now_ms));
        writer.header("X-Landfall-TTL", left.as_bytes());
    }
}

/// How versions are named. A seq is the server's own: in a chain, where another server may have given the same one to another
/// version, the tags of each server differ from those of the others.
#[derive(Clone, Copy, Debug)]
struct Tags {
    mask: u64,
}

impl Tags {
    fn of(shared: &Shared) -> Self {
        let heap = shared.engine.heap();
        let own = || heap.hash(u8::MAX, &heap.geometry().salt);
        Self { mask: shared.chain.as_ref().map_or(0, |_| own()) }
    }

    fn of_seq(self, seq: u64) -> u64 {
        seq ^ self.mask
    }

    fn current(self, item: &Item<'_>) -> Current {
        Current { tag: self.of_seq(item.seq), modified: item.arrival_ns / 1_000_000_000 }
    }
}
