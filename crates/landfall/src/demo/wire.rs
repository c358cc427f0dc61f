//! The clients of the demonstration: just enough RESP and HTTP, over blocking sockets.
//!
//! Written anew rather than on the server's own codecs: a mistake in those must not hide itself.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest bulk or body that is accepted: more is a broken reply.
const BULK_BYTES_MAX: usize = 1 << 30;
/// Deepest array that is accepted.
const DEPTH_MAX: u32 = 8;
/// Longest line of a reply or a head.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Most header lines of a response.
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
    /// Connects; every read and write after that takes at most `limit`.
    ///
    /// # Errors
    /// The kernel's.
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
    /// The kernel's.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::InvalidData`] for what is no RESP.
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
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// An HTTP/1.1 connection, kept alive.
#[derive(Debug)]
pub(crate) struct Http {
    stream: BufReader<TcpStream>,
}

impl Http {
    /// As [`Resp::connect`].
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn connect(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        Ok(Self { stream: BufReader::with_capacity(64 << 10, dial(address, limit)?) })
    }

    /// Sends one request and waits for its response. `headers` are whole lines with their ends.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::InvalidData`] for what is no response.
    pub(crate) fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> io::Result<Response> {
        let len = body.len();
        let mut out =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n{headers}\r\n")
                .into_bytes();
        out.extend_from_slice(body);
        self.stream.get_mut().write_all(&out)?;
        self.read()
    }

    fn read(&mut self) -> io::Result<Response> {
        let first = read_line(&mut self.stream)?;
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.ok_or_else(|| broken("no status line"))?;
        let mut len = 0;
        for _ in 0..HEADERS_MAX {
            let line = read_line(&mut self.stream)?;
            if line.is_empty() {
                let mut body = vec![0; if matches!(status, 204 | 304) { 0 } else { len }];
                self.stream.read_exact(&mut body)?;
                return Ok(Response { status, body });
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                len = length(value.trim())?;
            }
        }
        Err(broken("too many header lines"))
    }
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
