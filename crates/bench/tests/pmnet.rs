//! `landfall bench pmnet --quick` from end to end: hosts, devices, servers and loggers of its own, a report, and
//! nothing left.

mod common;

use common::{BenchPlace, landfall_bench};

/// Figures short enough for a test; together they use every design but those with a read cache.
const FIGURES: &str = "fig2,fig15,fig18,fig20,fig21,recovery";

#[test]
#[allow(clippy::print_stderr, reason = "a test says what it skips")]
fn quick_run_of_the_pmnet_evaluation_reports_and_leaves_nothing() {
    let Some(place) = BenchPlace::new() else { return };
    let (work, out) = (&place.work, &place.out);
    let work_name = work.to_str().unwrap();
    let flags = ["bench", "pmnet", "--quick", "--only", FIGURES, "--apps", "btree,redis", "--sizes", "100"];
    let paths = ["--dir", work_name, "--file-dir", work_name, "--out", out.to_str().unwrap()];
    let output = landfall_bench(&[&flags[..], &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("no hosts can be made here") {
        eprintln!("SKIP: {words}");
        return;
    }
    assert!(output.status.success(), "{words}");
    let report = std::fs::read_to_string(out.join("pmnet.md")).unwrap();
    assert!(report.contains("Its figures mean nothing"), "{report}");
    for row in [
        "| direct |",
        "| bypass |",
        "| PMNet-NIC, device polls |",
        "| server-side logging, 3-way |",
        "| btree |",
    ] {
        assert!(report.contains(row), "{row}: {report}");
    }
    assert!(report.contains("## Figure 2:") && report.contains("## Recovery"), "{report}");
    assert!(!report.contains("FAILED"), "{report}");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("pmnet.json")).unwrap()).unwrap();
    assert_eq!(json["results"]["schema"], 1);
    assert_eq!(json["results"]["waits_for_servers"], true);
    device_acknowledges_what_pmnet_sends(&json["results"]["rows"]);
    parts_make_up_a_round_trip(&json["results"]["breakdown"]);
    let has_redis = !report.contains("SKIPPED");
    assert_eq!(has_replicas_of_redis(&json["results"]["rows"]), has_redis, "{report}");
    place.assert_nothing_is_left();
}

/// A structure's parts all take some time, and all of them together the round trip's.
fn parts_make_up_a_round_trip(breakdown: &serde_json::Value) {
    let btree = breakdown.as_array().unwrap().iter().find(|row| row["app"] == "btree").unwrap();
    let median = |value: &serde_json::Value| value["median"].as_f64().unwrap();
    let parts: Vec<f64> = btree["parts"].as_array().unwrap().iter().map(median).collect();
    let (sum, whole) = (parts.iter().sum::<f64>(), median(&btree["round_trip"]));
    assert!(parts.len() == 5 && parts.iter().all(|us| *us > 0.0), "{parts:?}");
    assert!((sum - whole).abs() < whole / 100.0, "{parts:?} {whole}");
}

/// Whether three copies of redis were measured, kept by servers and by devices.
fn has_replicas_of_redis(rows: &serde_json::Value) -> bool {
    let rows = rows.as_array().unwrap();
    let has = |design: &str| {
        rows.iter().any(|row| row["spec"]["app"] == "redis" && row["spec"]["design"] == design)
    };
    has("client-server, 3-way") && has("PMNet, 3 devices")
}

/// Updates through a device are answered by it, and bypasses are not.
fn device_acknowledges_what_pmnet_sends(rows: &serde_json::Value) {
    let rows = rows.as_array().unwrap();
    let of = |design: &str, waits: &str| {
        let mut found = rows.iter().filter(|row| row["spec"]["app"] == "ideal");
        let row = found.find(|row| row["spec"]["design"] == design && row["spec"]["waits"] == waits).unwrap();
        row["acknowledged"]["median"].as_f64().unwrap()
    };
    assert!(of("PMNet", "block") > 50.0 && of("PMNet-NIC", "polls") > 50.0, "{rows:?}");
    assert_eq!(of("bypass", "block"), 0.0);
}
