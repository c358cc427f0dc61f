//! Measures the upper bound of a server on this crate: answers `SET`s of a fixed size and stores nothing.
//!
//! ```text
//! cargo run --release -p landfall-sockets --example echo_bench -- uring 7001 60 80 50 &
//! redis-benchmark -p 7001 -t set -d 1024 -n 300000 -c 50 [-P 16]
//! ```
//!
//! Arguments: transport (`uring`, `epoll`), port on loopback, run time in seconds, linger in microseconds (0: never),
//! percentage of the connections to linger for. Whenever all clients have left, one line reports the requests, the CPU
//! time of this thread per request, and the polls per request.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use landfall_media::{Extent, RUN_SIZE};
use landfall_sockets::{ConnId, Event, Frames, Outgoing, Transport, TransportRequest, Wait, open};
use std::collections::HashMap;
use std::error::Error;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Length of one request of `redis-benchmark -t set -d 1024`, bytes.
const REQUEST_LEN: usize = 1069;
/// Runs of the region.
const RUNS: usize = 16;
/// Turns without lingering after a linger that gathered too few events, at most.
const LINGER_PENALTY_MAX: u32 = 64;

/// Runs in ordinary memory; a run becomes free when it is retired and nothing in it is held.
struct Runs {
    memory: Vec<AtomicU8>,
    base: usize,
    held: [u64; RUNS],
    lent: [bool; RUNS],
}

impl Runs {
    fn new() -> Self {
        let run = RUN_SIZE as usize;
        let memory: Vec<_> = (0..(RUNS + 1) * run).map(|_| AtomicU8::new(0)).collect();
        let base = memory.as_ptr().expose_provenance().next_multiple_of(run);
        Self { memory, base, held: [0; RUNS], lent: [false; RUNS] }
    }

    fn byte(&self, off: u64) -> u8 {
        let skip = self.base - self.memory.as_ptr().addr();
        self.memory[skip + off as usize].load(Ordering::Relaxed)
    }
}

impl Frames for Runs {
    fn take_run(&mut self) -> Option<u64> {
        let run = (0..RUNS).find(|run| !self.lent[*run] && self.held[*run] == 0)?;
        self.lent[run] = true;
        Some(run as u64 * RUN_SIZE)
    }
    fn retire_run(&mut self, run_off: u64) {
        self.lent[(run_off / RUN_SIZE) as usize] = false;
    }
    fn hold(&mut self, extent: Extent) {
        self.held[(extent.off / RUN_SIZE) as usize] += 1;
    }
    fn release(&mut self, extent: Extent) {
        self.held[(extent.off / RUN_SIZE) as usize] -= 1;
    }
}

#[derive(Default)]
struct Client {
    received: usize,
    replies_due: usize,
    spare: Option<Outgoing>,
    sending: bool,
    eof: bool,
}

/// When to linger: for a share of the connections, unless lingering was of no use lately.
struct Policy {
    linger: Duration,
    percent: usize,
    skip: u32,
    penalty: u32,
}

impl Policy {
    fn wait(&mut self, conns: usize) -> Wait {
        let events = u32::try_from(conns * self.percent / 100).unwrap_or(u32::MAX);
        let lingers = events > 1 && self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        let events_min = if lingers { events } else { 1 };
        Wait { timeout: Some(Duration::from_millis(200)), events_min, linger: self.linger }
    }

    fn learn(&mut self, wait: Wait, received: u32) {
        if wait.events_min > 1 && received < wait.events_min / 2 {
            self.penalty = (self.penalty * 2).clamp(1, LINGER_PENALTY_MAX);
            self.skip = self.penalty;
        } else if wait.events_min > 1 {
            self.penalty = 0;
        }
    }
}

struct Server {
    transport: Box<dyn Transport>,
    runs: Runs,
    clients: HashMap<ConnId, Client>,
    touched: Vec<ConnId>,
    policy: Policy,
    requests: u64,
    polls: u64,
    cpu_before: Duration,
}

