//! Reads and checks every key after a restart. During the load, a reader records what it has seen, because a crash may
//! not revoke that.

use super::load::{Client, now_ms, path};
use super::model::{Attempt, Kind, Observed, State, Unit, Wrong};
use super::payload::{self, Content};
use super::report::Report;
use super::rng::Rng;
use super::wire::{Http, Reply, Resp};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Units read in one round trip.
const UNITS_AT_ONCE: usize = 16;
/// One of this many plain units is read over HTTP as well.
const HTTP_EVERY: usize = 8;
/// Time limit of a reply: recovery has ended, and there is no other load.
const REPLY_MAX: Duration = Duration::from_secs(20);

/// The newest operation that a reader has seen, by key.
pub(crate) type Seen = BTreeMap<String, u64>;

/// Reads everything that a client has written, and checks it.
pub(crate) fn verify(
    client: &mut Client,
    resp: SocketAddr,
    http: SocketAddr,
    seen: &Seen,
    report: &mut Report,
) -> io::Result<()> {
    let mut resp = Resp::connect(resp, REPLY_MAX)?;
    for units in client.units.chunks_mut(UNITS_AT_ONCE) {
        reset_faulty(&mut resp, units)?;
        let observed = read_units(&mut resp, units)?;
        for (unit, observed) in units.iter_mut().zip(observed) {
            judge(unit, &observed, seen, "RESP", report);
        }
    }
    let mut http = Http::connect(http, REPLY_MAX)?;
    for unit in client.units.iter_mut().filter(|unit| unit.kind == Kind::Plain).step_by(HTTP_EVERY) {
        let observed = read_http(&mut http, unit)?;
        judge(unit, &observed, seen, "HTTP", report);
    }
    Ok(())
}

fn judge(unit: &mut Unit, observed: &Observed, seen: &Seen, over: &str, report: &mut Report) {
    if unit.faulty {
        return;
    }
    report.verified += unit.keys.len() as u64;
    let shown = unit.keys.iter().filter_map(|key| seen.get(key)).copied().max().unwrap_or(0);
    let history = format!("{:?} then {:?}", unit.base, unit.tries);
    if let Err(wrong) = unit.judge(observed, shown) {
        report.add_violation(wrong, &describe(unit, observed, shown, over, wrong, &history));
    }
}

fn describe(unit: &Unit, observed: &Observed, shown: u64, over: &str, wrong: Wrong, history: &str) -> String {
    let told = |(key, value): (&String, &Option<Vec<u8>>)| match value {
        None => "nothing".into(),
        Some(bytes) => match payload::read(key, bytes) {
            Content::Version(version) => format!("version {version} of {} bytes", bytes.len()),
            Content::Short => format!("{} bytes", bytes.len()),
            Content::Torn => format!("{} bytes that were not written as a whole", bytes.len()),
        },
    };
    let found: Vec<String> = unit.keys.iter().zip(&observed.values).map(told).collect();
    format!(
        "{wrong:?} over {over}: {} holds {}; shown {shown}; {history}",
        unit.keys.join(" "),
        found.join(", ")
    )
}

/// Resets the units whose state is unknown.
fn reset_faulty(resp: &mut Resp, units: &mut [Unit]) -> io::Result<()> {
    for unit in units.iter_mut().filter(|unit| unit.faulty) {
        for key in &unit.keys {
            resp.call(&[b"DEL", key.as_bytes()])?;
        }
        unit.base = Attempt { op: unit.latest().op, state: State::Absent, acked: true };
        unit.tries.clear();
        unit.faulty = false;
    }
    Ok(())
}

fn read_units(resp: &mut Resp, units: &[Unit]) -> io::Result<Vec<Observed>> {
    let before_ms = now_ms();
    for key in units.iter().flat_map(|unit| &unit.keys) {
        resp.push(&[b"GET", key.as_bytes()]);
    }
    resp.flush()?;
    let mut all = Vec::with_capacity(units.len());
    for unit in units {
        let values = unit.keys.iter().map(|_| value(resp.read()?)).collect::<io::Result<_>>()?;
        all.push(Observed { values, before_ms, after_ms: 0 });
    }
    let after_ms = now_ms();
    all.iter_mut().for_each(|observed| observed.after_ms = after_ms);
    Ok(all)
}

fn value(reply: Reply) -> io::Result<Option<Vec<u8>>> {
    match reply {
        Reply::Nil => Ok(None),
        Reply::Bulk(bytes) => Ok(Some(bytes)),
        other => Err(io::Error::other(format!("a read was answered with {other:?}"))),
    }
}

fn read_http(http: &mut Http, unit: &Unit) -> io::Result<Observed> {
    let before_ms = now_ms();
    let response = http.call("GET", &path(&unit.keys[0]), "", b"")?;
    let value = match response.status {
        200 => Some(response.body),
        404 => None,
        status => return Err(io::Error::other(format!("a read was answered with HTTP status {status}"))),
    };
    Ok(Observed { values: vec![value], before_ms, after_ms: now_ms() })
}

/// Reads random keys until the server ends, and records what it has seen. Values that were never written are recorded
/// at once.
pub(crate) fn watch(keys: &[String], resp: SocketAddr, seed: u64, over: &AtomicBool) -> (Seen, Vec<String>) {
    let (mut seen, mut torn) = (Seen::new(), Vec::new());
    // Any error on the connection is the crash that the demonstration causes.
    let _ = try_watch(keys, resp, seed, over, &mut seen, &mut torn);
    (seen, torn)
}

fn try_watch(
    keys: &[String],
    resp: SocketAddr,
    seed: u64,
    over: &AtomicBool,
    seen: &mut Seen,
    torn: &mut Vec<String>,
) -> io::Result<()> {
    let mut resp = Resp::connect(resp, REPLY_MAX)?;
    let mut rng = Rng::new(seed);
    while !over.load(Ordering::Relaxed) {
        let key = &keys[rng.below(keys.len() as u64) as usize];
        let Reply::Bulk(bytes) = resp.call(&[b"GET", key.as_bytes()])? else { continue };
        match payload::read(key, &bytes) {
            Content::Version(version) => {
                let newest = seen.entry(key.clone()).or_insert(0);
                *newest = version.max(*newest);
            }
            Content::Short => {}
            Content::Torn => {
                torn.push(format!("a reader saw {} bytes of {key} that were never written", bytes.len()))
            }
        }
    }
    Ok(())
}

/// Keys whose values identify the operation that wrote them.
pub(crate) fn watched(clients: &[Client]) -> Vec<String> {
    let versioned = |unit: &&Unit| matches!(unit.kind, Kind::Plain | Kind::Group(_));
    clients
        .iter()
        .flat_map(|client| &client.units)
        .filter(versioned)
        .flat_map(|unit| unit.keys.clone())
        .collect()
}
