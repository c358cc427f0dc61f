//! `landfall bench linefs --quick` from end to end: a chain of its own, GlusterFS where it is installed, a report, and
//! nothing left.

mod common;

use common::{BenchPlace, landfall_bench, landfall_bench_alone};
use std::fs;

/// The loads that are judged.
const LOADS: &str = "append,write,varmail,set";

/// Whether mounts are possible here; says why not.
#[allow(clippy::print_stderr, reason = "a test says what it skips")]
fn can_mount() -> bool {
    match fs::File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIP: a FUSE mount: /dev/fuse: {error}");
            false
        }
    }
}

#[test]
fn quick_run_of_the_chain_s_measurements_reports_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let Some(place) = BenchPlace::new() else { return };
    let (work, out) = (&place.work, &place.out);
    let paths = ["--dir", work.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let output =
        landfall_bench(&[&["bench", "linefs", "--quick", "--used", "--only", LOADS], &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let report = fs::read_to_string(out.join("linefs.md")).unwrap();
    assert!(report.contains("Its figures mean nothing") && !report.contains("FAILED"), "{report}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("linefs.json")).unwrap()).unwrap();
    let rows = json["results"]["rows"].as_array().unwrap();
    let rows_of = |place: &str| rows.iter().filter(|row| row["place"] == place).count();
    for place in ["tmpfs", "landfall, one server", "landfall, chain of three"] {
        assert_eq!(rows_of(place), 3, "{place}: {report}");
    }
    // What cannot be had is named, and no target that compares with it counts as reached.
    let has_gluster = !report.contains("SKIPPED GlusterFS, replica 3: ");
    assert_eq!(rows_of("GlusterFS, replica 3"), if has_gluster { 3 } else { 0 }, "{report}");
    let compared = json["targets"].as_array().unwrap().iter();
    let compared = compared.filter(|target| target["what"].as_str().unwrap().ends_with("over GlusterFS"));
    let measured: Vec<bool> = compared.map(|target| target["measured"].is_object()).collect();
    assert_eq!(measured, [has_gluster; 4], "{report}");
    let sets = json["results"]["sets"].as_array().unwrap();
    let sets_of = |place: &str| sets.iter().filter(|row| row["place"] == place).count();
    let has_redis = !report.contains("SKIPPED redis always, two replicas, WAIT 2: ");
    let counts = ["landfall, one server", "landfall, chain of three", "redis always, two replicas, WAIT 2"]
        .map(sets_of);
    assert_eq!(counts, [2, 2, if has_redis { 2 } else { 0 }], "{report}");
    place.assert_nothing_is_left();
}

#[test]
fn quick_run_of_the_figures_of_linefs_has_every_number_without_glusterfs_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let Some(place) = BenchPlace::new() else { return };
    let paths = ["--dir", place.work.to_str().unwrap(), "--out", place.out.to_str().unwrap()];
    let flags = ["bench", "linefs", "--quick", "--only", "leveldb,clients,beside"];
    let output = landfall_bench_alone(&[&flags, &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    place.assert_nothing_is_left();
    assert!(output.status.success() && !words.contains("FAILED"), "{words}");
    assert_eq!(words.matches("SKIPPED GlusterFS, replica 3: ").count(), 1, "{words}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(place.out.join("linefs.json")).unwrap()).unwrap();
    for at in ["tmpfs", "landfall, one server", "landfall, chain of three"] {
        let mut rows = json["results"]["beside"].as_array().unwrap().iter();
        let row = rows.find(|row| row["place"] == at).unwrap_or_else(|| panic!("{at}: {words}"));
        let figures = [&row["alone"]["p99"], &row["beside"]["p99"], &row["rate"]];
        assert!(figures.iter().all(|figure| figure["median"].as_f64().unwrap() > 0.0), "{row}");
    }
    for at in ["landfall, chain of three", "landfall, NotParallel", "landfall, Assise's way"] {
        for (clients, beside) in
            [(1, "nothing"), (1, "yielding"), (2, "nothing"), (2, "yielding"), (2, "equal")]
        {
            let mut rows = json["results"]["clients"].as_array().unwrap().iter();
            let is_meant = |row: &&serde_json::Value| {
                row["place"] == at && row["clients"] == clients && row["beside"] == beside
            };
            let row = rows.find(is_meant).unwrap_or_else(|| panic!("{at}, {clients}, {beside}: {words}"));
            assert!(row["rate"]["median"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["cpu_us"]["median"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    assert!(place.out.join("linefs-clients-busy.svg").exists());
    let rows = json["results"]["rows"].as_array().unwrap();
    let has_leveldb = !words.contains("SKIPPED LevelDB: ");
    for load in [
        "leveldbsync",
        "leveldbfill",
        "leveldbfillrandom",
        "leveldbread",
        "leveldbreadsequential",
        "leveldbreadhot",
    ]
    .into_iter()
    .filter(|_| has_leveldb)
    {
        for at in ["tmpfs", "landfall, one server", "landfall, chain of three", "landfall, Assise's way"] {
            let row = rows.iter().find(|row| row["load"] == load && row["place"] == at);
            let row = row.unwrap_or_else(|| panic!("{load}, {at}: {words}"));
            assert!(row["mean_us"]["median"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn quick_run_of_mounts_elsewhere_counts_what_they_ask_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let Some(place) = BenchPlace::new() else { return };
    let paths = ["--dir", place.work.to_str().unwrap(), "--out", place.out.to_str().unwrap()];
    let output =
        landfall_bench(&[&["bench", "linefs", "--quick", "--only", "elsewhere"], &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !words.contains("FAILED"), "{words}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(place.out.join("linefs.json")).unwrap()).unwrap();
    let rows = json["results"]["elsewhere"].as_array().unwrap();
    let requests = |mounted: &str, work: &str| {
        let row = rows.iter().find(|row| row["mounted"] == mounted && row["work"] == work);
        row.unwrap_or_else(|| panic!("{mounted}, {work}: {words}"))["requests"]["median"].as_f64().unwrap()
    };
    for work in ["stat", "open, read, close", "open, write, close"] {
        let asks =
            ["a mount elsewhere", "a mount elsewhere, --cache 0", "a shared mount of the server's machine"]
                .map(|mounted| requests(mounted, work));
        // Who keeps nothing looks up five names.
        assert!(asks[1] > 5.0 && asks[2] > 5.0, "{work}: {asks:?}");
        let most = if work == "open, write, close" { 3.0 } else { 0.5 };
        assert!(asks[0] < most, "{work}: {asks:?}");
    }
    assert!(fs::read_to_string(place.out.join("linefs.md")).unwrap().contains("## Mounts on other machines"));
    place.assert_nothing_is_left();
}

#[test]
fn quick_run_of_compression_reports_what_it_saves_and_leaves_nothing() {
    let Some(place) = BenchPlace::new() else { return };
    let paths = ["--dir", place.work.to_str().unwrap(), "--out", place.out.to_str().unwrap()];
    let output =
        landfall_bench(&[&["bench", "linefs", "--quick", "--only", "compression"], &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(place.out.join("linefs.json")).unwrap()).unwrap();
    let rows = json["results"]["compression"].as_array().unwrap();
    let traffic = |share: u64, mode: &str| {
        let row = rows.iter().find(|row| row["share"] == share && row["mode"] == mode);
        row.unwrap_or_else(|| panic!("{share} {mode}: {words}"))["traffic"]["median"].as_f64().unwrap()
    };
    assert_eq!(rows.len(), 12, "{words}");
    // What is counted depends on no clock.
    for share in [0, 40, 60, 80] {
        assert!((1.0..1.01).contains(&traffic(share, "off")), "{share}: {}", traffic(share, "off"));
    }
    assert!((1.0..1.01).contains(&traffic(0, "lz4")));
    assert!(traffic(40, "lz4") < 0.71 && traffic(60, "lz4") < 0.51 && traffic(80, "lz4") < 0.28, "{words}");
    place.assert_nothing_is_left();
}

#[test]
fn quick_run_while_hosts_and_servers_fail_reports_every_part_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let Some(place) = BenchPlace::new() else { return };
    let paths = ["--dir", place.work.to_str().unwrap(), "--out", place.out.to_str().unwrap()];
    let output =
        landfall_bench(&[&["bench", "linefs", "--quick", "--only", "failures"], &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    place.assert_nothing_is_left();
    if words.contains("SKIPPED landfall, chain of three in etcd: etcd is not installed") {
        return;
    }
    assert!(output.status.success() && !words.contains("FAILED"), "{words}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(place.out.join("linefs.json")).unwrap()).unwrap();
    let failures = &json["results"]["failures"];
    let seconds_of = |event: &str, what: &str| {
        let row = failures["rows"].as_array().unwrap().iter().find(|row| row["event"] == event);
        row.unwrap_or_else(|| panic!("{event}: {words}"))[what]["median"].as_f64().unwrap()
    };
    assert_eq!(failures["rows"].as_array().unwrap().len(), 8, "{words}");
    // A server is taken out when T is over, and not before: programs do wait.
    assert!(seconds_of("server-fails", "gap_us") > 2e6, "{words}");
    assert!(failures["takeover_seconds"]["median"].as_f64().unwrap() > 1.0, "{words}");
    assert!(place.out.join("linefs-failures.svg").exists());
}

#[test]
fn a_folder_that_does_not_exist_is_refused_at_once() {
    let output = landfall_bench(&["bench", "linefs", "--quick", "--dir", "/dev/null/nowhere"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.contains("/dev/null/nowhere: "), "{words}");
    assert!(!words.contains("round 1"), "nothing was tried: {words}");
}

#[test]
fn quick_run_of_publishing_has_every_way_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let Some(place) = BenchPlace::new() else { return };
    let paths = ["--dir", place.work.to_str().unwrap(), "--out", place.out.to_str().unwrap()];
    let flags = ["bench", "linefs", "--quick", "--only", "publish"];
    let output = landfall_bench(&[&flags, &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    place.assert_nothing_is_left();
    assert!(output.status.success() && !words.contains("FAILED"), "{words}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(place.out.join("linefs.json")).unwrap()).unwrap();
    let rows = json["results"]["publishing"].as_array().unwrap();
    let ways: Vec<&str> = rows.iter().map(|row| row["way"].as_str().unwrap()).collect();
    let copying = ["copying, a chunk at once", "copying, record by record"];
    assert_eq!(ways, ["co-runner alone", "relinking", copying[0], copying[1]]);
    for row in &rows[1..] {
        assert!(row["rate"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["stages_ms"].as_array().unwrap().len(), 4, "{row}");
    }
    assert!(fs::read_to_string(place.out.join("linefs.md")).unwrap().contains("## Publishing by relinking"));
}

#[test]
fn quick_run_of_stages_has_those_of_all_servers_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let Some(place) = BenchPlace::new() else { return };
    let paths = ["--dir", place.work.to_str().unwrap(), "--out", place.out.to_str().unwrap()];
    let output = landfall_bench(&[&["bench", "linefs", "--quick", "--only", "stages"], &paths[..]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    place.assert_nothing_is_left();
    assert!(output.status.success() && !words.contains("FAILED"), "{words}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(place.out.join("linefs.json")).unwrap()).unwrap();
    let rows = json["results"]["stages"].as_array().unwrap();
    for (server, count) in [("first", 6), ("second", 3), ("third", 1)] {
        let stages: Vec<_> = rows.iter().filter(|row| row["server"] == server).collect();
        assert_eq!(stages.len(), count, "{server}: {words}");
        assert!(stages.iter().all(|row| row["ms"]["median"].as_f64().unwrap() > 0.0), "{stages:?}");
    }
}
