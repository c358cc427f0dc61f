//! One campaign: every requested measurement, then the report. A failure is recorded, and the campaign continues.

use crate::common::clients::{Client, Operation, Shape};
use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::common::peers::Programs;
use crate::common::progress::say;
use crate::common::report::write_report;
use crate::keys::args::{KvArgs, MediaChoice, WorkloadChoice};
use crate::keys::report::Results;
use crate::keys::workloads::amplification::{self, Draw};
use crate::keys::workloads::{Bench, instructions, memory, mixed, paging, range, restart, space, throughput};
use std::time::Instant;

/// Runs the campaign. After Ctrl-C what has been measured is still reported.
pub(crate) fn run(args: &KvArgs) -> Result<(), BenchError> {
    let args = args.bounded();
    let programs = Programs::find(args.workers)?;
    let client = Client::choose(args.client)?;
    let mut results = Results::new(args.clone(), client.name(), Machine::here());
    let bench = Bench { args, programs, client };
    let begun = Instant::now();
    let outcome = measure(&bench, &mut results);
    results.took_seconds = begun.elapsed().as_secs_f64();
    if results.is_empty() {
        return outcome.and(Err(BenchError::Nothing("nothing was measured; the lines above say why")));
    }
    let path = write_report(&bench.args.out, &results)?;
    say(format_args!("report: {}", path.display()));
    outcome
}

fn measure(bench: &Bench, results: &mut Results) -> Result<(), BenchError> {
    for media in bench.args.media.iter().copied() {
        note_medium(bench, media, results)?;
        let on_a_medium = |workload: &WorkloadChoice| *workload != WorkloadChoice::Instructions;
        for workload in bench.args.only.iter().copied().filter(on_a_medium) {
            say(format_args!("{}: {workload:?}", media.name()));
            measure_one(bench, media, workload, results)?;
        }
    }
    if bench.args.only.contains(&WorkloadChoice::Instructions) {
        count_instructions(bench, results)
    } else {
        Ok(())
    }
}

fn count_instructions(bench: &Bench, results: &mut Results) -> Result<(), BenchError> {
    if let Some(missing) = instructions::missing() {
        say(format_args!("{missing}"));
        results.notes.push(missing);
        return Ok(());
    }
    say(format_args!("instructions of a SET"));
    let found = instructions::measure(bench);
    keep(&mut results.instructions, found, "instructions", &mut results.notes)
}

fn measure_one(
    bench: &Bench,
    media: MediaChoice,
    workload: WorkloadChoice,
    results: &mut Results,
) -> Result<(), BenchError> {
    let notes = &mut results.notes;
    match workload {
        WorkloadChoice::Set => {
            let shapes = throughput::set_shapes(bench, media);
            measure_loads(bench, media, Operation::Set, &shapes, results)
        }
        WorkloadChoice::Get => {
            let shapes = throughput::get_shapes(bench);
            measure_loads(bench, media, Operation::Get, &shapes, results)
        }
        WorkloadChoice::Mixed => {
            for pipeline in [1, 16] {
                let what = format!("{}: GET beside SETs, pipeline {pipeline}", media.name());
                keep(&mut results.mixed, mixed::measure(bench, media, pipeline), &what, notes)?;
            }
            Ok(())
        }
        WorkloadChoice::Amplification => {
            for (share, draw) in amplification::SHARES.iter().flat_map(|share| Draw::ALL.map(|d| (*share, d)))
            {
                let what = format!("{}: write amplification, {share:.2} live, {}", media.name(), draw.name());
                let found = amplification::measure(bench, media, share, draw);
                keep(&mut results.amplification, found, &what, notes)?;
            }
            Ok(())
        }
        WorkloadChoice::Instructions => Ok(()),
        WorkloadChoice::Memory => {
            let what = format!("{}: memory", media.name());
            keep(&mut results.memory, memory::measure(bench, media), &what, notes)?;
            keep(&mut results.empty, memory::measure_empty(bench, media), &what, notes)
        }
        WorkloadChoice::Restart => {
            for records in restart::sizes(bench) {
                let what = format!("{}: restart, {records} records", media.name());
                keep(&mut results.restart, restart::measure(bench, media, records), &what, notes)?;
            }
            Ok(())
        }
        WorkloadChoice::Space => {
            let what = format!("{}: space", media.name());
            keep(&mut results.space, space::measure(bench, media), &what, notes)
        }
        WorkloadChoice::Range => {
            let what = format!("{}: range scans", media.name());
            keep(&mut results.range, range::measure(bench, media), &what, notes)
        }
        // Other media than files are in memory anyway.
        WorkloadChoice::Paging if media != MediaChoice::File => Ok(()),
        WorkloadChoice::Paging => {
            keep(&mut results.paging, paging::measure(bench, media), "file: paging", notes)
        }
    }
}

fn measure_loads(
    bench: &Bench,
    media: MediaChoice,
    operation: Operation,
    shapes: &[Shape],
    results: &mut Results,
) -> Result<(), BenchError> {
    for shape in shapes {
        let what = format!("{}: {}, {}", media.name(), operation.name(), shape.describe());
        let found = throughput::measure(bench, media, operation, *shape);
        keep(&mut results.throughput, found, &what, &mut results.notes)?;
    }
    Ok(())
}

/// Keeps what was found; a failure becomes a note, an interruption ends the campaign.
fn keep<T>(
    rows: &mut Vec<T>,
    found: Result<Vec<T>, BenchError>,
    what: &str,
    notes: &mut Vec<String>,
) -> Result<(), BenchError> {
    match found {
        Ok(found) => rows.extend(found),
        Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
        Err(error) => {
            say(format_args!("FAILED {what}: {error}"));
            notes.push(format!("FAILED {what}: {error}"));
        }
    }
    Ok(())
}

/// Asks our own server what the folder is, so that the report says it in the server's words.
fn note_medium(bench: &Bench, media: MediaChoice, results: &mut Results) -> Result<(), BenchError> {
    let peer = bench.programs.landfall(false);
    let about = match bench.fresh(media, &peer, 1 << 30) {
        Ok(fresh) => fresh.server.about.clone(),
        Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
        Err(error) => format!("landfall could not be started: {error}"),
    };
    say(format_args!("{}: {about}", media.name()));
    results.notes.push(format!("{}: {about}", media.name()));
    Ok(())
}
