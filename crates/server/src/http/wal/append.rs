//! `POST`: one entry, or a batch of them, referred to where they landed.

use super::{JSON, header_number, no_params, wait_for};
use crate::context::Context;
use crate::http::answer::{Answer, Failure, Refusal};
use crate::http::values::Body;
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_heap::{Extents, Source};
use landfall_http::Request;
use landfall_media::{Chain, Extent};
use std::ops::Range;

/// Content type of several entries.
pub(super) const BATCH: &[u8] = b"application/x-landfall-batch";
/// Bytes in front of an entry of a batch: its length.
const LEN_BYTES: usize = 4;

pub(super) fn append(
    ctx: &mut Context<'_>,
    request: &Request,
    chain: &Chain<'_>,
    log: &[u8],
    answer: &mut Answer<'_, '_>,
) -> Result<(), Failure> {
    no_params(request)?;
    let is_batch = request.header("content-type").is_some_and(|given| {
        let name = given.split(|byte| *byte == b';').next().unwrap_or(given);
        name.trim_ascii().eq_ignore_ascii_case(BATCH)
    });
    let done = if is_batch {
        let entries = entries(request, chain)?;
        let sources: Vec<Source<'_>> =
            entries.iter().map(|extents| Source::Landed { extents, crc: None }).collect();
        ctx.logs.append(ctx.writer, log, &sources, ctx.arrival_ns)?
    } else {
        let mut body = Body::default();
        let source = body.source(ctx, request, chain);
        ctx.logs.append(ctx.writer, log, &[source], ctx.arrival_ns)?
    };
    wait_for(answer, &done.waits);
    let body = format!("{{\"offset\":{},\"count\":{}}}\n", done.first, done.count);
    let mut writer = answer.status(201);
    header_number(&mut writer, "X-Landfall-Offset", done.first);
    writer.header("Content-Type", JSON);
    writer.body(body.as_bytes());
    Ok(())
}

/// Where the entries of a batch lie.
fn entries(request: &Request, chain: &Chain<'_>) -> Result<Vec<Extents>, Refusal> {
    let body = Pieces { ranges: &request.body, len: request.body_len };
    let mut entries = Vec::new();
    let mut at = 0;
    while at < body.len {
        let mut len = [0; LEN_BYTES];
        if body.len - at < LEN_BYTES {
            return Err(cut_short());
        }
        let mut filled = 0;
        body.visit(at..at + LEN_BYTES, |range| {
            chain.pieces(range, |_, bytes| {
                len[filled..filled + bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            });
        });
        at += LEN_BYTES;
        let end = at.checked_add(u32::from_le_bytes(len) as usize).filter(|end| *end <= body.len);
        let end = end.ok_or_else(cut_short)?;
        if entries.len() == GROUP_RECORDS_MAX {
            return Err(Refusal::new(413, format!("a batch has at most {GROUP_RECORDS_MAX} entries")));
        }
        let mut extents = Extents::new();
        body.visit(at..end, |range| chain.extents(range, |extent: Extent| extents.push(extent)));
        entries.push(extents);
        at = end;
    }
    Ok(entries)
}

fn cut_short() -> Refusal {
    Refusal::new(400, "a batch is, for each entry, its length in 4 bytes, little-endian, and its bytes")
}

/// A body, which may lie in pieces between chunk headers.
struct Pieces<'a> {
    ranges: &'a [Range<usize>],
    len: usize,
}

impl Pieces<'_> {
    /// Visits the stream ranges of a part of the body.
    fn visit(&self, part: Range<usize>, mut visit: impl FnMut(Range<usize>)) {
        let mut base = 0;
        for range in self.ranges {
            let (from, to) = (part.start.max(base), part.end.min(base + range.len()));
            if from < to {
                visit(range.start + from - base..range.start + to - base);
            }
            base += range.len();
        }
    }
}
