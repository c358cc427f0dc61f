//! One session: its updates and bypasses in order, and the state of the work that it has handed to the application.

use super::bypasses::{Bypasses, Known, Request};
use super::config::{Ticket, Work};
use super::context::Context;
use super::long::{Long, Reserved};
use super::order::{Order, Room, Taken};
use super::pause::Pause;
use super::row::SessionRow;
use super::watch::Watch;
use crate::pieces::{Mark, Response};
use crate::wire::{Body, FIRST_BYPASS, Fragment, Header, kind};
use core::net::SocketAddr;
use landfall_net::Instant;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Most numbers of a foreign session that are requested at once.
const ASKED_MAX: usize = 16;

/// How a session's requests are numbered, and which packets its client understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    /// Updates are numbered from the bottom, bypasses from 2³¹ on.
    Apart,
    /// Updates and bypasses share one numbering, from 0 on. The session is one of the authors' release, which begins
    /// without a session start. Each request is answered with a *response* in one packet, in the order of the
    /// numbers.
    Together,
}

impl Numbering {
    /// Takes the request for the application. A foreign client sends a request only once, so a copy stays here until
    /// the work is done.
    fn take_request(self, request: &mut Vec<u8>) -> Vec<u8> {
        match self {
            Self::Apart => std::mem::take(request),
            Self::Together => request.clone(),
        }
    }
}

/// No copy of a packet stays in the network longer than this.
const RENEW_AFTER: Duration = Duration::from_secs(10);

/// Work for the application.
#[derive(Debug)]
enum Task {
    Begin { evicted: Vec<SessionRow> },
    Update { request: Vec<u8>, last: u32 },
    Bypass { request: Request, lost: bool, response: Reserved, changed: bool },
    End { by_silence: bool },
}

impl Task {
    /// Bytes of the request while it has not been handed out.
    fn bytes(&self) -> usize {
        match self {
            Self::Update { request, .. } => request.len(),
            Self::Bypass { request, .. } => request.bytes.len(),
            Self::Begin { .. } | Self::End { .. } => 0,
        }
    }
}

/// A piece of work. It stays in the queue until it and everything before it are done.
#[derive(Debug)]
struct Item {
    task: Task,
    /// Set when the work is handed out.
    ticket: u64,
    /// The session's row once the work is done. Set when the work is handed out.
    row: SessionRow,
    done: bool,
}

impl Item {
    fn long_bytes(&self, ctx: &Context) -> usize {
        match &self.task {
            Task::Bypass { response, .. } => response.long_bytes(ctx),
            _ => 0,
        }
    }
}

/// Whether the session is live or over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// The session is live.
    Live,
    /// The session's end is committed.
    Ended,
    /// The beginning of the session was not committed. The rows that were evicted for it still exist.
    NeverBegan(Vec<SessionRow>),
}

/// A session that has not ended.
#[derive(Debug)]
pub(super) struct Session {
    /// Address from which the last packet came.
    address: SocketAddr,
    /// The row as it is committed.
    row: SessionRow,
    /// The row as it will be when all work that was handed out is committed.
    planned: SessionRow,
    /// Whether the session's row is committed.
    begun: bool,
    numbering: Numbering,
    /// When this incarnation has created or restored the session.
    known_since: Instant,
    /// When the last packet of the session arrived.
    last_packet: Instant,
    order: Order,
    bypasses: Bypasses,
    queue: VecDeque<Item>,
    /// Number of items in the queue that are handed out.
    handed: usize,
    /// Bytes of requests in the queue that are not handed out.
    queued_bytes: usize,
    /// Bytes of a long response in the queue.
    queued_long: usize,
    /// True while a bypass is being executed, because its changes are not yet known.
    blocked: bool,
    /// Tickets of work that was handed out after work that failed. Their outcome is still awaited.
    void: BTreeSet<u64>,
    /// Number of the last update, once the client has ended the session.
    end: Option<u32>,
    /// Whether the session's end is in the queue.
    ending: bool,
    /// The last confirmed update, if the application has lost it.
    pub(super) behind: Option<u32>,
    /// The first missing update that was reported to the operator.
    pub(super) reported_missing: Option<u32>,
    gap: Pause,
    recover: Pause,
    pub(super) watch: Watch,
    /// When work of a foreign session that has failed is handed out again.
    retry: Option<Instant>,
    pub(super) life: Life,
    /// Whether a server-ACK is to be sent.
    pub(super) ack_due: bool,
    /// The session's entries in the server's lists.
    pub(super) listed: Listed,
}

