//! A worker: its connections, its transport and its writer, in one loop.
//!
//! A *round* of the loop receives, executes, commits, and sends. On byte-addressable media the commit is a fence before
//! the round's replies are sent. On files it is device I/O: one commit is in flight at a time, while the next rounds
//! gather the next batch. Replies wait in their connection's outbox for the tickets that they depend on; other replies
//! do not wait.
//!
//! A round is bounded: short requests are executed first, long pipelines for a limited time.

mod loading;
mod paged;
mod places;
mod relief;
mod state;
mod strangers;
mod subscribers;
mod tailing;
mod told;
mod unproven;

pub(crate) use state::Worker;

use crate::admission::{self, Held};
use crate::chain::{self, ChainSession};
use crate::clock::Now;
use crate::config::Config;
use crate::conn::{Conn, Core, Park, Speaks};
use crate::counters::{COMMIT_BOUNDS_US, count};
use crate::http::HttpSession;
use crate::landing::{Aside, Landing};
use crate::loads::{Again, Loads, PAUSE};
use crate::lookahead::Lookahead;
use crate::phase::{Linger, Phase, Sending};
use crate::resp::Session;
use crate::shared::Shared;
use landfall_heap::{Heap, HeapError, Ticket, Until};
use landfall_media::{CommitMode, Extent, MediaError, Site};
use landfall_sockets::{ConnId, Event, Transport, TransportError, Wait};
use paged::Paged;
use state::{Commit, TICK};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Tag of the RESP listener.
pub(crate) const LISTENER_RESP: u32 = 0;
/// Tag of the HTTP listener.
pub(crate) const LISTENER_HTTP: u32 = 1;
/// Tag of the listener for the node before this one in a chain.
pub(crate) const LISTENER_CHAIN: u32 = 2;

/// How long a round lingers for more requests if several clients are active and a commit is a fence.
const LINGER: Duration = Duration::from_micros(80);
/// Within a round, connections that have sent more than this wait for those that have sent less, bytes.
const SHORT_BYTES: usize = 4 << 10;
/// How long a round executes long pipelines, at least one connection's turn, before it polls for new requests: about
/// the time that a GET waits for pipelines of other clients.
const ROUND_MAX: Duration = Duration::from_micros(100);
/// Length of the epochs in which active connections are counted, nanoseconds.
const EPOCH_MS: u64 = 2;
/// An unfinished request that is this old is moved out of landing space, milliseconds.
const ASIDE_AFTER_MS: u64 = 500;
/// Received bytes at which a connection is paused while its commands wait.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// How long a stopping worker waits until replies are sent.
const DRAIN_MAX: Duration = Duration::from_secs(5);

impl Worker {
    /// Serves until the server stops.
    ///
    /// # Errors
    /// Only an error of the transport itself.
    pub(crate) fn run(mut self) -> Result<(), TransportError> {
        Loads::reads_in_rounds();
        while !self.shared.is_stopping() {
            self.round()?;
        }
        self.drain()
    }

    /// Stops: complete requests are answered, unfinished ones are dropped.
    fn drain(&mut self) -> Result<(), TransportError> {
        let until = Instant::now() + DRAIN_MAX;
        for conn in self.conns.values_mut() {
            conn.phase.advance(Phase::Closing);
            conn.linger = None;
        }
        let all: Vec<ConnId> = self.conns.keys().copied().collect();
        all.into_iter().for_each(|id| self.touch(id));
        while !(self.conns.is_empty() && self.commit.is_none()) && Instant::now() < until {
            self.round()?;
        }
        if self.commit.is_none() && self.writer.has_work() {
            // From now on no node is waited for without end.
            self.shared.chain.iter().for_each(|node| node.stop());
            self.commit_in_line();
        }
        for conn in self.conns.values().filter(|conn| conn.is_cut_short() && !conn.phase.is_closed()) {
            self.transport.reset(&mut self.landing, conn.id);
        }
        self.transport.shut_down(&mut self.landing)
    }

