//! `landfall bench kv --quick` from end to end: servers in turns, what is counted, a report, and nothing left.

mod common;

use common::{BenchPlace, landfall_bench};

/// Sections short enough for a test.
const SECTIONS: &str = "set,get,mixed,amplification,instructions";

#[test]
#[allow(clippy::print_stderr, reason = "a test says what it skips")]
fn quick_run_of_the_store_s_measurements_reports_and_leaves_nothing() {
    let Some(place) = BenchPlace::new() else { return };
    let (work, out) = (&place.work, &place.out);
    let flags =
        ["bench", "kv", "--quick", "--rounds", "1", "--media", "pm", "--only", SECTIONS, "-r", "2000,5000"];
    let paths = ["--pm-dir", work.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let servers = ["--client", "builtin", "--peers", "landfall,discard,redis-always"];
    let output = landfall_bench(&[&flags[..], &paths[..], &servers[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let report = std::fs::read_to_string(out.join("kv.md")).unwrap();
    assert!(report.contains("Its figures mean nothing"), "{report}");
    assert!(!report.contains("FAILED"), "{report}");
    for row in [
        "### pm: SET, 50 clients, pipeline 16, 1024 B, 2000 random keys",
        "### pm: SET, 50 clients, pipeline 16, 1024 B, 5000 random keys",
        "### pm: SET, 50 clients, pipeline 16, 1024 B, a single key",
        "### pm: GET, 50 clients, pipeline 16, 1024 B, 2000 random keys",
        "| landfall, discarding |",
    ] {
        assert!(report.contains(row), "{row}: {report}");
    }
    let skipped = report.contains("SKIPPED instructions: valgrind is not installed");
    assert!(skipped != report.contains("## Instructions of a SET"), "{report}");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("kv.json")).unwrap()).unwrap();
    assert_eq!(json["results"]["schema"], 2);
    more_is_written_than_received(json["results"]["amplification"].as_array().unwrap());
    place.assert_nothing_is_left();
}

/// Each SET brings a record, and no more than that.
fn more_is_written_than_received(rows: &[serde_json::Value]) {
    assert_eq!(rows.len(), 6, "three shares, two ways to choose keys");
    for row in rows {
        let counted = |name: &str| row["counted"][name].as_f64().unwrap();
        let received = counted("received");
        assert!(received > 1e6, "{row}");
        assert!(counted("records") / received >= 0.115, "128 B a SET of some 1080 B: {row}");
        assert_eq!(counted("zeroes"), 0.0, "a run becomes a slab without being zeroed: {row}");
    }
}
