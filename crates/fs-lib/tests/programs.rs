//! Real programs with the library, on a mount.

use landfall_fuse::{Unmount, unmount};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use tempfile::TempDir;

/// Random programs that run.
const SEEDS: u64 = 20;
/// How often programs change a file in turn until the library has its turns.
const ATTEMPTS: u64 = 20;
/// Bytes of a line that `steps append` writes.
const LINE_BYTES: usize = 100;

/// The variable that says when the library asks for a lease.
const LEASE_AFTER: &str = "LANDFALL_FS_LEASE_AFTER";

#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
fn skip(what: &str) {
    eprintln!("SKIP: {what}");
}

/// Whether a program is installed. Says SKIP if not.
fn has(program: &str) -> bool {
    let is_installed = Command::new(program).arg("--version").output().is_ok();
    if !is_installed {
        skip(&format!("{program}: not installed"));
    }
    is_installed
}

/// The folder into which cargo builds.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

fn library() -> PathBuf {
    let places = [built().join("deps"), built()];
    let found = places.iter().map(|place| place.join("liblandfall_files.so")).find(|path| path.exists());
    found.expect("cargo builds all kinds of the library for its tests")
}

/// A region in memory, mounted by a process of its own. It is unmounted when this is dropped.
struct Mounted {
    place: TempDir,
    serving: Option<(Child, ChildStdin)>,
    /// The server has a namespace of processes of its own.
    is_apart: bool,
}

/// Starts a program in a namespace of processes of its own, which ends with it.
const APART: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--"];

impl Mounted {
    fn new() -> Option<Self> {
        Self::with_server(false)
    }

    fn with_server(is_apart: bool) -> Option<Self> {
        let place = tempfile::tempdir_in("/dev/shm").ok();
        if place.is_none() || fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
            skip("a FUSE mount of a region in memory: there is no /dev/fuse or /dev/shm");
        }
        let mut mounted = Self { place: place?, serving: None, is_apart };
        fs::create_dir(mounted.point()).unwrap();
        fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
        mounted.start();
        Some(mounted)
    }

    fn point(&self) -> PathBuf {
        self.place.path().join("point")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.point().join(name)
    }

    fn start(&mut self) {
        let server = built().join("examples/mount_for_library");
        let mut command = if self.is_apart { apart(&server) } else { Command::new(&server) };
        command.arg(self.point()).arg(self.place.path().join("region")).args(["192", "socket"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        self.serving = Some((child, stdin));
    }

    fn kill(&mut self) {
        if let Some((mut child, _)) = self.serving.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let _ = unmount(&self.point(), Unmount::Lazily);
    }

    /// A program with the library.
    fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("LANDFALL_FS_STATS", "1");
        command
    }

    /// A C program beside the mount.
    fn compiled(&self, source: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let program = self.place.path().join(source.file_stem().unwrap());
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wno-nonnull", "-Wno-unused-result"]);
        output(cc.arg("-pthread").arg(source).arg("-o").arg(&program));
        program
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.kill();
    }
}

fn apart(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(APART[0]);
    command.args(&APART[1..]).arg(program);
    command
}

/// Whether there may be namespaces of processes. Says SKIP if not.
fn has_namespaces() -> bool {
    let is_possible = apart("true").output().is_ok_and(|output| output.status.success());
    if !is_possible {
        skip("a namespace of processes: not root, or no unshare");
    }
    is_possible
}

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    output
}

