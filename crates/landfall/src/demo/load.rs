//! The load of one client: all kinds of writes over RESP and HTTP. Each write is recorded before it is sent.

use super::model::{CHUNK_LEN, Kind, State, Unit, chunks};
use super::payload;
use super::rng::Rng;
use super::wire::{Http, Reply, Resp};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Numbers of small and large plain units, groups and logs of one client.
const SMALL_UNITS: usize = 96;
const LARGE_UNITS: usize = 4;
const GROUP_UNITS: usize = 4;
const LOG_UNITS: usize = 2;
/// Keys of a group.
const GROUP_KEYS: usize = 6;
/// Longest small and large values, bytes.
const SMALL_LEN_MAX: u64 = 8 << 10;
const LARGE_LEN_MAX: u64 = 300 << 10;
/// Chunks after which a log is deleted and started again.
const CHUNKS_MAX: u64 = 200;
/// Writes sent at once, at most.
const PIPELINE_MAX: u64 = 16;
/// Time limit of a reply.
const REPLY_MAX: Duration = Duration::from_secs(20);
/// Pause after the server has refused a write for lack of space.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// Descriptions of unexpected replies that are kept, at most.
const FAILURES_MAX: usize = 16;

/// A client: its units, its operation counter, and its results.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) units: Vec<Unit>,
    rng: Rng,
    op: u64,
    /// When the oldest unanswered write was sent.
    pub(crate) sent_ms: u64,
    /// Acknowledged writes.
    pub(crate) acked: u64,
    /// Sent writes.
    pub(crate) sent: u64,
    /// Writes refused for lack of space.
    pub(crate) refused: u64,
    /// Unexpected replies.
    pub(crate) failures: Vec<String>,
}

/// A write in flight: its unit, its operation, and the reply that it expects.
struct InFlight {
    unit: usize,
    op: u64,
    expected: Expected,
}

#[derive(Clone, Copy)]
enum Expected {
    /// `+OK`
    Ok,
    /// An integer: the number of deleted keys.
    Deleted,
    /// An integer: the new length.
    Length(usize),
    /// The array of `EXEC`, after this many replies `+OK` and `+QUEUED`.
    Exec(usize),
}

impl Client {
    /// Client `number` of the demonstration.
    pub(crate) fn new(number: usize, seed: u64) -> Self {
        let mut units = Vec::new();
        let mut add = |kind, count: usize, letter: &str| {
            units.extend((0..count).map(|index| Unit::new(kind, &format!("c{number}:{letter}{index}"))));
        };
        add(Kind::Plain, SMALL_UNITS, "s");
        add(Kind::Plain, LARGE_UNITS, "l");
        add(Kind::Group(GROUP_KEYS), GROUP_UNITS, "g");
        add(Kind::Log, LOG_UNITS, "a");
        add(Kind::Tied, 1, "t");
        let rng = Rng::new(seed ^ (number as u64 + 1).wrapping_mul(0x5851_f42d_4c95_7f2d));
        Self { units, rng, op: 0, sent_ms: 0, acked: 0, sent: 0, refused: 0, failures: Vec::new() }
    }

    /// Writes until the server ends or `over` is set.
    pub(crate) fn run(&mut self, resp: SocketAddr, http: SocketAddr, over: &AtomicBool) {
        // Any error on the connections is the crash that the demonstration causes.
        let _ = self.try_run(resp, http, over);
        let now_ms = now_ms();
        let sent_ms = self.sent_ms;
        self.units.iter_mut().for_each(|unit| unit.close(now_ms, sent_ms));
    }

    fn try_run(&mut self, resp: SocketAddr, http: SocketAddr, over: &AtomicBool) -> io::Result<()> {
        let mut resp = Resp::connect(resp, REPLY_MAX)?;
        let mut http = Http::connect(http, REPLY_MAX)?;
        while !over.load(Ordering::Relaxed) {
            if self.rng.chance(12) {
                self.write_http(&mut http)?;
            } else {
                let count = if self.rng.chance(50) { 1 } else { self.rng.between(2, PIPELINE_MAX) };
                self.write_resp(&mut resp, count)?;
            }
        }
        Ok(())
    }

    fn next_op(&mut self) -> u64 {
        self.op += 1;
        self.sent += 1;
        self.op
    }

    fn note(&mut self, unit: usize, state: State) -> u64 {
        let op = self.next_op();
        self.units[unit].attempt(op, state);
        op
    }

    // ---- RESP ----

