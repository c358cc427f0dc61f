//! An HTTP server for a page of metrics.

use crate::text::CONTENT_TYPE;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Longest time that one read from or write to an HTTP client may take.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of a request's head that are read.
const HEAD_BYTES_MAX: u64 = 8192;

/// Environment: metrics cannot be served on an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics on {address}: {source}; choose another --metrics")]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
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
        for stream in listener.incoming().flatten() {
            // Requests are answered one at a time: they are few, and a slow client runs into the timeout.
            let _ = answer(&stream, &text);
        }
    };
    std::thread::Builder::new().name("metrics".into()).spawn(work).map_err(failed)?;
    Ok(local)
}

fn answer(stream: &TcpStream, text: impl Fn() -> String) -> io::Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let mut head = BufReader::new(Read::take(stream, HEAD_BYTES_MAX));
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
