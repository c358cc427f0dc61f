//! `landfall demo`: clients write data while the server is killed again and again.
//!
//! Each cycle starts the server, lets clients write over RESP and HTTP for a short time, kills the server with SIGKILL,
//! starts it again (sometimes killing it during recovery, too), and reads everything back. The module `model` decides
//! what may be read. Each value contains its key, version and checksum (`payload`).

mod child;
mod load;
mod model;
mod payload;
mod report;
mod rng;
mod verify;
pub(crate) mod wire;
#[cfg(test)]
mod wire_tests;

pub(crate) use wire::{Reply, Resp};

use crate::check;
use crate::output::{self, fail};
use child::{Checks, ChildError, Program, Server};
use clap::Args;
use landfall_server::config::Size;
use load::Client;
use model::Wrong;
use report::Report;
use rng::Rng;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use verify::Seen;

/// How long clients write before the kill, milliseconds: least and most.
const LOAD_MS: (u64, u64) = (200, 600);
/// How long clients write if the server is elsewhere, milliseconds: an emulated machine is slow, and takes seconds to
/// start again.
const LOAD_ELSEWHERE_MS: (u64, u64) = (600, 1800);
/// Percentage of restarts that are first killed during recovery.
const RECOVERY_KILL_PERCENT: u64 = 20;
/// Latest time of a kill during recovery, milliseconds after the start.
const RECOVERY_KILL_MS_MAX: u64 = 25;
/// The region of a killed server is checked offline in one cycle of this many.
const CHECK_EVERY: u32 = 10;
/// Clients, at most.
const CLIENTS_MAX: usize = 64;
/// Time limit of requests that are not part of the load.
const REQUEST_MAX: Duration = Duration::from_secs(20);

/// Flags of `landfall demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many times to kill the server
    #[arg(long, value_name = "N", default_value_t = 10)]
    cycles: u32,
    /// Seed of the workload [default: a fresh one]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Directory for the region; it must hold none yet [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of the region: small, so that the compactor is busy
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    capacity: Size,
    /// As for serve
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// As for serve
    #[arg(long, value_name = "KIND", default_value = "auto")]
    media: String,
    /// As for serve [default: auto and epoll in turns]
    #[arg(long, value_name = "NAME")]
    transport: Option<String>,
    /// Clients that write at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    clients: usize,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Program that starts the server elsewhere, such as in a virtual machine, and dies with it: for `cargo xtask vm`
    #[arg(long, value_name = "PROGRAM", hide = true, conflicts_with = "dir")]
    server: Option<PathBuf>,
}

/// Runs the demonstration.
pub(crate) fn run(args: &DemoArgs) -> ExitCode {
    match demonstrate(args) {
        Ok(report) => show(&report, args.json),
        Err(error) => fail(&error),
    }
}

fn show(report: &Report, json: bool) -> ExitCode {
    let code = if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    match serde_json::to_string(report) {
        Ok(text) if json => output::report_lines([text], code),
        _ => output::report(&report.table(), code),
    }
}

/// The store under test, and everything that the demonstration knows about it.
struct Demo<'a> {
    args: &'a DemoArgs,
    program: Program,
    dir: PathBuf,
    log: PathBuf,
    rng: Rng,
    clients: Vec<Client>,
    report: Report,
}

fn demonstrate(args: &DemoArgs) -> Result<Report, ChildError> {
    let begun = Instant::now();
    let temporary = tempfile::Builder::new().prefix("landfall-demo-").tempdir()?;
    let dir = args.dir.clone().unwrap_or_else(|| temporary.path().join("data"));
    if dir.join(landfall_server::store::REGION_NAME).exists() {
        return Err(ChildError::Start(std::io::Error::other(format!(
            "{} holds a region already: the demonstration would fill it; give another --dir",
            dir.display()
        ))));
    }
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let clients = (0..args.clients.clamp(1, CLIENTS_MAX)).map(|number| Client::new(number, seed)).collect();
    let report = Report { seed, ..Report::default() };
    let log = temporary.path().join("server.log");
    let program = args.server.clone().map_or(Program::Own, Program::Elsewhere);
    let mut demo = Demo { args, program, dir, log, rng: Rng::new(seed), clients, report };
    demo.run();
    demo.report.close(begun.elapsed());
    Ok(demo.report)
}

fn fresh_seed() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |since| u64::from(since.subsec_nanos()) ^ since.as_secs())
}

