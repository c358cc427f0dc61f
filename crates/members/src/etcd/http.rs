//! The little of HTTP/1.1 that etcd's gateway needs: one POST a connection, and its answer within a bounded time.
//!
//! Answers of the gateway's errors come in chunks with trailers behind them, announced or not. A connection serves
//! one request, so that a chunk of no length ends the answer, whatever follows.

use crate::error::MembersError;
use httparse::Status;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest answer, bytes: all members and a chain, in base64, are a tenth of it.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Most headers of an answer; etcd sends nine.
const HEADERS_MAX: usize = 64;
/// Addresses of one host that are tried.
const ADDRESSES_MAX: usize = 4;

/// One address of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// `HOST:PORT`.
    host: String,
}

/// An answer that was read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status code.
    pub(super) status: u16,
    /// The body.
    pub(super) body: Vec<u8>,
}

impl Endpoint {
    /// Reads `http://HOST:PORT`, or without the scheme.
    pub(super) fn parse(text: &str) -> Result<Self, MembersError> {
        let host = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let port =
            host.rsplit_once(':').filter(|(name, _)| !name.is_empty()).map(|(_, port)| port.parse::<u16>());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
        if matches!(port, Some(Ok(1..))) && host.bytes().all(plain) {
            return Ok(Self { host: host.to_owned() });
        }
        Err(MembersError::Endpoint { text: text.to_owned() })
    }

    /// As it is told to people.
    pub(super) fn name(&self) -> &str {
        &self.host
    }

    /// Posts `json` and reads the answer, all until `end`.
    pub(super) fn post(&self, path: &str, json: &[u8], end: Instant) -> Result<Answer, MembersError> {
        let mut stream = self.connect(end).map_err(|source| self.unreachable(source))?;
        self.send(&mut stream, path, json, end).map_err(|source| self.unreachable(source))?;
        self.receive(&mut stream, end)
    }

    fn connect(&self, end: Instant) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let addresses: Vec<SocketAddr> = self.host.to_socket_addrs()?.take(ADDRESSES_MAX).collect();
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(end)?) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn send(&self, stream: &mut TcpStream, path: &str, json: &[u8], end: Instant) -> io::Result<()> {
        stream.set_write_timeout(Some(left(end)?))?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.host,
            json.len()
        );
        stream.write_all(&[head.as_bytes(), json].concat())
    }

    /// Reads until the answer is whole. Each piece is a reason to look from the beginning: answers are short.
    fn receive(&self, stream: &mut TcpStream, end: Instant) -> Result<Answer, MembersError> {
        let mut bytes = Vec::new();
        let mut piece = [0; 16 << 10];
        loop {
            let read = left(end).and_then(|left| {
                stream.set_read_timeout(Some(left))?;
                stream.read(&mut piece)
            });
            let count = read.map_err(|source| self.unreachable(slow(source)))?;
            bytes.extend_from_slice(&piece[..count]);
            if let Some(answer) = parse(&bytes, count == 0).map_err(|what| self.nonsense(what))? {
                return Ok(answer);
            }
        }
    }

    fn unreachable(&self, source: io::Error) -> MembersError {
        MembersError::Unreachable { endpoint: self.host.clone(), source }
    }

    /// The error for an answer that is not as it should be.
    pub(super) fn nonsense(&self, what: &'static str) -> MembersError {
        MembersError::Answer { endpoint: self.host.clone(), what }
    }
}

/// The time that is left; an error once none is.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A read that timed out says so, instead of *resource temporarily unavailable*.
fn slow(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// How the end of a body is found.
enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
}

/// The answer, or `None` while it is not whole. `closed`: nothing more comes.
fn parse(bytes: &[u8], closed: bool) -> Result<Option<Answer>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = response.parse(bytes).map_err(|_| "no HTTP")?;
    let body = match head {
        Status::Complete(head) => body(&bytes[head..], &framing(response.headers)?, closed)?,
        Status::Partial => None,
    };
    match body {
        Some(body) => Ok(Some(Answer { status: response.code.unwrap_or(0), body })),
        None if closed => Err("it ends in the middle"),
        None if bytes.len() > ANSWER_BYTES_MAX => Err("it is too long"),
        None => Ok(None),
    }
}

