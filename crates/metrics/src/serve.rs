//! An HTTP server for a page of metrics.

use crate::text::CONTENT_TYPE;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Longest time that the head of a request, or one write to an HTTP client, may take.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// How long nobody is accepted when that has failed: there are too few descriptors, perhaps.
const PAUSE: Duration = Duration::from_millis(50);
/// Most bytes of a request's head that are read.
const HEAD_BYTES_MAX: u64 = 8192;

/// Environment: metrics cannot be served on an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics on {address}: {source}; choose another --metrics")]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

/// Checks that metrics can be served on an address, before anything is changed for that.
///
/// # Errors
/// [`ListenError`].
pub fn check(address: SocketAddr) -> Result<(), ListenError> {
    TcpListener::bind(address).map(drop).map_err(|source| ListenError { address, source })
}

/// Answers `GET /metrics` on `address` with the result of `text`, on a thread of its own, until the process ends.
/// Returns the address that was bound.
///
/// # Errors
/// [`ListenError`]: the address cannot be bound, or no thread can be started.
pub fn serve(
    address: SocketAddr,
    text: impl Fn() -> String + Send + 'static,
) -> Result<SocketAddr, ListenError> {
    let failed = |source| ListenError { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let work = move || {
        for stream in listener.incoming() {
            match stream {
                // Requests are answered one at a time: they are few, and a slow client runs into the timeout.
                Ok(stream) => _ = answer(&stream, &text),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    };
    std::thread::Builder::new().name("metrics".into()).spawn(work).map_err(failed)?;
    Ok(local)
}

/// Reads that are over in time, however little each of them brings.
struct InTime<'s> {
    stream: &'s TcpStream,
    until: Instant,
}

impl Read for InTime<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        Read::read(&mut self.stream, into)
    }
}

fn answer(stream: &TcpStream, text: impl Fn() -> String) -> io::Result<()> {
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let in_time = InTime { stream, until: Instant::now() + IO_TIMEOUT };
    let mut head = BufReader::new(in_time.take(HEAD_BYTES_MAX));
    let mut request = String::new();
    head.read_line(&mut request)?;
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let (code, body) = match request.split(' ').nth(1) {
        Some("/metrics" | "/") => ("200 OK", text()),
        _ => ("404 Not Found", "only /metrics is here\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut to = stream;
    to.write_all(head.as_bytes())?;
    to.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_says_little_at_a_time_is_not_waited_for() {
        let address = serve(([127, 0, 0, 1], 0).into(), || "now\n".into()).unwrap();
        let mut slow = TcpStream::connect(address).unwrap();
        let drip = std::thread::spawn(move || {
            // Until it is closed; a reply to a request that has not ended there is none.
            while slow.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(4 * IO_TIMEOUT)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("now\n"), "{answer}");
        drip.join().unwrap();
    }

    #[test]
    fn the_current_page_is_served_and_other_paths_are_not_found() {
        let address = serve(([127, 0, 0, 1], 0).into(), || "now\n".into()).unwrap();
        for (path, status, body) in
            [("/metrics", "200 OK", "now\n"), ("/other", "404 Not Found", "only /metrics is here\n")]
        {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
            assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "{answer}");
        }
    }
}
