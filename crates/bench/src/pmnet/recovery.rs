//! Replay (§VI-B6): the server is killed, the device's log fills, the server comes back, and the device sends it
//! everything.

use super::app::App;
use super::args::CLIENTS_MAX;
use super::choices::LARGE_PAYLOAD;
use super::course::{Course, PMNET_PORT};
use super::design::{Design, PMNET, PMNET_FILE, Spec, Waits};
use super::lab::Lab;
use super::settle::{confirm, wait_until_log};
use super::stand::{Extent, Stand};
use super::sys::wait_readable;
use super::work::{Ask, Settings, clients};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::progress::{check_stop, say};
use crate::common::sys::pin;
use landfall_bench_handlers::Structure;
use landfall_pmnet::ClientConfig;
use landfall_pmnet::client::Event;
use landfall_pmnet_io::runtime::{SessionId, Sessions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Bytes that a packet takes in the log over AF_XDP: one frame.
const FRAME_BYTES: u64 = 2048;
/// Updates of one session in the log; a device takes at most 4096.
const SESSION_UPDATES: u64 = 4000;
/// Requests that a session has in flight while the log is filled.
const UNDER_WAY: u64 = 16;
/// The largest number of rounds. Each one fills and replays a whole log.
const ROUNDS_MAX: u32 = 3;
/// The longest wait for progress.
const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: u64 = 10_000;

/// The measured replay of a log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) design: Design,
    /// Updates in the log.
    pub(crate) entries: u64,
    /// Seconds from the start of the server's process until it serves.
    pub(crate) boot_seconds: Summary,
    /// Seconds from then on until the log is empty.
    pub(crate) replay_seconds: Summary,
    /// Updates a second.
    pub(crate) rate: Summary,
    /// µs an update.
    pub(crate) us: Summary,
}

/// Measures each medium of the log. A failure becomes a note.
pub(crate) fn measure(lab: &Lab, notes: &mut Vec<String>) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for design in [PMNET, PMNET_FILE] {
        match measure_one(lab, design) {
            Ok(row) => rows.push(row),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                let note = format!("FAILED replay, {}: {error}", design.name());
                say(format_args!("  {note}"));
                notes.push(note);
            }
        }
    }
    Ok(rows)
}

fn measure_one(lab: &Lab, design: Design) -> Result<Row, BenchError> {
    let entries = (lab.args.replay_mib << 20) / FRAME_BYTES;
    let mut found: Vec<(f64, f64)> = Vec::new();
    for round in 0..lab.args.rounds.min(ROUNDS_MAX) {
        say(format_args!("  round {}: replay of {entries} updates, {}", round + 1, design.name()));
        found.push(replay(lab, design, entries)?);
    }
    let of = |value: &dyn Fn(&(f64, f64)) -> f64| {
        Summary::of(found.iter().map(value)).ok_or(BenchError::Nothing("no replay came to its end"))
    };
    Ok(Row {
        design,
        entries,
        boot_seconds: of(&|(boot, _)| *boot)?,
        replay_seconds: of(&|(_, replay)| *replay)?,
        rate: of(&|(_, replay)| entries as f64 / replay)?,
        us: of(&|(_, replay)| replay * 1e6 / entries as f64)?,
    })
}

