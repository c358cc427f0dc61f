//! The workspace's test programs: built once, run by several steps.
//!
//! Cargo builds all of them in one call; each step then runs its share directly. If each step selected packages through
//! cargo, the features of shared dependencies would change and most crates would be built again.

use super::tally::Tally;
use crate::error::Error;
use crate::json::{self, Json, Members};
use crate::process::{self, Finished, Keep};
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How the names of fuzz targets, or of their files, begin.
pub(crate) const FUZZ_PREFIX: &str = "fuzz_";
/// The package and the program that are shipped.
const BINARY: &str = "landfall";
/// The packages whose `tests` start real programs.
const END_TO_END: [&str; 2] = [BINARY, "landfall-bench"];
/// Time limit for listing the tests of one program.
const LIST_LIMIT: Duration = Duration::from_secs(20);

/// What cargo built.
#[derive(Debug, Default)]
pub(crate) struct Suite {
    /// Test programs, by package and target.
    pub(crate) programs: Vec<Program>,
    /// The shipped program, in the same profile.
    pub(crate) binary: Option<PathBuf>,
}

/// One test program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Program {
    /// Its package.
    pub(crate) package: String,
    /// Kind of target: `lib`, `bin`, `test`, `example`, `bench`.
    pub(crate) kind: String,
    /// Name of the target.
    pub(crate) target: String,
    /// The executable.
    pub(crate) path: PathBuf,
    /// The working directory of the tests: the package's folder.
    folder: PathBuf,
}

impl Suite {
    /// Builds all tests of the workspace, in the profile for tests.
    ///
    /// # Errors
    /// [`Error::Program`] where they do not compile within the limit.
    pub(crate) fn build(workspace: &Workspace, limit: Duration) -> Result<Self, Error> {
        let start = Instant::now();
        let mut suite = Self::default();
        suite.add(&["test", "--workspace", "--no-run"], workspace, limit)?;
        if suite.binary.is_none() {
            // Cargo builds the binary with the tests only if its package has integration tests.
            let left = limit.saturating_sub(start.elapsed());
            suite.add(&["build", "--workspace", "--bin", BINARY], workspace, left)?;
        }
        suite.programs.sort();
        println!("  built {} test programs in {:.1} s", suite.programs.len(), start.elapsed().as_secs_f64());
        Ok(suite)
    }

    /// Runs cargo, and adds what it built.
    fn add(&mut self, arguments: &[&str], workspace: &Workspace, limit: Duration) -> Result<(), Error> {
        let mut cargo = process::cargo();
        cargo.args(arguments).args(["--message-format", "json-render-diagnostics"]);
        let printed = process::must(cargo.current_dir(&workspace.root), Keep::Stdout, limit)?.stdout;
        for line in printed.lines().filter(|line| line.contains("\"compiler-artifact\"")) {
            self.take(&json::parse(line)?, workspace);
        }
        Ok(())
    }

    fn take(&mut self, artifact: &Json, workspace: &Workspace) {
        let Some(path) = artifact.text("executable") else { return };
        let Some(program) = Program::read(artifact, path, workspace) else { return };
        let test = artifact.get("profile").and_then(|profile| profile.get("test"));
        if test == Some(&Json::Bool(true)) {
            self.programs.push(program);
        } else if program.kind == "bin" && program.target == BINARY {
            self.binary = Some(program.path);
        }
    }

    /// The tests that start the shipped program.
    pub(crate) fn end_to_end(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(|program| program.is_end_to_end())
    }

    /// All other tests, without fuzz programs.
    pub(crate) fn inner(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(|program| !program.is_end_to_end() && !program.is_fuzz())
    }

    /// Runs a program's tests until `deadline`. The binary's path is passed in the environment variable that cargo uses
    /// for it.
    ///
    /// # Errors
    /// [`Error::Environment`] where it cannot be started.
    pub(crate) fn run(
        &self,
        program: &Program,
        arguments: &[&str],
        variables: &[(&str, String)],
        deadline: Instant,
    ) -> Result<Finished, Error> {
        let mut command = program.command();
        command.args(arguments).arg("--show-output");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if let Some(binary) = &self.binary {
            command.env("CARGO_BIN_EXE_landfall", binary);
        }
        process::run(&mut command, Keep::Both, deadline.saturating_duration_since(Instant::now()))
    }
}

impl Program {
    fn read(artifact: &Json, path: &str, workspace: &Workspace) -> Option<Self> {
        let manifest = Path::new(artifact.text("manifest_path")?);
        let package = workspace.packages.iter().find(|package| package.manifest == manifest)?;
        let target = artifact.get("target")?;
        let Some(Json::String(kind)) = target.list("kind").first() else { return None };
        Some(Self {
            package: package.name.clone(),
            kind: kind.clone(),
            target: target.text("name")?.to_owned(),
            path: PathBuf::from(path),
            folder: package.folder().to_path_buf(),
        })
    }

