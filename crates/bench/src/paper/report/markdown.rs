//! `paper.md`: the tables.

use super::table1::{
    Breakdown, breakdown, data_management, parsing, persistence, round_trip, stage_data_management,
    stage_persistence, wrk_round_trip,
};
use super::{Results, paper};
use crate::common::measure::stats::Summary;
use crate::common::plots::Plot;
use crate::common::tables::{Page, bytes, number, spread, spread_of, target_table};
use crate::common::targets::Target;
use crate::paper::args::StageStore;
use crate::paper::compare::{Row, Work, find};
use crate::paper::contestant::{Over, Store, Who, landfall};
use crate::paper::sections::{MTU, OVERS, STORES, http, with};
use crate::paper::wire::CONGESTION_CONTROL;
use crate::paper::wrk::Ask;

/// The report as text.
pub(super) fn report(results: &Results, targets: &[Target], plots: &[Plot]) -> String {
    let mut page = Page::default();
    head(&mut page, results);
    target_table(&mut page, targets);
    page.plots(plots);
    table1(&mut page, results);
    stages(&mut page, results);
    counts(&mut page, results);
    figure2(&mut page, results);
    wal(&mut page, results);
    tcp(&mut page, results);
    redis(&mut page, results);
    servers(&mut page, results);
    page.0
}

fn head(page: &mut Page, results: &Results) {
    let (machine, settings) = (&results.machine, &results.settings);
    page.paragraph("# landfall bench paper");
    page.paragraph(
        "The measurements of *Packets as Persistent In-Memory Data Structures* (HotNets 2021: Table 1, Figure 2) and of \
         PASTE's write-ahead log (slides of 2016; NSDI 2018), repeated with this server.",
    );
    page.paragraph(&format!(
        "landfall {} on {} ({} cores, {} of memory, Linux {}). Client and server are hosts (network namespaces) joined by a \
         veth pair; {}; the kernel's TCP uses {}, ours {}. {} rounds of {} s, all servers of a comparison in turns \
         within each round, each started afresh ({:.0} s in all). Figures are medians, with the smallest and largest of the rounds in brackets; ratios and \
         differences are taken round by round.",
        results.landfall_version,
        machine.processor,
        machine.cores,
        bytes(machine.memory as f64),
        machine.kernel,
        results.pinning,
        results.congestion_control,
        CONGESTION_CONTROL,
        settings.rounds,
        settings.seconds,
        results.took_seconds,
    ));
    if settings.quick {
        page.paragraph("**A quick run: it shows that everything works. Its figures mean nothing.**");
    }
    page.paragraph(
        "What is not as in the papers: the wire is a veth pair and not a 25 Gbit/s network, and sending runs the peer's receive \
         path on the sender's core; persistent memory is tmpfs with the instructions of persistent memory (`clwb`, `sfence`), \
         which costs their time but not Optane's; AF_XDP copies between the wire and the region (veth has no zero-copy), which \
         the kernel does and counts as networking. The checksum of what is sent is computed by the sender (the client's \
         offload is off): our own stack needs that, and so every server gets it.",
    );
    page.paragraph(
        "The servers differ only in their store: *discard* stores nothing; *copy + flush* copies the value into the region and \
         flushes it (persistence without data management); *LevelDB* does the same and puts key and value into LevelDB, in \
         NoveLSM's role: its table of recent writes with a write buffer of 1 GiB that no run fills (no compaction), `sync` off, \
         no compression, its log in memory (no system call a write; the log has the checksum). LevelDB's table is in DRAM \
         and flushes nothing of its index, to its advantage; its log is one copy more than NoveLSM makes, to its disadvantage.",
    );
    results.notes.iter().for_each(|note| page.line(&format!("- {note}")));
    page.line("");
}

/// What each server said of itself.
fn servers(page: &mut Page, results: &Results) {
    page.paragraph("## The servers, in their own words");
    let rows = results.servers.iter().map(|(name, about)| {
        vec![name.clone(), if about.is_empty() { "–".into() } else { about.replace('|', "/") }]
    });
    page.table(&["server", "at its start"], rows);
}