/// What the server's lists contain about a session.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) work: bool,
    pub(super) ack: bool,
    pub(super) timer: Option<Instant>,
    pub(super) bytes: usize,
    pub(super) long: usize,
}

impl Session {
    fn new(address: SocketAddr, row: SessionRow, begun: bool, ctx: &Context) -> Self {
        Self {
            address,
            row,
            planned: row,
            begun,
            numbering: if row.is_foreign() { Numbering::Together } else { Numbering::Apart },
            known_since: ctx.now,
            last_packet: ctx.now,
            order: Order::new(row.update.wrapping_add(1)),
            bypasses: if begun { Bypasses::restore(row.bypass) } else { Bypasses::begin(row.bypass) },
            queue: VecDeque::new(),
            handed: 0,
            queued_bytes: 0,
            queued_long: 0,
            blocked: false,
            void: BTreeSet::new(),
            end: None,
            ending: false,
            behind: None,
            reported_missing: None,
            gap: Pause::default(),
            recover: Pause::default(),
            watch: Watch::new(row.lease, ctx),
            retry: None,
            life: Life::Live,
            ack_due: false,
            listed: Listed::default(),
        }
    }

    /// A new session. Its first work is to commit its row.
    pub(super) fn begin(
        address: SocketAddr,
        row: SessionRow,
        evicted: Vec<SessionRow>,
        ctx: &Context,
    ) -> Self {
        let mut session = Self::new(address, row, false, ctx);
        session.push(Task::Begin { evicted });
        session
    }

    /// A session that an earlier incarnation has committed. From `at` on, the client is asked to send uncommitted
    /// updates again.
    pub(super) fn restore(row: SessionRow, at: Instant, ctx: &Context) -> Self {
        let session = Self::new(row.key.client, row, true, ctx);
        let recover = match session.numbering {
            Numbering::Apart => Pause::start(at, ctx.config.recover_after),
            // The packet would carry this number, and a client of the release that waits for the answer to it would
            // exit with an error.
            Numbering::Together => Pause::default(),
        };
        Self { recover, ..session }
    }

    pub(super) fn row(&self) -> &SessionRow {
        &self.row
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Bytes of requests that wait for other packets or for the application.
    pub(super) fn bytes(&self) -> usize {
        self.order.bytes() + self.bypasses.bytes() + self.queued_bytes
    }

    /// Bytes of responses longer than one window.
    pub(super) fn long_bytes(&self) -> usize {
        // A long response in the queue is not yet the session's newest response.
        self.queued_long + self.long().map_or(0, |long| long.bytes)
    }

    pub(super) fn long(&self) -> Option<Long> {
        self.bypasses.long
    }

    pub(super) fn drop_long(&mut self) {
        self.bypasses.drop_long();
    }

    pub(super) fn bypasses(&mut self) -> &mut Bypasses {
        &mut self.bypasses
    }

    /// When [`Self::handle_timeout`] is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.gap.at(), self.recover.at(), self.retry, self.watch.due()].into_iter().flatten().min()
    }

    /// Whether the session's end is in the queue.
    pub(super) fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether the session is begun, has no work in the queue, and is neither ending nor behind.
    pub(super) fn is_idle(&mut self) -> bool {
        self.begun && self.queue.is_empty() && self.accepts() && !self.is_behind()
    }

    /// Ends the session on behalf of its client, because it is silent.
    pub(super) fn end_by_silence(&mut self, ctx: &mut Context) {
        (self.end, self.ending) = (Some(self.row.update), true);
        self.push(Task::End { by_silence: true });
        self.watch_gap(false, ctx);
    }

    /// Notes that the client, or a device on its behalf, has sent a packet from `address`. `answers`: whether the
    /// packet answers *recover*. `alive_at`: the time, if the packet shows that the client is alive.
    pub(super) fn note_packet(&mut self, address: SocketAddr, answers: bool, alive_at: Option<Instant>) {
        self.address = address;
        if let Some(now) = alive_at {
            self.last_packet = now;
            self.watch.note_packet(now);
        }
        if answers {
            self.recover.stop();
        }
    }

    /// Whether packets are accepted. They are not after the session's end, nor while the outcome of work after a
    /// failure is awaited. The latter does not apply to foreign clients, which send each packet once.
    fn accepts(&self) -> bool {
        (self.void.is_empty() || self.numbering == Numbering::Together) && !self.ending
    }

