//! CPU time of a server, all threads.

use std::fs;
use std::path::{Path, PathBuf};

/// Nanoseconds of one clock tick of `/proc/PID/stat`: Linux reports 100 a second to user space on every architecture.
pub(super) const TICK_NS: u64 = 10_000_000;

/// CPU time that a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// Sum over the threads alive now, to the nanosecond; 0 where the kernel does not report it.
    threads_ns: u64,
    /// User and system time of the process, ended threads included, to the tick.
    process_ns: u64,
}

impl CpuTime {
    /// As of now; zero for a process that has ended.
    pub(crate) fn of(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        Self { threads_ns: threads_ns(pid), process_ns: stat_ticks(&stat).unwrap_or(0) * TICK_NS }
    }

    /// Nanoseconds used since `earlier`.
    ///
    /// Threads are exact but lose those that ended (io_uring's helpers do); where the coarse sum says clearly
    /// more, it is taken.
    pub(crate) fn since_ns(self, earlier: Self) -> u64 {
        let fine = self.threads_ns.saturating_sub(earlier.threads_ns);
        let coarse = self.process_ns.saturating_sub(earlier.process_ns);
        if coarse > fine + 2 * TICK_NS { coarse } else { fine.max(coarse.saturating_sub(2 * TICK_NS)) }
    }
}

/// CPU time of the calling thread so far, nanoseconds; 0 where the kernel does not report it.
pub(crate) fn thread_ns() -> u64 {
    task_ns(Path::new("/proc/thread-self")).unwrap_or(0)
}

/// CPU time of the threads of a process that have this name, nanoseconds; 0 where the kernel does not report it.
pub(crate) fn named_threads_ns(pid: u32, name: &str) -> u64 {
    let has_name =
        |task: &Path| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name);
    tasks(pid).filter(|task| has_name(task)).filter_map(|task| task_ns(&task)).sum()
}

fn threads_ns(pid: u32) -> u64 {
    tasks(pid).filter_map(|task| task_ns(&task)).sum()
}

/// What `/proc` has of each thread of a process.
fn tasks(pid: u32) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().map(|task| task.path())
}

fn task_ns(task: &Path) -> Option<u64> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// `utime + stime` of a line of `/proc/PID/stat`: fields 14 and 15, after a name that may hold anything.
fn stat_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::{CpuTime, TICK_NS, stat_ticks};

    #[test]
    fn user_and_system_time_are_found_behind_a_name_with_brackets_and_blanks() {
        let stat = "42 (a) (b c) S 1 42 42 0 -1 4194560 2 0 0 0 120 30 7 8 20 0 4 0 999 1 2";
        assert_eq!(stat_ticks(stat), Some(150));
    }

    #[test]
    fn a_line_cut_short_is_no_time() {
        assert_eq!(stat_ticks("42 (a) S 1 42"), None);
        assert_eq!(stat_ticks(""), None);
    }

    #[test]
    fn ended_threads_are_counted_by_the_coarse_clock() {
        let before = CpuTime { threads_ns: 1000, process_ns: 0 };
        let after = CpuTime { threads_ns: 2000, process_ns: 50 * TICK_NS };
        assert_eq!(after.since_ns(before), 50 * TICK_NS);
    }

    #[test]
    fn living_threads_are_counted_by_the_fine_clock() {
        let after = CpuTime { threads_ns: 3 * TICK_NS + 7, process_ns: 4 * TICK_NS };
        assert_eq!(after.since_ns(CpuTime::default()), 3 * TICK_NS + 7);
    }

    #[test]
    fn work_of_this_very_process_is_seen() {
        let before = CpuTime::of(std::process::id());
        let begun = std::time::Instant::now();
        let mut sum = 0u64;
        // A busy machine gives this process its share when it likes.
        while CpuTime::of(std::process::id()).since_ns(before) <= TICK_NS {
            assert!(begun.elapsed().as_secs() < 60, "a minute of work was not seen");
            for _ in 0..100_000 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
            }
        }
    }
}
