//! An HTTP session over a small simulated region, without sockets: bytes land in frames, replies are read from frames,
//! and the test decides when a batch is committed.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use landfall_heap::{CopyPath, NewRegion, Writer};
use landfall_http::{Limits, Parser, Progress};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Chain, Extent, Media, RUN_SIZE, Segment};
use landfall_server::config::{Config, Size};
use landfall_server::context::{Context, Outcome};
use landfall_server::counters::Counters;
use landfall_server::http::{AwaitedBody, HttpSession};
use landfall_server::reply::Outbox;
use landfall_server::shared::{ChosenTransport, Shared};
use landfall_server::store::recover;
use landfall_sockets::{ConnId, Outgoing, Part};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Start of the rig's clock: 2023-11-14 22:13:20 UTC.
pub const START_MS: u64 = 1_700_000_000_000;

/// Size of the region, MiB.
const REGION_RUNS: u64 = 40;

/// One connection, with the server around it.
pub struct Rig {
    pub media: Arc<SimMedia>,
    pub shared: Shared,
    pub writer: Writer,
    pub session: HttpSession,
    pub outbox: Outbox,
    pub now_ms: u64,
    /// Requests land in pieces of this many bytes, with gaps between them.
    pub piece: usize,
    pub round: u64,
    /// The run that requests land in, and how far it is filled.
    landing: Option<(u64, u64)>,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    pub fn with(config: Config) -> Self {
        let media = SimMedia::new(REGION_RUNS * RUN_SIZE, SimOptions::default());
        landfall_heap::create(&*media, &NewRegion { salt: [7; 16], hash_seed: 3, created_ms: START_MS })
            .unwrap();
        Self::over(media, config)
    }

    /// A server over an existing region, as after a restart.
    pub fn over(media: Arc<SimMedia>, config: Config) -> Self {
        let (engine, logs, files, recovered) = recover(Arc::clone(&media) as Arc<dyn Media>, 4).unwrap();
        let writer = Writer::new(Arc::clone(engine.heap()), 0);
        let shared = Shared {
            writes: Box::new(landfall_server::writes::InRegion),
            config,
            engine,
            logs,
            files,
            chain: None,
            recovered,
            recovery_ns: 1_500_000,
            counters: Counters::default(),
            started: Instant::now(),
            run_id: "0123456789abcdef0123456789abcdef01234567".into(),
            bound_resp: None,
            bound_http: None,
            transport: ChosenTransport { name: "epoll", reason: "a \"reason\"".into() },
            transport_counters: Vec::new(),
            clients: Default::default(),
            next_client: AtomicU64::new(1),
            cursors: Default::default(),
            maintenance: Default::default(),
            loads: None,
            stopping: Default::default(),
            workers: Default::default(),
        };
        let session = HttpSession::new(&shared);
        let (outbox, now_ms, piece) = (Outbox::default(), START_MS, usize::MAX);
        Self { media, shared, writer, session, outbox, now_ms, piece, round: 1, landing: None }
    }

    /// Lands bytes; returns their extents, which are held.
    fn land(&mut self, bytes: &[u8]) -> Vec<Extent> {
        // Pieces are one byte apart, because adjacent ones would become one extent.
        let (piece, gap) = (self.piece.min(bytes.len()), u64::from(self.piece != usize::MAX));
        bytes.chunks(piece.max(1)).map(|piece| self.land_piece(piece, gap)).collect()
    }

    fn land_piece(&mut self, piece: &[u8], gap: u64) -> Extent {
        let heap = self.shared.engine.heap();
        let (run, at) = match self.landing {
            Some((run, at)) if at + piece.len() as u64 <= RUN_SIZE => (run, at),
            full => {
                full.into_iter().for_each(|(run, _)| heap.retire_landing_run(run));
                (heap.take_landing_run().expect("a run to land in"), 0)
            }
        };
        let extent = Extent::new(run + at, piece.len() as u32);
        self.media.store(extent.off, piece).unwrap();
        heap.runs().hold(extent);
        self.landing = Some((run, at + piece.len() as u64 + gap));
        extent
    }

