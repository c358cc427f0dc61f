//! Clients, a log, and a chain of three servers, as `docs/format/chain.md` says how they work ("How chunks follow each other"):
//! who does what after what, and for how long. Nothing is stored.

use super::engine::{Engine, Step};
use super::processors::CoRunner;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Bytes of a chunk that is sent.
const SENT: u64 = 1 << 20;
/// Bytes of writes after which they are sent, and that are published together (`landfall_fs::CHUNK_BYTES`).
const CHUNK: u64 = 4 << 20;
/// Bytes that may not be published: writes wait then (`landfall_fs::BACKLOG_BYTES`).
pub(super) const BACKLOG: u64 = 64 << 20;
/// Servers of a chain.
pub(super) const SERVERS: usize = 3;

/// How chunks follow each other: `--chain-send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Pipelined,
    OneAtATime,
    AtFsync,
}

/// Seconds for a batch, and for each byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) each: f64,
    pub(super) byte: f64,
}

impl Cost {
    fn of(self, bytes: u64) -> f64 {
        self.each + self.byte * bytes as f64
    }
}

/// What a chain costs, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ChainCosts {
    /// Work of the first server for what it sends, and of each other one for what it takes and passes on.
    pub(super) moves: [Cost; SERVERS],
    /// Work of publishing a byte, at each server, with all that is done in the background.
    pub(super) publish: [f64; SERVERS],
    /// A server's device, to make a batch durable.
    pub(super) fence: Cost,
    /// From a thread that sends to one that is woken by it, beside the work of both.
    pub(super) hop: f64,
}

/// What an operation of a client needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Operation {
    /// Work of the program, of the kernel, and of the mount, seconds.
    pub(super) work: f64,
    /// Seconds in which nobody works.
    pub(super) pause: f64,
    /// Bytes that it writes.
    pub(super) bytes: f64,
    /// How many of them sync: 1, if each does.
    pub(super) syncs: f64,
    /// So many of them are one of the program's.
    pub(super) parts: f64,
}

/// What clients do, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) operation: Operation,
    pub(super) clients: u32,
    /// Operations of each client. With the last one it syncs if `syncs_at_end`.
    pub(super) operations: u64,
    pub(super) syncs_at_end: bool,
}

/// The machines that servers are on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// Processors of each machine.
    pub(super) processors: u32,
    /// All servers are on one machine, and have one device.
    pub(super) is_shared: bool,
    /// What runs beside the first server, and beside each replica; at one machine that of the first one.
    pub(super) beside: [Option<CoRunner>; 2],
    /// Seconds that the link takes for a byte.
    pub(super) link_byte: f64,
    /// Seconds until something is there that the link has sent.
    pub(super) wire: f64,
}

/// What has come of a course.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Until the last operation was done.
    pub(super) seconds: f64,
    pub(super) operations: u64,
    pub(super) bytes: u64,
    /// The time of an operation in the mean, its sync included, seconds.
    pub(super) mean: f64,
    /// How often as long a co-runner's round takes, beside the first server and beside the second one.
    pub(super) slowdowns: [Option<f64>; 2],
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Operated { client: usize },
    Begun,
    Sent { chunk: usize },
    Arrived { server: usize, chunk: usize },
    Taken { server: usize, chunk: usize },
    Durable { server: usize, chunk: usize },
    Answered { server: usize, chunk: usize },
    Published { bytes: u64 },
    Nothing,
}

#[derive(Debug, Default)]
struct Client {
    thread: usize,
    left: u64,
    began: f64,
    /// What of the next sync, and of the next byte, its operations have come to.
    syncs: f64,
    bytes: f64,
}

/// A chunk of the batch under way.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    bytes: u64,
    is_durable: [bool; SERVERS],
    is_answered: [bool; SERVERS],
}

#[derive(Debug)]
struct Batch {
    /// Where it ends in the log.
    end: u64,
    chunks: Vec<Chunk>,
    answered: usize,
}

