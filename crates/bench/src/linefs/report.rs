//! What was measured, and the report on it.

use crate::common::clients::Shape;
use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::common::measure::stats::Summary;
use crate::common::plots::Plot;
use crate::common::report::Report;
use crate::common::tables::{Page, bytes, number, spread, spread_of, target_table};
use crate::common::targets::{Bound, Target};
use crate::files::{LoadChoice, Row, draw_rates};
use crate::linefs::applications;
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::beside::{self, BesideRow};
use crate::linefs::busy::{BusyRow, Contestant, Latency};
use crate::linefs::clients::ClientsRow;
use crate::linefs::compression::{CompressionRow, Mode, SHARES};
use crate::linefs::elsewhere::{self, ElsewhereRow};
use crate::linefs::failures::Failures;
use crate::linefs::model::{self, Model};
use crate::linefs::place::{ASSISE, CHAIN, GLUSTER, LIBRARY, NOT_PARALLEL};
use crate::linefs::publishing::{self, PublishingRow};
use crate::linefs::scaling;
use crate::linefs::sets::{REDIS, SHAPES, SetRow};
use crate::linefs::stages::{self, StageRow};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the layout of `linefs.json`.
const SCHEMA: u32 = 2;

/// Everything measured: what `linefs.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    schema: u32,
    landfall_version: String,
    machine: Machine,
    /// The file system that holds everything.
    pub(super) folder: String,
    settings: LinefsArgs,
    pub(super) took_seconds: f64,
    pub(super) notes: Vec<String>,
    pub(super) rows: Vec<Row>,
    #[serde(default)]
    pub(super) busy: Vec<BusyRow>,
    #[serde(default)]
    pub(super) beside: Vec<BesideRow>,
    #[serde(default)]
    pub(super) clients: Vec<ClientsRow>,
    #[serde(default)]
    pub(super) publishing: Vec<PublishingRow>,
    #[serde(default)]
    pub(super) stages: Vec<StageRow>,
    pub(super) sets: Vec<SetRow>,
    /// SETs that were done at each place before those that were measured.
    #[serde(default)]
    pub(super) sets_before: u64,
    pub(super) compression: Vec<CompressionRow>,
    #[serde(default)]
    pub(super) elsewhere: Vec<ElsewhereRow>,
    #[serde(default)]
    pub(super) failures: Option<Failures>,
    #[serde(default)]
    pub(super) model: Option<Model>,
}

/// What a chain is to reach of the rate of redis with two replicas, for each of [`SHAPES`].
const SET_RATES: [f64; 2] = [1.5, 3.0];

/// Traffic that compression is to save, by the share of zeros, percent.
const SAVED: [(u32, f64); 3] = [(40, 0.29), (60, 0.49), (80, 0.72)];
/// The time that it may take, of that without.
const COMPRESSION_TIME_MAX: f64 = 1.05;

/// What of LineFS's evaluation is neither measured nor simulated, and why.
const NOT_MEASURED: [(&str, &str); 3] = [
    ("Figure 4: Assise+Hyperloop", "it needs RDMA cards, and traces that were made before (section 5.1)"),
    (
        "Figure 6: how much a co-runner suffers from memory and caches that it shares",
        "`simulated` counts the processors that it is left with; `clients` has it on the machine of all servers and clients",
    ),
    (
        "Figures 4, 6 and 8: servers with machines of their own, measured",
        "there is one machine: `simulated` says what the costs that were measured on it come to on three",
    ),
];

impl Results {
    pub(super) fn new(settings: LinefsArgs, folder: String, machine: Machine) -> Self {
        Self {
            schema: SCHEMA,
            landfall_version: env!("CARGO_PKG_VERSION").into(),
            machine,
            folder,
            settings,
            took_seconds: 0.0,
            notes: Vec::new(),
            rows: Vec::new(),
            busy: Vec::new(),
            beside: Vec::new(),
            clients: Vec::new(),
            publishing: Vec::new(),
            stages: Vec::new(),
            sets: Vec::new(),
            sets_before: 0,
            compression: Vec::new(),
            elsewhere: Vec::new(),
            failures: None,
            model: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { rows, busy, beside, clients, publishing, stages, sets, .. } = self;
        let Self { compression, elsewhere, failures, model, .. } = self;
        let has_no_files = rows.is_empty()
            && busy.is_empty()
            && beside.is_empty()
            && clients.is_empty()
            && elsewhere.is_empty();
        let has_no_chunks = publishing.is_empty() && stages.is_empty();
        let has_no_course = failures.is_none() && model.is_none();
        has_no_files && has_no_chunks && sets.is_empty() && compression.is_empty() && has_no_course
    }

    fn row(&self, load: LoadChoice, place: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.load == load && row.place == place)
    }