fn framing(headers: &[httparse::Header<'_>]) -> Result<Framing, &'static str> {
    let value = |name: &str| headers.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value);
    if let Some(coding) = value("transfer-encoding") {
        let chunked = coding.eq_ignore_ascii_case(b"chunked");
        return if chunked { Ok(Framing::Chunked) } else { Err("an unknown transfer coding") };
    }
    let Some(length) = value("content-length") else { return Ok(Framing::UntilClosed) };
    let length = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok());
    match length {
        Some(length) if length <= ANSWER_BYTES_MAX => Ok(Framing::Length(length)),
        Some(_) => Err("it is too long"),
        None => Err("a content length that is no number"),
    }
}

fn body(bytes: &[u8], framing: &Framing, closed: bool) -> Result<Option<Vec<u8>>, &'static str> {
    match framing {
        Framing::Length(length) => Ok(bytes.get(..*length).map(<[u8]>::to_vec)),
        Framing::Chunked => chunks(bytes),
        Framing::UntilClosed => Ok(closed.then(|| bytes.to_vec())),
    }
}

fn chunks(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut body = Vec::new();
    loop {
        let Status::Complete((line, length)) =
            httparse::parse_chunk_size(bytes).map_err(|_| "a bad chunk")?
        else {
            return Ok(None);
        };
        if length == 0 {
            return Ok(Some(body));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= ANSWER_BYTES_MAX);
        let end = line + length.ok_or("it is too long")?;
        let Some(chunk) = bytes.get(line..end) else { return Ok(None) };
        body.extend_from_slice(chunk);
        // Each chunk has its own line end behind it.
        let Some(line_end) = bytes.get(end..end + 2) else { return Ok(None) };
        if line_end != b"\r\n" {
            return Err("a bad chunk");
        }
        bytes = &bytes[end + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As etcd 3.4 answers for a lease that it does not know.
    const REFUSAL: &[u8] =
        b"HTTP/1.1 404 Not Found\r\nTrailer: Grpc-Trailer-Content-Type\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\nGrpc-Trailer-Content-Type: application/grpc\r\n\r\n";
    const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}\r\n";

    #[test]
    fn answers_are_read_whole_and_not_before() {
        for (bytes, status, body) in [(REFUSAL, 404, &b"{\"a\":1}"[..]), (LENGTH, 200, b"{}\r\n")] {
            let whole =
                (0..=bytes.len()).find(|len| parse(&bytes[..*len], false).unwrap().is_some()).unwrap();
            let answer = Answer { status, body: body.to_vec() };
            assert_eq!(parse(&bytes[..whole], false), Ok(Some(answer)));
            assert!(parse(&bytes[..whole - 1], true).is_err(), "closed in the middle");
        }
    }

    #[test]
    fn an_answer_without_length_ends_with_the_connection() {
        let bytes = b"HTTP/1.1 200 OK\r\n\r\n{}";
        assert_eq!(parse(bytes, false), Ok(None));
        assert_eq!(parse(bytes, true).unwrap().unwrap().body, b"{}");
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [
            &b"SSH-2.0-x\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            assert!(parse(bytes, false).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn addresses_are_a_host_and_a_port() {
        for text in ["http://127.0.0.1:2379", "127.0.0.1:2379", "http://[::1]:2379/", "etcd.lab:2379"] {
            assert!(Endpoint::parse(text).is_ok(), "{text}");
        }
        for text in
            ["", "http://", "host", "https://h:1", "h:0", "h:70000", ":1", "h:1/path", "h\r\n:1", "u@h:1"]
        {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_peer_that_does_not_answer_is_given_up_in_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let begun = Instant::now();
        let told = endpoint.post("/", b"{}", begun + Duration::from_millis(100)).unwrap_err();
        assert!(
            matches!(told, MembersError::Unreachable { ref source, .. } if source.kind() == io::ErrorKind::TimedOut)
        );
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