    /// Sends `count` writes at once, then reads their replies.
    fn write_resp(&mut self, resp: &mut Resp, count: u64) -> io::Result<()> {
        self.sent_ms = now_ms();
        let flying: Vec<InFlight> = (0..count).map(|_| self.push_one(resp)).collect();
        resp.flush()?;
        let mut refused = false;
        for write in &flying {
            refused |= self.take_reply(resp, write)?;
        }
        if refused {
            std::thread::sleep(FULL_PAUSE);
        }
        Ok(())
    }

    fn push_one(&mut self, resp: &mut Resp) -> InFlight {
        let unit = self.rng.below(self.units.len() as u64) as usize;
        match self.units[unit].kind {
            Kind::Plain => self.push_plain(resp, unit),
            Kind::Group(_) => self.push_group(resp, unit),
            Kind::Tied => self.push_tied(resp, unit),
            Kind::Log => self.push_log(resp, unit),
        }
    }

    fn push_plain(&mut self, resp: &mut Resp, unit: usize) -> InFlight {
        let key = self.units[unit].keys[0].clone();
        if self.rng.chance(15) {
            let op = self.note(unit, State::Absent);
            resp.push(&[b"DEL", key.as_bytes()]);
            return InFlight { unit, op, expected: Expected::Deleted };
        }
        let len = self.length(unit);
        if self.rng.chance(10) {
            let px = self.rng.between(20, 400);
            let op =
                self.note(unit, State::Expiring { len, earliest_ms: self.sent_ms + px, latest_ms: u64::MAX });
            let value = payload::make(&key, op, len);
            resp.push(&[b"SET", key.as_bytes(), &value, b"PX", px.to_string().as_bytes()]);
            return InFlight { unit, op, expected: Expected::Ok };
        }
        let op = self.note(unit, State::Value { len });
        resp.push(&[b"SET", key.as_bytes(), &payload::make(&key, op, len)]);
        InFlight { unit, op, expected: Expected::Ok }
    }

    /// A random length of any order of magnitude: empty, inline, less than a packet, some frames, many runs of frames.
    fn length(&mut self, unit: usize) -> usize {
        if unit >= SMALL_UNITS {
            return self.rng.between(16 << 10, LARGE_LEN_MAX) as usize;
        }
        let len = match self.rng.below(10) {
            0 => self.rng.between(0, 2),
            1..=3 => self.rng.between(0, 100),
            4..=7 => self.rng.between(100, 2000),
            _ => self.rng.between(2000, SMALL_LEN_MAX),
        };
        len as usize
    }

    fn push_group(&mut self, resp: &mut Resp, unit: usize) -> InFlight {
        let keys = self.units[unit].keys.clone();
        if self.rng.chance(20) {
            let op = self.note(unit, State::Absent);
            resp.push(&[b"MULTI"]);
            keys.iter().for_each(|key| resp.push(&[b"DEL", key.as_bytes()]));
            resp.push(&[b"EXEC"]);
            return InFlight { unit, op, expected: Expected::Exec(keys.len() + 1) };
        }
        let len = self.rng.between(0, 1500) as usize;
        let op = self.note(unit, State::Value { len });
        let values: Vec<Vec<u8>> = keys.iter().map(|key| payload::make(key, op, len)).collect();
        let pairs = keys.iter().zip(&values);
        if self.rng.chance(30) {
            resp.push(&[b"MULTI"]);
            pairs.for_each(|(key, value)| resp.push(&[b"SET", key.as_bytes(), value]));
            resp.push(&[b"EXEC"]);
            return InFlight { unit, op, expected: Expected::Exec(keys.len() + 1) };
        }
        let mut parts: Vec<&[u8]> = vec![b"MSET"];
        pairs.for_each(|(key, value)| parts.extend([key.as_bytes(), value.as_slice()]));
        resp.push(&parts);
        InFlight { unit, op, expected: Expected::Ok }
    }

    fn push_tied(&mut self, resp: &mut Resp, unit: usize) -> InFlight {
        let count = match self.units[unit].latest().state {
            State::Count { count, .. } => count + 1,
            _ => 1,
        };
        let len = self.rng.between(0, 3000) as usize;
        let op = self.note(unit, State::Count { count, len });
        let keys = self.units[unit].keys.clone();
        resp.push(&[b"MULTI"]);
        resp.push(&[b"INCR", keys[0].as_bytes()]);
        resp.push(&[b"SET", keys[1].as_bytes(), &payload::make(&keys[1], count, len)]);
        resp.push(&[b"EXEC"]);
        InFlight { unit, op, expected: Expected::Exec(3) }
    }

