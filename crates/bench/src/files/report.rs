//! What was measured, and the report on it.

use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::common::measure::stats::Summary;
use crate::common::plots::bars::{Panel, bars};
use crate::common::plots::{PANELS_MAX, Plot};
use crate::common::report::Report;
use crate::common::tables::{Page, bytes, spread, spread_of, target_table};
use crate::common::targets::{Bound, Target};
use crate::files::args::{FsArgs, LoadChoice};
use crate::files::place::{LIBRARY, MOUNT, PASSTHROUGH, SERVER};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the layout of `fs.json`.
const SCHEMA: u32 = 1;

/// Everything measured: what `fs.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: u32,
    pub(crate) landfall_version: String,
    pub(crate) machine: Machine,
    /// The file system to compare with.
    pub(crate) folder: String,
    pub(crate) settings: FsArgs,
    pub(crate) took_seconds: f64,
    pub(crate) notes: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

/// One load on one place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) load: LoadChoice,
    pub(crate) threads: u32,
    pub(crate) place: String,
    /// Operations or MiB a second.
    pub(crate) rate: Summary,
    #[serde(default)]
    pub(crate) mean_us: Option<Summary>,
    pub(crate) p50_us: Option<Summary>,
    pub(crate) p99_us: Option<Summary>,
    /// CPU time of the load and of the server, microseconds an operation or a MiB.
    pub(crate) cpu_us: Summary,
    /// Bytes that the server has written to the device, for each byte of the load.
    #[serde(default)]
    pub(crate) device_bytes: Option<Summary>,
    /// The share of the time that the `fsync` at the end took.
    #[serde(default)]
    pub(crate) final_sync: Option<Summary>,
}

