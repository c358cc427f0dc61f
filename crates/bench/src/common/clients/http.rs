//! Just enough of HTTP/1.1 to read metrics and range scans from our own server.

use super::conn::REPLY_TIMEOUT;
use crate::common::error::BenchError;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Longest body taken, bytes.
const BODY_MAX: usize = 1 << 30;

/// A kept-alive connection.
#[derive(Debug)]
pub(crate) struct Http {
    stream: BufReader<TcpStream>,
}

impl Http {
    pub(crate) fn open(address: SocketAddr) -> Result<Self, BenchError> {
        let open = || {
            let stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
            Ok(Self { stream: BufReader::with_capacity(256 << 10, stream) })
        };
        open().map_err(BenchError::connection("HTTP"))
    }

    /// The body of `GET target`, into `body`.
    pub(crate) fn get(&mut self, target: &str, body: &mut Vec<u8>) -> Result<(), BenchError> {
        body.clear();
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).map_err(BenchError::connection("HTTP"))?;
        let status = read_reply(&mut self.stream, body).map_err(BenchError::connection("HTTP"))?;
        if status == 200 { Ok(()) } else { Err(BenchError::reply("HTTP", status, "200")) }
    }
}

impl Http {
    /// The status of a `POST` of `body`.
    pub(crate) fn post(&mut self, target: &str, body: &[u8]) -> Result<u16, BenchError> {
        let head = format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut exchange = || {
            self.stream.get_mut().write_all(head.as_bytes())?;
            self.stream.get_mut().write_all(body)?;
            read_reply(&mut self.stream, &mut Vec::new())
        };
        exchange().map_err(BenchError::connection("HTTP"))
    }

    /// Reads the body of `GET target` without keeping it; its length.
    pub(crate) fn get_and_drop(&mut self, target: &str) -> Result<u64, BenchError> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut exchange = || {
            self.stream.get_mut().write_all(request.as_bytes())?;
            let head = read_head(&mut self.stream)?;
            let length =
                head.iter().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
            let is_fine = head.first().is_some_and(|line| line.contains(" 200 "));
            let length: u64 = length.filter(|_| is_fine).ok_or_else(malformed)?;
            let read = io::copy(&mut (&mut self.stream).take(length), &mut io::sink())?;
            if read == length { Ok(length) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        };
        exchange().map_err(BenchError::connection("HTTP"))
    }
}

/// Reads a reply with a length or in chunks; its status.
fn read_reply(from: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<u16> {
    let head = read_head(from)?;
    let status = head.first().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or_else(malformed)?;
    let header = |name: &str| head.iter().find_map(|line| line.strip_prefix(name));
    if header("transfer-encoding: chunked").is_some() {
        while read_chunk(from, body)? {}
    } else if let Some(length) = header("content-length: ") {
        append(from, length.trim().parse().map_err(|_| malformed())?, body)?;
    }
    Ok(status)
}

/// The head's lines in lower case.
fn read_head(from: &mut impl BufRead) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    while lines.len() < 100 {
        let line = read_line(from)?;
        if line.is_empty() {
            return Ok(lines);
        }
        lines.push(line.to_ascii_lowercase());
    }
    Err(malformed())
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if from.take(8192).read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// Appends a chunk; false after the last.
fn read_chunk(from: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<bool> {
    let length = usize::from_str_radix(&read_line(from)?, 16).map_err(|_| malformed())?;
    append(from, length, body)?;
    read_line(from)?;
    Ok(length > 0)
}

fn append(from: &mut impl BufRead, length: usize, body: &mut Vec<u8>) -> io::Result<()> {
    let old = body.len();
    if old + length > BODY_MAX {
        return Err(malformed());
    }
    body.resize(old + length, 0);
    from.read_exact(&mut body[old..])
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not an HTTP/1.1 reply")
}

/// The sum of a metric's samples whose name and labels begin with `prefix`.
pub(crate) fn metric(text: &str, prefix: &str) -> Option<f64> {
    let values: Vec<f64> = text
        .lines()
        .filter(|line| line.strip_prefix(prefix).is_some_and(|rest| rest.starts_with([' ', '{', '}', ','])))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    if values.is_empty() { None } else { Some(values.iter().sum()) }
}

#[cfg(test)]
mod tests {
    use super::{metric, read_reply};

    fn read(mut text: &[u8]) -> std::io::Result<(u16, Vec<u8>, usize)> {
        let mut body = Vec::new();
        let status = read_reply(&mut text, &mut body)?;
        Ok((status, body, text.len()))
    }

    #[test]
    fn bodies_with_a_length_and_in_chunks_are_read_to_their_end() {
        let fixed = read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcNEXT").unwrap();
        assert_eq!(fixed, (200, b"abc".to_vec(), 4));
        let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0000000a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\nNEXT";
        assert_eq!(read(chunks).unwrap(), (200, b"0123456789x".to_vec(), 4));
    }

    #[test]
    fn a_body_cut_short_is_an_error() {
        assert!(read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").is_err());
        assert!(read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab").is_err());
        assert!(read(b"").is_err());
    }

    #[test]
    fn metrics_are_found_by_name_and_label() {
        let text = "# HELP a_runs x\na_runs{use=\"free\"} 3\na_runs{use=\"data\"} 4\na_runs_more 9\n";
        assert_eq!(metric(text, "a_runs"), Some(7.0));
        assert_eq!(metric(text, "a_runs{use=\"free\""), Some(3.0));
        assert_eq!(metric(text, "b"), None);
    }
}
