//! The clients of the demonstration, the tests and the measurements: a minimal RESP and HTTP over blocking sockets.
//!
//! They do not use the server's codecs, so that an error in those cannot hide itself. A connection is made by the caller's
//! thread, as a network namespace requires, and what a request costs here is known.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest bulk or body that is accepted; a longer one is an invalid reply.
const BULK_BYTES_MAX: usize = 1 << 30;
/// Deepest array that is accepted.
const DEPTH_MAX: u32 = 8;
/// Longest line of a reply or a head.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Longest body that is sent together with its head.
const BODY_BYTES_WITH_HEAD: usize = 64 << 10;
/// Header lines of a response, at most.
const HEADERS_MAX: usize = 100;

/// One RESP2 reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+`
    Simple(String),
    /// `-`
    Error(String),
    /// `:`
    Int(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1` or `*-1`
    Nil,
    /// `*`
    Array(Vec<Reply>),
}

/// A RESP2 connection.
#[derive(Debug)]
pub(crate) struct Resp {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

impl Resp {
    /// Connects; each later read and write takes at most `limit`.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn connect(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        Ok(Self { stream: BufReader::with_capacity(64 << 10, dial(address, limit)?), out: Vec::new() })
    }

    /// Queues a command.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) {
        self.out.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
        for part in parts {
            self.out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            self.out.extend_from_slice(part);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    /// An error of the kernel; [`io::ErrorKind::InvalidData`] if the reply is not RESP.
    pub(crate) fn call(&mut self, parts: &[&[u8]]) -> io::Result<Reply> {
        self.push(parts);
        self.flush()?;
        self.read()
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub(crate) fn read(&mut self) -> io::Result<Reply> {
        self.read_nested(0)
    }

    fn read_nested(&mut self, depth: u32) -> io::Result<Reply> {
        let line = read_line(&mut self.stream)?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| broken("an empty line"))?;
        match kind {
            "+" => Ok(Reply::Simple(rest.into())),
            "-" => Ok(Reply::Error(rest.into())),
            ":" => rest.parse().map(Reply::Int).map_err(|_| broken("an integer that is none")),
            "$" | "*" if rest == "-1" => Ok(Reply::Nil),
            "$" => self.read_bulk(length(rest)?),
            "*" if depth < DEPTH_MAX => (0..length(rest)?)
                .map(|_| self.read_nested(depth + 1))
                .collect::<io::Result<_>>()
                .map(Reply::Array),
            _ => Err(broken("an unknown type")),
        }
    }

    fn read_bulk(&mut self, len: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; len + 2];
        self.stream.read_exact(&mut bytes)?;
        if bytes.split_off(len) == b"\r\n" {
            Ok(Reply::Bulk(bytes))
        } else {
            Err(broken("a bulk without an end"))
        }
    }
}

/// One response.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
}

/// A persistent HTTP/1.1 connection.
#[derive(Debug)]
pub struct Http {
    stream: BufReader<TcpStream>,
}

/// How the end of a body is found.
enum Framing {
    Length(usize),
    Chunked,
}

impl Http {
    /// Connects; every read and write after that takes at most `limit`.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn connect(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        Ok(Self { stream: BufReader::with_capacity(256 << 10, dial(address, limit)?) })
    }

    /// Sends one request and waits for its response. `headers` are whole lines with their line ends.
    ///
    /// # Errors
    /// An error of the kernel; [`io::ErrorKind::InvalidData`] if the answer is not a response.
    pub fn call(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> io::Result<Response> {
        let mut received = Vec::new();
        let status = self.call_into(method, path, headers, body, &mut received)?;
        Ok(Response { status, body: received })
    }

    /// [`Http::call`], whose response's body goes into `sink`. The status.
    ///
    /// # Errors
    /// As [`Http::call`], and the sink's.
    pub fn call_into(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
        sink: &mut impl Write,
    ) -> io::Result<u16> {
        let len = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n{headers}\r\n");
        let stream = self.stream.get_mut();
        if len <= BODY_BYTES_WITH_HEAD {
            stream.write_all(&[head.as_bytes(), body].concat())?;
        } else {
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
        }
        read_response(&mut self.stream, sink)
    }
}

/// Reads a response with a length or in chunks; its status.
pub(super) fn read_response(from: &mut impl BufRead, sink: &mut impl Write) -> io::Result<u16> {
    let first = read_line(from)?;
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status: u16 = status.ok_or_else(|| broken("no status line"))?;
    match read_framing(from)? {
        _ if matches!(status, 204 | 304) => {}
        Framing::Length(len) => pass_on(from, len, sink)?,
        Framing::Chunked => while read_chunk(from, sink)? {},
    }
    Ok(status)
}

/// Reads the rest of a head.
fn read_framing(from: &mut impl BufRead) -> io::Result<Framing> {
    let mut framing = Framing::Length(0);
    for _ in 0..HEADERS_MAX {
        let line = read_line(from)?;
        if line.is_empty() {
            return Ok(framing);
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            framing = Framing::Length(length(value.trim())?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
        }
    }
    Err(broken("too many header lines"))
}

/// Passes a chunk on; false after the last.
fn read_chunk(from: &mut impl BufRead, sink: &mut impl Write) -> io::Result<bool> {
    let line = read_line(from)?;
    let len = usize::from_str_radix(&line, 16).ok().filter(|len| *len <= BULK_BYTES_MAX);
    let len = len.ok_or_else(|| broken("a chunk without length"))?;
    pass_on(from, len, sink)?;
    match read_line(from)?.as_str() {
        "" => Ok(len > 0),
        _ => Err(broken("a chunk without an end")),
    }
}

fn pass_on(from: &mut impl BufRead, len: usize, sink: &mut impl Write) -> io::Result<()> {
    let passed = io::copy(&mut from.take(len as u64), sink)?;
    if passed == len as u64 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn dial(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    Ok(stream)
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(line) => String::from_utf8(line.to_vec()).map_err(|_| broken("a line that is no text")),
        None if line.len() as u64 == LINE_BYTES_MAX => Err(broken("a line without end")),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn length(text: &str) -> io::Result<usize> {
    text.parse().ok().filter(|len| *len <= BULK_BYTES_MAX).ok_or_else(|| broken("a length that is none"))
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