    fn round(&mut self) -> Result<(), TransportError> {
        let mut events = std::mem::take(&mut self.events);
        self.poll(&mut events)?;
        self.now = Now::of(&self.shared);
        self.round += 1;
        self.roll_epoch();
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        if self.tails.is_due(self.now.steady_ms) {
            self.resume_tails();
        }
        self.resume_loaded();
        self.execute_touched();
        self.start_loads();
        self.commit_plain_writes();
        self.begin_commit();
        self.advance_files();
        self.send_touched();
        if Instant::now() >= self.next_tick {
            self.tick();
        }
        Ok(())
    }

    /// Waits for events. Busy-polling is for those who wait for one answer: who gathers a batch has something to wait for.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), TransportError> {
        let wait = self.wait();
        let Self { transport, landing, spin, .. } = self;
        let (Some(spin), Some(most), 1) = (spin, wait.timeout, wait.events_min) else {
            return transport.poll(landing, wait, events);
        };
        let poll = |time| {
            transport.poll(landing, Wait { timeout: Some(time), ..wait }, events)?;
            Ok(!events.is_empty())
        };
        spin.until(most, poll, |is_something| *is_something).map(drop)
    }

    /// How to wait. The worker does not wait while commands remain. It lingers if many clients are active, so that
    /// their requests are executed, committed and answered together. If a commit waits for a device, requests
    /// accumulate meanwhile anyway, and lingering would only delay the end of the commit, and readers.
    fn wait(&self) -> Wait {
        let is_idle = self.touched.is_empty() && self.long.is_empty();
        let timeout = match self.paged.as_ref().map_or(Again::OnEvent, Paged::again) {
            Again::OnEvent if is_idle => self.tails.timeout(TICK, self.now.steady_ms),
            Again::Soon if is_idle => self.tails.timeout(PAUSE, self.now.steady_ms),
            _ => Duration::ZERO,
        };
        let active = self.active_before.max(self.active).min(self.conns.len());
        let lingers = active > 2 && self.heap.media().commit_mode() == CommitMode::Immediate;
        Wait {
            timeout: Some(timeout),
            events_min: if lingers { u32::try_from(active / 2).unwrap_or(u32::MAX) } else { 1 },
            linger: if lingers { LINGER } else { Duration::ZERO },
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, listener, peer } => self.accept(conn, listener, peer),
            Event::Received { conn, extent, arrival_ns } => self.receive(conn, extent, arrival_ns),
            Event::Sent { conn, buffers } => self.sent(conn, buffers),
            Event::Eof { conn } => self.mark_eof(conn),
            Event::Closed { conn, error } => self.forget(conn, error.as_ref()),
            Event::WrittenBack { id, outcome } => self.written_back(id, outcome),
            Event::Woken => {
                self.finish_if_complete();
                self.paged.iter_mut().for_each(Paged::note_event);
                self.resume_waiting();
                self.resume_tails();
            }
            Event::Starved => {
                self.starved = true;
                self.make_landing_room();
            }
        }
    }

    fn accept(&mut self, id: ConnId, listener: u32, peer: Option<SocketAddr>) {
        let shared = Arc::clone(&self.shared);
        count(&shared.counters.connections, 1);
        // The node before is no client, and comes in however many clients there are.
        let is_client = listener != LISTENER_CHAIN;
        let clients = shared.counters.clients.fetch_add(u64::from(is_client), Ordering::Relaxed) + 1;
        let speaks = match listener {
            LISTENER_HTTP => speaks_http(&shared),
            LISTENER_CHAIN => speaks_chain(&shared),
            _ => speaks_resp(&shared, id, self.id, peer),
        };
        let mut conn = Box::new(Conn::new(id, speaks, self.transport.lands_apart(), self.now.steady_ms));
        // Clients that connect while the server stops do not delay it.
        if shared.is_stopping() {
            conn.phase.advance(Phase::Closing);
        }
        if is_client && !self.find_place(id, clients > shared.config.max_clients as u64) {
            count(&shared.counters.rejected_connections, 1);
            let mut reply = conn.outbox.begin(&self.heap, self.round);
            if let Speaks::Resp { session, .. } = &conn.speaks {
                landfall_resp::Writer::new(reply.bytes(), session.protocol())
                    .error("ERR max number of clients reached");
            }
            reply.finish();
            conn.phase.advance(Phase::Closing);
        }
        self.conns.insert(id, conn);
        self.touch(id);
        if !is_client {
            self.add_stranger(id);
        }
    }

    /// Somebody has connected to the address of this node of a chain.
    fn add_stranger(&mut self, id: ConnId) {
        let is_stranger = |id: &ConnId| self.conns.get(id).is_some_and(|conn| conn.speaks.is_stranger());
        let Some(oldest) = self.strangers.add(id, is_stranger) else { return };
        if let Some(conn) = self.conns.get_mut(&oldest) {
            conn.phase.advance(Phase::Closing);
        }
        self.touch(oldest);
    }

    fn receive(&mut self, id: ConnId, extent: Extent, arrival_ns: u64) {
        count(&self.shared.counters.input_bytes, u64::from(extent.len()));
        let now_ms = self.now.steady_ms;
        let Some(conn) = self.conns.get_mut(&id).and_then(|conn| conn.takes_more(now_ms, extent.len()))
        else {
            self.heap.runs().release(extent);
            // A client that is refused may have sent enough.
            self.regulate(id);
            return;
        };
        conn.inbox.push(&self.heap, extent);
        conn.arriving.add(u64::from(extent.len()));
        conn.arrival_ns = arrival_ns;
        conn.active_ms = now_ms;
        if conn.epoch != self.epoch {
            conn.epoch = self.epoch;
            self.active += 1;
        }
        // The connection may wait for its turn for several rounds, in which its input must stay bounded.
        let is_behind = conn.listed.touched;
        self.touch(id);
        if is_behind {
            self.regulate(id);
        }
    }

    fn sent(&mut self, id: ConnId, buffers: landfall_sockets::Outgoing) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let now_ms = self.now.steady_ms;
        count(&self.shared.counters.output_bytes, conn.sent(buffers, now_ms));
        conn.leaving.end();
        conn.active_ms = now_ms;
        self.touch(id);
    }

    fn mark_eof(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.phase.advance(Phase::HalfClosed);
            conn.linger = None;
            self.touch(id);
        }
    }

    fn forget(&mut self, id: ConnId, error: Option<&std::io::Error>) {
        let Some(mut conn) = self.conns.remove(&id) else { return };
        if let Some(error) = error {
            tracing::debug!(conn = id.0, %error, "connection lost");
        }
        tell_unanswered(&conn);
        conn.end(&self.shared);
        self.paged.iter().for_each(|paged| paged.loads.note_reply(conn.reply_bytes, 0));
        admission::note(&self.shared.counters, &self.heap, conn.held, Held::default());
        let is_client = !matches!(conn.speaks, Speaks::Chain { .. });
        self.shared.counters.clients.fetch_sub(u64::from(is_client), Ordering::Relaxed);
    }

    /// Executes what the touched connections have sent: short input first, then as much as a round may.
    fn execute_touched(&mut self) {
        let (mut touched, mut long) = (std::mem::take(&mut self.touched), std::mem::take(&mut self.long));
        let (mut core, lookahead, conns) = self.core_and_conns();
        touched.retain(|id| match conns.get_mut(id) {
            Some(conn) if conn.inbox.len() > SHORT_BYTES => {
                long.push_back(*id);
                false
            }
            Some(conn) => {
                execute(conn, &mut core, lookahead);
                true
            }
            None => false,
        });
        let until = (!long.is_empty()).then(|| Instant::now() + ROUND_MAX);
        let heap = core.shared.engine.heap();
        let has_space = || heap.runs().free_count() >= heap.clean_below();
        while let Some(id) = long.pop_front() {
            if let Some(conn) = conns.get_mut(&id) {
                execute(conn, &mut core, lookahead);
                touched.push(id);
            }
            // If space is short, landed requests are executed first, because until then they take the space of stored
            // data.
            if !long.is_empty() && has_space() && until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        (self.touched, self.long) = (touched, long);
        self.relieve();
    }

    /// Sends replies that may be sent, pauses and resumes receiving, and closes connections that are done. Connections
    /// with remaining commands stay on the list.
    fn send_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|id| self.send(*id));
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    /// True if the connection must be served again at once.
    fn send(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let heap = &self.heap;
        if conn.held.is_authenticated && !std::mem::replace(&mut conn.receiving.is_trusted, true) {
            self.transport.trust(id);
        }
        // A transport that has taken a part at once reports no end of it: the next part follows here.
        let mut held = None;
        while conn.sending.is_none() && !conn.phase.is_closed() {
            match conn.outbox.take_ready(|ticket| heap.is_durable(ticket)) {
                Ok(Some(out)) => {
                    conn.sending = Some(Sending::new(out.len()));
                    if let Some(buffers) = self.transport.send(&mut self.landing, id, out) {
                        count(&self.shared.counters.output_bytes, conn.sent(buffers, self.now.steady_ms));
                    }
                }
                Ok(None) => break,
                Err(ticket) => {
                    held = Some(ticket);
                    break;
                }
            }
        }
        self.wait_for_commit(id, held);
        self.note_reply(id);
        self.regulate(id)
    }

    /// Adds a connection whose command or reply needs a commit to the waiting list, or ends its wait if that commit has
    /// completed. `held` is what its first reply waits for, if nothing is being sent before it.
    fn wait_for_commit(&mut self, id: ConnId, held: Option<Ticket>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Some(Park::Log(tail)) = conn.park
            && !std::mem::replace(&mut conn.listed.tailing, true)
        {
            self.tails.add(id, tail.until_ms);
        }
        let over = match conn.park {
            Some(Park::On(until)) => {
                if matches!(until, Until::Load(_)) {
                    paged::ask_for_load_wake(&self.shared, self.id);
                }
                self.heap.media().closed().is_some() || is_over(until, &self.heap, &self.commit)
            }
            None | Some(Park::Log(_)) => false,
        };
        if over {
            conn.park = None;
            conn.listed.touched = true;
        }
        let ticket = match conn.park {
            Some(Park::On(Until::Ticket(ticket))) => Some(ticket),
            _ => held,
        };
        let waits = match conn.park {
            Some(Park::On(Until::Load(load))) => {
                self.paged.iter_mut().for_each(|paged| paged.wait(load, id));
                false
            }
            Some(Park::On(_)) => true,
            None | Some(Park::Log(_)) => false,
        };
        if ticket.is_none() && !waits {
            return;
        }
        if !std::mem::replace(&mut conn.listed.waiting, true) {
            self.waiting.push(id);
        }
        if conn.park == Some(Park::On(Until::Space)) {
            self.shared.wake_maintenance();
        }
        if let Some(ticket) = ticket {
            self.request_wake(ticket);
        }
    }

    fn regulate(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let limit = self.shared.output_max();
        let waits = conn.park.is_some() || conn.listed.touched;
        // What is discarded lands before it is.
        let has_space = || self.heap.runs().free_count() >= self.heap.clean_below();
        let is_lingering = |linger: Linger| !linger.is_over(self.now.steady_ms) && has_space();
        let lingers = conn.linger.is_some_and(is_lingering);
        // What a refused client still sends takes no room.
        let is_long =
            || conn.output_len() >= limit || (waits && conn.inbox.len() >= limit.min(WAITING_BYTES_MAX));
        let full = !lingers && is_long();
        if full != conn.receiving.is_paused && !conn.phase.is_closed() {
            conn.receiving.is_paused = full;
            if full { self.transport.pause(id) } else { self.transport.resume(&mut self.landing, id) }
        }
        let idle = conn.sending.is_none() && conn.outbox.is_empty();
        // A client that has ended its stream does not wait for entries of a log.
        let parked = !matches!(conn.park, None | Some(Park::Log(_)));
        let ends =
            conn.phase.is_closing() || (conn.phase == Phase::HalfClosed && !parked && !conn.listed.touched);
        if ends && idle && !lingers && !conn.phase.is_closed() {
            conn.phase.advance(Phase::Closed);
            conn.inbox.clear(&self.heap);
            let is_cut_short = conn.is_cut_short();
            let (transport, landing) = (&mut self.transport, &mut self.landing);
            if is_cut_short { transport.reset(landing, id) } else { transport.close(landing, id) }
        }
        conn.listed.touched
    }

    /// Commits what a substitute of the store has taken; the writer does not know of it. For the store this does
    /// nothing.
    fn commit_plain_writes(&self) {
        if let Err(error) = self.shared.writes.commit(self.id, &self.heap) {
            tracing::error!(%error, "a commit of what stands in for the store failed: stopping");
            self.shared.stop();
        }
    }

    /// Ends the round's batch: by a fence at once, or by starting its writes.
    fn begin_commit(&mut self) {
        if self.commit.is_some() || !self.writer.has_work() {
            return;
        }
        let media = Arc::clone(self.heap.media());
        let is_immediate = media.commit_mode() == CommitMode::Immediate;
        if is_immediate && self.chain.is_none() {
            return self.commit_in_line();
        }
        self.seq_begun = self.heap.next_seq();
        let Some(mut dirty) = self.writer.begin_commit() else { return };
        let begun = Instant::now();
        if is_immediate {
            let outcome = media.fence(&mut dirty, Site::Commit);
            self.commit = Some(Commit { id: self.round, begun, _dirty: dirty, outcome: None });
            return self.durable_here(outcome);
        }
        let batch = media.file_writes(&dirty);
        count(&self.shared.counters.written_bytes, batch.bytes());
        let id = self.round;
        self.commit = Some(Commit { id, begun, _dirty: dirty, outcome: None });
        if batch.is_empty() {
            self.written_back(id, Ok(()));
        } else if self.conns.len() <= 1 {
            // No other connection needs service meanwhile, so waiting here is the fastest way.
            let outcome = self.transport.write_back_now(&batch);
            self.written_back(id, outcome);
        } else {
            self.transport.write_back(id, batch);
        }
    }

    /// Goes on with making durable what this worker has received of files.
    fn advance_files(&mut self) {
        if self.shared.files.committer() != Some(self.id) {
            return;
        }
        let Some(answers) = self.chain.as_ref().and_then(|chain| chain.answers.as_ref()) else { return };
        if chain::advance_files(&self.shared, self.id, answers) {
            self.resume_waiting();
        }
    }

    fn commit_in_line(&mut self) {
        if !self.writer.has_work() {
            return;
        }
        let begun = Instant::now();
        let outcome = self.writer.commit_now();
        self.finish_commit(begun, outcome);
    }

    fn written_back(&mut self, id: u64, outcome: std::io::Result<()>) {
        if self.commit.as_ref().is_some_and(|commit| commit.id == id && commit.outcome.is_none()) {
            let outcome = self.heap.media().finish_writes(outcome);
            self.durable_here(outcome);
        }
    }

    /// The batch under way is durable in this region, or never will be.
    fn durable_here(&mut self, outcome: Result<(), MediaError>) {
        if outcome.is_ok() {
            self.writer.send_on();
        }
        if let Some(commit) = &mut self.commit {
            commit.outcome = Some(outcome);
        }
        self.finish_if_complete();
    }

    /// Completes the batch under way, if it is durable here and behind.
    fn finish_if_complete(&mut self) {
        let writer = &self.writer;
        let is_complete = |commit: &mut Commit| match &commit.outcome {
            Some(Ok(())) => writer.is_sent_on(),
            Some(Err(_)) => true,
            None => false,
        };
        let Some(Commit { begun, outcome: Some(outcome), .. }) = self.commit.take_if(is_complete) else {
            return;
        };
        let outcome = self.writer.finish_commit(outcome);
        if outcome.is_ok() {
            self.note_complete(self.seq_begun);
        }
        self.finish_commit(begun, outcome);
    }

    /// Everything that this worker has appended with a lower seq is at the node behind.
    fn note_complete(&self, seq: u64) {
        self.chain.iter().for_each(|chain| chain.link.note_complete(seq));
    }

    fn finish_commit(&mut self, begun: Instant, outcome: Result<(), HeapError>) {
        self.count_commit(begun.elapsed());
        if let Err(error) = outcome {
            tracing::error!(%error, "a commit failed: the region is closed for writing");
            self.drop_unanswerable();
        }
        self.wake_waiters();
        self.wake_tails();
        self.resume_waiting();
    }

    fn count_commit(&self, took: Duration) {
        let counters = &self.shared.counters;
        let micros = took.as_micros() as u64;
        let bucket =
            COMMIT_BOUNDS_US.iter().position(|bound| micros <= *bound).unwrap_or(COMMIT_BOUNDS_US.len());
        count(&counters.commits, 1);
        count(&counters.commit_ns, took.as_nanos() as u64);
        count(&counters.commit_buckets[bucket], 1);
    }

    /// Drops replies that wait for a failed commit, because they can never be sent. Their clients learn from the end of
    /// the connection that the outcome is unknown.
    fn drop_unanswerable(&mut self) {
        for conn in self.conns.values_mut() {
            if conn.outbox.waits_for(|ticket| self.heap.is_durable(ticket)).is_some() {
                conn.outbox.clear(&self.heap);
                conn.phase.advance(Phase::Closing);
            }
        }
    }

    /// Wakes workers whose replies wait for this worker's commits.
    fn wake_waiters(&self) {
        let Some(workers) = self.shared.workers.get() else { return };
        if workers.len() == 1 {
            return;
        }
        let mut waiters = workers[self.id].waiters.swap(0, Ordering::AcqRel);
        while waiters != 0 {
            let worker = waiters.trailing_zeros() as usize;
            waiters &= waiters - 1;
            workers[worker].waker.wake();
        }
    }

    /// Handles the completion of a commit: replies may be sent, and waiting commands may be executed.
    fn resume_waiting(&mut self) {
        for id in std::mem::take(&mut self.waiting) {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.listed.waiting = false;
                // A command that waits for space is tried again: only the command can tell whether the space is enough.
                let waits = |until| match until {
                    Until::Ticket(ticket) => !self.heap.is_durable(ticket),
                    Until::Load(load) => !self.heap.is_loaded(load),
                    Until::Commit | Until::Space => false,
                };
                if let Some(Park::On(until)) = conn.park
                    && !waits(until)
                {
                    conn.park = None;
                }
            }
            self.touch(id);
        }
    }

    /// Asks another worker to wake this one at its next commit, if `ticket` is one of that worker.
    fn request_wake(&self, ticket: Ticket) {
        let Some(workers) = self.shared.workers.get() else { return };
        let owner = usize::from(ticket.writer());
        if owner != self.id
            && let Some(handle) = workers.get(owner)
        {
            handle.waiters.fetch_or(1 << self.id, Ordering::AcqRel);
            if self.heap.is_durable(ticket) {
                workers[self.id].waker.wake();
            }
        }
    }

    fn tick(&mut self) {
        self.next_tick = Instant::now() + TICK;
        self.finish_if_complete();
        if self.commit.is_none() && !self.writer.has_work() {
            self.note_complete(self.heap.next_seq());
        }
        if self.heap.media().closed().is_some() {
            self.drop_unanswerable();
        }
        self.resume_waiting();
        self.tick_loads();
        if self.starved {
            self.make_landing_room();
        }
        *self.shared.transport_counters[self.id].lock() = self.transport.counters();
        self.relieve();
        self.tell_subscribers();
        self.send_readers_away();
        let now_ms = self.now.steady_ms;
        let config = &self.shared.config;
        let (mut ends, mut lingered) = (Vec::new(), Vec::new());
        for conn in self.conns.values_mut() {
            lingered.extend(conn.linger.map(|_| conn.id));
            note_sent(conn, &*self.transport, now_ms);
            set_aside(conn, &mut self.landing, now_ms);
            if is_overdue(conn, config, now_ms) || was_killed(conn) {
                ends.push(conn.id);
            }
        }
        for id in ends {
            self.cut_off(id);
        }
        for id in lingered {
            self.regulate(id);
        }
        self.landing.tidy();
    }

    /// Counts active connections, one epoch at a time.
    fn roll_epoch(&mut self) {
        let epoch = self.now.steady_ms / EPOCH_MS;
        if epoch != self.epoch {
            self.active_before = if epoch == self.epoch + 1 { self.active } else { 0 };
            self.active = 0;
            self.epoch = epoch;
        }
    }
}

