//! What the report says of what was simulated.

use super::course::Cost;
use super::kinds::Simulated;
use super::rows::{Application, Beside, CLIENTS, CLIENTS_OF_EQUALS, Check, MIB_EACH, Model, Scaled};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::plots::Plot;
use crate::common::plots::chart::{Axis, Chart, Line, draw_chart};
use crate::common::tables::{Page, spread, spread_of};
use crate::linefs::place::{ASSISE, CHAIN};
use std::path::Path;

const BYTES_OF_MIB: f64 = (1 << 20) as f64;

/// Writes the tables.
pub(crate) fn show(model: &Model, page: &mut Page) {
    page.paragraph("## Servers with machines of their own: simulated");
    page.paragraph(
        "There is one machine, and in the paper each server has one. **What follows was not measured: it is simulated**, from what \
         was measured in the same run, round by round: the work of a client's operation, of each server for a batch and for a \
         byte, and of what goes on in the background, each by a chain of the kind that is simulated; the time of the device \
         alone; and the time until a thread is awake. A program with its mount, what sends and takes at each server, and what goes \
         on there in the background are a thread each; they share the processors of their machine evenly, and by priority. How \
         chunks follow each other is what docs/format/chain.md says. A network \
         has 25 Gbit/s and 10 µs from one machine to another. *Busy*: on the machine of each replica, and not on that of the \
         clients, a program runs on every processor, with the lowest priority, as in the paper; work beside a program takes \
         longer by the factor that was measured here. Not in it: what servers spare when they are not on one machine (caches), \
         memory bandwidth, what a device does for publishing, writes that keep pace with others, what is sent each second.",
    );
    costs(model, page);
    checks(&model.checks, page);
    scaled(model, page);
    beside(&model.beside, page);
    applications(&model.applications, page);
}

fn of(values: impl Iterator<Item = f64>) -> String {
    spread_of(Summary::of(values).as_ref())
}

fn costs(model: &Model, page: &mut Page) {
    page.paragraph("### Costs");
    page.paragraph(&format!(
        "Microseconds. A write of 16 KiB takes {} of work at the client and its mount, and {} pass in which nobody works. *Takes \
         and passes on* are those of the second and of the third server. *In the background* is publishing and keeping the heap, \
         at the first server.",
        of(model.writes.iter().map(|write| write.work * 1e6)),
        of(model.writes.iter().map(|write| write.pause * 1e6)),
    ));
    let micros = |cost: Cost| (cost.each * 1e6, cost.byte * BYTES_OF_MIB * 1e6);
    let row = |simulated: &Simulated| {
        let rounds = model.costs.get(simulated.place())?;
        let each = |server: usize| of(rounds.iter().map(|round| micros(round.chain.moves[server]).0));
        let byte = |server: usize| of(rounds.iter().map(|round| micros(round.chain.moves[server]).1));
        let mut cells = vec![simulated.place().to_owned()];
        cells.extend((0..3).map(byte));
        cells.extend((0..3).map(each));
        cells.push(of(rounds.iter().map(|round| round.chain.publish[0] * BYTES_OF_MIB * 1e6)));
        cells.push(of(rounds.iter().map(|round| micros(round.chain.fence).1)));
        cells.push(of(rounds.iter().map(|round| micros(round.chain.fence).0)));
        cells.push(of(rounds.iter().map(|round| round.chain.hop * 1e6)));
        cells.push(of(rounds.iter().map(|round| round.contention)));
        Some(cells)
    };
    let head = [
        "place",
        "a MiB: sends",
        "takes, passes on",
        "takes",
        "a batch: sends",
        "takes, passes on",
        "takes",
        "a MiB in the background",
        "device, a MiB",
        "device, a batch",
        "until awake",
        "work beside a program, ×",
    ];
    page.table(&head, Simulated::ALL.iter().filter_map(row));
}

fn checks(rows: &[Check], page: &mut Page) {
    page.paragraph("### This machine, measured and simulated");
    page.paragraph(
        "The same courses on one simulated machine, with the processors of this one and one device, beside what was measured. The \
         sequential write of one client, what runs beside it, and the append are what the costs come from: that they come out \
         again says little. Two clients and the applications are a test. What is far from 1 here is not to be trusted below.",
    );
    let row = |check: &Check| {
        vec![
            check.load.clone(),
            check.place.clone(),
            spread(&check.measured),
            spread(&check.simulated),
            spread_of(check.simulated.over(&check.measured).as_ref()),
        ]
    };
    page.table(&["load", "place", "measured", "simulated", "simulated over measured"], rows.iter().map(row));
}