    /// The place that is judged by a load on files, and what it is called: in memory programs have the library.
    fn judged(&self, load: LoadChoice) -> (&'static str, &'static str) {
        match self.row(load, LIBRARY) {
            Some(_) => (LIBRARY, "the chain, by the library,"),
            None => (CHAIN, "the chain"),
        }
    }

    /// A quantity of what is judged over that of GlusterFS, round by round.
    fn over_gluster(&self, load: LoadChoice, of: impl Fn(&Row) -> Option<&Summary>) -> Option<Summary> {
        of(self.row(load, self.judged(load).0)?)?.over(of(self.row(load, GLUSTER)?)?)
    }

    /// What is aimed at with a load.
    fn targets_of(&self, load: LinefsLoad) -> Vec<Target> {
        match load {
            LinefsLoad::Compression => return self.targets_of_compression(),
            LinefsLoad::Busy => return self.targets_of_busy(),
            LinefsLoad::Publish => return publishing::targets(&self.publishing),
            LinefsLoad::Failures => return Failures::targets(self.failures.as_ref()),
            LinefsLoad::Set => return self.targets_of_sets(),
            _ => {}
        }
        let Some((on_files, _)) = load.on_files().first().copied() else { return Vec::new() };
        let target = |what: &str, bound, wanted, unit, measured| Target {
            what: format!("{}: {what}", on_files.name()),
            bound,
            wanted,
            unit,
            measured,
        };
        let (judged, who) = self.judged(on_files);
        let time = |what: &str, of: fn(&Row) -> Option<&Summary>| {
            let what = format!("{what} of {who} over GlusterFS");
            target(&what, Bound::AtMost, 0.2, "×", self.over_gluster(on_files, of))
        };
        let rate = |wanted| {
            let measured = self.over_gluster(on_files, |row| Some(&row.rate));
            target(&format!("rate of {who} over GlusterFS"), Bound::AtLeast, wanted, "×", measured)
        };
        match load {
            LinefsLoad::Append => {
                vec![time("mean", |row| row.mean_us.as_ref()), time("p99", |row| row.p99_us.as_ref())]
            }
            LinefsLoad::Write => {
                let share = self.row(on_files, judged).and_then(|row| row.final_sync.clone());
                let what = "the chain's fsync at the end, of all of the time";
                let rates = |place: &str| self.row(on_files, place).map(|row| &row.rate);
                let over = rates(CHAIN).and_then(|ours| ours.over(rates(NOT_PARALLEL)?));
                let beside = format!("rate of the chain over {NOT_PARALLEL}");
                let parallel = target(&beside, Bound::AtLeast, 1.4, "×", over);
                vec![rate(2.0), parallel, target(what, Bound::AtMost, 0.05, "of it", share)]
            }
            LinefsLoad::Varmail => vec![rate(5.0)],
            _ => Vec::new(),
        }
    }
}

impl Results {
    fn busy_row(&self, place: &str) -> Option<&BusyRow> {
        self.busy.iter().find(|row| row.place == place)
    }

    fn targets_of_busy(&self) -> Vec<Target> {
        let ours = self.busy_row(CHAIN);
        let growth = ours.and_then(|ours| ours.growth_over(self.busy_row(ASSISE)?));
        let target = |what: &str, wanted, measured| Target {
            what: format!("append 16 KiB, fsync, beside a co-runner: {what}"),
            bound: Bound::AtMost,
            wanted,
            unit: "×",
            measured,
        };
        vec![
            target("p99 of the chain over that of an idle machine", 1.3, ours.and_then(BusyRow::factor)),
            target(&format!("growth of the chain's p99 over that of {ASSISE}"), 0.33, growth),
        ]
    }

