//! `landfall bench paper --quick` from end to end: it measures over a wire of its own, reports, and leaves nothing.

mod common;

use common::landfall;
use std::path::Path;
use std::process::{Command, Stdio};

/// Sections short enough for a test; together they use every kind of server but LevelDB, and both clients.
const SECTIONS: &str = "wal,targets";

#[test]
#[allow(clippy::print_stderr, reason = "a test says what it skips")]
fn quick_run_of_the_papers_measurements_reports_and_leaves_nothing() {
    if let Some(missing) = missing() {
        eprintln!("SKIP: {missing}");
        return;
    }
    let place = tempfile::Builder::new().prefix("landfall-test-").tempdir_in("/dev/shm").unwrap();
    let (work, out) = (place.path().join("work"), place.path().join("out"));
    std::fs::create_dir(&work).unwrap();
    let flags = ["bench", "paper", "--quick", "--only", SECTIONS];
    let paths = ["--dir", work.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let output = landfall(&[&flags[..], &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("no hosts can be made here") {
        eprintln!("SKIP: {words}");
        return;
    }
    assert!(output.status.success(), "{words}");
    let report = std::fs::read_to_string(out.join("paper.md")).unwrap();
    assert!(report.contains("Its figures mean nothing"), "{report}");
    assert!(report.contains("| read + copy + msync |"), "{report}");
    assert!(report.contains("| SET, 1 client | landfall, AF_XDP, spinning |"), "{report}");
    assert!(!report.contains("FAILED"), "{report}");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("paper.json")).unwrap()).unwrap();
    assert_eq!(json["results"]["schema"], 1);
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "nothing is left where it measured");
    assert_eq!(servers_on(&work), 0, "no server is left");
}

/// What the test needs and this machine has not.
fn missing() -> Option<String> {
    if !Path::new("/dev/shm").is_dir() {
        return Some("/dev/shm: there is none".into());
    }
    let starts = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok()
    };
    let programs = ["wrk", "redis-server", "redis-benchmark"];
    let absent = programs.into_iter().find(|program| !starts(program))?;
    Some(format!("{absent}: not installed, see `cargo xtask peers`"))
}

/// Processes whose command line names a folder.
fn servers_on(dir: &Path) -> usize {
    let name = dir.to_str().unwrap().as_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.windows(name.len()).any(|window| window == name)).count()
}