/// Executes what a connection has sent.
fn execute(conn: &mut Conn, core: &mut Core<'_>, lookahead: &mut Lookahead) {
    conn.listed.touched = conn.execute(core, lookahead);
    let holds = conn.holds();
    admission::note(&core.shared.counters, core.shared.engine.heap(), conn.held, holds);
    conn.held = holds;
}

/// True if the event that a command waits for has happened.
fn is_over(until: Until, heap: &Heap, commit: &Option<Commit>) -> bool {
    match until {
        Until::Ticket(ticket) => heap.is_durable(ticket),
        Until::Commit => commit.is_none(),
        Until::Space => false,
        Until::Load(load) => heap.is_loaded(load),
    }
}

fn speaks_resp(shared: &Shared, id: ConnId, worker: usize, peer: Option<SocketAddr>) -> Speaks {
    let limits =
        landfall_resp::Limits { bulk_bytes_max: shared.config.max_request.0 as usize, ..Default::default() };
    let session = Session::new(shared, id, worker, peer);
    let mut parser = landfall_resp::Parser::new(limits);
    parser.set_authenticated(session.is_authenticated());
    Speaks::Resp { parser, session }
}

fn speaks_chain(shared: &Shared) -> Speaks {
    let connection = shared.next_client.fetch_add(1, Ordering::Relaxed);
    Speaks::Chain { parser: landfall_chain::Parser::default(), session: ChainSession::new(connection) }
}

