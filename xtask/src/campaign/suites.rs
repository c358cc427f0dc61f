//! Foreign test suites on a mount of files: pjdfstest (what POSIX says of each call) and fsx (random operations on one
//! file, compared with a copy in memory). Both are programs of others, installed at a fixed version under `target`.

use super::crash;
use super::folder::Folder;
use crate::args::Grammar;
use crate::error::Error;
use crate::process::{self, Keep};
use crate::seed::fresh_seed;
use crate::workspace::Workspace;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The suites, at the versions that results are kept of.
const PROGRAMS: &[&str] = &["pjdfstest@0.2.2", "fsx@0.3.2"];
/// Where they are installed, under `target`.
const FOLDER: &str = "suites";
/// Runs of fsx, by default, and operations of each.
const ROUNDS: u64 = 4;
const OPERATIONS: u64 = 10_000;
/// Time limits.
const INSTALL_LIMIT: Duration = Duration::from_secs(1800);
const SUITE_LIMIT: Duration = Duration::from_secs(1800);
/// The mount's region.
const SIZE: &str = "1GiB";

/// What pjdfstest is told of the file system. Users that every Debian has stand in for its own.
const PJDFSTEST: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nstat_st_birthtime = {}\nutime_now = {}\n\
                         utimensat = {}\n[settings]\nnaptime = 0.001\nallow_remount = false\n[dummy_auth]\n\
                         entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
/// What fsx does beyond its defaults.
const FSX: &str = "[weights]\nclose_open = 1\ninvalidate = 1\ncopy_file_range = 5\nfallocate = 2\npunch_hole = 3\nfsync = 2\n\
                   fdatasync = 2\ntruncate = 5\n";

const GRAMMAR: Grammar = Grammar { values: &["rounds", "operations", "seed"], switches: &[], words_max: 0 };

/// `cargo xtask suites`.
///
/// # Errors
/// [`Error::Environment`] where nothing can be mounted or installed; [`Error::Found`] where an assertion fails.
pub(crate) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Error> {
    let args = GRAMMAR.parse(line)?;
    let rounds = args.number("rounds")?.unwrap_or(ROUNDS);
    let operations = args.number("operations")?.unwrap_or(OPERATIONS);
    let seed = args.number("seed")?.unwrap_or_else(fresh_seed);
    let binary = PathBuf::from(crash::build(workspace, &["--release"])?);
    let programs = install(workspace)?;
    println!(
        "again with: cargo xtask suites --rounds {rounds} --operations {operations} --seed {seed}\n\
         pjdfstest, on a mount with allow_other:"
    );
    let folder = Folder::within(std::env::temp_dir())?;
    let work = folder.path();
    let mount = Mount::start(&binary, work, "allow_other")?;
    let outcome = pjdfstest(&programs, work, &mount.point);
    mount.end(&binary)?;
    outcome?;
    for round in 0..rounds {
        let options = if round % 2 == 0 { "allow_other" } else { "allow_other,writeback" };
        println!("fsx, round {round}: {operations} operations, -o {options}");
        let mount = Mount::start(&binary, work, options)?;
        let outcome = fsx(&programs, work, &mount.point, operations, seed.wrapping_add(round));
        mount.end(&binary)?;
        outcome?;
    }
    println!("all assertions hold");
    Ok(())
}

fn install(workspace: &Workspace) -> Result<PathBuf, Error> {
    let folder = workspace.target.join(FOLDER);
    let mut cargo = process::cargo();
    cargo.args(["install", "--quiet", "--locked", "--root"]).arg(&folder).args(PROGRAMS);
    process::must(&mut cargo, Keep::Nothing, INSTALL_LIMIT)?;
    Ok(folder.join("bin"))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|source| Error::file("write", path, source))
}

