//! What publishing costs a program beside it, by the way in which published files get their bytes: after LineFS, Figure 7,
//! and the publishing half of Figure 5.

use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::Programs;
use crate::common::tables::{Page, spread, spread_of};
use crate::common::targets::{Bound, Target};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::busy::Contestant;
use crate::linefs::clients::{Written, write_all};
use crate::linefs::corunner::{self, CoRunner, Priority};
use crate::linefs::overdue::{LOAD_MAX, Overdue};
use crate::linefs::place::{Kind, Place, empty};
use crate::linefs::published::{Published, STAGES};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Clients that write at once, as in the paper.
const CLIENTS: u32 = 4;

/// What is measured in turns.
pub(super) const CONTESTANTS: [Contestant; 4] = [
    Contestant::CoRunner,
    Contestant::Chain(Kind::Alone),
    Contestant::Chain(Kind::Copying),
    Contestant::Chain(Kind::CopyingEach),
];

/// The name in reports.
pub(super) fn way_of(contestant: Contestant) -> &'static str {
    match contestant {
        Contestant::Chain(Kind::Alone) => "relinking",
        other => other.name(),
    }
}

/// One way of publishing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PublishingRow {
    pub(super) way: String,
    /// Time of one round of the co-runner, ms.
    pub(super) round_ms: Summary,
    /// MiB a second, of all clients together. None for a co-runner alone, as with all that follows.
    pub(super) rate: Option<Summary>,
    /// CPU time of the clients and of the server, microseconds a MiB.
    pub(super) cpu_us: Option<Summary>,
    /// CPU time of the thread that publishes, microseconds a MiB.
    pub(super) publisher_us: Option<Summary>,
    /// Time of each of [`STAGES`], ms a chunk.
    pub(super) stages_ms: Vec<Summary>,
}

/// What one contestant has found.
pub(super) struct PublishingSample {
    round_ms: f64,
    written: Option<Done>,
}

/// What clients have written, and what publishing it has taken.
#[derive(Clone, Copy)]
struct Done {
    written: Written,
    publisher_us: f64,
    stages_ms: [f64; 4],
}

impl PublishingRow {
    /// Of all rounds; `None` if there is none.
    pub(super) fn of(contestant: Contestant, samples: &[PublishingSample]) -> Option<Self> {
        let written = || samples.iter().filter_map(|sample| sample.written);
        let stage = |at: usize| Summary::of(written().map(|done| done.stages_ms[at]));
        Some(Self {
            way: way_of(contestant).into(),
            round_ms: Summary::of(samples.iter().map(|sample| sample.round_ms))?,
            rate: Summary::of(written().map(|done| done.written.rate())),
            cpu_us: Summary::of(written().map(|done| done.written.cpu_us())),
            publisher_us: Summary::of(written().map(|done| done.publisher_us)),
            stages_ms: (0..STAGES.len()).filter_map(stage).collect(),
        })
    }
}

/// One turn, at a server that has just been started.
pub(super) fn once(
    contestant: Contestant,
    programs: &Programs,
    args: &LinefsArgs,
) -> Result<PublishingSample, BenchError> {
    let (bytes, threads) = (corunner::point_bytes(args.quick), args.co_threads());
    let Contestant::Chain(kind) = contestant else {
        let round_ms = corunner::alone(bytes, threads, Duration::from_secs_f64(args.seconds));
        return Ok(PublishingSample { round_ms, written: None });
    };
    let place = Place::new(kind, programs, &args.of_loads(), args.region_bytes(LinefsLoad::Publish))?;
    let overdue = Overdue::watch(place.pids(), LOAD_MAX);
    let mib = args.mib_of_client(CLIENTS);
    // The first files of a place are written to memory and blocks that nothing has touched.
    let touched = write_all(place.files(), CLIENTS, mib).and_then(|_| empty(place.files()));
    let sample = touched.and_then(|()| {
        let before = Published::by(&place)?;
        let runner = CoRunner::start(bytes, threads, Priority::Same);
        let used = place.used();
        let mut written = write_all(place.files(), CLIENTS, mib)?;
        written.add_cpu(used.ns_since());
        let round_ms = runner.end();
        let published = Published::by(&place)?.since(&before);
        let publisher_us = published.cpu_ns as f64 / 1000.0 / written.mib();
        let stages_ms = published.stages_ms.map(|(_, ms)| ms);
        Ok(PublishingSample { round_ms, written: Some(Done { written, publisher_us, stages_ms }) })
    });
    overdue.end("clients that write", sample)
}

fn row(rows: &[PublishingRow], contestant: Contestant) -> Option<&PublishingRow> {
    rows.iter().find(|row| row.way == way_of(contestant))
}

/// By how much a round of the co-runner takes longer than alone, as a part of that.
fn slowdown(rows: &[PublishingRow], contestant: Contestant) -> Option<Summary> {
    let alone = &row(rows, Contestant::CoRunner)?.round_ms;
    row(rows, contestant)?.round_ms.less(alone)?.over(alone)
}

/// Time that the co-runner loses for each GiB that is written, seconds: a client that waits writes less.
fn lost(rows: &[PublishingRow], contestant: Contestant) -> Option<Summary> {
    let ours = row(rows, contestant)?;
    let share = ours.round_ms.less(&row(rows, Contestant::CoRunner)?.round_ms)?.over(&ours.round_ms)?;
    let share = Summary::of(share.samples.iter().map(|share| share * 1024.0))?;
    share.over(ours.rate.as_ref()?)
}

