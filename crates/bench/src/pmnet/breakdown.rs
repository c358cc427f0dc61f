//! Where an update's time goes without PMNet (Figure 2). One client pauses between updates. A device between client and
//! server forwards in the kernel.
//!
//! All hosts share one clock. Time stamps divide a round trip into parts:
//!
//! - the client reads the clock before it sends and after it receives;
//! - a [`Tap`] at either end reports when a packet left or reached an interface;
//! - a plain server appends its own times to its reply ([`Stamps`]).
//!
//! Redis reports its mean execution time. The cost of its append-only file is the difference between runs with the file
//! and runs without it, in turns.

use super::app::App;
use super::args::AppChoice;
use super::choices::{app, key_value};
use super::compare::{load, settings_of};
use super::course::{PLAIN_PORT, RESP_PORT};
use super::design::{Design, Spec};
use super::lab::Lab;
use super::load::Channel;
use super::serve::plain::{Stamps, now_ns};
use super::stand::{Extent, LOCAL_RESP, Stand};
use super::sys::{Tap, sleep_exactly};
use super::work::{Ask, clients};
use crate::common::clients::conn::Conn;
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::progress::{check_stop, say};
use crate::common::sys::pin;
use landfall_resp::Reply;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The parts of a round trip, in the order of [`Row::parts`].
pub(crate) const PARTS: [&str; 5] =
    ["client\u{2019}s stack", "network", "server\u{2019}s stack", "processing", "persistence"];
/// The index of the first part that is the server's.
const SERVER_PARTS: usize = 2;
/// Bytes of a frame that are parsed.
const HEADERS_BYTES_MAX: usize = 128;
/// How long to wait for the first round trip that has all time stamps, and for the first one that counts. The kernel
/// begins to take stamps some time after the first request for them.
const STAMPS_WITHIN: Duration = Duration::from_secs(5);
/// The warm-up in front of a run takes the run's length divided by this.
const WARM_UP_SHARE: u32 = 4;
/// The longest wait for one reply.
const REPLY_MAX: Duration = Duration::from_secs(20);

/// An application's round trip and its parts over all rounds, µs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) app: App,
    pub(crate) parts: Vec<Summary>,
    pub(crate) round_trip: Summary,
}

impl Row {
    fn of(app: App, rounds: &[[f64; 5]]) -> Option<Self> {
        let part = |at: usize| Summary::of(rounds.iter().map(|parts| parts[at]));
        let parts = (0..PARTS.len()).map(part).collect::<Option<_>>()?;
        let round_trip = Summary::of(rounds.iter().map(|parts| parts.iter().sum()))?;
        Some(Self { app, parts, round_trip })
    }

    /// Returns a part's share of the round trip, percent.
    pub(crate) fn share(&self, part: usize) -> Option<Summary> {
        let share = self.parts[part].over(&self.round_trip)?;
        Summary::of(share.samples.iter().map(|share| share * 100.0))
    }

    /// Returns the share of the server's stack, processing and persistence, percent.
    pub(crate) fn server_share(&self) -> Option<Summary> {
        let rounds = 0..self.round_trip.samples.len();
        Summary::of(rounds.map(|round| {
            let server: f64 = self.parts[SERVER_PARTS..].iter().map(|part| part.samples[round]).sum();
            server * 100.0 / self.round_trip.samples[round]
        }))
    }
}

/// Returns the applications that report their parts: all but `landfall serve`.
pub(crate) fn apps(choices: &[AppChoice]) -> Vec<App> {
    let known = key_value(choices).into_iter().filter(|app| *app != App::Landfall);
    std::iter::once(App::Ideal).chain(known).collect()
}

/// Measures every application in turns. A failure becomes a note.
pub(crate) fn measure(lab: &Lab, notes: &mut Vec<String>) -> Result<Vec<Row>, BenchError> {
    // The kernel takes time stamps as long as there is a tap, and needs a while to begin again.
    let _tap = Tap::open("lo").ok();
    let apps = apps(&lab.args.apps);
    let can_run = |it: &App| lab.can_run(&spec_of(*it));
    let mut rounds: Vec<(App, Vec<[f64; 5]>)> =
        apps.into_iter().filter(can_run).map(|it| (it, Vec::new())).collect();
    for round in 0..lab.args.rounds {
        for (it, found) in &mut rounds {
            check_stop()?;
            say(format_args!("  round {} of {}: parts of {}", round + 1, lab.args.rounds, it.name()));
            match turn(lab, *it) {
                Ok(parts) => found.push(parts),
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    let note = format!("FAILED parts of {}: {error}", it.name());
                    say(format_args!("  {note}"));
                    notes.push(note);
                }
            }
        }
    }
    Ok(rounds.iter().filter_map(|(it, found)| Row::of(*it, found)).collect())
}

