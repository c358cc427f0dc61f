//! Simulates what was measured, on this machine and on machines of their own.

use super::costs::of_chain;
use super::course::{BACKLOG, Load, Operation, Outcome, Site, Way, run};
use super::kinds::Simulated;
use super::measured::{APPLICATIONS, Alone, Chain, Measured, Measuring};
use super::processors::{CoRunner, LOWEST};
use super::rows::{Application, Beside, CLIENTS, CLIENTS_OF_EQUALS, Check, Costs, MIB_EACH, Model, Scaled};
use crate::common::measure::stats::{Summary, whole};
use crate::files::LoadChoice;
use crate::linefs::args::LinefsArgs;

/// A network as in the paper: 25 Gbit/s, and a time from one machine to another that switches and cards have.
const LINK_BYTE: f64 = 8.0 / 25e9;
const WIRE: f64 = 10e-6;
/// Processors of a larger machine.
const MANY: u32 = 16;
/// Operations of a simulated application at least, all threads together.
const OPERATIONS: u64 = 8_000;
const OPERATIONS_MAX: u64 = 200_000;
/// How often such an application fills the log.
const LOGS: f64 = 4.0;
const QUICK: u64 = 32;

impl Model {
    /// Of what was measured in turns; `None` if something of it is missing.
    pub(crate) fn of_runs(runs: Vec<(Measured, Vec<Measuring>)>, args: &LinefsArgs) -> Option<Self> {
        let (mut alone, mut chains) = (Vec::new(), Vec::new());
        for (what, rounds) in runs {
            let mut of_chain = Vec::new();
            for measuring in rounds {
                match measuring {
                    Measuring::Alone(measured) => alone.push(*measured),
                    Measuring::Chain(measured) => of_chain.push(*measured),
                }
            }
            chains.extend(what.simulated().map(|simulated| (simulated, of_chain)));
        }
        Self::of(&alone, &chains, args)
    }

    /// Of what one server and the chains have used, round by round.
    fn of(alone: &[Alone], chains: &[(Simulated, Vec<Chain>)], args: &LinefsArgs) -> Option<Self> {
        let rounds = chains.iter().map(|(_, rounds)| rounds.len()).chain([alone.len()]).min()?;
        if rounds == 0 || chains.len() < Simulated::ALL.len() {
            return None;
        }
        let mut model = Self::default();
        model.writes.extend(alone.iter().map(Alone::write));
        let (_, of_chains) = chains.iter().find(|(simulated, _)| *simulated == Simulated::Chain)?;
        for (simulated, measured) in chains {
            let of_round = |at: usize| Round {
                alone: &alone[at],
                chain: &measured[at],
                way: simulated.way(),
                costs: Costs {
                    chain: of_chain(&measured[at].loads, &alone[at].loads, alone[at].fence, alone[at].hop),
                    contention: of_chains[at].contention(),
                },
                quick: args.quick,
                co_threads: u32::try_from(args.co_threads()).unwrap_or(u32::MAX),
            };
            let rounds: Vec<Round<'_>> = (0..rounds).map(of_round).collect();
            let place = simulated.place();
            model.costs.insert(place.into(), rounds.iter().map(|round| round.costs).collect());
            model.checks.extend(checks(place, &rounds));
            for processors in machines() {
                model.scaled.extend(scaled(place, processors, &rounds));
                model.beside.extend(beside(place, processors, &rounds));
                model.applications.extend(applications(place, processors, &rounds));
            }
        }
        Some(model)
    }
}

/// The processors of simulated machines: as many as here, and many.
fn machines() -> Vec<u32> {
    std::iter::once(here()).chain((here() != MANY).then_some(MANY)).collect()
}

/// Processors of this machine.
fn here() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// One round of a place.
struct Round<'a> {
    alone: &'a Alone,
    chain: &'a Chain,
    way: Way,
    costs: Costs,
    quick: bool,
    co_threads: u32,
}

