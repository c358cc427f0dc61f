//! Load generators and a small client.

pub(crate) mod builtin;
mod choice;
pub(crate) mod conn;
pub(crate) mod http;
pub(crate) mod loader;
pub(crate) mod redis_benchmark;
mod walk;
pub(crate) mod zipf;

pub use choice::ClientChoice;
pub(crate) use walk::Walk;

use crate::common::error::BenchError;
use crate::common::progress::say;
use landfall_resp::{Protocol, Writer};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The key of a load without random keys, as in redis-benchmark.
pub(crate) const ONE_KEY: &[u8] = b"key:__rand_int__";

/// What a load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Operation {
    /// `SET key value`
    #[serde(rename = "SET")]
    Set,
    /// `GET key`
    #[serde(rename = "GET")]
    Get,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Get => "GET",
        }
    }
}

/// Shape of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Connections.
    pub(crate) clients: usize,
    /// Requests that a connection sends before it waits for their replies.
    pub(crate) pipeline: usize,
    /// Length of the value, bytes.
    pub(crate) value_bytes: usize,
    /// The number of keys to draw from; 0 means a single key.
    pub(crate) random_keys: u64,
}

impl Shape {
    /// Describes the shape in a heading: "50 clients, pipeline 16, 1024 B, 100000 random keys".
    pub(crate) fn describe(&self) -> String {
        let clients = if self.clients == 1 { "1 client".into() } else { format!("{} clients", self.clients) };
        let pipeline =
            if self.pipeline == 1 { String::new() } else { format!(", pipeline {}", self.pipeline) };
        let keys = match self.random_keys {
            0 => "a single key".into(),
            keys => format!("{keys} random keys"),
        };
        format!("{clients}{pipeline}, {} B, {keys}", self.value_bytes)
    }
}

/// One run of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) operation: Operation,
    pub(crate) shape: Shape,
    pub(crate) requests: u64,
}

/// The measurements of one run of a load. Latency is from sending a pipeline's requests to its last reply.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LoadResult {
    /// Requests a second.
    pub(crate) rps: f64,
    /// Latency, µs: median.
    pub(crate) p50_us: f64,
    /// 95th percentile.
    pub(crate) p95_us: f64,
    /// 99th percentile.
    pub(crate) p99_us: f64,
    /// 99.9th percentile, where the client reports it.
    pub(crate) p999_us: Option<f64>,
}

/// The load generator in use.
#[derive(Clone, Debug)]
pub(crate) enum Client {
    /// redis-benchmark, at this path.
    RedisBenchmark(PathBuf),
    /// The built-in one.
    Builtin,
}

impl Client {
    /// Finds the client. Fails if the requested one is not installed.
    pub(crate) fn choose(choice: ClientChoice) -> Result<Self, BenchError> {
        let found = find_program("redis-benchmark");
        match (choice, found) {
            (ClientChoice::Builtin, _) => Ok(Self::Builtin),
            (_, Some(path)) => Ok(Self::RedisBenchmark(path)),
            (ClientChoice::RedisBenchmark, None) => Err(BenchError::Nothing(
                "redis-benchmark is not installed (Debian: apt-get install redis-tools)",
            )),
            (ClientChoice::Auto, None) => {
                say(format_args!(
                    "redis-benchmark is not installed: using the built-in load generator instead"
                ));
                Ok(Self::Builtin)
            }
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::RedisBenchmark(_) => "redis-benchmark",
            Self::Builtin => "built-in load generator",
        }
    }

    pub(crate) fn run(&self, load: &Load) -> Result<LoadResult, BenchError> {
        match self {
            Self::RedisBenchmark(path) => redis_benchmark::run(path, load),
            Self::Builtin => builtin::run(load, builtin::Until::Count(load.requests)),
        }
    }
}

/// Finds a program on `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Appends one request.
pub(crate) fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    Writer::new(out, Protocol::Resp2).command(words);
}

/// Returns the key of a number: 16 bytes, as redis-benchmark writes them.
pub(crate) fn key_of(number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    key
}

/// Returns a value that cannot be compressed.
pub(crate) fn value_of(bytes: usize) -> Vec<u8> {
    let mut random = Random::new(0x9e37_79b9);
    (0..bytes).map(|_| (random.next() >> 32).to_le_bytes()[0]).collect()
}

/// Seeded pseudo-random numbers: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which is not 0. The bias is too small for a benchmark to show.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns the numbers below `count` in random order (Fisher and Yates).
    pub(crate) fn permutation(&mut self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..count).collect();
        for last in (1..numbers.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            numbers.swap(last, other);
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, Shape, encode, key_of};

    #[test]
    fn keys_are_like_those_of_redis_benchmark() {
        assert_eq!(&key_of(0), b"key:000000000000");
        assert_eq!(&key_of(987_654_321_012), b"key:987654321012");
    }

    #[test]
    fn requests_are_encoded_as_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        encode(&mut out, &[b"GET", b"a"]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
    }

    #[test]
    fn a_permutation_has_every_number_once_and_not_in_order() {
        let mut numbers = Random::new(7).permutation(1000);
        assert!(numbers.windows(2).any(|pair| pair[0] > pair[1]));
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..1000));
    }

    #[test]
    fn shapes_are_described_in_words() {
        let shape = Shape { clients: 50, pipeline: 16, value_bytes: 1024, random_keys: 0 };
        assert_eq!(shape.describe(), "50 clients, pipeline 16, 1024 B, a single key");
        let shape = Shape { clients: 1, pipeline: 1, value_bytes: 100, random_keys: 9 };
        assert_eq!(shape.describe(), "1 client, 100 B, 9 random keys");
    }
}