/// The paper's method: differences of round trips.
fn table1(page: &mut Page, results: &Results) {
    if results.table1.is_empty() {
        return;
    }
    page.paragraph("## Table 1: a durable 1 KiB write, by differences of round trips");
    page.paragraph(
        "µs. The server's columns are of a client that never waits (one thread, one connection, mean of the fastest 95 %): steady and \
         fine enough for differences. wrk, the paper's client, sleeps between requests; its mean is in the last column. \
         Networking: the round trip of the server that discards. Data management: with the store and without its flushes, less \
         that. Persistence: with flushes, less without.",
    );
    let mut rows = vec![vec![
        "the paper: NoveLSM over PASTE".into(),
        number(paper::NETWORKING),
        number(paper::DATA_MANAGEMENT),
        number(paper::PERSISTENCE),
        "–".into(),
        number(paper::TOTAL),
    ]];
    for over in OVERS {
        for store in [Store::Copy, Store::LevelDb, Store::Heap] {
            rows.push(vec![
                with(store, over).name(),
                spread_of(round_trip(results, with(Store::Discard, over))),
                spread_of(data_management(results, store, over).as_ref()),
                spread_of(persistence(results, store, over).as_ref()),
                spread_of(round_trip(results, with(store, over))),
                spread_of(wrk_round_trip(results, with(store, over))),
            ]);
        }
    }
    page.table(&["server", "networking", "data management", "persistence", "total", "total, wrk"], rows);
    page.paragraph("All servers, µs:");
    rows_table(page, &results.table1);
}

/// The paper's rows, by stages.
fn stages(page: &mut Page, results: &Results) {
    if results.stages.is_empty() {
        return;
    }
    page.paragraph("## Table 1 by stages");
    page.paragraph(
        "The same work without a network, in one process on the server's core: requests of 1.1 KB lie in the region as AF_XDP \
         would have left them, and each stage is run over batches of 256 of them; µs a request. No clock is read within a \
         stage. Data management is everything between parsing and flushing. The checksum of LevelDB is the difference of a \
         write of 1 KiB and one of nothing, and holds LevelDB's own copies; *copy* is that into the region.",
    );
    let (heap, leveldb) = (breakdown(results, StageStore::Heap), breakdown(results, StageStore::LevelDb));
    let copy = breakdown(results, StageStore::Copy);
    let row = |name: &str, paper: Option<f64>, of: &dyn Fn(&Breakdown) -> Option<Summary>| {
        let cell = |from: &Breakdown| spread_of(of(from).as_ref());
        let paper = paper.map_or("–".into(), number);
        vec![name.to_owned(), paper, cell(&leveldb), cell(&copy), cell(&heap)]
    };
    let whole = |name: &str, paper: Option<f64>, of: &dyn Fn(StageStore) -> Option<Summary>| {
        let cell = |store| spread_of(of(store).as_ref());
        let cells = [StageStore::LevelDb, StageStore::Copy, StageStore::Heap].map(cell);
        [vec![name.to_owned(), paper.map_or("–".into(), number)], cells.into()].concat()
    };
    let rows = [
        whole("parsing of HTTP (the paper has it in networking)", None, &|store| parsing(results, store)),
        row("request preparation", Some(paper::PREPARATION), &|from| from.preparation.clone()),
        row("checksum", Some(paper::CHECKSUM), &|from| from.checksum.clone()),
        row("copy", Some(paper::COPY), &|from| from.copy.clone()),
        row("allocation and insertion", Some(paper::INSERTION), &|from| from.insertion.clone()),
        row("commit: what it superseded is freed", None, &|from| from.commit.clone()),
        whole("**data management**", Some(paper::DATA_MANAGEMENT), &|store| {
            stage_data_management(results, store)
        }),
        whole("persistence (flush and fence)", Some(paper::PERSISTENCE), &|store| {
            stage_persistence(results, store)
        }),
    ];
    page.table(&["stage", "the paper: NoveLSM", "LevelDB", "copy + flush", "landfall"], rows);
}

fn counts(page: &mut Page, results: &Results) {
    if results.counts.is_empty() {
        return;
    }
    page.paragraph("## Table 1 by instructions");
    page.paragraph(
        "Instructions a request, counted by callgrind: the same on every run. Of the stages in the process only, because \
         valgrind knows no AF_XDP; lines are flushed by `clflush`, because it knows no `clwb`; and without AVX-512, so that \
         checksums take more instructions than they do outside.",
    );
    let rows = results.counts.iter().map(|count| {
        let store = match count.store {
            StageStore::Heap => "landfall",
            StageStore::Copy => "copy + flush",
            StageStore::LevelDb => "LevelDB",
        };
        vec![store.into(), count.stage.clone(), format!("{:.0}", count.instructions)]
    });
    page.table(&["store", "stage", "instructions"], rows);
}