    /// Executes the first request in `bytes`; returns the outcome and the request's length.
    pub fn execute(&mut self, bytes: &[u8]) -> (Outcome, usize) {
        let extents = self.land(bytes);
        let heap = Arc::clone(self.shared.engine.heap());
        let segment = |extent: &Extent| Segment::new(extent.off, heap.media().bytes(*extent).unwrap());
        let segments: Vec<Segment<'_>> = extents.iter().map(segment).collect();
        let executed = self.execute_chain(&Chain::new(&segments));
        extents.iter().for_each(|extent| heap.runs().release(*extent));
        executed
    }

    /// Executes one request that neither waits nor ends the connection; its reply is queued.
    pub fn queue(&mut self, bytes: &[u8]) {
        assert_eq!(self.execute(bytes), (Outcome::Done, bytes.len()));
    }

    fn execute_chain(&mut self, chain: &Chain<'_>) -> (Outcome, usize) {
        let heap = Arc::clone(self.shared.engine.heap());
        let limits =
            Limits { body_bytes_max: self.shared.config.max_request.0 as usize, ..Limits::default() };
        let mut parser = Parser::new(limits);
        let mut ctx = Context {
            shared: &self.shared,
            engine: &self.shared.engine,
            logs: &self.shared.logs,
            writer: &mut self.writer,
            now_ms: self.now_ms,
            steady_ms: self.now_ms - START_MS,
            arrival_ns: self.now_ms * 1_000_000,
            conn: ConnId(1),
            worker: 0,
            tail: None,
            known_crc: None,
        };
        let mut reply = self.outbox.begin(&heap, self.round);
        match parser.next(chain, 0) {
            Ok(Progress::Request(request)) => {
                let outcome = self.session.execute(&mut ctx, &request, chain, &mut reply);
                if matches!(outcome, Outcome::Wait(_)) {
                    assert!(reply.is_empty(), "a request that waits leaves no trace");
                }
                reply.finish();
                (outcome, request.end)
            }
            Ok(Progress::AwaitsBody { wants_continue }) => {
                let body = AwaitedBody { wants_continue, passes: false };
                let accepted = self.session.accepts_body(&mut ctx, parser.head().unwrap(), body, &mut reply);
                assert_eq!(accepted, reply.is_empty(), "a refusal, and nothing else, is written");
                reply.finish();
                (if accepted { Outcome::Done } else { Outcome::Close }, chain.len())
            }
            Ok(Progress::NeedMore) => panic!("the test's request is incomplete"),
            Err(error) => {
                self.session.bad_request(&error, self.now_ms, &mut reply);
                reply.finish();
                (Outcome::Close, chain.len())
            }
        }
    }

    /// Calls the session's pump once.
    pub fn pump(&mut self) -> Outcome {
        let heap = Arc::clone(self.shared.engine.heap());
        let mut ctx = Context {
            shared: &self.shared,
            engine: &self.shared.engine,
            logs: &self.shared.logs,
            writer: &mut self.writer,
            now_ms: self.now_ms,
            steady_ms: self.now_ms - START_MS,
            arrival_ns: self.now_ms * 1_000_000,
            conn: ConnId(1),
            worker: 0,
            tail: None,
            known_crc: None,
        };
        let mut reply = self.outbox.begin(&heap, self.round);
        let outcome = self.session.pump(&mut ctx, &mut reply);
        reply.finish();
        outcome
    }

    /// Ends the batch: everything written so far becomes durable.
    pub fn commit(&mut self) {
        self.round += 1;
        self.writer.commit_now().unwrap();
    }

    /// Takes the replies that may be sent now.
    pub fn sent(&mut self) -> Vec<u8> {
        let heap = Arc::clone(self.shared.engine.heap());
        let mut bytes = Vec::new();
        while let Ok(Some(out)) = self.outbox.take_ready(|slot| heap.is_durable(slot)) {
            self.read(&out, &mut bytes);
            self.outbox.recycle(out);
        }
        bytes
    }

    fn read(&self, out: &Outgoing, into: &mut Vec<u8>) {
        let heap = self.shared.engine.heap();
        for part in out.parts() {
            match part {
                Part::Bytes { start, end } => {
                    into.extend_from_slice(&out.bytes[*start as usize..*end as usize])
                }
                Part::Stored(extent) => into.extend_from_slice(heap.media().bytes(*extent).unwrap()),
            }
        }
        out.stored().for_each(|extent| heap.runs().release(extent));
    }

