//! The comparisons.

use super::app::App;
use super::args::{AppChoice, PmnetArgs, PmnetSection};
use super::breakdown;
use super::choices::{LARGE_PAYLOAD, PAYLOAD, app, key_value};
use super::compare;
use super::design::{Design, PMNET, PMNET_3, PMNET_CACHE, PMNET_FILE, Spec, Waits};
use super::lab::Lab;
use super::model;
use super::recovery;
use super::report::Results;
use crate::common::error::BenchError;
use crate::common::progress::say;

/// The designs of Figure 16.
pub(crate) const FIGURE_16: [Design; 3] = [Design::ClientServer, PMNET, Design::Nic];
/// The shares of updates in Figure 20, percent.
pub(crate) const FIGURE_20: [u32; 2] = [100, 50];
const ALL: [Waits; 3] = [Waits::Block, Waits::Polls, Waits::Spin];

/// Measures every requested section. A failure is recorded, and the other sections are measured.
pub(crate) fn measure(lab: &Lab, results: &mut Results) -> Result<(), BenchError> {
    let mut tried: Vec<Spec> = Vec::new();
    for section in lab.args.only.clone() {
        say(format_args!("{}", section.name()));
        match section {
            PmnetSection::Fig2 => {
                let specs: Vec<Spec> =
                    breakdown::apps(&lab.args.apps).into_iter().map(breakdown::spec_of).collect();
                note_missing(lab, &specs, results);
                results.breakdown.extend(breakdown::measure(lab, &mut results.notes)?);
            }
            PmnetSection::Recovery => results.recovery.extend(recovery::measure(lab, &mut results.notes)?),
            _ => {}
        }
        // Figures share measurements: none is made twice.
        let wanted = specs(&lab.args, section);
        let new: Vec<Spec> = wanted.into_iter().filter(|spec| !tried.contains(spec)).collect();
        tried.extend(&new);
        note_missing(lab, &new, results);
        let rows = compare::run(lab, &new, &mut results.notes)?;
        results.rows.extend(rows);
        if section == PmnetSection::Model {
            results.model = model::run(lab, &results.rows, &key_value(&lab.args.apps))?;
        }
    }
    Ok(())
}

fn note_missing(lab: &Lab, specs: &[Spec], results: &mut Results) {
    for reason in specs.iter().filter_map(|spec| lab.missing(spec)) {
        let note = format!("SKIPPED where needed: {reason}");
        if !results.notes.contains(&note) {
            say(format_args!("  {note}"));
            results.notes.push(note);
        }
    }
}

/// Returns the contestants of a figure. Those that are compared are adjacent.
pub(crate) fn specs(args: &PmnetArgs, section: PmnetSection) -> Vec<Spec> {
    match section {
        PmnetSection::Fig15 => figure_15(&args.sizes),
        PmnetSection::Fig16 => figure_16(&args.clients),
        PmnetSection::Fig18 => figure_18(),
        PmnetSection::Fig19 => figure_19(&args.apps, &args.ratios, args.app_clients),
        PmnetSection::Fig20 => figure_20(&args.apps),
        PmnetSection::Fig21 => figure_21(&args.apps),
        PmnetSection::Fig22 => figure_22(&args.clients),
        PmnetSection::Fig2 | PmnetSection::Recovery => Vec::new(),
        PmnetSection::Model => model::specs(&key_value(&args.apps)),
    }
}

fn figure_15(sizes: &[usize]) -> Vec<Spec> {
    let designs = |waits| match waits {
        Waits::Block => {
            vec![
                Design::Direct,
                Design::ClientServer,
                Design::Tcp,
                Design::Bypass,
                PMNET,
                Design::Nic,
                PMNET_FILE,
            ]
        }
        Waits::Polls => vec![PMNET, Design::Nic, PMNET_FILE],
        // A device that forwards bypasses and a server cannot both spin on one core.
        Waits::Spin => vec![Design::Direct, Design::ClientServer, PMNET, Design::Nic, PMNET_FILE],
    };
    let each = |waits| {
        sizes.iter().flat_map(move |size| {
            designs(waits).into_iter().map(move |design| Spec::ideal(design, waits, *size))
        })
    };
    ALL.into_iter().flat_map(each).collect()
}

fn figure_16(clients: &[usize]) -> Vec<Spec> {
    let of = |clients: &usize| {
        let clients = *clients;
        FIGURE_16.map(|design| Spec::ideal(design, Waits::Block, LARGE_PAYLOAD).by(clients))
    };
    clients.iter().flat_map(of).collect()
}

fn figure_18() -> Vec<Spec> {
    let designs = [
        Design::ClientServer,
        Design::ClientLog { copies: 1 },
        Design::ServerLog { copies: 1 },
        PMNET,
        Design::ClientLog { copies: 3 },
        Design::ServerLog { copies: 3 },
        PMNET_3,
    ];
    let spinning =
        [Design::ClientServer, Design::ClientLog { copies: 1 }, Design::ServerLog { copies: 1 }, PMNET];
    let blocking = designs.map(|design| Spec::ideal(design, Waits::Block, PAYLOAD));
    let spinning = spinning.map(|design| Spec::ideal(design, Waits::Spin, PAYLOAD));
    let polling = Spec::ideal(PMNET, Waits::Polls, PAYLOAD);
    blocking.into_iter().chain([polling]).chain(spinning).collect()
}