/// Returns the run that is divided into parts.
pub(crate) fn spec_of(it: App) -> Spec {
    app(it, Design::ClientServer, 100, 1)
}

/// Measures the parts of one round, µs.
fn turn(lab: &Lab, it: App) -> Result<[f64; 5], BenchError> {
    let persistent = run(lab, it, true)?;
    if !it.is_on_redis() {
        return Ok(persistent.parts);
    }
    let volatile = run(lab, it, false)?;
    Ok(divide(&persistent, &volatile))
}

/// Divides the time of a server that reports only its execution time. `persistent` is a run in which the server stores
/// its data, `volatile` one in which it does not.
fn divide(persistent: &Run, volatile: &Run) -> [f64; 5] {
    let [client, network, inside, ..] = persistent.parts;
    let persistence = (inside - volatile.parts[SERVER_PARTS]).max(0.0);
    let executed = persistent.executed_us.min(inside - persistence);
    [client, network, inside - persistence - executed, executed, persistence]
}

/// The means of a run, µs.
struct Run {
    /// A server without stamps has all of its time in the part of its stack.
    parts: [f64; 5],
    /// The execution time of an update as Redis reports it.
    executed_us: f64,
}

fn run(lab: &Lab, it: App, persists: bool) -> Result<Run, BenchError> {
    let spec = spec_of(it);
    let extent = Extent { persists, stamps: !it.is_on_redis(), ..Extent::of(lab) };
    let stand = Stand::start(lab, spec, extent)?;
    let _awake = lab.keep_awake(spec.waits);
    let settings = settings_of(lab, spec);
    let failed = BenchError::connection("an interface");
    let tap = |host: &landfall_testbed::Host, end: usize| {
        host.enter(|| Tap::open(&stand.course.ends[end])).map_err(&failed)
    };
    let taps = [tap(&stand.course.client, 0)?, tap(&stand.course.server, 1)?];
    let rest = Duration::from_micros(lab.args.rest_us) * spec.rest_factor();
    let length = Duration::from_secs_f64(lab.args.seconds);
    let trips = stand.course.client.enter(|| {
        lab.is_pinning().then(|| pin(lab.args.client_core));
        sleep_exactly();
        load(&stand, settings)?;
        if it.is_on_redis() {
            stand.course.server.enter(forget_commands)?;
        }
        let mut traveller =
            Traveller { channel: stand.open_channel()?, taps, port: port_of(it), has_stamps: extent.stamps };
        let mut work = clients(settings, 1).remove(0);
        let (mut ask, mut reply, mut trips) = (Ask::default(), Vec::new(), Vec::new());
        let (opened, mut begun) = (Instant::now(), None::<Instant>);
        let lasts = |begun: Option<Instant>, counted: usize| {
            let is_short = counted == 0 && opened.elapsed() < 2 * STAMPS_WITHIN;
            is_short || begun.is_none_or(|begun| begun.elapsed() < length + length / WARM_UP_SHARE)
        };
        while lasts(begun, trips.len()) {
            check_stop()?;
            std::thread::sleep(rest);
            work.next(&reply, &mut ask)?;
            let trip = traveller.travel(&ask, &mut reply)?;
            if begun.is_none() && (trip.is_some() || opened.elapsed() > STAMPS_WITHIN) {
                begun = Some(Instant::now());
            }
            let counts = begun.is_some_and(|begun| begun.elapsed() >= length / WARM_UP_SHARE);
            trips.extend(trip.filter(|_| counts));
        }
        Ok::<_, BenchError>(trips)
    })?;
    let executed_us = if it.is_on_redis() { stand.course.server.enter(executed_us)? } else { 0.0 };
    let parts = middle(trips).ok_or(BenchError::Nothing("no round trip has all of its time stamps"))?;
    Ok(Run { parts, executed_us })
}

fn port_of(it: App) -> u16 {
    if it.speaks_resp() { RESP_PORT } else { PLAIN_PORT }
}

/// The times at which a request and its reply passed each point, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trip {
    sent: u64,
    left: u64,
    arrived: u64,
    inside: Option<Stamps>,
    replied: u64,
    returned: u64,
    received: u64,
}