    /// Number of the first update that is not committed.
    pub(super) fn uncommitted(&self) -> u32 {
        self.row.update.wrapping_add(1)
    }

    fn limit(&self, ctx: &Context) -> u32 {
        self.uncommitted().saturating_add(ctx.config.reorder_max).min(FIRST_BYPASS)
    }

    /// Handles an update, or a piece of one.
    pub(super) fn update(&mut self, seq: u32, place: Option<Fragment>, bytes: &[u8], ctx: &mut Context) {
        if seq < self.uncommitted() {
            ctx.stats.duplicates += 1;
            ctx.stats.make_up_acks += 1;
            return self.confirm(seq, ctx);
        }
        if self.is_behind() && self.behind < Some(seq) {
            return self.refuse_behind(seq, ctx);
        }
        if !self.accepts() {
            ctx.stats.early_dropped += 1;
            return;
        }
        let room = match (ctx.has_room(bytes.len()), self.queue.is_empty()) {
            (true, _) => Room::Any,
            (false, true) => Room::Next,
            (false, false) => Room::None,
        };
        match self.order.take((seq, place), bytes, self.limit(ctx), room) {
            Taken::Yes => self.advance(ctx),
            Taken::Before => ctx.stats.duplicates += 1,
            Taken::TooEarly => {
                ctx.stats.early_dropped += 1;
                self.watch_gap(false, ctx);
            }
        }
    }

    /// Moves all requests whose turn has come into the queue.
    fn advance(&mut self, ctx: &mut Context) {
        let before = self.order.next();
        self.queue_bypasses();
        while let Some((request, last)) = self.order.pop() {
            self.push(Task::Update { request, last });
            self.queue_bypasses();
        }
        if self.end.is_some_and(|end| end.wrapping_add(1) == self.order.next()) && !self.ending {
            self.ending = true;
            self.push(Task::End { by_silence: false });
        }
        self.watch_gap(self.order.next() > before, ctx);
    }

    fn queue_bypasses(&mut self) {
        while let Some(request) = self.bypasses.pop(self.order.next()) {
            let lost = self.bypasses.is_lost(request.number);
            if self.numbering == Numbering::Together {
                self.order.skip_to(request.seq + 1);
            }
            self.push(Task::Bypass { request, lost, response: Reserved::Postponed, changed: false });
        }
    }

    fn push(&mut self, task: Task) {
        self.queued_bytes += task.bytes();
        self.queue.push_back(Item { task, ticket: 0, row: self.planned, done: false });
    }

    /// Runs the timer for missing updates while updates are missing. Restarts it if the first missing update
    /// changes.
    fn watch_gap(&mut self, moved: bool, ctx: &mut Context) {
        if !self.order.is_missing(self.limit(ctx)) {
            self.gap.stop();
        } else if moved || self.gap.at().is_none() {
            ctx.stats.gaps += 1;
            self.gap = Pause::start(ctx.now + ctx.config.retransmit_after, ctx.config.retransmit_after);
        }
    }

    /// Handles a bypass, or a piece of one.
    pub(super) fn bypass(&mut self, mut request: Request, place: Option<Fragment>, ctx: &mut Context) {
        if self.numbering == Numbering::Apart && self.bypasses.is_past(request.number) {
            ctx.stats.duplicates += 1;
            return;
        }
        match self.bypasses.known(request.number) {
            Known::Answered(response) => {
                ctx.stats.duplicates += 1;
                self.send_response(request.seq, response, ctx);
                return;
            }
            Known::Busy => {
                ctx.stats.duplicates += 1;
                return;
            }
            Known::New | Known::Lost => {}
        }
        if self.numbering == Numbering::Together {
            if request.seq < self.order.next() {
                ctx.stats.duplicates += 1;
                return;
            }
            request.after = request.seq.checked_sub(1);
        }
        if self.is_behind() {
            return self.refuse_behind(request.seq, ctx);
        }
        let after = request.after.unwrap_or(0);
        let is_near = after < self.limit(ctx) && after < FIRST_BYPASS;
        let has_room = ctx.has_room(request.bytes.len()) || self.bytes() == 0;
        if !(self.accepts() && is_near && self.bypasses.has_room() && has_room) {
            ctx.stats.early_dropped += 1;
            return;
        }
        if let Some(place) = place {
            let mark = Mark::new(place, after);
            match self.bypasses.piece(request.number, mark, place.index, &request.bytes) {
                Some(whole) => request.bytes = whole,
                None => return,
            }
        }
        if let Some(after) = request.after {
            self.order.note(after);
        }
        self.bypasses.wait(request);
        self.advance(ctx);
    }

