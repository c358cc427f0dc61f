//! The attacks on the server.

use super::client::{Resp, Workload, encode};
use super::server::Server;
use crate::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long an attacker waits for the server before it checks whether it should continue.
const PATIENCE: Duration = Duration::from_millis(200);
/// Connections with half a request each.
const HALVES: usize = 1800;
/// Number of concurrent uploads, and the length of each, bytes.
const UPLOADS: usize = 6;
const UPLOAD_LEN: usize = 10_000_000;
/// Length of the value that is read slowly, bytes, and how many of them are read in a second.
const SLOW_LEN: usize = 16 << 20;
const SLOW_RATE: usize = 1 << 20;
/// Length of the values that fill the region, bytes, and how many commands are pipelined.
const SMALL_LEN: usize = 100;
const PIPELINE: usize = 100;

/// The server's addresses.
pub(super) struct Target {
    resp: SocketAddr,
    http: SocketAddr,
    /// Number of keys that fill the region.
    filled: AtomicU64,
}

impl Target {
    pub(super) fn new(server: &Server) -> Self {
        Self { resp: server.resp, http: server.http, filled: AtomicU64::new(0) }
    }
}

/// What the attacker did, and the failures that it saw.
type Report = (String, Vec<String>);

/// Prepares the server for an attack.
type Prepare = fn(&Target) -> Result<(), Error>;

/// One attack.
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// The workload of the well-behaved client meanwhile.
    pub(super) witness: Workload,
    /// Runs before anything is measured.
    pub(super) prepare: Option<Prepare>,
    /// Attacks while the first flag is set, until the second one is set.
    pub(super) run: fn(&Target, &AtomicBool, &AtomicBool) -> Report,
}

/// All attacks, in order.
pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "empty-paced", witness: Workload::WritesAndReads, prepare: None, run: empty_paced },
    Attack { name: "empty-flood", witness: Workload::WritesAndReads, prepare: None, run: empty_flood },
    Attack { name: "uploads", witness: Workload::WritesAndReads, prepare: None, run: uploads },
    Attack { name: "half-requests", witness: Workload::WritesAndReads, prepare: None, run: half_requests },
    Attack {
        name: "slow-reader",
        witness: Workload::WritesAndReads,
        prepare: Some(store_long),
        run: slow_reader,
    },
    Attack { name: "full-deletes", witness: Workload::Reads, prepare: Some(fill), run: full_deletes },
];

fn is_up(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Acquire)
}

