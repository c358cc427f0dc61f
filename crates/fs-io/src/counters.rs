//! What a mount counts since it began: requests by kind, commits, published chunks. Shown by [`crate::inspect`].

use landfall_fs::{Published, Stage};
use landfall_fuse::Op;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kinds of requests that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Lookup,
    Attributes,
    Names,
    Entries,
    Read,
    Write,
    Space,
    Extended,
    Sync,
    Other,
}

impl RequestKind {
    /// All kinds, in order, and their labels.
    pub(crate) const ALL: [(Self, &str); 10] = [
        (Self::Lookup, "lookup"),
        (Self::Attributes, "attributes"),
        (Self::Names, "names"),
        (Self::Entries, "entries"),
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Space, "space"),
        (Self::Extended, "extended"),
        (Self::Sync, "sync"),
        (Self::Other, "other"),
    ];

    pub(crate) fn of(op: &Op<'_>) -> Self {
        match op {
            Op::Lookup { .. } => Self::Lookup,
            Op::GetAttr { .. } | Op::Statx { .. } | Op::SetAttr(_) => Self::Attributes,
            Op::Create { .. }
            | Op::TmpFile { .. }
            | Op::MkNod { .. }
            | Op::MkDir { .. }
            | Op::Symlink { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::RmDir { .. }
            | Op::Rename { .. } => Self::Names,
            Op::ReadDir(_) | Op::ReadDirPlus(_) => Self::Entries,
            Op::Read(_) => Self::Read,
            Op::Write(_) => Self::Write,
            Op::Fallocate { .. } | Op::Lseek { .. } | Op::CopyFileRange(_) => Self::Space,
            Op::SetXattr { .. } | Op::GetXattr { .. } | Op::ListXattr { .. } | Op::RemoveXattr { .. } => {
                Self::Extended
            }
            Op::Fsync { .. } | Op::FsyncDir { .. } | Op::SyncFs => Self::Sync,
            _ => Self::Other,
        }
    }
}

/// How often something was done, and how long it took together.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Timed {
    pub(crate) fn note(&self, begun: Instant) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        read(&self.count)
    }

    pub(crate) fn seconds(&self) -> f64 {
        read(&self.ns) as f64 / 1e9
    }
}

/// Times of the stages of one chunk.
#[derive(Debug, Default)]
pub(crate) struct StageTimes {
    current: Option<(Stage, Instant)>,
    times: [Duration; Stage::ALL.len()],
}

impl StageTimes {
    /// A stage begins, and the one before it ends.
    pub(crate) fn begin(&mut self, stage: Stage) {
        self.end();
        self.current = Some((stage, Instant::now()));
    }

    fn end(&mut self) {
        if let Some((stage, since)) = self.current.take() {
            self.times[stage as usize] += since.elapsed();
        }
    }
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The counters of a mount.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: [Timed; RequestKind::ALL.len()],
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    /// Commits for requests that waited, and the requests.
    pub(crate) commits: Timed,
    pub(crate) committed_requests: AtomicU64,
    /// Waits of requests for space.
    pub(crate) space_waits: Timed,
    /// Waits of requests until less of the log is not published.
    pub(crate) backlog_waits: Timed,
    /// Waits of writes while others wait until something is durable.
    pub(crate) pace_waits: Timed,
    pub(crate) chunks: Timed,
    /// Nanoseconds of each stage of publishing.
    stages: [AtomicU64; Stage::ALL.len()],
    pub(crate) published_operations: AtomicU64,
    pub(crate) published_records: AtomicU64,
    pub(crate) relinked_bytes: AtomicU64,
    pub(crate) coalesced_bytes: AtomicU64,
    pub(crate) undone_inodes: AtomicU64,
}

impl Counters {
    pub(crate) fn requests(&self, kind: RequestKind) -> &Timed {
        &self.requests[kind as usize]
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Time that publishing has taken for a stage, seconds.
    pub(crate) fn stage_seconds(&self, stage: Stage) -> f64 {
        read(&self.stages[stage as usize]) as f64 / 1e9
    }

    /// A chunk was published.
    pub(crate) fn note_published(&self, begun: Instant, mut times: StageTimes, published: &Published) {
        self.chunks.note(begun);
        times.end();
        for (sum, time) in self.stages.iter().zip(times.times) {
            Self::add(sum, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
        Self::add(&self.published_operations, published.operations);
        Self::add(&self.published_records, published.records);
        Self::add(&self.relinked_bytes, published.relinked_bytes);
        Self::add(&self.coalesced_bytes, published.coalesced_bytes);
        Self::add(&self.undone_inodes, published.undone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_counter_of_its_own() {
        let counters = Counters::default();
        for (at, (kind, _)) in RequestKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            counters.requests(kind).note(Instant::now());
        }
        assert!(RequestKind::ALL.iter().all(|(kind, _)| counters.requests(*kind).count() == 1));
    }
}
