//! What the report says of clients that write at once: after LineFS, Figures 4 and 6.

use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::plots::Plot;
use crate::common::plots::chart::{Axis, Chart, Line, draw_chart};
use crate::common::tables::{Page, spread_of};
use crate::linefs::busy::Contestant;
use crate::linefs::clients::{Beside, CLIENTS_OF_EQUALS, ClientsRow};
use crate::linefs::place::CHAIN;
use std::path::Path;

/// The charts: what runs beside the clients, their file, and their title.
const CHARTS: [(Beside, &str, &str); 2] = [
    (
        Beside::Nothing,
        "linefs-clients-idle.svg",
        "clients that write at once, machine idle: MiB/s of all together",
    ),
    (
        Beside::Yielding,
        "linefs-clients-busy.svg",
        "clients that write at once, machine busy: MiB/s of all together",
    ),
];

fn row<'a>(rows: &'a [ClientsRow], place: &str, clients: u32, beside: Beside) -> Option<&'a ClientsRow> {
    rows.iter().find(|row| (&*row.place, row.clients, row.beside) == (place, clients, beside))
}

/// The quotient of two quantities, round by round.
fn over(ours: Option<&Summary>, theirs: Option<&Summary>) -> Option<Summary> {
    ours?.over(theirs?)
}

/// Writes the tables; nothing if there are no rows.
pub(super) fn show(rows: &[ClientsRow], mib: u64, co_threads: usize, page: &mut Page) {
    if rows.is_empty() {
        return;
    }
    page.paragraph("## Clients that write at once");
    page.paragraph(&format!(
        "Each client is a thread that writes a file of its own in sequence by 16 KiB, and then calls fsync; {mib} MiB are \
         shared by all clients (in the paper each writes as much as one alone). MiB/s are those of all together, until \
         the last fsync has returned. CPU is that of clients and servers. *Idle*: nothing runs beside; files of the same \
         size have been written and removed before. *Busy*, at the same servers after that: a program like streamcluster \
         with {co_threads} threads of the lowest priority, as the paper gives its file systems the higher one. **In the \
         paper the replicas are busy, and the clients' machine is not. Here all servers and clients share one machine: \
         what runs beside takes the clients' cores and memory as well, and replicas take them from clients when nothing \
         runs beside.** Landfall in Assise's way sends files when fsync asks for them, in the call; NotParallel sends in \
         the background, one chunk at a time.",
    ));
    let line = |idle: &ClientsRow| {
        let busy = row(rows, &idle.place, idle.clients, Beside::Yielding);
        let busy_rate = busy.and_then(|busy| busy.rate.as_ref());
        let chain = row(rows, CHAIN, idle.clients, Beside::Nothing).filter(|chain| chain.place != idle.place);
        let chain_busy =
            row(rows, CHAIN, idle.clients, Beside::Yielding).filter(|chain| chain.place != idle.place);
        vec![
            idle.clients.to_string(),
            idle.place.clone(),
            spread_of(idle.rate.as_ref()),
            spread_of(over(chain.and_then(|chain| chain.rate.as_ref()), idle.rate.as_ref()).as_ref()),
            spread_of(idle.cpu_us.as_ref()),
            spread_of(busy_rate),
            spread_of(over(chain_busy.and_then(|chain| chain.rate.as_ref()), busy_rate).as_ref()),
            spread_of(busy.and_then(|busy| busy.cpu_us.as_ref())),
            spread_of(over(busy_rate, idle.rate.as_ref()).as_ref()),
        ]
    };
    let head = [
        "clients",
        "place",
        "idle: MiB/s",
        "idle: chain over it",
        "idle: CPU µs a MiB",
        "busy: MiB/s",
        "busy: chain over it",
        "busy: CPU µs a MiB",
        "busy over idle",
    ];
    page.table(&head, rows.iter().filter(|row| row.beside == Beside::Nothing).map(line));
    show_equals(rows, page);
}

