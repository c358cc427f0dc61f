//! Tables and targets of a region that is larger than its memory.

use super::Results;
use crate::common::measure::stats::Summary;
use crate::common::tables::{Page, bytes, number, spread, spread_of};
use crate::common::targets::{Bound, Target};
use crate::keys::args::MediaChoice;
use crate::keys::workloads::paging::{Device, Gets, Measured, Misses, Resident};

/// Requests a second of hits, over those with all in memory.
const HITS: f64 = 0.95;
/// Misses a second, over the direct reads of fio at as many at a time.
const MISSES: f64 = 0.8;
/// The 99th percentile of hits beside misses, over that of hits without these.
const P99: f64 = 1.5;
/// Resident memory over what is allowed: the limit and the index.
const RESIDENT: f64 = 1.0;

/// Every table, if paging was measured.
pub(super) fn tables(page: &mut Page, results: &Results) {
    for measured in &results.paging {
        head(page, measured);
        hits(page, measured);
        misses(page, measured);
        lone(page, measured);
        resident(page, measured);
    }
}

fn head(page: &mut Page, measured: &Measured) {
    page.paragraph("## A region ten times larger than its memory");
    page.paragraph(&format!(
        "A region of {} with {} keys, whose values have {}, held by two servers on the same file system: one has all of it in \
         memory, the other `--memory` {}. The built-in load generator on the same machine; loads take turns within each round. \
         *Loads* are requests for bytes that had left memory, for each GET. Loading all keys by one client took {} s with all \
         in memory, {} s with a tenth (one run each).",
        bytes(measured.region_bytes as f64),
        measured.keys,
        bytes(measured.value_bytes as f64),
        bytes(measured.memory_bytes as f64),
        number(measured.load_seconds[0]),
        number(measured.load_seconds[1]),
    ));
}

fn hits(page: &mut Page, measured: &Measured) {
    page.paragraph("### Hits");
    page.paragraph("GETs of random keys of a hot set that fits into the memory of either server.");
    let rows = measured.hits.iter().flat_map(|hits| {
        let load = hits.shape.describe();
        let ratio = spread_of(hits.paged.rps.over(&hits.whole.rps).as_ref());
        let cpu = spread_of(hits.paged.cpu_us.over(&hits.whole.cpu_us).as_ref());
        let row = |server: &str, gets: &Gets, ratios: [String; 2]| {
            let [rate, cpu] = ratios;
            let (p50, p99, loads) = (spread(&gets.p50_us), spread(&gets.p99_us), spread(&gets.loads));
            let (rps, cpu_us) = (spread(&gets.rps), spread(&gets.cpu_us));
            vec![load.clone(), server.into(), rps, rate, p50, p99, cpu_us, cpu, loads]
        };
        [
            row("all in memory", &hits.whole, [String::new(), String::new()]),
            row("a tenth in memory", &hits.paged, [ratio, cpu]),
        ]
    });
    let head = ["load", "server", "GET/s", "÷ all", "p50 µs", "p99 µs", "CPU µs", "÷ all", "loads"];
    page.table(&head, rows);
}

fn misses(page: &mut Page, measured: &Measured) {
    page.paragraph("### Misses");
    page.paragraph(
        "GETs of cold keys, each once before any is read again, one request at a time on each connection. *Device* is fio: direct \
         reads of as many bytes, rounded up to blocks of 4 KiB, at random from a file beside the region, by io_uring, as many at \
         a time as there are connections. *In memory* are GETs of these keys from the server with all of its region in memory. \
         *CPU ÷ parts* is the processor time of a miss over that of a GET in memory and a read of fio together: what a miss \
         must do, at least. Values from 100 B to 1 MiB have 100 B, 1 KiB, 10 KiB, 100 KiB and 1 MiB, as many keys each.",
    );
    if measured.misses.iter().all(|misses| misses.device.is_none()) {
        page.paragraph("**fio is not installed: the reads of the device are left out.**");
    }
    let rows = measured.misses.iter().map(|misses| {
        let gets = &misses.gets;
        let device = |of: fn(&Device) -> &Summary| misses.device.as_ref().map(of).cloned();
        vec![
            misses.kind.clone(),
            misses.connections.to_string(),
            spread(&gets.rps),
            megabytes(Some(&gets.bytes)),
            spread_of(device(|device| &device.reads).as_ref()),
            megabytes(device(|device| &device.bytes).as_ref()),
            spread_of(over_device(misses).as_ref()),
            spread(&misses.whole.rps),
            spread(&gets.p50_us),
            spread(&gets.p99_us),
            spread(&gets.cpu_us),
            spread_of(over_parts(misses).as_ref()),
            spread(&gets.loads),
        ]
    });
    let head = [
        "values",
        "connections",
        "GET/s",
        "MB/s",
        "device: reads/s",
        "device: MB/s",
        "GET/s ÷ device",
        "in memory: GET/s",
        "p50 µs",
        "p99 µs",
        "CPU µs",
        "CPU ÷ parts",
        "loads",
    ];
    page.table(&head, rows);
}

