//! Programs that people run, on a mount of files: killed with the mount's server or holder, without it, or alone.
//!
//! Read [`list`] first: each program is a script with three functions. `prepare` makes its data, `load` changes them
//! until it is killed and writes down what was acknowledged as synced, `verify` lets the program's own checker judge and
//! compares with what was acknowledged. [`plan`] draws what is killed when, [`place`] is the mount, [`job`] runs scripts.
//! A killed server loses what no `fsync` had made durable where its region is on a file: what a power loss would take.

mod job;
mod list;
mod place;
mod plan;
mod ring;

use self::job::Job;
use self::list::{PROGRAMS, Program, STORE};
use self::place::{Place, WAYS, With};
use self::plan::{Kill, Moment, Victim};
use self::ring::Allowed;
use super::folder::Folder;
use super::{crash, table};
use crate::args::{Args, Grammar};
use crate::error::Error;
use crate::json::Json;
use crate::peers;
use crate::process::{self, Keep};
use crate::seed::{Random, fresh_seed};
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The default number of kills of each program.
const CYCLES: u64 = 10;
/// Time limits.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const PROBE_LIMIT: Duration = Duration::from_secs(20);
const SCRIPT_LIMIT: Duration = Duration::from_secs(300);
/// Servers that are killed during one load where programs go on with the next one.
const SERVERS: u32 = 3;
/// How long programs may take to see that their mount has ended. Then they are killed.
const NOTICE: Duration = Duration::from_secs(5);

const GRAMMAR: Grammar =
    Grammar { values: &["cycles", "seed", "only", "with", "built"], switches: &[], words_max: 0 };

/// `cargo xtask programs`.
///
/// # Errors
/// [`Error::Environment`] where nothing can be mounted; [`Error::Found`] where a program has lost something.
pub(crate) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Error> {
    let args = GRAMMAR.parse(line)?;
    let cycles = args.number("cycles")?.unwrap_or(CYCLES);
    let seed = args.number("seed")?.unwrap_or_else(fresh_seed);
    let (programs, ways) = (chosen(&args.list("only"))?, ways(&args.list("with"))?);
    if !is_root() {
        println!("SKIPPED: mounts for other users and namespaces of processes need root");
        return Ok(());
    }
    let binary = binary(workspace, &args)?;
    println!("again with: cargo xtask programs --cycles {cycles} --seed {seed}");
    let (mut runs, mut skipped, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for program in programs {
        if let Some(missing) = peers::ensure(program.needs) {
            println!("SKIPPED: {}: {missing}", program.name);
            skipped.push(program.name);
            continue;
        }
        for with in &ways {
            let allowed = (*with == With::Ring).then(Allowed::begin);
            if matches!(allowed, Some(None)) {
                println!("SKIPPED: {}, {}: the kernel allows no io_uring here", program.name, with.name());
                continue;
            }
            let campaign = Campaign { binary: &binary, source: &workspace.root, program, with: *with };
            match campaign.run(cycles, seed) {
                Ok(tally) => runs.push(tally.report(program.name, *with)),
                Err(Error::Found(what)) => faults.push(format!("{}, {}: {what}", program.name, with.name())),
                Err(error) => return Err(error),
            }
        }
    }
    print!("{}", table::render(&serde_json::json!({ "runs": runs, "skipped": skipped })));
    if faults.is_empty() { Ok(()) } else { Err(Error::Found(faults.join("\n"))) }
}

fn chosen(names: &[&str]) -> Result<Vec<&'static Program>, Error> {
    if let Some(unknown) = names.iter().find(|name| PROGRAMS.iter().all(|program| program.name != **name)) {
        let all: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        return Err(Error::Usage(format!("no program `{unknown}`: {}", all.join(", "))));
    }
    let is_chosen = |program: &&Program| names.is_empty() || names.contains(&program.name);
    Ok(PROGRAMS.iter().filter(is_chosen).collect())
}

fn ways(names: &[&str]) -> Result<Vec<With>, Error> {
    match names {
        [] | ["all"] => Ok(WAYS.to_vec()),
        names => names.iter().map(|name| way(name)).collect(),
    }
}

fn way(name: &str) -> Result<With, Error> {
    WAYS.into_iter().find(|with| with.name() == name).ok_or_else(|| {
        let all = WAYS.map(With::name).join(", ");
        Error::Usage(format!("`--with {name}`: all, or some of {all}"))
    })
}

fn is_root() -> bool {
    let user = process::run(Command::new("id").arg("-u"), Keep::Both, PROBE_LIMIT);
    user.is_ok_and(|finished| finished.stdout.trim() == "0")
}

