//! What the kernel counts of this process.

use std::path::Path;

/// Ticks a second in `/proc`: fixed by the kernel's interface on Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes of a page in `/proc/self/statm` on x86-64.
const PAGE_BYTES: u64 = 4096;

/// Memory and CPU time. Zero where the kernel does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Resident memory, bytes.
    pub(super) resident_bytes: u64,
    /// CPU time in user mode, seconds.
    pub(super) user_s: f64,
    /// CPU time in the kernel, seconds.
    pub(super) system_s: f64,
}

impl Usage {
    pub(super) fn read() -> Self {
        let statm = text(Path::new("/proc/self/statm"));
        let pages: u64 = statm.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
        let (user_s, system_s) = cpu_seconds(&text(Path::new("/proc/self/stat")));
        Self { resident_bytes: pages * PAGE_BYTES, user_s, system_s }
    }
}

/// The kernel's name and release.
pub(super) fn system() -> String {
    let release = text(Path::new("/proc/sys/kernel/osrelease"));
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Fields 14 and 15 of `/proc/self/stat`; the second one, a name in parentheses, may hold blanks.
fn cpu_seconds(stat: &str) -> (f64, f64) {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let seconds = |field: Option<&str>| {
        field.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / TICKS_PER_SECOND
    };
    let mut fields = after_name.split_whitespace().skip(11);
    (seconds(fields.next()), seconds(fields.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_found_behind_any_name() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 75 0 0 20 0 1 0";
        assert_eq!(cpu_seconds(stat), (2.5, 0.75));
        assert_eq!(cpu_seconds(""), (0.0, 0.0));
    }

    #[test]
    fn this_process_has_memory() {
        assert!(Usage::read().resident_bytes > 0);
    }
}
