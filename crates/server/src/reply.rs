//! Replies to send: protocol bytes and stored values, and the tickets that must be durable first.

use landfall_heap::{CopyPath, FRAME_SIZE, Gate, Heap, Ticket, Tickets};
use landfall_kv::{Item, ItemPart};
use landfall_media::{Extent, MediaError, Sum};
use landfall_sockets::{Outgoing, Part};
use std::collections::VecDeque;

/// Values up to this length are copied into the reply, because an iovec entry would cost more.
/// Counted as [`CopyPath::Reply`].
pub const REPLY_COPY_MAX: usize = 256;

/// Bytes that are passed to the transport at once. The kernel copies them in one system call, and other clients wait
/// for its end.
const SEND_BYTES_MAX: usize = 256 << 10;

/// Longest reply, with stored values, bytes.
pub const REPLY_BYTES_MAX: usize = 4 << 30;

/// The extent of a value with `before` and `after` around it, if these bytes lie there within the frames that the value
/// holds. Only packets have frames of which no part is written after they have landed. Their values carry sums, so
/// other values are skipped.
fn framed(heap: &Heap, item: &Item<'_>, before: &[u8], after: &[u8]) -> Option<Extent> {
    let [value] = item.extents() else { return None };
    let sum = value.sum().filter(|_| item.len > REPLY_COPY_MAX && !heap.trusts_sums())?;
    let room_before = value.off % FRAME_SIZE;
    let room_after = value.end().next_multiple_of(FRAME_SIZE) - value.end();
    if room_before < before.len() as u64 || room_after < after.len() as u64 {
        return None;
    }
    let whole =
        Extent::new(value.off - before.len() as u64, value.len() + (before.len() + after.len()) as u32);
    let bytes = heap.media().bytes(whole).ok()?;
    if !bytes.starts_with(before) || !bytes.ends_with(after) {
        return None;
    }
    let ends_at = before.len() + value.len() as usize;
    let sum = Sum::of(before).then(before.len(), sum).then(ends_at, Sum::of(after));
    Some(whole.with_sum(Some(sum)))
}

/// Consecutive replies that may be sent together, once their barriers are durable.
#[derive(Debug, Default)]
pub struct Batch {
    /// What to send.
    pub out: Outgoing,
    /// Tickets that must be durable first.
    pub barriers: Tickets,
    /// Commit round in which the barriers arose. Replies of different rounds do not wait for each other.
    round: u64,
}

/// One connection's replies, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Batch>,
    spare: Vec<Outgoing>,
    /// Bytes that are queued and not yet passed to the transport.
    bytes: usize,
}

/// Empty buffers that a connection keeps, at most.
const SPARE_MAX: usize = 2;

impl Outbox {
    /// True when nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes queued, for the limit on output buffers.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Begins a reply in commit round `round`.
    #[inline]
    pub fn begin<'a>(&'a mut self, heap: &'a Heap, round: u64) -> Reply<'a> {
        if self.queue.is_empty() {
            let out = self.spare.pop().unwrap_or_default();
            self.queue.push_back(Batch { out, barriers: Tickets::default(), round });
        }
        let (bytes_start, parts_start) =
            self.queue.back().map_or((0, 0), |batch| (batch.out.bytes.len(), batch.out.parts().len()));
        let waits = Tickets::default();
        Reply { outbox: self, heap, round, bytes_start, parts_start, waits, stored: 0, finished: false }
    }

    /// The next bytes that may be sent: replies at the front whose barriers are durable. `None`: there are no replies.
    ///
    /// What is not durable may be a moment later, by another thread: whoever looked twice might find that the reply cannot be
    /// sent, and then that it waits for nothing.
    ///
    /// # Errors
    /// The ticket that the first reply waits for.
    pub fn take_ready(&mut self, is_durable: impl Fn(Ticket) -> bool) -> Result<Option<Outgoing>, Ticket> {
        while let Some(first) = self.queue.front() {
            if let Some(ticket) = first.barriers.iter().find(|ticket| !is_durable(*ticket)) {
                return Err(ticket);
            }
            if let Some(out) = self.take_durable(&is_durable) {
                return Ok(Some(out));
            }
        }
        Ok(None)
    }

