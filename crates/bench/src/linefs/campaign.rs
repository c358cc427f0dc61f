//! One campaign: every load at every place in turns, then the report. A failure is recorded, and the campaign continues.

use crate::common::clients::Shape;
use crate::common::error::BenchError;
use crate::common::measure::proc::Machine;
use crate::common::peers::Programs;
use crate::common::progress::say;
use crate::common::report::write_report;
use crate::common::turns;
use crate::files::{FsArgs, LoadChoice, Row, Sample, check_leveldb, file_system_of, prepare, remark_on};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::beside::{self, BesideRow, BesideSample};
use crate::linefs::busy::{self, BusyRow, BusySample, Contestant};
use crate::linefs::clients::{self, ClientsRow, ClientsSample};
use crate::linefs::compression::{self, CompressionRow, CompressionSample, Mode, SHARES};
use crate::linefs::elsewhere::{self, ElsewhereRow, ElsewhereSample, Mounted};
use crate::linefs::failures::{self, FailureSample, Failures};
use crate::linefs::model::{Measured, Model};
use crate::linefs::overdue::{LOAD_MAX, Overdue};
use crate::linefs::place::{CHAIN, CHAIN_IN_ETCD, Kind, Place, empty_and_wait};
use crate::linefs::publishing::{self, CONTESTANTS, PublishingRow, PublishingSample};
use crate::linefs::report::Results;
use crate::linefs::sets::{self, Keeper, SHAPES, SetRow, SetSample};
use crate::linefs::stages::{self, StageRow};
use std::fs;
use std::time::Instant;

/// What a campaign has found so far.
struct Campaign<'a> {
    args: &'a LinefsArgs,
    programs: Programs,
    results: &'a mut Results,
    /// The names of what cannot be had.
    missing: Vec<String>,
}

/// Runs the campaign. After Ctrl-C what has been measured is still reported.
pub(crate) fn run(args: &LinefsArgs) -> Result<(), BenchError> {
    let args = args.bounded();
    fs::read_dir(&args.dir).map_err(BenchError::file(&args.dir))?;
    let folder = file_system_of(&args.dir);
    let remark = remark_on(&folder, &args.dir);
    let mut results = Results::new(args.clone(), folder, Machine::here());
    results.notes.extend(remark.map(str::to_owned));
    let began = Instant::now();
    let programs = Programs::find(args.workers)?;
    let campaign = Campaign { args: &args, programs, results: &mut results, missing: Vec::new() };
    let outcome = campaign.measure();
    results.took_seconds = began.elapsed().as_secs_f64();
    if results.is_empty() {
        return outcome.and(Err(BenchError::Nothing("nothing was measured; the lines above say why")));
    }
    let path = write_report(&args.out, &results)?;
    say(format_args!("report: {}", path.display()));
    outcome
}

/// Runs a load, and removes its files.
fn use_first((load, threads): (LoadChoice, u32), place: &Place, settings: &FsArgs) -> Result<(), BenchError> {
    prepare(load, place.files(), settings)?;
    place.run(load, threads, settings)?;
    empty_and_wait(place.files())
}

