//! What was measured, and the report on it, beside the paper's numbers.

mod goal;
mod judge;
mod markdown;
mod plots;
mod simulated;

use super::args::PmnetArgs;
use super::breakdown;
use super::compare::Row;
use super::model::Model;
use super::recovery;
use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::common::plots::Plot;
use crate::common::report::Report;
use crate::pmnet::lab::Lab;
use goal::Goal;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the layout of `pmnet.json`.
const SCHEMA: u32 = 1;

/// The paper's numbers (§VI-B).
pub(crate) mod paper {
    /// Figure 2: the server's share of an update's latency, percent, on average.
    pub(crate) const SERVER_SHARE: f64 = 70.0;
    /// Requests of TPC-C that are for locks, percent (§III-C).
    pub(crate) const LOCKS: f64 = 13.7;
    /// Figure 15: Client-Server over PMNet-Switch, by payload.
    pub(crate) const FIGURE_15: [(usize, f64); 2] = [(50, 2.83), (1000, 2.19)];
    /// Client-Server over PMNet-NIC.
    pub(crate) const FIGURE_15_NIC: [(usize, f64); 2] = [(50, 2.9), (1000, 2.19)];
    /// Figure 18, µs: without replication and with three copies.
    pub(crate) const CLIENT_LOG: [f64; 2] = [10.4, 41.61];
    pub(crate) const SERVER_LOG: [f64; 2] = [47.97, 94.02];
    pub(crate) const PMNET_LOG: [f64; 2] = [21.5, 22.8];
    /// Figure 19 at 100 % updates, mean.
    pub(crate) const FIGURE_19: f64 = 4.31;
    /// Figure 20: 99th percentile at 100 % updates; mean with the read cache.
    pub(crate) const TAIL: f64 = 3.23;
    pub(crate) const CACHE_MEAN: f64 = 3.36;
    /// Figure 21: server-side replication over in-network replication; what two more devices add, percent.
    pub(crate) const REPLICATED: f64 = 5.88;
    pub(crate) const COPIES: f64 = 16.0;
    /// Figure 22: PMNet over Client-Server, without and with libVMA.
    pub(crate) const FIGURE_22: [f64; 2] = [3.08, 3.56];
    /// Resending one request, µs.
    pub(crate) const REPLAY_US: f64 = 67.0;
}

/// Everything measured: what `pmnet.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: u32,
    pub(crate) landfall_version: String,
    pub(crate) machine: Machine,
    pub(crate) pinning: String,
    pub(crate) settings: PmnetArgs,
    pub(crate) took_seconds: f64,
    /// Whether runs ended once servers had executed everything. Those of reports from before ended with the last
    /// acknowledgement.
    #[serde(default)]
    pub(crate) waits_for_servers: bool,
    /// What the reader must know: failures, what was left out.
    pub(crate) notes: Vec<String>,
    // Reports from before there was a breakdown have none.
    #[serde(default)]
    pub(crate) breakdown: Vec<breakdown::Row>,
    pub(crate) rows: Vec<Row>,
    pub(crate) recovery: Vec<recovery::Row>,
    pub(crate) model: Model,
}

impl Results {
    pub(crate) fn new(lab: &Lab) -> Self {
        Self::of(lab.args.clone(), lab.pinning())
    }

    fn of(settings: PmnetArgs, pinning: String) -> Self {
        Self {
            schema: SCHEMA,
            landfall_version: env!("CARGO_PKG_VERSION").into(),
            machine: Machine::here(),
            pinning,
            settings,
            took_seconds: 0.0,
            waits_for_servers: true,
            notes: Vec::new(),
            breakdown: Vec::new(),
            rows: Vec::new(),
            recovery: Vec::new(),
            model: Model::default(),
        }
    }

    /// True if no measurement came to an end.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.recovery.is_empty() && self.breakdown.is_empty()
    }
}

impl Report for Results {
    const NAME: &'static str = "pmnet";
    const SCHEMA: u32 = SCHEMA;
    type Target = Goal;

    fn judge(&self) -> Vec<Goal> {
        judge::judge(self)
    }

    fn plots(&self, out: &Path) -> Result<Vec<Plot>, BenchError> {
        plots::draw(out, self)
    }

    fn markdown(&self, targets: &[Goal], plots: &[Plot]) -> String {
        markdown::report(self, targets, plots)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::common::measure::stats::Summary;
    use crate::common::report::write_report;
    use crate::pmnet::app::App;
    use crate::pmnet::args::{AppChoice, PmnetSection};
    use crate::pmnet::choices::key_value;
    use crate::pmnet::compare::PERCENTILES;
    use crate::pmnet::design::{Design, PMNET, PMNET_FILE, Spec, Waits};
    use crate::pmnet::model::{Ports, Simulated};
    use crate::pmnet::sections::specs;
    use clap::{Parser, ValueEnum};
    use std::collections::BTreeSet;
    use std::fs;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: PmnetArgs,
    }

