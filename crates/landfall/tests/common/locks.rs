//! Programs that lock files as a test tells them to (`programs/locks.py`), and where they see the files.

use super::far::{Far, served};
use super::mounts::{END_LIMIT, Pair, Process, Site};
use super::{Place, can_mount, has_program, wait_until};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// How long an answer is listened for that must not come yet. A longer time finds more, a shorter one fails no test.
const SILENCE: Duration = Duration::from_millis(100);

/// Answers of an agent that nobody has read, at most.
const ANSWERS_MAX: usize = 64;

/// How long an agent is waited for at the end of a test that fails.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// A program that does what it is told. It is killed with its children when this is dropped.
pub(crate) struct Agent {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    /// For messages.
    last: String,
    place_name: String,
}

impl Agent {
    /// Starts one whose files are in a directory.
    pub(crate) fn new(directory: &Path, place_name: &str) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/locks.py");
        let mut command = Command::new("python3");
        // It starts sooner without other people's packages.
        command
            .args(["-I", "-S"])
            .arg(program)
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let (orders, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (send, answers) = sync_channel(ANSWERS_MAX);
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = send.send(line);
            }
        });
        Self { child, orders, answers, last: String::new(), place_name: place_name.to_owned() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order, and does not wait for its end.
    pub(crate) fn told(&mut self, order: &str) {
        order.clone_into(&mut self.last);
        writeln!(self.orders, "{order}").unwrap();
    }

    /// How an order has ended.
    pub(crate) fn answer(&self) -> String {
        let said = self.answers.recv_timeout(END_LIMIT);
        said.unwrap_or_else(|why| panic!("no answer, {}: {}: {why}", self.place_name, self.last))
    }

    pub(crate) fn asked(&mut self, order: &str) -> String {
        self.told(order);
        self.answer()
    }

    pub(crate) fn answers(&self, expected: &str) {
        assert_eq!(self.answer(), expected, "{}: {}", self.place_name, self.last);
    }

    pub(crate) fn gets(&mut self, order: &str, expected: &str) {
        self.told(order);
        self.answers(expected);
    }

    pub(crate) fn does(&mut self, order: &str) {
        self.gets(order, "ok");
    }

    /// Begins what has to wait.
    pub(crate) fn begins(&mut self, order: &str) {
        self.told(order);
        self.waits();
    }

    pub(crate) fn waits(&self) {
        let said = self.answers.recv_timeout(SILENCE);
        assert!(said.is_err(), "it does not wait, {}: {}: {said:?}", self.place_name, self.last);
    }

    /// Of many at a time.
    pub(crate) fn all_wait<'a>(agents: impl IntoIterator<Item = &'a Self>) {
        std::thread::sleep(SILENCE);
        for Self { answers, place_name, last, .. } in agents {
            let said = answers.try_recv();
            assert!(said.is_err(), "it does not wait, {place_name}: {last}: {said:?}");
        }
    }

    /// An answer, if there is one by now.
    pub(crate) fn try_answer(&self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    /// Kills it, and waits for its end.
    pub(crate) fn kill(mut self) {
        self.kill_now();
        let ended = wait_until(END_LIMIT, || self.child.try_wait().unwrap());
        assert!(ended.is_some(), "a killed program does not end, {}: {}", self.place_name, self.last);
    }

    /// Kills it. It may be in the middle of a call that a server has yet to answer.
    pub(crate) fn kill_now(&mut self) {
        let group = format!("-{}", self.pid());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill_now();
            let _ = wait_until(DROP_LIMIT, || self.child.try_wait().ok().flatten());
        }
    }
}

/// What shows the files.
enum Shown {
    Directory(#[allow(dead_code, reason = "it is removed with this")] tempfile::TempDir),
    OneMount { mount: Process, site: Site },
    TwoHere { mounts: [Process; 2], server: Process, pair: Pair },
    OneElsewhere { far: Far, mounts: [Process; 1], server: Process, pair: Pair },
}

/// Two directories that show the same files.
pub(crate) struct Setting {
    directories: [PathBuf; 2],
    shown: Shown,
}

impl Setting {
    /// A local file system, which says what locks are.
    pub(crate) fn plain() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        Self { directories: [path.clone(), path], shown: Shown::Directory(directory) }
    }

    /// A mount that serves itself: its kernel keeps the locks.
    pub(crate) fn alone() -> Self {
        let site = Site::new(Place::new(), &[]);
        let mount = site.own_mount();
        let path = site.point.path().to_owned();
        Self { directories: [path.clone(), path], shown: Shown::OneMount { mount, site } }
    }

    /// Two mounts on this machine.
    pub(crate) fn here(place: Place) -> Self {
        let pair = Pair::new(place, &[]);
        let server = pair.site.server();
        let (first, second) = pair.mounts();
        let directories = [pair.site.point.path().to_owned(), pair.second.path().to_owned()];
        Self { directories, shown: Shown::TwoHere { pair, server, mounts: [first, second] } }
    }

    /// One on this machine, and one that the server takes for one on another machine.
    pub(crate) fn elsewhere(place: Place) -> Self {
        let (mut site, address) = served().expect("mounts are possible");
        site.place = place;
        let server = site.server();
        let near = site.shared_mount(site.point.path());
        let far = Far::mount(&[address], &[]);
        let directories = [site.point.path().to_owned(), far.point.path().to_owned()];
        let pair = Pair { site, second: tempfile::tempdir().unwrap() };
        Self { directories, shown: Shown::OneElsewhere { far, pair, server, mounts: [near] } }
    }