    fn table_of_busy(&self, page: &mut Page) {
        if self.busy.is_empty() {
            return;
        }
        page.paragraph("## Beside a co-runner");
        page.paragraph(&format!(
            "Appends of 16 KiB, each with fsync, on a machine where nothing else runs, and then, at the same servers, beside \
             a program like streamcluster: {} threads look for the nearest of 16 centres for each point of an array that is \
             larger than the caches. All servers are on this machine, so that first server and replicas are busy. Landfall \
             in Assise's way sends files when fsync asks for them. Rounds are those of the co-runner through all of its \
             points.",
            self.settings.co_threads(),
        ));
        let alone = self.busy_row(Contestant::CoRunner.name()).map(|row| &row.round_ms);
        let row = |row: &BusyRow| {
            let of =
                |latency: &Option<Latency>, of: fn(&Latency) -> &Summary| spread_of(latency.as_ref().map(of));
            let slowdown = alone.filter(|_| row.busy.is_some()).and_then(|alone| row.round_ms.over(alone));
            vec![
                row.place.clone(),
                of(&row.idle, |latency| &latency.mean),
                of(&row.idle, |latency| &latency.p99),
                of(&row.busy, |latency| &latency.mean),
                of(&row.busy, |latency| &latency.p99),
                spread_of(row.factor().as_ref()),
                spread(&row.round_ms),
                spread_of(slowdown.as_ref()),
            ]
        };
        let head = [
            "place",
            "idle: mean µs",
            "idle: p99 µs",
            "busy: mean µs",
            "busy: p99 µs",
            "p99, busy over idle",
            "co-runner: ms a round",
            "its slowdown",
        ];
        page.table(&head, self.busy.iter().map(row));
    }

    fn set_row(&self, shape: &Shape, place: &str) -> Option<&SetRow> {
        self.sets.iter().find(|row| row.shape == *shape && row.place == place)
    }

    fn targets_of_sets(&self) -> Vec<Target> {
        let all = SHAPES.iter().zip(SET_RATES);
        all.map(|(shape, wanted)| self.target_of_sets(shape, wanted)).collect()
    }

    fn target_of_sets(&self, shape: &Shape, wanted: f64) -> Target {
        let rates = |place: &str| self.set_row(shape, place).map(|row| &row.rps);
        Target {
            what: format!("SET by {}: rate of the chain over {REDIS}", shape.describe()),
            bound: Bound::AtLeast,
            wanted,
            unit: "×",
            measured: rates(CHAIN).and_then(|ours| ours.over(rates(REDIS)?)),
        }
    }

    fn compression_row(&self, share: u32, mode: Mode) -> Option<&CompressionRow> {
        self.compression.iter().find(|row| row.share == share && row.mode == mode.name())
    }

    /// A quantity with compression over that without, round by round.
    fn over_plain(&self, share: u32, mode: Mode, of: fn(&CompressionRow) -> &Summary) -> Option<Summary> {
        of(self.compression_row(share, mode)?).over(of(self.compression_row(share, Mode::Off)?))
    }

    fn targets_of_compression(&self) -> Vec<Target> {
        let saved = SAVED.map(|(share, wanted)| {
            let traffic = self.over_plain(share, Mode::Lz4, |row| &row.traffic);
            let measured =
                traffic.and_then(|traffic| Summary::of(traffic.samples.iter().map(|part| 1.0 - part)));
            let what = format!("compression lz4, {share} % zeros: traffic saved");
            Target { what, bound: Bound::AtLeast, wanted, unit: "of it", measured }
        });
        let time = |mode: Mode| {
            SHARES.map(|share| Target {
                what: format!("compression {}, {share} % zeros: time over none", mode.name()),
                bound: Bound::AtMost,
                wanted: COMPRESSION_TIME_MAX,
                unit: "×",
                measured: self.over_plain(share, mode, |row| &row.ms),
            })
        };
        saved.into_iter().chain([Mode::Auto, Mode::Lz4].into_iter().flat_map(time)).collect()
    }

    fn table_of_compression(&self, page: &mut Page) {
        if self.compression.is_empty() {
            return;
        }
        page.paragraph("## Compression");
        page.paragraph(
            "SETs of 1 MiB by four clients to a chain of three, each answered when all have the value; zeros lie behind noise in \
             stretches of 100 bytes. Traffic is what the servers count on their two links, with headers, of a byte of values \
             there.",
        );
        let row = |row: &CompressionRow| {
            let mode =
                Mode::ALL.into_iter().find(|mode| mode.name() == row.mode).filter(|mode| *mode != Mode::Off);
            let over = |of| spread_of(mode.and_then(|mode| self.over_plain(row.share, mode, of)).as_ref());
            vec![
                format!("{} %", row.share),
                row.mode.clone(),
                spread(&row.rate),
                over(|row| &row.ms),
                spread(&row.traffic),
                spread(&row.cpu_ms),
                over(|row| &row.cpu_ms),
            ]
        };
        let head =
            ["zeros", "compression", "MiB/s", "time over none", "traffic", "CPU ms a MiB", "CPU over none"];
        page.table(&head, self.compression.iter().map(row));
    }