impl Trip {
    /// Returns the parts, ns. A server without stamps has all of its time in the part of its stack. `None` if a stamp
    /// is missing or the clock went back.
    fn parts(&self) -> Option<[u64; 5]> {
        let between = |from: u64, to: u64| to.checked_sub(from).filter(|_| from > 0);
        let [processing, persistence] = match self.inside {
            Some(inside) => {
                [between(inside.taken, inside.executed)?, between(inside.executed, inside.durable)?]
            }
            None => [0, 0],
        };
        let server = between(self.arrived, self.replied)?.checked_sub(processing + persistence)?;
        Some([
            between(self.sent, self.left)? + between(self.returned, self.received)?,
            between(self.left, self.arrived)? + between(self.replied, self.returned)?,
            server,
            processing,
            persistence,
        ])
    }
}

/// Returns the mean of each part over the middle half of the round trips, µs. This leaves out rare delays of a disk or
/// a host, and the parts still add up.
fn middle(mut trips: Vec<[u64; 5]>) -> Option<[f64; 5]> {
    trips.sort_by_key(|parts| parts.iter().sum::<u64>());
    let (from, to) = (trips.len() / 4, trips.len() - trips.len() / 4);
    let middle = trips.get(from..to).filter(|middle| !middle.is_empty())?;
    let mean = |at: usize| {
        let sum: u64 = middle.iter().map(|parts| parts[at]).sum();
        sum as f64 / middle.len() as f64 / 1000.0
    };
    Some([0, 1, 2, 3, 4].map(mean))
}

/// A client with taps at its own interface and at the server's.
struct Traveller {
    channel: Box<dyn Channel>,
    taps: [Tap; 2],
    port: u16,
    has_stamps: bool,
}

impl Traveller {
    /// Sends one request and waits for its reply. `None` if a time stamp is missing.
    fn travel(&mut self, ask: &Ask, reply: &mut Vec<u8>) -> Result<Option<[u64; 5]>, BenchError> {
        // Drop what the taps hold of the round trip before: TCP's acknowledgements.
        self.passed()?;
        let (begun, mut done) = (Instant::now(), Vec::new());
        let sent = now_ns();
        self.channel.send(0, ask)?;
        while done.is_empty() {
            self.channel.receive(&mut done)?;
            if begun.elapsed() > REPLY_MAX {
                return Err(BenchError::TooLong { what: "a reply".into(), seconds: REPLY_MAX.as_secs() });
            }
        }
        let received = now_ns();
        *reply = done.remove(0).reply;
        let [left, returned, arrived, replied] = self.passed()?;
        let inside = self.has_stamps.then(|| Stamps::of_reply(reply)).flatten();
        let trip = Trip { sent, left, arrived, inside, replied, returned, received };
        Ok(trip.parts().filter(|_| inside.is_some() == self.has_stamps))
    }

    /// Returns when a packet with a payload left the client, came back to it, reached the server and left the server.
    /// 0 means that there was no such packet.
    fn passed(&self) -> Result<[u64; 4], BenchError> {
        let (mut found, mut frame) = ([0; 4], [0; HEADERS_BYTES_MAX]);
        for (end, tap) in self.taps.iter().enumerate() {
            while let Some(seen) = tap.next(&mut frame).map_err(BenchError::connection("an interface"))? {
                if has_payload(&frame[..seen.len.min(HEADERS_BYTES_MAX)], self.port) {
                    // At the server, requests arrive.
                    let is_back = seen.leaves == (end == 1);
                    found[end * 2 + usize::from(is_back)] = seen.at_ns;
                }
            }
        }
        Ok(found)
    }
}

/// Returns whether a frame carries a payload from or to a server's port, over UDP or TCP in IPv4.
#[expect(clippy::big_endian_bytes, reason = "headers of IP, UDP and TCP are in network order")]
fn has_payload(frame: &[u8], port: u16) -> bool {
    const ETHERNET_BYTES: usize = 14;
    const UDP_BYTES: usize = 8;
    let parse = || {
        let packet = frame.get(ETHERNET_BYTES..)?;
        let header = usize::from(packet.first()? & 15) * 4;
        let total = usize::from(u16::from_be_bytes(*packet.get(2..)?.first_chunk()?));
        let segment = packet.get(header..)?;
        let [from, to] =
            [0, 2].map(|at| segment.get(at..)?.first_chunk().map(|port| u16::from_be_bytes(*port)));
        let own = match packet.get(9)? {
            17 => UDP_BYTES,
            6 => usize::from(segment.get(12)? >> 4) * 4,
            _ => return None,
        };
        let is_ours = from? == port || to? == port;
        Some(is_ours && packet.first()? >> 4 == 4 && total > header + own)
    };
    parse().unwrap_or(false)
}

/// Resets Redis's command statistics. To be called on its host.
fn forget_commands() -> Result<(), BenchError> {
    let mut redis = Conn::open(LOCAL_RESP, "redis")?;
    redis.ask(&[b"CONFIG", b"RESETSTAT"]).map(drop)
}