fn over_device(misses: &Misses) -> Option<Summary> {
    misses.gets.rps.over(&misses.device.as_ref()?.reads)
}

/// The processor time of a miss over that of a GET in memory and a read of the device.
fn over_parts(misses: &Misses) -> Option<Summary> {
    let device = misses.device.as_ref()?;
    let parts = misses.whole.cpu_us.samples.iter().zip(&device.cpu_us.samples);
    misses.gets.cpu_us.over(&Summary::of(parts.map(|(get, read)| get + read))?)
}

fn megabytes(bytes: Option<&Summary>) -> String {
    let of = |bytes: &Summary| Summary::of(bytes.samples.iter().map(|sample| sample / 1e6));
    spread_of(bytes.and_then(of).as_ref())
}

fn lone(page: &mut Page, measured: &Measured) {
    let Some(lone) = &measured.lone else { return };
    page.paragraph("### Hits of one connection beside others");
    page.paragraph(
        "The others are 16 connections that read values from 100 B to 1 MiB. The last row tells what of the latency is the load on \
         processors and worker: there, the others' values are in memory, too, and they read as fast as they can.",
    );
    let row = |what: &str, gets: &Gets, others: String| {
        let ratio = |of: fn(&Gets) -> &Summary| spread_of(of(gets).over(of(&lone.alone)).as_ref());
        let (p50, p99) = (spread(&gets.p50_us), spread(&gets.p99_us));
        vec![what.into(), spread(&gets.rps), p50, p99, ratio(|gets| &gets.p99_us), others]
    };
    let rows = [
        row("nobody", &lone.alone, String::new()),
        row("others' values on the file", &lone.beside_misses, spread(&lone.misses_rps)),
        row("others' values in memory", &lone.beside_whole, spread(&lone.whole_rps)),
    ];
    page.table(&["beside", "GET/s", "p50 µs", "p99 µs", "p99 ÷ alone", "others' GET/s"], rows);
}

fn resident(page: &mut Page, measured: &Measured) {
    page.paragraph("### Resident memory of the server with a tenth in memory");
    page.paragraph(&format!(
        "At the end of each phase, of several rounds the most. *Allowed* is `--memory`, of which a part is for the program, and \
         what `INFO` calls `index_bytes`. Ever, it was at most {}.",
        bytes(measured.peak_rss as f64)
    ));
    let rows = measured.resident.iter().map(|resident| {
        let allowed = allowed(measured, resident);
        vec![
            resident.after.clone(),
            bytes(resident.rss),
            bytes(resident.region),
            bytes(resident.index),
            bytes(allowed),
            number(resident.rss / allowed),
        ]
    });
    page.table(&["after", "`VmRSS`", "of it region", "index", "allowed", "`VmRSS` ÷ allowed"], rows);
}

fn allowed(measured: &Measured, resident: &Resident) -> f64 {
    measured.memory_bytes as f64 + resident.index
}