fn speaks_http(shared: &Shared) -> Speaks {
    let limits = landfall_http::Limits {
        head_bytes_max: shared.config.max_header.0 as usize,
        body_bytes_max: shared.config.max_request.0 as usize,
        ..Default::default()
    };
    Speaks::Http { parser: landfall_http::Parser::new(limits), session: HttpSession::new(shared) }
}

/// Records how much of a reply was sent.
fn note_sent(conn: &mut Conn, transport: &dyn Transport, now_ms: u64) {
    let Some(sending) = &mut conn.sending else { return };
    if !conn.leaving.is_under_way() {
        conn.leaving.begin(now_ms);
    }
    let left = sending.progress(transport.unsent(conn.id));
    if left > 0 {
        conn.leaving.add(left as u64);
        conn.active_ms = now_ms;
    }
}

/// Moves an old unfinished request out of landing space: all of it, or, while it is still arriving, only the smallest
/// pieces, each of which would keep a run.
fn set_aside(conn: &mut Conn, landing: &mut Landing, now_ms: u64) {
    if conn.held.bytes == 0 {
        return;
    }
    let is_idle = now_ms.saturating_sub(conn.active_ms) > ASIDE_AFTER_MS;
    let is_old = conn.arriving.age_ms(now_ms) > ASIDE_AFTER_MS;
    let moved = conn.gather(landing).and_then(|()| match (is_idle, is_old) {
        (true, _) => conn.inbox.set_aside(landing, Aside::All),
        (false, true) => conn.inbox.set_aside(landing, Aside::Smallest),
        (false, false) => Ok(()),
    });
    if let Err(error) = moved {
        tracing::error!(%error, "received bytes cannot be moved");
    }
}