/// Returns the seconds until the server serves again, and from then until the log is empty.
fn replay(lab: &Lab, design: Design, entries: u64) -> Result<(f64, f64), BenchError> {
    let app = App::Map(Structure::HashMap);
    let payload = LARGE_PAYLOAD;
    let spec =
        Spec { app, design, waits: Waits::Polls, clients: CLIENTS_MAX, payload, updates: 100, rests: false };
    // Half as much again: packets also need space to land in.
    let extent = Extent {
        log_bytes: (entries * FRAME_BYTES * 3 / 2).max(64 << 20),
        region_bytes: 512 << 20,
        ..Extent::of(lab)
    };
    let mut stand = Stand::start(lab, spec, extent)?;
    let mut filler = stand.course.client.enter(|| {
        lab.is_pinning().then(|| pin(lab.args.client_core));
        Filler::start(entries)
    })?;
    wait_until_log(&stand, 0, 0)?;
    // Only the server is killed; it is the only process in its list.
    stand.servers.clear();
    stand.course.client.enter(|| filler.fill())?;
    drop(filler);
    wait_until_log(&stand, 0, entries)?;
    let _awake = lab.keep_awake(Waits::Polls);
    let begun = Instant::now();
    stand.restart_server(lab, extent)?;
    let boot = begun.elapsed();
    wait_until_log(&stand, 0, 0)?;
    let replayed = begun.elapsed() - boot;
    confirm(&stand, entries)?;
    Ok((boot.as_secs_f64(), replayed.as_secs_f64()))
}

/// Sessions that fill a log while there is no server.
struct Filler {
    sessions: Sessions,
    /// Updates left to send and in flight, by session.
    left: BTreeMap<SessionId, (u64, u64)>,
    heard: Instant,
}

impl Filler {
    /// Starts sessions with the server.
    fn start(entries: u64) -> Result<Self, BenchError> {
        let config = ClientConfig { devices: 1, ..ClientConfig::default() };
        let at = Course::at_server(PMNET_PORT);
        let mut sessions = Sessions::new(at, None, config, None).map_err(failed)?;
        let (mut left, mut rest) = (BTreeMap::new(), entries);
        while rest > 0 {
            let of_session = rest.min(SESSION_UPDATES);
            left.insert(sessions.start().map_err(failed)?, (of_session, 0));
            rest -= of_session;
        }
        let mut filler = Self { sessions, left, heard: Instant::now() };
        let (mut started, mut events) = (0, Vec::new());
        while started < filler.left.len() {
            filler.turn(&mut events)?;
            started += events.drain(..).filter(|(_, event)| *event == Event::Started).count();
        }
        Ok(filler)
    }

    fn turn(&mut self, events: &mut Vec<(SessionId, Event)>) -> Result<(), BenchError> {
        check_stop()?;
        self.sessions.turn(events).map_err(failed)?;
        if !events.is_empty() {
            self.heard = Instant::now();
        } else if self.heard.elapsed() > PATIENCE {
            let what = "an acknowledgement by the device".into();
            return Err(BenchError::TooLong { what, seconds: PATIENCE.as_secs() });
        } else {
            wait_readable(&[self.sessions.as_fd()], 1).map_err(BenchError::connection("the device"))?;
        }
        Ok(())
    }

    /// Sends every session's updates, and waits until the device has them all.
    fn fill(&mut self) -> Result<(), BenchError> {
        let app = App::Map(Structure::HashMap);
        let settings = Settings { app, payload: LARGE_PAYLOAD, updates: 100, keys: KEYS, seed: 5 };
        let mut work = clients(settings, 1).remove(0);
        let (mut ask, mut events) = (Ask::default(), Vec::new());
        let ids: Vec<SessionId> = self.left.keys().copied().collect();
        let mut to_serve = ids;
        loop {
            for id in to_serve.drain(..) {
                let Some((left, under_way)) = self.left.get_mut(&id) else { continue };
                while *left > 0 && *under_way < UNDER_WAY {
                    work.next(&[], &mut ask)?;
                    self.sessions.update(id, &ask.bytes).map_err(failed)?;
                    (*left, *under_way) = (*left - 1, *under_way + 1);
                }
                if (*left, *under_way) == (0, 0) {
                    self.left.remove(&id);
                }
            }
            if self.left.is_empty() {
                return Ok(());
            }
            self.turn(&mut events)?;
            for (id, event) in events.drain(..) {
                if let (Event::Complete { .. }, Some((_, under_way))) = (event, self.left.get_mut(&id)) {
                    *under_way -= 1;
                    to_serve.push(id);
                }
            }
        }
    }
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::connection("the device")(std::io::Error::other(error.to_string()))
}
