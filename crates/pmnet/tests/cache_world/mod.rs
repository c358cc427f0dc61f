//! A model of a server, a device with a read cache, and a network that delays, repeats, reorders and loses packets.
//!
//! Exact in the model: the server applies a session's updates in order and once, buffers early ones, and executes a
//! changing bypass once. Arbitrary in the model: when, how often and in which order copies of a packet arrive. A copy
//! that has been sent stays in the network for ever. A lost packet is one whose copies never arrive.

use landfall_pmnet::cache::{Cache, Effect, Id, Limits, Piece, Query, Whole};

/// The effect of an update.
#[derive(Clone, Copy, Debug)]
pub enum Does {
    /// Sets this key to a value that the device knows.
    Sets(u8),
    /// Changes this key in a way that the device cannot compute.
    Changes(u8),
    /// Changes this key, but for the device it may change any key.
    ChangesAny(u8),
    /// The first of two pieces that name the key together. It makes no difference whether each of them or both change
    /// it.
    Begins(u8),
    /// The second piece.
    Ends(u8),
}

impl Does {
    fn key(self) -> u8 {
        let (Self::Sets(key)
        | Self::Changes(key)
        | Self::ChangesAny(key)
        | Self::Begins(key)
        | Self::Ends(key)) = self;
        key
    }
}

/// The requests in a world. Their order is chosen by the test.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The updates of each session.
    pub updates: [Vec<Does>; 2],
    /// Reads: session and key.
    pub reads: Vec<(u8, u8)>,
    /// Bypasses that change a key: session and key.
    pub changes: Vec<(u8, u8)>,
    /// How often the device may restart.
    pub restarts: u8,
    /// How far a client may be ahead of the server-ACKs.
    pub window: u32,
}

pub const LIMITS: Limits = Limits {
    entries_max: 4,
    bytes_max: 1000,
    updates_max: 8,
    reads_max: 4,
    touching_max: 4,
    sessions_max: 4,
    window: 4,
};

/// A value. Every key has 0 at first. Each update and each changing bypass sets a unique value.
type Value = u8;

#[derive(Clone, Copy, Debug, Default)]
struct Update {
    /// A copy is in the network between the device and the server.
    sent: bool,
    /// A copy has arrived at the server.
    arrived: bool,
    /// It is in the device's log and fenced.
    durable: bool,
    /// The device has reported it to the cache since its last restart.
    reported: bool,
}

#[derive(Clone, Debug, Default)]
struct Bypass {
    sent: bool,
    /// The responses to its copies. Each of them stays in the network.
    answers: Vec<Value>,
    /// It will not be executed again.
    given_up: bool,
}

/// An event that may happen next.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    UpdatePasses(usize, usize),
    UpdateIsDurable(usize, usize),
    UpdateArrives(usize, usize),
    AckPasses(usize, u32),
    ReadPasses(usize),
    ReadIsExecuted(usize),
    ReadIsAnswered(usize, Value),
    ChangePasses(usize),
    ChangeIsExecuted(usize),
    ChangeIsAnswered(usize),
    BypassesAreDropped,
    Restart,
    Open,
}

#[derive(Clone, Debug)]
pub struct World {
    cache: Cache<u8, Vec<u8>>,
    updates: [Vec<Update>; 2],
    applied: [usize; 2],
    /// The highest end of a server-ACK that the client may know, and the lowest one in the network.
    acked: [u32; 2],
    ack_from: [u32; 2],
    keys: [Value; 2],
    reads: Vec<Bypass>,
    changes: Vec<Bypass>,
    restarts: u8,
}

fn update_value(session: usize, index: usize) -> Value {
    Value::try_from(1 + session * 16 + index).unwrap()
}

fn change_value(index: usize) -> Value {
    Value::try_from(100 + index).unwrap()
}

fn seq(index: usize) -> u32 {
    u32::try_from(index).unwrap()
}

fn session(index: usize) -> u8 {
    u8::try_from(index).unwrap()
}

impl World {
    /// Two sessions that have just started, with an open cache.
    pub fn new(plan: &Plan) -> Self {
        let mut cache = Cache::new(Limits { window: plan.window, ..LIMITS });
        cache.open();
        [0, 1].into_iter().for_each(|session| cache.session_started(session, 0, 0));
        Self {
            cache,
            updates: plan.updates.each_ref().map(|updates| vec![Update::default(); updates.len()]),
            applied: [0; 2],
            acked: [0; 2],
            ack_from: [0; 2],
            keys: [0; 2],
            reads: vec![Bypass::default(); plan.reads.len()],
            changes: vec![Bypass::default(); plan.changes.len()],
            restarts: 0,
        }
    }

