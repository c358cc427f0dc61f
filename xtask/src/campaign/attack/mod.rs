//! The attack campaign: a release build of the server under each attack in turn, beside a well-behaved client.
//!
//! [`mod@copies`] is a separate campaign: the server is killed between copies by reference, and its contents are compared
//! with a model. The rest of this file measures. [`attacks::ATTACKS`] lists the attacks. Turns under attack alternate
//! with quiet turns of a few seconds, so that both meet the machine in one condition. The well-behaved client times
//! every operation. An operation that fails or hangs fails the campaign, and so does a p99 under attack of more than
//! [`RATIO_MAX`] times that of the quiet turns.

mod attacks;
mod client;
mod copies;
mod server;

use self::attacks::{ATTACKS, Attack, Target};
use self::client::{Latencies, Witness};
use self::server::Server;
use super::crash;
use super::folder::Folder;
use crate::args::{Args, Grammar};
use crate::error::Error;
use crate::seed::fresh_seed;
use crate::workspace::Workspace;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The default number of seconds under each attack.
const SECONDS: u64 = 20;
/// Length of a turn, quiet or under attack.
const TURN: Duration = Duration::from_secs(2);
/// The p99 under attack may be at most this many times that of the quiet turns, ...
const RATIO_MAX: f64 = 2.0;
/// ... or at most this long: below it, the scheduler dominates.
const P99_FLOOR: Duration = Duration::from_millis(1);

const GRAMMAR: Grammar =
    Grammar { values: &["seconds", "only", "cycles", "seed"], switches: &[], words_max: 1 };
/// The word that selects the campaign that kills the server between copies.
const COPIES: &str = "copies";

