//! Memory and files of a server, and the machine that it runs on.

use memmap2::{Advice, MmapMut};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Resident memory of a process, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// All resident memory.
    pub(crate) rss: u64,
    /// Heap, stacks and other memory without a file.
    pub(crate) anon: u64,
    /// Shared memory: where a region on tmpfs is mapped.
    pub(crate) shmem: u64,
}

impl Memory {
    /// As of now; zero for a process that has ended.
    pub(crate) fn of(pid: u32) -> Self {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
    }

    fn parse(status: &str) -> Self {
        let bytes = |name: &str| status_bytes(status, name);
        Self { rss: bytes("VmRSS"), anon: bytes("RssAnon"), shmem: bytes("RssShmem") }
    }
}

/// True if a child of this process has ended, and was not waited for.
pub(crate) fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may contain anything.
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'))
}

/// The most memory that was ever resident of a process, bytes; zero for a process that has ended.
pub(crate) fn peak_resident(pid: u32) -> u64 {
    status_bytes(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), "VmHWM")
}

/// A field of `/proc/PID/status` that is in KiB, in bytes.
fn status_bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

/// Bytes that all threads of a process have written to storage, as counted by the kernel; `None` where it does not
/// count.
pub(crate) fn storage_bytes_written(pid: u32) -> Option<u64> {
    write_bytes(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

/// `write_bytes` of `/proc/PID/io` (proc_pid_io(5)).
fn write_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
}

/// Bytes of all files below a folder, by length.
pub(crate) fn bytes_below(dir: &Path) -> u64 {
    let mut sum = 0;
    each_file(dir, &mut |path| sum += fs::metadata(path).map_or(0, |meta| meta.len()));
    sum
}

/// Drops the pages of the files below a folder from the page cache.
pub(crate) fn drop_cached_below(dir: &Path) {
    each_file(dir, &mut |path| {
        if let Ok(file) = fs::File::open(path) {
            // The kernel drops only clean pages.
            let _ = file.sync_all().and_then(|()| crate::common::sys::drop_cached(&file));
        }
    });
}

fn each_file(dir: &Path, visit: &mut dyn FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => each_file(&entry.path(), visit),
            Ok(kind) if kind.is_file() => visit(&entry.path()),
            _ => {}
        }
    }
}

/// The machine of the measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Model of the first processor.
    pub(crate) processor: String,
    /// The number of usable processors.
    pub(crate) cores: usize,
    /// Memory, bytes.
    pub(crate) memory: u64,
    /// Kernel release.
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: field(&cpuinfo, "model name").unwrap_or("unknown").into(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory: memory_bytes("MemTotal").unwrap_or(0),
            kernel: kernel.trim().into(),
        }
    }
}

/// Memory of the machine, bytes, by the kernel's name for it.
pub(crate) fn memory_bytes(name: &str) -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = field(&meminfo, name)?.split(' ').next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Writes memory and frees it: `bytes`, but at most a quarter of the available memory.
///
/// A host may take the free memory of its virtual machines and provide it anew when it is next used, which takes
/// microseconds a page: whichever server came first after a pause would pay.
pub(crate) fn warm_memory(bytes: u64) {
    let available = memory_bytes("MemAvailable").unwrap_or(0);
    let bytes = usize::try_from(bytes.min(available / 4)).unwrap_or(0);
    let Ok(mut memory) = MmapMut::map_anon(bytes) else { return };
    // In huge pages, as the server's image of a file: free memory stays in large pieces.
    let _ = memory.advise(Advice::HugePage);
    memory.fill(1);
    std::hint::black_box(&memory);
}

fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::{Memory, bytes_below, field, is_zombie, write_bytes};

    #[test]
    fn memory_is_read_from_status() {
        let status =
            "Name:\tx\nVmRSS:\t    2048 kB\nRssAnon:\t    1024 kB\nRssFile:\t 1 kB\nRssShmem:\t   512 kB\n";
        assert_eq!(Memory::parse(status), Memory { rss: 2 << 20, anon: 1 << 20, shmem: 512 << 10 });
    }

    #[test]
    fn a_child_that_has_ended_is_a_zombie_until_it_is_waited_for() {
        assert!(!is_zombie(std::process::id()));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(!is_zombie(child.id()));
        drop(child.stdin.take());
        while !is_zombie(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_zombie(child.id()));
    }

    #[test]
    fn an_ended_process_has_no_memory() {
        assert_eq!(Memory::parse(""), Memory::default());
    }

    #[test]
    fn what_was_cancelled_is_not_what_was_written() {
        let io = "wchar: 9\nread_bytes: 7\nwrite_bytes: 4096\ncancelled_write_bytes: 5\n";
        assert_eq!(write_bytes(io), Some(4096));
        assert_eq!(write_bytes("cancelled_write_bytes: 5\n"), None);
    }

    #[test]
    fn files_in_folders_below_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("a"), [0; 100]).unwrap();
        std::fs::write(dir.path().join("sub/b"), [0; 23]).unwrap();
        assert_eq!(bytes_below(dir.path()), 123);
    }

    #[test]
    fn fields_end_at_their_line() {
        assert_eq!(field("a: 1\nb:  two words \n", "b"), Some("two words"));
        assert_eq!(field("a: 1\n", "c"), None);
    }
}