struct Course<'a> {
    engine: Engine<Event>,
    way: Way,
    costs: &'a ChainCosts,
    site: &'a Site,
    load: &'a Load,
    clients: Vec<Client>,
    /// The threads of each server that send or take, that make durable, and that publish.
    moving: [usize; SERVERS],
    fencing: [usize; SERVERS],
    publishing: [usize; SERVERS],
    /// Bytes that were logged, and those of them that are durable everywhere, and published.
    logged: u64,
    durable: u64,
    published: u64,
    batch: Option<Batch>,
    /// Clients that wait until the log is durable up to there.
    waiting: Vec<(usize, u64)>,
    /// Clients that wait until more is published.
    held_up: VecDeque<usize>,
    done: u64,
    spent: f64,
}

/// What comes of a load at a chain.
pub(super) fn run(way: Way, costs: &ChainCosts, site: &Site, load: &Load) -> Outcome {
    let [first, replicas] = site.beside;
    let machines = if site.is_shared { vec![first] } else { vec![first, replicas, replicas] };
    let mut engine = Engine::new(machines.into_iter().map(|beside| (site.processors, beside)));
    let machine_of = |server: usize| if site.is_shared { 0 } else { server };
    let mut thread_of_each = || std::array::from_fn(|server| engine.thread(machine_of(server)));
    let (moving, fencing, publishing) = (thread_of_each(), thread_of_each(), thread_of_each());
    let client = |_| Client { thread: engine.thread(0), left: load.operations, ..Client::default() };
    let clients = (0..load.clients).map(client).collect();
    let mut course = Course {
        engine,
        way,
        costs,
        site,
        load,
        clients,
        moving,
        fencing,
        publishing,
        logged: 0,
        durable: 0,
        published: 0,
        batch: None,
        waiting: Vec::new(),
        held_up: VecDeque::new(),
        done: 0,
        spent: 0.0,
    };
    course.run()
}