fn figure_19(apps: &[AppChoice], ratios: &[u32], many: usize) -> Vec<Spec> {
    let mut specs = Vec::new();
    let mut counts = vec![1, many];
    counts.dedup();
    for choice in apps {
        for updates in ratios {
            for clients in &counts {
                let spec = |design| app(choice.app(), design, *updates, *clients);
                specs.extend([Design::ClientServer, PMNET].map(spec));
            }
        }
    }
    specs
}

fn figure_20(apps: &[AppChoice]) -> Vec<Spec> {
    let of = |it: App| {
        FIGURE_20.into_iter().flat_map(move |updates| {
            [Design::ClientServer, PMNET, PMNET_CACHE].map(|design| app(it, design, updates, 1))
        })
    };
    key_value(apps).into_iter().flat_map(of).collect()
}

/// An application of Figure 21: three devices share a core, so none of them polls, and neither does one alone.
pub(crate) fn copies(it: App, design: Design) -> Spec {
    Spec { waits: Waits::Block, ..app(it, design, 100, 1) }
}

fn figure_21(apps: &[AppChoice]) -> Vec<Spec> {
    let of =
        |it: App| [Design::ClientServer, Design::Replicated, PMNET, PMNET_3].map(|design| copies(it, design));
    replicated(apps).flat_map(of).collect()
}

/// Returns the applications of Figure 21: those that can have replicas.
pub(crate) fn replicated(apps: &[AppChoice]) -> impl Iterator<Item = App> {
    let served = apps.iter().map(|choice| choice.app());
    std::iter::once(App::Ideal).chain(served.filter(|app| matches!(app, App::Map(_)) || app.is_on_redis()))
}

fn figure_22(clients: &[usize]) -> Vec<Spec> {
    let mut specs: Vec<Spec> = Vec::new();
    for spec in figure_22_loads(clients).into_iter().flatten() {
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    specs
}

/// Returns client-server and PMNet under each load of Figure 22. The first load is one client that pauses.
pub(crate) fn figure_22_loads(clients: &[usize]) -> Vec<[Spec; 2]> {
    let pair = |waits| [Design::ClientServer, PMNET].map(|design| Spec::ideal(design, waits, PAYLOAD));
    let resting = ALL.map(pair);
    let both = [Waits::Block, Waits::Spin];
    let busy = clients.iter().flat_map(|clients| both.map(|waits| pair(waits).map(|spec| spec.by(*clients))));
    resting.into_iter().chain(busy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmnet::app::On;
    use clap::ValueEnum;
    use std::collections::BTreeSet;

    #[test]
    fn no_contestant_runs_twice_in_a_figure() {
        let apps = AppChoice::value_variants();
        let figures = [
            figure_15(&[50, 1000]),
            figure_16(&[1, 64]),
            figure_18(),
            figure_19(apps, &[100, 25], 16),
            figure_20(apps),
            figure_21(apps),
            figure_22(&[1, 64]),
        ];
        for specs in figures {
            let lines: BTreeSet<String> = specs.iter().map(Spec::describe).collect();
            assert_eq!(lines.len(), specs.len());
        }
    }

    #[test]
    fn the_network_card_is_beside_the_switch_and_client_server_under_every_load_of_figures_15_and_16() {
        for specs in [figure_15(&[50, 1000]), figure_16(&[1, 16])] {
            for card in specs.iter().filter(|spec| spec.design == Design::Nic) {
                for beside in [PMNET, Design::ClientServer] {
                    assert!(specs.contains(&card.by_design(beside)), "{}", card.describe());
                }
            }
            let of = |design| specs.iter().filter(|spec| spec.design == design).count();
            assert_eq!(of(Design::Nic), of(PMNET));
            assert!(of(PMNET) > 0);
        }
    }

    #[test]
    fn three_copies_are_measured_of_every_application_with_a_server_that_replicates() {
        let specs = figure_21(AppChoice::value_variants());
        let has = |it, design| specs.iter().any(|spec| spec.app == it && spec.design == design);
        for on in [On::Memory, On::File] {
            for it in [App::Redis(on), App::Twitter(on), App::Tpcc(on)] {
                assert!(has(it, Design::Replicated) && has(it, PMNET_3) && has(it, Design::ClientServer));
            }
        }
        assert!(has(App::Ideal, PMNET_3) && !has(App::Landfall, PMNET_3));
        assert!(specs.iter().all(|spec| spec.updates == 100 && spec.clients == 1));
    }

    #[test]
    fn one_client_is_not_measured_twice() {
        assert_eq!(figure_19(&[AppChoice::Btree], &[100], 1).len(), 2);
        assert_eq!(figure_19(&[AppChoice::Btree], &[100], 16).len(), 4);
    }
}
