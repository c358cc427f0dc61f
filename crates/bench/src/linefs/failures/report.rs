//! What is kept and shown of runs while hosts and servers fail.

use super::windows::{Window, counts};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::plots::Plot;
use crate::common::plots::chart::{Axis, Chart, Line, draw_chart};
use crate::common::tables::{Page, number, spread};
use crate::common::targets::{Bound, Target};
use crate::files::Operation;
use crate::linefs::servers::LEASE_SECONDS;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Seconds of a step of a time series.
const STEP_SECONDS: f64 = 0.1;
/// How long programs may stand still, or operations may take, while a host fails: of the p99 of the quiet time.
const UNSEEN_MAX: f64 = 1.5;
/// How long programs may stand still while a server fails, in T.
const GAP_LEASES_MAX: f64 = 2.0;

/// What the host of a replica is.
const PROCESS: [&str; 2] = ["at a replica one that tries to mount there", ""];
const MACHINE: [&str; 2] = [
    "at a replica a virtual machine on the same processors, emulated, whose NVDIMM is the replica's region",
    " The machine mounts at the first server and makes a file durable now and then; its kernel panics, and boots anew.",
];

/// What happens at the begin of a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// Nothing.
    Quiet,
    /// The processes beside a replica are killed.
    ReplicaHostFails,
    ReplicaHostReturns,
    /// The process of another mount at the first server is stopped; at the end of the part it goes on.
    OtherHostStops,
    /// It is killed.
    OtherHostFails,
    OtherHostReturns,
    /// A replica's server is killed, and taken out by the chain's manager.
    ServerFails,
    /// It is started again, added and copied to.
    ServerReturns,
}

impl Event {
    /// In their order.
    pub(super) const ALL: [Self; 8] = [
        Self::Quiet,
        Self::ReplicaHostFails,
        Self::ReplicaHostReturns,
        Self::OtherHostStops,
        Self::OtherHostFails,
        Self::OtherHostReturns,
        Self::ServerFails,
        Self::ServerReturns,
    ];

    /// The name in tables and plots.
    fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::ReplicaHostFails => "replica's host fails",
            Self::ReplicaHostReturns => "replica's host is back",
            Self::OtherHostStops => "other host stops",
            Self::OtherHostFails => "other host fails",
            Self::OtherHostReturns => "other host is back",
            Self::ServerFails => "replica's server fails",
            Self::ServerReturns => "replica's server back",
        }
    }

    /// Whether only hosts fail, which nobody else is to see.
    fn is_of_hosts(self) -> bool {
        matches!(self, Self::ReplicaHostFails | Self::OtherHostStops | Self::OtherHostFails)
    }
}

/// When an event was, and the end of the part that it begins, seconds after the load's begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(super) event: Event,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// What one run has found.
#[derive(Debug)]
pub(crate) struct FailureSample {
    pub(super) parts: Vec<Part>,
    /// In the order of their ends.
    pub(super) operations: Vec<Operation>,
    /// From the end of the first server to what is durable at the next one.
    pub(super) takeover_seconds: f64,
    /// The replica's host was a virtual machine.
    pub(super) machine: bool,
}

/// All runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failures {
    /// T.
    lease_seconds: u64,
    rows: Vec<FailureRow>,
    takeover_seconds: Summary,
    /// The replica's host was a virtual machine.
    #[serde(default)]
    machine: bool,
    series: Series,
}

/// One part of all runs.
#[derive(Debug, Serialize, Deserialize)]
struct FailureRow {
    event: Event,
    seconds: Summary,
    /// Operations a second.
    rate: Summary,
    p99_us: Summary,
    longest_us: Summary,
    gap_us: Summary,
}

/// The course of the first run.
#[derive(Debug, Serialize, Deserialize)]
struct Series {
    step_seconds: f64,
    /// Operations that have ended in each step.
    operations: Vec<u32>,
    parts: Vec<Part>,
}

impl FailureRow {
    fn of(event: Event, samples: &[FailureSample]) -> Option<Self> {
        let window = |sample: &FailureSample| {
            let part = sample.parts.iter().find(|part| part.event == event)?;
            Some(Window::of(&sample.operations, part.from, part.to))
        };
        let windows: Vec<Window> = samples.iter().filter_map(window).collect();
        let summary = |of: fn(&Window) -> f64| Summary::of(windows.iter().map(of));
        Some(Self {
            event,
            seconds: summary(|window| window.seconds)?,
            rate: summary(|window| window.rate)?,
            p99_us: summary(|window| window.p99_us)?,
            longest_us: summary(|window| window.longest_us)?,
            gap_us: summary(|window| window.gap_us)?,
        })
    }
}