fn figure2(page: &mut Page, results: &Results) {
    if results.figure2.is_empty() {
        return;
    }
    page.paragraph("## Figure 2: continual 1 KiB writes over parallel connections");
    page.paragraph(&format!(
        "The paper: data management takes {} to {} % of the throughput and adds {} to {} % of latency, against copy + flush. PASTE \
         itself (NSDI 2018) on 10 Gbit/s (durable POST of 1 KB): 27.0 µs at one connection (Linux 34.5), 483 thousand a \
         second at 50 (Linux 273, with a copy 374).",
        paper::LOST.0, paper::LOST.1, paper::ADDED.0, paper::ADDED.1,
    ));
    for over in OVERS {
        page.paragraph(&format!("### {}", over.name()));
        let rows = results.settings.connections.iter().flat_map(|connections| {
            STORES.map(|store| figure2_row(results, with(store, over), with(Store::Copy, over), *connections))
        });
        let head = [
            "connections",
            "server",
            "requests/s",
            "throughput lost against copy + flush, %",
            "mean µs",
            "latency added against copy + flush, %",
            "p99 µs",
            "server CPU µs",
            "client core µs",
        ];
        page.table(&head, rows.flatten());
    }
}

fn figure2_row(results: &Results, who: Who, base: Who, connections: usize) -> Option<Vec<String>> {
    let work = http(Ask::Post, connections);
    let row = find(&results.figure2, who, work, MTU)?;
    let base = find(&results.figure2, base, work, MTU);
    let percent = |ratio: Option<Summary>, sign: f64| {
        let percents = ratio.and_then(|r| Summary::of(r.samples.iter().map(|r| (r - 1.0) * 100.0 * sign)));
        spread_of(percents.as_ref())
    };
    let mean = row.mean_us.as_ref().zip(base.and_then(|base| base.mean_us.as_ref()));
    Some(vec![
        connections.to_string(),
        row.who.name(),
        spread(&row.rps),
        percent(base.and_then(|base| row.rps.over(&base.rps)), -1.0),
        spread_of(row.mean_us.as_ref()),
        percent(mean.and_then(|(mean, base)| mean.over(base)), 1.0),
        spread(&row.p99_us),
        spread(&row.cpu_us),
        spread_of(row.client_us.as_ref()),
    ])
}

fn wal(page: &mut Page, results: &Results) {
    for wal in &results.wal {
        page.paragraph(&format!("## Write-ahead logs on {}", wal.medium));
        page.paragraph(
            "Appends of 1 KiB. *read + copy + msync*: one thread, epoll, a copy from its buffer into a mapped log, `msync`; *read \
             + msync* reads into the log itself, HTTP head and all. landfall appends by reference to where the packet \
             landed (`POST /wal/{log}`). On tmpfs `msync` costs its call and nothing else, which is to the advantage of those who \
             use it. PASTE's slides: 10 to 88 % more throughput and 9 to 46 % less latency than read + copy + msync.",
        );
        if wal.rows.is_empty() {
            page.paragraph("Nothing was measured; the notes at the top say why.");
        }
        let base = Who::Wal { direct: false, spin: false };
        let rows = wal.rows.iter().map(|row| {
            let base = find(&wal.rows, base, row.work, row.mtu);
            let over = |of: fn(&Row) -> &Summary| spread_of(base.and_then(|b| of(row).over(of(b))).as_ref());
            // What the baselines copy is known from how they are made.
            let copied = match row.who {
                Who::Wal { direct, .. } => if direct { "0" } else { "1024" }.to_owned(),
                _ => spread_of(row.copied_bytes.as_ref()),
            };
            let (rps, p50) = (spread(&row.rps), spread(&row.p50_us));
            let (rps_over, p50_over) = (over(|row| &row.rps), over(|row| &row.p50_us));
            let (cpu, client) = (spread(&row.cpu_us), spread_of(row.client_us.as_ref()));
            vec![row.work.describe(), row.who.name(), rps, rps_over, p50, p50_over, cpu, client, copied]
        });
        let head = [
            "load",
            "server",
            "appends/s",
            "÷ copying",
            "p50 µs",
            "÷ copying",
            "server CPU µs",
            "client core µs",
            "B copied",
        ];
        page.table(&head, rows);
    }
}

