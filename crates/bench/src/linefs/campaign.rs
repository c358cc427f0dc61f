//! One campaign: every load at every place in turns, then the report. A failure is recorded, and the campaign continues.

use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::common::peers::Programs;
use crate::common::progress::{check_stop, say};
use crate::common::report::write_report;
use crate::files::{Row, Sample, file_system_of, prepare, remark_on, run_here};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::place::{Kind, Place};
use crate::linefs::report::Results;
use std::time::Instant;

/// What a campaign has found so far.
struct Campaign<'a> {
    args: &'a LinefsArgs,
    programs: Programs,
    results: &'a mut Results,
    /// The places that can be had.
    kinds: Vec<Kind>,
}

/// Runs the campaign. After Ctrl-C what has been measured is still reported.
pub(crate) fn run(args: &LinefsArgs) -> Result<(), BenchError> {
    let args = args.bounded();
    let folder = file_system_of(&args.dir);
    let remark = remark_on(&folder, &args.dir);
    let mut results = Results::new(args.clone(), folder, Machine::here());
    results.notes.extend(remark.map(str::to_owned));
    let began = Instant::now();
    let programs = Programs::find(args.workers)?;
    let campaign = Campaign { args: &args, programs, results: &mut results, kinds: Kind::ALL.into() };
    let outcome = campaign.measure();
    results.took_seconds = began.elapsed().as_secs_f64();
    if results.rows.is_empty() {
        return outcome.and(Err(BenchError::Nothing("nothing was measured; the lines above say why")));
    }
    let path = write_report(&args.out, &results)?;
    say(format_args!("report: {}", path.display()));
    outcome
}

impl Campaign<'_> {
    fn measure(mut self) -> Result<(), BenchError> {
        for load in self.args.only.clone() {
            self.compare(load)?;
        }
        Ok(())
    }

    /// Runs a load at every place, in turns. A place that fails is left out of this load's rows.
    fn compare(&mut self, load: LinefsLoad) -> Result<(), BenchError> {
        let (on_files, threads) = load.on_files();
        say(format_args!("{}", on_files.name()));
        let mut runs: Vec<(Kind, Vec<Sample>)> = self.kinds.iter().map(|kind| (*kind, Vec::new())).collect();
        for round in 0..self.args.rounds {
            let mut left = Vec::new();
            for (kind, mut samples) in runs {
                check_stop()?;
                say(format_args!("  round {}: {}", round + 1, kind.name(&self.results.folder)));
                match self.once(load, kind) {
                    Ok(sample) => samples.push(sample),
                    Err(error) => {
                        check_stop()?;
                        self.leave_out(load, kind, &error);
                        continue;
                    }
                }
                left.push((kind, samples));
            }
            runs = left;
        }
        let folder = &self.results.folder;
        let rows =
            runs.iter().filter_map(|(kind, samples)| Row::of(on_files, threads, kind.name(folder), samples));
        let rows: Vec<Row> = rows.collect();
        self.results.rows.extend(rows);
        Ok(())
    }

    /// Says why a place is not measured. One that needs what is not installed is left out of the further loads, too.
    fn leave_out(&mut self, load: LinefsLoad, kind: Kind, error: &BenchError) {
        let name = kind.name(&self.results.folder);
        let note = match error {
            BenchError::Missing(_) => format!("SKIPPED {name}: {error}"),
            _ => format!("FAILED {}, {name}: {error}", load.on_files().0.name()),
        };
        if matches!(error, BenchError::Missing(_)) {
            self.kinds.retain(|other| *other != kind);
        }
        say(format_args!("{note}"));
        self.results.notes.push(note);
    }

    fn once(&self, load: LinefsLoad, kind: Kind) -> Result<Sample, BenchError> {
        let settings = self.args.of_loads();
        let (on_files, threads) = load.on_files();
        let place = Place::new(kind, &self.programs, &settings, self.args.region_bytes(load))?;
        prepare(on_files, place.files(), &settings)?;
        let used = place.used();
        let loaded = run_here(on_files, threads, place.files(), &settings)?;
        Ok(Sample::of(&loaded.ran, loaded.cpu_ns + used.ns_since()))
    }
}
