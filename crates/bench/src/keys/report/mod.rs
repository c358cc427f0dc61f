//! What was measured, and the report on it.

mod counts;
pub(crate) mod markdown;
mod paging;
mod sets;
pub(crate) mod svg;
pub(crate) mod targets;

use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::keys::args::KvArgs;
use crate::keys::workloads::{
    amplification, instructions, memory, mixed, paging as paging_workload, range, restart, space, throughput,
};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Version of the layout of `kv.json`.
const SCHEMA: u32 = 2;

/// Everything measured: what `kv.json` holds.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) schema: u32,
    pub(crate) landfall_version: &'static str,
    pub(crate) machine: Machine,
    pub(crate) client: &'static str,
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
    pub(crate) paging: Vec<paging_workload::Measured>,
}

impl Results {
    pub(crate) fn new(settings: KvArgs, client: &'static str, machine: Machine) -> Self {
        Self {
            schema: SCHEMA,
            landfall_version: env!("CARGO_PKG_VERSION"),
            machine,
            client,
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

/// Writes `kv.json`, the plots and `kv.md` into a folder, created if absent.
pub(crate) fn write(out: &Path, results: &Results) -> Result<(), BenchError> {
    fs::create_dir_all(out).map_err(BenchError::file(out))?;
    let targets = targets::judge(results);
    let json = serde_json::to_vec_pretty(&serde_json::json!({ "results": results, "targets": targets }));
    let json = json.map_err(|error| BenchError::File { path: out.join("kv.json"), source: error.into() })?;
    put(&out.join("kv.json"), &json)?;
    let plots = svg::draw(out, results)?;
    put(&out.join("kv.md"), markdown::report(results, &targets, &plots).as_bytes())
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), BenchError> {
    fs::write(path, bytes).map_err(BenchError::file(path))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Results;
    use crate::common::clients::{Operation, Shape};
    use crate::common::measure::proc::Machine;
    use crate::common::measure::stats::Summary;
    use crate::common::peers::names;
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

    #[test]
    fn a_report_is_three_kinds_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("deep/results");
        super::write(&out, &sample_results()).unwrap();
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
