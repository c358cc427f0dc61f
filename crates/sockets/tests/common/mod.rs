//! A fake heap in ordinary memory that checks how a transport uses it, and a server loop around it.
#![allow(dead_code, reason = "each test file uses its own part")]

use landfall_media::{Extent, FileWrite, RUN_SIZE};
use landfall_sockets::{
    ConnId, Event, Frames, Outgoing, Transport, TransportError, TransportRequest, Wait, open,
};
use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Longest time that a test waits for one expectation.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Declares each named test function for both transports.
#[macro_export]
macro_rules! on_both_transports {
    ($($name:ident),+ $(,)?) => {
        mod uring {
            $(#[test] fn $name() { $crate::common::with_uring(super::$name); })+
        }
        mod epoll {
            $(#[test] fn $name() { super::$name(landfall_sockets::TransportRequest::Epoll); })+
        }
    };
}

/// Runs a test on io_uring, or reports why that is not possible.
pub(crate) fn with_uring(test: fn(TransportRequest)) {
    let frames = FakeFrames::new(1);
    match open(TransportRequest::Uring, frames.image()) {
        Ok(_) => test(TransportRequest::Uring),
        Err(error) => skip(&error.to_string()),
    }
}

/// Reports that a test cannot run here.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

/// A region of runs in ordinary memory, its free list and its holds.
///
/// Bytes are atomics, because the kernel writes them without the compiler's knowledge.
pub(crate) struct FakeFrames {
    memory: Vec<AtomicU8>,
    base: usize,
    len: u64,
    pub(crate) free: Vec<u64>,
    /// Runs lent to the transport, and how far each is filled.
    lent: BTreeMap<u64, u64>,
    holds: HashMap<Extent, usize>,
    pub(crate) runs_taken: usize,
}

impl FakeFrames {
    pub(crate) fn new(runs: u64) -> Self {
        let len = runs * RUN_SIZE;
        let run = usize::try_from(RUN_SIZE).unwrap();
        let memory: Vec<AtomicU8> =
            (0..usize::try_from(len).unwrap() + run).map(|_| AtomicU8::new(0)).collect();
        let base = memory.as_ptr().expose_provenance().next_multiple_of(run);
        let free = (0..runs).rev().map(|run| run * RUN_SIZE).collect();
        Self { memory, base, len, free, lent: BTreeMap::new(), holds: HashMap::new(), runs_taken: 0 }
    }

    pub(crate) fn image(&self) -> (usize, u64) {
        (self.base, self.len)
    }

    pub(crate) fn bytes(&self, extent: Extent) -> Vec<u8> {
        self.cells(extent).iter().map(|cell| cell.load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn store(&self, off: u64, bytes: &[u8]) {
        let cells = self.cells(Extent::new(off, u32::try_from(bytes.len()).unwrap()));
        cells.iter().zip(bytes).for_each(|(cell, byte)| cell.store(*byte, Ordering::Relaxed));
    }

    pub(crate) fn file_write(&self, off: u64, len: u32) -> FileWrite {
        FileWrite { extent: Extent::new(off, len), addr: self.base + usize::try_from(off).unwrap() }
    }

    /// Takes a free run for the test's own data.
    pub(crate) fn claim(&mut self) -> u64 {
        self.free.pop().expect("a test has enough runs")
    }

    /// Holds an extent for a reply.
    pub(crate) fn hold_stored(&mut self, extent: Extent) {
        *self.holds.entry(extent).or_default() += 1;
    }

    pub(crate) fn held(&self) -> usize {
        self.holds.values().sum()
    }

    /// Checks that the transport holds nothing and has no run.
    pub(crate) fn assert_balanced(&self) {
        assert!(self.holds.is_empty(), "never released: {:?}", self.holds);
        assert!(self.lent.is_empty(), "never retired: {:?}", self.lent);
    }

    fn cells(&self, extent: Extent) -> &[AtomicU8] {
        let skip = self.base - self.memory.as_ptr().addr();
        let start = skip + usize::try_from(extent.off).unwrap();
        &self.memory[start..start + extent.len() as usize]
    }

    fn recycle(&mut self, run_off: u64) {
        let in_run = |extent: &Extent| extent.off / RUN_SIZE * RUN_SIZE == run_off;
        let idle = !self.lent.contains_key(&run_off) && !self.holds.keys().any(in_run);
        if idle && !self.free.contains(&run_off) {
            self.free.insert(0, run_off);
        }
    }
}

impl Frames for FakeFrames {
    fn take_run(&mut self) -> Option<u64> {
        let run_off = self.free.pop()?;
        assert!(self.lent.insert(run_off, 0).is_none(), "run {run_off} is lent twice");
        self.runs_taken += 1;
        Some(run_off)
    }

    fn retire_run(&mut self, run_off: u64) {
        assert!(self.lent.remove(&run_off).is_some(), "run {run_off} is retired but was not lent");
        self.recycle(run_off);
    }

    fn hold(&mut self, extent: Extent) {
        let run_off = extent.off / RUN_SIZE * RUN_SIZE;
        let filled = self.lent.get_mut(&run_off).expect("bytes land only in lent runs");
        assert_eq!(extent.off, run_off + *filled, "bytes land behind those before, without a gap");
        *filled += u64::from(extent.len());
        assert!(!extent.is_empty() && *filled <= RUN_SIZE, "{extent:?} is empty or leaves its run");
        *self.holds.entry(extent).or_default() += 1;
    }

    fn release(&mut self, extent: Extent) {
        let count = self.holds.get_mut(&extent).unwrap_or_else(|| panic!("{extent:?} is not held"));
        *count -= 1;
        if *count == 0 {
            self.holds.remove(&extent);
            self.recycle(extent.off / RUN_SIZE * RUN_SIZE);
        }
    }
}

/// A transport, its fake heap and a listener on loopback.
pub(crate) struct Rig {
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) frames: FakeFrames,
    pub(crate) address: SocketAddr,
    events: Vec<Event>,
}

impl Rig {
    pub(crate) fn new(request: TransportRequest, runs: u64) -> Self {
        let frames = FakeFrames::new(runs);
        let opened = open(request, frames.image()).unwrap();
        let mut transport = opened.transport;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        transport.listen(listener, 7).unwrap();
        Self { transport, frames, address, events: Vec::new() }
    }

    /// Polls once for at most 5 ms.
    pub(crate) fn poll(&mut self) -> Vec<Event> {
        self.poll_for(Duration::from_millis(5))
    }

    pub(crate) fn poll_for(&mut self, timeout: Duration) -> Vec<Event> {
        let wait = Wait { timeout: Some(timeout), events_min: 1, linger: Duration::ZERO };
        self.transport.poll(&mut self.frames, wait, &mut self.events).unwrap();
        std::mem::take(&mut self.events)
    }

    /// Polls until `pick` returns a value for an event. Received bytes among the other events are released.
    pub(crate) fn expect<T>(&mut self, what: &str, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let events = self.poll();
            let picked = events.iter().find_map(&mut pick);
            self.release_received(&events);
            if let Some(picked) = picked {
                return picked;
            }
        }
        panic!("{what} did not happen within {PATIENCE:?}");
    }

    pub(crate) fn release_received(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Received { extent, .. } = event {
                self.frames.release(*extent);
            }
        }
    }

    /// Connects a client; returns both ends.
    pub(crate) fn connect(&mut self) -> (TcpStream, ConnId) {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let local = client.local_addr().unwrap();
        let conn = self.expect("accepting", |event| match event {
            Event::Accepted { conn, listener: 7, peer } if *peer == Some(local) => Some(*conn),
            _ => None,
        });
        (client, conn)
    }

    /// Receives `len` bytes of `conn`, in order, releasing them.
    pub(crate) fn receive(&mut self, conn: ConnId, len: usize) -> Vec<u8> {
        let (mut got, until) = (Vec::new(), Instant::now() + PATIENCE);
        while got.len() < len {
            assert!(Instant::now() < until, "{} of {len} bytes came within {PATIENCE:?}", got.len());
            let events = self.poll();
            for event in &events {
                match event {
                    Event::Received { conn: from, extent, .. } if *from == conn => {
                        got.extend(self.frames.bytes(*extent));
                    }
                    Event::Closed { .. } => panic!("{event:?} while receiving"),
                    _ => {}
                }
            }
            self.release_received(&events);
        }
        got
    }

    pub(crate) fn expect_closed(&mut self, conn: ConnId) -> Option<std::io::ErrorKind> {
        self.expect("closing", |event| match event {
            Event::Closed { conn: closed, error } if *closed == conn => {
                Some(error.as_ref().map(std::io::Error::kind))
            }
            _ => None,
        })
    }

    pub(crate) fn send_text(&mut self, conn: ConnId, text: &[u8]) {
        let mut out = Outgoing::new();
        out.bytes.extend_from_slice(text);
        out.seal_bytes();
        self.transport.send(&mut self.frames, conn, out);
    }

    /// Shuts the transport down and checks that it returned everything.
    pub(crate) fn finish(mut self) {
        let outcome: Result<(), TransportError> = self.transport.shut_down(&mut self.frames);
        outcome.unwrap();
        self.frames.assert_balanced();
        drop(self.transport);
    }
}

/// Sends all received data back from the frames they landed in.
#[derive(Default)]
pub(crate) struct Echo {
    conns: HashMap<ConnId, Pending>,
    pub(crate) closed: usize,
}

#[derive(Default)]
struct Pending {
    out: Outgoing,
    sending: bool,
    eof: bool,
}

impl Echo {
    /// Serves until `done`, then until all connections are closed.
    pub(crate) fn serve(&mut self, rig: &mut Rig, mut done: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !(done() && self.conns.is_empty()) {
            assert!(Instant::now() < until, "an echo took longer than {PATIENCE:?}");
            for event in rig.poll() {
                self.handle(rig, event);
            }
            self.send_pending(rig);
        }
    }

    fn handle(&mut self, rig: &mut Rig, event: Event) {
        match event {
            Event::Accepted { conn, .. } => {
                self.conns.insert(conn, Pending::default());
            }
            Event::Received { conn, extent, .. } => {
                self.conns.get_mut(&conn).unwrap().out.push_stored(extent);
            }
            Event::Sent { conn, buffers } => {
                assert!(buffers.is_empty(), "sent buffers come back empty");
                self.conns.get_mut(&conn).unwrap().sending = false;
            }
            Event::Eof { conn } => self.conns.get_mut(&conn).unwrap().eof = true,
            Event::Closed { conn, error } => {
                let pending = self.conns.remove(&conn).unwrap();
                pending.out.stored().for_each(|extent| rig.frames.release(extent));
                self.closed += 1;
                assert!(error.is_none(), "{error:?}");
            }
            Event::Starved => {}
            Event::WrittenBack { .. } | Event::Woken => panic!("{event:?} was not asked for"),
        }
    }

    fn send_pending(&mut self, rig: &mut Rig) {
        for (conn, pending) in &mut self.conns {
            if pending.sending {
                continue;
            }
            if !pending.out.is_empty() {
                pending.sending = true;
                rig.transport.send(&mut rig.frames, *conn, std::mem::take(&mut pending.out));
            } else if pending.eof {
                rig.transport.close(&mut rig.frames, *conn);
            }
        }
    }
}

/// Reproducible noise (xorshift).
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(len).collect()
    }
}
