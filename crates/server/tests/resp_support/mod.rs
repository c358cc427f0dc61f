//! A session without a server: commands land in frames, and replies are read from frames.
#![allow(dead_code, reason = "each test file uses its part")]

mod words;

use landfall_heap::{NewRegion, Writer};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Chain, Extent, RUN_SIZE, Segment};
use landfall_resp::{Command, Limits, Parser};
use landfall_server::Config;
use landfall_server::context::{Context, Outcome};
use landfall_server::counters::Counters;
use landfall_server::reply::Outbox;
use landfall_server::resp::Session;
use landfall_server::shared::{ChosenTransport, Shared, now_ns};
use landfall_server::store::recover;
use landfall_sockets::{ConnId, Outgoing, Part};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;
pub use words::words;

/// Size of the region of a test.
const REGION_BYTES: u64 = 64 * RUN_SIZE;
/// Shards of the index: more than one, so that transactions take several locks.
const SHARDS: usize = 4;
/// Waits of a command after which a test fails.
const WAITS_MAX: usize = 10_000;

/// A new engine, with the state that workers share.
pub fn shared_with(config: Config) -> (Shared, Arc<SimMedia>) {
    shared_on(config, SimOptions::default())
}

/// A new engine on a medium with the given behaviour.
pub fn shared_on(config: Config, options: SimOptions) -> (Shared, Arc<SimMedia>) {
    let media = SimMedia::new(REGION_BYTES, options);
    let new = NewRegion { salt: [7; 16], hash_seed: 42, created_ms: 1 };
    landfall_heap::create(&*media, &new).unwrap();
    let (engine, logs, files, recovered) = recover(media.clone(), SHARDS).unwrap();
    let shared = Shared {
        writes: Box::new(landfall_server::writes::InRegion),
        config,
        engine,
        logs,
        files,
        chain: None,
        recovered,
        recovery_ns: 0,
        counters: Counters::default(),
        started: Instant::now(),
        run_id: "0".repeat(40),
        bound_resp: None,
        bound_http: None,
        transport: ChosenTransport { name: "test", reason: "no sockets".into() },
        transport_counters: Vec::new(),
        clients: Default::default(),
        next_client: AtomicU64::new(1),
        cursors: Default::default(),
        maintenance: Default::default(),
        loads: None,
        stopping: AtomicBool::new(false),
        workers: std::sync::OnceLock::new(),
    };
    (shared, media)
}

pub fn shared() -> Shared {
    shared_with(Config::default()).0
}

/// Result of a command before any commit.
#[derive(Debug)]
pub enum Asked {
    /// The reply may be sent.
    Replied(Vec<u8>),
    /// The reply is written but waits for a commit.
    Pending,
    /// The command waits.
    Waits,
}

/// One worker with one connection.
pub struct Worker<'s> {
    pub shared: &'s Shared,
    pub writer: Writer,
    pub session: Session,
    pub now_ns: u64,
    pub closed: bool,
    outbox: Outbox,
    round: u64,
    run: Option<(u64, u64)>,
}

impl<'s> Worker<'s> {
    pub fn new(shared: &'s Shared, id: u8) -> Self {
        let peer = Some(([127, 0, 0, 1], 50_000 + u16::from(id)).into());
        Self {
            shared,
            writer: Writer::new(shared.engine.heap().clone(), id),
            session: Session::new(shared, ConnId(id.into()), id.into(), peer),
            now_ns: now_ns(),
            closed: false,
            outbox: Outbox::default(),
            round: 0,
            run: None,
        }
    }

    /// Executes a command written as in a shell, commits, and returns the reply.
    pub fn ask(&mut self, line: &str) -> Vec<u8> {
        let words = words(line);
        self.ask_words(&words)
    }

    pub fn ask_words(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        for _ in 0..WAITS_MAX {
            match self.try_words(words) {
                Asked::Replied(reply) => return reply,
                Asked::Pending => return self.commit(),
                Asked::Waits => drop(self.commit()),
            }
        }
        panic!("{:?} waits for ever", words[0].escape_ascii().to_string());
    }

    /// The reply as text, to compare it with a literal.
    pub fn say(&mut self, line: &str) -> String {
        self.ask(line).escape_ascii().to_string()
    }

    /// Executes a command without committing.
    pub fn try_line(&mut self, line: &str) -> Asked {
        let words = words(line);
        self.try_words(&words)
    }