fn tcp(page: &mut Page, results: &Results) {
    if !results.tcp.is_empty() {
        page.paragraph("## Kernel TCP against ours: small requests");
        page.paragraph("The same server, the same store. A server that spins uses its core whether there is work or not.");
        rows_table(page, &results.tcp);
    }
    if results.bulk.is_empty() {
        return;
    }
    page.paragraph("## Kernel TCP against ours: one connection, one long value");
    page.paragraph(&format!(
        "A value of {} MiB, MTU 1500, segmentation and receive offloads off at both ends for everybody; frames are \
         lost between the hosts, in both directions, by a program in the kernel (before Linux 6.6 by a process).",
        results.settings.bulk_mib
    ));
    let rows = results.bulk.iter().map(|row| {
        let base = crate::paper::bulk::find(&results.bulk, Over::Sockets, row.put, row.lose);
        let over = base.and_then(|base| row.mb_per_second.over(&base.mb_per_second));
        vec![
            format!("{} %", f64::from(row.lose) / 100.0),
            if row.put { "to the server" } else { "from the server" }.into(),
            row.over.name().to_owned(),
            spread(&row.mb_per_second),
            spread_of(over.as_ref()),
            spread(&row.cpu_ns_per_kib),
        ]
    });
    page.table(&["frames lost", "direction", "server", "MB/s", "÷ sockets", "CPU ns a KiB"], rows);
}

fn redis(page: &mut Page, results: &Results) {
    if results.targets.is_empty() {
        return;
    }
    page.paragraph("## Against redis over the same wire");
    page.paragraph(
        "redis-benchmark, 1 KiB values, one key. redis stores nothing durably; every write of landfall is. What the client's core \
         takes for a request, its kernel's work included, bounds the rate of every server; a server that discards shows how \
         far the way to the store lets anybody come.",
    );
    let rows = results.targets.iter().map(|row| {
        let over = |who, of: fn(&Row) -> &Summary| {
            let base = find(&results.targets, who, row.work, row.mtu);
            spread_of(base.and_then(|base| of(row).over(of(base))).as_ref())
        };
        vec![
            row.mtu.to_string(),
            row.work.describe(),
            row.who.name(),
            spread(&row.rps),
            over(Who::Redis, |row| &row.rps),
            over(landfall(Over::Sockets), |row| &row.rps),
            spread(&row.p50_us),
            over(Who::Redis, |row| &row.p50_us),
            spread(&row.cpu_us),
            spread_of(row.client_us.as_ref()),
        ]
    });
    let head = [
        "MTU",
        "load",
        "server",
        "requests/s",
        "÷ redis",
        "÷ our sockets",
        "p50 µs",
        "÷ redis",
        "server CPU µs",
        "client core µs",
    ];
    page.table(&head, rows);
}

/// All there is to rows, by load.
fn rows_table(page: &mut Page, rows: &[Row]) {
    let mut works: Vec<Work> = Vec::new();
    for row in rows {
        if !works.contains(&row.work) {
            works.push(row.work);
        }
    }
    let cells = works.iter().flat_map(|work| rows.iter().filter(move |row| row.work == *work)).map(|row| {
        let copied = spread_of(row.copied_bytes.as_ref());
        vec![
            row.work.describe(),
            row.who.name(),
            spread(&row.rps),
            spread_of(row.mean_us.as_ref()),
            spread(&row.p50_us),
            spread(&row.p99_us),
            spread(&row.cpu_us),
            spread_of(row.client_us.as_ref()),
            copied,
        ]
    });
    let head = [
        "load",
        "server",
        "requests/s",
        "mean µs",
        "p50 µs",
        "p99 µs",
        "server CPU µs",
        "client core µs",
        "B copied",
    ];
    page.table(&head, cells);
}

#[cfg(test)]
mod tests {
    use super::report;
    use crate::paper::report::judge::judge;
    use crate::paper::report::tests::sample;

    #[test]
    fn every_row_of_a_table_is_as_long_as_its_head() {
        let results = sample();
        let text = report(&results, &judge(&results), &[]);
        let lines: Vec<&str> = text.lines().collect();
        let cells = |line: &str| line.matches('|').count();
        for pair in lines.windows(2).filter(|pair| pair.iter().all(|line| line.starts_with('|'))) {
            assert_eq!(cells(pair[0]), cells(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn the_papers_numbers_stand_beside_ours() {
        let results = sample();
        let text = report(&results, &judge(&results), &[]);
        assert!(text.contains("| the paper: NoveLSM over PASTE | 26.7 | 6.39 | 1.94 | – | 34.8 |"), "{text}");
        assert!(text.contains("| allocation and insertion | 2.78 |"));
        assert!(text.contains("| read + copy + msync |") && text.contains("| 1024 |"));
    }

    #[test]
    fn a_section_that_was_not_measured_is_not_there() {
        let mut results = sample();
        results.figure2.clear();
        results.bulk.clear();
        let text = report(&results, &judge(&results), &[]);
        assert!(!text.contains("## Figure 2") && !text.contains("one long value"));
        assert!(text.contains("## Table 1"));
    }
}
