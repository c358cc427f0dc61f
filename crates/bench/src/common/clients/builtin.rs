//! The built-in load generator: one thread, `poll`, and a histogram that resolves the 99.9th percentile.

use super::{Load, LoadResult, ONE_KEY, Operation, Random, Walk, encode, key_of, value_of};
use crate::common::error::BenchError;
use crate::common::progress::check_stop;
use crate::common::sys;
use hdrhistogram::Histogram;
use landfall_resp::Reply;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The largest latency that the histogram resolves, ns.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// The server counts as hung after this long without a reply.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const POLL_MS: i32 = 100;
const READ_BYTES: usize = 256 << 10;
const NAME: &str = "the server";

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this many requests.
    Count(u64),
    /// At this time, or after the load's requests.
    Time(Instant),
}

/// A histogram of latencies, ns, with three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    let sized = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
    sized.unwrap_or_else(|_| Histogram::new(3).expect("three digits are allowed"))
}

/// Returns the percentiles of a histogram of ns.
pub(crate) fn result_of(latencies: &Histogram<u64>, requests: u64, took: Duration) -> LoadResult {
    let us = |percentile: f64| latencies.value_at_percentile(percentile) as f64 / 1000.0;
    LoadResult {
        rps: requests as f64 / took.as_secs_f64(),
        p50_us: us(50.0),
        p95_us: us(95.0),
        p99_us: us(99.0),
        p999_us: Some(us(99.9)),
    }
}

/// Runs a load.
pub(crate) fn run(load: &Load, until: Until) -> Result<LoadResult, BenchError> {
    run_counted(load, None, until).map(|counted| counted.result)
}

/// Runs a load in which `WAIT` follows each pipeline: it is over when so many replicas have it.
pub(crate) fn run_with_replicas(
    load: &Load,
    replicas: usize,
    until: Until,
) -> Result<LoadResult, BenchError> {
    Ok(Run { replicas: Some(replicas), ..Run::open(load, None, until)? }.finish()?.result)
}

/// Runs a load. If there is a walk, the keys are its next ones, and the load's shape does not choose them.
pub(crate) fn run_counted(load: &Load, walk: Option<&Walk>, until: Until) -> Result<Counted, BenchError> {
    Run::open(load, walk, until)?.finish()
}

/// The measurements and counts of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) result: LoadResult,
    pub(crate) requests: u64,
    /// Bytes of values received, a second.
    pub(crate) bytes_per_second: f64,
}

/// One connection.
struct Lane {
    stream: TcpStream,
    requests: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// Replies that the pipeline in flight still waits for.
    missing: usize,
    began: Instant,
}

struct Run<'w> {
    lanes: Vec<Lane>,
    operation: Operation,
    pipeline: usize,
    random_keys: u64,
    value: Vec<u8>,
    random: Random,
    walk: Option<&'w Walk>,
    /// How many replicas must have a pipeline before it counts.
    replicas: Option<usize>,
    /// Requests that have not been sent.
    left: u64,
    deadline: Option<Instant>,
    done: u64,
    /// Bytes of values received.
    value_bytes: u64,
    latencies: Histogram<u64>,
    last_sign: Instant,
    polls: Vec<libc::pollfd>,
    buffer: Vec<u8>,
}

impl<'w> Run<'w> {
    fn open(load: &Load, walk: Option<&'w Walk>, until: Until) -> Result<Self, BenchError> {
        let lanes: io::Result<Vec<Lane>> = (0..load.shape.clients).map(|_| Lane::open(load)).collect();
        let (left, deadline) = match until {
            Until::Count(requests) => (requests, None),
            Until::Time(at) => (load.requests, Some(at)),
        };
        Ok(Self {
            lanes: lanes.map_err(BenchError::connection(NAME))?,
            operation: load.operation,
            pipeline: load.shape.pipeline,
            random_keys: load.shape.random_keys,
            value: value_of(load.shape.value_bytes),
            random: Random::new(u64::from(load.address.port())),
            walk,
            replicas: None,
            left,
            deadline,
            done: 0,
            value_bytes: 0,
            latencies: histogram(),
            last_sign: Instant::now(),
            polls: Vec::new(),
            buffer: vec![0; READ_BYTES],
        })
    }

    fn finish(mut self) -> Result<Counted, BenchError> {
        let begun = Instant::now();
        (0..self.lanes.len()).for_each(|lane| self.begin(lane));
        while self.step()? {}
        let took = begun.elapsed();
        let bytes_per_second = self.value_bytes as f64 / took.as_secs_f64();
        Ok(Counted {
            result: result_of(&self.latencies, self.done, took),
            requests: self.done,
            bytes_per_second,
        })
    }

