//! Round trips of a client that busy-polls: one connection, and one request at a time. The client's latencies vary less
//! than those of wrk, which sleeps and is woken, and are finer than wrk's microseconds. So they show small differences
//! between stores.

use super::lab::Lab;
use super::wire::Wire;
use super::wrk::{KEYS, VALUE_BYTES, WrkResult};
use crate::common::clients::builtin::histogram;
use crate::common::clients::conn::REPLY_TIMEOUT;
use crate::common::clients::{encode, key_of, value_of};
use crate::common::error::BenchError;
use crate::common::progress::check_stop;
use crate::common::sys::pin;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Requests between two checks of the clock and of Ctrl-C.
const ROUND: usize = 64;
/// The percentage of round trips, from the fastest, whose mean is taken. This leaves out interruptions by the machine.
const KEPT: f64 = 95.0;
const REPLY_BYTES_MAX: usize = 4096;

/// The protocol of a client.
pub(crate) trait Speak {
    /// For messages.
    const NAME: &'static str;
    /// Writes `value` under `key`.
    fn request(address: SocketAddr, key: &[u8], value: &[u8]) -> Vec<u8>;
    /// `None` while the reply is not whole; true if the write was done.
    fn is_done(reply: &[u8]) -> Option<bool>;
}

/// `POST`.
#[derive(Debug)]
pub(crate) struct Http;

impl Speak for Http {
    const NAME: &'static str = "HTTP";

    fn request(address: SocketAddr, key: &[u8], value: &[u8]) -> Vec<u8> {
        let (key, len) = (String::from_utf8_lossy(key), value.len());
        let head = format!("POST /kv/{key} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len}\r\n\r\n");
        [head.as_bytes(), value].concat()
    }

    fn is_done(reply: &[u8]) -> Option<bool> {
        // Such replies have no body.
        reply.ends_with(b"\r\n\r\n").then(|| reply.starts_with(b"HTTP/1.1 2"))
    }
}

/// SET.
#[derive(Debug)]
pub(crate) struct Resp;

impl Speak for Resp {
    const NAME: &'static str = "RESP";

    fn request(_address: SocketAddr, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut request = Vec::new();
        encode(&mut request, &[b"SET", key, value]);
        request
    }

    fn is_done(reply: &[u8]) -> Option<bool> {
        reply.ends_with(b"\r\n").then(|| reply == b"+OK\r\n")
    }
}

/// Writes 1 KiB repeatedly.
pub(crate) fn run<S: Speak>(
    lab: &Lab,
    wire: &Wire,
    address: SocketAddr,
    seconds: u32,
) -> Result<WrkResult, BenchError> {
    let core = lab.is_pinning().then_some(lab.args.client_core);
    wire.client.enter(|| {
        core.into_iter().for_each(pin);
        measure::<S>(address, Duration::from_secs(seconds.into()))
    })
}

fn measure<S: Speak>(address: SocketAddr, length: Duration) -> Result<WrkResult, BenchError> {
    let failed = || BenchError::connection(S::NAME);
    let requests = requests::<S>(address);
    let mut stream = open(address).map_err(failed())?;
    let mut latencies = histogram();
    let begun = Instant::now();
    for round in requests.chunks(ROUND).cycle() {
        check_stop()?;
        if begun.elapsed() >= length {
            break;
        }
        for request in round {
            let sent = Instant::now();
            stream.write_all(request).map_err(failed())?;
            reply::<S>(&mut stream, sent)?;
            latencies.saturating_record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    let took_us = begun.elapsed().as_secs_f64() * 1e6;
    let us = |percentile| latencies.value_at_percentile(percentile) as f64 / 1000.0;
    let requests = latencies.len() as f64;
    let (rps, mean_us) = (requests * 1e6 / took_us, mean_of_fastest(&latencies) / 1000.0);
    Ok(WrkResult { rps, mean_us, p50_us: us(50.0), p99_us: us(99.0), requests })
}

/// Returns the mean of the fastest [`KEPT`] percent.
fn mean_of_fastest(latencies: &hdrhistogram::Histogram<u64>) -> f64 {
    let most = latencies.value_at_percentile(KEPT);
    let kept = latencies.iter_recorded().take_while(|step| step.value_iterated_to() <= most);
    let (sum, count) = kept.fold((0.0, 0.0), |(sum, count), step| {
        let times = step.count_since_last_iteration() as f64;
        (sum + step.value_iterated_to() as f64 * times, count + times)
    });
    sum / count
}

fn requests<S: Speak>(address: SocketAddr) -> Vec<Vec<u8>> {
    let value = value_of(VALUE_BYTES);
    (0..KEYS).map(|number| S::request(address, &key_of(number), &value)).collect()
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Busy-polls until a reply arrives.
fn reply<S: Speak>(stream: &mut TcpStream, since: Instant) -> Result<(), BenchError> {
    let failed = BenchError::connection(S::NAME);
    let (mut bytes, mut filled) = ([0; REPLY_BYTES_MAX], 0);
    loop {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && since.elapsed() < REPLY_TIMEOUT => {}
            Err(error) => return Err(failed(error)),
        }
        match S::is_done(&bytes[..filled]) {
            None => {}
            Some(true) => return Ok(()),
            Some(false) => {
                let reply = String::from_utf8_lossy(&bytes[..filled]).into_owned();
                return Err(BenchError::reply(S::NAME, reply, "that it is done"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers every whole request of 1 KiB with `reply`.
    fn server<S: Speak>(reply: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let whole = requests::<S>(address)[0].len();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; whole];
            while stream.read_exact(&mut request).is_ok() && stream.write_all(reply).is_ok() {}
        });
        address
    }

    fn round_trips<S: Speak>(good: &'static [u8], bad: &'static [u8]) {
        let result = measure::<S>(server::<S>(good), Duration::from_millis(50)).unwrap();
        assert!(result.requests >= ROUND as f64 && result.rps > 0.0);
        assert!(0.0 < result.p50_us && result.p50_us <= result.p99_us && result.mean_us <= result.p99_us);
        let refused = measure::<S>(server::<S>(bad), Duration::from_millis(50));
        assert!(matches!(refused, Err(BenchError::Reply { .. })), "a refusal is no fast reply");
    }

    #[test]
    fn round_trips_are_counted_and_timed_and_a_refusal_is_an_error() {
        round_trips::<Http>(b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 507 Full\r\n\r\n");
        round_trips::<Resp>(b"+OK\r\n", b"-NOSPACE the region is full\r\n");
    }

    #[test]
    fn the_slowest_are_left_out_of_the_mean() {
        let mut latencies = histogram();
        latencies.record_n(1000, 98).unwrap();
        latencies.record_n(50_000_000, 2).unwrap();
        assert!((mean_of_fastest(&latencies) - 1000.0).abs() < 2.0);
    }
}
