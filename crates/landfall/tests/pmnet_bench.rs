//! `landfall bench pmnet --quick` from end to end: hosts, devices, servers and loggers of its own, a report, and nothing left.

mod common;

use common::landfall;
use std::path::Path;

/// Figures short enough for a test; together they use every design but those with a read cache.
const FIGURES: &str = "fig15,fig18,fig20,fig21,recovery";

#[test]
#[allow(clippy::print_stderr, reason = "a test says what it skips")]
fn quick_run_of_the_pmnet_evaluation_reports_and_leaves_nothing() {
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("SKIP: /dev/shm: there is none");
        return;
    }
    let place = tempfile::Builder::new().prefix("landfall-test-").tempdir_in("/dev/shm").unwrap();
    let (work, out) = (place.path().join("work"), place.path().join("out"));
    std::fs::create_dir(&work).unwrap();
    let work_name = work.to_str().unwrap();
    let flags = ["bench", "pmnet", "--quick", "--only", FIGURES, "--apps", "btree,redis", "--sizes", "100"];
    let paths = ["--dir", work_name, "--file-dir", work_name, "--out", out.to_str().unwrap()];
    let output = landfall(&[&flags[..], &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("no hosts can be made here") {
        eprintln!("SKIP: {words}");
        return;
    }
    assert!(output.status.success(), "{words}");
    let report = std::fs::read_to_string(out.join("pmnet.md")).unwrap();
    assert!(report.contains("Its figures mean nothing"), "{report}");
    for row in ["| direct |", "| bypass |", "| server-side logging, 3-way |", "| btree |"] {
        assert!(report.contains(row), "{row}: {report}");
    }
    assert!(report.contains("## Recovery"), "{report}");
    assert!(!report.contains("FAILED"), "{report}");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("pmnet.json")).unwrap()).unwrap();
    assert_eq!(json["results"]["schema"], 1);
    device_acknowledges_what_pmnet_sends(&json["results"]["rows"]);
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "nothing is left where it measured");
    assert_eq!(processes_on(&work), 0, "no process is left");
}

/// Updates through a device are answered by it, and bypasses are not.
fn device_acknowledges_what_pmnet_sends(rows: &serde_json::Value) {
    let rows = rows.as_array().unwrap();
    let of = |design: &str| {
        let mut found = rows.iter().filter(|row| row["spec"]["app"] == "ideal");
        let row = found.find(|row| row["spec"]["design"] == design).unwrap();
        row["acknowledged"]["median"].as_f64().unwrap()
    };
    assert!(of("PMNet") > 50.0 && of("bypass") == 0.0, "{} {}", of("PMNet"), of("bypass"));
}

/// Processes whose command line names a folder.
fn processes_on(dir: &Path) -> usize {
    let name = dir.to_str().unwrap().as_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.windows(name.len()).any(|window| window == name)).count()
}
