//! Simulated hosts with a core each, beside the measurements on few cores.

use super::goal::{Goal, IN_MEMORY, MEDIA, goal, how, key_value, over_apps};
use super::{Results, paper};
use crate::common::measure::stats::Summary;
use crate::common::tables::{Page, number, spread, spread_of};
use crate::common::targets::Bound;
use crate::pmnet::app::App;
use crate::pmnet::design::Waits;
use crate::pmnet::model::{MANY, Pipeline, Ports, Simulated};

/// A quantity of one application.
type Ratio = fn(&Simulated) -> Option<Summary>;

/// A target of the measured figures, applied to the simulated ones.
struct Aim {
    figure: &'static str,
    what: String,
    apps: Vec<App>,
    ratio: Ratio,
    aim: (Bound, f64, &'static str),
    paper: String,
}

impl Aim {
    /// The result of hosts that wait in the kernel, as in the paper.
    fn found(&self, results: &Results, ports: Ports) -> Option<Summary> {
        let one = |it: App| {
            let row = |row: &&Simulated| (row.app, row.hosts, row.ports) == (it, Waits::Block, ports);
            results.model.rows.iter().find(row).and_then(self.ratio)
        };
        over_apps(&results.settings.apps, &self.apps, one).map(|(mean, _)| mean)
    }
}

fn faster(it: &Simulated) -> Option<Summary> {
    it.client_server.over(&it.pmnet)
}

fn copies(it: &Simulated) -> Option<Summary> {
    it.replicated.over(&it.devices_3)
}

/// What two more devices add, percent.
fn added(it: &Simulated) -> Option<Summary> {
    let more = it.devices_3.over(&it.pmnet)?;
    Summary::of(more.samples.iter().map(|more| (more - 1.0) * 100.0))
}

fn aims() -> Vec<Aim> {
    let at_least = |ratio| (Bound::AtLeast, ratio, "×");
    let [payload, _] = paper::FIGURE_15;
    let mut aims = vec![Aim {
        figure: "15, simulated",
        what: "update latency, client-server over PMNet, ideal handler".into(),
        apps: vec![App::Ideal],
        ratio: faster,
        aim: at_least(payload.1),
        paper: format!("{} × at {} B", payload.1, payload.0),
    }];
    aims.extend(MEDIA.map(|medium| Aim {
        figure: "19, simulated",
        what: format!("update throughput over client-server, 1 client, {}", medium.words),
        apps: key_value(medium),
        ratio: faster,
        aim: at_least(5.0),
        paper: format!("{} ×", paper::FIGURE_19),
    }));
    let workloads = |medium| std::iter::once(App::Ideal).chain(key_value(medium)).collect::<Vec<_>>();
    aims.extend(MEDIA.map(|medium| Aim {
        figure: "21, simulated",
        what: format!("3-way replication by servers over 3 devices, mean of the workloads, {}", medium.words),
        apps: workloads(medium),
        ratio: copies,
        aim: at_least(6.0),
        paper: format!("{} ×", paper::REPLICATED),
    }));
    aims.push(Aim {
        figure: "21, simulated",
        what: "3 devices over one: latency added".into(),
        apps: workloads(IN_MEMORY),
        ratio: added,
        aim: (Bound::AtMost, 16.0, "%"),
        paper: format!("{} %", paper::COPIES),
    });
    aims
}

/// Compares the simulated figures with the targets.
pub(super) fn judge(results: &Results, goals: &mut Vec<Goal>) {
    for ports in [Ports::Veth, Ports::Cards] {
        for it in aims() {
            let found = it.found(results, ports);
            goals.push(goal(it.figure, &format!("{}, {}", it.what, ports.words()), it.paper, it.aim, found));
        }
    }
}

pub(super) fn table(page: &mut Page, results: &Results) {
    let model = &results.model;
    if model.rows.is_empty() {
        return;
    }
    page.paragraph("## Simulated: every host with a core of its own");
    page.paragraph(&format!(
        "The simulator of the tests runs the same client, device and server, and lets their work take as long as it took in \
         this run: a host's half of a round trip, the pipeline's stages by themselves ({}), what an application adds to the \
         ideal handler's round trip. *Through veth pairs*, a device's sending costs what it costs here, where whoever sends \
         runs the peer's receive path. *Through cards* stands for network cards that read and write the device's memory by \
         themselves: only the pipeline's own stages take time, and a hop 500 ns; no such card was at hand, so that this \
         column is a bound and no measurement. *That cost nothing*: neither do devices nor wires take any time; what is short \
         there, no device can bring with these hosts. Mean latencies of one client, µs; in the last column updates a second of {} \
         clients, in bursts of 60 each.",
        stages(&model.pipelines),
        MANY,
    ));
    let cells = model.rows.iter().map(|row| {
        let added = added(row).map_or("–".into(), |added| number(added.median));
        vec![
            row.app.name().into_owned(),
            how(row.hosts).into(),
            row.ports.words().into(),
            spread(&row.client_server),
            spread(&row.pmnet),
            spread_of(faster(row).as_ref()),
            spread(&row.replicated),
            spread(&row.devices_3),
            spread_of(copies(row).as_ref()),
            added,
            spread(&row.many),
        ]
    });
    let head = [
        "application",
        "hosts",
        "devices",
        "client-server",
        "PMNet",
        "÷",
        "3 servers",
        "3 devices",
        "÷",
        "3 devices over 1, %",
        "16 clients, PMNet ÷ client-server",
    ];
    page.table(&head, cells);
    page.paragraph("With devices and wires that cost nothing, for hosts that wait in the kernel:");
    let cells = aims().into_iter().filter(|it| it.aim.0 == Bound::AtLeast).map(|it| {
        let most = it.found(results, Ports::Free);
        vec![it.what, it.paper, format!("≥ {} {}", number(it.aim.1), it.aim.2), spread_of(most.as_ref())]
    });
    page.table(&["what", "paper", "aim", "at most"], cells);
}

/// Describes the pipeline's stages.
fn stages(pipelines: &[Pipeline]) -> String {
    let of = |stage: fn(&Pipeline) -> f64| {
        Summary::of(pipelines.iter().map(stage)).map_or("–".into(), |ns| format!("{:.0}", ns.median))
    };
    let join = if pipelines.iter().any(|it| it.join > 0.0) {
        format!("{} ns to join another device's acknowledgement, ", of(|it| it.join))
    } else {
        "to join another device's acknowledgement as many as ".into()
    };
    format!(
        "{} ns to log an update, {} ns to fence and acknowledge it, {join}{} ns to look at another packet",
        of(|it| it.take),
        of(|it| it.fence),
        of(|it| it.look)
    )
}