/// True if the connection was idle for too long, or if a request or a reply makes no progress.
fn is_overdue(conn: &mut Conn, config: &Config, now_ms: u64) -> bool {
    if conn.arriving.is_under_way() && (conn.receiving.is_paused || conn.park.is_some()) {
        // The server itself has paused the request.
        conn.arriving.begin(now_ms);
    }
    let stuck = conn.leaving.is_stuck(now_ms, config.request_timeout)
        || (conn.inbox.len() > 0 && conn.arriving.is_stuck(now_ms, config.request_timeout));
    let idle_ms = u128::from(now_ms.saturating_sub(conn.active_ms));
    let listens = match &conn.speaks {
        Speaks::Resp { session, .. } => session.is_subscribed(),
        Speaks::Chain { .. } => true,
        Speaks::Http { .. } => false,
    };
    let may_be_idle = config.idle_timeout.is_zero() || listens;
    let idle = !may_be_idle && idle_ms > config.idle_timeout.as_millis();
    stuck || (idle && !matches!(conn.park, Some(Park::Log(_))))
}

/// Says what a message waits for that the node before in a chain does not wait for any more.
fn tell_unanswered(conn: &Conn) {
    let Speaks::Chain { session, .. } = &conn.speaks else { return };
    let (park, received, replies) = (conn.park, conn.inbox.len(), conn.outbox.len());
    let is_idle = park.is_none() && received + replies == 0;
    if let Some(stream) = session.stream().filter(|_| !is_idle) {
        tracing::warn!(
            stream,
            waits_for = ?park,
            received,
            replies,
            "the node before has ended a connection with a message that is not answered"
        );
    }
}

fn was_killed(conn: &Conn) -> bool {
    matches!(&conn.speaks, Speaks::Resp { session, .. } if session.was_killed())
}