impl Server {
    fn turn(&mut self, events: &mut Vec<Event>) -> Result<(), Box<dyn Error>> {
        let wait = self.policy.wait(self.clients.len());
        self.transport.poll(&mut self.runs, wait, events)?;
        self.polls += 1;
        let mut received = 0;
        for event in events.drain(..) {
            received += u32::from(matches!(event, Event::Received { .. }));
            self.handle(event);
        }
        self.policy.learn(wait, received);
        while let Some(conn) = self.touched.pop() {
            self.reply(conn);
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, .. } => {
                self.clients.insert(conn, Client::default());
            }
            Event::Received { conn, extent, .. } => self.receive(conn, extent),
            Event::Sent { conn, buffers } => {
                if let Some(client) = self.clients.get_mut(&conn) {
                    client.sending = false;
                    client.spare = Some(buffers);
                    self.touched.push(conn);
                }
            }
            Event::Eof { conn } => {
                self.clients.entry(conn).or_default().eof = true;
                self.touched.push(conn);
            }
            Event::Closed { conn, .. } => {
                self.clients.remove(&conn);
                if self.clients.is_empty() {
                    self.report();
                }
            }
            Event::WrittenBack { .. } | Event::Woken | Event::Starved => {}
        }
    }

    fn receive(&mut self, conn: ConnId, extent: Extent) {
        let client = self.clients.entry(conn).or_default();
        // A SET begins with `*3\r\n$3`; the CONFIGs that a client sends first begin with `*3\r\n$6`.
        if client.received == 0 && extent.len() > 6 && self.runs.byte(extent.off + 5) == b'6' {
            client.replies_due = 2;
        } else {
            client.received += extent.len() as usize;
            client.replies_due += client.received / REQUEST_LEN;
            self.requests += (client.received / REQUEST_LEN) as u64;
            client.received %= REQUEST_LEN;
        }
        self.runs.release(extent);
        self.touched.push(conn);
    }

    fn reply(&mut self, conn: ConnId) {
        let Some(client) = self.clients.get_mut(&conn) else { return };
        if client.sending {
            return;
        }
        if client.replies_due > 0 {
            let mut out = client.spare.take().unwrap_or_default();
            (0..client.replies_due).for_each(|_| out.bytes.extend_from_slice(b"+OK\r\n"));
            out.seal_bytes();
            (client.replies_due, client.sending) = (0, true);
            self.transport.send(&mut self.runs, conn, out);
        } else if client.eof {
            self.transport.close(&mut self.runs, conn);
        }
    }

    fn report(&mut self) {
        let cpu = cpu_time();
        if self.requests > 1000 {
            let per_request = (cpu - self.cpu_before).as_secs_f64() * 1e6 / self.requests as f64;
            let polls = self.polls as f64 / self.requests as f64;
            println!("{} requests, {per_request:.2} us CPU and {polls:.3} polls each", self.requests);
        }
        (self.requests, self.polls, self.cpu_before) = (0, 0, cpu);
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |index: usize, default: u64| args.get(index).map_or(Ok(default), |arg| arg.parse());
    let epoll = args.first().is_some_and(|name| name == "epoll");
    let request = if epoll { TransportRequest::Epoll } else { TransportRequest::Uring };
    let runs = Runs::new();
    let mut opened = open(request, (runs.base, RUNS as u64 * RUN_SIZE))?;
    println!("{}", opened.reason);
    let port = u16::try_from(arg(1, 7001)?)?;
    opened.transport.listen(TcpListener::bind(("127.0.0.1", port))?, 0)?;
    let until = Instant::now() + Duration::from_secs(arg(2, 60)?);
    let (linger, percent) = (Duration::from_micros(arg(3, 80)?), arg(4, 50)? as usize);
    let mut server = Server {
        transport: opened.transport,
        runs,
        clients: HashMap::new(),
        touched: Vec::new(),
        policy: Policy { linger, percent, skip: 0, penalty: 0 },
        requests: 0,
        polls: 0,
        cpu_before: cpu_time(),
    };
    let mut events = Vec::new();
    while Instant::now() < until {
        server.turn(&mut events)?;
    }
    server.transport.shut_down(&mut server.runs)?;
    Ok(())
}