    fn of(value: f64) -> Summary {
        Summary::of([value, value * 1.1]).unwrap()
    }

    /// Round numbers: latencies, µs, of designs.
    fn latency(design: Design) -> f64 {
        match design {
            Design::Pmnet { devices: 3, .. } => 22.0,
            Design::Pmnet { cache: true, .. } => 10.0,
            Design::Pmnet { .. } => 20.0,
            Design::Nic => 20.4,
            Design::Direct => 30.0,
            Design::Replicated => 176.0,
            _ => 60.0,
        }
    }

    fn row(spec: Spec) -> Row {
        let us = latency(spec.design);
        let rps = of(1e6 / us * spec.clients as f64);
        Row {
            spec,
            tps: rps.clone(),
            rps,
            mean_us: of(us),
            p50_us: of(us),
            p99_us: of(us * 2.0),
            update_p50_us: Some(of(us)),
            update_mean_us: Some(of(us)),
            reads: Some(of(0.0)),
            locks: Some(of(0.0)),
            distribution: PERCENTILES.iter().map(|at| of(us * (0.5 + at / 100.0))).collect(),
            device_us: Some(of(3.0)),
            server_us: Some(of(9.0)),
            again: of(0.0),
            acknowledged: of(100.0),
            cached: of(0.0),
        }
    }

    /// Every section filled.
    pub(crate) fn sample() -> Results {
        let args = Cli::try_parse_from(["pmnet", "--clients", "1,16"]).unwrap().args;
        let mut results = Results::of(args, "devices on core 0".into());
        for section in PmnetSection::value_variants() {
            for spec in specs(&results.settings, *section) {
                if !results.rows.iter().any(|row| row.spec == spec) {
                    results.rows.push(row(spec));
                }
            }
        }
        let apps = std::iter::once(App::Ideal).chain(key_value(&results.settings.apps));
        for app in apps.flat_map(|app| [(app, Ports::Veth), (app, Ports::Cards)]) {
            let (app, ports) = app;
            results.model.rows.push(Simulated {
                app,
                hosts: Waits::Block,
                ports,
                client_server: of(50.0),
                pmnet: of(20.0),
                replicated: of(140.0),
                devices_3: of(22.0),
                many: of(3.0),
            });
        }
        for app in breakdown::apps(&results.settings.apps) {
            let parts = [9.0, 6.0, 15.0, 10.0, 20.0].map(of).into();
            results.breakdown.push(breakdown::Row { app, parts, round_trip: of(60.0) });
        }
        for (design, us) in [(PMNET, 10.0), (PMNET_FILE, 40.0)] {
            let (boot_seconds, replay_seconds) = (of(0.01), of(5.0));
            let (rate, us) = (of(1e6 / us), of(us));
            let entries = 524_288;
            results.recovery.push(recovery::Row { design, entries, boot_seconds, replay_seconds, rate, us });
        }
        results
    }

    #[test]
    fn a_report_is_three_kinds_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("deep/results");
        write_report(&out, &sample()).unwrap();
        let json: serde_json::Value =
            serde_json::from_slice(&fs::read(out.join("pmnet.json")).unwrap()).unwrap();
        assert_eq!(json["results"]["rows"][0]["spec"]["design"], "direct");
        let report = fs::read_to_string(out.join("pmnet.md")).unwrap();
        let plots = report.matches(".svg)").count();
        let files = fs::read_dir(&out).unwrap().flatten();
        let svgs = files.filter(|entry| entry.path().extension().is_some_and(|end| end == "svg")).count();
        assert!(plots >= 20 && svgs == plots, "{plots} plots, {svgs} files");
    }

    #[test]
    fn results_without_a_measurement_are_empty() {
        let args = Cli::try_parse_from(["pmnet"]).unwrap().args;
        assert!(Results::of(args, String::new()).is_empty());
        assert!(!sample().is_empty());
    }

    #[test]
    fn a_quick_run_is_short_and_flags_stay_within_bounds() {
        let flags = ["pmnet", "--quick", "--clients", "5000", "--seconds", "1e9"];
        let args = Cli::try_parse_from(flags).unwrap().args.bounded();
        assert_eq!((args.rounds, args.seconds, &args.clients[..]), (1, 0.1, &[1, 4][..]));
        assert_eq!(args.only, PmnetSection::value_variants(), "but nothing is left out");
        assert_eq!(args.apps, AppChoice::value_variants());
        // Each takes half of a second to start: with this many it ends within five minutes.
        let all: BTreeSet<String> =
            args.only.iter().flat_map(|section| specs(&args, *section)).map(|spec| spec.describe()).collect();
        assert!(all.len() <= 300, "{}", all.len());
        let flags = ["pmnet", "--clients", "5000,0", "--sizes", "1,9999", "--seconds", "nan"];
        let args = Cli::try_parse_from(flags).unwrap().args.bounded();
        assert_eq!((&args.clients[..], &args.sizes[..], args.seconds), (&[64, 1][..], &[16, 1400][..], 1.5));
    }
}