    /// Handles a session end: the client says that `seq` is its last update.
    pub(super) fn end(&mut self, seq: u32, ctx: &mut Context) {
        if self.is_behind() {
            return self.refuse_behind(seq, ctx);
        }
        let last = self.order.next().wrapping_sub(1);
        let is_behind = seq != last && seq < self.order.next();
        if is_behind || seq >= self.limit(ctx) || !self.accepts() {
            return;
        }
        self.end = Some(seq);
        if seq != last {
            self.order.note(seq);
        }
        self.advance(ctx);
    }

    /// Runs the timers that are due.
    pub(super) fn handle_timeout(&mut self, ctx: &mut Context) {
        self.watch_silence(ctx);
        self.retry.take_if(|at| *at <= ctx.now);
        if self.gap.fires(ctx.now, ctx.config.retransmit_max) {
            self.ask_for_missing(ctx);
        }
        if self.recover.fires(ctx.now, ctx.config.recover_max) {
            if self.is_behind() {
                return self.refuse_behind(self.row.update, ctx);
            }
            ctx.stats.recovers += 1;
            let body = Body::Recover { incarnation: ctx.incarnation };
            ctx.send(self.address, self.row.key.session, self.row.update, body);
        }
    }

    fn ask_for_missing(&mut self, ctx: &mut Context) {
        if !self.order.is_missing(self.limit(ctx)) {
            return self.gap.stop();
        }
        if self.gap.pause() >= ctx.config.retransmit_max {
            self.report_missing(self.order.next(), ctx);
        }
        let runs = self.order.missing(self.limit(ctx));
        let (to, session) = (self.address, self.row.key.session);
        match self.numbering {
            Numbering::Apart => {
                for (first, count) in runs {
                    ctx.stats.retransmit_requests += 1;
                    ctx.send(to, session, first, Body::Retransmit { count });
                }
            }
            // Each number is requested separately. A device that has it answers, and does not pass the request on to
            // a device that would report its absence.
            Numbering::Together => {
                let numbers = runs.into_iter().flat_map(|(first, count)| (first..).take(count as usize));
                let newest = self.newest_waiting();
                for seq in numbers.take_while(|seq| Some(*seq) < newest).take(ASKED_MAX) {
                    ctx.stats.retransmit_requests += 1;
                    ctx.send_bytes(to, Header::new(kind::RECOVER, session, seq).to_bytes().to_vec());
                }
            }
        }
    }

    /// The highest number that waits. The client has an answer to every lower number.
    fn newest_waiting(&self) -> Option<u32> {
        self.order.newest().max(self.bypasses.newest())
    }

    /// Handles the report that no log has the number. The number does not belong to an acknowledged update, and the
    /// client has sent later requests. So it was a bypass that a read cache or an earlier incarnation has answered.
    /// True if the session progresses.
    pub(super) fn absent(&mut self, seq: u32, ctx: &mut Context) -> bool {
        let is_next = seq == self.order.next() && Some(seq) < self.newest_waiting();
        let helps = self.numbering == Numbering::Together && is_next && self.accepts();
        if helps {
            self.order.skip_to(seq + 1);
            self.advance(ctx);
        }
        helps
    }