/// The server's program, with the library beside it.
fn binary(workspace: &Workspace, args: &Args) -> Result<PathBuf, Error> {
    if let Some(folder) = args.list("built").first() {
        return Ok(Path::new(folder).join("landfall"));
    }
    let mut cargo = process::cargo();
    cargo.args(["build", "--release", "-p", "landfall-fs-lib"]).current_dir(&workspace.root);
    process::must(&mut cargo, Keep::Nothing, BUILD_LIMIT)?;
    Ok(PathBuf::from(crash::build(workspace, &["--release"])?))
}

/// One program, by mount or with the library.
struct Campaign<'a> {
    binary: &'a Path,
    source: &'a Path,
    program: &'static Program,
    with: With,
}

/// What a campaign has done.
#[derive(Default)]
struct Tally {
    servers: u64,
    holders: u64,
    programs: u64,
    both: u64,
    verified: u64,
    /// Operations of libraries.
    adopted: u64,
    /// What the last verification says.
    last: String,
    took: Duration,
}

impl Tally {
    fn count(&mut self, victim: Victim, with: With) {
        match victim {
            Victim::Server if with == With::Server => self.servers += u64::from(SERVERS),
            Victim::Server if with == With::Holder => self.holders += 1,
            Victim::Server => self.servers += 1,
            Victim::Program => self.programs += 1,
            Victim::Both => self.both += 1,
        }
    }

    fn report(&self, program: &str, with: With) -> Json {
        serde_json::json!({
            "program": program,
            "with": with.name(),
            "servers killed": self.servers,
            "mounts' processes killed": self.holders,
            "programs killed": self.programs,
            "both killed": self.both,
            "verified": self.verified,
            "library operations": self.adopted,
            "s": self.took.as_secs(),
            "at the end": self.last,
        })
    }
}

impl Campaign<'_> {
    /// Runs `cycles` kills. The folder stays where something is wrong.
    fn run(&self, cycles: u64, seed: u64) -> Result<Tally, Error> {
        println!("{}, {}:", self.program.name, self.with.name());
        let beside = Folder::within(std::env::temp_dir())?;
        let store = beside.path().join(STORE.0);
        std::fs::write(&store, STORE.1).map_err(|source| Error::file("write", &store, source))?;
        let memory = if self.with.is_in_memory() { Some(Folder::in_memory()?) } else { None };
        let region = memory.as_ref().unwrap_or(&beside).path().join("region");
        let mut place = Place::new(self.binary, beside.path(), region, self.with)?;
        let outcome = self.cycles(&mut place, cycles, seed);
        drop(place);
        if let Err(Error::Found(_)) = &outcome {
            let kept = [Some(beside), memory].into_iter().flatten().map(Folder::keep);
            kept.for_each(|path| println!("  kept: {}", path.display()));
        }
        outcome
    }

    fn cycles(&self, place: &mut Place, cycles: u64, seed: u64) -> Result<Tally, Error> {
        let (begun, mut tally, mut random) = (Instant::now(), Tally::default(), Random::new(seed));
        place.mount()?;
        self.script(place, "prepare", seed)?;
        for cycle in 0..cycles {
            let kill = Kill::draw(&mut random, &self.program.load_ms, cycle + 1 == cycles);
            self.load(place, &kill, random.number())?;
            tally.count(kill.victim, self.with);
            let verified = if kill.is_verified { self.script(place, "verify", seed)? } else { String::new() };
            let killed = kill.to_string();
            let killed =
                if self.with == With::Holder { killed.replacen("server", "holder", 1) } else { killed };
            println!(
                "  {cycle:>4} {killed}: {}",
                if kill.is_verified { &verified } else { "verified later" }
            );
            if kill.is_verified {
                tally.verified += 1;
                tally.last = verified;
            }
        }
        place.stop()?;
        place.check()?;
        (tally.adopted, tally.took) = (place.adopted(), begun.elapsed());
        Ok(tally)
    }

    /// Runs the load until the kill, and mounts again. A load that ends before fails the campaign.
    fn load(&self, place: &mut Place, kill: &Kill, seed: u64) -> Result<(), Error> {
        let mut job = Job::start(place, self.program, self.source, "load", seed)?;
        std::thread::sleep(kill.after);
        place.count_adopted();
        if kill.moment == Moment::Acknowledged {
            place.wait_for_acknowledgement();
        }
        still_runs(&mut job, "before the kill")?;
        match (kill.victim, self.with) {
            (Victim::Program, _) => job.kill(),
            (Victim::Server, With::Server) => go_on(place, job, kill),
            (Victim::Server, With::Disk) => lose_server(place, job, kill),
            (Victim::Both, With::Server | With::Disk) => kill_with_server(place, job, kill),
            (_, With::Holder) => kill_with_holder(place, job, kill),
            _ => kill_with_mount(place, job, kill),
        }
    }

    /// Runs one function of the script to its end. Returns the last line that it prints.
    fn script(&self, place: &Place, function: &str, seed: u64) -> Result<String, Error> {
        let mut job = Job::start(place, self.program, self.source, function, seed)?;
        let status = job.ended_within(SCRIPT_LIMIT)?;
        let said = job.said();
        match status {
            Some(status) if status.success() => Ok(said.lines().last().unwrap_or_default().to_owned()),
            Some(status) => Err(Error::Found(format!("`{function}` ended with {status}:\n{said}"))),
            None => {
                job.kill()?;
                Err(Error::Found(format!("`{function}` took {} s:\n{said}", SCRIPT_LIMIT.as_secs())))
            }
        }
    }
}