impl Course<'_> {
    fn run(&mut self) -> Outcome {
        (0..self.clients.len()).for_each(|client| self.begin(client));
        let all = u64::from(self.load.clients) * self.load.operations;
        while self.done < all {
            let Some(event) = self.engine.next() else { break };
            self.handle(event);
        }
        assert_eq!(self.done, all, "nothing goes on");
        let replica = usize::from(!self.site.is_shared);
        Outcome {
            seconds: self.engine.now(),
            operations: self.done,
            bytes: self.logged,
            mean: self.spent / self.done as f64,
            slowdowns: [self.engine.slowdown(0), self.engine.slowdown(replica)],
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Operated { client } => self.operated(client),
            Event::Begun => self.send_first(),
            Event::Sent { chunk } => self.pass_to(1, chunk),
            Event::Arrived { server, chunk } => self.take(server, chunk),
            Event::Taken { server, chunk } => self.taken(server, chunk),
            Event::Durable { server, chunk } => self.durable(server, chunk),
            Event::Answered { server, chunk } => self.answered(server, chunk),
            Event::Published { bytes } => self.note_published(bytes),
            Event::Nothing => {}
        }
    }

    fn machine_of(&self, server: usize) -> usize {
        if self.site.is_shared { 0 } else { server }
    }

    /// A client wants to begin an operation.
    fn begin(&mut self, client: usize) {
        self.clients[client].began = self.engine.now();
        if self.logged - self.published > BACKLOG {
            self.held_up.push_back(client);
        } else {
            self.operate(client);
        }
    }

    fn operate(&mut self, client: usize) {
        let Operation { work, pause, .. } = self.load.operation;
        let thread = self.clients[client].thread;
        self.engine.run(thread, [Step::Work(work), Step::Pass(pause)], Event::Operated { client });
    }

    fn operated(&mut self, number: usize) {
        let Operation { bytes, syncs, .. } = self.load.operation;
        let client = &mut self.clients[number];
        client.left -= 1;
        client.bytes += bytes;
        let whole = crate::common::measure::stats::whole(client.bytes);
        client.bytes -= whole as f64;
        client.syncs += syncs;
        // What was added up in fractions is nearly one.
        let is_asked = client.syncs > 1.0 - 1e-9;
        client.syncs -= f64::from(u8::from(is_asked));
        let waits = is_asked || (client.left == 0 && self.load.syncs_at_end);
        self.logged += whole;
        if waits && self.logged > self.durable {
            self.waiting.push((number, self.logged));
        } else {
            self.complete(number);
        }
        self.begin_batch();
    }

    /// A client's operation is complete.
    fn complete(&mut self, client: usize) {
        self.done += 1;
        self.spent += self.engine.now() - self.clients[client].began;
        if self.clients[client].left > 0 {
            self.begin(client);
        }
    }

    /// Begins a batch of all that has come, if it is time to.
    fn begin_batch(&mut self) {
        let gathered = self.logged - self.durable;
        // Without a thread of its own for that, who publishes sends, too, and then publishes what was sent.
        let is_published = self.published == self.durable;
        let is_due = match self.way {
            Way::Pipelined => gathered >= CHUNK,
            Way::OneAtATime => gathered >= CHUNK && is_published,
            Way::AtFsync => gathered >= BACKLOG / 2 && is_published,
        };
        let is_wanted = is_due || !self.waiting.is_empty();
        if self.batch.is_some() || gathered == 0 || !is_wanted {
            return;
        }
        let sizes = (0..gathered.div_ceil(SENT)).map(|at| (gathered - at * SENT).min(SENT));
        let chunk = |bytes| Chunk { bytes, is_durable: [false; SERVERS], is_answered: [false; SERVERS] };
        self.batch = Some(Batch { end: self.logged, chunks: sizes.map(chunk).collect(), answered: 0 });
        let steps = [Step::Device(self.costs.fence.of(gathered)), Step::Work(self.costs.moves[0].each)];
        self.engine.run(self.moving[0], steps, Event::Begun);
    }

    fn chunks(&self) -> &[Chunk] {
        self.batch.as_ref().map_or(&[], |batch| &batch.chunks)
    }

    fn chunk(&mut self, at: usize) -> Option<&mut Chunk> {
        self.batch.as_mut()?.chunks.get_mut(at)
    }

    fn bytes_of(&self, chunk: usize) -> u64 {
        self.chunks().get(chunk).map_or(0, |chunk| chunk.bytes)
    }

    /// The batch is durable at the first server.
    fn send_first(&mut self) {
        let at_once = if self.way == Way::OneAtATime { 1 } else { self.chunks().len() };
        (0..at_once).for_each(|chunk| self.send(chunk));
    }

    fn send(&mut self, chunk: usize) {
        let work = self.costs.moves[0].byte * self.bytes_of(chunk) as f64;
        self.engine.run(self.moving[0], [Step::Work(work)], Event::Sent { chunk });
    }

    /// The server before sends a chunk to this one.
    fn pass_to(&mut self, server: usize, chunk: usize) {
        let from = self.machine_of(server - 1);
        let seconds = self.site.link_byte * self.bytes_of(chunk) as f64;
        let delay = self.site.wire + self.costs.hop;
        self.engine.send(from, seconds, delay, Event::Arrived { server, chunk });
    }

    fn take(&mut self, server: usize, chunk: usize) {
        let Cost { each, byte } = self.costs.moves[server];
        // What a batch costs beside its bytes is that of its first chunk.
        let each = if chunk == 0 { each } else { 0.0 };
        let work = each + byte * self.bytes_of(chunk) as f64;
        self.engine.run(self.moving[server], [Step::Work(work)], Event::Taken { server, chunk });
    }

    fn taken(&mut self, server: usize, chunk: usize) {
        if server + 1 < SERVERS && self.way != Way::OneAtATime {
            self.pass_to(server + 1, chunk);
        }
        let fence = self.costs.fence;
        let each = if chunk + 1 == self.chunks().len() { fence.each } else { 0.0 };
        let seconds = each + fence.byte * self.bytes_of(chunk) as f64;
        self.engine.run(self.fencing[server], [Step::Device(seconds)], Event::Durable { server, chunk });
    }

    fn durable(&mut self, server: usize, number: usize) {
        if let Some(chunk) = self.chunk(number) {
            chunk.is_durable[server] = true;
        }
        if server + 1 < SERVERS && self.way == Way::OneAtATime {
            self.pass_to(server + 1, number);
        }
        self.answer(server, number);
    }

    /// Answers a chunk to the server before, if it is durable here and behind.
    fn answer(&mut self, server: usize, number: usize) {
        let is_last = server + 1 == SERVERS;
        let Some(chunk) = self.chunk(number).copied() else { return };
        if chunk.is_durable[server] && (is_last || chunk.is_answered[server + 1]) {
            let (machine, delay) = (self.machine_of(server), self.site.wire + self.costs.hop);
            self.engine.send(machine, 0.0, delay, Event::Answered { server, chunk: number });
        }
    }

    /// The server before this one has its answer.
    fn answered(&mut self, server: usize, number: usize) {
        if let Some(chunk) = self.chunk(number) {
            chunk.is_answered[server] = true;
        }
        if server > 1 {
            return self.answer(server - 1, number);
        }
        let Some(batch) = &mut self.batch else { return };
        batch.answered += 1;
        if batch.answered == batch.chunks.len() {
            self.complete_batch();
        } else if self.way == Way::OneAtATime {
            self.send(number + 1);
        }
    }

    fn complete_batch(&mut self) {
        let Some(Batch { end, .. }) = self.batch.take() else { return };
        let bytes = end - std::mem::replace(&mut self.durable, end);
        for (server, thread) in self.publishing.into_iter().enumerate() {
            for at in 0..bytes.div_ceil(CHUNK) {
                let bytes = (bytes - at * CHUNK).min(CHUNK);
                let then = if server == 0 { Event::Published { bytes } } else { Event::Nothing };
                let work = self.costs.publish[server] * bytes as f64;
                self.engine.run(thread, [Step::Work(work)], then);
            }
        }
        // Before those who have waited write more.
        let waiting = std::mem::take(&mut self.waiting);
        let (over, waits) = waiting.into_iter().partition(|(_, until)| *until <= end);
        self.waiting = waits;
        let over: Vec<(usize, u64)> = over;
        self.begin_batch();
        over.into_iter().for_each(|(client, _)| self.complete(client));
    }

    fn note_published(&mut self, bytes: u64) {
        self.published += bytes;
        while self.logged - self.published <= BACKLOG {
            let Some(client) = self.held_up.pop_front() else { break };
            self.operate(client);
        }
        self.begin_batch();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;

    /// Each server moves a MiB in 1 ms, and its device takes 2 ms for it.
    fn costs() -> ChainCosts {
        let byte = |ms: f64| Cost { each: 0.0, byte: ms / 1000.0 / MIB };
        ChainCosts { moves: [byte(1.0); SERVERS], publish: [0.0; SERVERS], fence: byte(2.0), hop: 0.0 }
    }

    fn own_machines() -> Site {
        Site { processors: 2, is_shared: false, beside: [None; 2], link_byte: 0.0, wire: 0.0 }
    }

    /// Writes of 1 MiB, each of which takes so many milliseconds of work.
    fn writes(ms: f64, operations: u64) -> Load {
        let operation = Operation { work: ms / 1000.0, bytes: MIB, parts: 1.0, ..Operation::default() };
        Load { operation, clients: 1, operations, syncs_at_end: true }
    }

    fn synced(load: Load) -> Load {
        Load { operation: Operation { syncs: 1.0, ..load.operation }, ..load }
    }

    fn near(value: f64, wanted: f64) -> bool {
        (value / wanted - 1.0).abs() < 1e-6
    }

    #[test]
    fn an_fsync_takes_the_way_there_and_the_fences_that_are_not_beside_each_other() {
        let outcome = run(Way::Pipelined, &costs(), &own_machines(), &synced(writes(1.0, 10)));
        // 1 for the client, 2 for the fence, 1 to send, 1 to take, 1 to take behind, 2 for the last fence.
        assert!(near(outcome.mean, 0.008) && near(outcome.seconds, 0.08), "{outcome:?}");
        assert_eq!((outcome.operations, outcome.bytes, outcome.slowdowns), (10, 10 << 20, [None; 2]));
        // One after the other: the second fence is not beside the third server's.
        let outcome = run(Way::OneAtATime, &costs(), &own_machines(), &synced(writes(1.0, 10)));
        assert!(near(outcome.mean, 0.010), "{outcome:?}");
        let latency = Site { wire: 0.001, ..own_machines() };
        let outcome = run(Way::Pipelined, &costs(), &latency, &synced(writes(1.0, 10)));
        assert!(near(outcome.mean, 0.012), "there and back, twice: {outcome:?}");
    }

    #[test]
    fn a_client_that_is_slower_than_the_chain_waits_only_for_the_end() {
        let pipelined = run(Way::Pipelined, &costs(), &own_machines(), &writes(5.0, 200));
        assert!((1.0..1.02).contains(&pipelined.seconds), "{pipelined:?}");
        // All of it is sent at the end, and when the log is half full.
        let at_fsync = run(Way::AtFsync, &costs(), &own_machines(), &writes(5.0, 200));
        assert!(at_fsync.seconds > pipelined.seconds + 0.015, "{at_fsync:?}");
        // 2 + 1 + 1 + 2 + 1 + 2 ms for each chunk is more than the client needs.
        let one = run(Way::OneAtATime, &costs(), &own_machines(), &writes(5.0, 200));
        assert!(one.seconds > 1.3, "{one:?}");
    }

    #[test]
    fn on_one_machine_servers_share_its_processors_and_its_device() {
        let shared = Site { is_shared: true, ..own_machines() };
        let (own, shared) = (
            run(Way::Pipelined, &costs(), &own_machines(), &writes(1.0, 300)),
            run(Way::Pipelined, &costs(), &shared, &writes(1.0, 300)),
        );
        // Its device takes 6 ms for a MiB of all three.
        assert!(shared.seconds > 1.8 && own.seconds < 1.3, "{shared:?} {own:?}");
    }

    #[test]
    fn who_waits_shares_the_next_batch() {
        let expensive = ChainCosts {
            moves: [Cost { each: 0.001, byte: 0.0 }; SERVERS],
            fence: Cost::default(),
            ..costs()
        };
        let load = Load { clients: 8, ..synced(writes(0.0, 50)) };
        let many = run(Way::Pipelined, &expensive, &own_machines(), &load);
        let one = run(Way::Pipelined, &expensive, &own_machines(), &Load { clients: 1, ..load });
        assert!(near(one.seconds, 50.0 * 0.003), "{one:?}");
        assert!(many.seconds < 2.5 * one.seconds && many.operations == 400, "{many:?}");
    }

    #[test]
    fn publishing_that_cannot_keep_up_holds_writers_up() {
        let slow = ChainCosts { publish: [0.01 / MIB, 0.0, 0.0], ..costs() };
        let outcome = run(Way::Pipelined, &slow, &own_machines(), &writes(0.1, 300));
        let most = 3.0 - BACKLOG as f64 / MIB * 0.01;
        assert!(outcome.seconds > most, "{outcome:?}");
    }

    #[test]
    fn what_runs_beside_replicas_is_slowed_down_there() {
        let beside = CoRunner { threads: 2, weight: 1.0, contention: 1.0 };
        let site = Site { beside: [None, Some(beside)], ..own_machines() };
        let outcome = run(Way::Pipelined, &costs(), &site, &writes(1.0, 300));
        let [first, replica] = outcome.slowdowns;
        assert!(first.is_none() && replica.is_some_and(|slowdown| slowdown > 1.05), "{outcome:?}");
    }
}
