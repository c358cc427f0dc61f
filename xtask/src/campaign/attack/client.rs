//! The well-behaved client, and what it measures.

use super::server::{PASSWORD, Server};
use crate::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// An operation that takes longer counts as hanging.
const HANGS_AFTER: Duration = Duration::from_secs(5);
/// Pause between two operations.
const PAUSE: Duration = Duration::from_micros(500);
/// Number of keys that are written and read.
const KEYS: u64 = 100;
/// Length of a value, bytes.
const VALUE_LEN: usize = 1000;
/// Maximum number of failures kept for the report.
const FAILURES_MAX: usize = 100;

/// Latencies of operations.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    all: Vec<Duration>,
}

impl Latencies {
    pub(super) fn add(&mut self, took: Duration) {
        self.all.push(took);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The time within which `percent` of a hundred operations were completed.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.all.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(index).copied().unwrap_or_default()
    }
}

/// The workload of the well-behaved client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// Alternates writes and reads.
    WritesAndReads,
    /// Reads only: the region is full, and writes are refused.
    Reads,
}

/// A minimal RESP connection: it understands lines and bulk strings.
#[derive(Debug)]
pub(super) struct Resp {
    stream: BufReader<TcpStream>,
}

impl Resp {
    /// Connects and authenticates.
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, HANGS_AFTER)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANGS_AFTER))?;
        stream.set_write_timeout(Some(HANGS_AFTER))?;
        let mut resp = Self { stream: BufReader::new(stream) };
        resp.call(&encode(&[b"AUTH", PASSWORD.as_bytes()]))?;
        Ok(resp)
    }

    /// Sends bytes unchanged.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends one command and reads its reply; an error reply is an error.
    pub(super) fn call(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        self.send(command)?;
        self.read()
    }

    /// Reads a reply: a line or a bulk string.
    pub(super) fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        let text = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        match text.split_first() {
            Some((b'$', len)) => self.read_bulk(std::str::from_utf8(len).unwrap_or_default()),
            Some((b'-', error)) => Err(io::Error::other(String::from_utf8_lossy(error).into_owned())),
            Some((_, rest)) => Ok(rest.to_vec()),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn read_bulk(&mut self, len: &str) -> io::Result<Vec<u8>> {
        if len == "-1" {
            return Ok(Vec::new());
        }
        let len: usize = len.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let mut bytes = vec![0; len + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// The stream, for callers that limit their read rate.
    pub(super) fn stream(&mut self) -> &mut impl Read {
        &mut self.stream
    }
}

/// A command's bytes.
pub(super) fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// The well-behaved client. Every operation is timed and checked.
pub(super) struct Witness {
    address: SocketAddr,
    workload: Workload,
    resp: Option<Resp>,
    operations: u64,
    failures: Vec<String>,
}

impl Witness {
    /// Connects, and stores the values that it will read.
    ///
    /// # Errors
    /// [`Error::Environment`] where that fails before the attack starts.
    pub(super) fn new(server: &Server, workload: Workload) -> Result<Self, Error> {
        let refused =
            |source| Error::Environment { attempt: "use the server before any attack".into(), source };
        let resp = Resp::connect(server.resp).map_err(refused)?;
        let mut witness =
            Self { address: server.resp, workload, resp: Some(resp), operations: 0, failures: Vec::new() };
        if workload == Workload::WritesAndReads {
            (0..KEYS).try_for_each(|key| witness.write(key)).map_err(refused)?;
        }
        Ok(witness)
    }

    /// Executes operations for `length`.
    pub(super) fn turn(&mut self, length: Duration, latencies: &mut Latencies) {
        let until = Instant::now() + length;
        while Instant::now() < until {
            let begun = Instant::now();
            match self.operate() {
                Ok(()) => latencies.add(begun.elapsed()),
                Err(error) => self.note(&error, begun.elapsed()),
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn note(&mut self, error: &io::Error, took: Duration) {
        // After an error, replies can no longer be matched to commands on this connection.
        self.resp = None;
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(format!(
                "operation {} after {} ms: {error}",
                self.operations,
                took.as_millis()
            ));
        }
    }

    /// The failures of all operations.
    pub(super) fn failures(self) -> Vec<String> {
        self.failures
    }

    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        // Scattered; each key is used equally often.
        let key = self.operations.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        match self.workload {
            Workload::WritesAndReads if self.operations.is_multiple_of(2) => self.write(key % KEYS),
            Workload::WritesAndReads => {
                let value = self.ask(&encode(&[b"GET", name(key % KEYS).as_bytes()]))?;
                if value == vec![b'v'; VALUE_LEN] { Ok(()) } else { Err(io::Error::other("a wrong value")) }
            }
            Workload::Reads => self.ask(&encode(&[b"EXISTS", name(key).as_bytes()])).map(drop),
        }
    }

    fn write(&mut self, key: u64) -> io::Result<()> {
        let value = [b'v'; VALUE_LEN];
        let reply = self.ask(&encode(&[b"SET", name(key).as_bytes(), &value]))?;
        if reply == b"OK" { Ok(()) } else { Err(io::Error::other("SET was not acknowledged")) }
    }

    fn ask(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        let resp = match &mut self.resp {
            Some(resp) => resp,
            none => none.insert(Resp::connect(self.address)?),
        };
        resp.call(command)
    }
}

fn name(key: u64) -> String {
    format!("witness:{key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile(50), Duration::ZERO);
        (1..=100).rev().for_each(|us| latencies.add(Duration::from_micros(us)));
        assert_eq!(latencies.percentile(50), Duration::from_micros(50));
        assert_eq!(latencies.percentile(99), Duration::from_micros(99));
        assert_eq!(latencies.percentile(100), Duration::from_micros(100));
    }
}
