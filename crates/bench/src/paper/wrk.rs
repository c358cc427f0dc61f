//! wrk: the client of both papers.

use super::contestant::missing;
use super::lab::Lab;
use super::wire::Wire;
use crate::common::clients::redis_benchmark::run_to_end;
use crate::common::error::BenchError;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Keys that requests go through in turns.
pub(crate) const KEYS: u64 = 10_000;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 1024;

/// The kind of wrk's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// `POST /kv/{key}` of 1 KiB.
    Post,
    /// `GET /kv/{key}` of 1 KiB.
    Get,
    /// `POST /wal/{log}` of 1 KiB.
    Append,
}

impl Ask {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Post => "HTTP POST",
            Self::Get => "HTTP GET",
            Self::Append => "WAL append",
        }
    }
}

/// What wrk says. Latencies in µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WrkResult {
    pub(crate) rps: f64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) requests: f64,
}

/// Runs wrk at the client's end for whole seconds.
pub(crate) fn run(
    lab: &Lab,
    wire: &Wire,
    address: SocketAddr,
    (ask, connections, seconds): (Ask, usize, u32),
) -> Result<WrkResult, BenchError> {
    let program = lab.wrk.as_ref().ok_or_else(|| missing("wrk", "wrk"))?;
    let mut command = lab.client_command(wire, program);
    let asks = match ask {
        Ask::Post => "post",
        Ask::Get => "get",
        Ask::Append => "append",
    };
    // Appends are all alike: a single request will do.
    let keys = if ask == Ask::Append { 1 } else { KEYS };
    command.env("LANDFALL_ASK", asks).env("LANDFALL_KEYS", keys.to_string());
    command.args(["-t", "1", "-c", &connections.to_string(), "-d", &format!("{seconds}s")]);
    command.arg("-s").arg(lab.script()).arg(format!("http://{address}/"));
    let output = run_to_end(command, "wrk")?;
    match parse(&output) {
        Some((result, 0)) => Ok(result),
        _ => Err(BenchError::Client {
            program: "wrk",
            status: "errors, or no figures".into(),
            output: output.chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect(),
        }),
    }
}

/// The figures of the script's last line, and the number of errors.
fn parse(output: &str) -> Option<(WrkResult, u64)> {
    let line = output.lines().rev().find_map(|line| line.strip_prefix("RESULT "))?;
    let fields: Vec<f64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [requests, duration_us, mean_us, p50_us, p99_us, errors] = fields.try_into().ok()?;
    let rps = requests * 1e6 / duration_us;
    let result = WrkResult { rps, mean_us, p50_us, p99_us, requests };
    (requests > 0.0).then_some((result, crate::common::measure::stats::whole(errors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_scripts_line() {
        let output =
            "Running 1s test @ http://x\n  1 threads\nRESULT 20000 2000000 45.500000 44.000000 90.000000 0\n";
        let (result, errors) = parse(output).unwrap();
        assert_eq!((result.rps, result.mean_us, result.p50_us, result.p99_us), (10_000.0, 45.5, 44.0, 90.0));
        assert_eq!(errors, 0);
    }

    #[test]
    fn errors_are_told_and_no_requests_are_no_result() {
        assert_eq!(parse("RESULT 10 1000 1 1 1 3\n").unwrap().1, 3);
        assert_eq!(parse("RESULT 0 1000 0 0 0 0\n"), None);
        assert_eq!(parse("unable to connect to 10.0.0.1:80 Connection refused\n"), None);
    }
}