impl Results {
    pub(crate) fn new(settings: FsArgs, folder: String, machine: Machine) -> Self {
        Self {
            schema: SCHEMA,
            landfall_version: env!("CARGO_PKG_VERSION").into(),
            machine,
            folder,
            settings,
            took_seconds: 0.0,
            notes: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// A mount's row and that of what it is compared with, for each load: the folder, or a server of keys.
    fn pairs(&self) -> impl Iterator<Item = (&Row, &Row)> {
        let load = |row: &Row| (row.load, row.threads);
        let (theirs, ours): (Vec<&Row>, Vec<&Row>) =
            self.rows.iter().partition(|row| row.place == self.folder || row.place == SERVER);
        ours.into_iter()
            .filter_map(move |ours| Some((ours, *theirs.iter().find(|row| load(row) == load(ours))?)))
    }
}

/// What the mount is to reach of the folder's rate. A time that may be 1.25 times as long is a rate of 0.8.
const RATES: [(LoadChoice, u32, f64); 15] = [
    (LoadChoice::Varmail, 16, 2.5),
    (LoadChoice::Create, 1, 4.0),
    (LoadChoice::Create, 16, 3.0),
    (LoadChoice::Fileserver, 16, 1.0),
    (LoadChoice::Write, 1, 0.9),
    (LoadChoice::ReadSequential, 1, 0.95),
    (LoadChoice::ReadRandom, 1, 0.95),
    (LoadChoice::Append, 1, 1.43),
    (LoadChoice::Append, 16, 1.67),
    (LoadChoice::ReadSequentialCold, 1, 0.8),
    (LoadChoice::ReadRandomCold, 1, 0.8),
    (LoadChoice::Untar, 1, 0.8),
    (LoadChoice::GitStatus, 1, 0.8),
    (LoadChoice::Build, 1, 0.8),
    // A start may take 1.2 times as long as that of a server of keys.
    (LoadChoice::Restart, 1, 0.83),
];

impl Results {
    /// The library's rate over the mount's: a fifth of the time.
    fn judge_library(&self) -> Target {
        Target {
            what: format!("{}, threads: 1: rate of the library over the mount", LoadChoice::Append.name()),
            bound: Bound::AtLeast,
            wanted: 5.0,
            unit: "×",
            measured: self.rate_over(LoadChoice::Append, LIBRARY, MOUNT),
        }
    }

    /// The mount's rate over that of a folder through FUSE.
    fn judge_passthrough(&self) -> Target {
        Target {
            what: format!("{}: rate of the mount over {PASSTHROUGH}", LoadChoice::Small.name()),
            bound: Bound::AtLeast,
            wanted: 1.5,
            unit: "×",
            measured: self.rate_over(LoadChoice::Small, MOUNT, PASSTHROUGH),
        }
    }

    /// What the mount takes of the device.
    fn judge_device(&self) -> Option<Target> {
        let mut rows = self.rows.iter().filter(|row| (row.load, &*row.place) == (LoadChoice::Write, MOUNT));
        let measured = rows.next()?.device_bytes.clone()?;
        Some(Target {
            what: "sequential write: bytes on the device over bytes written".into(),
            bound: Bound::AtMost,
            wanted: 1.15,
            unit: "×",
            measured: Some(measured),
        })
    }

    /// The rate of a load with one thread at one place over that at another, round by round.
    fn rate_over(&self, load: LoadChoice, place: &str, other: &str) -> Option<Summary> {
        let of = |place: &str| {
            let is_meant = |row: &&Row| (&*row.place, row.load, row.threads) == (place, load, 1);
            self.rows.iter().find(is_meant).map(|row| &row.rate)
        };
        of(place)?.over(of(other)?)
    }

    /// True for what was to be measured: a report lists nothing else.
    fn is_wanted(&self, load: LoadChoice, threads: u32) -> bool {
        let has_threads = matches!(load, LoadChoice::Varmail | LoadChoice::Fileserver)
            || threads == 1
            || self.settings.threads.contains(&threads);
        self.settings.only.contains(&load) && has_threads
    }
}

impl Report for Results {
    const NAME: &'static str = "fs";
    const SCHEMA: u32 = SCHEMA;
    type Target = Target;

    fn judge(&self) -> Vec<Target> {
        // In memory the file system below is no measure of what is durable; the library is compared with its mount.
        if self.rows.iter().any(|row| row.place == LIBRARY) {
            return vec![self.judge_library()];
        }
        let target = |(load, threads, wanted): (LoadChoice, u32, f64)| {
            let is_meant = |ours: &Row| (&*ours.place, ours.load, ours.threads) == (MOUNT, load, threads);
            let pair = self.pairs().find(|(ours, _)| is_meant(ours));
            Target {
                what: format!("{}, threads: {threads}: rate", load.name()),
                bound: Bound::AtLeast,
                wanted,
                unit: "×",
                measured: pair.and_then(|(ours, theirs)| ours.rate.over(&theirs.rate)),
            }
        };
        let rates =
            RATES.into_iter().filter(|(load, threads, _)| self.is_wanted(*load, *threads)).map(target);
        let has_passthrough = self.rows.iter().any(|row| row.place == PASSTHROUGH);
        rates.chain(has_passthrough.then(|| self.judge_passthrough())).chain(self.judge_device()).collect()
    }

    fn plots(&self, out: &Path) -> Result<Vec<Plot>, BenchError> {
        draw_rates(&self.rows, out, "fs-rates.svg")
    }

    fn markdown(&self, targets: &[Target], plots: &[Plot]) -> String {
        let mut page = Page::default();
        self.head(&mut page);
        target_table(&mut page, targets);
        page.plots(plots);
        self.table(&mut page);
        page.0
    }
}

/// Draws the rates of rows, a panel for each load.
pub(crate) fn draw_rates(rows: &[Row], out: &Path, file: &str) -> Result<Vec<Plot>, BenchError> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in rows {
        let title = format!("{}, threads: {} ({})", row.load.name(), row.threads, row.load.unit());
        let bar = (row.place.clone(), row.rate.clone());
        if let Some(panel) = panels.iter_mut().find(|panel| panel.title == title) {
            panel.bars.push(bar);
        } else if panels.len() < PANELS_MAX {
            panels.push(Panel { title, bars: vec![bar] });
        }
    }
    if panels.is_empty() {
        return Ok(Vec::new());
    }
    bars(&out.join(file), &panels)?;
    Ok(vec![Plot { title: "operations or MiB a second".into(), file: file.into() }])
}

impl Results {
    fn head(&self, page: &mut Page) {
        let (machine, settings) = (&self.machine, &self.settings);
        page.paragraph("# landfall bench fs");
        page.paragraph(&format!(
            "landfall {} on {} ({} cores, {} of memory, Linux {}); {} rounds of {} s, places in turns (A B C A B C ...), each \
             made afresh after 2 GiB of memory have been written and freed (a virtual machine's host may have to provide them \
             first); {:.0} s in all. The region of the mount is a file on the {} that it is compared with. Figures \
             are medians, with the smallest and largest of the rounds in brackets. Ratios are a mount over {}, round by \
             round. With *writeback* the kernel keeps written data, as it does on {}; with the *library*, which is measured \
             where the region is in memory, the load's process reads and writes the region itself. CPU is that of the load, its \
             system calls included, and of the mount's server.",
            self.landfall_version, machine.processor, machine.cores, bytes(machine.memory as f64), machine.kernel,
            settings.rounds, settings.seconds, self.took_seconds, self.folder, self.folder, self.folder,
        ));
        if settings.quick {
            page.paragraph("**A quick run: it shows that everything works. Its figures mean nothing.**");
        }
        self.notes.iter().for_each(|note| page.line(&format!("- {note}")));
        page.line("");
    }