fn scaled(model: &Model, page: &mut Page) {
    page.paragraph("### Clients that write at once (Figure 4), simulated");
    page.paragraph(&format!(
        "Each client writes {MIB_EACH} MiB in sequence by 16 KiB, and then calls fsync. MiB/s are those of all clients."
    ));
    let mut lines = Vec::new();
    for processors in model.machines() {
        for clients in CLIENTS {
            let row = |simulated: Simulated| {
                let at = |place: &str, busy: bool| model.scaled(processors, place, clients, busy);
                let (idle, busy) = (at(simulated.place(), false)?, at(simulated.place(), true)?);
                let chain = |busy: bool| at(CHAIN, busy).filter(|_| simulated != Simulated::Chain);
                Some(vec![
                    processors.to_string(),
                    clients.to_string(),
                    simulated.place().to_owned(),
                    spread(idle),
                    spread_of(chain(false).and_then(|chain| chain.over(idle)).as_ref()),
                    spread(busy),
                    spread_of(chain(true).and_then(|chain| chain.over(busy)).as_ref()),
                    spread_of(busy.over(idle).as_ref()),
                ])
            };
            lines.extend(Simulated::ALL.into_iter().filter_map(row));
        }
    }
    let head = [
        "processors of a machine",
        "clients",
        "place",
        "replicas idle: MiB/s",
        "chain over it",
        "replicas busy: MiB/s",
        "chain over it",
        "busy over idle",
    ];
    page.table(&head, lines);
}

fn beside(rows: &[Beside], page: &mut Page) {
    page.paragraph("### A program with the priority of all others on each machine (Figure 6), simulated");
    page.paragraph(&format!(
        "{CLIENTS_OF_EQUALS} clients, each of which writes {MIB_EACH} MiB. The program has a thread for each processor. Its slowdown is by \
         the processors that it is left with; what it loses in caches and memory is not in it.",
    ));
    let row = |row: &Beside| {
        let [first, replica] = &row.slowdowns;
        vec![row.processors.to_string(), row.place.clone(), spread(&row.rate), spread(first), spread(replica)]
    };
    let head =
        ["processors of a machine", "place", "MiB/s", "slowdown, clients' machine", "slowdown, replica's"];
    page.table(&head, rows.iter().map(row));
}

fn applications(rows: &[Application], page: &mut Page) {
    if rows.is_empty() {
        return;
    }
    page.paragraph("### LevelDB and Filebench, replicas busy (Figure 8), simulated");
    page.paragraph(
        "In a simulated course each operation of a load is like the others: what it works, writes and syncs in the mean. What only \
         reads asks no other server, and is what `leveldb` measures.",
    );
    let row = |row: &Application| {
        let assise = rows.iter().find(|other| {
            (other.processors, other.load, &*other.place) == (row.processors, row.load, ASSISE)
        });
        let over = assise.filter(|assise| assise.place != row.place).and_then(|it| row.rate.over(&it.rate));
        vec![
            row.processors.to_string(),
            row.load.name().to_owned(),
            row.place.clone(),
            spread(&row.mean_us),
            spread(&row.rate),
            spread_of(over.as_ref()),
        ]
    };
    let head = [
        "processors of a machine",
        "load",
        "place",
        "mean µs",
        "operations a second",
        "rate over Assise's way",
    ];
    page.table(&head, rows.iter().map(row));
}

/// Draws Figure 4 for the larger machines: replicas idle, and busy.
pub(crate) fn draw(model: &Model, out: &Path) -> Result<Vec<Plot>, BenchError> {
    let Some(processors) = model.machines().into_iter().max() else { return Ok(Vec::new()) };
    let mut plots = Vec::new();
    for (busy, file, what) in
        [(false, "linefs-simulated-idle.svg", "idle"), (true, "linefs-simulated-busy.svg", "busy")]
    {
        let title = format!("simulated, {processors} processors a machine, replicas {what}: MiB/s");
        let lines = Simulated::ALL.map(|simulated| line(&model.scaled, processors, simulated, busy));
        let (x, y) = (Axis::linear("clients"), Axis::linear("MiB/s"));
        let chart = Chart { file: file.into(), title: title.clone(), x, y, lines: lines.into(), band: None };
        draw_chart(&out.join(file), &chart)?;
        plots.push(Plot { title, file: file.into() });
    }
    Ok(plots)
}

fn line(rows: &[Scaled], processors: u32, simulated: Simulated, busy: bool) -> Line {
    let place = simulated.place();
    let is = |row: &&Scaled| (row.processors, &*row.place, row.busy) == (processors, place, busy);
    let points = rows.iter().filter(is).map(|row| (f64::from(row.clients), row.rate.clone())).collect();
    Line { name: place.strip_prefix("landfall, ").unwrap_or(place).to_owned(), points }
}