    /// Takes the first reply, and those behind it that may be sent with it; `None` if these are empty.
    fn take_durable(&mut self, is_durable: &impl Fn(Ticket) -> bool) -> Option<Outgoing> {
        let ready = |batch: &Batch| batch.barriers.iter().all(is_durable);
        let Batch { mut out, mut round, .. } = self.queue.pop_front()?;
        while out.len() <= SEND_BYTES_MAX && self.queue.front().is_some_and(ready) {
            let next = self.queue.pop_front()?;
            out.append(&next.out);
            round = next.round;
            self.recycle(next.out);
        }
        out.seal_bytes();
        if out.len() > SEND_BYTES_MAX + SEND_BYTES_MAX / 2 {
            let tail = out.cut(SEND_BYTES_MAX, FRAME_SIZE, self.spare.pop().unwrap_or_default());
            self.queue.push_front(Batch { out: tail, barriers: Tickets::default(), round });
        }
        self.bytes = self.bytes.saturating_sub(out.len());
        if out.is_empty() {
            self.recycle(out);
            return None;
        }
        Some(out)
    }

    /// The ticket that the first reply waits for, if any.
    pub fn waits_for(&self, is_durable: impl Fn(Ticket) -> bool) -> Option<Ticket> {
        self.queue.front()?.barriers.iter().find(|ticket| !is_durable(*ticket))
    }

    /// Takes back emptied buffers.
    pub fn recycle(&mut self, mut buffers: Outgoing) {
        if self.spare.len() < SPARE_MAX {
            buffers.clear();
            self.spare.push(buffers);
        }
    }

    /// Removes the last batch if it is empty.
    fn drop_empty_batch(&mut self) {
        if self.queue.back().is_some_and(|batch| batch.out.is_empty())
            && let Some(batch) = self.queue.pop_back()
        {
            self.recycle(batch.out);
        }
    }

    /// Drops everything queued, and releases its extents.
    pub fn clear(&mut self, heap: &Heap) {
        for batch in self.queue.drain(..) {
            batch.out.stored().for_each(|extent| heap.runs().release(extent));
        }
        self.bytes = 0;
    }
}

/// A reply that is being written. [`Reply::finish`] completes it. A reply that is dropped unfinished is removed, as by
/// [`Reply::abandon`].
#[derive(Debug)]
pub struct Reply<'a> {
    outbox: &'a mut Outbox,
    heap: &'a Heap,
    round: u64,
    bytes_start: usize,
    parts_start: usize,
    waits: Tickets,
    stored: usize,
    finished: bool,
}