impl Campaign<'_> {
    fn measure(mut self) -> Result<(), BenchError> {
        for load in self.args.only.clone() {
            match load {
                LinefsLoad::Clients => {
                    self.args.clients.iter().try_for_each(|clients| self.compare_clients(*clients))?;
                }
                LinefsLoad::Stages => self.time_stages()?,
                LinefsLoad::Publish => self.compare_publishing()?,
                LinefsLoad::Busy => self.compare_busy()?,
                LinefsLoad::Beside => self.compare_beside()?,
                LinefsLoad::Failures => self.observe_failures()?,
                LinefsLoad::Elsewhere => self.compare_elsewhere()?,
                LinefsLoad::Simulated => self.simulate()?,
                LinefsLoad::Compression => {
                    SHARES.into_iter().try_for_each(|share| self.compare_compression(share))?;
                }
                LinefsLoad::Set => SHAPES.into_iter().try_for_each(|shape| self.compare_sets(shape))?,
                LinefsLoad::Leveldb => self.compare_leveldb()?,
                _ => self.compare_all_files(load)?,
            }
        }
        Ok(())
    }

    /// LevelDB is a library of the load: without it no place is at fault.
    fn compare_leveldb(&mut self) -> Result<(), BenchError> {
        match check_leveldb() {
            Ok(()) => self.compare_all_files(LinefsLoad::Leveldb),
            Err(error) => {
                self.note(format!("SKIPPED LevelDB: {error}"));
                Ok(())
            }
        }
    }

    fn compare_all_files(&mut self, load: LinefsLoad) -> Result<(), BenchError> {
        load.on_files().iter().try_for_each(|on_files| self.compare_files(load, *on_files))
    }

    fn compare_files(
        &mut self,
        load: LinefsLoad,
        (on_files, threads): (LoadChoice, u32),
    ) -> Result<(), BenchError> {
        let folder = self.results.folder.clone();
        let (args, programs) = (self.args, self.programs.clone());
        let kinds: Vec<_> =
            Kind::of(load, &folder).into_iter().map(|kind| (kind.name(&folder).to_owned(), kind)).collect();
        let runs = self.in_turns(on_files.name(), &kinds, |kind| {
            let settings = args.of_loads();
            let place = Place::new(kind, &programs, &settings, args.region_bytes(load))?;
            let overdue = Overdue::watch(place.pids(), LOAD_MAX);
            let before = if args.used { use_first((on_files, threads), &place, &settings) } else { Ok(()) };
            let ran = before.and_then(|()| prepare(on_files, place.files(), &settings)).and_then(|()| {
                let used = place.used();
                let loaded = place.run(on_files, threads, &settings)?;
                Ok(Sample::of(&loaded.ran, loaded.cpu_ns + used.ns_since()))
            });
            overdue.end(on_files.name(), ran)
        })?;
        let row =
            |(kind, samples): &(Kind, Vec<Sample>)| Row::of(on_files, threads, kind.name(&folder), samples);
        self.results.rows.extend(runs.iter().filter_map(row));
        Ok(())
    }

    fn compare_clients(&mut self, clients: u32) -> Result<(), BenchError> {
        let (args, programs) = (self.args, self.programs.clone());
        let named = |contestant: Contestant| (contestant.name().to_owned(), contestant);
        let contestants: Vec<_> = clients::contestants(clients).into_iter().map(named).collect();
        let what = format!("clients that write at once: {clients}");
        let once = |contestant| clients::once(contestant, clients, &programs, args);
        let runs = self.in_turns(&what, &contestants, once)?;
        let rows = |(contestant, rounds): &(Contestant, Vec<Vec<ClientsSample>>)| {
            ClientsRow::all(*contestant, clients, rounds)
        };
        self.results.clients.extend(runs.iter().flat_map(rows));
        Ok(())
    }

    fn compare_publishing(&mut self) -> Result<(), BenchError> {
        let (args, programs) = (self.args, self.programs.clone());
        let contestants =
            CONTESTANTS.map(|contestant| (publishing::way_of(contestant).to_owned(), contestant));
        let once = |contestant| publishing::once(contestant, &programs, args);
        let runs = self.in_turns("clients that write beside a program", &contestants, once)?;
        let row = |(contestant, samples): &(Contestant, Vec<PublishingSample>)| {
            PublishingRow::of(*contestant, samples)
        };
        self.results.publishing.extend(runs.iter().filter_map(row));
        Ok(())
    }

    fn time_stages(&mut self) -> Result<(), BenchError> {
        let (args, programs) = (self.args, self.programs.clone());
        let once = |()| stages::once(&programs, args);
        let runs = self.in_turns("stages of a chunk", &[(CHAIN.into(), ())], once)?;
        self.results.stages.extend(runs.iter().flat_map(|((), rounds)| StageRow::all(rounds)));
        Ok(())
    }

    fn compare_busy(&mut self) -> Result<(), BenchError> {
        let (args, programs) = (self.args, self.programs.clone());
        let contestants = Contestant::ALL.map(|contestant| (contestant.name().to_owned(), contestant));
        let once = |contestant| busy::once(contestant, &programs, args);
        let runs = self.in_turns("append 16 KiB, fsync, idle and busy", &contestants, once)?;
        let row = |(contestant, samples): &(Contestant, Vec<BusySample>)| BusyRow::of(*contestant, samples);
        self.results.busy.extend(runs.iter().filter_map(row));
        Ok(())
    }

    fn compare_beside(&mut self) -> Result<(), BenchError> {
        let folder = self.results.folder.clone();
        let (args, programs) = (self.args, self.programs.clone());
        let kinds = beside::KINDS.map(|kind| (kind.name(&folder).to_owned(), kind));
        let once = |kind| beside::once(kind, &programs, args);
        let runs = self.in_turns("append 16 KiB, fsync, beside a client that writes", &kinds, once)?;
        let row = |(kind, samples): &(Kind, Vec<BesideSample>)| BesideRow::of(*kind, &folder, samples);
        self.results.beside.extend(runs.iter().filter_map(row));
        Ok(())
    }

    fn compare_sets(&mut self, shape: Shape) -> Result<(), BenchError> {
        let (args, programs) = (self.args, self.programs.clone());
        let keepers = Keeper::ALL.map(|keeper| (keeper.name().to_owned(), keeper));
        let what = format!("SET by {}", shape.describe());
        let runs = self.in_turns(&what, &keepers, |keeper| sets::once(keeper, shape, &programs, args))?;
        let row = |(keeper, samples): &(Keeper, Vec<SetSample>)| SetRow::of(*keeper, shape, samples);
        self.results.sets_before = sets::sets_before(args);
        self.results.sets.extend(runs.iter().filter_map(row));
        Ok(())
    }

    fn compare_compression(&mut self, share: u32) -> Result<(), BenchError> {
        let (args, programs) = (self.args, self.programs.clone());
        let modes = Mode::ALL.map(|mode| (format!("compression {}", mode.name()), mode));
        let what = format!("values with {share} % zeros");
        let runs = self.in_turns(&what, &modes, |mode| compression::once(share, mode, &programs, args))?;
        let row =
            |(mode, samples): &(Mode, Vec<CompressionSample>)| CompressionRow::of(share, *mode, samples);
        self.results.compression.extend(runs.iter().filter_map(row));
        Ok(())
    }

    fn compare_elsewhere(&mut self) -> Result<(), BenchError> {
        let (args, programs) = (self.args, self.programs.clone());
        let mounts = Mounted::ALL.map(|mounted| (mounted.name().to_owned(), mounted));
        let once = |mounted| elsewhere::once(mounted, &programs, args);
        let runs = self.in_turns("files that are looked at again and again", &mounts, once)?;
        let rows =
            |(mounted, samples): &(Mounted, Vec<Vec<ElsewhereSample>>)| ElsewhereRow::all(*mounted, samples);
        self.results.elsewhere.extend(runs.iter().flat_map(rows));
        Ok(())
    }

    fn simulate(&mut self) -> Result<(), BenchError> {
        let (args, programs) = (self.args, self.programs.clone());
        let all: Vec<_> = Measured::all().into_iter().map(|what| (what.name().to_owned(), what)).collect();
        let runs = self.in_turns("costs to simulate with", &all, |what| what.once(&programs, args))?;
        say(format_args!("  simulated"));
        self.results.model = Model::of_runs(runs, args);
        Ok(())
    }

    fn observe_failures(&mut self) -> Result<(), BenchError> {
        let (args, programs) = (self.args, self.programs.clone());
        let once = |()| failures::once(&programs, args);
        let runs =
            self.in_turns("varmail while hosts and servers fail", &[(CHAIN_IN_ETCD.into(), ())], once)?;
        let samples: Vec<FailureSample> = runs.into_iter().flat_map(|((), samples)| samples).collect();
        self.results.failures = Failures::of(&samples);
        Ok(())
    }

    /// Measures all of `kinds`, each with its name, in turns. One that fails once is left out.
    fn in_turns<K: Copy, S>(
        &mut self,
        what: &str,
        kinds: &[(String, K)],
        once: impl Fn(K) -> Result<S, BenchError>,
    ) -> Result<Vec<(K, Vec<S>)>, BenchError> {
        say(format_args!("{what}"));
        let rounds = self.args.rounds;
        let mut there: Vec<(&str, K)> = kinds.iter().map(|(name, kind)| (&**name, *kind)).collect();
        there.retain(|(name, _)| !self.missing.iter().any(|missing| missing == name));
        let turn = |round: u32, (name, kind): (&str, K)| {
            say(format_args!("  round {round}: {name}"));
            once(kind)
        };
        let runs =
            turns::in_turns(rounds, there, turn, |(name, _), error| self.leave_out(what, name, error))?;
        Ok(runs.into_iter().map(|((_, kind), samples)| (kind, samples)).collect())
    }

    /// Says why something is not measured. What needs what is not installed is left out of the further loads, too.
    fn leave_out(&mut self, what: &str, name: &str, error: &BenchError) {
        let note = if matches!(error, BenchError::Missing(_)) {
            self.missing.push(name.to_owned());
            format!("SKIPPED {name}: {error}")
        } else {
            format!("FAILED {what}, {name}: {error}")
        };
        self.note(note);
    }

    fn note(&mut self, note: String) {
        say(format_args!("{note}"));
        self.results.notes.push(note);
    }
}
