//! What was measured, and the report on it, beside the paper's numbers.

mod judge;
mod markdown;
mod plots;

use super::Lab;
use super::args::PmnetArgs;
use super::compare::Row;
use super::recovery;
use crate::error::BenchError;
use crate::measure::proc::Machine;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Version of the layout of `pmnet.json`.
const SCHEMA: u32 = 1;

/// The paper's numbers (§VI-B).
pub(crate) mod paper {
    /// Figure 15: Client-Server over PMNet-Switch, by payload.
    pub(crate) const FIGURE_15: [(usize, f64); 2] = [(50, 2.83), (1000, 2.19)];
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
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) schema: u32,
    pub(crate) landfall_version: &'static str,
    pub(crate) machine: Machine,
    pub(crate) pinning: String,
    pub(crate) settings: PmnetArgs,
    pub(crate) took_seconds: f64,
    /// What the reader must know: failures, what was left out.
    pub(crate) notes: Vec<String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) recovery: Vec<recovery::Row>,
}

impl Results {
    pub(crate) fn new(lab: &Lab) -> Self {
        Self::of(lab.args.clone(), lab.pinning())
    }

    fn of(settings: PmnetArgs, pinning: String) -> Self {
        Self {
            schema: SCHEMA,
            landfall_version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            pinning,
            settings,
            took_seconds: 0.0,
            notes: Vec::new(),
            rows: Vec::new(),
            recovery: Vec::new(),
        }
    }

    /// True if no measurement came to an end.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.recovery.is_empty()
    }
}

/// Writes `pmnet.json`, the plots and `pmnet.md` into a folder, created if absent.
pub(crate) fn write(out: &Path, results: &Results) -> Result<(), BenchError> {
    fs::create_dir_all(out).map_err(BenchError::file(out))?;
    let targets = judge::judge(results);
    let path = out.join("pmnet.json");
    let json = serde_json::to_vec_pretty(&serde_json::json!({ "results": results, "targets": targets }));
    let json = json.map_err(|error| BenchError::File { path: path.clone(), source: error.into() })?;
    put(&path, &json)?;
    let plots = plots::draw(out, results)?;
    put(&out.join("pmnet.md"), markdown::report(results, &targets, &plots).as_bytes())
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), BenchError> {
    fs::write(path, bytes).map_err(BenchError::file(path))
}
