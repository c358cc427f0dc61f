//! `landfall bench paper --quick` from end to end: it measures over a wire of its own, reports, and leaves nothing.

mod common;

use common::{BenchPlace, landfall_bench};
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
    let Some(place) = BenchPlace::new() else { return };
    let (work, out) = (&place.work, &place.out);
    let flags = ["bench", "paper", "--quick", "--only", SECTIONS];
    let paths = ["--dir", work.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let output = landfall_bench(&[&flags[..], &paths[..]].concat());
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
    place.assert_nothing_is_left();
}

/// What the test needs and this machine has not.
fn missing() -> Option<String> {
    let starts = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok()
    };
    let programs = ["wrk", "redis-server", "redis-benchmark"];
    let absent = programs.into_iter().find(|program| !starts(program))?;
    Some(format!("{absent}: not installed, see `cargo xtask peers`"))
}