    /// Programs at one of the two directories each, which have opened a file as `f`.
    pub(crate) fn with_file<const N: usize>(&self, name: &str, sides: [usize; N]) -> [Agent; N] {
        let mut agents = sides.map(|side| self.agent(side));
        // All of them start at a time.
        agents.iter_mut().for_each(|agent| agent.told(&format!("open f {name}")));
        agents.iter().for_each(|agent| agent.answers("ok"));
        agents
    }

    /// A program at one of the two directories.
    pub(crate) fn agent(&self, side: usize) -> Agent {
        Agent::new(&self.directories[side], self.name())
    }

    /// A file at one of the two directories.
    pub(crate) fn at(&self, side: usize, name: &str) -> PathBuf {
        self.directories[side].join(name)
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self.shown {
            Shown::Directory(_) => "at a directory",
            Shown::OneMount { .. } => "at one mount",
            Shown::TwoHere { .. } => "at two mounts here",
            Shown::OneElsewhere { .. } => "at a mount here and one elsewhere",
        }
    }

    /// True if the two directories are not one.
    pub(crate) const fn has_two_mounts(&self) -> bool {
        !matches!(self.shown, Shown::Directory(_) | Shown::OneMount { .. })
    }

    pub(crate) const fn is_one_elsewhere(&self) -> bool {
        matches!(self.shown, Shown::OneElsewhere { .. })
    }

    /// The server is killed, and the next one is started when `meanwhile` is done.
    pub(crate) fn kill_server(&mut self, meanwhile: impl FnOnce()) {
        let (site, server) = match &mut self.shown {
            Shown::Directory(_) | Shown::OneMount { .. } => unreachable!("it has no server"),
            Shown::TwoHere { pair, server, .. } | Shown::OneElsewhere { pair, server, .. } => {
                (&pair.site, server)
            }
        };
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        meanwhile();
        *server = site.server();
    }

    /// As [`Self::kill_server`], of a server that answers nothing any more.
    pub(crate) fn kill_stopped_server(&mut self, before: impl FnOnce()) {
        if let Shown::TwoHere { server, .. } | Shown::OneElsewhere { server, .. } = &self.shown {
            server.signal("STOP");
        }
        before();
        self.kill_server(|| ());
    }

    /// The processes of the mounts and of the server end in good order.
    pub(crate) fn end(self) {
        match self.shown {
            Shown::Directory(_) => {}
            Shown::OneMount { mount, site } => {
                mount.stop();
                assert!(site.place.check(&[]).status.success());
            }
            Shown::TwoHere { pair, server, mounts } => {
                mounts.into_iter().for_each(Process::stop);
                server.stop();
                pair.is_clean();
            }
            Shown::OneElsewhere { far, pair, server, mounts } => {
                far.stop();
                mounts.into_iter().for_each(Process::stop);
                server.stop();
                pair.is_clean();
            }
        }
    }
}

/// Runs a test at a local file system, which shows that it expects what locks are, and at mounts.
pub(crate) fn everywhere(test: impl Fn(&Setting)) {
    if !has_program("python3", &["--version"]) {
        return;
    }
    let run = |setting: Setting| {
        test(&setting);
        setting.end();
    };
    run(Setting::plain());
    if can_mount() {
        run(Setting::alone());
        run(Setting::here(Place::new()));
        run(Setting::elsewhere(Place::new()));
    }
}

/// A directory where `sections` of several agents note what they do.
pub(crate) struct Notes {
    directory: tempfile::TempDir,
}

impl Notes {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    /// How often any agent was inside.
    pub(crate) fn rounds(&self) -> u64 {
        let names = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let rounds = names.filter(|path| path.file_stem().is_some_and(|stem| stem == "rounds"));
        rounds.map(|path| fs::read_to_string(path).unwrap().parse().unwrap_or(0)).sum()
    }

    /// Waits until agents were inside so many times more. Panics if they do not go on.
    pub(crate) fn go_on(&self, agents: &[Agent], rounds: u64) {
        let until = self.rounds() + rounds;
        let reached = || (self.rounds() >= until).then_some(());
        wait_until(END_LIMIT, reached).unwrap_or_else(|| {
            let says = |agent: &Agent| (agent.place_name.clone(), agent.last.clone(), agent.try_answer());
            let said: Vec<_> = agents.iter().map(says).collect();
            panic!("they stand still at {}: {said:?}", self.rounds())
        });
    }

    /// Ends all, which must have found nobody else inside, and have counted right.
    pub(crate) fn end(&self, agents: &[Agent], counter: &Path) {
        fs::write(self.directory.path().join("stop"), b"").unwrap();
        let said: Vec<String> = agents.iter().map(Agent::answer).collect();
        let rounds = said.iter().map(|said| said.parse::<u64>().unwrap_or_else(|_| panic!("{said:?}")));
        let rounds: u64 = rounds.sum();
        let counted = fs::read_to_string(counter).unwrap();
        assert_eq!(counted.parse::<u64>().unwrap(), rounds, "{said:?}");
        assert_eq!(self.rounds(), rounds);
    }
}
