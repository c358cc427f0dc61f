//! ACE's bounded enumeration of workloads on files, crashed and judged.
//!
//! `cargo test` runs all workloads of one operation and a sample of those of two and three. `LANDFALL_SIM_SEEDS=N` samples N
//! workloads; `LANDFALL_SIM_SEED=S` begins with seed S, and alone runs just S. `LANDFALL_ACE_SECONDS=N` also runs the
//! workloads of two operations, pair by pair, for N seconds or until all are done. `LANDFALL_ACE_PART=K/N` runs part K of N
//! of the pairs (1/4 to 4/4, say): parts can be run one after another, or by several machines.
#![allow(clippy::print_stdout, reason = "the result includes how much was tried")]

mod common;

use landfall_media::Site;
use landfall_sim::files::ace::{Bounds, Op, Workload, continued, drawn, ended};
use landfall_sim::files::{Explored, Explorer, Fault, Points};
use landfall_sim::{Rng, Violation};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of seeds that `cargo test` runs.
const SEEDS: u64 = 120;
/// Most workloads that may pass before a fault is caught.
const CANARY_SEEDS_MAX: u64 = 60;
/// Points of the end of a workload at which it is crashed.
const POINTS: Points = Points::Last(4);
/// Pairs are run in this stride, so that what there is time for is spread over all. It is prime to their number.
const STRIDE: usize = 1009;

/// Runs `work` for each index below `count` on every core, until one fails or `until` has passed.
fn over_all(
    count: usize,
    until: Option<Instant>,
    work: impl Fn(usize, &mut Explorer) -> Result<(), Violation> + Sync,
) -> (usize, Explored) {
    let (next, total) = (AtomicUsize::new(0), Mutex::new((0, Explored::default())));
    let run = || {
        let mut explorer = Explorer::new(Fault::default()).expect("a region");
        let mut done = 0;
        while until.is_none_or(|until| Instant::now() < until) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                break;
            }
            explorer.forget();
            work(index, &mut explorer).unwrap_or_else(|violation| panic!("number {index}: {violation}"));
            done += 1;
        }
        let mut total = total.lock().expect("no other thread has failed");
        total.0 += done;
        total.1 += explorer.explored;
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(run);
        }
    });
    total.into_inner().expect("no thread has failed")
}

#[test]
fn each_workload_of_one_operation_leaves_a_prefix_of_its_calls_whenever_it_crashes() {
    let operations = Bounds::ACE.operations();
    let (_, explored) = over_all(operations.len(), None, |index, explorer| {
        ended(&Workload::default(), &operations[index])
            .iter()
            .try_for_each(|workload| explorer.check(&workload.steps, Points::From(workload.tested)))
    });
    println!("{explored:?}");
}

/// Workloads of two operations of ACE, and of three with all paths; some of them are published on the way.
fn workload(seed: u64) -> Workload {
    let mut rng = Rng::new(seed);
    let (bounds, count) = if rng.one_in(2) { (Bounds::ACE, 2) } else { (Bounds::ALL, 3) };
    let workload = drawn(&mut rng, &bounds.operations(), count);
    if rng.one_in(2) { workload.published(&mut rng) } else { workload }
}

fn sample(seed: u64, fault: Fault) -> Result<Explored, Violation> {
    let mut explorer = Explorer::new(fault)?;
    explorer.check(&workload(seed).steps, POINTS)?;
    Ok(explorer.explored)
}

#[test]
fn samples_of_two_and_three_operations_leave_a_prefix_of_their_calls_also_while_they_are_published() {
    let all = common::over_seeds("ace", SEEDS, |seed| sample(seed, Fault::default()));
    let mut explored = Explored::default();
    all.into_iter().for_each(|one| explored += one);
    println!("{explored:?}");
}

/// All workloads of two operations.
fn pair(first: &Op, second: &Op) -> Vec<Workload> {
    continued(&Workload::default(), first).iter().flat_map(|workload| ended(workload, second)).collect()
}

#[test]
fn each_workload_of_two_operations_leaves_a_prefix_of_its_calls() {
    let Some(seconds) = std::env::var("LANDFALL_ACE_SECONDS").ok().and_then(|text| text.parse().ok()) else {
        eprintln!("SKIP: all of them take minutes; LANDFALL_ACE_SECONDS says how long it may take");
        return;
    };
    let operations = Bounds::ACE.operations();
    let count = operations.len() * operations.len();
    let part = std::env::var("LANDFALL_ACE_PART").unwrap_or_else(|_| "1/1".into());
    let range = part_of(&part, count).expect("LANDFALL_ACE_PART is K/N, K from 1 to N");
    let until = Instant::now() + Duration::from_secs(seconds);
    let (done, explored) = over_all(range.len(), Some(until), |index, explorer| {
        let at = (range.start + index) * STRIDE % count;
        let all = pair(&operations[at / operations.len()], &operations[at % operations.len()]);
        all.iter().try_for_each(|workload| explorer.check(&workload.steps, Points::Last(2)))
    });
    println!("part {part}: {done} of {} pairs, {count} in all: {explored:?}", range.len());
}

/// Part `K/N` of `count` things.
fn part_of(part: &str, count: usize) -> Option<Range<usize>> {
    let (part, parts) = part.split_once('/')?;
    let (part, parts): (usize, usize) = (part.parse().ok()?, parts.parse().ok()?);
    (1..=parts).contains(&part).then(|| (part - 1) * count / parts..part * count / parts)
}

#[test]
fn each_pair_is_in_one_part() {
    assert_eq!(part_of("1/1", 100), Some(0..100));
    assert_eq!(
        ["1/3", "2/3", "3/3"].map(|part| part_of(part, 100)),
        [Some(0..33), Some(33..66), Some(66..100)]
    );
    assert_eq!(["0/3", "4/3", "0/0", "3", "x/3"].map(|part| part_of(part, 100)), [const { None }; 5]);
}

fn is_caught(fault: Fault) -> bool {
    let fails = |seed: &u64| {
        let outcome = catch_unwind(AssertUnwindSafe(|| sample(*seed, fault)));
        !matches!(outcome, Ok(Ok(_)))
    };
    let seed = (1..=CANARY_SEEDS_MAX).find(fails);
    println!("{fault:?}: caught by the workload of seed {seed:?}");
    seed.is_some()
}

#[test]
fn a_sync_that_makes_nothing_durable_and_flushes_and_fences_left_out_are_caught() {
    let sites = [Site::Data, Site::Record, Site::Commit, Site::Transaction];
    let skipped = sites.map(|site| Fault { skip: Some(site), ..Fault::default() });
    let forgetful = Fault { forgets_syncs: true, ..Fault::default() };
    let survivors: Vec<Fault> =
        skipped.into_iter().chain([forgetful]).filter(|fault| !is_caught(*fault)).collect();
    assert!(survivors.is_empty(), "no workload fails with these: {survivors:?}");
}