    pub fn try_words(&mut self, words: &[Vec<u8>]) -> Asked {
        let landed = self.land(&encode(words));
        let heap = self.shared.engine.heap().clone();
        let segments: Vec<Segment<'_>> = landed
            .iter()
            .map(|extent| Segment::new(extent.off, heap.media().bytes(*extent).unwrap()))
            .collect();
        let outcome = self.execute(&Chain::new(&segments));
        landed.iter().for_each(|extent| heap.runs().release(*extent));
        self.closed |= outcome == Outcome::Close;
        if let Outcome::Wait(_) = outcome {
            return Asked::Waits;
        }
        let replies = self.replies();
        if replies.is_empty() && !self.outbox.is_empty() { Asked::Pending } else { Asked::Replied(replies) }
    }

    fn execute(&mut self, chain: &Chain<'_>) -> Outcome {
        let heap = self.shared.engine.heap().clone();
        let mut command = Command::default();
        let parsed = Parser::new(Limits::default()).next_into(chain, 0, &mut command).unwrap();
        assert!(parsed, "a whole command was sent");
        let mut context = Context {
            shared: self.shared,
            engine: &self.shared.engine,
            logs: &self.shared.logs,
            writer: &mut self.writer,
            now_ms: self.now_ns / 1_000_000,
            steady_ms: self.now_ns / 1_000_000,
            arrival_ns: self.now_ns,
            conn: ConnId(1),
            worker: 0,
            tail: None,
            known_crc: None,
        };
        let mut reply = self.outbox.begin(&heap, self.round);
        let outcome = self.session.execute(&mut context, &command, chain, &mut reply);
        match outcome {
            Outcome::Wait(_) => {
                assert!(reply.is_empty(), "a command that waits has written nothing");
                reply.abandon();
            }
            _ => reply.finish(),
        }
        outcome
    }

    /// Commits; returns the replies that waited for it.
    pub fn commit(&mut self) -> Vec<u8> {
        self.writer.commit_now().unwrap();
        self.round += 1;
        self.replies()
    }

    /// The replies that may be sent by now.
    pub fn replies(&mut self) -> Vec<u8> {
        let heap = self.shared.engine.heap().clone();
        let mut replies = Vec::new();
        while let Ok(Some(out)) = self.outbox.take_ready(|slot| heap.is_durable(slot)) {
            replies.extend(flatten(self.shared, &out));
        }
        replies
    }

    /// Stores bytes into landing frames, as a transport does; each extent carries one hold.
    fn land(&mut self, mut bytes: &[u8]) -> Vec<Extent> {
        let heap = self.shared.engine.heap();
        let mut landed = Vec::new();
        while !bytes.is_empty() {
            if self.run.is_none_or(|(_, used)| used == RUN_SIZE) {
                if let Some((run, _)) = self.run.take() {
                    heap.retire_landing_run(run);
                }
                self.run = Some((heap.take_landing_run().expect("landing space"), 0));
            }
            let (run, used) = self.run.as_mut().unwrap();
            let len = bytes.len().min((RUN_SIZE - *used) as usize);
            let extent = Extent::new(*run + *used, len as u32);
            heap.media().store(extent.off, &bytes[..len]).unwrap();
            heap.runs().hold(extent);
            *used += len as u64;
            bytes = &bytes[len..];
            landed.push(extent);
        }
        landed
    }

    /// Ends the connection.
    pub fn end(&mut self) {
        self.session.end(self.shared);
        self.outbox.clear(self.shared.engine.heap());
        if let Some((run, _)) = self.run.take() {
            self.shared.engine.heap().retire_landing_run(run);
        }
    }
}

/// A reply's bytes; its extents are released, as by a transport after the send.
fn flatten(shared: &Shared, out: &Outgoing) -> Vec<u8> {
    let heap = shared.engine.heap();
    let mut bytes = Vec::new();
    for part in out.parts() {
        match part {
            Part::Bytes { start, end } => bytes.extend_from_slice(&out.bytes[*start as usize..*end as usize]),
            Part::Stored(extent) => {
                bytes.extend_from_slice(heap.media().bytes(*extent).unwrap());
                heap.runs().release(*extent);
            }
        }
    }
    bytes
}

/// A command as clients send it.
pub fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}
