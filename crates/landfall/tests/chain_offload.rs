//! Mounts that are processes of their own, at servers of a chain: `landfall serve --files-offload`. What happens to such a
//! process, or to the programs there, does not concern the server, and the other way round.

mod common;

use common::chain::{Chain, LIMIT};
use common::mounts::{Process, Site};
use common::{Place, Reply, Resp, Server, binary, can_mount, landfall, ok, signal, wait_until};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// A chain whose servers serve mounts of other processes.
struct Nodes {
    chain: Chain,
}

impl Nodes {
    /// `None` where FUSE mounts are not possible. All of them run.
    fn start(count: usize) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let mut chain = Chain::new(count, &["--capacity", "256MiB", "--workers", "2"]);
        for node in &mut chain.nodes {
            let socket = node.place.dir().join("offload.sock");
            node.flags = vec!["--files-offload".into(), socket.to_str().unwrap().into()];
        }
        chain.start_all();
        Some(Self { chain })
    }

    /// A process that mounts at a node, as soon as that serves mounts.
    fn host(&self, node: usize, flags: &[&str]) -> Host {
        let point = tempfile::tempdir().unwrap();
        let log = self.chain.nodes[node].place.path().join("host.log");
        let socket = self.chain.nodes[node].place.dir().join("offload.sock");
        let process = mount_at(&socket, point.path(), &log, flags);
        Host { process: Some(process), point, log, socket }
    }

    /// What a line of `INFO` says at a node.
    fn info(&self, node: usize, name: &str) -> Option<String> {
        info_of(self.chain.server(node), name)
    }

    /// The first node is killed, and removed. Returns what a mount of the next one has.
    fn read_at_next(&mut self, first: usize, next: usize, name: &str) -> Vec<u8> {
        self.chain.kill(first);
        self.chain.remove(first);
        self.chain.wait_until_in_step();
        let host = self.host(next, &[]);
        let found = fs::read(host.at(name)).unwrap();
        host.stop();
        found
    }

    /// Ends all nodes that run, the last one first, and checks every region.
    fn end(mut self, running: &[usize]) {
        self.chain.end(running);
    }
}

fn info_of(server: &Server, name: &str) -> Option<String> {
    let Reply::Bulk(text) = server.call(&["INFO"]) else { panic!("INFO") };
    let text = String::from_utf8(text).unwrap();
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}

/// Mounts as soon as the server does not refuse it any more.
fn mount_at(socket: &Path, point: &Path, log: &Path, flags: &[&str]) -> Process {
    let mounted = wait_until(LIMIT, || {
        let mut command = Command::new(binary());
        command.args(["fs", "mount"]).arg(point).arg("--offload").arg(socket).args(flags);
        Some(Process::start(&mut command, log)).filter(|process| process.announced.starts_with("mounted: "))
    });
    let process = mounted.unwrap_or_else(|| panic!("{}", fs::read_to_string(log).unwrap_or_default()));
    // The kernel asks once whether closing a file needs a request: children of this process close its files.
    drop(File::create(point.join("closed")).unwrap());
    fs::remove_file(point.join("closed")).unwrap();
    process
}

/// A process that holds a mount. What is mounted is unmounted at the end.
struct Host {
    process: Option<Process>,
    point: tempfile::TempDir,
    log: PathBuf,
    socket: PathBuf,
}

