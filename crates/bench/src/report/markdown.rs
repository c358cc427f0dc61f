//! `report.md`: the tables.

use super::targets::Target;
use super::{Results, counts, sets, svg::Plot};
use crate::args::MediaChoice;
use crate::clients::{Operation, Shape};
use crate::measure::stats::Summary;
use crate::peers::names;
use crate::workloads::throughput::Row;

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
    page.0
}

/// Markdown so far.
#[derive(Default)]
pub(crate) struct Page(pub(crate) String);

impl Page {
    pub(crate) fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    /// A heading or paragraph, with a blank line after it.
    pub(crate) fn paragraph(&mut self, text: &str) {
        self.line(text);
        self.line("");
    }

    pub(crate) fn plots(&mut self, plots: &[Plot]) {
        for plot in plots {
            self.paragraph(&format!("![{}]({})", plot.title, plot.file));
        }
    }

    /// A table; rows as long as the head.
    pub(crate) fn table(&mut self, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        self.line(&format!("| {} |", head.join(" | ")));
        self.line(&format!("|{}|", vec!["---"; head.len()].join("|")));
        for row in rows {
            self.line(&format!("| {} |", row.join(" | ")));
        }
        self.line("");
    }
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

pub(crate) fn target_table(page: &mut Page, targets: &[Target]) {
    page.paragraph("## Targets");
    let rows = targets.iter().map(|target| {
        let sign = target.bound.sign();
        let verdict = match target.met() {
            Some(true) => "pass",
            Some(false) => "**short**",
            None => "not measured",
        };
        let wanted = format!("{sign} {} {}", target.wanted, target.unit);
        vec![target.what.clone(), wanted, spread_of(target.measured.as_ref()), verdict.into()]
    });
    page.table(&["target", "wanted", "measured", "verdict"], rows);
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

pub(crate) fn spread_of(summary: Option<&Summary>) -> String {
    summary.map_or("–".into(), spread)
}

/// Median and spread: `1.20 (1.10..1.30)`; the median alone of a single sample.
pub(crate) fn spread(summary: &Summary) -> String {
    match summary.samples.len() {
        1 => number(summary.median),
        _ => format!("{} ({}..{})", number(summary.median), number(summary.min), number(summary.max)),
    }
}

/// Three significant digits or whole numbers.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        small if small < 0.1 => format!("{value:.4}"),
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

pub(crate) fn bytes(value: f64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.iter().find(|(unit, _)| value >= *unit as f64);
    unit.map_or(format!("{value:.0} B"), |(unit, name)| format!("{:.1} {name}", value / *unit as f64))
}

#[cfg(test)]
mod tests {
    use super::{bytes, number, report, spread};
    use crate::report::targets::judge;
    use crate::report::tests::{of, sample_results};

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(number(0.01234), "0.0123");
        assert_eq!(number(1.2345), "1.23");
        assert_eq!(number(12.345), "12.3");
        assert_eq!(number(123_456.7), "123457");
    }

    #[test]
    fn sizes_are_in_binary_units() {
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(1_572_864.0), "1.5 MiB");
    }

    #[test]
    fn a_single_sample_claims_no_spread() {
        assert_eq!(spread(&of(&[2.0])), "2.00");
        assert_eq!(spread(&of(&[2.0, 1.0, 3.0])), "2.00 (1.00..3.00)");
    }

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
