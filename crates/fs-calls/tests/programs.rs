//! Real programs with the library, which answers from the files themselves: they do exactly what they do without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Random programs that run.
const SEEDS: u64 = 12;

/// Whether a program is installed. Prints SKIP if not.
#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
fn has(program: &str) -> bool {
    let is_installed = Command::new(program).arg("--version").output().is_ok();
    if !is_installed {
        eprintln!("SKIP: {program}: not installed");
    }
    is_installed
}

/// The library, which cargo builds beside the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(2).unwrap();
    let library = target.join("examples/libmirror.so");
    assert!(library.exists(), "{}: cargo builds examples for tests", library.display());
    library
}

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    output
}

/// A program with the library. `refuses`: the library passes on one of so many calls.
fn preloaded<'c>(command: &'c mut Command, dir: &Path, refuses: u64) -> &'c mut Command {
    command.env("LD_PRELOAD", library()).env("MIRROR_DIR", dir).env("MIRROR_REFUSES", refuses.to_string())
}

/// Runs a program with the library, which says at its end what it has answered.
fn with_library(command: &mut Command, dir: &Path, refuses: u64) -> Output {
    output(preloaded(command, dir, refuses).env("LANDFALL_FS_STATS", "1"))
}

/// Calls that the process itself was answered, as it says.
fn answered(output: &Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rfind(|line| line.contains("calls answered in the process")).expect("a line");
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

fn compiled(dir: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    let program = dir.join(name);
    let mut cc = Command::new("cc");
    cc.args([
        "-std=gnu11",
        "-O1",
        "-D_FORTIFY_SOURCE=2",
        "-Wall",
        "-Wno-nonnull",
        "-Wno-unused-result",
        "-pthread",
    ]);
    output(cc.arg(source).arg("-o").arg(&program));
    program
}

/// Runs a program in two directories, without the library and with it. Returns what it has made of `file`, and said.
fn both_ways(place: &Path, run: impl Fn(&Path) -> Command) -> [[String; 2]; 2] {
    ["without", "with"].map(|name| {
        let dir = place.join(name);
        fs::create_dir(&dir).unwrap();
        let mut command = run(&dir);
        let said = match name {
            "without" => output(&mut command),
            _ => output(preloaded(&mut command, &dir, 0)),
        };
        let made = fs::read(dir.join("file")).unwrap_or_default();
        fs::remove_dir_all(&dir).unwrap();
        [&made, &said.stdout].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    })
}

/// The C library's own calls on its standard files go past the library.
#[test]
fn what_the_c_library_writes_and_reads_on_standard_files_is_where_it_belongs() {
    if !has("cc") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compiled(place.path(), "standard");
    for what in ["output", "direct", "input", "closed", "threads"] {
        let run = |dir: &Path| {
            let mut command = Command::new(&program);
            command.arg(dir.join("file")).arg(what);
            command
        };
        let [without, with] = both_ways(place.path(), run);
        assert_eq!(with, without, "{what}");
    }
}

#[test]
fn shells_redirect_what_they_and_their_children_write() {
    if !has("bash") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    for script in [
        "{ echo a; /bin/echo b; } > file",
        "exec > file; echo a; /bin/echo b; echo c; (echo d); printf '%s\\n' e",
        "for i in 1 2 3; do echo $i; /bin/echo $i; done >> file; while read x; do echo got $x; done < file",
        "exec 5<> file; echo a >&5; /bin/echo b >&5; echo c >&5; cat <&5; exec 5>&-",
        "f() { echo $1; /bin/echo $1; }; f 1 > file; f 2 >> file 2>&1; { f 3; f 4 >&2; } 2>> file",
    ] {
        let run = |dir: &Path| {
            let mut command = Command::new("bash");
            command.args(["-c", script]).current_dir(dir);
            command
        };
        let [without, with] = both_ways(place.path(), run);
        assert_eq!(with, without, "{script}");
    }
}

/// `read`, `write` and `fsync` are cancellation points.
#[test]
fn threads_that_read_and_write_can_be_cancelled() {
    if !has("cc") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compiled(place.path(), "standard");
    let mut command = Command::new(&program);
    command.arg(place.path().join("file")).arg("cancel");
    assert!(answered(&with_library(&mut command, place.path(), 0)) > 0);
}

#[test]
fn random_programs_do_with_the_library_what_they_do_without_it() {
    if !has("cc") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let program = compiled(place.path(), "acts");
    for seed in 1..=SEEDS {
        let dirs = ["without", "with"].map(|name| place.path().join(format!("{name}-{seed}")));
        dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let run = |dir: &Path| {
            let mut command = Command::new(&program);
            command.arg(dir).arg(seed.to_string());
            command
        };
        let without = output(&mut run(&dirs[0]));
        let with = with_library(&mut run(&dirs[1]), &dirs[1], seed % 4 * 3);
        assert!(answered(&with) > 20, "seed {seed}: the library answers");
        let [without, with] = [&without, &with].map(|output| String::from_utf8_lossy(&output.stdout));
        for (number, (without, with)) in without.lines().zip(with.lines()).enumerate() {
            assert_eq!(with, without, "seed {seed}, line {number}");
        }
        for name in ["file", "other"] {
            let [without, with] = dirs.each_ref().map(|dir| fs::read(dir.join(name)).unwrap_or_default());
            assert!(without == with, "seed {seed}: {name} has other bytes");
        }
    }
}

#[test]
fn sqlite_works_on_files_that_the_library_answers_for() {
    if !has("sqlite3") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("database");
    let make = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM \
                n WHERE i < 5000) INSERT INTO t SELECT i, 'text ' || i FROM n; UPDATE t SET b = b || 'x' WHERE a % 3 = 0; \
                DELETE FROM t WHERE a % 5 = 0; VACUUM;";
    let made = with_library(Command::new("sqlite3").arg(&database).arg(make), dir.path(), 5);
    assert!(answered(&made) > 100);
    let ask = "PRAGMA integrity_check; SELECT count(*), sum(length(b)) FROM t;";
    let seen = with_library(Command::new("sqlite3").arg(&database).arg(ask), dir.path(), 0);
    let without = output(Command::new("sqlite3").arg(&database).arg(ask));
    assert_eq!(String::from_utf8_lossy(&seen.stdout), String::from_utf8_lossy(&without.stdout));
    assert!(String::from_utf8_lossy(&without.stdout).starts_with("ok\n4000|"));
}

#[test]
fn tools_copy_files_through_the_library() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two, three] = ["one", "two", "three"].map(|name| dir.path().join(name));
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|index| (index / 7 % 251) as u8).collect();
    fs::write(&one, &bytes).unwrap();
    let (input, target) = (format!("if={}", one.display()), format!("of={}", two.display()));
    let dd = with_library(
        Command::new("dd").args([&input, &target]).args(["bs=4321", "conv=fsync"]),
        dir.path(),
        7,
    );
    assert!(answered(&dd) > 0);
    assert!(fs::read(&two).unwrap() == bytes);
    with_library(Command::new("cp").arg(&two).arg(&three), dir.path(), 0);
    assert!(fs::read(&three).unwrap() == bytes);
    let script = format!("cat '{}' >> '{}'; head -c 5 '{}'", one.display(), three.display(), three.display());
    let shell = with_library(Command::new("sh").args(["-c", &script]), dir.path(), 0);
    assert_eq!(shell.stdout, &bytes[..5]);
    assert!(fs::read(&three).unwrap() == [&bytes[..], &bytes].concat());
}
