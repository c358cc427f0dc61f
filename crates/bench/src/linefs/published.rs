//! What the mount of a server has published, and how long that took.

use crate::common::error::BenchError;
use crate::common::sys;
use crate::linefs::place::Place;
use std::fs;
use std::path::Path;

/// The stages of publishing, as a mount names them.
pub(super) const STAGES: [&str; 4] = ["fetch", "log", "commit", "acknowledge"];
/// The name of the thread that publishes.
const PUBLISHER: &str = "publish";

/// What a mount has published so far.
pub(super) struct Published {
    chunks: f64,
    /// Seconds of each stage.
    stages: [f64; 4],
    /// CPU time of the thread that publishes, nanoseconds.
    cpu_ns: u64,
}

/// What was published in some time.
pub(super) struct Since {
    /// Each of [`STAGES`], and its time for a chunk, ms; NaN if there was none.
    pub(super) stages_ms: [(&'static str, f64); 4],
    /// CPU time of the thread that publishes, nanoseconds.
    pub(super) cpu_ns: u64,
}

impl Published {
    /// By the server that mounts the files of a place, as of now.
    pub(super) fn by(place: &Place) -> Result<Self, BenchError> {
        let point = place.files();
        let page = sys::extended_attribute(point, "landfall.metrics").map_err(BenchError::file(point))?;
        let value = |name: &str| -> Result<f64, BenchError> {
            let value =
                page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
            value.ok_or(BenchError::Nothing("a mount does not say what it has published"))
        };
        let mut stages = [0.0; 4];
        for (seconds, name) in stages.iter_mut().zip(STAGES) {
            *seconds = value(&format!("landfall_fs_publish_stage_seconds_total{{stage=\"{name}\"}}"))?;
        }
        let chunks = value("landfall_fs_chunks_total")?;
        Ok(Self { chunks, stages, cpu_ns: place.pids().into_iter().map(cpu_of_publisher).sum() })
    }

    pub(super) fn since(&self, before: &Self) -> Since {
        let chunks = self.chunks - before.chunks;
        let ms = |at: usize| (self.stages[at] - before.stages[at]) * 1000.0 / chunks;
        let stages_ms = std::array::from_fn(|at| (STAGES[at], ms(at)));
        Since { stages_ms, cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns) }
    }
}

/// CPU time of the thread of a server that publishes, nanoseconds.
fn cpu_of_publisher(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |task: &Path, what| fs::read_to_string(task.join(what)).unwrap_or_default();
    let publishers = tasks.filter(|task| read(&task.path(), "comm").trim_end() == PUBLISHER);
    let ns = |task: fs::DirEntry| read(&task.path(), "schedstat").split(' ').next()?.parse::<u64>().ok();
    publishers.filter_map(ns).sum()
}