/// Calls that were answered in the process, as it says.
fn answered(output: &Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rfind(|line| line.contains("calls answered in the process")).expect("a line");
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn random_programs_do_with_the_library_what_they_do_without_it() {
    let Some(mounted) = Mounted::new().filter(|_| has("cc")) else { return };
    let program = mounted.compiled("../fs-calls/tests/programs/acts.c");
    let mut total = 0;
    for seed in 1..=SEEDS {
        let dirs = ["without", "with"].map(|name| mounted.at(&format!("{name}-{seed}")));
        dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let seed_text = seed.to_string();
        let without = output(Command::new(&program).arg(&dirs[0]).arg(&seed_text));
        let with = output(mounted.program(&program).env(LEASE_AFTER, "0").arg(&dirs[1]).arg(&seed_text));
        total += answered(&with);
        let [without, with] = [&without, &with].map(|output| String::from_utf8_lossy(&output.stdout));
        for (number, (without, with)) in without.lines().zip(with.lines()).enumerate() {
            assert_eq!(with, without, "seed {seed}, line {number}");
        }
        for name in ["file", "other"] {
            let [without, with] = dirs.each_ref().map(|dir| fs::read(dir.join(name)).unwrap_or_default());
            assert!(without == with, "seed {seed}: {name} has other bytes");
        }
    }
    // After a mapping the kernel answers for the file.
    assert!(total > 50, "the library answers: {total} calls");
}

/// The library's descriptors are the program's, too: it may close them, and have others with their numbers.
#[test]
fn a_program_may_close_all_descriptors_and_use_their_numbers() {
    let Some(mounted) = Mounted::new().filter(|_| has("cc")) else { return };
    let steps = mounted.compiled("tests/programs/steps.c");
    for (name, how) in [("one", "0"), ("two", "1")] {
        let mut command = mounted.program(&steps);
        command.env(LEASE_AFTER, "0").arg("closes").arg(mounted.at(name)).arg(how);
        // What it has answered by then it does not say: that descriptor is closed, too.
        let closed = output(&mut command);
        assert!(closed.stdout.is_empty() && closed.stderr.is_empty(), "{name}");
    }
}

#[test]
fn sqlite_and_tools_work_on_a_mount_with_the_library() {
    let Some(mounted) = Mounted::new().filter(|_| has("sqlite3")) else { return };
    let database = mounted.at("database");
    let make = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM \
                n WHERE i < 5000) INSERT INTO t SELECT i, 'text ' || i FROM n; DELETE FROM t WHERE a % 5 = 0; VACUUM;";
    assert!(answered(&output(mounted.program("sqlite3").arg(&database).arg(make))) > 100);
    let ask = "PRAGMA integrity_check; SELECT count(*) FROM t;";
    for mut command in [mounted.program("sqlite3"), Command::new("sqlite3")] {
        let seen = output(command.arg(&database).arg(ask));
        assert_eq!(String::from_utf8_lossy(&seen.stdout), "ok\n4000\n");
    }
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|index| (index / 7 % 251) as u8).collect();
    let [one, two, three] = ["one", "two", "three"].map(|name| mounted.at(name));
    fs::write(&one, &bytes).unwrap();
    let names = [format!("if={}", one.display()), format!("of={}", two.display())];
    let dd = output(mounted.program("dd").args(names).args(["bs=4321", "conv=fsync"]));
    assert!(answered(&dd) > 200, "dd works on duplicates");
    output(mounted.program("cp").arg(&two).arg(&three));
    assert!(fs::read(&two).unwrap() == bytes && fs::read(&three).unwrap() == bytes);
}

#[test]
fn files_that_are_written_a_few_times_are_left_to_the_kernel() {
    let Some(mounted) = Mounted::new().filter(|_| has("cc")) else { return };
    let program = mounted.compiled("tests/programs/steps.c");
    let run = |name: &str, lines: usize| {
        let mut command = mounted.program(&program);
        command.arg("append").arg(mounted.at(name)).arg(lines.to_string()).arg("sync");
        answered(&output(&mut command))
    };
    assert_eq!(run("a letter", 3), 0, "a lease costs more than it saves");
    assert!(run("a log", 1000) > 1900, "a file that is written often is the library's");
    let copy = output(mounted.program("cp").arg(mounted.at("a log")).arg(mounted.at("a copy")));
    assert_eq!(answered(&copy), 0, "the kernel's pages are as quick to read");
    check_lines(&mounted.at("a copy"), 1000);
}

#[test]
fn a_program_with_the_library_and_one_without_it_change_one_file() {
    // The one with the library goes on alone in the end. The last hundred rounds of both are alike.
    const ROUNDS: [&str; 2] = ["400", "4000"];
    let Some(mounted) = Mounted::new().filter(|_| has("cc")) else { return };
    let program = mounted.compiled("tests/programs/steps.c");
    let change_both = |file: &Path| {
        let command = |mut command: Command, who: usize| {
            command.arg("slots").arg(file).args([&who.to_string(), ROUNDS[who]]);
            command
        };
        let without = command(Command::new(&program), 0).stdout(Stdio::null()).spawn().unwrap();
        let with = output(&mut command(mounted.program(&program), 1));
        assert!(without.wait_with_output().unwrap().status.success());
        let bytes = fs::read(file).unwrap();
        for (slot, bytes) in bytes.chunks(3000).enumerate() {
            let (last, who) = (384 + slot / 2, slot % 2);
            assert!(bytes.iter().all(|byte| usize::from(*byte) == who * 100 + last % 100 + 1), "slot {slot}");
        }
        answered(&with)
    };
    // A file that both have changed in turn too often is left to the kernel for longer than that takes, now and then.
    let mut counts = (0..ATTEMPTS).map(|attempt| change_both(&mounted.at(&format!("slots {attempt}"))));
    assert!(counts.any(|count| count > 0), "the library answers now and then");
}