/// The targets; none without a file.
pub(super) fn judge(results: &Results, targets: &mut Vec<Target>) {
    if !results.settings.media.contains(&MediaChoice::File) {
        return;
    }
    let measured = results.paging.first();
    let mut target = |what: String, bound, wanted, measured| {
        targets.push(Target { what: format!("paging: {what}"), bound, wanted, unit: "×", measured });
    };
    let Some(measured) = measured else {
        target("everything".into(), Bound::AtLeast, 1.0, None);
        return;
    };
    for hits in &measured.hits {
        let what = format!("hits, {}, over a region in memory", hits.shape.describe());
        target(what, Bound::AtLeast, HITS, hits.paged.rps.over(&hits.whole.rps));
    }
    for misses in &measured.misses {
        let what = format!("misses, {}, {} at a time, over fio", misses.kind, misses.connections);
        target(what, Bound::AtLeast, MISSES, over_device(misses));
    }
    let ratio = |of: fn(&crate::keys::workloads::paging::Lone) -> (&Gets, &Gets)| {
        let (with, without) = of(measured.lone.as_ref()?);
        with.p99_us.over(&without.p99_us)
    };
    let alone = ratio(|lone| (&lone.beside_misses, &lone.alone));
    target("p99 of a hit beside misses over alone".into(), Bound::AtMost, P99, alone);
    let whole = ratio(|lone| (&lone.beside_misses, &lone.beside_whole));
    target("p99 of a hit beside misses over beside hits".into(), Bound::AtMost, P99, whole);
    for resident in measured.resident.iter().filter(|resident| resident.after != "start") {
        let what = format!("resident memory after {} over what is allowed", resident.after);
        target(what, Bound::AtMost, RESIDENT, Summary::of([resident.rss / allowed(measured, resident)]));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::common::clients::Shape;
    use crate::keys::args::WorkloadChoice;
    use crate::keys::report::tests::{of, sample_results};
    use crate::keys::workloads::paging::{Hits, Lone};

    fn gets(rps: f64, p99: f64) -> Gets {
        let (one, zero) = (of(&[1.0]), of(&[0.0]));
        let (rps, p99_us) = (of(&[rps]), of(&[p99]));
        Gets { rps, bytes: of(&[2e6]), p50_us: one.clone(), p99_us, cpu_us: one, loads: zero }
    }

    pub(in crate::keys::report) fn device() -> Device {
        Device { reads: of(&[100.0]), bytes: of(&[4e6]), cpu_us: of(&[3.0]) }
    }

    pub(in crate::keys::report) fn with_paging(device: Option<Device>) -> Results {
        let mut results = sample_results();
        results.settings.only = vec![WorkloadChoice::Paging];
        let shape = Shape { clients: 50, pipeline: 1, value_bytes: 1024, random_keys: 9 };
        results.paging = vec![Measured {
            region_bytes: 640 << 20,
            memory_bytes: 64 << 20,
            keys: 7,
            value_bytes: 480 << 20,
            load_seconds: [3.0, 4.0],
            hits: vec![Hits { shape, whole: gets(100.0, 5.0), paged: gets(90.0, 5.0) }],
            misses: vec![Misses {
                kind: "4 KiB".into(),
                connections: 16,
                gets: gets(85.0, 9.0),
                whole: gets(200.0, 4.0),
                device,
            }],
            lone: Some(Lone {
                alone: gets(10.0, 20.0),
                beside_misses: gets(8.0, 40.0),
                beside_whole: gets(5.0, 80.0),
                misses_rps: of(&[70.0]),
                whole_rps: of(&[700.0]),
            }),
            resident: vec![Resident {
                after: "load".into(),
                rss: f64::from(99 << 20),
                region: f64::from(64 << 20),
                index: f64::from(2 << 20),
            }],
            peak_rss: 101 << 20,
        }];
        results
    }

    #[test]
    fn loads_are_set_against_memory_and_the_device() {
        let mut page = Page::default();
        tables(&mut page, &with_paging(Some(device())));
        assert!(page.0.contains("| a tenth in memory | 90.0 | 0.90 |"), "{}", page.0);
        assert!(
            page.0.contains(
                "| 4 KiB | 16 | 85.0 | 2.00 | 100 | 4.00 | 0.85 | 200 | 1.00 | 9.00 | 1.00 | 0.25 |"
            ),
            "{}",
            page.0
        );
        assert!(
            page.0.contains("| others' values on the file | 8.00 | 1.00 | 40.0 | 2.00 | 70.0 |"),
            "{}",
            page.0
        );
        assert!(page.0.contains("| load | 99.0 MiB | 64.0 MiB | 2.0 MiB | 66.0 MiB | 1.50 |"), "{}", page.0);
        assert!(!page.0.contains("fio is not installed"));
    }

    #[test]
    fn without_fio_the_report_says_so_and_judges_no_miss() {
        let results = with_paging(None);
        let mut page = Page::default();
        tables(&mut page, &results);
        assert!(page.0.contains("**fio is not installed"), "{}", page.0);
        let mut targets = Vec::new();
        judge(&results, &mut targets);
        let miss = targets.iter().find(|target| target.what.contains("misses, 4 KiB")).unwrap();
        assert_eq!(miss.met(), None);
    }

    #[test]
    fn each_demand_is_judged() {
        let mut targets = Vec::new();
        judge(&with_paging(Some(device())), &mut targets);
        let met: Vec<_> = targets.iter().map(|target| target.met()).collect();
        // Hits at 0.9, misses at 0.85, p99 twice that of a lone run and half of that beside hits, memory at 1.5.
        assert_eq!(met, [Some(false), Some(true), Some(false), Some(true), Some(false)]);
    }
}
