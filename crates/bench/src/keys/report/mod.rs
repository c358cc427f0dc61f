//! What was measured, and the report on it.

mod counts;
pub(crate) mod markdown;
mod paging;
mod sets;
pub(crate) mod svg;
pub(crate) mod targets;

use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::common::plots::Plot;
use crate::common::report::Report;
use crate::common::targets::Target;
use crate::keys::args::KvArgs;
use crate::keys::workloads::{
    amplification, instructions, memory, mixed, paging as paging_workload, range, restart, space, throughput,
};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the layout of `kv.json`.
const SCHEMA: u32 = 2;

/// Everything measured: what `kv.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: u32,
    pub(crate) landfall_version: String,
    pub(crate) machine: Machine,
    pub(crate) client: String,
    pub(crate) settings: KvArgs,
    pub(crate) took_seconds: f64,
    /// What the reader must know: media, failures.
    pub(crate) notes: Vec<String>,
    pub(crate) throughput: Vec<throughput::Row>,
    pub(crate) mixed: Vec<mixed::Row>,
    pub(crate) amplification: Vec<amplification::Row>,
    pub(crate) memory: Vec<memory::Row>,
    /// Empty regions.
    pub(crate) empty: Vec<memory::Empty>,
    pub(crate) instructions: Vec<instructions::Row>,
    pub(crate) restart: Vec<restart::Row>,
    pub(crate) space: Vec<space::Row>,
    pub(crate) range: Vec<range::Row>,
    // Reports of schema 2 from before there was paging have neither this nor its setting.
    #[serde(default)]
    pub(crate) paging: Vec<paging_workload::Measured>,
}

impl Results {
    pub(crate) fn new(settings: KvArgs, client: &str, machine: Machine) -> Self {
        Self {
            schema: SCHEMA,
            landfall_version: env!("CARGO_PKG_VERSION").into(),
            machine,
            client: client.into(),
            settings,
            took_seconds: 0.0,
            notes: Vec::new(),
            throughput: Vec::new(),
            mixed: Vec::new(),
            amplification: Vec::new(),
            memory: Vec::new(),
            empty: Vec::new(),
            instructions: Vec::new(),
            restart: Vec::new(),
            space: Vec::new(),
            range: Vec::new(),
            paging: Vec::new(),
        }
    }

    /// True if no measurement came to an end.
    pub(crate) fn is_empty(&self) -> bool {
        self.throughput.is_empty()
            && self.mixed.is_empty()
            && self.amplification.is_empty()
            && self.memory.is_empty()
            && self.empty.is_empty()
            && self.instructions.is_empty()
            && self.restart.is_empty()
            && self.space.is_empty()
            && self.range.is_empty()
            && self.paging.is_empty()
    }
}

impl Report for Results {
    const NAME: &'static str = "kv";
    const SCHEMA: u32 = SCHEMA;
    type Target = Target;

    fn judge(&self) -> Vec<Target> {
        targets::judge(self)
    }

    fn plots(&self, out: &Path) -> Result<Vec<Plot>, BenchError> {
        svg::draw(out, self)
    }

    fn markdown(&self, targets: &[Target], plots: &[Plot]) -> String {
        markdown::report(self, targets, plots)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Results, counts, mixed, paging, range, restart, space};
    use crate::common::clients::{Operation, Shape};
    use crate::common::measure::proc::{Machine, Memory};
    use crate::common::measure::stats::Summary;
    use crate::common::peers::names;
    use crate::common::report::write_report;
    use crate::keys::args::{KvArgs, MediaChoice};
    use crate::keys::workloads::throughput::Row;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: KvArgs,
    }

    pub(crate) fn of(samples: &[f64]) -> Summary {
        Summary::of(samples.iter().copied()).unwrap()
    }

    pub(crate) fn row(peer: &str, clients: usize, pipeline: usize, rps: &[f64], cpu: f64) -> Row {
        Row {
            media: MediaChoice::Pm,
            peer: peer.into(),
            operation: Operation::Set,
            shape: Shape { clients, pipeline, value_bytes: 1024, random_keys: 100_000 },
            rps: of(rps),
            p50_us: of(&[50.0]),
            p95_us: of(&[60.0]),
            p99_us: of(&[70.0]),
            p999_us: None,
            cpu_us: of(&[cpu]),
        }
    }

    pub(crate) fn sample_results() -> Results {
        let settings = Cli::try_parse_from(["kv"]).unwrap().settings;
        let mut results = Results::new(settings, "redis-benchmark", Machine::here());
        results.throughput = vec![
            row(names::LANDFALL, 50, 1, &[120.0, 110.0], 5.0),
            row(names::REDIS_ALWAYS, 50, 1, &[100.0, 100.0], 10.0),
            row(names::REDIS_NONE, 50, 1, &[100.0, 100.0], 9.0),
        ];
        results
    }

    /// Every section filled.
    pub(crate) fn full_sample() -> Results {
        let (media, peer, one) = (MediaChoice::File, names::LANDFALL.to_owned(), of(&[1.0, 1.1, 0.3]));
        let mut results = counts::tests::with_counts();
        results.paging = paging::tests::with_paging(Some(paging::tests::device())).paging;
        results.throughput[0].p999_us = Some(one.clone());
        results.mixed.push(mixed::Row {
            media,
            peer: peer.clone(),
            load: results.throughput[0].shape,
            p50_us: one.clone(),
            p99_us: one.clone(),
            p999_us: one.clone(),
            commands_per_second: Some(one.clone()),
        });
        results.restart = [(1000, true), (2000, false)]
            .map(|(records, cold)| restart::Row {
                media,
                peer: peer.clone(),
                records,
                cold,
                seconds: one.clone(),
            })
            .into();
        results.space.push(space::Row {
            media,
            peer,
            value_bytes: 100,
            records: 7,
            loaded: 1.1,
            overwriting_max: 1.7,
            settled: 1.2,
            settle_seconds: 0.1,
            memory: Memory::default(),
            anon_per_key: 75.6,
            anon_per_key_beyond_key: 59.6,
            used_memory: None,
        });
        results.range.push(range::Row {
            media,
            value_bytes: 100,
            keys_only: true,
            wall_us_per_key: one.clone(),
            cpu_us_per_key: one,
        });
        results
    }

    #[test]
    fn a_report_is_three_kinds_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("deep/results");
        write_report(&out, &sample_results()).unwrap();
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(out.join("kv.json")).unwrap()).unwrap();
        assert_eq!(json["results"]["throughput"][0]["rps"]["median"], 115.0);
        assert!(json["targets"].as_array().is_some_and(|targets| !targets.is_empty()));
        let report = std::fs::read_to_string(out.join("kv.md")).unwrap();
        let plots = report.matches("](").count();
        assert!(plots > 0);
        let on_disk = std::fs::read_dir(&out).unwrap().flatten();
        let svgs = on_disk.filter(|entry| entry.path().extension().is_some_and(|end| end == "svg"));
        assert_eq!(svgs.count(), plots);
    }

    #[test]
    fn results_without_a_measurement_are_empty() {
        let mut results = sample_results();
        assert!(!results.is_empty());
        results.throughput.clear();
        assert!(results.is_empty());
    }
}