/// What relinking is to cost a program beside it, of what copying costs.
pub(super) fn targets(rows: &[PublishingRow]) -> Vec<Target> {
    let over = |contestant| {
        let theirs = lost(rows, contestant)?;
        if theirs.min > 0.0 { lost(rows, Contestant::Chain(Kind::Alone))?.over(&theirs) } else { None }
    };
    let target = |contestant: Contestant| Target {
        what: format!("co-runner's loss for as much as is written: relinking over {}", way_of(contestant)),
        bound: Bound::AtMost,
        wanted: 0.5,
        unit: "×",
        measured: over(contestant),
    };
    [Kind::Copying, Kind::CopyingEach].map(|kind| target(Contestant::Chain(kind))).into()
}

/// The tables of a report.
pub(super) fn show(rows: &[PublishingRow], mib: u64, co_threads: usize, page: &mut Page) {
    if rows.is_empty() {
        return;
    }
    page.paragraph("## Publishing by relinking and by copying");
    page.paragraph(&format!(
        "{CLIENTS} clients share {mib} MiB, which they write in sequence by 16 KiB, each to a file of its own, and then call \
         fsync, at one server, beside a program like streamcluster with {co_threads} threads of the same priority. Published \
         files refer to their bytes where they landed, or have copies, which are read, verified, written and made durable for \
         each chunk, or for each record (of at most 256 KiB). Its *slowdown* is how much longer the program's round takes than \
         alone, of that. Clients that wait for publishing write less meanwhile, and leave it more: *lost*, which is judged, is \
         what it loses for as much as is written. CPU is that of clients and server, and of the thread that publishes. The \
         stages are those of a chunk of at least 4 MiB.",
    ));
    let turns =
        || CONTESTANTS.into_iter().filter_map(|contestant| Some((contestant, row(rows, contestant)?)));
    let line = |(contestant, row): (Contestant, &PublishingRow)| {
        let is_server = contestant != Contestant::CoRunner;
        vec![
            row.way.clone(),
            spread(&row.round_ms),
            spread_of(slowdown(rows, contestant).filter(|_| is_server).as_ref()),
            spread_of(lost(rows, contestant).as_ref()),
            spread_of(row.rate.as_ref()),
            spread_of(row.cpu_us.as_ref()),
            spread_of(row.publisher_us.as_ref()),
        ]
    };
    let head = [
        "publishing",
        "co-runner: ms a round",
        "its slowdown",
        "lost: seconds a GiB",
        "clients: MiB/s",
        "CPU µs a MiB",
        "publisher: CPU µs a MiB",
    ];
    page.table(&head, turns().map(line));
    let line = |(_, row): (Contestant, &PublishingRow)| {
        let stages = row.stages_ms.iter().map(spread);
        std::iter::once(row.way.clone()).chain(stages).collect::<Vec<_>>()
    };
    let head = ["publishing", "fetch: ms a chunk", "log", "commit", "acknowledge"];
    page.table(&head, turns().filter(|(_, row)| row.stages_ms.len() == STAGES.len()).map(line));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Rows whose co-runner takes 100 ms alone, 120 ms beside relinking, and 150 and 180 ms beside copying.
    pub(in crate::linefs) fn rows() -> Vec<PublishingRow> {
        let sample = |contestant: Contestant, scale: f64| {
            let round_ms = match contestant {
                Contestant::CoRunner => 100.0,
                Contestant::Chain(Kind::Copying) => 150.0,
                Contestant::Chain(Kind::CopyingEach) => 180.0,
                Contestant::Chain(_) => 120.0,
            };
            let written = Written::of(512.0, 4.0 * scale, 1_000_000);
            let done = Done { written, publisher_us: 50.0, stages_ms: [1.0, 2.0, 3.0, 4.0] };
            let written = (contestant != Contestant::CoRunner).then_some(done);
            PublishingSample { round_ms: round_ms * scale, written }
        };
        let row = |contestant: Contestant| {
            PublishingRow::of(contestant, &[sample(contestant, 1.0), sample(contestant, 1.1)])
        };
        CONTESTANTS.into_iter().filter_map(row).collect()
    }

    fn is_near(summary: Option<Summary>, value: f64) -> bool {
        (summary.unwrap().median - value).abs() < 1e-6
    }

    #[test]
    fn a_program_is_slowed_down_by_what_it_takes_longer_than_alone() {
        let mut rows = rows();
        assert!(is_near(slowdown(&rows, Contestant::Chain(Kind::Alone)), 0.2));
        // A sixth of 8 s for a GiB, and of a tenth more; a third and four ninths beside copying.
        assert!(is_near(lost(&rows, Contestant::Chain(Kind::Alone)), 1.4));
        let copying = targets(&rows);
        assert!(is_near(copying[0].measured.clone(), 0.5) && is_near(copying[1].measured.clone(), 0.375));
        assert!(lost(&rows, Contestant::CoRunner).is_none());
        // What does not slow it down is no measure of what does.
        rows[2].round_ms = rows[0].round_ms.clone();
        assert!(targets(&rows)[0].measured.is_none());
    }
}
