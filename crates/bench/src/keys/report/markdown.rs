//! `report.md`: the tables.

use super::{Results, counts, paging, sets};
use crate::common::clients::{Operation, Shape};
use crate::common::measure::stats::Summary;
use crate::common::peers::names;
use crate::common::plots::Plot;
use crate::common::tables::{Page, bytes, number, spread, spread_of, target_table};
use crate::common::targets::Target;
use crate::keys::args::MediaChoice;
use crate::keys::workloads::throughput::Row;

/// The report as text.
pub(crate) fn report(results: &Results, targets: &[Target], plots: &[Plot]) -> String {
    let mut page = Page::default();
    head(&mut page, results);
    target_table(&mut page, targets);
    page.plots(plots);
    sets::table(&mut page, results);
    throughput(&mut page, results);
    mixed(&mut page, results);
    counts::amplification(&mut page, results);
    counts::memory(&mut page, results);
    counts::instructions(&mut page, results);
    restart(&mut page, results);
    space(&mut page, results);
    range(&mut page, results);
    paging::tables(&mut page, results);
    page.0
}

fn head(page: &mut Page, results: &Results) {
    let (machine, settings) = (&results.machine, &results.settings);
    page.paragraph("# landfall bench kv");
    page.paragraph(&format!(
        "landfall {} on {} ({} cores, {} of memory, Linux {}); client: {}; {} rounds of {} s, servers in turns \
         (A B C A B C ...), each started afresh after 4 GiB of memory have been written and freed (a virtual machine's \
         host may have to provide them first); {:.0} s in all. Figures are medians, with the smallest and largest of \
         the rounds in brackets. Ratios are landfall over the peer, round by round: trust them more than absolutes.",
        results.landfall_version, machine.processor, machine.cores, bytes(machine.memory as f64), machine.kernel,
        results.client, settings.rounds, settings.seconds, results.took_seconds,
    ));
    if settings.quick {
        page.paragraph("**A quick run: it shows that everything works. Its figures mean nothing.**");
    }
    page.paragraph(
        "`pm` is tmpfs: the code path of persistent memory (cache-line flush and fence) without its latency; redis \
         has its files there, too. Keys are drawn at random unless a table says *a single key*. Redis rewrites no log \
         while it is under a load, which is to its advantage; for restart and space it has its default settings.",
    );
    results.notes.iter().for_each(|note| page.line(&format!("- {note}")));
    page.line("");
}

fn throughput(page: &mut Page, results: &Results) {
    if results.throughput.is_empty() {
        return;
    }
    page.paragraph("## Throughput, latency, CPU");
    page.paragraph(
        "Latency is that of a whole pipeline. CPU is the server's, all threads, per request. Servers hold nothing before \
         SETs, and every key before GETs.",
    );
    let mut seen: Vec<(MediaChoice, Operation, Shape)> = Vec::new();
    for row in &results.throughput {
        let load = (row.media, row.operation, row.shape);
        if !seen.contains(&load) {
            seen.push(load);
            let rows = results.throughput.iter().filter(|row| (row.media, row.operation, row.shape) == load);
            comparison(page, load, &rows.collect::<Vec<_>>());
        }
    }
}

/// One load, all servers.
fn comparison(page: &mut Page, (media, operation, shape): (MediaChoice, Operation, Shape), rows: &[&Row]) {
    page.paragraph(&format!("### {}: {}, {}", media.name(), operation.name(), shape.describe()));
    let ours = rows.iter().find(|row| row.peer == names::LANDFALL);
    let ratio = |row: &Row, of: fn(&Row) -> &Summary| match ours {
        Some(ours) if row.peer != ours.peer => spread_of(of(ours).over(of(row)).as_ref()),
        _ => String::new(),
    };
    let cells = rows.iter().map(|row| {
        vec![
            row.peer.clone(),
            spread(&row.rps),
            ratio(row, |row| &row.rps),
            spread(&row.cpu_us),
            ratio(row, |row| &row.cpu_us),
            spread(&row.p50_us),
            spread(&row.p99_us),
            spread_of(row.p999_us.as_ref()),
        ]
    });
    let head = ["server", "requests/s", "landfall ÷", "CPU µs", "landfall ÷", "p50 µs", "p99 µs", "p99.9 µs"];
    page.table(&head, cells);
}