    /// Executes one request, streams its reply, commits, and reads the one reply.
    pub fn ask(&mut self, request: &[u8]) -> Answer {
        let (mut outcome, taken) = self.execute(request);
        assert_eq!(taken, request.len(), "one request, whole");
        let mut pages = 0;
        while self.session.is_streaming() {
            outcome = self.pump();
            pages += 1;
            assert!(pages < 100_000, "the stream ends");
        }
        self.commit();
        let bytes = self.sent();
        assert!(self.outbox.is_empty());
        let (mut answer, rest) = Answer::parse(&bytes, request.starts_with(b"HEAD"));
        assert!(rest.is_empty(), "one reply: {:?} follows", rest.escape_ascii().to_string());
        answer.closes = outcome == Outcome::Close;
        answer.pages = pages;
        answer
    }

    /// Sends a request without a body.
    pub fn get(&mut self, target: &str) -> Answer {
        self.ask(&request("GET", target, "", b""))
    }

    pub fn put(&mut self, target: &str, body: &[u8]) -> Answer {
        self.ask(&request("PUT", target, "", body))
    }

    pub fn with_fields(&mut self, method: &str, target: &str, fields: &str, body: &[u8]) -> Answer {
        self.ask(&request(method, target, fields, body))
    }

    pub fn copied(&self, path: CopyPath) -> u64 {
        self.shared.engine.heap().copies.get(path)
    }
}

/// A request as a client sends it. `fields` are whole lines.
pub fn request(method: &str, target: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = match (method, body) {
        ("GET" | "HEAD" | "DELETE" | "OPTIONS", []) => String::new(),
        _ => format!("Content-Length: {}\r\n", body.len()),
    };
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n{fields}{length}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A reply as a client parses it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The connection is closed after the reply.
    pub closes: bool,
    /// The chunked body ended with its last chunk.
    pub complete: bool,
    /// Number of pages.
    pub pages: usize,
}

impl Answer {
    /// Parses a reply strictly; also returns the bytes behind it.
    pub fn parse(bytes: &[u8], is_head: bool) -> (Self, &[u8]) {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a whole head") + 4;
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").unwrap();
        let field = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        };
        let mut answer = Self {
            status: status[..3].parse().unwrap(),
            fields: lines.map(field).collect(),
            body: Vec::new(),
            closes: false,
            complete: true,
            pages: 0,
        };
        let rest = answer.read_body(&bytes[end..], is_head);
        (answer, rest)
    }

    fn read_body<'a>(&mut self, bytes: &'a [u8], is_head: bool) -> &'a [u8] {
        if is_head || matches!(self.status, 100..=199 | 204 | 304) {
            assert!(self.status == 200 || is_head || self.field("content-length").is_none());
            return bytes;
        }
        if self.field("transfer-encoding").as_deref() == Some("chunked") {
            return self.read_chunks(bytes);
        }
        let Some(len) = self.field("content-length") else {
            self.body = bytes.to_vec();
            return &[];
        };
        let (body, rest) = bytes.split_at(len.parse().unwrap());
        self.body = body.to_vec();
        rest
    }

    fn read_chunks<'a>(&mut self, mut rest: &'a [u8]) -> &'a [u8] {
        loop {
            if rest.is_empty() {
                self.complete = false;
                return rest;
            }
            let line = rest.windows(2).position(|window| window == b"\r\n").unwrap();
            let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            let chunk = &rest[line + 2..];
            assert_eq!(&chunk[len..len + 2], b"\r\n", "a chunk ends where it says");
            self.body.extend_from_slice(&chunk[..len]);
            rest = &chunk[len + 2..];
            if len == 0 {
                return rest;
            }
        }
    }

    pub fn field(&self, name: &str) -> Option<String> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn etag(&self) -> String {
        self.field("etag").expect("an ETag")
    }
}

/// A configuration with a password.
pub fn guarded(password: &str) -> Config {
    Config { password: Some(password.into()), ..Config::default() }
}

/// A configuration with a small limit on bodies.
pub fn limited(max_request: u64) -> Config {
    Config { max_request: Size(max_request), ..Config::default() }
}
