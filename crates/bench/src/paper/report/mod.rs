//! What was measured, and the report on it, beside the papers' own numbers.

mod judge;
mod markdown;
mod plots;
mod table1;

use super::args::{PaperArgs, StageStore};
use super::compare::Row;
use super::lab::Lab;
use super::{bulk, callgrind};
use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::common::measure::stats::Summary;
use crate::common::plots::Plot;
use crate::common::report::Report;
use crate::common::targets::Target;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the layout of `paper.json`.
const SCHEMA: u32 = 1;

/// The numbers of the papers: "Packets as Persistent In-Memory Data Structures" (HotNets 2021), Table 1 and Figure 2,
/// µs and shares.
pub(crate) mod paper {
    pub(crate) const NETWORKING: f64 = 26.71;
    pub(crate) const PREPARATION: f64 = 0.70;
    pub(crate) const CHECKSUM: f64 = 1.77;
    pub(crate) const COPY: f64 = 1.14;
    pub(crate) const INSERTION: f64 = 2.78;
    pub(crate) const PERSISTENCE: f64 = 1.94;
    pub(crate) const TOTAL: f64 = 34.79;
    /// Sum of the four above, as the table has it.
    pub(crate) const DATA_MANAGEMENT: f64 = 6.39;
    /// Throughput that data management takes away, %.
    pub(crate) const LOST: (f64, f64) = (9.0, 28.0);
    /// Latency that it adds, %.
    pub(crate) const ADDED: (f64, f64) = (11.0, 42.0);
}

/// Everything measured: what `paper.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: u32,
    pub(crate) landfall_version: String,
    pub(crate) machine: Machine,
    pub(crate) pinning: String,
    /// Of the kernel's TCP.
    pub(crate) congestion_control: String,
    pub(crate) settings: PaperArgs,
    pub(crate) took_seconds: f64,
    /// What each server said of itself: version, medium, transport, store.
    pub(crate) servers: BTreeMap<String, String>,
    /// What the reader must know: failures, what was left out.
    pub(crate) notes: Vec<String>,
    pub(crate) table1: Vec<Row>,
    pub(crate) stages: Vec<StageRun>,
    pub(crate) counts: Vec<callgrind::Count>,
    pub(crate) figure2: Vec<Row>,
    pub(crate) wal: Vec<WalRows>,
    pub(crate) tcp: Vec<Row>,
    pub(crate) bulk: Vec<bulk::Row>,
    pub(crate) targets: Vec<Row>,
}

/// Stages of one store, ns a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StageRun {
    pub(crate) store: StageStore,
    /// With the best flush instruction of this processor; else with none.
    pub(crate) flushed: bool,
    pub(crate) times: BTreeMap<String, Summary>,
}

/// Write-ahead logs on one medium.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WalRows {
    /// On the ordinary file system of `--file-dir`.
    pub(crate) on_file: bool,
    pub(crate) medium: String,
    pub(crate) rows: Vec<Row>,
}

impl Results {
    pub(crate) fn new(lab: &Lab) -> Self {
        Self {
            congestion_control: lab.congestion_control.clone(),
            ..Self::of(lab.args.clone(), lab.pinning())
        }
    }