#[test]
fn programs_with_the_library_and_without_it_append_to_one_file() {
    const LINES: usize = 500;
    let Some(mounted) = Mounted::new().filter(|_| has("cc")) else { return };
    let (program, file) = (mounted.compiled("tests/programs/steps.c"), mounted.at("log"));
    let append = |mut command: Command| {
        command.arg("append").arg(&file).arg(LINES.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let mut expected = 0;
    for round in 0..3 {
        // One after the other, then at the same time.
        let first = append(mounted.program(&program));
        let first = if round < 2 { first.wait_with_output().map(|_| None).unwrap() } else { Some(first) };
        let second = append(Command::new(&program));
        [first, Some(second)].into_iter().flatten().for_each(|child| {
            child.wait_with_output().unwrap();
        });
        expected += 2 * LINES;
        let bytes = fs::read(&file).unwrap();
        assert_eq!(bytes.len(), expected * LINE_BYTES, "round {round}: no line is lost");
    }
    let mut seen = vec![0; LINES];
    for line in fs::read(&file).unwrap().chunks(LINE_BYTES) {
        seen[String::from_utf8_lossy(line).trim_end().parse::<usize>().unwrap()] += 1;
    }
    assert!(seen.iter().all(|count| *count == 6), "each line is there as often as it was written");
}

#[test]
fn a_file_that_was_open_before_is_appended_to_at_the_end_that_a_library_has_made() {
    const LINES: usize = 60;
    let Some(mounted) = Mounted::new().filter(|_| has("cc")) else { return };
    let (program, file) = (mounted.compiled("tests/programs/steps.c"), mounted.at("log"));
    let mut log = fs::OpenOptions::new().append(true).create(true).open(&file).unwrap();
    let (mut expected, mut total) = (Vec::new(), 0);
    for _ in 0..3 {
        let line = [b'm'; 5000];
        log.write_all(&line).unwrap();
        expected.extend_from_slice(&line);
        let with = output(mounted.program(&program).arg("append").arg(&file).arg(LINES.to_string()));
        total += answered(&with);
        let lines = (0..LINES).map(|number| format!("{number:0width$}\n", width = LINE_BYTES - 1));
        lines.for_each(|line| expected.extend_from_slice(line.as_bytes()));
    }
    assert!(fs::read(&file).unwrap() == expected, "nothing is written over");
    assert!(total > 0, "the library answers");
}

/// Runs `steps append` until it has said that so many lines are there. Returns it, still running.
fn appending(mut command: Command, file: &Path, more: &[&str], until: usize) -> Child {
    command.arg("append").arg(file).arg("1000000").args(more).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reached = lines.map_while(Result::ok).find(|line| line.parse() == Ok(until));
    assert!(reached.is_some(), "the program ends before");
    child
}

/// The lines of a file are whole, and at least so many.
fn check_lines(file: &Path, least: usize) {
    let bytes = fs::read(file).unwrap();
    assert!(bytes.len() >= least * LINE_BYTES, "{} of {least} lines", bytes.len() / LINE_BYTES);
    for (number, line) in bytes.chunks(LINE_BYTES).enumerate() {
        assert_eq!(String::from_utf8_lossy(line), format!("{number:0width$}\n", width = LINE_BYTES - 1));
    }
}

#[test]
fn what_a_program_has_written_is_there_after_it_is_killed() {
    let Some(mounted) = Mounted::new().filter(|_| has("cc")) else { return };
    let program = mounted.compiled("tests/programs/steps.c");
    for (round, until) in [1, 700, 9000].into_iter().enumerate() {
        let file = mounted.at(&format!("lines {round}"));
        let mut child = appending(mounted.program(&program), &file, &[], until);
        child.kill().unwrap();
        child.wait().unwrap();
        check_lines(&file, until);
    }
}

#[test]
fn what_a_program_has_synced_is_there_after_the_server_is_killed() {
    let Some(mut mounted) = Mounted::new().filter(|_| has("cc")) else { return };
    let program = mounted.compiled("tests/programs/steps.c");
    for (round, until) in [3, 900].into_iter().enumerate() {
        let file = mounted.at(&format!("lines {round}"));
        let mut child = appending(mounted.program(&program), &file, &["sync"], until);
        mounted.kill();
        let _ = child.wait().unwrap();
        mounted.start();
        check_lines(&file, until);
    }
}

/// Listens as another user at the path of a mount's socket, and says what it receives.
const FOREIGN_SERVER: &str = "
import os, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
os.setgid(4321); os.setuid(4321)
server.listen(8)
print('listens', flush=True)
server.settimeout(10)
peer = server.accept()[0]
peer.settimeout(10)
print('received', len(peer.recv(4096)), flush=True)
";

/// Starts a program in a namespace in which no user has a number.
const NAMELESS: [&str; 3] = ["unshare", "--user", "--"];

#[test]
fn a_server_of_another_user_is_not_talked_to() {
    a_foreign_server_is_left_alone_by(&[]);
}

#[test]
fn a_server_is_not_talked_to_where_users_have_no_numbers() {
    let is_possible = Command::new(NAMELESS[0]).args(&NAMELESS[1..]).arg("true").output();
    if !is_possible.is_ok_and(|output| output.status.success()) {
        return skip("a namespace of users: there are none, or no unshare");
    }
    a_foreign_server_is_left_alone_by(&NAMELESS);
}

/// `before`: what starts the program.
fn a_foreign_server_is_left_alone_by(before: &[&str]) {
    let Some(mounted) = Mounted::new().filter(|_| has("python3")) else { return };
    if !rustix::process::geteuid().is_root() {
        return skip("a server of another user: not root");
    }
    let file = mounted.at("file");
    fs::write(&file, "bytes").unwrap();
    let mut socket = [0; 4096];
    let len = rustix::fs::getxattr(&file, "landfall.link", &mut socket).unwrap();
    let socket = String::from_utf8(socket[..len].to_vec()).unwrap();
    fs::remove_file(&socket).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", FOREIGN_SERVER, &socket]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = python.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "listens");
    let to = format!("of={}", file.display());
    let words: Vec<&str> = before.iter().copied().chain(["dd"]).collect();
    let mut copy = mounted.program(words[0]);
    copy.env(LEASE_AFTER, "0").args(&words[1..]);
    copy.args(["if=/dev/zero", "bs=5", "count=3", "conv=notrunc", "seek=1"]).arg(to);
    output(&mut copy);
    assert_eq!(fs::read(&file).unwrap(), b"bytes\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let received = lines.next().and_then(Result::ok).unwrap_or_default();
    assert_eq!(received, "received 0", "the connection was closed at once");
    server.wait().unwrap();
}

#[test]
fn a_program_in_a_namespace_of_processes_is_answered_in_its_process() {
    let Some(mounted) = Mounted::new().filter(|_| has_namespaces()) else { return };
    let mut copy = apart("env");
    copy.arg(format!("LD_PRELOAD={}", library().display())).args([
        "LANDFALL_FS_STATS=1",
        "dd",
        "if=/dev/zero",
    ]);
    copy.args(["bs=5000", "count=200"]).arg(format!("of={}", mounted.at("file").display()));
    assert!(answered(&output(&mut copy)) > 150, "the server has no number there, and is the user's own");
    assert!(fs::read(mounted.at("file")).unwrap() == vec![0; 1_000_000]);
}

#[test]
fn a_program_that_the_server_has_no_number_for_uses_the_mount() {
    if !has_namespaces() {
        return;
    }
    let Some(mounted) = Mounted::with_server(true) else { return };
    let to = format!("of={}", mounted.at("file").display());
    for _ in 0..2 {
        let copied = output(mounted.program("dd").args(["if=/dev/zero", "bs=5000", "count=200"]).arg(&to));
        assert_eq!(answered(&copied), 0, "the server could not know when it ends");
        assert!(fs::read(mounted.at("file")).unwrap() == vec![0; 1_000_000]);
    }
}