    /// Waits once and handles what is ready. False once all requests are done.
    fn step(&mut self) -> Result<bool, BenchError> {
        check_stop()?;
        let ready = self.wait().map_err(BenchError::connection(NAME))?;
        if !ready.is_empty() {
            self.last_sign = Instant::now();
        } else if self.last_sign.elapsed() > SILENCE_MAX {
            return Err(BenchError::TooLong { what: "a reply".into(), seconds: SILENCE_MAX.as_secs() });
        }
        for lane in ready {
            self.serve(lane)?;
        }
        Ok(self.lanes.iter().any(|lane| lane.missing > 0))
    }

    fn wait(&mut self) -> io::Result<Vec<usize>> {
        let mut interests: Vec<_> = self.lanes.iter().map(|lane| (&lane.stream, lane.interest())).collect();
        sys::poll(&mut interests, &mut self.polls, POLL_MS)?;
        Ok(interests
            .iter()
            .enumerate()
            .filter(|(_, (_, interest))| interest.ready)
            .map(|(index, _)| index)
            .collect())
    }

    fn serve(&mut self, index: usize) -> Result<(), BenchError> {
        let lane = &mut self.lanes[index];
        if lane.missing == 0 {
            return Ok(());
        }
        lane.send().map_err(BenchError::connection(NAME))?;
        lane.receive(&mut self.buffer).map_err(BenchError::connection(NAME))?;
        self.value_bytes += lane.take_replies(self.operation, self.replicas)?;
        if lane.missing == 0 {
            self.end(index);
            self.begin(index);
        }
        Ok(())
    }

    /// Records a pipeline's latency.
    fn end(&mut self, index: usize) {
        let took = self.lanes[index].began.elapsed();
        let requests = self.pipeline as u64;
        self.latencies.saturating_record_n(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), requests);
        self.done += requests;
    }

    /// Sends the next pipeline of a lane, if one is left. The first ones are sent whatever the time is: connecting may
    /// have taken all of it.
    fn begin(&mut self, index: usize) {
        let is_late = || self.done > 0 && self.deadline.is_some_and(|at| Instant::now() >= at);
        if self.left == 0 || is_late() {
            return;
        }
        self.left = self.left.saturating_sub(self.pipeline as u64);
        let lane = &mut self.lanes[index];
        if self.walk.is_some() || self.random_keys > 0 || lane.requests.is_empty() {
            lane.requests.clear();
            for _ in 0..self.pipeline {
                let random = || (self.random_keys > 0).then(|| self.random.below(self.random_keys));
                let number = self.walk.map(Walk::next).or_else(random).map(key_of);
                let key = number.as_ref().map_or(ONE_KEY, |key| key.as_slice());
                match self.operation {
                    Operation::Set => encode(&mut lane.requests, &[b"SET", key, &self.value]),
                    Operation::Get => encode(&mut lane.requests, &[b"GET", key]),
                }
            }
            if let Some(replicas) = self.replicas {
                encode(&mut lane.requests, &[b"WAIT", replicas.to_string().as_bytes(), b"0"]);
            }
        }
        let replies = self.pipeline + usize::from(self.replicas.is_some());
        (lane.sent, lane.missing, lane.began) = (0, replies, Instant::now());
        // The rest is sent when `poll` reports the socket as writable. It reports errors, too.
        let _ = lane.send();
    }
}

impl Lane {
    fn open(load: &Load) -> io::Result<Self> {
        let stream = TcpStream::connect(load.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let began = Instant::now();
        Ok(Self { stream, requests: Vec::new(), sent: 0, received: Vec::new(), missing: 0, began })
    }

    fn interest(&self) -> sys::Interest {
        sys::Interest { write: self.missing > 0 && self.sent < self.requests.len(), ready: false }
    }

    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.requests.len() {
            match self.stream.write(&self.requests[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match self.stream.read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.received.extend_from_slice(&buffer[..read]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Checks and counts the replies received. Returns the bytes of their values.
    fn take_replies(&mut self, operation: Operation, replicas: Option<usize>) -> Result<u64, BenchError> {
        let (mut used, mut value_bytes) = (0, 0);
        while self.missing > 0 {
            match (Reply::first(&self.received[used..]), operation) {
                (Ok(None), _) => break,
                (Ok(Some((Reply::Integer(have), len))), _)
                    if self.missing == 1
                        && replicas
                            .is_some_and(|wanted| usize::try_from(have).is_ok_and(|have| have >= wanted)) =>
                {
                    used += len;
                    self.missing -= 1;
                }
                (Ok(Some((Reply::Simple(b"OK"), len))), Operation::Set) => {
                    used += len;
                    self.missing -= 1;
                }
                (Ok(Some((Reply::Bulk(value), len))), Operation::Get) => {
                    value_bytes += value.len() as u64;
                    used += len;
                    self.missing -= 1;
                }
                (Ok(Some((other, _))), Operation::Set) => return Err(BenchError::reply(NAME, other, "+OK")),
                (Ok(Some((other, _))), Operation::Get) => {
                    return Err(BenchError::reply(NAME, other, "a value"));
                }
                (Err(_), _) => return Err(BenchError::reply(NAME, "bytes", "RESP2")),
            }
        }
        self.received.drain(..used);
        Ok(value_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Until, run, run_counted, run_with_replicas};
    use crate::common::clients::{Load, Operation, Shape, Walk};
    use crate::common::error::BenchError;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::time::{Duration, Instant};

    /// A server that answers every `request_len` bytes of a connection with `reply`.
    fn fake_server(request_len: usize, reply: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let (mut buffer, mut bytes) = ([0; 4096], 0);
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        bytes += read;
                        let requests = bytes / request_len;
                        bytes %= request_len;
                        let _ = stream.write_all(&reply.repeat(requests));
                    }
                });
            }
        });
        address
    }