/// Calls `once` repeatedly while the attack is on. `once` returns when the attack is off, or when the server has closed
/// the connection.
fn while_on(on: &AtomicBool, over: &AtomicBool, mut once: impl FnMut() -> io::Result<()>) {
    while !is_up(over) {
        if !is_up(on) {
            std::thread::sleep(Duration::from_millis(1));
        } else if once().is_err() {
            // The server refused or closed the connection, as it should. Try again after a pause.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Empty commands in both forms: inline and array.
fn empty_commands(len: usize) -> Vec<u8> {
    b"\r\n*0\r\n".repeat(len / 6)
}

/// Empty commands without the password, one megabyte a second.
fn empty_paced(target: &Target, on: &AtomicBool, over: &AtomicBool) -> Report {
    let bytes = empty_commands(10_000);
    empty(target, on, over, &bytes, Duration::from_millis(10))
}

/// Empty commands without the password, as many as the server takes.
fn empty_flood(target: &Target, on: &AtomicBool, over: &AtomicBool) -> Report {
    let bytes = empty_commands(256 << 10);
    empty(target, on, over, &bytes, Duration::ZERO)
}

fn empty(target: &Target, on: &AtomicBool, over: &AtomicBool, bytes: &[u8], pause: Duration) -> Report {
    let (mut sent, mut connections) = (0_u64, 0_u64);
    while_on(on, over, || {
        let mut stream = dial(target.resp)?;
        connections += 1;
        while is_up(on) {
            sent += stream.write(bytes)? as u64;
            std::thread::sleep(pause);
        }
        Ok(())
    });
    (format!("{} MB over {connections} connections", sent / 1_000_000), Vec::new())
}

/// Bodies of ten megabytes without the password.
fn uploads(target: &Target, on: &AtomicBool, over: &AtomicBool) -> Report {
    let head = format!("PUT /kv/upload HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD_LEN}\r\n\r\n");
    let body = vec![b'x'; UPLOAD_LEN];
    let upload = || {
        let mut begun = 0_u64;
        while_on(on, over, || {
            let mut stream = dial(target.http)?;
            begun += 1;
            stream.write_all(head.as_bytes())?;
            // One byte is missing, so that the request never ends.
            stream.write_all(&body[1..])?;
            while is_up(on) {
                std::thread::sleep(PATIENCE);
            }
            Ok(())
        });
        begun
    };
    let begun: u64 = std::thread::scope(|threads| {
        let all: Vec<_> = (0..UPLOADS).map(|_| threads.spawn(upload)).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    });
    (format!("{begun} uploads"), Vec::new())
}

/// Connections that send the greater part of a request and stop, alternately with and without the password.
fn half_requests(target: &Target, on: &AtomicBool, over: &AtomicBool) -> Report {
    let mut half = b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$100000\r\n".to_vec();
    half.extend_from_slice(&[b'x'; 60_000]);
    let mut begun = 0_u64;
    while_on(on, over, || {
        let mut kept = Vec::new();
        while is_up(on) {
            if kept.len() == HALVES {
                kept.iter_mut().for_each(|stream: &mut TcpStream| drop(stream.write(b"x")));
                std::thread::sleep(PATIENCE);
                continue;
            }
            let mut stream = dial(target.resp)?;
            begun += 1;
            if kept.len() % 4 != 0 {
                stream.write_all(&encode(&[b"AUTH", super::server::PASSWORD.as_bytes()]))?;
            }
            let _ = stream.write(&half);
            kept.push(stream);
        }
        Ok(())
    });
    (format!("{begun} half requests"), Vec::new())
}

/// Stores the value that is read slowly.
fn store_long(target: &Target) -> Result<(), Error> {
    let failed = |source| Error::Environment { attempt: "store a long value".into(), source };
    let value = vec![b'l'; SLOW_LEN];
    let mut resp = Resp::connect(target.resp).map_err(failed)?;
    resp.call(&encode(&[b"SET", b"long", &value])).map(drop).map_err(failed)
}

/// A client with the password that reads a long value again and again, a megabyte a second. The server may not close
/// its connection.
fn slow_reader(target: &Target, on: &AtomicBool, over: &AtomicBool) -> Report {
    let (mut read, mut failures) = (0, Vec::new());
    let mut reader = match Resp::connect(target.resp) {
        Ok(reader) => reader,
        Err(error) => return (String::new(), vec![format!("the slow reader: {error}")]),
    };
    let mut buffer = vec![0; 64 << 10];
    let (mut left, reply) = (0, format!("${SLOW_LEN}\r\n").len() + SLOW_LEN + 2);
    while !is_up(over) && failures.is_empty() {
        if !is_up(on) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let outcome = take_some(&mut reader, &mut buffer, &mut left, reply);
        match outcome {
            Ok(len) => read += len,
            Err(error) => failures.push(format!("the slow reader after {read} bytes: {error}")),
        }
        std::thread::sleep(Duration::from_secs_f64(buffer.len() as f64 / SLOW_RATE as f64));
    }
    (format!("{} MB read", read / 1_000_000), failures)
}

fn take_some(reader: &mut Resp, buffer: &mut [u8], left: &mut usize, reply: usize) -> io::Result<usize> {
    if *left == 0 {
        reader.send(&encode(&[b"GET", b"long"]))?;
        *left = reply;
    }
    let most = buffer.len().min(*left);
    let len = reader.stream().read(&mut buffer[..most])?;
    if len == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    *left -= len;
    Ok(len)
}

/// Fills the region with small values until it is full.
fn fill(target: &Target) -> Result<(), Error> {
    let failed = |source| Error::Environment { attempt: "fill the region".into(), source };
    let mut resp = Resp::connect(target.resp).map_err(failed)?;
    let filled = fill_with(&mut resp).map_err(failed)?;
    target.filled.store(filled, Ordering::Relaxed);
    Ok(())
}

/// Sets keys until the region is full. Returns how many there are.
fn fill_with(resp: &mut Resp) -> io::Result<u64> {
    let (value, mut stored) = ([b'f'; SMALL_LEN], 0);
    loop {
        let batch: Vec<u8> = (stored..stored + PIPELINE as u64)
            .flat_map(|key| encode(&[b"SET", format!("fill:{key}").as_bytes(), &value]))
            .collect();
        resp.send(&batch)?;
        let mut is_full = false;
        for _ in 0..PIPELINE {
            match resp.read() {
                Ok(_) => stored += 1,
                Err(error) if error.to_string().starts_with("OOM") => is_full = true,
                Err(error) => return Err(error),
            }
        }
        if is_full {
            return Ok(stored);
        }
    }
}

/// Deletes keys in batches of a hundred, in scattered order, with an occasional write, on a full region until it is
/// empty; then fills it again. No delete may be refused.
fn full_deletes(target: &Target, on: &AtomicBool, over: &AtomicBool) -> Report {
    let (mut deleted, mut failures) = (0_u64, Vec::new());
    let mut left = Left { stored: target.filled.load(Ordering::Relaxed), next: 0 };
    while !is_up(over) && failures.len() < 10 {
        if !is_up(on) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        if let Err(error) = delete_some(target, on, &mut left, &mut deleted) {
            failures.push(format!("deletes on a full region: {error}"));
        }
    }
    (format!("{deleted} deletes"), failures)
}

/// The keys that have not been deleted yet.
struct Left {
    stored: u64,
    next: u64,
}

impl Left {
    /// The next key, far from the one before.
    fn take(&mut self) -> u64 {
        self.next += 1;
        // The step is a prime, so that every key is visited once.
        (self.next * 1_000_003) % self.stored.max(1)
    }
}

fn delete_some(target: &Target, on: &AtomicBool, left: &mut Left, deleted: &mut u64) -> io::Result<()> {
    let mut resp = Resp::connect(target.resp)?;
    while is_up(on) {
        if left.next >= left.stored {
            *left = Left { stored: fill_with(&mut resp)?, next: 0 };
        }
        let mut batch: Vec<u8> = (0..PIPELINE)
            .flat_map(|_| encode(&[b"DEL", format!("fill:{}", left.take()).as_bytes()]))
            .collect();
        batch.extend(encode(&[b"SET", b"fill:now-and-then", &[b'f'; SMALL_LEN]]));
        resp.send(&batch)?;
        for _ in 0..PIPELINE {
            *deleted += u64::from(resp.read()? == b"1");
        }
        // The write may be refused, since the region is full.
        let _ = resp.read();
    }
    Ok(())
}
