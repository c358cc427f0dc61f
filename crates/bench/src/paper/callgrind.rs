//! Instructions of each stage, counted by callgrind: the same on every run. Only of what runs in this process: valgrind
//! knows neither AF_XDP nor `clwb`, so there is no network here, and lines are flushed by `clflush`.

use super::args::{StageStore, Upto};
use super::contestant::missing;
use super::lab::Lab;
use crate::common::clients::redis_benchmark::run_to_end;
use crate::common::error::BenchError;
use crate::common::measure::callgrind::total;
use crate::common::progress::check_stop;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Batches of the shorter and the longer run; what both have in common (opening the region) cancels out.
const BATCHES: (u32, u32) = (2, 6);
/// Requests of a batch.
const BATCH: f64 = 256.0;

/// Instructions a request, of one stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) store: StageStore,
    pub(crate) stage: String,
    pub(crate) instructions: f64,
}

/// Stages in order: how far a request is taken, flush, what came last.
type Steps = &'static [(Upto, &'static str, &'static str)];

const NOTHING: (Upto, &str, &str) = (Upto::Land, "none", "landing (in the NIC's place)");
const HEAP: Steps = &[
    NOTHING,
    (Upto::Parse, "none", "HTTP parsing"),
    (Upto::Insert, "none", "allocation and insertion"),
    (Upto::Checksum, "none", "checksum"),
    (Upto::Commit, "none", "commit without its flushes"),
    (Upto::Commit, "clflush", "flush"),
];
const COPY: Steps = &[
    NOTHING,
    (Upto::Parse, "none", "HTTP parsing"),
    (Upto::Copy, "none", "copy"),
    (Upto::Commit, "none", "commit without its flushes"),
    (Upto::Commit, "clflush", "flush"),
];
const LEVELDB: Steps = &[
    NOTHING,
    (Upto::Parse, "none", "HTTP parsing"),
    (Upto::Prepare, "none", "request preparation"),
    (Upto::Insert, "none", "checksum, log, allocation and insertion"),
    (Upto::Copy, "none", "copy to the region"),
    (Upto::Commit, "none", "commit without its flushes"),
    (Upto::Commit, "clflush", "flush"),
];

/// Counts the stages of every store.
pub(crate) fn measure(lab: &Lab) -> Result<Vec<Count>, BenchError> {
    let valgrind = lab.valgrind.as_deref().ok_or_else(|| missing("valgrind", "valgrind"))?;
    let stores = [(StageStore::Heap, HEAP), (StageStore::Copy, COPY), (StageStore::LevelDb, LEVELDB)];
    let mut counts = Vec::new();
    for (store, steps) in stores.into_iter().take(if lab.args.quick { 1 } else { 3 }) {
        let mut before = 0.0;
        for (upto, flush, stage) in steps {
            crate::common::progress::say(format_args!("  callgrind: {store:?}, {stage}"));
            let so_far = per_request(lab, valgrind, (store, *upto, flush))?;
            if *upto > Upto::Land {
                let stage = (*stage).to_owned();
                counts.push(Count { store, stage, instructions: so_far - before });
            }
            before = so_far;
        }
    }
    Ok(counts)
}

fn per_request(lab: &Lab, valgrind: &Path, what: (StageStore, Upto, &str)) -> Result<f64, BenchError> {
    let (fewer, more) = (count(lab, valgrind, what, BATCHES.0)?, count(lab, valgrind, what, BATCHES.1)?);
    Ok((more - fewer) / (f64::from(BATCHES.1 - BATCHES.0) * BATCH))
}

/// All instructions of a run.
fn count(
    lab: &Lab,
    valgrind: &Path,
    (store, upto, flush): (StageStore, Upto, &str),
    batches: u32,
) -> Result<f64, BenchError> {
    use clap::ValueEnum;
    check_stop()?;
    let dir = lab.folder()?;
    let out = dir.path().join("callgrind.out");
    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    };
    let mut command = lab.local_command(valgrind);
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(&lab.landfall).args(["bench", "stages", "--batches", &batches.to_string()]);
    command.args(["--store", &name(store.to_possible_value()), "--upto", &name(upto.to_possible_value())]);
    command.args(["--flush", flush]).arg("--dir").arg(dir.path());
    run_to_end(command, "valgrind")?;
    let text = std::fs::read_to_string(&out).map_err(BenchError::file(&out))?;
    total(&text).ok_or_else(|| BenchError::reply("callgrind", "a profile without a total", "totals:"))
}
