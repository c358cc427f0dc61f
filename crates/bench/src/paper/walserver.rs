//! The write-ahead log that PASTE's authors compare with: read, copy to a mapped log, `msync`, answer; or read into
//! the log itself, `msync`, answer. One thread, epoll.

use super::args::WalServerArgs;
use super::sys::Mapping;
use crate::common::error::BenchError;
use crate::common::sys::Readiness;
use crate::common::sys::stop_asked;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

/// Longest request taken, bytes.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// The longest wait for a request, ms.
const WAIT_MS: i32 = 100;
const REPLY: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";

/// Serves until it is stopped.
pub(crate) fn run(args: &WalServerArgs) -> Result<(), BenchError> {
    let listener = TcpListener::bind(args.listen).map_err(BenchError::connection("the listener"))?;
    let mut server = Server::open(args, listener)?;
    announce(args);
    while !stop_asked() {
        server.round(args).map_err(BenchError::connection("the log's clients"))?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "says that it serves, as `landfall serve` does")]
fn announce(args: &WalServerArgs) {
    println!("http: {}\nready", args.listen);
}

struct Server {
    listener: TcpListener,
    readiness: Readiness,
    clients: HashMap<RawFd, Client>,
    log: Log,
}

struct Client {
    stream: TcpStream,
    /// The received part of a request. Empty if requests are read into the log.
    buffer: Vec<u8>,
    filled: usize,
}

struct Log {
    mapping: Mapping,
    len: usize,
    tail: usize,
}

impl Server {
    fn open(args: &WalServerArgs, listener: TcpListener) -> Result<Self, BenchError> {
        let len = args.log_mib.clamp(1, 4096) << 20;
        let open = || -> io::Result<_> {
            let options = File::options().read(true).write(true).create(true).truncate(true).open(&args.log);
            let mut file = options?;
            // Written once in advance, so that no append meets a new block or page.
            let zeroes = vec![0; 1 << 20];
            (0..len >> 20).try_for_each(|_| file.write_all(&zeroes))?;
            file.sync_all()?;
            let readiness = Readiness::new()?;
            listener.set_nonblocking(true)?;
            readiness.add(&listener)?;
            Ok((Mapping::new(&file, len)?, readiness))
        };
        let (mapping, readiness) = open().map_err(BenchError::file(&args.log))?;
        Ok(Self { listener, readiness, clients: HashMap::new(), log: Log { mapping, len, tail: 0 } })
    }

    fn round(&mut self, args: &WalServerArgs) -> io::Result<()> {
        let timeout_ms = if args.spin { 0 } else { WAIT_MS };
        let ready: Vec<RawFd> = self.readiness.wait(timeout_ms)?.collect();
        for descriptor in ready {
            if descriptor == self.listener.as_raw_fd() {
                self.accept()?;
            } else if let Some(client) = self.clients.get_mut(&descriptor) {
                let log = &mut self.log;
                let served = if args.direct { client.serve_direct(log) } else { client.serve_copying(log) };
                if !served.unwrap_or(false) {
                    self.clients.remove(&descriptor);
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            self.readiness.add(&stream)?;
            let client = Client { buffer: vec![0; REQUEST_BYTES_MAX], filled: 0, stream };
            self.clients.insert(client.stream.as_raw_fd(), client);
        }
        Ok(())
    }
}

impl Client {
    /// Reads into a buffer, copies bodies to the log, syncs, answers. False at the end of the connection.
    fn serve_copying(&mut self, log: &mut Log) -> io::Result<bool> {
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => return Ok(false),
            Ok(read) => self.filled += read,
            Err(error) if is_passing(&error) => return Ok(true),
            Err(error) => return Err(error),
        }
        let mut used = 0;
        while let Some((body, end)) = request(&self.buffer[used..self.filled])? {
            let at = log.make_room(end - body);
            let (from, to) = (used + body, used + end);
            log.mapping.bytes()[at..at + end - body].copy_from_slice(&self.buffer[from..to]);
            log.append(end - body)?;
            self.stream.write_all(REPLY)?;
            used += end;
        }
        self.buffer.copy_within(used..self.filled, 0);
        self.filled -= used;
        Ok(true)
    }

    /// Reads into the log, head and all, syncs, answers. What comes in pieces is waited for: it is short.
    fn serve_direct(&mut self, log: &mut Log) -> io::Result<bool> {
        let at = log.make_room(REQUEST_BYTES_MAX);
        let mut filled = 0;
        loop {
            let room = &mut log.mapping.bytes()[at..at + REQUEST_BYTES_MAX];
            match self.stream.read(&mut room[filled..]) {
                Ok(0) => return Ok(false),
                Ok(read) => filled += read,
                Err(error) if is_passing(&error) && filled == 0 => return Ok(true),
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            }
            if let Some((_, end)) = request(&room[..filled])? {
                log.append(end)?;
                self.stream.write_all(REPLY)?;
                return Ok(true);
            }
        }
    }
}

impl Log {
    /// Returns where `len` bytes can be appended: at the start again if the end is too near.
    fn make_room(&mut self, len: usize) -> usize {
        if self.tail + len > self.len {
            self.tail = 0;
        }
        self.tail
    }

    /// Appends the bytes at the tail to the log and makes them durable.
    fn append(&mut self, len: usize) -> io::Result<()> {
        self.mapping.sync(self.tail, len)?;
        self.tail += len;
        Ok(())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns where the first request's body begins and ends. `None` while the request is incomplete.
fn request(bytes: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return if bytes.len() < REQUEST_BYTES_MAX {
            Ok(None)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        };
    };
    let length = std::str::from_utf8(&bytes[..head]).ok().and_then(|head| {
        let (_, rest) = head.split_once("Content-Length: ")?;
        rest.lines().next()?.trim().parse::<usize>().ok()
    });
    let body = head + 4;
    let end = body + length.ok_or(io::ErrorKind::InvalidData)?;
    if end > REQUEST_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((bytes.len() >= end).then_some((body, end)))
}

#[cfg(test)]
mod tests {
    use super::{Log, request};
    use crate::paper::sys::Mapping;

    #[test]
    fn a_request_is_found_once_its_body_is_there() {
        let bytes = b"POST /wal/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcPOST";
        let body = bytes.len() - 7;
        assert_eq!(request(bytes).unwrap(), Some((body, body + 3)));
        assert_eq!(request(&bytes[..body + 2]).unwrap(), None);
        assert_eq!(request(b"POST / HT").unwrap(), None);
        assert!(request(b"POST / HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn the_log_begins_anew_where_the_end_is_too_near() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mut log = Log { mapping: Mapping::new(&file, 8192).unwrap(), len: 8192, tail: 0 };
        for (len, at) in [(5000, 0), (3000, 5000), (1000, 0)] {
            assert_eq!(log.make_room(len), at);
            log.mapping.bytes()[at..at + len].fill(7);
            log.append(len).unwrap();
        }
    }
}