    fn table(&self, page: &mut Page) {
        page.paragraph("## Loads");
        let head = ["load", "threads", "place", "rate", "ratio", "p50 µs", "p99 µs", "CPU µs", "CPU ratio"];
        let row = |row: &Row| {
            let pair = self.pairs().find(|(ours, _)| std::ptr::eq(*ours, row));
            let rate = pair.and_then(|(ours, theirs)| ours.rate.over(&theirs.rate));
            let cpu = pair.and_then(|(ours, theirs)| ours.cpu_us.over(&theirs.cpu_us));
            vec![
                row.load.name().to_owned(),
                row.threads.to_string(),
                row.place.clone(),
                format!("{} {}", spread(&row.rate), row.load.unit()),
                spread_of(rate.as_ref()),
                spread_of(row.p50_us.as_ref()),
                spread_of(row.p99_us.as_ref()),
                spread(&row.cpu_us),
                spread_of(cpu.as_ref()),
            ]
        };
        page.table(&head, self.rows.iter().map(row));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::files::place::WRITEBACK;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: FsArgs,
    }

    /// Every kind of row.
    pub(crate) fn sample() -> Results {
        let settings = Cli::try_parse_from(["fs"]).unwrap().settings;
        let mut results = Results::new(settings, "ext4".into(), Machine::here());
        let of = |samples: [f64; 3]| Summary::of(samples).unwrap();
        for (load, timed) in
            [(LoadChoice::Create, true), (LoadChoice::Write, false), (LoadChoice::Varmail, true)]
        {
            for (place, rate) in [("ext4", 100.0), (MOUNT, 250.0), (WRITEBACK, 300.0)] {
                results.rows.push(Row {
                    load,
                    threads: if load == LoadChoice::Varmail { 16 } else { 1 },
                    place: place.into(),
                    rate: of([rate, rate * 1.1, rate * 0.9]),
                    mean_us: None,
                    p50_us: timed.then(|| of([10.0, 11.0, 9.0])),
                    p99_us: timed.then(|| of([20.0, 21.0, 19.0])),
                    cpu_us: of([5.0, 6.0, 4.0]),
                    device_bytes: (load == LoadChoice::Write && place == MOUNT).then(|| of([1.2, 1.1, 1.3])),
                    final_sync: None,
                });
            }
        }
        results
    }

    #[test]
    fn targets_compare_the_mount_with_the_folder_in_the_same_round() {
        let targets = sample().judge();
        let of = |name: &str| targets.iter().find(|target| target.what.starts_with(name)).unwrap();
        assert_eq!(of("varmail").measured.as_ref().map(|measured| measured.median), Some(2.5));
        assert_eq!(
            (of("varmail").met(), of("create").met(), of("append").met()),
            (Some(true), Some(false), None)
        );
    }

    #[test]
    fn bytes_on_the_device_are_at_most_so_many() {
        let targets = sample().judge();
        let of = |name: &str| targets.iter().find(|target| target.what.contains(name)).unwrap();
        let measured = |name| of(name).measured.as_ref().map(|measured| measured.median);
        assert_eq!((measured("on the device"), of("on the device").met()), (Some(1.2), Some(false)));
    }

    #[test]
    fn in_memory_the_library_is_compared_with_its_mount() {
        let mut results = sample();
        let append = |place: &str, rate: f64| Row {
            load: LoadChoice::Append,
            threads: 1,
            place: place.into(),
            rate: Summary::of([rate]).unwrap(),
            mean_us: None,
            p50_us: None,
            p99_us: None,
            cpu_us: Summary::of([1.0]).unwrap(),
            device_bytes: None,
            final_sync: None,
        };
        results.rows.extend([append(MOUNT, 20.0), append(LIBRARY, 120.0)]);
        let [target] = &results.judge()[..] else { panic!("one target") };
        assert_eq!((target.measured.as_ref().map(|m| m.median), target.met()), (Some(6.0), Some(true)));
    }

    #[test]
    fn a_report_has_a_row_for_each_place_and_a_plot() {
        let results = sample();
        let out = tempfile::tempdir().unwrap();
        let plots = results.plots(out.path()).unwrap();
        let text = results.markdown(&results.judge(), &plots);
        assert_eq!(text.matches("landfall mount").count(), 6, "{text}");
        assert!(text.contains("fs-rates.svg") && out.path().join("fs-rates.svg").exists());
    }
}
