//! SETs in one table: a row a load, landfall's ratio to each peer, and what is aimed at.

use super::Results;
use super::targets::{Quantity, set_aim};
use crate::common::clients::Operation;
use crate::common::peers::names;
use crate::common::tables::{Page, number, spread};
use crate::keys::workloads::throughput::Row;

/// Columns: peer, quantity, heading.
const COLUMNS: [(&str, Quantity, &str); 6] = [
    (names::REDIS_ALWAYS, Quantity::Rate, "rate ÷ redis `always`"),
    (names::REDIS_ALWAYS, Quantity::Cpu, "CPU ÷ redis `always`"),
    (names::REDIS_NO, Quantity::Rate, "rate ÷ redis `no`"),
    (names::REDIS_NONE, Quantity::Rate, "rate ÷ redis without AOF"),
    (names::DISCARD, Quantity::Rate, "rate ÷ discarding"),
    (names::DISCARD, Quantity::Cpu, "CPU ÷ discarding"),
];

/// The table, if SETs were measured.
pub(crate) fn table(page: &mut Page, results: &Results) {
    let is_ours = |row: &&Row| row.operation == Operation::Set && row.peer == names::LANDFALL;
    let rows: Vec<&Row> = results.throughput.iter().filter(is_ours).collect();
    if rows.is_empty() {
        return;
    }
    page.paragraph("## SET in one table");
    page.paragraph(
        "landfall over each server, in requests a second and in CPU of all threads of the server a request; behind it what \
         is aimed at, where something is. *Discarding* is landfall itself, storing nothing: what parsing, replying and the \
         kernel take.",
    );
    let head: Vec<&str> = ["medium", "load"].into_iter().chain(COLUMNS.map(|column| column.2)).collect();
    page.table(&head, rows.iter().map(|row| cells(results, row)));
}

/// The cells of one load.
fn cells(results: &Results, ours: &Row) -> Vec<String> {
    let start = [ours.media.name().to_owned(), ours.shape.describe()];
    let ratios = COLUMNS.map(|(peer, quantity, _)| cell(results, ours, peer, quantity));
    start.into_iter().chain(ratios).collect()
}

fn cell(results: &Results, ours: &Row, peer: &str, quantity: Quantity) -> String {
    let is_theirs = |row: &&Row| {
        (row.media, row.operation, row.shape) == (ours.media, ours.operation, ours.shape) && row.peer == peer
    };
    let theirs = results.throughput.iter().find(is_theirs);
    let Some(ratio) = theirs.and_then(|theirs| quantity.of(ours).over(quantity.of(theirs))) else {
        return "–".into();
    };
    let aim = set_aim(results, ours, peer, quantity).map(|(bound, wanted)| {
        let verdict = if bound.holds(ratio.median, wanted) { "reached" } else { "**short**" };
        format!("; {} {}: {verdict}", bound.sign(), number(wanted))
    });
    spread(&ratio) + &aim.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Page, table};
    use crate::common::peers::names;
    use crate::keys::report::tests::{row, sample_results};

    #[test]
    fn each_load_has_its_ratios_and_aims_in_one_row() {
        let mut results = sample_results();
        results.throughput.push(row(names::DISCARD, 50, 1, &[230.0, 220.0], 2.5));
        let mut page = Page::default();
        table(&mut page, &results);
        let wanted = "| pm | 50 clients, 1024 B, 100000 random keys | 1.15 (1.10..1.20); ≥ 1.20: **short** | \
                      0.50; ≤ 0.75: reached | – | 1.15 (1.10..1.20) | 0.51 (0.50..0.52) | 2.00 |";
        assert!(page.0.contains(wanted), "{}", page.0);
    }

    #[test]
    fn nothing_is_aimed_at_with_other_numbers_of_keys() {
        let mut results = sample_results();
        results.throughput.iter_mut().for_each(|row| row.shape.random_keys = 0);
        let mut page = Page::default();
        table(&mut page, &results);
        assert!(
            page.0.contains("a single key | 1.15 (1.10..1.20) |") && !page.0.contains("short"),
            "{}",
            page.0
        );
    }

    #[test]
    fn without_sets_there_is_no_table() {
        let mut results = sample_results();
        results.throughput.clear();
        let mut page = Page::default();
        table(&mut page, &results);
        assert_eq!(page.0, "");
    }
}