fn mixed(page: &mut Page, results: &Results) {
    if results.mixed.is_empty() {
        return;
    }
    page.paragraph("## One GET client beside a SET load");
    page.paragraph(
        "Latency of the GETs, which are of a key that nobody writes; commands a second count the SETs that went on \
         meanwhile.",
    );
    let rows = results.mixed.iter().map(|row| {
        let (p50, p99, p999) = (spread(&row.p50_us), spread(&row.p99_us), spread(&row.p999_us));
        let commands = spread_of(row.commands_per_second.as_ref());
        vec![row.media.name().into(), row.load.describe(), row.peer.clone(), p50, p99, p999, commands]
    });
    page.table(&["medium", "SET load", "server", "p50 µs", "p99 µs", "p99.9 µs", "commands/s"], rows);
}

fn restart(page: &mut Page, results: &Results) {
    if results.restart.is_empty() {
        return;
    }
    page.paragraph("## Restart after SIGKILL");
    page.paragraph(
        "Records of 1 KiB; from the start of the process until `DBSIZE` answers with every key. Before the kill a \
         second of rest, and until a rewrite of redis's log has ended. Cold: the page cache was dropped.",
    );
    let rows = results.restart.iter().map(|row| {
        let cache = if row.cold { "cold" } else { "warm" };
        let records = row.records.to_string();
        vec![row.media.name().into(), records, cache.into(), row.peer.clone(), spread(&row.seconds)]
    });
    page.table(&["medium", "records", "cache", "server", "seconds"], rows);
}

fn space(page: &mut Page, results: &Results) {
    if results.space.is_empty() {
        return;
    }
    page.paragraph("## Space");
    page.paragraph(
        "Bytes on the medium over bytes of keys (16 B) and values: after the load, the most while each key was \
         overwritten ten times in random order, and after background work had settled. Nothing is moved while there is room, so \
         that a store may take what its capacity allows. Counted in one run.",
    );
    let rows = results.space.iter().map(|row| {
        vec![
            row.media.name().into(),
            format!("{} × {} B", row.records, row.value_bytes),
            row.peer.clone(),
            number(row.loaded),
            number(row.overwriting_max),
            format!("{} ({:.1} s)", number(row.settled), row.settle_seconds),
            bytes(row.memory.rss as f64),
            bytes(row.memory.anon as f64),
            number(row.anon_per_key_beyond_key),
            row.used_memory.map_or("–".into(), bytes),
        ]
    });
    let head = [
        "medium",
        "records",
        "server",
        "loaded",
        "overwriting",
        "settled",
        "RSS",
        "of it anonymous",
        "anonymous B a key beyond the key",
        "used_memory",
    ];
    page.table(&head, rows);
}

fn range(page: &mut Page, results: &Results) {
    if results.range.is_empty() {
        return;
    }
    page.paragraph("## Range scans");
    page.paragraph("`GET /kv?limit=1000` from a random key, one client.");
    let rows = results.range.iter().map(|row| {
        let kind =
            if row.keys_only { "keys only".into() } else { format!("values of {} B", row.value_bytes) };
        vec![row.media.name().into(), kind, spread(&row.wall_us_per_key), spread(&row.cpu_us_per_key)]
    });
    page.table(&["medium", "scan", "wall µs a key", "server CPU µs a key"], rows);
}

#[cfg(test)]
mod tests {
    use super::report;
    use crate::keys::report::targets::judge;
    use crate::keys::report::tests::sample_results;

    #[test]
    fn tables_hold_ratios_against_each_peer_and_verdicts() {
        let results = sample_results();
        let text = report(&results, &judge(&results), &[]);
        assert!(text.contains("### pm: SET, 50 clients, 1024 B, 100000 random keys"));
        assert!(text.contains("| redis always | 100 (100..100) | 1.15 (1.10..1.20) | 10.0 | 0.50 |"));
        assert!(text.contains("| **short** |") && text.contains("| not measured |"));
    }

    #[test]
    fn every_row_of_a_table_is_as_long_as_its_head() {
        let results = sample_results();
        let text = report(&results, &judge(&results), &[]);
        let cells = |line: &str| line.matches('|').count();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair.iter().all(|line| line.starts_with('|'))) {
            assert_eq!(cells(pair[0]), cells(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn a_quick_run_says_that_it_measured_nothing() {
        let mut results = sample_results();
        results.settings.quick = true;
        assert!(report(&results, &[], &[]).contains("Its figures mean nothing"));
    }
}