    pub fn has_restarted(&self) -> bool {
        self.restarts > 0
    }

    /// All events that may happen next.
    pub fn events(&self, plan: &Plan) -> Vec<Event> {
        let mut events = Vec::new();
        for session in 0..2 {
            self.update_events(plan, session, &mut events);
        }
        for (index, read) in self.reads.iter().enumerate() {
            events.push(Event::ReadPasses(index));
            events.extend(read.sent.then_some(Event::ReadIsExecuted(index)));
            events.extend(read.answers.iter().map(|value| Event::ReadIsAnswered(index, *value)));
        }
        for (index, change) in self.changes.iter().enumerate() {
            let done = !change.answers.is_empty();
            events.extend((!change.given_up).then_some(Event::ChangePasses(index)));
            events.extend((change.sent && !done).then_some(Event::ChangeIsExecuted(index)));
            events.extend(done.then_some(Event::ChangeIsAnswered(index)));
        }
        let may_wait = self.changes.iter().any(|change| !change.given_up);
        events.extend(may_wait.then_some(Event::BypassesAreDropped));
        events.extend((self.restarts < plan.restarts).then_some(Event::Restart));
        events.extend((!self.cache.is_open() && !self.waits_at_server()).then_some(Event::Open));
        events
    }

    fn update_events(&self, plan: &Plan, session: usize, events: &mut Vec<Event>) {
        for (index, update) in self.updates[session].iter().enumerate() {
            let in_window = seq(index) < self.acked[session] + plan.window;
            events.extend(in_window.then_some(Event::UpdatePasses(session, index)));
            let may_log = update.reported && !update.durable;
            events.extend(may_log.then_some(Event::UpdateIsDurable(session, index)));
            events.extend((update.sent && !update.arrived).then_some(Event::UpdateArrives(session, index)));
        }
        let ends = self.ack_from[session].max(1)..=seq(self.applied[session]);
        events.extend(ends.map(|end| Event::AckPasses(session, end - 1)));
    }

    pub fn step(&mut self, plan: &Plan, event: Event) {
        match event {
            Event::UpdatePasses(s, index) => self.update_passes(plan, s, index),
            Event::UpdateIsDurable(s, index) => {
                self.updates[s][index].durable = true;
                self.report_durable(s, index);
            }
            Event::UpdateArrives(s, index) => self.update_arrives(plan, s, index),
            Event::AckPasses(s, last) => {
                self.acked[s] = self.acked[s].max(last + 1);
                self.cache.server_ack(session(s), last);
            }
            Event::Restart => self.restart(plan),
            Event::Open => self.open(),
            _ => self.step_bypass(plan, event),
        }
    }

    fn step_bypass(&mut self, plan: &Plan, event: Event) {
        match event {
            Event::ReadPasses(index) => {
                self.reads[index].sent = true;
                let (session, key) = plan.reads[index];
                self.cache.bypass_seen(read_id(session, index), &[key], &Query::Reads { key: 0..1 });
            }
            Event::ReadIsExecuted(index) => {
                let value = self.keys[usize::from(plan.reads[index].1)];
                let answers = &mut self.reads[index].answers;
                if !answers.contains(&value) {
                    answers.push(value);
                    answers.sort_unstable();
                }
            }
            Event::ReadIsAnswered(index, value) => {
                self.cache.response_seen(read_id(plan.reads[index].0, index), Some(vec![value]));
            }
            Event::ChangePasses(index) => {
                self.changes[index].sent = true;
                let (session, key) = plan.changes[index];
                let query = Query::Touches(std::iter::once(0..1).collect());
                self.cache.bypass_seen(change_id(session, index), &[key], &query);
            }
            Event::ChangeIsExecuted(index) => {
                self.keys[usize::from(plan.changes[index].1)] = change_value(index);
                self.changes[index].answers.push(change_value(index));
            }
            Event::ChangeIsAnswered(index) => {
                self.cache.response_seen(change_id(plan.changes[index].0, index), None);
            }
            _ => self.drop_bypasses(),
        }
    }

    /// Drops all bypasses. The model guarantees what the caller of `drop_before` must: those not executed never will
    /// be.
    fn drop_bypasses(&mut self) {
        for change in &mut self.changes {
            *change = Bypass { sent: false, given_up: true, answers: change.answers.clone() };
        }
        let mark = self.cache.mark();
        self.cache.drop_before(mark);
    }

    fn update_passes(&mut self, plan: &Plan, s: usize, index: usize) {
        let update = &mut self.updates[s][index];
        (update.sent, update.reported) = (true, true);
        self.report_seen(plan, s, index);
        if self.updates[s][index].durable {
            self.report_durable(s, index);
        }
    }