    fn of(settings: PaperArgs, pinning: String) -> Self {
        Self {
            schema: SCHEMA,
            landfall_version: env!("CARGO_PKG_VERSION").into(),
            machine: Machine::here(),
            pinning,
            congestion_control: String::new(),
            settings,
            took_seconds: 0.0,
            servers: BTreeMap::new(),
            notes: Vec::new(),
            table1: Vec::new(),
            stages: Vec::new(),
            counts: Vec::new(),
            figure2: Vec::new(),
            wal: Vec::new(),
            tcp: Vec::new(),
            bulk: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// True if no measurement came to an end.
    pub(crate) fn is_empty(&self) -> bool {
        let rows = [&self.table1, &self.figure2, &self.tcp, &self.targets];
        rows.iter().all(|rows| rows.is_empty())
            && self.wal.iter().all(|wal| wal.rows.is_empty())
            && self.stages.is_empty()
            && self.counts.is_empty()
            && self.bulk.is_empty()
    }

    /// A stage of a store, ns a request.
    pub(crate) fn stage(&self, store: StageStore, flushed: bool, name: &str) -> Option<&Summary> {
        self.stages.iter().find(|run| (run.store, run.flushed) == (store, flushed))?.times.get(name)
    }
}

impl Report for Results {
    const NAME: &'static str = "paper";
    const SCHEMA: u32 = SCHEMA;
    type Target = Target;

    fn judge(&self) -> Vec<Target> {
        judge::judge(self)
    }

    fn plots(&self, out: &Path) -> Result<Vec<Plot>, BenchError> {
        plots::draw(out, self)
    }

    fn markdown(&self, targets: &[Target], plots: &[Plot]) -> String {
        markdown::report(self, targets, plots)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::common::report::write_report;
    use crate::paper::compare::Work;
    use crate::paper::contestant::{Over, Store, Who, landfall};
    use crate::paper::sections::{
        FEW_AND_MANY, MTU, MTU_LARGE, OVERS, STORES, WALS, http, resp, unflushed, with,
    };
    use crate::paper::wrk::Ask;
    use clap::Parser;
    use std::fs;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: PaperArgs,
    }

    fn of(value: f64) -> Summary {
        Summary::of([value, value * 1.1]).unwrap()
    }

    fn row(who: Who, work: Work, mtu: u32, rps: f64, us: f64) -> Row {
        let (mean_us, copied_bytes) = (Some(of(us)), who.counts_copies().then(|| of(0.0)));
        let (p50_us, p99_us, cpu_us) = (of(us), of(us * 2.0), of(us / 2.0));
        let (rps, client_us) = (of(rps), Some(of(us / 3.0)));
        Row { who, work, mtu, rps, mean_us, p50_us, p99_us, cpu_us, client_us, copied_bytes }
    }

    fn stage_run(store: StageStore, flushed: bool, times: &[(&str, f64)]) -> StageRun {
        StageRun { store, flushed, times: times.iter().map(|(name, ns)| ((*name).into(), of(*ns))).collect() }
    }

    /// Every section filled, with round numbers.
    pub(crate) fn sample() -> Results {
        let args = Cli::try_parse_from(["paper"]).unwrap().args;
        let mut results = Results::of(args, "server on core 0".into());
        for over in OVERS {
            for (store, us) in STORES.into_iter().zip([20.0, 21.0, 27.0, 20.5]) {
                let bare = us - if store == Store::Discard { 0.0 } else { 0.3 };
                for work in [http(Ask::Post, 1), Work::Trip { resp: false }] {
                    results.table1.push(row(with(store, over), work, MTU, 1e6 / us, us));
                    results.table1.push(row(unflushed(store, over), work, MTU, 1e6 / bare, bare));
                }
                for connections in [1, 50] {
                    let rps = 1e6 / us * connections as f64;
                    results.figure2.push(row(with(store, over), http(Ask::Post, connections), MTU, rps, us));
                }
            }
            for ask in [Ask::Post, Ask::Get] {
                for connections in FEW_AND_MANY {
                    let us = if over == Over::Sockets { 60.0 } else { 15.0 };
                    results.tcp.push(row(landfall(over), http(ask, connections), MTU, 1e6 / us, us));
                }
            }
        }
        for flushed in [true, false] {
            let extra = if flushed { 200.0 } else { 0.0 };
            let heap = [
                ("parse", 300.0),
                ("insert", 150.0),
                ("insert, checksum", 250.0),
                ("commit of a batch", 20.0),
                ("insert, checksum, commit each", 320.0 + extra),
            ];
            let leveldb = [
                ("prepare", 60.0),
                ("prepare, write of nothing", 900.0),
                ("prepare, write", 2000.0),
                ("prepare, write, copy, commit each", 2100.0 + extra),
            ];
            let copy = [("copy", 40.0), ("copy, commit each", 60.0 + extra)];
            results.stages.push(stage_run(StageStore::Heap, flushed, &heap));
            results.stages.push(stage_run(StageStore::LevelDb, flushed, &leveldb));
            results.stages.push(stage_run(StageStore::Copy, flushed, &copy));
        }
        let count =
            callgrind::Count { store: StageStore::Heap, stage: "HTTP parsing".into(), instructions: 1234.5 };
        results.counts.push(count);
        let wal = |who: Who, us| row(who, http(Ask::Append, 1), MTU, 1e6 / us, us);
        let rows =
            WALS.into_iter().zip([60.0, 58.0, 40.0, 55.0, 15.0]).map(|(who, us)| wal(who, us)).collect();
        results.wal.push(WalRows { on_file: false, medium: "/dev/shm".into(), rows });
        for (over, speed) in [(Over::Sockets, 1000.0), (Over::XdpSpin, 1100.0)] {
            for (put, lose) in [(true, 0), (false, 0), (true, 100), (false, 100)] {
                let cpu_ns_per_kib = of(300.0);
                results.bulk.push(bulk::Row { over, put, lose, mb_per_second: of(speed), cpu_ns_per_kib });
            }
        }
        for (who, rps) in
            [(Who::Redis, 100.0), (landfall(Over::Sockets), 110.0), (landfall(Over::XdpSpin), 400.0)]
        {
            let loads = [resp(true, 1, 1), resp(true, 50, 1), resp(true, 50, 16), resp(false, 50, 16)];
            for work in loads.into_iter().chain([Work::Trip { resp: true }]) {
                results.targets.push(row(who, work, MTU, rps, 1e4 / rps));
            }
            for set in [true, false] {
                results.targets.push(row(who, resp(set, 50, 16), MTU_LARGE, rps, 1e4 / rps));
            }
        }
        results
    }

    #[test]
    fn a_report_is_three_kinds_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("deep/results");
        write_report(&out, &sample()).unwrap();
        let json: serde_json::Value =
            serde_json::from_slice(&fs::read(out.join("paper.json")).unwrap()).unwrap();
        assert_eq!(json["results"]["table1"][0]["name"], "discard, sockets");
        assert!(json["targets"].as_array().is_some_and(|targets| targets.len() > 20));
        let report = fs::read_to_string(out.join("paper.md")).unwrap();
        let plots = report.matches(".svg)").count();
        let files = fs::read_dir(&out).unwrap().flatten();
        let svgs = files.filter(|entry| entry.path().extension().is_some_and(|end| end == "svg")).count();
        assert!(plots >= 7 && svgs == plots, "{plots} plots, {svgs} files");
    }

    #[test]
    fn results_without_a_measurement_are_empty() {
        let args = Cli::try_parse_from(["paper"]).unwrap().args;
        assert!(Results::of(args, String::new()).is_empty());
        assert!(!sample().is_empty());
    }
}