fn still_runs(job: &mut Job, when: &str) -> Result<(), Error> {
    match job.ended_within(Duration::ZERO)? {
        Some(status) => Err(Error::Found(format!("the load ended with {status} {when}:\n{}", job.said()))),
        None => Ok(()),
    }
}

/// The mount ends with its server.
fn kill_with_mount(place: &mut Place, mut job: Job, kill: &Kill) -> Result<(), Error> {
    place.kill()?;
    if kill.victim == Victim::Server {
        job.ended_within(NOTICE)?;
    }
    job.kill()?;
    place.detach();
    mount_again(place, kill)
}

/// Mounts what a killed server has left, perhaps in two attempts.
fn mount_again(place: &mut Place, kill: &Kill) -> Result<(), Error> {
    place.check()?;
    if let Some(after) = kill.again {
        place.mount_and_kill(after)?;
    }
    place.mount()
}

/// Servers are killed one after the other, and the program goes on as if nothing had happened. In the end it is killed.
fn go_on(place: &mut Place, mut job: Job, kill: &Kill) -> Result<(), Error> {
    for _ in 0..SERVERS {
        place.kill()?;
        mount_again(place, kill)?;
        let goes_on = place.wait_for_acknowledgement();
        still_runs(&mut job, "when its server was killed")?;
        if !goes_on {
            return Err(Error::Found(format!(
                "the load does not go on with the next server:\n{}",
                job.said()
            )));
        }
    }
    job.kill()
}

/// The program goes on with the next server, and may see that something is lost which it had not synced. Then it is killed.
fn lose_server(place: &mut Place, mut job: Job, kill: &Kill) -> Result<(), Error> {
    place.kill()?;
    mount_again(place, kill)?;
    job.ended_within(NOTICE)?;
    job.kill()?;
    place.take_losses()
}

/// The mount ends with the process that has made it, and perhaps the server is killed as well. The kernel may unmount
/// then: the program must have been struck before, so that it does not find what is below the mount.
fn kill_with_holder(place: &mut Place, job: Job, kill: &Kill) -> Result<(), Error> {
    job.strike()?;
    place.kill_holder()?;
    if kill.victim == Victim::Both {
        place.kill()?;
    }
    job.kill()?;
    place.detach();
    if kill.victim == Victim::Both { mount_again(place, kill) } else { place.mount() }
}

/// The program is killed while it waits for a server. A call that a server had begun ends with the next one.
fn kill_with_server(place: &mut Place, job: Job, kill: &Kill) -> Result<(), Error> {
    place.kill()?;
    job.strike()?;
    mount_again(place, kill)?;
    job.kill()?;
    place.take_losses()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_ways_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), PROGRAMS.len());
        let names: Vec<&str> = chosen(&["git"]).unwrap().iter().map(|program| program.name).collect();
        assert_eq!(names, ["git"]);
        assert!(chosen(&["git", "gti"]).is_err());
        assert_eq!(ways(&["all"]).unwrap(), WAYS);
        assert_eq!(ways(&["library"]).unwrap(), [With::Library]);
        assert_eq!(ways(&["disk", "uring"]).unwrap(), [With::Disk, With::Ring]);
        assert!(ways(&["disk", "both"]).is_err());
    }

    #[test]
    fn a_report_counts_each_kind_of_kill() {
        let mut tally = Tally { last: "3 found".to_owned(), verified: 2, ..Tally::default() };
        let victims = [Victim::Server, Victim::Both, Victim::Server];
        victims.into_iter().for_each(|victim| tally.count(victim, With::Mount));
        let report = tally.report("git", With::Mount);
        assert_eq!(report["servers killed"], 2);
        assert_eq!(report["programs killed"], 0);
        assert_eq!(report["both killed"], 1);
        assert_eq!(report["at the end"], "3 found");
        tally.count(Victim::Server, With::Server);
        assert_eq!(tally.report("git", With::Server)["servers killed"], 2 + SERVERS);
        tally.count(Victim::Server, With::Holder);
        let report = tally.report("git", With::Holder);
        assert_eq!(
            (&report["servers killed"], &report["mounts' processes killed"]),
            (&(2 + SERVERS).into(), &1.into())
        );
    }
}