impl Host {
    fn at(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    fn signal(&self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal);
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Mounts again, in the same place. What was mounted there has ended.
    fn start_again(&mut self, flags: &[&str]) {
        let is_gone =
            wait_until(LIMIT, || fs::read_dir(self.point.path()).ok()?.next().is_none().then_some(()));
        assert!(is_gone.is_some(), "it stays mounted");
        self.process = Some(mount_at(&self.socket, self.point.path(), &self.log, flags));
    }

    fn stop(self) {
        self.stop_with(true);
    }

    /// Stops it; `in_order`: everything is durable.
    fn stop_with(mut self, in_order: bool) {
        let process = self.process.take().expect("it runs");
        process.signal("TERM");
        assert_eq!(process.wait().success(), in_order, "{}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // One that is stopped would not end.
        self.process.iter().for_each(|process| process.signal("CONT"));
        let _ = landfall_fuse::unmount(self.point.path(), landfall_fuse::Unmount::Lazily);
    }
}

/// Bytes of a block that says its number.
const BLOCK: usize = 16 << 10;

fn block(number: u64) -> Vec<u8> {
    let mut bytes = common::pattern(number, BLOCK);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The numbers of the blocks of a file, which are whole.
fn blocks_of(bytes: &[u8]) -> Vec<u64> {
    assert_eq!(bytes.len() % BLOCK, 0, "a torn append");
    let number = |bytes: &[u8]| {
        let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        assert!(bytes == block(number), "block {number}");
        number
    };
    bytes.chunks(BLOCK).map(number).collect()
}

/// A program that appends blocks and makes each durable, until it is told to end, or fails.
struct Appender {
    over: Arc<AtomicBool>,
    /// Blocks that are durable.
    durable: Arc<AtomicU64>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Appender {
    /// `retries`: `fsync` may say once that something was lost; then the block is appended again.
    fn start(path: &Path, retries: bool) -> Self {
        let (over, durable) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        let (is_over, done) = (Arc::clone(&over), Arc::clone(&durable));
        let append = move || {
            while !is_over.load(Ordering::Acquire) {
                let number = done.load(Ordering::Acquire) + 1;
                file.write_all(&block(number))?;
                match file.sync_all() {
                    Ok(()) => done.store(number, Ordering::Release),
                    Err(error) if retries && error.raw_os_error() == Some(libc::EIO) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        Self { over, durable, thread: std::thread::spawn(append) }
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Waits until it has done some more.
    fn goes_on(&self) {
        let before = self.durable();
        let more = wait_until(LIMIT, || (self.durable() >= before + 5).then_some(()));
        assert!(more.is_some(), "it stands still at {before}");
    }

    /// Returns how many blocks are durable, and how it has ended.
    fn end(self) -> (u64, std::io::Result<()>) {
        self.over.store(true, Ordering::Release);
        let outcome = self.thread.join().unwrap();
        (self.durable.load(Ordering::Acquire), outcome)
    }
}

/// A client that writes keys all the time.
struct Setter {
    over: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Setter {
    fn start(mut resp: Resp) -> Self {
        let (over, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (is_over, count) = (Arc::clone(&over), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                assert_eq!(resp.call(&[b"SET", b"key", b"value"]).unwrap(), ok());
                count.fetch_add(1, Ordering::AcqRel);
            }
        });
        Self { over, done, thread }
    }

    fn goes_on(&self) {
        let before = self.done.load(Ordering::Acquire);
        let more = || (self.done.load(Ordering::Acquire) >= before + 5).then_some(());
        assert!(wait_until(LIMIT, more).is_some(), "keys are not acknowledged");
    }

    fn end(self) {
        self.over.store(true, Ordering::Release);
        self.thread.join().unwrap();
    }
}

/// The numbers from 1 on.
fn up_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

#[test]
fn a_host_that_dies_loses_nothing_durable_and_holds_nobody_up() {
    let Some(mut nodes) = Nodes::start(3) else { return };
    let (mut dying, other) = (nodes.host(0, &["--shared"]), nodes.host(0, &["--shared"]));
    let victim = Appender::start(&dying.at("victim"), false);
    let beside = Appender::start(&other.at("beside"), false);
    let setter = Setter::start(nodes.chain.resp(0));
    victim.goes_on();
    dying.kill();
    beside.goes_on();
    setter.goes_on();
    // Both are noticed by another thread of the server than those that serve it.
    wait_until(LIMIT, || victim.thread.is_finished().then_some(())).expect("its mount has ended");
    let (durable, failed) = victim.end();
    assert!(durable >= 5 && failed.is_err(), "its mount has ended");
    let is_gone = || nodes.info(0, "files_mounts").filter(|mounts| mounts == "1");
    assert!(wait_until(LIMIT, is_gone).is_some(), "{}", nodes.chain.words());
    dying.start_again(&["--shared"]);
    let again = Appender::start(&dying.at("again"), false);
    again.goes_on();
    beside.goes_on();
    let found = blocks_of(&fs::read(dying.at("victim")).unwrap());
    assert!(found.starts_with(&up_to(durable)), "{durable} are durable, and {} there", found.len());
    let (count, outcome) = beside.end();
    outcome.unwrap();
    assert_eq!(blocks_of(&fs::read(other.at("beside")).unwrap()), up_to(count));
    again.end().1.unwrap();
    setter.end();
    dying.stop();
    other.stop();
    for (first, next) in [(0, 1), (1, 2)] {
        assert_eq!(blocks_of(&nodes.read_at_next(first, next, "victim")), found, "node {next}");
    }
    nodes.end(&[2]);
}

/// A program of its own process that appends numbers through one descriptor, and says which are durable.
struct Program {
    child: Child,
    durable: Arc<AtomicU64>,
    follow: Option<JoinHandle<()>>,
}

/// Appends to the file `$1` by one descriptor. `sync` with a name is `fsync` of that file.
const PROGRAM: &str = r#"exec 3>>"$1"; n=0
while :; do n=$((n+1)); printf '%015d\n' $n >&3 || exit 1; sync "$1" || exit 1; echo $n; done"#;

impl Program {
    fn start(path: &Path) -> Self {
        let mut command = Command::new("bash");
        command.args(["-c", PROGRAM, "bash"]).arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (durable, lines) =
            (Arc::<AtomicU64>::default(), BufReader::new(child.stdout.take().unwrap()).lines());
        let known = Arc::clone(&durable);
        let follow = std::thread::spawn(move || {
            let numbers = lines.map_while(Result::ok).map(|line| line.parse().unwrap());
            numbers.for_each(|number| known.store(number, Ordering::Release));
        });
        Self { child, durable, follow: Some(follow) }
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    fn goes_on(&self) {
        let before = self.durable();
        let more = wait_until(LIMIT, || (self.durable() >= before + 5).then_some(()));
        assert!(more.is_some(), "the program stands still at {before}");
    }

    fn signal(&self, name: &str) {
        signal(&self.child, name);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.follow.take().into_iter().for_each(|follow| drop(follow.join()));
    }
}

#[test]
fn a_host_that_is_stopped_goes_on_where_it_was_and_holds_nobody_up() {
    let Some(mut nodes) = Nodes::start(3) else { return };
    let (stopped, other) = (nodes.host(0, &["--shared"]), nodes.host(0, &["--shared"]));
    let program = Program::start(&stopped.at("numbers"));
    let (beside, setter) = (Appender::start(&other.at("beside"), false), Setter::start(nodes.chain.resp(0)));
    program.goes_on();
    program.signal("STOP");
    stopped.signal("STOP");
    let silence = |nodes: &Nodes| nodes.chain.server(0).metric("landfall_files_mounts_silent");
    let noticed = wait_until(LIMIT, || (silence(&nodes) > 0.0).then_some(()));
    assert!(noticed.is_some(), "{}", nodes.chain.words());
    let shown = nodes.info(0, "files_mount0").unwrap();
    assert!(shown.starts_with("shared=1,silent_ms=") && !shown.contains("silent_ms=0,"), "{shown}");
    assert_eq!(nodes.info(0, "files_away_ms").as_deref(), Some("0"), "the other one is there");
    beside.goes_on();
    setter.goes_on();
    stopped.signal("CONT");
    program.signal("CONT");
    program.goes_on();
    let noticed = wait_until(LIMIT, || (silence(&nodes) == 0.0).then_some(()));
    assert!(noticed.is_some(), "{}", nodes.chain.words());
    let durable = program.durable();
    drop(program);
    beside.end().1.unwrap();
    setter.end();
    stopped.stop();
    other.stop();
    let found = String::from_utf8(nodes.read_at_next(0, 1, "numbers")).unwrap();
    let numbers: Vec<u64> = found.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, up_to(numbers.len() as u64));
    assert!(numbers.len() as u64 >= durable, "{durable} are durable, and {} there", numbers.len());
    nodes.end(&[1, 2]);
}

#[test]
fn mounts_go_on_when_the_first_server_is_killed_and_started_again() {
    let Some(mut nodes) = Nodes::start(3) else { return };
    let (host, other) = (nodes.host(0, &["--shared"]), nodes.host(0, &["--shared"]));
    let open = File::options().read(true).write(true).create_new(true).open(host.at("open")).unwrap();
    open.write_all_at(b"it has no name", 0).unwrap();
    fs::remove_file(host.at("open")).unwrap();
    open.sync_all().unwrap();
    let appender = Appender::start(&host.at("file"), true);
    let beside = Appender::start(&other.at("beside"), true);
    for _ in 0..3 {
        appender.goes_on();
        let next = nodes.chain.stand_by(0);
        nodes.chain.kill(0);
        let durable = appender.durable();
        nodes.chain.put(0, next.start().unwrap_or_else(|why| panic!("{why}")));
        appender.goes_on();
        beside.goes_on();
        assert!(appender.durable() > durable);
    }
    let mut content = [0; 14];
    open.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"it has no name");
    drop(open);
    for (appender, path) in [(appender, host.at("file")), (beside, other.at("beside"))] {
        let (durable, outcome) = appender.end();
        outcome.unwrap();
        let found = blocks_of(&fs::read(path).unwrap());
        assert!(found.is_sorted(), "{found:?}");
        // Of a block that was appended again the first one may be there, too.
        let mut once = found.clone();
        once.dedup();
        assert!(once == up_to(durable) && found.len() <= once.len() + 3, "{found:?}, {durable}");
    }
    let found = fs::read(host.at("file")).unwrap();
    host.stop();
    other.stop();
    nodes.chain.wait_until_in_step();
    assert!(nodes.read_at_next(0, 1, "file") == found);
    nodes.end(&[1, 2]);
}

#[test]
fn without_patience_calls_fail_until_the_first_server_is_back() {
    let Some(mut nodes) = Nodes::start(2) else { return };
    let host = nodes.host(0, &["--patience", "1"]);
    let file = File::create_new(host.at("file")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    file.sync_all().unwrap();
    nodes.chain.kill(0);
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    nodes.chain.start(0);
    let back = wait_until(LIMIT, || file.write_all_at(b"behind", 0).and_then(|()| file.sync_all()).ok());
    assert!(back.is_some(), "{}{}", nodes.chain.words(), host.log());
    drop(file);
    host.stop();
    assert_eq!(nodes.read_at_next(0, 1, "file"), b"behind");
    nodes.end(&[1]);
}

#[test]
fn a_replica_serves_no_mount_and_a_first_server_that_became_one_ends_its_mounts() {
    let Some(mut nodes) = Nodes::start(3) else { return };
    let mut host = nodes.host(0, &[]);
    let file = File::create_new(host.at("file")).unwrap();
    file.write_all_at(b"of the first", 0).unwrap();
    file.sync_all().unwrap();
    let point = tempfile::tempdir().unwrap();
    let refused = |nodes: &Nodes, node: usize| {
        let socket = nodes.chain.nodes[node].place.dir().join("offload.sock");
        let (point, socket) = (point.path().to_str().unwrap(), socket.to_str().unwrap().to_owned());
        let output = landfall(&["fs", "mount", point, "--offload", &socket]);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&nodes, 1);
    assert!(said.contains("only the first server of a chain serves mounts, and that is a, not b"), "{said}");
    nodes.chain.kill(0);
    nodes.chain.remove(0);
    nodes.chain.wait_until_in_step();
    let next = nodes.host(1, &[]);
    assert_eq!(fs::read(next.at("file")).unwrap(), b"of the first");
    fs::write(next.at("file"), b"of the second").unwrap();
    File::open(next.at("file")).unwrap().sync_all().unwrap();
    nodes.chain.add(0);
    nodes.chain.start(0);
    assert!(!host.process.take().unwrap().wait().success(), "others have changed the files");
    assert!(host.log().contains("that is b, not a"), "{}", host.log());
    assert!(file.sync_all().is_err(), "its mount has ended");
    nodes.chain.wait_until_in_step();
    next.stop();
    drop(file);
    nodes.chain.kill(1);
    nodes.chain.remove(1);
    nodes.chain.kill(2);
    nodes.chain.remove(2);
    nodes.chain.wait_until_in_step();
    let again = nodes.host(0, &[]);
    assert_eq!(fs::read(again.at("file")).unwrap(), b"of the second");
    again.stop();
    nodes.end(&[0]);
}

#[test]
fn a_server_that_is_removed_under_a_mount_ends_and_serves_it_no_more() {
    let Some(mut nodes) = Nodes::start(2) else { return };
    let host = nodes.host(0, &["--patience", "1"]);
    fs::write(host.at("file"), b"before").unwrap();
    File::open(host.at("file")).unwrap().sync_all().unwrap();
    nodes.chain.remove(0);
    let refused = wait_until(LIMIT, || {
        let error = fs::write(host.at("late"), b"nobody has it").err();
        let error = error.or_else(|| File::open(host.at("late")).and_then(|late| late.sync_all()).err());
        error.map(|error| error.raw_os_error())
    });
    assert_eq!(refused, Some(Some(libc::EIO)), "{}", nodes.chain.words());
    let next = nodes.host(1, &[]);
    assert_eq!(fs::read(next.at("file")).unwrap(), b"before");
    next.stop();
    let left = || nodes.chain.words().contains("files are not served any more").then_some(());
    assert!(wait_until(LIMIT, left).is_some(), "{}", nodes.chain.words());
    // Something late may have come to the server before it knew.
    let has_late = nodes.chain.words().contains("is not left clean");
    host.stop_with(!has_late);
    assert!(nodes.chain.take(0).stop().success(), "{}", nodes.chain.words());
    nodes.end(&[1]);
}

#[test]
fn a_mount_does_not_resume_when_a_server_that_mounts_itself_has_changed_the_files() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let socket = site.socket();
    let offload = ["--files-offload", socket.to_str().unwrap(), "--capacity", "128MiB"];
    let server = site.place.start(&offload);
    let mount = site.mount(&[]);
    fs::write(site.at("file"), b"by another process").unwrap();
    File::open(site.at("file")).unwrap().sync_all().unwrap();
    server.kill();
    let second = tempfile::tempdir().unwrap();
    let own = site.place.start(&["--files", second.path().to_str().unwrap(), "--capacity", "128MiB"]);
    fs::write(second.path().join("file"), b"by itself").unwrap();
    assert!(own.stop().success());
    let server = site.place.start(&offload);
    assert!(!mount.wait().success());
    assert!(site.place.log().contains("the files were mounted elsewhere since"), "{}", site.place.log());
    let mount = site.mount(&[]);
    assert_eq!(fs::read(site.at("file")).unwrap(), b"by itself");
    mount.stop();
    assert!(server.stop().success());
}

#[test]
fn a_server_without_a_chain_serves_mounts_beside_keys_and_says_which() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let socket = site.socket();
    let start = || site.place.start(&["--files-offload", socket.to_str().unwrap(), "--capacity", "128MiB"]);
    let server = start();
    assert!(server.lines.contains(&format!("files: {}", socket.display())), "{:?}", server.lines);
    assert_eq!(info_of(&server, "files_mounts").as_deref(), Some("0"));
    let mount = site.mount(&[]);
    assert_eq!(server.metric("landfall_files_mounts"), 1.0);
    let shown = info_of(&server, "files_mount0").unwrap();
    assert!(shown.ends_with(&format!("mountpoint={}", site.point.path().display())), "{shown}");
    let mut open = File::options().append(true).read(true).create_new(true).open(site.at("file")).unwrap();
    open.write_all(b"before").unwrap();
    open.sync_all().unwrap();
    assert_eq!(server.call(&["SET", "key", "value"]), ok());
    server.kill();
    let server = start();
    open.write_all(b", behind").unwrap();
    open.sync_all().unwrap();
    assert_eq!(fs::read(site.at("file")).unwrap(), b"before, behind");
    assert_eq!(server.call(&["GET", "key"]), common::bulk("value"));
    assert_eq!(info_of(&server, "files").as_deref(), Some("offloaded"));
    drop(open);
    mount.stop();
    let away =
        wait_until(LIMIT, || Some(server.metric("landfall_files_away_seconds")).filter(|away| *away > 0.0));
    assert!(away.is_some() && server.metric("landfall_files_mounts") == 0.0);
    assert!(server.stop().success());
    assert_eq!(site.place.check(&[]).status.code(), Some(0));
    for flags in [&["--files-options", "ro"][..], &["--files", "/nowhere"], &["--files-commands"]] {
        let refused = site.place.try_start(&[&["--files-offload", socket.to_str().unwrap()], flags].concat());
        assert!(refused.is_err_and(|why| why.words.contains("cannot be used with")));
    }
}