    /// `*2 $3 GET $16 key:__rand_int__`, with line ends.
    const GET_LEN: usize = 4 + 4 + 5 + 5 + 18;

    fn gets(address: SocketAddr, requests: u64) -> Load {
        let shape = Shape { clients: 3, pipeline: 4, value_bytes: 1, random_keys: 0 };
        Load { address, operation: Operation::Get, shape, requests }
    }

    #[test]
    fn every_request_is_counted_and_timed() {
        let load = gets(fake_server(GET_LEN, b"$1\r\nx\r\n"), 1200);
        let result = run(&load, Until::Count(1200)).unwrap();
        assert!(result.rps > 0.0);
        assert!(
            0.0 < result.p50_us && result.p50_us <= result.p99_us && Some(result.p99_us) <= result.p999_us
        );
    }

    #[test]
    fn a_run_along_a_walk_asks_for_its_keys_and_counts_the_bytes_of_values() {
        let walk = Walk::new(vec![5, 8, 3]);
        let load = gets(fake_server(GET_LEN, b"$3\r\nxyz\r\n"), 12);
        let counted = run_counted(&load, Some(&walk), Until::Count(12)).unwrap();
        assert_eq!(counted.requests, 12);
        assert!((counted.bytes_per_second / counted.result.rps - 3.0).abs() < 1e-6);
        // Twelve keys are four times around.
        assert_eq!((walk.next(), walk.next()), (5, 8));
    }

    #[test]
    fn a_run_ends_at_its_deadline() {
        let load = gets(fake_server(GET_LEN, b"$1\r\nx\r\n"), u64::MAX);
        let begun = Instant::now();
        run(&load, Until::Time(begun + Duration::from_millis(50))).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(50) && begun.elapsed() < Duration::from_secs(20));
        assert!(run(&load, Until::Time(begun)).unwrap().rps > 0.0, "a run has at least its first requests");
    }

    #[test]
    fn a_pipeline_counts_when_as_many_replicas_have_it_as_wanted() {
        // SET of one byte, with line ends; two of them and the WAIT behind them.
        let sets = 2 * (4 + 9 + 5 + 18 + 7);
        let shape = Shape { clients: 2, pipeline: 2, value_bytes: 1, random_keys: 0 };
        let of = |reply| Load {
            address: fake_server(sets + 4 + 10 + 7 + 7, reply),
            operation: Operation::Set,
            shape,
            requests: 40,
        };
        let all = run_with_replicas(&of(b"+OK\r\n+OK\r\n:2\r\n"), 2, Until::Count(40)).unwrap();
        assert!(all.rps > 0.0);
        for too_few in [&b"+OK\r\n+OK\r\n:1\r\n"[..], b"+OK\r\n:2\r\n:2\r\n"] {
            let refused = run_with_replicas(&of(too_few), 2, Until::Count(40));
            assert!(matches!(refused, Err(BenchError::Reply { .. })), "{too_few:?}");
        }
    }

    #[test]
    fn a_missing_value_is_an_error_not_a_fast_reply() {
        let load = gets(fake_server(GET_LEN, b"$-1\r\n"), 100);
        assert!(matches!(run(&load, Until::Count(100)), Err(BenchError::Reply { .. })));
    }

    #[test]
    fn an_error_reply_ends_the_run() {
        let load = gets(fake_server(GET_LEN, b"-OOM full\r\n"), 100);
        assert!(matches!(run(&load, Until::Count(100)), Err(BenchError::Reply { .. })));
    }
}