/// The co-runner with the priority of all others, and what it costs both.
fn show_equals(rows: &[ClientsRow], page: &mut Page) {
    let mut equals = rows.iter().filter(|row| row.beside == Beside::Equal).peekable();
    if equals.peek().is_none() {
        return;
    }
    page.paragraph("## Two clients beside a co-runner of the same priority");
    page.paragraph(
        "The same clients and program, whose threads have the priority of all others. Rounds are those of the program \
         through all of its points, alone and beside clients and servers, which are all on its machine.",
    );
    let alone = row(rows, Contestant::CoRunner.name(), CLIENTS_OF_EQUALS, Beside::Equal);
    let line = |equal: &ClientsRow| {
        let idle =
            row(rows, &equal.place, equal.clients, Beside::Nothing).and_then(|idle| idle.rate.as_ref());
        let alone =
            alone.filter(|alone| alone.place != equal.place).and_then(|alone| alone.round_ms.as_ref());
        vec![
            equal.place.clone(),
            spread_of(idle),
            spread_of(equal.rate.as_ref()),
            spread_of(over(equal.rate.as_ref(), idle).as_ref()),
            spread_of(equal.round_ms.as_ref()),
            spread_of(over(equal.round_ms.as_ref(), alone).as_ref()),
        ]
    };
    let head = [
        "place",
        "idle: MiB/s",
        "beside it: MiB/s",
        "beside it over idle",
        "co-runner: ms a round",
        "its slowdown",
    ];
    page.table(&head, equals.map(line));
}

/// Draws the rates by the number of clients, idle and busy.
pub(super) fn draw(rows: &[ClientsRow], out: &Path) -> Result<Vec<Plot>, BenchError> {
    let mut plots = Vec::new();
    for (beside, file, title) in CHARTS {
        let lines = lines(rows, beside);
        if lines.is_empty() {
            continue;
        }
        let (x, y) = (Axis::linear("clients"), Axis::linear("MiB/s"));
        let chart = Chart { file: file.into(), title: title.into(), x, y, lines, band: None };
        draw_chart(&out.join(file), &chart)?;
        plots.push(Plot { title: title.into(), file: file.into() });
    }
    Ok(plots)
}

/// A line for each place.
fn lines(rows: &[ClientsRow], beside: Beside) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows.iter().filter(|row| row.beside == beside) {
        let Some(rate) = row.rate.clone() else { continue };
        let name = row.place.strip_prefix("landfall, ").unwrap_or(&row.place);
        let point = (f64::from(row.clients), rate);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name: name.to_owned(), points: vec![point] }),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::plots::chart::NAME_MAX;
    use crate::linefs::clients::tests::row as row_of;
    use crate::linefs::place::Kind;

    fn sample() -> Vec<ClientsRow> {
        let mut rows = vec![row_of(Contestant::CoRunner, 2, Beside::Equal, 0.0, 100.0)];
        for clients in [1, 2] {
            for (kind, rate) in [(Kind::Chain, 400.0), (Kind::Assise, 200.0), (Kind::Gluster, 50.0)] {
                let row = |beside, rate| row_of(Contestant::Chain(kind), clients, beside, rate, 150.0);
                rows.extend([row(Beside::Nothing, rate), row(Beside::Yielding, rate / 2.0)]);
                rows.extend((clients == 2).then(|| row(Beside::Equal, rate / 4.0)));
            }
        }
        rows
    }

    #[test]
    fn a_table_has_a_row_for_each_place_and_number_of_clients() {
        let mut page = Page::default();
        show(&sample(), 512, 2, &mut page);
        let text = page.0;
        assert_eq!(
            text.matches("| landfall, Assise's way | 210 (200..220) | 2.00 (2.00..2.00) |").count(),
            2,
            "{text}"
        );
        assert!(text.contains("| 1 | landfall, chain of three | 420 (400..440) | – |"), "{text}");
        assert!(text.contains("| 0.50 (0.50..0.50) |"), "busy over idle: {text}");
        // Beside an equal: of the rate, of the co-runner's time.
        let equal = "| 105 (100..110) | 0.25 (0.25..0.25) | 158 (150..165) | 1.50 (1.50..1.50) |";
        assert_eq!(text.matches(equal).count(), 1, "{text}");
        let mut page = Page::default();
        show(&[], 512, 2, &mut page);
        assert_eq!(page.0, "");
    }

    #[test]
    fn a_chart_for_each_has_a_line_for_each_place_with_a_point_for_each_number_of_clients() {
        let out = tempfile::tempdir().unwrap();
        let plots = draw(&sample(), out.path()).unwrap();
        assert!(plots.len() == 2 && plots.iter().all(|plot| out.path().join(&plot.file).exists()));
        let lines = lines(&sample(), Beside::Yielding);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.points.len() == 2 && line.name.len() <= NAME_MAX));
        assert!(draw(&[], out.path()).unwrap().is_empty());
    }
}