impl Failures {
    /// Of all rounds; `None` if there is none.
    pub(crate) fn of(samples: &[FailureSample]) -> Option<Self> {
        let first = samples.first()?;
        Some(Self {
            lease_seconds: LEASE_SECONDS,
            rows: Event::ALL.into_iter().filter_map(|event| FailureRow::of(event, samples)).collect(),
            takeover_seconds: Summary::of(samples.iter().map(|sample| sample.takeover_seconds))?,
            machine: first.machine,
            series: Series {
                step_seconds: STEP_SECONDS,
                operations: counts(&first.operations, STEP_SECONDS),
                parts: first.parts.clone(),
            },
        })
    }

    fn row(&self, event: Event) -> Option<&FailureRow> {
        self.rows.iter().find(|row| row.event == event)
    }

    /// Seconds, in T.
    fn in_leases(&self, seconds: &Summary) -> Option<Summary> {
        Summary::of(seconds.samples.iter().map(|seconds| seconds / self.lease_seconds as f64))
    }

    fn table(&self, page: &mut Page) {
        let quiet = self.row(Event::Quiet);
        let scaled = |summary: &Summary, by: f64| {
            Summary::of(summary.samples.iter().map(|sample| sample / by)).as_ref().map_or("–".into(), spread)
        };
        let over = |summary: &Summary| {
            let p99 = quiet.map(|quiet| &quiet.p99_us);
            p99.and_then(|p99| summary.over(p99)).as_ref().map_or("–".into(), spread)
        };
        let row = |row: &FailureRow| {
            vec![
                row.event.name().to_owned(),
                spread(&row.seconds),
                spread(&row.rate),
                scaled(&row.p99_us, 1e3),
                over(&row.p99_us),
                scaled(&row.longest_us, 1e3),
                scaled(&row.gap_us, 1e3),
                over(&row.gap_us),
            ]
        };
        let head = [
            "part",
            "seconds",
            "operations/s",
            "p99 ms",
            "over the quiet p99",
            "longest operation ms",
            "longest gap ms",
            "over the quiet p99",
        ];
        page.table(&head, self.rows.iter().map(row));
    }

    /// The section of the report.
    pub(crate) fn show(&self, page: &mut Page) {
        page.paragraph("## While hosts and servers fail");
        let host = if self.machine { MACHINE } else { PROCESS };
        page.paragraph(&format!(
            "Varmail with 16 threads at one mount of a chain of three in etcd, T = {} s; servers serve their files to \
             processes that mount (`--files-offload`). What stands for a host is every process beside its server: {}, and \
             another mount at the first server, with a program that appends and syncs.{} Each part of a run begins with what \
             its name says. A gap is a time in which no operation of any of the 16 ends; what of it is behind the end of a part counts in the next one. After all parts the first server is killed: after {} s a \
             program had made something durable at the next one, where it had mounted anew.",
            self.lease_seconds,
            host[0],
            host[1],
            spread(&self.takeover_seconds),
        ));
        self.table(page);
        let begins =
            self.series.parts.iter().map(|part| format!("{} s {}", number(part.from), part.event.name()));
        page.paragraph(&format!("The course of the first round: {}.", begins.collect::<Vec<_>>().join("; ")));
    }

    /// Draws the operations of the first round over time.
    pub(crate) fn draw(&self, out: &Path, file: &str) -> Result<Plot, BenchError> {
        let title = "varmail while hosts and servers fail: operations/s, first round";
        let step = self.series.step_seconds;
        let at = |number: usize| number as f64 * step;
        let point =
            |(number, count): (usize, &u32)| Some((at(number), Summary::of([f64::from(*count) / step])?));
        let points: Vec<_> = self.series.operations.iter().enumerate().filter_map(point).collect();
        let line = |part: &Part| {
            let points = points.iter().filter(|(time, _)| (part.from..part.to).contains(time));
            Line { name: part.event.name().into(), points: points.cloned().collect() }
        };
        let chart = Chart {
            file: file.into(),
            title: title.into(),
            x: Axis::linear("seconds"),
            y: Axis::linear("operations/s"),
            lines: self.series.parts.iter().map(line).collect(),
            band: None,
        };
        draw_chart(&out.join(file), &chart)?;
        Ok(Plot { title: title.into(), file: file.into() })
    }

