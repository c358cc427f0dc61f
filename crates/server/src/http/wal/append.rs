//! `POST`: appends one entry or a batch of entries, by reference to where they landed.

use super::{JSON, header_number, no_params};
use crate::context::Context;
use crate::http::answer::{Answer, Failure, Refusal};
use crate::http::values::Body;
use crate::walk::Walk;
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_heap::{Extents, Source};
use landfall_http::Request;
use landfall_media::{Chain, Extent};
use std::ops::Range;

/// Content type of a batch.
pub(super) const BATCH: &[u8] = b"application/x-landfall-batch";
/// Bytes of the length in front of an entry of a batch.
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
    let done = done.open(answer.reply);
    let body = format!("{{\"offset\":{},\"count\":{}}}\n", done.first, done.count);
    let mut writer = answer.status(201);
    header_number(&mut writer, "X-Landfall-Offset", done.first);
    writer.header("Content-Type", JSON);
    writer.body(body.as_bytes());
    Ok(())
}

/// The extents of each entry of a batch.
fn entries(request: &Request, chain: &Chain<'_>) -> Result<Vec<Extents>, Refusal> {
    let mut body = BodyCursor::new(&request.body, request.body_len);
    let walk = Walk::new(*chain);
    let mut entries = Vec::new();
    while body.left > 0 {
        let len = entry_len(&mut body, &walk)?;
        if entries.len() == GROUP_RECORDS_MAX {
            return Err(Refusal::new(413, format!("a batch has at most {GROUP_RECORDS_MAX} entries")));
        }
        let mut extents = Extents::new();
        body.take(len, |range| {
            let (chain, place) = walk.at(&range);
            chain.extents(place, |extent: Extent| extents.push(extent));
        });
        entries.push(extents);
    }
    Ok(entries)
}

/// Reads the length in front of an entry, whose bytes must all be there.
fn entry_len(body: &mut BodyCursor<'_>, walk: &Walk<'_>) -> Result<usize, Refusal> {
    if body.left < LEN_BYTES {
        return Err(cut_short());
    }
    let (mut len, mut filled) = ([0; LEN_BYTES], 0);
    body.take(LEN_BYTES, |range| {
        let (chain, place) = walk.at(&range);
        chain.pieces(place, |_, bytes| {
            len[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        });
    });
    let len = u32::from_le_bytes(len) as usize;
    if len > body.left { Err(cut_short()) } else { Ok(len) }
}

fn cut_short() -> Refusal {
    Refusal::new(400, "a batch is, for each entry, its length in 4 bytes, little-endian, and its bytes")
}

/// A cursor over a body, which may lie in pieces between chunk headers. Each piece is visited once, and once more for
/// each entry that begins in it.
struct BodyCursor<'a> {
    ranges: std::slice::Iter<'a, Range<usize>>,
    /// Rest of the current piece.
    piece: Range<usize>,
    /// Remaining bytes of the body.
    left: usize,
    /// Pieces visited.
    #[cfg(test)]
    visits: usize,
}

impl<'a> BodyCursor<'a> {
    fn new(ranges: &'a [Range<usize>], len: usize) -> Self {
        Self {
            ranges: ranges.iter(),
            piece: 0..0,
            left: len,
            #[cfg(test)]
            visits: 0,
        }
    }

    /// Visits the stream ranges of the next `count` bytes; the body has at least that many left.
    fn take(&mut self, count: usize, mut visit: impl FnMut(Range<usize>)) {
        let mut count = count.min(self.left);
        self.left -= count;
        while count > 0 {
            #[cfg(test)]
            {
                self.visits += 1;
            }
            if self.piece.is_empty() {
                let Some(next) = self.ranges.next() else { return };
                self.piece = next.clone();
            }
            let len = count.min(self.piece.len());
            if len > 0 {
                visit(self.piece.start..self.piece.start + len);
            }
            self.piece.start += len;
            count -= len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_body_is_visited_once_however_it_is_cut(
            pieces in prop::collection::vec((0..9_usize, 1..20_usize), 0..200),
            takes in prop::collection::vec(0..50_usize, 0..200),
        ) {
            let (mut ranges, mut at) = (Vec::new(), 0);
            for (gap, len) in pieces {
                ranges.push(at + gap..at + gap + len);
                at += gap + len;
            }
            let mut bytes = ranges.iter().flat_map(Clone::clone);
            let len = ranges.iter().map(ExactSizeIterator::len).sum();
            let mut body = BodyCursor::new(&ranges, len);
            for count in &takes {
                let mut got = Vec::new();
                body.take(*count, |range| got.extend(range));
                prop_assert!(got.into_iter().eq(bytes.by_ref().take(*count)));
            }
            prop_assert!(body.visits <= ranges.len() + takes.len(), "{} visits", body.visits);
        }
    }
}
