//! What the mount of a server has published, and how long that took.

use crate::common::clients::http::metric;
use crate::common::error::BenchError;
use crate::common::measure::cpu::named_threads_ns;
use crate::common::sys;
use crate::linefs::place::Place;

/// The stages of publishing, as a mount names them.
pub(super) const STAGES: [&str; 4] = ["fetch", "log", "commit", "acknowledge"];
/// The name of the thread that publishes.
pub(super) const PUBLISHER: &str = "publish";

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
            metric(&page, name).ok_or(BenchError::Nothing("a mount does not say what it has published"))
        };
        let mut stages = [0.0; 4];
        for (seconds, name) in stages.iter_mut().zip(STAGES) {
            *seconds = value(&format!("landfall_fs_publish_stage_seconds_total{{stage=\"{name}\"}}"))?;
        }
        let chunks = value("landfall_fs_chunks_total")?;
        let cpu_ns = place.pids().into_iter().map(|pid| named_threads_ns(pid, PUBLISHER)).sum();
        Ok(Self { chunks, stages, cpu_ns })
    }

    pub(super) fn since(&self, before: &Self) -> Since {
        let chunks = self.chunks - before.chunks;
        let ms = |at: usize| (self.stages[at] - before.stages[at]) * 1000.0 / chunks;
        let stages_ms = std::array::from_fn(|at| (STAGES[at], ms(at)));
        Since { stages_ms, cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns) }
    }
}