    fn push_log(&mut self, resp: &mut Resp, unit: usize) -> InFlight {
        let key = self.units[unit].keys[0].clone();
        let count = match self.units[unit].latest().state {
            State::Chunks { count } => count,
            _ => 0,
        };
        if count >= CHUNKS_MAX {
            let op = self.note(unit, State::Absent);
            resp.push(&[b"DEL", key.as_bytes()]);
            return InFlight { unit, op, expected: Expected::Deleted };
        }
        let op = self.note(unit, State::Chunks { count: count + 1 });
        resp.push(&[b"APPEND", key.as_bytes(), &chunks(&key, count..count + 1)]);
        InFlight { unit, op, expected: Expected::Length((count as usize + 1) * CHUNK_LEN) }
    }

    /// Reads the replies of one write; true if it was refused for lack of space.
    fn take_reply(&mut self, resp: &mut Resp, write: &InFlight) -> io::Result<bool> {
        if let Expected::Exec(before) = write.expected {
            for _ in 0..before {
                let reply = resp.read()?;
                if !matches!(&reply, Reply::Simple(text) if text == "OK" || text == "QUEUED") {
                    self.fail(&reply);
                }
            }
        }
        let reply = resp.read()?;
        let well = match (write.expected, &reply) {
            (Expected::Ok, Reply::Simple(text)) => text == "OK",
            (Expected::Deleted, Reply::Int(count)) => (0..=1).contains(count),
            (Expected::Length(len), Reply::Int(got)) => usize::try_from(*got) == Ok(len),
            (Expected::Exec(_), Reply::Array(items)) => {
                !items.iter().any(|item| matches!(item, Reply::Error(_)))
            }
            _ => false,
        };
        Ok(self.conclude(write.unit, write.op, well, &reply))
    }

    fn conclude(&mut self, unit: usize, op: u64, well: bool, reply: &Reply) -> bool {
        if well {
            self.acked += 1;
            self.units[unit].ack(op, now_ms().saturating_sub(self.sent_ms));
            return false;
        }
        let full =
            matches!(reply, Reply::Error(text) if text.starts_with("OOM") || text.starts_with("EXECABORT"));
        if full {
            self.refused += 1;
            self.refuse(unit, op);
        } else {
            self.fail(reply);
            self.units[unit].faulty = true;
        }
        full
    }

    /// A refused write changed nothing. Later writes that were sent and depend on it are not checked any more.
    fn refuse(&mut self, unit: usize, op: u64) {
        self.units[unit].refuse(op);
        let built_upon = matches!(self.units[unit].kind, Kind::Tied | Kind::Log);
        if built_upon && self.units[unit].tries.iter().any(|attempt| attempt.op > op) {
            self.units[unit].faulty = true;
        }
    }

    fn fail(&mut self, reply: &Reply) {
        if self.failures.len() < FAILURES_MAX {
            let mut text = format!("unexpected reply: {reply:?}");
            text.truncate(200);
            self.failures.push(text);
        }
    }

    // ---- HTTP ----

    fn write_http(&mut self, http: &mut Http) -> io::Result<()> {
        self.sent_ms = now_ms();
        let unit = self.rng.below((SMALL_UNITS + LARGE_UNITS) as u64) as usize;
        let path = path(&self.units[unit].keys[0]);
        if self.rng.chance(15) {
            let op = self.note(unit, State::Absent);
            let response = http.call("DELETE", &path, "", b"")?;
            self.conclude_http(unit, op, matches!(response.status, 204 | 404), response.status);
            return Ok(());
        }
        let len = self.length(unit);
        let ttl = self.rng.chance(10).then(|| self.rng.between(20, 400));
        let state = match ttl {
            Some(ttl) => State::Expiring { len, earliest_ms: self.sent_ms + ttl, latest_ms: u64::MAX },
            None => State::Value { len },
        };
        let op = self.note(unit, state);
        let header = ttl.map_or_else(String::new, |ttl| format!("X-Landfall-TTL: {ttl}ms\r\n"));
        let value = payload::make(&self.units[unit].keys[0], op, len);
        let response = http.call("PUT", &path, &header, &value)?;
        self.conclude_http(unit, op, matches!(response.status, 201 | 204), response.status);
        Ok(())
    }

    fn conclude_http(&mut self, unit: usize, op: u64, well: bool, status: u16) {
        let reply = if status == 507 { "OOM" } else { "an HTTP status" };
        if self.conclude(unit, op, well, &Reply::Error(format!("{reply} {status}"))) {
            std::thread::sleep(FULL_PAUSE);
        }
    }
}

/// The HTTP resource of a key.
pub(crate) fn path(key: &str) -> String {
    format!("/kv/{key}")
}

/// The current time, Unix milliseconds: the clock of the server's expiry.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