impl Round<'_> {
    fn run(&self, site: &Site, load: &Load) -> Outcome {
        run(self.way, &self.costs.chain, site, load)
    }

    /// This machine, with what runs beside.
    fn this_machine(&self, beside: Option<CoRunner>) -> Site {
        Site { processors: here(), is_shared: true, beside: [beside, None], link_byte: 0.0, wire: 0.0 }
    }

    /// Machines of their own.
    fn own_machines(&self, processors: u32, beside: [Option<CoRunner>; 2]) -> Site {
        Site { processors, is_shared: false, beside, link_byte: LINK_BYTE, wire: WIRE }
    }

    fn co_runner(&self, threads: u32, weight: f64) -> CoRunner {
        CoRunner { threads, weight, contention: self.costs.contention }
    }

    /// Clients, each of which writes a file of its own in sequence.
    fn writers(&self, clients: u32) -> Load {
        let operation = self.alone.write();
        let bytes = if self.quick { QUICK } else { MIB_EACH } << 20;
        let operations = whole(bytes as f64 / operation.bytes.max(1.0)).max(1);
        Load { operation, clients, operations, syncs_at_end: true }
    }

    /// An application's operations by so many threads.
    fn application(&self, operation: Operation, threads: u32) -> Load {
        // Longer than the log holds what is not published.
        let parts = operation.parts.max(1.0);
        let of_bytes = whole(LOGS * BACKLOG as f64 / (operation.bytes.max(1.0) * parts)).min(OPERATIONS_MAX);
        let all = if self.quick { QUICK } else { OPERATIONS.max(of_bytes) };
        let operations = all * whole(parts) / u64::from(threads);
        Load { operation, clients: threads, operations: operations.max(1), syncs_at_end: false }
    }
}

fn mib_rate(outcome: &Outcome) -> f64 {
    outcome.bytes as f64 / (1 << 20) as f64 / outcome.seconds
}

/// Operations of the program a second.
fn rate(outcome: &Outcome, operation: &Operation) -> f64 {
    outcome.operations as f64 / operation.parts / outcome.seconds
}

fn summary(rounds: &[Round<'_>], of: impl Fn(&Round<'_>) -> f64) -> Option<Summary> {
    Summary::of(rounds.iter().map(of))
}

/// Each load that was measured at a place, beside its simulation on one machine.
fn checks(place: &str, rounds: &[Round<'_>]) -> Vec<Check> {
    let check = |load: &str, measured: Option<Summary>, simulated: Option<Summary>| {
        let (measured, simulated) = (measured?, simulated?);
        Some(Check { load: load.into(), place: place.into(), measured, simulated })
    };
    let mib = |bytes: f64| bytes / (1 << 20) as f64;
    let writers = |clients: u32, beside: bool| {
        summary(rounds, |round| {
            let runner = beside.then(|| round.co_runner(round.co_threads, LOWEST));
            mib_rate(&round.run(&round.this_machine(runner), &round.writers(clients)))
        })
    };
    let mut all = vec![
        check(
            "sequential write, MiB/s",
            summary(rounds, |round| mib(round.chain.loads.write.rate())),
            writers(1, false),
        ),
        check(
            "by two clients, MiB/s",
            summary(rounds, |round| mib(round.chain.two.rate())),
            writers(2, false),
        ),
        check(
            "beside a program of the lowest priority, MiB/s",
            summary(rounds, |round| mib(round.chain.beside.rate())),
            writers(1, true),
        ),
    ];
    let append = |round: &Round<'_>| {
        let operation = round.alone.append();
        rate(&round.run(&round.this_machine(None), &round.application(operation, 1)), &operation)
    };
    let measured = summary(rounds, |round| round.chain.loads.append.count / round.chain.loads.append.seconds);
    all.push(check("append 16 KiB, fsync, a second", measured, summary(rounds, append)));
    for (at, (load, threads)) in APPLICATIONS.into_iter().enumerate() {
        let measured = Summary::of(rounds.iter().filter_map(|round| {
            let spent = round.chain.applications.get(at)?.as_ref()?;
            Some(spent.count / spent.seconds)
        }));
        let simulated = Summary::of(rounds.iter().filter_map(|round| {
            let operation = round.alone.application(at)?;
            Some(rate(
                &round.run(&round.this_machine(None), &round.application(operation, threads)),
                &operation,
            ))
        }));
        all.push(check(&format!("{}, a second", load.name()), measured, simulated));
    }
    all.into_iter().flatten().collect()
}