    fn table_of_sets(&self, page: &mut Page) {
        if self.sets.is_empty() {
            return;
        }
        page.paragraph("## SETs");
        page.paragraph(
            "Each SET of the chain is answered when all three servers have it durably. Each pipeline to redis ends with \
             `WAIT 2 0`, and counts when that is answered: the replicas have it then, and need not have synced it. All three \
             redis have `appendfsync always`.",
        );
        let row = |row: &SetRow| {
            let chain = self.set_row(&row.shape, CHAIN).filter(|chain| chain.place != row.place);
            vec![
                row.shape.describe(),
                row.place.clone(),
                spread(&row.rps),
                spread_of(chain.and_then(|chain| chain.rps.over(&row.rps)).as_ref()),
                spread(&row.p50_us),
                spread(&row.p99_us),
                spread(&row.cpu_us),
            ]
        };
        let head =
            ["load", "place", "SETs a second", "chain over it", "p50 µs", "p99 µs", "CPU µs of the servers"];
        page.table(&head, self.sets.iter().map(row));
    }
}

impl Report for Results {
    const NAME: &'static str = "linefs";
    const SCHEMA: u32 = SCHEMA;
    type Target = Target;

    fn judge(&self) -> Vec<Target> {
        self.settings.only.iter().flat_map(|load| self.targets_of(*load)).collect()
    }

    fn plots(&self, out: &Path) -> Result<Vec<Plot>, BenchError> {
        let mut plots = draw_rates(&self.rows, out, "linefs-rates.svg")?;
        plots.extend(scaling::draw(&self.clients, out)?);
        plots.extend(
            self.model.iter().map(|model| model::draw(model, out)).collect::<Result<Vec<_>, _>>()?.concat(),
        );
        if let Some(failures) = &self.failures {
            plots.push(failures.draw(out, "linefs-failures.svg")?);
        }
        Ok(plots)
    }

    fn markdown(&self, targets: &[Target], plots: &[Plot]) -> String {
        let mut page = Page::default();
        self.head(&mut page);
        target_table(&mut page, targets);
        page.plots(plots);
        self.table(&mut page);
        let (mib, co_threads) = (self.settings.file_mib, self.settings.co_threads());
        scaling::show(&self.clients, mib, co_threads, &mut page);
        publishing::show(&self.publishing, mib, co_threads, &mut page);
        stages::show(&self.stages, mib, &mut page);
        applications::show(&self.rows, &mut page);
        self.table_of_busy(&mut page);
        beside::show(&self.beside, &mut page);
        self.table_of_sets(&mut page);
        self.table_of_compression(&mut page);
        elsewhere::show(&self.elsewhere, &mut page);
        self.failures.iter().for_each(|failures| failures.show(&mut page));
        self.model.iter().for_each(|model| model::show(model, &mut page));
        not_measured(&mut page);
        page.0
    }
}

impl Results {
    fn head(&self, page: &mut Page) {
        let (machine, settings) = (&self.machine, &self.settings);
        page.paragraph("# landfall bench linefs");
        page.paragraph(&format!(
            "landfall {} on {} ({} cores, {} of memory, Linux {}); {} rounds of {} s, places in turns (A B C A B C ...), each \
             made afresh after 2 GiB of memory have been written and freed (a virtual machine's host may have to provide them \
             first); {:.0} s in all. Sequential writes: {} MiB; varmail and the file server: {} files. **All servers are on \
             this machine and talk over loopback**: three copies take three times the work of its cores and of its disk, and \
             no time of a network. Regions and bricks are on the same {}. Figures are medians, with the smallest and largest \
             of the rounds in brackets. CPU is that of the load, its system calls included, and of all servers.",
            self.landfall_version, machine.processor, machine.cores, bytes(machine.memory as f64), machine.kernel,
            settings.rounds, number(settings.seconds), self.took_seconds, settings.file_mib, settings.files, self.folder,
        ));
        if settings.used && !(self.rows.is_empty() && self.beside.is_empty()) {
            page.paragraph(
                "**Loads on files ran at their places before**, and their files were removed: memory and blocks were touched.",
            );
        }
        if self.sets_before > 0 {
            page.paragraph(&format!(
                "**Each place had {} SETs before** those that were measured.",
                self.sets_before,
            ));
        }
        if settings.quick {
            page.paragraph("**A quick run: it shows that everything works. Its figures mean nothing.**");
        }
        self.notes.iter().for_each(|note| page.line(&format!("- {note}")));
        page.line("");
    }

