//! Metrics: the Prometheus text format, and an HTTP server for it.

use crate::error::SwitchError;
use std::fmt::{Display, Write as _};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Longest time that one read from or write to an HTTP client may take.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of a request's head that are read.
const HEAD_BYTES_MAX: u64 = 8192;

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
}

/// A page of metrics: Prometheus text format, version 0.0.4.
#[derive(Clone, Debug)]
pub struct Text {
    prefix: &'static str,
    text: String,
}

impl Text {
    /// Creates an empty page. The names of its metrics begin with `prefix` and an underscore.
    pub fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Adds counters, each with name, help text and value.
    pub fn counters<const N: usize>(&mut self, all: [(&str, &str, u64); N]) {
        all.into_iter().for_each(|(name, help, value)| self.one(Kind::Counter, name, help, value));
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.one(Kind::Gauge, name, help, value);
    }

    fn one(&mut self, kind: Kind, name: &str, help: &str, value: u64) {
        self.head(kind, name, help);
        let _ = writeln!(self.text, "{}_{name} {value}", self.prefix);
    }

    /// Adds a metric that has one value for each set of labels.
    pub fn series<V: Display>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (String, V)>,
    ) {
        self.head(kind, name, help);
        for (labels, value) in values {
            let _ = writeln!(self.text, "{}_{name}{{{labels}}} {value}", self.prefix);
        }
    }

    fn head(&mut self, kind: Kind, name: &str, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let prefix = self.prefix;
        let _ = writeln!(self.text, "# HELP {prefix}_{name} {help}\n# TYPE {prefix}_{name} {kind}");
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.text
    }
}

/// Answers `GET /metrics` on `address` with the result of `text`, on a thread of its own, until the process ends.
/// Returns the address that was bound.
///
/// # Errors
/// [`SwitchError::Listen`].
pub fn serve(
    address: SocketAddr,
    text: impl Fn() -> String + Send + 'static,
) -> Result<SocketAddr, SwitchError> {
    let failed = |source| SwitchError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let work = move || {
        for stream in listener.incoming().flatten() {
            // Requests are answered one at a time: they are few, and a slow client runs into the timeout.
            let _ = answer(&stream, &text);
        }
    };
    let thread = std::thread::Builder::new().name("metrics".into()).spawn(work);
    thread.map_err(SwitchError::system("starting a thread"))?;
    Ok(local)
}

fn answer(stream: &TcpStream, text: impl Fn() -> String) -> std::io::Result<()> {
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
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
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
    fn a_page_has_the_prometheus_text_format() {
        let mut text = Text::new("some");
        text.counters([("packets_total", "Packets", 3)]);
        text.gauge("entries", "Entries", 4);
        text.series(Kind::Gauge, "state", "States", [("of=\"x\"".into(), -1)]);
        let expected = "# HELP some_packets_total Packets\n# TYPE some_packets_total counter\nsome_packets_total 3\n\
                        # HELP some_entries Entries\n# TYPE some_entries gauge\nsome_entries 4\n\
                        # HELP some_state States\n# TYPE some_state gauge\nsome_state{of=\"x\"} -1\n";
        assert_eq!(String::from(text), expected);
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
