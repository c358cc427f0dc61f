//! The comparisons.

use super::args::{PaperSection, StageStore};
use super::compare::{self, CAPACITY, LOG_CAPACITY, Plan, Work};
use super::contestant::{Over, Store, Who, landfall};
use super::lab::Lab;
use super::report::{Results, StageRun, WalRows};
use super::stages::StageTimes;
use super::wire::{Quality, Wire};
use super::wrk::Ask;
use super::{bulk, callgrind};
use crate::common::clients::redis_benchmark::run_to_end;
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::progress::say;
use std::collections::BTreeMap;
use std::path::Path;

/// The sizes of the largest packets: an ordinary wire's, and the largest that a chunk of 4 KiB holds with some room.
pub(crate) const MTU: u32 = 1500;
pub(crate) const MTU_LARGE: u32 = 3400;
/// The transports that every store is measured over.
pub(crate) const OVERS: [Over; 2] = [Over::Sockets, Over::XdpSpin];
/// The stores of Figure 2.
pub(crate) const STORES: [Store; 4] = [Store::Discard, Store::Copy, Store::LevelDb, Store::Heap];
/// Connections of comparisons other than Figure 2.
pub(crate) const FEW_AND_MANY: [usize; 2] = [1, 50];

/// Returns a server that differs from Landfall's only in its store.
pub(crate) const fn with(store: Store, over: Over) -> Who {
    Who::Landfall { store, over, flush: true }
}

/// Landfall with that store, without flushes.
pub(crate) const fn unflushed(store: Store, over: Over) -> Who {
    Who::Landfall { store, over, flush: false }
}

pub(crate) const fn http(ask: Ask, connections: usize) -> Work {
    Work::Http { ask, connections }
}

pub(crate) const fn resp(set: bool, clients: usize, pipeline: usize) -> Work {
    Work::Resp { set, clients, pipeline }
}

/// The write-ahead logs of the comparison: as PASTE's authors have it, and one that busy-polls.
pub(crate) const WALS: [Who; 5] = [
    Who::Wal { direct: false, spin: false },
    Who::Wal { direct: true, spin: false },
    Who::Wal { direct: false, spin: true },
    landfall(Over::Sockets),
    landfall(Over::XdpSpin),
];

/// Measures every requested section. A failure is recorded, and the other sections are measured.
pub(crate) fn measure(lab: &Lab, results: &mut Results) -> Result<(), BenchError> {
    let sections: [(PaperSection, Section); 6] = [
        (PaperSection::Table1, table1),
        (PaperSection::Figure2, figure2),
        (PaperSection::Wal, wal),
        (PaperSection::Tcp, tcp),
        (PaperSection::Bulk, bulk),
        (PaperSection::Targets, targets),
    ];
    for (section, measure) in sections.into_iter().filter(|(section, _)| lab.args.wants(*section)) {
        say(format_args!("{section:?}"));
        keep(measure(lab, results), &format!("{section:?}"), &mut results.notes)?;
    }
    Ok(())
}

type Section = fn(&Lab, &mut Results) -> Result<(), BenchError>;

/// An interruption ends the campaign; any other failure becomes a note.
fn keep(outcome: Result<(), BenchError>, what: &str, notes: &mut Vec<String>) -> Result<(), BenchError> {
    match outcome {
        Ok(()) => Ok(()),
        Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
        Err(error) => {
            say(format_args!("FAILED {what}: {error}"));
            notes.push(format!("FAILED {what}: {error}"));
            Ok(())
        }
    }
}

/// Measures one connection: the paper's differences of round trips, then the stages by themselves.
fn table1(lab: &Lab, results: &mut Results) -> Result<(), BenchError> {
    let wire = Wire::new(MTU, Quality::Plain)?;
    let mut who = Vec::new();
    for over in OVERS {
        who.push(with(Store::Discard, over));
        for store in [Store::Copy, Store::LevelDb, Store::Heap] {
            who.extend([with(store, over), unflushed(store, over)]);
        }
    }
    let works = [http(Ask::Post, 1), Work::Trip { resp: false }];
    let plan = Plan::of(lab, &wire, &who, &works);
    results.table1 = compare::run(lab, &plan, &mut results.notes)?;
    let (stages, notes) = (&mut results.stages, &mut results.notes);
    let outcome = measure_stages(lab).map(|found| *stages = found);
    keep(outcome, "stages", notes)?;
    let outcome = callgrind::measure(lab).map(|found| results.counts = found);
    keep(outcome, "instruction counts", &mut results.notes)
}

/// Measures many connections: every store over both transports.
fn figure2(lab: &Lab, results: &mut Results) -> Result<(), BenchError> {
    let wire = Wire::new(MTU, Quality::Plain)?;
    let who: Vec<Who> = OVERS.into_iter().flat_map(|over| STORES.map(|store| with(store, over))).collect();
    let works: Vec<Work> = lab.args.connections.iter().map(|count| http(Ask::Post, *count)).collect();
    // Afresh, so that no load fills LevelDB's write buffer.
    let plan = Plan { afresh: true, ..Plan::of(lab, &wire, &who, &works) };
    results.figure2 = compare::run(lab, &plan, &mut results.notes)?;
    Ok(())
}