/// Figure 4.
fn scaled(place: &str, processors: u32, rounds: &[Round<'_>]) -> Vec<Scaled> {
    let one = |clients: u32, busy: bool| {
        let rate = summary(rounds, |round| {
            let runner = busy.then(|| round.co_runner(processors, LOWEST));
            mib_rate(&round.run(&round.own_machines(processors, [None, runner]), &round.writers(clients)))
        })?;
        Some(Scaled { processors, place: place.into(), clients, busy, rate })
    };
    [false, true].into_iter().flat_map(|busy| CLIENTS.map(|clients| one(clients, busy))).flatten().collect()
}

/// Figure 6.
fn beside(place: &str, processors: u32, rounds: &[Round<'_>]) -> Option<Beside> {
    let outcomes: Vec<Outcome> = rounds
        .iter()
        .map(|round| {
            let runner = Some(round.co_runner(processors, 1.0));
            let site = round.own_machines(processors, [runner; 2]);
            round.run(&site, &round.writers(CLIENTS_OF_EQUALS))
        })
        .collect();
    let slowdown = |at: usize| Summary::of(outcomes.iter().filter_map(|outcome| outcome.slowdowns[at]));
    let rate = Summary::of(outcomes.iter().map(mib_rate))?;
    Some(Beside { processors, place: place.into(), rate, slowdowns: [slowdown(0)?, slowdown(1)?] })
}

/// Figure 8.
fn applications(place: &str, processors: u32, rounds: &[Round<'_>]) -> Vec<Application> {
    let one = |(at, (load, threads)): (usize, (LoadChoice, u32))| {
        let outcomes: Vec<(f64, f64)> = rounds
            .iter()
            .filter_map(|round| {
                let operation = round.alone.application(at)?;
                let runner = Some(round.co_runner(processors, LOWEST));
                let site = round.own_machines(processors, [None, runner]);
                let outcome = round.run(&site, &round.application(operation, threads));
                Some((rate(&outcome, &operation), outcome.mean * operation.parts * 1e6))
            })
            .collect();
        Some(Application {
            processors,
            load,
            place: place.into(),
            rate: Summary::of(outcomes.iter().map(|(rate, _)| *rate))?,
            mean_us: Summary::of(outcomes.iter().map(|(_, mean)| *mean))?,
        })
    };
    APPLICATIONS.into_iter().enumerate().filter_map(one).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::common::plots::chart::NAME_MAX;
    use crate::common::tables::Page;
    use crate::linefs::model::costs::Loads;
    use crate::linefs::model::costs::tests::spent;
    use crate::linefs::model::course::Cost;
    use crate::linefs::model::show::{draw, show};
    use crate::linefs::place::{ASSISE, CHAIN, NOT_PARALLEL};
    use clap::Parser;

    const MIB: f64 = (1 << 20) as f64;
    const SHORT: f64 = (16 << 10) as f64;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: LinefsArgs,
    }

    /// One server that needs 1 ms for a MiB, and chains of three in which sending it takes so long, ms.
    fn measured(sends: f64) -> (Alone, Chain) {
        let write = |servers| {
            let mut write = spent(640.0, MIB / 64.0, servers);
            write.seconds = write.count * 0.00002;
            write
        };
        let loads = |first: f64, other: f64| Loads {
            write: write([first, other, other].map(|ms| ms / 64_000.0)),
            append: spent(100.0, SHORT, [first, other, other].map(|ms| ms / 10_000.0)),
        };
        let applications = vec![None, None, None, Some(spent(50.0, SHORT, [0.0002, 0.0001, 0.0001])), None];
        let fence = Cost { each: 0.0001, byte: 0.0001 / MIB };
        let alone = Alone { fence, hop: 0.00002, loads: loads(1.0, 0.0), applications: applications.clone() };
        let chained = loads(1.0 + sends, 1.0);
        let (two, beside) = (chained.write, chained.write.slower(1.5));
        (alone, Chain { loads: chained, two, beside, applications })
    }

    /// Two rounds.
    pub(crate) fn sample() -> Model {
        let args = Cli::try_parse_from(["linefs", "--quick"]).unwrap().settings;
        let alone: Vec<Alone> = [1.0, 1.2].map(|ms| measured(ms).0).into();
        let chains = Simulated::ALL.map(|simulated| (simulated, [1.0, 1.2].map(|ms| measured(ms).1).into()));
        Model::of(&alone, &chains, &args).unwrap()
    }

    #[test]
    fn what_is_measured_is_simulated_on_this_machine_and_on_three() {
        let model = sample();
        let count = |of: fn(&Model) -> usize| of(&model);
        assert_eq!(count(|model| model.scaled.len()), 3 * model.machines().len() * 2 * CLIENTS.len());
        assert_eq!(count(|model| model.beside.len()), 3 * model.machines().len());
        // Varmail is what has been measured.
        assert_eq!(count(|model| model.applications.len()), 3 * model.machines().len());
        assert_eq!(model.checks.len(), 3 * 5);
        assert!(model.scaled.iter().all(|row| row.rate.samples.len() == 2 && row.rate.min > 0.0));
        assert!(model.costs[CHAIN].iter().all(|costs| (costs.contention - 1.5).abs() < 1e-9));
    }

    #[test]
    fn a_pipeline_is_worth_most_where_machines_have_many_processors_and_busy_replicas_cost_time() {
        let model = sample();
        let rate = |place, clients, busy| model.scaled(MANY, place, clients, busy).unwrap().median;
        assert!(rate(CHAIN, 8, false) > 1.5 * rate(NOT_PARALLEL, 8, false));
        assert!(rate(CHAIN, 8, true) < rate(CHAIN, 8, false), "work takes longer there");
        assert!(rate(CHAIN, 8, false) > 2.0 * rate(CHAIN, 1, false));
    }

    #[test]
    fn a_part_that_is_missing_is_not_made_up() {
        let args = Cli::try_parse_from(["linefs", "--quick"]).unwrap().settings;
        let (alone, chain) = measured(1.0);
        assert!(Model::of(&[], &[], &args).is_none());
        assert!(Model::of(&[alone], &[(Simulated::Chain, vec![chain])], &args).is_none());
    }

    #[test]
    fn a_report_says_what_was_simulated_and_draws_the_clients() {
        let (model, mut page) = (sample(), Page::default());
        show(&model, &mut page);
        let text = page.0;
        assert!(
            text.contains("it is simulated") && text.contains(&format!("| {MANY} | 8 | {CHAIN} |")),
            "{text}"
        );
        assert!(text.contains(&format!("| {MANY} | varmail | {ASSISE} |")), "{text}");
        let out = tempfile::tempdir().unwrap();
        let plots = draw(&model, out.path()).unwrap();
        assert!(plots.len() == 2 && plots.iter().all(|plot| out.path().join(&plot.file).exists()));
        let names =
            Simulated::ALL.map(|it| it.place().strip_prefix("landfall, ").unwrap_or(it.place()).len());
        assert!(names.into_iter().all(|len| len <= NAME_MAX));
    }
}