impl Reply<'_> {
    fn out(&mut self) -> &mut Outgoing {
        &mut self.outbox.queue.back_mut().expect("begin has made sure of a batch").out
    }

    /// The buffer for protocol bytes.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.out().bytes
    }

    /// Appends a stored value, by reference unless it is tiny.
    pub fn item(&mut self, item: Item<'_>) {
        if let Some(bytes) = item.inline() {
            self.heap.copies.add(CopyPath::Reply, bytes.len());
            self.bytes().extend_from_slice(bytes);
            return;
        }
        if item.len <= REPLY_COPY_MAX
            && let Ok(bytes) = item.bytes()
        {
            self.heap.copies.add(CopyPath::Reply, bytes.len());
            self.bytes().extend_from_slice(&bytes);
            return;
        }
        item.hand_over(|extent| self.stored(extent));
    }

    /// Appends a stored value behind the protocol bytes written since `start`, and `after`. If the packet of the value
    /// has these bytes around it, as a SET has those of the reply to a GET, all of it is sent from the packet as one
    /// piece.
    pub fn framed_item(&mut self, item: Item<'_>, start: usize, after: &[u8]) {
        let heap = self.heap;
        let Some(whole) = framed(heap, &item, &self.bytes()[start..], after) else {
            self.item(item);
            return self.bytes().extend_from_slice(after);
        };
        self.bytes().truncate(start);
        item.hand_over(|_| {});
        self.stored(whole);
    }

    /// A part of a value, in place or, where it is short, copied.
    ///
    /// # Errors
    /// The medium's.
    pub fn part(&mut self, part: &ItemPart<'_>) -> Result<(), MediaError> {
        let heap = self.heap;
        if part.inline().is_some() || part.len() <= REPLY_COPY_MAX {
            let bytes = part.to_vec(heap)?;
            heap.copies.add(CopyPath::Reply, bytes.len());
            self.bytes().extend_from_slice(&bytes);
            return Ok(());
        }
        for extent in part.extents() {
            heap.runs().hold(extent);
            self.stored(extent);
        }
        Ok(())
    }

    /// Appends bytes that lie in frames; the caller's hold passes to the reply.
    pub fn stored(&mut self, extent: Extent) {
        self.stored += extent.len() as usize;
        self.out().push_stored(extent);
    }

    /// Bytes written so far.
    #[inline]
    pub fn len(&self) -> usize {
        let bytes = self.outbox.queue.back().map_or(0, |batch| batch.out.bytes.len());
        bytes - self.bytes_start + self.stored
    }

    /// Memory of the reply so far, bytes: protocol bytes, and one to three words for each piece of a stored value.
    pub fn memory_len(&self) -> usize {
        let Some(batch) = self.outbox.queue.back() else { return 0 };
        let pieces = batch.out.parts().len().saturating_sub(self.parts_start);
        batch.out.bytes.len() - self.bytes_start + pieces * size_of::<Part>()
    }

    /// True when nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes everything written, as if the reply had not begun.
    pub fn abandon(self) {
        drop(self);
    }

    /// Removes everything written, so that another reply can be written. The reply still waits for what it has opened,
    /// because the error that replaces it may depend on that, too.
    pub fn rewind(&mut self) {
        let (bytes_start, parts_start) = (self.bytes_start, self.parts_start);
        let heap = self.heap;
        let taken = self.out().rewind(bytes_start, parts_start);
        taken.for_each(|extent| heap.runs().release(extent));
        self.stored = 0;
    }

    /// Completes the reply. If it waits for a ticket that earlier replies do not wait for, it starts a batch. An empty
    /// reply cannot wait.
    #[inline]
    pub fn finish(mut self) {
        let len = self.len();
        if len == 0 {
            return;
        }
        self.finished = true;
        self.outbox.bytes += len;
        if !self.waits.is_empty() {
            self.apply_waits();
        }
    }

    #[inline]
    fn apply_waits(&mut self) {
        let waits = std::mem::take(&mut self.waits);
        let round = self.round;
        let (bytes_start, parts_start) = (self.bytes_start, self.parts_start);
        let batch = self.outbox.queue.back_mut().expect("begin has made sure of a batch");
        let first = bytes_start == 0 && parts_start == 0;
        if first || batch.round == round && !batch.barriers.is_empty() {
            batch.round = round;
            batch.barriers.add_all(&waits);
            return;
        }
        let spare = self.outbox.spare.pop().unwrap_or_default();
        let out = batch.out.split_off(bytes_start, parts_start, spare);
        self.outbox.queue.push_back(Batch { out, barriers: waits, round });
    }
}