impl Demo<'_> {
    /// Runs all cycles; ends early if the server cannot be started any more.
    fn run(&mut self) {
        let outcome = self.try_run();
        if let Err(error) = outcome {
            self.report.fail(&error.to_string());
        }
        for client in &self.clients {
            self.report.sent += client.sent;
            self.report.acknowledged += client.acked;
            self.report.refused += client.refused;
        }
    }

    fn try_run(&mut self) -> Result<(), ChildError> {
        let mut server = self.start()?;
        self.report.silent_starts += server.silent_starts;
        self.report.medium.clone_from(&server.medium);
        for cycle in 1..=self.args.cycles {
            let begun = Instant::now();
            self.report.cycles = cycle;
            self.progress();
            let seen = self.load_and_kill(server)?;
            if cycle.is_multiple_of(CHECK_EVERY) {
                self.check_offline();
            }
            server = self.restart()?;
            self.report.restarts.push(server.took);
            self.report.silent_starts += server.silent_starts;
            self.count_checks(&server.checks);
            self.verify(&server, &seen)?;
            self.report.took.push(begun.elapsed());
        }
        self.stop(server)
    }

    /// Progress is for people; the report goes to standard output.
    fn progress(&self) {
        if !self.args.json && self.report.cycles.is_multiple_of(10) {
            output::note(&format!("cycle {} of {}", self.report.cycles, self.args.cycles));
        }
    }

    fn arguments(&mut self) -> Vec<OsString> {
        let workers = self.rng.between(1, 2).to_string();
        let turn = if self.rng.chance(50) { "auto" } else { "epoll" };
        let transport = self.args.transport.as_deref().unwrap_or(turn);
        let capacity = self.args.capacity.to_string();
        let common = ["--capacity", &capacity, "--media", &self.args.media, "--transport", transport];
        let mut arguments: Vec<OsString> = common.map(OsString::from).to_vec();
        arguments.extend(["--workers", &workers].map(OsString::from));
        if let Some(memory) = self.args.memory {
            arguments.extend(["--memory".into(), memory.to_string().into()]);
        }
        if let Program::Own = self.program {
            arguments.extend(["--dir".into(), self.dir.clone().into()]);
            arguments.extend(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"].map(OsString::from));
        }
        arguments
    }

    fn start(&mut self) -> Result<Server, ChildError> {
        let arguments = self.arguments();
        Server::start(&self.program, &arguments, &self.log)
    }

    /// Starts the server again; sometimes kills a first attempt in the middle of recovery.
    fn restart(&mut self) -> Result<Server, ChildError> {
        if self.rng.chance(RECOVERY_KILL_PERCENT) {
            let arguments = self.arguments();
            let victim = Server::start_only(&self.program, &arguments, &self.log)?;
            self.report.silent_starts += victim.silent_starts;
            self.count_checks(&victim.checks);
            std::thread::sleep(Duration::from_millis(self.rng.below(RECOVERY_KILL_MS_MAX)));
            victim.kill()?;
            self.report.killed_in_recovery += 1;
        }
        self.start()
    }

    /// Counts the checks of a server elsewhere: there must be one, without damage.
    fn count_checks(&mut self, checks: &Checks) {
        self.report.checks += checks.clean;
        for damage in &checks.damage {
            self.report.add_violation(Wrong::Torn, &format!("landfall check: {damage}"));
        }
        if matches!(self.program, Program::Elsewhere(_)) && checks.clean == 0 && checks.damage.is_empty() {
            self.report.fail("the region was not checked before the server was started again");
        }
    }

    /// Lets the clients write, and kills the server meanwhile.
    fn load_and_kill(&mut self, server: Server) -> Result<Seen, ChildError> {
        let (resp, http) = (server.resp, server.http);
        let over = AtomicBool::new(false);
        let (least, most) = match self.program {
            Program::Own => LOAD_MS,
            Program::Elsewhere(_) => LOAD_ELSEWHERE_MS,
        };
        let pause = Duration::from_millis(self.rng.between(least, most));
        let keys = verify::watched(&self.clients);
        let seed = self.rng.next();
        let (killed, (seen, torn)) = std::thread::scope(|scope| {
            let over = &over;
            let keys = &keys;
            let watcher = scope.spawn(move || verify::watch(keys, resp, seed, over));
            for client in &mut self.clients {
                scope.spawn(move || client.run(resp, http, over));
            }
            std::thread::sleep(pause);
            let moved = compacted_bytes(http);
            let killed = server.kill();
            over.store(true, Ordering::Relaxed);
            (killed.map(|()| moved), watcher.join().unwrap_or_default())
        });
        self.report.compacted_bytes += killed?;
        torn.iter().for_each(|text| self.report.add_violation(Wrong::Torn, text));
        for client in &mut self.clients {
            client.failures.drain(..).for_each(|text| self.report.fail(&text));
        }
        Ok(seen)
    }

    fn verify(&mut self, server: &Server, seen: &Seen) -> Result<(), ChildError> {
        for client in &mut self.clients {
            verify::verify(client, server.resp, server.http, seen, &mut self.report)?;
        }
        Ok(())
    }

    /// Runs the offline check: it must find no damage after a crash, and must not change the region.
    fn check_offline(&mut self) {
        if let Program::Elsewhere(_) = self.program {
            return;
        }
        let path = self.dir.join(landfall_server::store::REGION_NAME);
        match check::find_damage(&path) {
            Ok(damage) if damage.is_empty() => self.report.checks += 1,
            Ok(damage) => {
                self.report.add_violation(Wrong::Torn, &format!("landfall check: {}", damage.join("; ")))
            }
            Err(error) => self.report.fail(&format!("landfall check: {error}")),
        }
    }

    /// Stops the last server, and checks its region once more.
    fn stop(&mut self, server: Server) -> Result<(), ChildError> {
        let mut resp = Resp::connect(server.resp, REQUEST_MAX)?;
        resp.push(&[b"SHUTDOWN"]);
        resp.flush()?;
        let checks = server.wait()?;
        self.count_checks(&checks);
        self.check_offline();
        Ok(())
    }
}

/// Bytes that the compactor has moved so far, as `/metrics` reports them; 0 if it does not.
fn compacted_bytes(http: std::net::SocketAddr) -> u64 {
    let Ok(mut http) = wire::Http::connect(http, REQUEST_MAX) else { return 0 };
    let Ok(response) = http.call("GET", "/metrics", "", b"") else { return 0 };
    let text = String::from_utf8_lossy(&response.body);
    let line = text.lines().find(|line| line.starts_with("landfall_compacted_bytes"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_a_region_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(landfall_server::store::REGION_NAME), b"precious").unwrap();
        let args = DemoArgs {
            cycles: 1,
            seed: Some(1),
            dir: Some(dir.path().to_owned()),
            capacity: Size(64 << 20),
            memory: None,
            media: "auto".into(),
            transport: None,
            clients: 1,
            json: true,
            server: None,
        };
        assert!(matches!(demonstrate(&args), Err(ChildError::Start(_))));
    }
}
