//! Resource usage of this process, from the kernel.

use std::fs;

/// Clock ticks per second in `/proc`: `USER_HZ`, which is part of the kernel's interface and 100 on every architecture
/// except Alpha and IA-64.
const USER_HZ: f64 = 100.0;

/// Resource usage of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// CPU time in user mode, seconds.
    pub(crate) user_seconds: f64,
    /// CPU time in the kernel, seconds.
    pub(crate) system_seconds: f64,
    /// Resident set, bytes.
    pub(crate) resident_bytes: u64,
    /// Number of threads.
    pub(crate) threads: u64,
}

/// Reads the usage, from files that do not block. Values that cannot be read are zero.
pub(crate) fn usage() -> Usage {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse(&stat, &status).unwrap_or_default()
}

/// Memory that the process may use, bytes: the machine's, or its control group's where that is less.
pub(crate) fn memory_bytes() -> Option<u64> {
    let machine = total_of(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    Some(machine.min(group))
}

/// `MemTotal` of proc_meminfo(5), bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Name and release of the kernel.
pub(crate) fn system() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}

fn parse(stat: &str, status: &str) -> Option<Usage> {
    // The command's name is in parentheses and may contain any character.
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    // Fields 14, 15 and 20 of proc_pid_stat(5); the first one here is field 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let seconds = |field: usize| Some(number(field)? as f64 / USER_HZ);
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Usage {
        user_seconds: seconds(14)?,
        system_seconds: seconds(15)?,
        resident_bytes: kib * 1024,
        threads: number(20)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 150 25 0 0 20 0 4 0 12345 0 0";
        let usage = parse(stat, "Name:\tx\nVmRSS:\t    2048 kB\n").unwrap();
        assert_eq!(
            usage,
            Usage { user_seconds: 1.5, system_seconds: 0.25, resident_bytes: 2 << 20, threads: 4 }
        );
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 75 0 0 20 0 1 0";
        let usage = parse(stat, "VmRSS:\t4 kB\n").unwrap();
        assert_eq!((usage.user_seconds, usage.system_seconds, usage.threads), (2.5, 0.75, 1));
        assert_eq!(parse("", ""), None);
    }

    #[test]
    fn this_process_takes_memory() {
        let usage = usage();
        assert!(usage.resident_bytes > 100 << 10 && usage.threads > 0, "{usage:?}");
    }
}