    fn table(&self, page: &mut Page) {
        if self.rows.is_empty() {
            return;
        }
        page.paragraph("## Loads");
        let head = [
            "load",
            "threads",
            "place",
            "rate",
            "chain over it",
            "mean µs",
            "p50 µs",
            "p99 µs",
            "fsync at the end",
            "CPU µs",
        ];
        let row = |row: &Row| {
            let chain = self.row(row.load, CHAIN).filter(|chain| chain.place != row.place);
            vec![
                row.load.name().to_owned(),
                row.threads.to_string(),
                row.place.clone(),
                format!("{} {}", spread(&row.rate), row.load.unit()),
                spread_of(chain.and_then(|chain| chain.rate.over(&row.rate)).as_ref()),
                spread_of(row.mean_us.as_ref()),
                spread_of(row.p50_us.as_ref()),
                spread_of(row.p99_us.as_ref()),
                spread_of(row.final_sync.as_ref()),
                spread(&row.cpu_us),
            ]
        };
        page.table(&head, self.rows.iter().map(row));
    }
}

fn not_measured(page: &mut Page) {
    page.paragraph("## Not measured");
    let rows = NOT_MEASURED.iter().map(|(what, why)| vec![(*what).to_owned(), (*why).to_owned()]);
    page.table(&["of the paper", "why not"], rows);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::files::TMPFS;
    use crate::linefs::busy::tests::row;
    use crate::linefs::place::{ALONE, Kind};
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: LinefsArgs,
    }

    fn of(scale: f64) -> Summary {
        Summary::of([scale, scale * 1.1, scale * 0.9]).unwrap()
    }

    /// Every kind of row.
    pub(crate) fn sample() -> Results {
        let settings = Cli::try_parse_from(["linefs"]).unwrap().settings;
        let mut results = Results::new(settings, "ext4".into(), Machine::here());
        for load in [LoadChoice::Append, LoadChoice::Write, LoadChoice::Varmail] {
            for (place, rate) in
                [("ext4", 90.0), (ALONE, 80.0), (CHAIN, 60.0), (NOT_PARALLEL, 40.0), (GLUSTER, 10.0)]
            {
                if place == NOT_PARALLEL && load != LoadChoice::Write {
                    continue;
                }
                let timed = |us: f64| (load != LoadChoice::Write).then(|| of(us / rate));
                results.rows.push(Row {
                    load,
                    threads: 1,
                    place: place.into(),
                    rate: of(rate),
                    mean_us: timed(1000.0),
                    p50_us: timed(900.0),
                    p99_us: timed(3000.0),
                    cpu_us: of(5.0),
                    device_bytes: None,
                    final_sync: (load == LoadChoice::Write).then(|| of(0.1)),
                });
            }
        }
        results.busy.push(row(Contestant::CoRunner, [0.0, 0.0], 100.0));
        results.busy.push(row(Contestant::Chain(Kind::Chain), [100.0, 120.0], 150.0));
        results.busy.push(row(Contestant::Chain(Kind::Assise), [100.0, 300.0], 130.0));
        for (place, rate) in [(ALONE, 90.0), (CHAIN, 60.0), (REDIS, 30.0)] {
            let row = |shape| SetRow {
                place: place.into(),
                shape,
                rps: of(rate),
                p50_us: of(1.0),
                p99_us: of(2.0),
                cpu_us: of(3.0),
            };
            results.sets.extend(SHAPES.map(row));
        }
        for share in SHARES {
            for (mode, time, traffic) in
                [(Mode::Off, 1.0, 1.0), (Mode::Auto, 1.04, 1.0), (Mode::Lz4, 1.5, 0.5)]
            {
                results.compression.push(CompressionRow {
                    share,
                    mode: mode.name().into(),
                    rate: of(100.0 / time),
                    ms: of(10.0 * time),
                    traffic: of(traffic),
                    cpu_ms: of(time),
                });
            }
        }
        results.beside = beside::tests::rows();
        results.publishing = publishing::tests::rows();
        results.stages = stages::tests::rows();
        results.failures = Some(crate::linefs::failures::sample());
        results.model = Some(model::sample());
        results.notes.push("a note".into());
        results
    }

    #[test]
    fn in_memory_the_library_is_judged() {
        let mut results = sample();
        assert!(!results.judge()[0].what.contains("by the library"));
        let mut row = results.row(LoadChoice::Append, CHAIN).cloned().unwrap();
        row.place = LIBRARY.into();
        row.p99_us = Some(of(100.0));
        results.rows.push(row);
        assert_eq!(verdicts(&results)[..2], [Some(true), Some(false)]);
        assert!(results.judge()[0].what.contains("by the library"));
        let kinds = |folder| Kind::of(LinefsLoad::Append, folder);
        assert!(kinds(TMPFS).contains(&Kind::Library) && !kinds("ext4").contains(&Kind::Library));
    }

    fn verdicts(results: &Results) -> Vec<Option<bool>> {
        results.judge().iter().map(Target::met).collect()
    }

    #[test]
    fn the_chain_is_judged_beside_glusterfs_and_by_its_fsync() {
        // Mean and p99; rates and share of the fsync of sequential writes; beside a co-runner; relinking; varmail;
        // SETs.
        let expected = [true, true, true, true, false, true, true, true, true, true, true, false].map(Some);
        assert_eq!(verdicts(&sample())[..12], expected);
        let mut slow = sample();
        for row in slow.rows.iter_mut().filter(|row| row.place == CHAIN) {
            (row.rate, row.mean_us) = (of(15.0), Some(of(50.0)));
        }
        slow.busy[1] = row(Contestant::Chain(Kind::Chain), [100.0, 200.0], 150.0);
        let expected =
            [false, true, false, false, false, false, false, true, true, false, true, false].map(Some);
        assert_eq!(verdicts(&slow)[..12], expected);
    }

    #[test]
    fn compression_is_judged_by_traffic_and_time_beside_none() {
        let mut results = sample();
        // Half is saved: enough at 40 and 60 % zeros. Automatic takes 1.04 of the time, and always 1.5.
        let saved = [true, true, false].map(Some);
        let times = [[true; 4], [false; 4]].map(|all| all.map(Some)).concat();
        assert_eq!(verdicts(&results)[12..23], [&saved[..], &times].concat());
        results.compression.retain(|row| row.mode != Mode::Off.name());
        assert_eq!(verdicts(&results)[12..23], [None; 11]);
        let text = results.markdown(&results.judge(), &[]);
        assert!(text.contains("| 80 % | lz4 |"), "{text}");
    }

    #[test]
    fn without_glusterfs_and_redis_nothing_counts_as_reached() {
        let mut results = sample();
        results.rows.retain(|row| row.place != GLUSTER);
        results.sets.retain(|row| row.place != REDIS);
        results.busy.retain(|row| row.place != ASSISE);
        // The rate over one chunk at a time, the share of the fsync, the growth by itself and relinking need no other system.
        let growth = [Some(true), None];
        let own = [&[None, None, None, Some(true), Some(false)], &growth[..], &[Some(true); 2], &[None; 3]]
            .concat();
        assert_eq!(verdicts(&results)[..12], own);
        let text = results.markdown(&results.judge(), &[]);
        assert_eq!(text.matches("| not measured |").count(), 7, "{text}");
    }

    #[test]
    fn a_report_has_a_row_for_each_place_a_plot_and_what_is_missing() {
        let results = sample();
        let out = tempfile::tempdir().unwrap();
        let plots = results.plots(out.path()).unwrap();
        let text = results.markdown(&results.judge(), &plots);
        let measured = text.split("## Servers with machines of their own").next().unwrap();
        assert_eq!(measured.matches("| landfall, chain of three |").count(), 8, "{text}");
        assert!(text.len() > measured.len() && text.contains("linefs-simulated-busy.svg"), "{text}");
        assert!(text.contains("## Filebench: operations a second"), "{text}");
        assert!(text.contains("## Beside a co-runner") && text.contains("| 1.50 (1.50..1.50) |"), "{text}");
        assert!(text.contains("| Figure 4: Assise+Hyperloop"), "{text}");
        assert!(text.contains("## While hosts and servers fail"), "{text}");
        assert!(text.contains("linefs-failures.svg") && out.path().join("linefs-failures.svg").exists());
        assert!(text.contains("linefs-rates.svg") && out.path().join("linefs-rates.svg").exists());
    }
}
