//! A blocking connection: one request, one reply.

use super::encode;
use crate::common::error::BenchError;
use crate::common::progress::check_stop;
use landfall_resp::Reply;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a reply may take before the server counts as hung.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes read at a time.
const READ_BYTES: usize = 16 << 10;

/// A connection to a RESP server.
#[derive(Debug)]
pub(crate) struct Conn {
    stream: TcpStream,
    peer: String,
    request: Vec<u8>,
    received: Vec<u8>,
    /// Bytes of `received` that belong to replies already returned.
    used: usize,
}

impl Conn {
    /// Connects; `peer` names the server in errors.
    pub(crate) fn open(address: SocketAddr, peer: &str) -> Result<Self, BenchError> {
        let open = || {
            let stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
            stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
            Ok(stream)
        };
        let stream = open().map_err(BenchError::connection(peer))?;
        Ok(Self { stream, peer: peer.into(), request: Vec::new(), received: Vec::new(), used: 0 })
    }

    /// Sends one request and waits for its reply.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply<'_>, BenchError> {
        self.request.clear();
        encode(&mut self.request, words);
        self.stream.write_all(&self.request).map_err(BenchError::connection(&self.peer))?;
        self.reply()
    }

    /// Sends bytes that hold whole requests.
    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<(), BenchError> {
        self.stream.write_all(requests).map_err(BenchError::connection(&self.peer))
    }

    /// Waits for the next reply.
    pub(crate) fn reply(&mut self) -> Result<Reply<'_>, BenchError> {
        let end = loop {
            match Reply::first(&self.received[self.used..]) {
                Ok(Some((_, len))) => break self.used + len,
                Ok(None) => self.fill().map_err(BenchError::connection(&self.peer))?,
                Err(_) => {
                    let bytes = String::from_utf8_lossy(&self.received[self.used..]).into_owned();
                    return Err(BenchError::reply(&self.peer, bytes, "a RESP2 reply"));
                }
            }
        };
        let start = std::mem::replace(&mut self.used, end);
        match Reply::first(&self.received[start..end]) {
            Ok(Some((reply, _))) => Ok(reply),
            _ => Err(BenchError::reply(&self.peer, "half a reply", "a whole one")),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.received.drain(..self.used);
        self.used = 0;
        let len = self.received.len();
        self.received.resize(len + READ_BYTES, 0);
        let read = self.stream.read(&mut self.received[len..]);
        self.received.truncate(len + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other.map(drop),
        }
    }
}

/// Returns `DBSIZE`, or `None` while the server is loading.
pub(crate) fn key_count(conn: &mut Conn, peer: &str) -> Result<Option<u64>, BenchError> {
    match conn.ask(&[b"DBSIZE"])? {
        Reply::Integer(keys) => Ok(u64::try_from(keys).ok()),
        Reply::Error(text) if text.starts_with(b"LOADING") => Ok(None),
        other => Err(BenchError::reply(peer, other, "a number of keys")),
    }
}

/// Returns a field of `INFO section`.
pub(crate) fn info_field(conn: &mut Conn, section: &str, field: &str) -> Result<Option<f64>, BenchError> {
    let Reply::Bulk(text) = conn.ask(&[b"INFO", section.as_bytes()])? else { return Ok(None) };
    let text = String::from_utf8_lossy(text);
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(value.and_then(|value| value.trim().parse().ok()))
}

/// Waits for a moment until `wanted` replicas have what this connection has written. Returns how many have it.
pub(crate) fn count_replicas(conn: &mut Conn, wanted: usize) -> Result<usize, BenchError> {
    match conn.ask(&[b"WAIT", wanted.to_string().as_bytes(), b"100"])? {
        Reply::Integer(have) => Ok(usize::try_from(have).unwrap_or(0)),
        // It is not ready.
        _ => Ok(0),
    }
}

/// Waits until `wanted` replicas have what a server has.
pub(crate) fn wait_for_replicas(conn: &mut Conn, wanted: usize, limit: Duration) -> Result<(), BenchError> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        check_stop()?;
        if count_replicas(conn, wanted)? >= wanted {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(BenchError::TooLong { what: "the replicas' start".into(), seconds: limit.as_secs() })
}

/// Waits until the server answers `PING` and has exactly `keys`. Returns the time since `since`.
pub(crate) fn wait_for_keys(
    address: SocketAddr,
    peer: &str,
    keys: u64,
    since: Instant,
    limit: Duration,
) -> Result<Duration, BenchError> {
    loop {
        check_stop()?;
        if let Ok(mut conn) = Conn::open(address, peer)
            && let Some(found) = key_count(&mut conn, peer)?
        {
            let took = since.elapsed();
            return if found == keys {
                Ok(took)
            } else {
                Err(BenchError::reply(peer, found, "every key loaded"))
            };
        }
        if since.elapsed() > limit {
            return Err(BenchError::TooLong { what: format!("restart of {peer}"), seconds: limit.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