    /// Whether a first packet that arrives now begins another session. No copy of this session's first packet is in
    /// the network for so long, and devices mark packets that they send from their logs.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.numbering == Numbering::Together
            && self.queue.is_empty()
            && now.since(self.known_since) >= RENEW_AFTER
    }

    /// When the last packet of this session arrived, if it is a foreign session without work.
    pub(super) fn foreign_since(&self) -> Option<Instant> {
        (self.numbering == Numbering::Together && self.queue.is_empty()).then_some(self.last_packet)
    }

    pub(super) fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Whether [`Self::hand_out`] returns work.
    pub(super) fn has_work(&self) -> bool {
        self.void.is_empty() && !self.blocked && self.retry.is_none() && self.handed < self.queue.len()
    }

    /// The next piece of work. The server fills in the floor.
    pub(super) fn hand_out(&mut self, ctx: &mut Context) -> Option<Work> {
        if !self.has_work() {
            return None;
        }
        let item = &mut self.queue[self.handed];
        self.queued_bytes -= item.task.bytes();
        item.ticket = ctx.ticket();
        let ticket = Ticket { key: self.row.key, number: item.ticket };
        let work = match &mut item.task {
            Task::Begin { evicted } => {
                // The old row of this key is replaced, and must not be deleted.
                let others = evicted.iter().map(|row| row.key).filter(|key| *key != self.row.key);
                let evicted = others.collect();
                Work::Row { ticket, row: self.planned, evicted, floor: 0 }
            }
            Task::Update { request, last } => {
                self.planned.update = *last;
                Work::Update { ticket, request: self.numbering.take_request(request), row: self.planned }
            }
            Task::Bypass { request, lost, .. } => {
                self.blocked = true;
                let row = match self.numbering {
                    Numbering::Apart => {
                        SessionRow { bypass: request.number.max(self.planned.bypass), ..self.planned }
                    }
                    Numbering::Together => {
                        self.planned.update = request.seq;
                        self.planned
                    }
                };
                Work::Bypass {
                    ticket,
                    request: self.numbering.take_request(&mut request.bytes),
                    row,
                    lost: *lost,
                }
            }
            Task::End { .. } => {
                ctx.touched = ctx.touched.saturating_add(1);
                let bypass = self.bypasses.last().max(self.planned.bypass);
                self.planned = SessionRow { bypass, ended: true, touched: ctx.touched, ..self.planned };
                Work::Row { ticket, row: self.planned, evicted: Vec::new(), floor: 0 }
            }
        };
        item.row = self.planned;
        self.handed += 1;
        Some(work)
    }

    fn find(&mut self, ticket: u64) -> Option<&mut Item> {
        let at = self.queue.range(..self.handed).position(|item| item.ticket == ticket)?;
        self.queue.get_mut(at)
    }

    /// Handles the report that an update or a row is committed.
    pub(super) fn committed(&mut self, ticket: u64, ctx: &mut Context) {
        self.void.remove(&ticket);
        if let Some(item) = self.find(ticket).filter(|item| !matches!(item.task, Task::Bypass { .. })) {
            item.done = true;
            self.settle(ctx);
        }
    }

    /// Handles the response to a bypass.
    pub(super) fn respond(&mut self, ticket: u64, answer: Reserved, changed: bool, ctx: &mut Context) {
        self.void.remove(&ticket);
        let (long, is_apart) = (answer.long_bytes(ctx), self.numbering == Numbering::Apart);
        let Some(item) = self.find(ticket) else { return };
        let Task::Bypass { request, lost, response, changed: has_changed } = &mut item.task else { return };
        (*response, *has_changed) = (answer, changed);
        if changed && !*lost && is_apart {
            item.row.bypass = item.row.bypass.max(request.number);
        }
        item.done = true;
        self.planned = item.row;
        self.blocked = false;
        self.queued_long = long;
        self.settle(ctx);
    }

    /// Informs the client of all work at the front of the queue that is done.
    fn settle(&mut self, ctx: &mut Context) {
        while self.queue.front().is_some_and(|item| item.done) {
            let item = self.queue.pop_front().expect("the front is done");
            self.handed -= 1;
            self.row = item.row;
            let (to, session) = (self.address, self.row.key.session);
            match item.task {
                Task::Begin { .. } => {
                    self.begun = true;
                    if self.numbering == Numbering::Apart {
                        self.send_started(0, ctx);
                    }
                }
                Task::Update { last, .. } => {
                    ctx.stats.applied += 1;
                    self.confirm(last, ctx);
                }
                Task::Bypass { request, response, changed, .. } => {
                    ctx.stats.bypasses += 1;
                    self.queued_long = 0;
                    self.answered(&request, response, changed, ctx);
                }
                Task::End { by_silence } => {
                    if by_silence {
                        ctx.report_silent(&self.row);
                    }
                    // Devices remove their entries only after a server-ACK.
                    ctx.stats.server_acks += 1;
                    ctx.send(to, session, self.row.update, Body::ServerAck);
                    ctx.send(to, session, self.row.update, Body::SessionEnded);
                    self.life = Life::Ended;
                }
            }
        }
        self.watch_gap(false, ctx);
    }

    /// Acknowledges an update that is committed.
    fn confirm(&mut self, seq: u32, ctx: &mut Context) {
        match self.numbering {
            Numbering::Apart => self.ack_due = true,
            Numbering::Together => {
                ctx.stats.server_acks += 1;
                ctx.send(self.address, self.row.key.session, seq, Body::Response(b""));
            }
        }
    }

    /// Sends a response to a bypass, or the beginning of a long one.
    fn send_response(&self, seq: u32, response: &Response, ctx: &mut Context) {
        let (to, session) = (self.address, self.row.key.session);
        match self.numbering {
            Numbering::Apart => ctx.send_response(to, session, seq, response),
            Numbering::Together => ctx.send(to, session, seq, Body::Response(&response.bytes)),
        }
    }

    /// Answers a bypass. It and all work before it are done.
    fn answered(&mut self, request: &Request, response: Reserved, changed: bool, ctx: &mut Context) {
        let bytes = response.long_bytes(ctx);
        let Reserved::Kept(response) = response else {
            return self.bypasses.postpone(request.number, changed);
        };
        self.send_response(request.seq, &response, ctx);
        self.bypasses.keep(request.number, response, &ctx.config);
        if bytes > 0 {
            self.bypasses.note_long(Long { number: request.number, bytes, changed, asked: ctx.now });
        }
    }

    /// Tells the client that the session has begun or continues.
    pub(super) fn send_started(&self, seq: u32, ctx: &mut Context) {
        let body = Body::SessionStarted {
            nonce: self.row.nonce,
            first_update: self.uncommitted(),
            first_bypass: self.row.bypass.saturating_add(1),
            incarnation: ctx.incarnation,
            lease: self.row.lease,
        };
        ctx.send(self.address, self.row.key.session, seq, body);
    }

    /// Takes the number of the server-ACK that is to be sent.
    pub(super) fn take_ack(&mut self) -> Option<u32> {
        std::mem::take(&mut self.ack_due).then_some(self.row.update)
    }

    /// Handles the report that nothing of a piece of work was applied. The client and the devices still have all
    /// that is not committed. So the work is dropped with everything behind it, and its packets are requested again.
    pub(super) fn failed(&mut self, ticket: u64, ctx: &mut Context) {
        self.void.remove(&ticket);
        let Some(at) = self.queue.range(..self.handed).position(|item| item.ticket == ticket) else { return };
        ctx.stats.failed += 1;
        if self.numbering == Numbering::Together {
            return self.keep_failed(at, ctx);
        }
        let behind = self.queue.split_off(at);
        for item in behind.iter().take(self.handed - at).filter(|item| item.ticket != ticket && !item.done) {
            self.void.insert(item.ticket);
        }
        if let Some(Item { task: Task::Begin { evicted }, .. }) = behind.into_iter().next() {
            self.life = Life::NeverBegan(evicted);
        }
        // No work behind it remains in the queue.
        (self.handed, self.queued_bytes) = (at, 0);
        self.queued_long = self.queue.iter().map(|item| item.long_bytes(ctx)).sum();
        self.go_back(ctx);
    }

    /// Puts the work from `at` on back into the queue, to be handed out again. Foreign clients do not send requests
    /// again.
    fn keep_failed(&mut self, at: usize, ctx: &Context) {
        for (place, item) in self.queue.range_mut(at..self.handed).enumerate() {
            if place > 0 && !item.done {
                self.void.insert(item.ticket);
            }
            item.done = false;
            self.queued_bytes += item.task.bytes();
        }
        (self.handed, self.blocked) = (at, false);
        self.planned = at.checked_sub(1).map_or(self.row, |before| self.queue[before].row);
        self.retry = Some(ctx.now + ctx.config.retry_after);
    }

    /// Resets the session so that everything that was dropped from the queue is expected again.
    fn go_back(&mut self, ctx: &Context) {
        (self.blocked, self.end, self.ending) = (false, None, false);
        self.planned = self.queue.back().map_or(self.row, |item| item.row);
        self.order.rewind(self.planned.update.wrapping_add(1));
        let bypasses = self.queue.iter().filter_map(|item| match &item.task {
            Task::Bypass { request, .. } => Some(request.number),
            _ => None,
        });
        self.bypasses.keep_only(bypasses);
        if self.order.is_missing(self.limit(ctx)) {
            self.gap = Pause::start(ctx.now + ctx.config.retry_after, ctx.config.retry_after);
        }
    }
}