fn wal(lab: &Lab, results: &mut Results) -> Result<(), BenchError> {
    let wire = Wire::new(MTU, Quality::Plain)?;
    let works = FEW_AND_MANY.map(|connections| http(Ask::Append, connections));
    let bases: Vec<&Path> =
        [Some(&*lab.args.dir), lab.args.file_dir.as_deref()].into_iter().flatten().collect();
    let capacity = if lab.args.quick { CAPACITY } else { LOG_CAPACITY };
    for base in bases {
        let plan = Plan { base, afresh: true, capacity, ..Plan::of(lab, &wire, &WALS, &works) };
        let rows = compare::run(lab, &plan, &mut results.notes)?;
        let on_file = base != lab.args.dir;
        results.wal.push(WalRows { on_file, medium: base.display().to_string(), rows });
    }
    Ok(())
}

fn tcp(lab: &Lab, results: &mut Results) -> Result<(), BenchError> {
    let wire = Wire::new(MTU, Quality::Plain)?;
    let who = [Over::Sockets, Over::Epoll, Over::Xdp, Over::XdpSpin].map(landfall);
    let asks = [Ask::Post, Ask::Get];
    let works: Vec<Work> =
        asks.into_iter().flat_map(|ask| FEW_AND_MANY.map(|connections| http(ask, connections))).collect();
    let plan = Plan::of(lab, &wire, &who, &works);
    results.tcp = compare::run(lab, &plan, &mut results.notes)?;
    Ok(())
}

fn bulk(lab: &Lab, results: &mut Results) -> Result<(), BenchError> {
    results.bulk = bulk::measure(lab, &mut results.notes)?;
    Ok(())
}

fn targets(lab: &Lab, results: &mut Results) -> Result<(), BenchError> {
    // A server that discards says how far the way to the store lets anybody come.
    let discarding = with(Store::Discard, Over::XdpSpin);
    let who = [Who::Redis, landfall(Over::Sockets), landfall(Over::Xdp), landfall(Over::XdpSpin), discarding];
    let large = [resp(true, 50, 16), resp(false, 50, 16)];
    let small = [
        resp(true, 1, 1),
        Work::Trip { resp: true },
        resp(false, 50, 16),
        resp(true, 50, 1),
        resp(true, 50, 16),
    ];
    let (wires, small) = if lab.args.quick { (1, &small[..3]) } else { (2, &small[..]) };
    for (mtu, works) in [(MTU, small), (MTU_LARGE, &large[..])].into_iter().take(wires) {
        let wire = Wire::new(mtu, Quality::Plain)?;
        let plan = Plan::of(lab, &wire, &who, works);
        results.targets.extend(compare::run(lab, &plan, &mut results.notes)?);
    }
    Ok(())
}

/// Measures the stages of each store, with flushes and without, in turns.
fn measure_stages(lab: &Lab) -> Result<Vec<StageRun>, BenchError> {
    let kinds: Vec<(StageStore, &str)> = [StageStore::Heap, StageStore::Copy, StageStore::LevelDb]
        .into_iter()
        .flat_map(|store| [(store, "auto"), (store, "none")])
        .collect();
    let mut samples: Vec<Vec<StageTimes>> = vec![Vec::new(); kinds.len()];
    for round in 0..lab.args.rounds {
        say(format_args!("  stages, round {} of {}", round + 1, lab.args.rounds));
        for ((store, flush), samples) in kinds.iter().zip(&mut samples) {
            crate::common::progress::check_stop()?;
            match run_stages(lab, *store, flush) {
                Ok(times) => samples.push(times),
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => say(format_args!("  stages of {store:?}: {error}")),
            }
        }
    }
    let runs = kinds.into_iter().zip(samples).filter(|(_, samples)| !samples.is_empty());
    Ok(runs.map(|((store, flush), samples)| stage_run(store, flush, &samples)).collect())
}

fn stage_run(store: StageStore, flush: &str, samples: &[StageTimes]) -> StageRun {
    let names = samples.iter().flat_map(|times| times.0.keys().cloned());
    let times: BTreeMap<String, Summary> = names
        .filter_map(|name| {
            let found = Summary::of(samples.iter().filter_map(|times| times.get(&name)));
            found.map(|summary| (name, summary))
        })
        .collect();
    StageRun { store, flushed: flush != "none", times }
}

/// In a separate process, on the server's core.
fn run_stages(lab: &Lab, store: StageStore, flush: &str) -> Result<StageTimes, BenchError> {
    use clap::ValueEnum;
    let dir = lab.folder()?;
    let batches = if lab.args.quick { "12" } else { "400" };
    let name = store.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut command = lab.local_command(&lab.landfall);
    command.args(["bench", "stages", "--store", &name, "--flush", flush, "--batches", batches]);
    command.arg("--dir").arg(dir.path());
    let output = run_to_end(command, "landfall bench stages")?;
    serde_json::from_str(output.trim()).map_err(|_| BenchError::reply("bench stages", output, "stage times"))
}
