//! The state of a worker, and what the parts of its loop share.

use super::paged::Paged;
use super::strangers::Strangers;
use super::told::Told;
use super::unproven::Unproven;
use crate::admission::Excess;
use crate::chain::{self, Joined};
use crate::clock::Now;
use crate::conn::{Conn, Core};
use crate::counters::count;
use crate::landing::Landing;
use crate::lookahead::Lookahead;
use crate::phase::Phase;
use crate::shared::Shared;
use crate::tails::Tails;
use landfall_heap::{Heap, Writer};
use landfall_media::{Dirty, MediaError};
use landfall_sockets::{ConnId, Event, Transport};
use landfall_spin::SpinWait;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of timeout checks.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Connection ids are dense, so they are their own hashes.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(super) type Conns = HashMap<ConnId, Box<Conn>, BuildHasherDefault<IdHasher>>;

/// A commit in flight to a file.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) id: u64,
    pub(super) begun: Instant,
    /// Kept until the writes are done, because the medium may read it again.
    pub(super) _dirty: Dirty,
    /// Whether the batch is durable in this region, once that is known.
    pub(super) outcome: Option<Result<(), MediaError>>,
}

/// One worker.
pub(crate) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) heap: Arc<Heap>,
    pub(super) id: usize,
    pub(super) transport: Box<dyn Transport>,
    /// How it waits; `None`: it blocks at once.
    pub(super) spin: Option<SpinWait>,
    pub(super) landing: Landing,
    pub(super) writer: Writer,
    pub(super) lookahead: Lookahead,
    pub(super) conns: Conns,
    pub(super) events: Vec<Event>,
    /// Connections to serve in this round.
    pub(super) touched: Vec<ConnId>,
    /// Of these, the connections that have sent much and are not yet executed, in order of arrival.
    pub(super) long: VecDeque<ConnId>,
    /// Connections with replies or commands that wait for a commit.
    pub(super) waiting: Vec<ConnId>,
    pub(super) strangers: Strangers,
    pub(super) unproven: Unproven,
    pub(super) told: Told,
    /// Connections that wait for a log to grow.
    pub(super) tails: Tails,
    /// What commands wait for that has left memory; `None` where all of the region may be in memory.
    pub(super) paged: Option<Paged>,
    pub(super) commit: Option<Commit>,
    /// In a chain.
    pub(super) chain: Option<Joined>,
    /// What has been appended with a lower seq is in the batch under way, or in an earlier one.
    pub(super) seq_begun: u64,
    /// The transport has found no landing space.
    pub(super) starved: bool,
    /// What was held at the last decision about connections to close.
    pub(super) relieved: Excess,
    /// Since when: see [`Heap::ask_for_scattered`].
    pub(super) starved_since: Option<u64>,
    /// The latest return of unfinished requests that this worker has acted on: see [`Heap::asked_return`].
    pub(super) returned: u64,
    pub(super) round: u64,
    pub(super) now: Now,
    pub(super) next_tick: Instant,
    pub(super) epoch: u64,
    pub(super) active: usize,
    pub(super) active_before: usize,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, id: usize, mut transport: Box<dyn Transport>) -> Self {
        let heap = Arc::clone(shared.engine.heap());
        let mut writer = Writer::new(Arc::clone(&heap), u8::try_from(id).expect("at most 64 workers"));
        let chain = chain::join(&shared, id, (&mut writer, &mut *transport));
        let spin = Some(shared.config.spin).filter(|spin| !spin.is_zero()).map(SpinWait::new);
        let paged = shared.loads.as_ref().map(|loads| Paged::new(loads, &*transport));
        let returned = heap.join_receivers();
        Self {
            landing: Landing::new(Arc::clone(&heap)),
            now: Now::of(&shared),
            shared,
            heap,
            id,
            transport,
            spin,
            writer,
            lookahead: Lookahead::default(),
            conns: Conns::default(),
            strangers: Strangers::default(),
            unproven: Unproven::default(),
            told: Told::default(),
            events: Vec::new(),
            touched: Vec::new(),
            long: VecDeque::new(),
            waiting: Vec::new(),
            tails: Tails::default(),
            paged,
            commit: None,
            chain,
            seq_begun: 0,
            starved: false,
            starved_since: None,
            relieved: Excess::default(),
            returned,
            round: 1,
            next_tick: Instant::now() + TICK,
            epoch: 1,
            active: 0,
            active_before: 0,
        }
    }

    /// Adds a connection to this round's list.
    pub(super) fn touch(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id)
            && !std::mem::replace(&mut conn.listed.touched, true)
        {
            self.touched.push(id);
        }
    }

    /// What the execution of commands needs, and the connections.
    pub(super) fn core_and_conns(&mut self) -> (Core<'_>, &mut Lookahead, &mut Conns) {
        let core = Core {
            shared: &self.shared,
            writer: &mut self.writer,
            round: self.round,
            now: self.now,
            worker: self.id,
            tail: None,
            known_crc: None,
        };
        (core, &mut self.lookahead, &mut self.conns)
    }

    pub(super) fn cut_off(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.phase.is_closed()) {
            count(&self.shared.counters.timeouts, 1);
            conn.phase.advance(Phase::Closed);
            conn.inbox.clear(&self.heap);
            conn.outbox.clear(&self.heap);
            self.transport.reset(&mut self.landing, id);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.heap.leave_receivers(self.returned);
    }
}