/// Returns the mean time of a SET as Redis reports it, µs.
fn executed_us() -> Result<f64, BenchError> {
    let mut redis = Conn::open(LOCAL_RESP, "redis")?;
    let Reply::Bulk(text) = redis.ask(&[b"INFO", b"commandstats"])? else {
        return Err(BenchError::Nothing("redis does not report the times of its commands"));
    };
    let found = set_us(&String::from_utf8_lossy(text));
    found.ok_or(BenchError::Nothing("redis does not report the time of its SETs"))
}

fn set_us(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_set:"))?;
    line.split(',').find_map(|field| field.strip_prefix("usec_per_call="))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip() -> Trip {
        let inside = Some(Stamps { taken: 1_500, executed: 1_700, durable: 2_200 });
        let (sent, left, arrived) = (1_000, 1_100, 1_300);
        Trip { sent, left, arrived, inside, replied: 2_300, returned: 2_600, received: 3_000 }
    }

    #[test]
    fn parts_add_up_to_the_round_trip() {
        let parts = trip().parts().unwrap();
        assert_eq!(parts, [500, 500, 300, 200, 500]);
        assert_eq!(parts.iter().sum::<u64>(), 2_000);
        let unstamped = Trip { inside: None, ..trip() };
        assert_eq!(unstamped.parts().unwrap(), [500, 500, 1_000, 0, 0]);
    }

    #[test]
    fn a_round_trip_with_a_missing_stamp_does_not_count() {
        assert_eq!(Trip { left: 0, ..trip() }.parts(), None);
        assert_eq!(Trip { replied: 0, ..trip() }.parts(), None);
        assert_eq!(Trip { returned: 3_001, ..trip() }.parts(), None, "the clock was set back");
    }

    #[test]
    fn the_middle_half_leaves_out_rare_delays() {
        let trips = vec![[1_000_000, 0, 0, 0, 0], [1_000, 0, 3_000, 0, 0], [2_000, 0, 3_000, 0, 0], [0; 5]];
        assert_eq!(middle(trips), Some([1.5, 0.0, 3.0, 0.0, 0.0]));
        assert_eq!(middle(Vec::new()), None);
    }

    #[test]
    fn a_run_without_the_file_shows_what_the_file_costs() {
        let run = |inside, executed_us| Run { parts: [10.0, 5.0, inside, 0.0, 0.0], executed_us };
        assert_eq!(divide(&run(60.0, 2.0), &run(20.0, 2.0)), [10.0, 5.0, 18.0, 2.0, 40.0]);
        // On tmpfs the file may cost less than the difference between two runs.
        assert_eq!(divide(&run(20.0, 2.0), &run(21.0, 2.0)), [10.0, 5.0, 18.0, 2.0, 0.0]);
    }

    #[test]
    fn shares_are_those_of_each_round() {
        let rounds = [[10.0, 10.0, 40.0, 20.0, 20.0], [20.0, 20.0, 20.0, 20.0, 20.0]];
        let row = Row::of(App::Ideal, &rounds).unwrap();
        assert_eq!(row.server_share().unwrap().samples, [80.0, 60.0]);
        assert_eq!(row.share(0).unwrap().samples, [10.0, 20.0]);
    }

    #[test]
    #[expect(clippy::big_endian_bytes, reason = "headers of IP, UDP and TCP are in network order")]
    fn acknowledgements_and_other_connections_carry_no_payload() {
        let frame = |protocol: u8, port: u16, own: usize, payload: usize| {
            let mut frame = vec![0; 14 + 20 + own + payload];
            frame[14] = 0x45;
            frame[16..18].copy_from_slice(&((20 + own + payload) as u16).to_be_bytes());
            frame[23] = protocol;
            frame[36..38].copy_from_slice(&port.to_be_bytes());
            if protocol == 6 {
                frame[46] = ((own / 4) as u8) << 4;
            }
            frame
        };
        assert!(has_payload(&frame(17, 7, 8, 1), 7) && has_payload(&frame(6, 7, 32, 5), 7));
        assert!(!has_payload(&frame(6, 7, 32, 0), 7) && !has_payload(&frame(17, 8, 8, 1), 7));
        assert!(!has_payload(&[0; 20], 7) && !has_payload(&frame(1, 7, 8, 8), 7));
    }

    #[test]
    fn the_statistics_of_redis_hold_the_time_of_a_set() {
        let text = "# Commandstats\r\ncmdstat_get:calls=1,usec=9,usec_per_call=9.00\r\ncmdstat_set:calls=4,usec=6,usec_per_call=1.50,x=0\r\n";
        assert_eq!(set_us(text), Some(1.5));
        assert_eq!(set_us("# Commandstats"), None);
    }
}
