//! One campaign: every load on every place in turns, then the report. A failure is recorded, and the campaign continues.

use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::common::progress::say;
use crate::common::report::write_report;
use crate::files::args::{FsArgs, LoadChoice};
use crate::files::below::{file_system_of, remark_on};
use crate::files::child;
use crate::files::loads;
use crate::files::place::{Kind, Place};
use crate::files::report::{Results, Row};
use crate::files::restart;
use crate::files::sample::Sample;
use std::time::Instant;

/// Runs the campaign. After Ctrl-C what has been measured is still reported.
pub(crate) fn run(args: &FsArgs) -> Result<(), BenchError> {
    let args = args.bounded();
    let folder = file_system_of(&args.dir);
    let remark = remark_on(&folder, &args.dir);
    let mut results = Results::new(args.clone(), folder, Machine::here());
    results.notes.extend(remark.map(str::to_owned));
    let began = Instant::now();
    let outcome = measure(&args, &mut results);
    results.took_seconds = began.elapsed().as_secs_f64();
    if results.rows.is_empty() {
        return outcome.and(Err(BenchError::Nothing("nothing was measured; the lines above say why")));
    }
    let path = write_report(&args.out, &results)?;
    say(format_args!("report: {}", path.display()));
    outcome
}

fn measure(args: &FsArgs, results: &mut Results) -> Result<(), BenchError> {
    for load in args.only.iter().copied() {
        for threads in threads_of(load, args) {
            let what = format!("{}, threads: {threads}", load.name());
            say(format_args!("{what}"));
            match compare(load, threads, args, &results.folder) {
                Ok(rows) => results.rows.extend(rows),
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    say(format_args!("FAILED {what}: {error}"));
                    results.notes.push(format!("FAILED {what}: {error}"));
                }
            }
        }
    }
    Ok(())
}

fn threads_of(load: LoadChoice, args: &FsArgs) -> Vec<u32> {
    match load {
        LoadChoice::Create | LoadChoice::Append | LoadChoice::ReadRandom | LoadChoice::ReadRandomCold => {
            args.threads.clone()
        }
        LoadChoice::Varmail | LoadChoice::Fileserver => vec![16],
        _ => vec![1],
    }
}

/// Runs a load on every place, in turns.
fn compare(load: LoadChoice, threads: u32, args: &FsArgs, folder: &str) -> Result<Vec<Row>, BenchError> {
    if load == LoadChoice::Restart {
        return restart::compare(args);
    }
    let kinds = Kind::of(load, &args.transport, folder);
    let mut samples: Vec<Vec<Sample>> = kinds.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds {
        for (kind, samples) in kinds.iter().zip(&mut samples) {
            samples.push(once(load, threads, args, *kind)?);
        }
    }
    let row = |(kind, samples): (&Kind, &Vec<Sample>)| Row::of(load, threads, kind.name(folder), samples);
    Ok(kinds.iter().zip(&samples).filter_map(row).collect())
}

fn once(load: LoadChoice, threads: u32, args: &FsArgs, kind: Kind) -> Result<Sample, BenchError> {
    let mut place = Place::new(kind, args)?;
    loads::prepare(load, place.files(), args)?;
    if load.is_cold() {
        place.cool(args)?;
    }
    let device = || place.device_bytes().filter(|_| load == LoadChoice::Write);
    let (server_before, before) = (place.server_cpu(), device());
    let loaded = match kind {
        Kind::Library => child::run_by_library(load, threads, place.files(), args)?,
        _ => child::run_here(load, threads, place.files(), args)?,
    };
    let cpu_ns = loaded.cpu_ns + place.server_cpu().since_ns(server_before);
    let used = before.zip(device());
    let bytes = (args.file_mib << 20) as f64;
    let mut sample = Sample::of(&loaded.ran, cpu_ns);
    sample.device_bytes = used.map(|(before, after)| (after - before) as f64 / bytes);
    Ok(sample)
}