    fn report_seen(&mut self, plan: &Plan, s: usize, index: usize) {
        let does = plan.updates[s][index];
        let id = Id { session: session(s), seq: seq(index) };
        let mut piece = |piece| self.cache.piece_seen(id, Whole { count: 2, total: 2 }, &piece);
        let effect = match does {
            Does::Begins(key) => {
                return piece(Piece::First { start: &[key], keys: Some(std::iter::once(0..1).collect()) });
            }
            Does::Ends(_) => return piece(Piece::Later { index: 1 }),
            Does::Sets(_) => Effect::Sets { key: 0..1, value: 1..1 },
            Does::Changes(_) => Effect::Touches(std::iter::once(0..1).collect()),
            Does::ChangesAny(_) => Effect::TouchesAll,
        };
        self.cache.update_seen(id, &[does.key()], &effect);
    }

    fn report_durable(&mut self, s: usize, index: usize) {
        let id = Id { session: session(s), seq: seq(index) };
        self.cache.update_logged(id, vec![update_value(s, index)]);
        self.cache.update_durable(id);
    }

    fn update_arrives(&mut self, plan: &Plan, s: usize, index: usize) {
        self.updates[s][index].arrived = true;
        while self.updates[s].get(self.applied[s]).is_some_and(|update| update.arrived) {
            let next = self.applied[s];
            self.keys[usize::from(plan.updates[s][next].key())] = update_value(s, next);
            self.applied[s] += 1;
        }
    }

    /// The device loses everything but its log, and reports the updates in it, including removed ones.
    fn restart(&mut self, plan: &Plan) {
        self.restarts += 1;
        self.cache = Cache::new(Limits { window: plan.window, ..LIMITS });
        for s in 0..2 {
            for index in 0..self.updates[s].len() {
                self.updates[s][index].reported = self.updates[s][index].durable;
                if self.updates[s][index].durable {
                    self.updates[s][index].sent = true;
                    self.report_seen(plan, s, index);
                    self.report_durable(s, index);
                }
            }
        }
    }

    /// Whether an update that the cache does not know waits at the server for an earlier one.
    fn waits_at_server(&self) -> bool {
        (0..2).any(|s| {
            let early = self.updates[s].iter().skip(self.applied[s]);
            early.into_iter().any(|update| update.arrived && !update.reported)
        })
    }

    /// Packets from before the restart are gone. Those that the cache knows are dropped too, which makes no
    /// difference to it.
    fn open(&mut self) {
        self.updates.iter_mut().flatten().for_each(|update| update.sent &= update.reported);
        for bypass in self.reads.iter_mut() {
            *bypass = Bypass { given_up: bypass.given_up, ..Bypass::default() };
        }
        for change in self.changes.iter_mut() {
            change.sent = false;
        }
        self.ack_from = self.applied.map(seq);
        self.cache.open();
    }

    /// Whether an update may be reported to its client as durable: it and all earlier ones are in the log or applied.
    fn is_complete(&self, s: usize, index: usize) -> bool {
        (self.applied[s]..=index).all(|before| self.updates[s][before].durable)
    }

    /// The updates of a key that are complete and not applied. They will be applied, in an order that is known
    /// only within a session.
    fn complete(&self, plan: &Plan, key: u8) -> Vec<(usize, usize)> {
        let each = (0..2).flat_map(|s| (self.applied[s]..self.updates[s].len()).map(move |index| (s, index)));
        each.filter(|(s, index)| plan.updates[*s][*index].key() == key && self.is_complete(*s, *index))
            .collect()
    }

    /// Checks the served values against *every* order in which the server may apply the updates in flight: each value
    /// is durable, and in no order a complete or applied update comes after it.
    pub fn check(&self, plan: &Plan) -> Result<usize, String> {
        let mut hits = 0;
        for key in 0..2 {
            let Some(value) = self.cache.clone().lookup(&[key], None).map(|value| value[0]) else { continue };
            hits += 1;
            let complete = self.complete(plan, key);
            let last_of_all = match complete.last() {
                None => value == self.keys[usize::from(key)],
                Some((s, index)) => {
                    value == update_value(*s, *index) && complete.iter().all(|(other, _)| other == s)
                }
            };
            if !last_of_all {
                let at_server = self.keys[usize::from(key)];
                return Err(format!(
                    "the cache serves {value} for key {key}; the server has {at_server}, then {complete:?}"
                ));
            }
        }
        Ok(hits)
    }
}

fn read_id(session: u8, index: usize) -> Id<u8> {
    Id { session, seq: seq(index) }
}

/// Changing bypasses have numbers after those of the reads.
fn change_id(session: u8, index: usize) -> Id<u8> {
    Id { session, seq: 10 + seq(index) }
}
