//! Metrics, range scans and long values of our own server, over HTTP.

use super::conn::REPLY_TIMEOUT;
use crate::common::error::BenchError;
use std::io::{self, Write};
use std::net::SocketAddr;

/// A kept-alive connection.
#[derive(Debug)]
pub(crate) struct Http(landfall::Http);

impl Http {
    pub(crate) fn open(address: SocketAddr) -> Result<Self, BenchError> {
        let http = landfall::Http::connect(address, REPLY_TIMEOUT);
        http.map(Self).map_err(BenchError::connection("HTTP"))
    }

    /// Reads the body of `GET target` into `body`.
    pub(crate) fn get(&mut self, target: &str, body: &mut Vec<u8>) -> Result<(), BenchError> {
        body.clear();
        self.get_into(target, body)
    }

    /// Posts `body` and returns the status.
    pub(crate) fn post(&mut self, target: &str, body: &[u8]) -> Result<u16, BenchError> {
        let status = self.0.call_into("POST", target, "", body, &mut io::sink());
        status.map_err(BenchError::connection("HTTP"))
    }

    /// Reads the body of `GET target`, drops it and returns its length.
    pub(crate) fn get_and_drop(&mut self, target: &str) -> Result<u64, BenchError> {
        let mut counted = Counted(0);
        self.get_into(target, &mut counted)?;
        Ok(counted.0)
    }

    fn get_into(&mut self, target: &str, sink: &mut impl Write) -> Result<(), BenchError> {
        match self.0.call_into("GET", target, "", b"", sink).map_err(BenchError::connection("HTTP"))? {
            200 => Ok(()),
            status => Err(BenchError::reply("HTTP", status, "200")),
        }
    }
}

/// Counts bytes.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the sum of the metric samples whose name and labels begin with `prefix`.
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
    use super::metric;

    #[test]
    fn metrics_are_found_by_name_and_label() {
        let text = "# HELP a_runs x\na_runs{use=\"free\"} 3\na_runs{use=\"data\"} 4\na_runs_more 9\n";
        assert_eq!(metric(text, "a_runs"), Some(7.0));
        assert_eq!(metric(text, "a_runs{use=\"free\""), Some(3.0));
        assert_eq!(metric(text, "b"), None);
    }
}