impl Gate for Reply<'_> {
    #[inline]
    fn hold_until(&mut self, tickets: &Tickets) {
        // Replies are sent in order: a reply need not repeat the tickets of earlier ones.
        let before = self.outbox.queue.back().map(|batch| &batch.barriers);
        for ticket in tickets.iter() {
            let is_awaited = before.is_some_and(|before| before.covers(ticket));
            if !is_awaited && !self.heap.is_durable(ticket) {
                self.waits.add(ticket);
            }
        }
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.rewind();
            self.outbox.drop_empty_batch();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use landfall_heap::{Entry, FRAME_SIZE, Gated, Kind, NewRegion, Opening, Source, Writer};
    use landfall_media::RUN_SIZE;
    use landfall_media::sim::{SimMedia, SimOptions};
    use proptest::prelude::*;
    use std::sync::Arc;

    const REGION_RUNS: u64 = 32;

    /// An empty heap on simulated media.
    pub(crate) fn heap() -> Arc<Heap> {
        let media = SimMedia::new(REGION_RUNS * RUN_SIZE, SimOptions::default());
        landfall_heap::create(&*media, &NewRegion { salt: [7; 16], hash_seed: 1, created_ms: 1 }).unwrap();
        Opening::begin(media).unwrap().finish().unwrap()
    }

    /// Frames to send from; each is used once.
    struct Frames {
        heap: Arc<Heap>,
        run_off: u64,
        used: u64,
    }

    impl Frames {
        fn new() -> Self {
            let heap = heap();
            let run_off = heap.take_landing_run().unwrap();
            Self { heap, run_off, used: 0 }
        }

        /// An extent with one hold.
        fn next(&mut self, len: u32) -> Extent {
            let extent = Extent::new(self.run_off + self.used * FRAME_SIZE, len);
            self.used += 1;
            assert!(self.used < RUN_SIZE / FRAME_SIZE);
            self.heap.runs().hold(extent);
            extent
        }

        fn refs(&self) -> u32 {
            (0..self.used).map(|frame| self.heap.runs().frame_refs(self.run_off + frame * FRAME_SIZE)).sum()
        }
    }

    /// What the client gets: byte ranges, by name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Token {
        Byte(u8),
        Stored(Extent),
    }

    /// What an outgoing reply sends; its byte parts must cover its bytes.
    fn tokens(out: &Outgoing) -> Vec<Token> {
        let (mut tokens, mut at) = (Vec::new(), 0);
        for part in out.parts() {
            match *part {
                Part::Bytes { start, end } => {
                    assert!(
                        start == at && end > start,
                        "parts {:?} of {} bytes",
                        out.parts(),
                        out.bytes.len()
                    );
                    tokens.extend(
                        out.bytes[start as usize..end as usize].iter().map(|byte| Token::Byte(*byte)),
                    );
                    at = end;
                }
                Part::Stored(extent) => tokens.push(Token::Stored(extent)),
            }
        }
        assert_eq!(at as usize, out.bytes.len(), "every byte is in a part");
        tokens
    }

    #[derive(Clone, Debug)]
    enum Write {
        Bytes(u8),
        Stored(u16),
        Wait { writer: u8, batch: u64 },
        Rewind,
    }

    #[derive(Clone, Copy, Debug)]
    enum End {
        Finish,
        Abandon,
        Drop,
    }

    #[derive(Clone, Debug)]
    enum Op {
        Reply { writes: Vec<Write>, end: End },
        NextRound,
        Durable { writer: u8, upto: u64 },
        Take,
        Clear,
    }

    const WRITERS: u8 = 3;
    const BATCH_MAX: u64 = 12;

    fn write() -> impl Strategy<Value = Write> {
        prop_oneof![
            5 => (0u8..6).prop_map(Write::Bytes),
            3 => (1u16..2000).prop_map(Write::Stored),
            2 => (0..WRITERS, 1..=BATCH_MAX).prop_map(|(writer, batch)| Write::Wait { writer, batch }),
            1 => Just(Write::Rewind),
        ]
    }

    fn op() -> impl Strategy<Value = Op> {
        let end = prop_oneof![8 => Just(End::Finish), 1 => Just(End::Abandon), 1 => Just(End::Drop)];
        prop_oneof![
            8 => (prop::collection::vec(write(), 0..6), end).prop_map(|(writes, end)| Op::Reply { writes, end }),
            2 => Just(Op::NextRound),
            3 => (0..WRITERS, 0..=BATCH_MAX).prop_map(|(writer, upto)| Op::Durable { writer, upto }),
            4 => Just(Op::Take),
            1 => Just(Op::Clear),
        ]
    }

    /// A completed reply that was not sent.
    #[derive(Debug, Default)]
    struct Queued {
        tokens: Vec<Token>,
        waits: Vec<Ticket>,
        round: u64,
    }

    impl Queued {
        fn len(&self) -> usize {
            let len = |token: &Token| match token {
                Token::Byte(_) => 1,
                Token::Stored(extent) => extent.len() as usize,
            };
            self.tokens.iter().map(len).sum()
        }
    }

    /// The outbox, and a plain list of replies as its model.
    struct Pair {
        frames: Frames,
        outbox: Outbox,
        model: VecDeque<Queued>,
        durable: [u64; WRITERS as usize],
        round: u64,
        next_byte: u8,
    }

    impl Pair {
        fn new() -> Self {
            let (outbox, model) = (Outbox::default(), VecDeque::new());
            Self {
                frames: Frames::new(),
                outbox,
                model,
                durable: [0; WRITERS as usize],
                round: 1,
                next_byte: 0,
            }
        }

        fn run(&mut self, op: &Op) {
            match op {
                Op::Reply { writes, end } => self.reply(writes, *end),
                Op::NextRound => self.round += 1,
                Op::Durable { writer, upto } => {
                    let durable = &mut self.durable[usize::from(*writer)];
                    *durable = (*durable).max(*upto);
                }
                Op::Take => self.take(),
                Op::Clear => {
                    self.outbox.clear(&self.frames.heap);
                    self.model.clear();
                }
            }
            self.check();
        }

        fn reply(&mut self, writes: &[Write], end: End) {
            let heap = Arc::clone(&self.frames.heap);
            let mut reply = self.outbox.begin(&heap, self.round);
            let mut queued = Queued { round: self.round, ..Queued::default() };
            for write in writes {
                match *write {
                    Write::Bytes(count) => {
                        for _ in 0..count {
                            self.next_byte = self.next_byte.wrapping_add(1);
                            reply.bytes().push(self.next_byte);
                            queued.tokens.push(Token::Byte(self.next_byte));
                        }
                    }
                    Write::Stored(len) => {
                        let extent = self.frames.next(u32::from(len));
                        reply.stored(extent);
                        queued.tokens.push(Token::Stored(extent));
                    }
                    Write::Wait { writer, batch } => {
                        let ticket = Ticket::new(writer, batch);
                        Gated::new((), ticket).open(&mut reply);
                        queued.waits.push(ticket);
                    }
                    Write::Rewind => {
                        reply.rewind();
                        queued.tokens.clear();
                    }
                }
                assert_eq!(reply.len(), queued.len());
            }
            match end {
                End::Finish => reply.finish(),
                End::Abandon => return reply.abandon(),
                End::Drop => return drop(reply),
            }
            if !queued.tokens.is_empty() {
                self.model.push_back(queued);
            }
        }

        fn is_durable(durable: &[u64], ticket: Ticket) -> bool {
            ticket.batch() <= durable[usize::from(ticket.writer())]
        }

        /// Checks that complete replies are sent in order, none before its tickets are durable, and that none stays
        /// without a reply of its round or an earlier one that holds it back.
        fn take(&mut self) {
            let durable = self.durable;
            let is_durable = |ticket| Self::is_durable(&durable, ticket);
            let ready = |reply: &Queued| reply.waits.iter().all(|ticket| is_durable(*ticket));
            let round_held = self.model.iter().find(|reply| !ready(reply)).map(|reply| reply.round);
            let must_leave = match round_held {
                Some(held) => self.model.iter().filter(|reply| reply.round < held).count(),
                None => self.model.len(),
            };
            let waits_for = self.outbox.waits_for(is_durable);
            let out = self.outbox.take_ready(is_durable).ok().flatten();
            assert!(waits_for.is_none() || out.is_none(), "what waits does not leave");
            let mut sent = out.as_ref().map(tokens).unwrap_or_default();
            let mut left = 0;
            while !sent.is_empty() {
                let reply = self.model.pop_front().expect("nothing leaves that was not queued");
                assert!(ready(&reply), "{reply:?} left early");
                assert_eq!(
                    sent.drain(..reply.tokens.len().min(sent.len())).collect::<Vec<_>>(),
                    reply.tokens
                );
                left += 1;
            }
            assert!(left >= must_leave, "{left} left, {must_leave} had nothing to wait for");
            if let Some(out) = out {
                out.stored().for_each(|extent| self.frames.heap.runs().release(extent));
                self.outbox.recycle(out);
            }
        }

        fn check(&self) {
            assert_eq!(self.outbox.is_empty(), self.model.is_empty());
            assert_eq!(self.outbox.len(), self.model.iter().map(Queued::len).sum::<usize>());
            for batch in &self.outbox.queue {
                let past_end = |part: &Part| matches!(part, Part::Bytes { end, .. } if *end as usize > batch.out.bytes.len());
                assert!(
                    !batch.out.parts().iter().any(past_end),
                    "no part reaches past the bytes that are left"
                );
            }
            let stored = self.model.iter().flat_map(|reply| &reply.tokens);
            let held = stored.filter(|token| matches!(token, Token::Stored(_))).count();
            assert_eq!(self.frames.refs() as usize, held, "each queued extent is held once, no other is");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn an_outbox_sends_what_a_list_of_replies_would(ops in prop::collection::vec(op(), 1..60)) {
            let mut pair = Pair::new();
            ops.iter().for_each(|op| pair.run(op));
            pair.durable = [u64::MAX; WRITERS as usize];
            pair.run(&Op::Take);
            prop_assert!(pair.model.is_empty(), "everything leaves once everything is durable");
        }
    }

    fn say(outbox: &mut Outbox, heap: &Heap, round: u64, text: &[u8], waits: &[Ticket]) {
        let mut reply = outbox.begin(heap, round);
        reply.bytes().extend_from_slice(text);
        waits.iter().for_each(|ticket| Gated::new((), *ticket).open(&mut reply));
        reply.finish();
    }

    /// A buffer may have ended with a stored value, with as many parts and bytes, in its earlier replies.
    #[test]
    fn bytes_behind_a_value_are_sent_whatever_the_buffer_held_before() {
        let value = Extent::new(0, 3);
        let mut out = Outgoing::new();
        out.bytes.extend_from_slice(b"$6\r\n1234567");
        out.push_stored(value);
        out.push_stored(value);
        out.clear();
        out.bytes.extend_from_slice(b"+OK\r\n");
        let mut next = Outgoing::new();
        next.bytes.extend_from_slice(b"$3\r\n");
        next.push_stored(value);
        next.bytes.extend_from_slice(b"\r\n");
        out.append(&next);
        out.seal_bytes();
        assert_eq!(out.parts().last(), Some(&Part::Bytes { start: 9, end: 11 }));
    }

    #[test]
    fn a_later_round_does_not_hold_back_an_earlier_one() {
        let (heap, mut outbox) = (heap(), Outbox::default());
        let ticket = |batch| Ticket::new(1, batch);
        say(&mut outbox, &heap, 1, b"a", &[]);
        say(&mut outbox, &heap, 1, b"b", &[ticket(1)]);
        say(&mut outbox, &heap, 2, b"c", &[ticket(6)]);
        say(&mut outbox, &heap, 2, b"d", &[]);
        let mut take = |upto| {
            let out = outbox.take_ready(|ticket| ticket.batch() <= upto)?;
            Ok(out.map(|out| out.bytes))
        };
        assert_eq!(take(0), Ok(Some(b"a".to_vec())));
        assert_eq!(take(0), Err(ticket(1)));
        assert_eq!(take(1), Ok(Some(b"b".to_vec())));
        assert_eq!(take(5), Err(ticket(6)));
        assert_eq!(take(6), Ok(Some(b"cd".to_vec())));
        assert_eq!(take(6), Ok(None));
    }

    #[test]
    fn a_reply_that_is_not_taken_says_what_it_waits_for_though_that_is_durable_a_moment_later() {
        let (heap, mut outbox) = (heap(), Outbox::default());
        let ticket = Ticket::new(1, 1);
        say(&mut outbox, &heap, 1, b"x", &[ticket]);
        let looks = std::cell::Cell::new(0);
        // Another thread makes it durable behind the first look.
        let is_durable = |_| looks.replace(looks.get() + 1) > 0;
        assert_eq!(outbox.take_ready(is_durable).map(|out| out.is_some()), Err(ticket));
        assert_eq!(outbox.take_ready(is_durable).map(|out| out.is_some()), Ok(true));
    }

    #[test]
    fn many_waits_for_one_writer_are_one_barrier() {
        let (heap, mut outbox) = (heap(), Outbox::default());
        let tickets: Vec<Ticket> = (1..=100).map(|batch| Ticket::new(1, batch)).collect();
        say(&mut outbox, &heap, 1, b"x", &tickets);
        assert!(outbox.queue[0].barriers.iter().eq([tickets[99]]));
        assert_eq!(outbox.waits_for(|ticket| ticket.batch() < 100), Some(tickets[99]));
        assert_eq!(
            outbox.take_ready(|ticket| ticket.batch() < 100).map(|out| out.is_some()),
            Err(tickets[99])
        );
    }

    #[test]
    fn a_reply_without_bytes_leaves_no_batch_behind() {
        let (heap, mut outbox) = (heap(), Outbox::default());
        say(&mut outbox, &heap, 1, b"", &[Ticket::new(1, 1)]);
        assert!(outbox.is_empty());
        drop(outbox.begin(&heap, 1));
        assert!(outbox.is_empty());
    }

    fn append_and_commit(writer: &mut Writer) -> Ticket {
        let (kind, value) = (Kind::Put, Source::Bytes(b"1"));
        let hash = writer.heap().hash(0, b"k");
        let entry = Entry {
            kind,
            space: 0,
            hash,
            key: b"k",
            key_at: None,
            value,
            arrival_ns: 1,
            expiry_ms: 0,
            aux: 0,
        };
        writer.append(&entry).unwrap();
        let ticket = writer.ticket();
        writer.commit_now().unwrap();
        ticket
    }

    #[test]
    fn durable_tickets_are_not_waited_for() {
        let (heap, mut outbox) = (heap(), Outbox::default());
        let mut writer = Writer::new(Arc::clone(&heap), 1);
        let ticket = append_and_commit(&mut writer);
        say(&mut outbox, &heap, 1, b"x", &[ticket]);
        assert_eq!(outbox.waits_for(|_| false), None);
        assert!(outbox.take_ready(|_| false).is_ok_and(|out| out.is_some()));
    }
}