/// `cargo xtask attack`.
///
/// # Errors
/// [`Error::Found`] where an operation of the well-behaved client failed, hung or became too slow.
pub(crate) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Error> {
    let args = GRAMMAR.parse(line)?;
    match args.word() {
        Some(COPIES) => return copies(workspace, &args),
        Some(word) => return Err(Error::Usage(format!("no campaign `{word}`; the only one is {COPIES}"))),
        None => {}
    }
    let seconds = args.number("seconds")?.unwrap_or(SECONDS).max(1);
    let only = args.list("only");
    if let Some(name) = only.iter().find(|name| ATTACKS.iter().all(|attack| attack.name != **name)) {
        let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        return Err(Error::Usage(format!("no attack `{name}`; there are {}", names.join(", "))));
    }
    let binary = crash::build(workspace, &["--release"])?;
    println!(
        "{:<14} {:>21} {:>21} {:>7}  outcome",
        "attack", "quiet p50/p99 µs", "attacked p50/p99 µs", "ratio"
    );
    let mut failed = Vec::new();
    for attack in ATTACKS.iter().filter(|attack| only.is_empty() || only.contains(&attack.name)) {
        let outcome = one(Path::new(&binary), attack, Duration::from_secs(seconds))?;
        outcome.print(attack.name);
        if outcome.verdict().is_err() {
            failed.push(attack.name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::Found(format!("failed under: {}", failed.join(", ")))) }
}

/// `cargo xtask attack copies`.
fn copies(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let cycles = args.number("cycles")?.unwrap_or(copies::CYCLES);
    let seed = args.number("seed")?.unwrap_or_else(fresh_seed);
    let binary = crash::build(workspace, &["--release"])?;
    // A file medium must lie on a disk, and so does the folder of built files.
    let folder = Folder::within(workspace.target.join("copies"))?;
    copies::campaign(Path::new(&binary), &folder, cycles, seed)
}

/// The result of one attack.
struct Outcome {
    quiet: Latencies,
    attacked: Latencies,
    /// Failures of the well-behaved client, and of the attacker where the server must serve it.
    failures: Vec<String>,
    /// What the attacker did.
    done: String,
}

impl Outcome {
    fn ratio(&self) -> f64 {
        let quiet = self.quiet.percentile(99).as_secs_f64();
        if quiet > 0.0 { self.attacked.percentile(99).as_secs_f64() / quiet } else { f64::NAN }
    }

    fn verdict(&self) -> Result<(), String> {
        if let Some(first) = self.failures.first() {
            return Err(format!("{} failures: {first}", self.failures.len()));
        }
        if self.quiet.is_empty() || self.attacked.is_empty() {
            return Err("nothing was measured".to_owned());
        }
        if self.ratio() > RATIO_MAX && self.attacked.percentile(99) > P99_FLOOR {
            return Err(format!("p99 is more than {RATIO_MAX} times as long"));
        }
        Ok(())
    }

    fn print(&self, name: &str) {
        let pair = |latencies: &Latencies| {
            let micros = |percent| latencies.percentile(percent).as_micros();
            format!("{} / {}", micros(50), micros(99))
        };
        let verdict = self.verdict().map_or_else(|why| format!("FAILED: {why}"), |()| "ok".to_owned());
        let (quiet, attacked) = (pair(&self.quiet), pair(&self.attacked));
        println!("{name:<14} {quiet:>21} {attacked:>21} {:>7.2}  {verdict} ({})", self.ratio(), self.done);
    }
}

/// Runs one attack against a server that is started for it.
fn one(binary: &Path, attack: &Attack, under_attack: Duration) -> Result<Outcome, Error> {
    let folder = Folder::in_memory()?;
    let server = Server::start(binary, &folder, &["--capacity", "64MiB", "--workers", "1"])?;
    let target = Target::new(&server);
    if let Some(prepare) = attack.prepare {
        prepare(&target)?;
    }
    let mut witness = Witness::new(&server, attack.witness)?;
    let (on, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut quiet, mut attacked) = (Latencies::default(), Latencies::default());
    let (done, mut failures) = std::thread::scope(|threads| {
        let attacker = threads.spawn(|| (attack.run)(&target, &on, &over));
        for _ in 0..under_attack.as_millis().div_ceil(TURN.as_millis()) {
            witness.turn(TURN, &mut quiet);
            on.store(true, Ordering::Release);
            witness.turn(TURN, &mut attacked);
            on.store(false, Ordering::Release);
            // This turn is not counted: it contains the after-effects of the attack.
            witness.turn(TURN / 4, &mut Latencies::default());
        }
        over.store(true, Ordering::Release);
        attacker.join().unwrap_or_else(|_| (String::new(), vec!["the attacker panicked".to_owned()]))
    });
    failures.extend(witness.failures());
    failures.extend(server.stop(Instant::now() + Duration::from_secs(20)).err());
    Ok(Outcome { quiet, attacked, failures, done })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(quiet_us: u64, attacked_us: u64, failures: &[&str]) -> Outcome {
        let latencies = |us| {
            let mut latencies = Latencies::default();
            (0..100).for_each(|_| latencies.add(Duration::from_micros(us)));
            latencies
        };
        let failures = failures.iter().map(|what| (*what).to_owned()).collect();
        Outcome {
            quiet: latencies(quiet_us),
            attacked: latencies(attacked_us),
            failures,
            done: String::new(),
        }
    }

    #[test]
    fn failures_and_slowness_beyond_twice_are_found() {
        assert!(outcome(2000, 3900, &[]).verdict().is_ok());
        assert!(outcome(2000, 4100, &[]).verdict().is_err());
        assert!(outcome(100, 900, &[]).verdict().is_ok(), "less than a scheduler's slice");
        assert!(outcome(2000, 2000, &["SET: OOM"]).verdict().is_err());
        assert!(Outcome { quiet: Latencies::default(), ..outcome(1, 1, &[]) }.verdict().is_err());
    }

    #[test]
    fn unknown_attack_is_refused_with_the_names_of_all_attacks() {
        let line = ["--only".to_owned(), "nothing".to_owned()];
        let refused = command(&Workspace::find().unwrap(), &line).unwrap_err().to_string();
        assert!(ATTACKS.iter().all(|attack| refused.contains(attack.name)), "{refused}");
    }
}