    fn is_end_to_end(&self) -> bool {
        END_TO_END.contains(&self.package.as_str()) && self.kind == "test" && !self.is_fuzz()
    }

    /// Whether all of its tests are fuzz targets: a file `tests/fuzz_*.rs`.
    pub(crate) fn is_fuzz(&self) -> bool {
        self.kind == "test" && self.target.starts_with(FUZZ_PREFIX)
    }

    /// The program's name in reports.
    pub(crate) fn title(&self) -> String {
        match self.kind.as_str() {
            "test" => format!("{} tests/{}", self.package, self.target),
            kind => format!("{} {kind}", self.package),
        }
    }

    /// The names of its tests that contain `filter`.
    ///
    /// # Errors
    /// [`Error::Program`] where the program cannot list them.
    pub(crate) fn list(&self, filter: &str) -> Result<Vec<String>, Error> {
        let mut command = self.command();
        let listed = process::must(command.args(["--list", filter]), Keep::Both, LIST_LIMIT)?.stdout;
        Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Prints the result of a test program, with its whole output where it failed. Returns the counts.
pub(crate) fn report(title: &str, finished: &Finished, verbose: bool) -> Tally {
    let tally = Tally::read(&finished.stdout, &finished.stderr, finished.success);
    let mut text = String::new();
    if verbose || !finished.success {
        text = format!("{}{}", finished.stdout, finished.stderr);
    }
    if !finished.success {
        text += &format!("  {title} {}\n", finished.ending);
    }
    let Tally { passed, failed, skipped, .. } = tally;
    let took = finished.took.as_secs_f64();
    // One call: another program's result is not printed in between.
    println!("{text}  {title:<52} {passed:>4} ok {failed:>3} bad {skipped:>3} skip {took:>7.1} s");
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn suite(lines: &[&str]) -> Suite {
        let package = |name: &str, manifest: &str| Package {
            name: name.into(),
            manifest: manifest.into(),
            ..Package::default()
        };
        let workspace = Workspace {
            root: "/x".into(),
            target: "/x/target".into(),
            packages: vec![package("landfall", "/x/l/Cargo.toml"), package("landfall-kv", "/x/k/Cargo.toml")],
        };
        let mut suite = Suite::default();
        for line in lines {
            suite.take(&json::parse(line).unwrap(), &workspace);
        }
        suite
    }

    fn artifact(manifest: &str, kind: &str, test: bool, executable: &str) -> String {
        let target = format!(r#"{{"kind":["{kind}"],"name":"landfall"}}"#);
        format!(
            r#"{{"manifest_path":"{manifest}","target":{target},"profile":{{"test":{test}}},"executable":{executable}}}"#
        )
    }

    #[test]
    fn test_programs_and_the_binary_are_distinguished() {
        let suite = suite(&[
            &artifact("/x/k/Cargo.toml", "lib", true, "\"/t/kv\""),
            &artifact("/x/k/Cargo.toml", "lib", false, "null"),
            &artifact("/x/l/Cargo.toml", "bin", false, "\"/t/landfall\""),
            &artifact("/x/l/Cargo.toml", "bin", true, "\"/t/unit\""),
            &artifact("/x/l/Cargo.toml", "test", true, "\"/t/e2e\""),
            &artifact("/x/k/Cargo.toml", "test", true, "\"/t/fuzz\"").replace("landfall\"}", "fuzz_keys\"}"),
            &artifact("/elsewhere/Cargo.toml", "lib", true, "\"/t/other\""),
        ]);
        let paths = |programs: Vec<&Program>| programs.iter().map(|p| p.path.clone()).collect::<Vec<_>>();
        assert_eq!(suite.binary, Some("/t/landfall".into()));
        assert_eq!(paths(suite.end_to_end().collect()), [PathBuf::from("/t/e2e")]);
        assert_eq!(suite.programs.iter().filter(|p| p.is_fuzz()).count(), 1);
        assert_eq!(paths(suite.inner().collect()), [PathBuf::from("/t/kv"), PathBuf::from("/t/unit")]);
    }

    #[test]
    fn tests_of_a_program_are_listed_by_name() {
        let program = Program {
            package: "xtask".to_owned(),
            kind: "bin".to_owned(),
            target: "xtask".to_owned(),
            path: std::env::current_exe().unwrap(),
            folder: std::env::current_dir().unwrap(),
        };
        let listed = program.list("listed_by_name").unwrap();
        assert_eq!(listed, ["ci::suite::tests::tests_of_a_program_are_listed_by_name"]);
    }
}