fn pjdfstest(programs: &Path, work: &Path, point: &Path) -> Result<(), Error> {
    let (settings, beside) = (work.join("pjdfstest.toml"), work.join("beside"));
    write(&settings, PJDFSTEST)?;
    std::fs::create_dir_all(&beside).map_err(|source| Error::file("create", &beside, source))?;
    let mut suite = Command::new(programs.join("pjdfstest"));
    suite.arg("-c").arg(settings).arg("-p").arg(point).arg("-s").arg(beside);
    let finished = process::run(&mut suite, Keep::Stdout, SUITE_LIMIT)?;
    let summary = summary_of(&finished.stdout);
    println!("  {}", summary.unwrap_or("no summary"));
    if finished.success && summary.is_some() {
        return Ok(());
    }
    print!("{}", finished.stdout);
    Err(Error::Found(format!("pjdfstest: {}", finished.ending)))
}

/// The last line that counts tests.
fn summary_of(printed: &str) -> Option<&str> {
    printed.lines().rev().map(str::trim).find(|line| line.contains("passed") && line.contains("failed"))
}

fn fsx(programs: &Path, work: &Path, point: &Path, operations: u64, seed: u64) -> Result<(), Error> {
    let settings = work.join("fsx.toml");
    write(&settings, FSX)?;
    let mut suite = Command::new(programs.join("fsx"));
    suite.args(["-q", "-N", &operations.to_string(), "-S", &seed.to_string(), "-f"]).arg(settings);
    suite.arg("-P").arg(work).arg(point.join("fsx"));
    let finished = process::run(&mut suite, Keep::Both, SUITE_LIMIT)?;
    if finished.success {
        return Ok(());
    }
    print!("{}{}", finished.stdout, finished.stderr);
    Err(Error::Found(format!("fsx with seed {seed}: {}", finished.ending)))
}

/// A mount for one suite, with a region of its own.
struct Mount {
    point: PathBuf,
    region: PathBuf,
    child: Child,
}

impl Mount {
    fn start(binary: &Path, work: &Path, options: &str) -> Result<Self, Error> {
        let (point, region) = (work.join("mount"), work.join("region"));
        std::fs::create_dir_all(&point).map_err(|source| Error::file("create", &point, source))?;
        let mut command = Command::new(binary);
        command.args(["fs", "mount"]).arg(&point).arg("--dir").arg(&region);
        command.args(["--size", SIZE, "-o", options]).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|source| Error::file("start", binary, source))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            // An error means the same as an end: nothing is mounted.
            let _ = BufReader::new(out).read_line(&mut line);
        }
        if line.starts_with("mounted:") {
            return Ok(Self { point, region, child });
        }
        // It has said why on standard error.
        let _ = child.wait();
        Err(Error::Found("nothing is mounted".to_owned()))
    }

    /// Unmounts, and checks the region.
    fn end(mut self, binary: &Path) -> Result<(), Error> {
        let id = self.child.id().to_string();
        process::must(Command::new("kill").args(["-TERM", &id]), Keep::Nothing, SUITE_LIMIT)?;
        let ended = self.child.wait().map_err(|source| Error::file("wait for", binary, source))?;
        let mut check = Command::new(binary);
        let checked = process::run(check.arg("check").arg(&self.region), Keep::Stdout, SUITE_LIMIT)?;
        let _ = std::fs::remove_dir_all(&self.region);
        match (ended.success(), checked.success) {
            (true, true) => Ok(()),
            (false, _) => Err(Error::Found(format!("the mount ended with {ended}"))),
            (true, false) => Err(Error::Found(format!("`landfall check` finds:\n{}", checked.stdout))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_the_last_line_that_counts() {
        let printed = "a::passed_failed ok\n\nTests: 1 failed, 2 skipped, 3 passed, 6 total\ndone\n";
        assert_eq!(summary_of(printed), Some("Tests: 1 failed, 2 skipped, 3 passed, 6 total"));
        assert_eq!(summary_of("nothing\n"), None);
    }
}