    /// What is aimed at.
    pub(crate) fn targets(failures: Option<&Self>) -> Vec<Target> {
        let target = |what: String, wanted, unit, measured| Target {
            what: format!("varmail, {what}"),
            bound: Bound::AtMost,
            wanted,
            unit,
            measured,
        };
        let over_quiet = |event, of: fn(&FailureRow) -> &Summary| {
            let all = failures?;
            of(all.row(event)?).over(&all.row(Event::Quiet)?.p99_us)
        };
        let hosts = Event::ALL.into_iter().filter(|event| event.is_of_hosts()).flat_map(|event| {
            let name = event.name();
            let gap = over_quiet(event, |row| &row.gap_us);
            let p99 = over_quiet(event, |row| &row.p99_us);
            [
                target(format!("{name}: longest gap over the quiet p99"), UNSEEN_MAX, "×", gap),
                target(format!("{name}: p99 over the quiet one"), UNSEEN_MAX, "×", p99),
            ]
        });
        let gap = failures.and_then(|all| {
            let gap = &all.row(Event::ServerFails)?.gap_us;
            all.in_leases(&Summary::of(gap.samples.iter().map(|us| us / 1e6))?)
        });
        let takeover = failures.and_then(|all| all.in_leases(&all.takeover_seconds));
        let fails = Event::ServerFails.name();
        let servers = [
            target(format!("{fails}: longest gap"), GAP_LEASES_MAX, "T", gap),
            target("the first server fails: until the next one".into(), GAP_LEASES_MAX, "T", takeover),
        ];
        hosts.chain(servers).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::common::plots::chart::NAME_MAX;

    /// Operations of 10 ms each end every 10 ms, but not from `gap.0` to `gap.1`; each part takes 3 s.
    fn run(gap: (f64, f64), takeover_seconds: f64) -> FailureSample {
        let part = |(number, event): (usize, Event)| {
            let from = number as f64 * 3.0;
            Part { event, from, to: from + 3.0 }
        };
        let ends = (1..2400).map(|number| f64::from(number) * 0.01);
        let ends = ends.filter(|ended| !(gap.0..gap.1).contains(ended));
        FailureSample {
            parts: Event::ALL.into_iter().enumerate().map(part).collect(),
            operations: ends.map(|ended| Operation { ended, us: 10_000.0 }).collect(),
            takeover_seconds,
            machine: false,
        }
    }

    /// Programs stand still for 2 s while a server fails.
    pub(crate) fn sample() -> Failures {
        Failures::of(&[run((18.2, 20.2), 3.0), run((18.5, 20.5), 5.0)]).unwrap()
    }

    fn verdicts(failures: &Failures) -> Vec<Option<bool>> {
        Failures::targets(Some(failures)).iter().map(Target::met).collect()
    }

    #[test]
    fn hosts_are_judged_by_the_quiet_time_and_servers_by_t() {
        let failures = sample();
        assert_eq!(verdicts(&failures), [Some(true); 8]);
        let targets = Failures::targets(Some(&failures));
        let near = |target: &Target, wanted: f64| {
            let measured = target.measured.as_ref().unwrap();
            assert!((measured.median - wanted).abs() < 0.01, "{}: {measured:?}", target.what);
        };
        near(&targets[0], 1.0);
        // 2.01 s and 4 s of a T of 4 s.
        near(&targets[6], 0.5025);
        near(&targets[7], 1.0);
        // A stop of 0.1 s while the replica's host is away is seen. It is one operation, so that the p99 is as before.
        let seen = Failures::of(&[run((4.0, 4.1), 8.1)]).unwrap();
        let expected = [false, true, true, true, true, true, true, false].map(Some);
        assert_eq!(verdicts(&seen), expected);
        assert!(Failures::targets(None).iter().all(|target| target.met().is_none()));
    }

    #[test]
    fn the_course_over_time_has_a_line_for_each_part_whose_name_fits() {
        let (failures, out) = (sample(), tempfile::tempdir().unwrap());
        assert!(Event::ALL.iter().all(|event| event.name().chars().count() <= NAME_MAX));
        // Steps while nothing ends are there, too.
        let operations = &failures.series.operations;
        assert_eq!((operations.len(), operations[150], operations[190]), (240, 10, 0), "{operations:?}");
        let plot = failures.draw(out.path(), "course.svg").unwrap();
        let drawn = std::fs::read_to_string(out.path().join(&plot.file)).unwrap();
        assert!(
            Event::ALL.iter().all(|event| drawn.contains(&event.name().replace('\'', "&apos;"))),
            "{drawn}"
        );
        let mut page = Page::default();
        failures.show(&mut page);
        assert!(page.0.contains("| replica's server fails | 3.00 (3.00..3.00) |"), "{}", page.0);
        assert!(page.0.contains("18.0 s replica's server fails"), "{}", page.0);
        assert!(page.0.contains("a replica one that tries to mount there") && !page.0.contains("panics"));
        let mut page = Page::default();
        Failures { machine: true, ..failures }.show(&mut page);
        assert!(page.0.contains("its kernel panics, and boots anew. Each part"), "{}", page.0);
    }
}
