//! Mounts that a server of its own serves, and their processes.

use super::{Place, binary, landfall, signal, stand_by, wait_until_it_stands_by};
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a process may take to end.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(60);

/// How long it is waited for at the end of a test that fails.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// A process that is killed when this is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) announced: String,
}

impl Process {
    /// Starts a command, and waits until it has said something.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        Self::hear(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap())
    }

    fn hear(mut child: Child) -> Self {
        let mut announced = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut announced).unwrap();
        Self { child, announced }
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Starts a program that uses a file system: its working directory is there.
    pub(crate) fn in_directory(path: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; exec sleep 60"]).current_dir(path).stderr(Stdio::null());
        Self::hear(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.ended()
    }

    fn ended(&mut self) -> ExitStatus {
        let until = Instant::now() + END_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "the process does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn stop(self) {
        self.signal("TERM");
        assert!(self.wait().success());
    }

    /// Kills it. It may be in the middle of a call that ends only with the mount.
    pub(crate) fn kill_now(mut self) -> Self {
        self.child.kill().unwrap();
        self
    }

    pub(crate) fn kill(self) {
        // A process that waits for the mount that it serves itself would never end.
        self.kill_now().ended();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After an end in good order there is nothing left to do. Who waits for a mount ends with it.
        let _ = self.child.kill();
        let _ = super::wait_until(DROP_LIMIT, || self.child.try_wait().ok().flatten());
    }
}

/// A region with a mountpoint. What is mounted is unmounted at the end, however the test ends.
pub(crate) struct Site {
    pub(crate) place: Place,
    pub(crate) point: tempfile::TempDir,
    pub(crate) serve: Vec<&'static str>,
    /// The next server.
    stand_by: Mutex<Option<Child>>,
}

impl Site {
    pub(crate) fn new(place: Place, serve: &[&'static str]) -> Self {
        let (point, stand_by) = (tempfile::tempdir().unwrap(), Mutex::default());
        Self { place, point, serve: serve.to_vec(), stand_by }
    }

    /// The file named so in the mount.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.place.dir().join("offload.sock")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    /// Starts the server. When it ends, this process may have files of its mounts open. A child closes all of them when it
    /// becomes another program, for which a shared mount asks the server. So the next server's process is started while
    /// there is one.
    pub(crate) fn server(&self) -> Process {
        let stand_by = self.stand_by.lock().unwrap().take();
        let mut child = stand_by.unwrap_or_else(|| self.stand_by());
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let process = Process::hear(child);
        // The next one's process could wait for this one.
        assert!(process.announced.starts_with("serving: "), "{}{}", process.announced, self.place.log());
        *self.stand_by.lock().unwrap() = Some(self.stand_by());
        process
    }

    /// A process that becomes a server when it is told to, and ends when this is dropped.
    fn stand_by(&self) -> Child {
        let mut command = stand_by();
        command.args(["fs", "serve", "--size", "64MiB", "--dir"]).arg(self.place.dir()).args(&self.serve);
        let log = OpenOptions::new().create(true).append(true).open(self.log()).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        wait_until_it_stands_by(&mut child);
        child
    }

    pub(crate) fn mount(&self, more: &[&str]) -> Process {
        self.mount_by(&[&["--offload", self.socket().to_str().unwrap()], more].concat())
    }

    /// A mount that serves itself.
    pub(crate) fn own_mount(&self) -> Process {
        let dir = self.place.dir();
        let flags = ["--size", "64MiB", "--dir", dir.to_str().unwrap()];
        self.mount_by(&[&flags, &self.serve[..]].concat())
    }

    /// A mount by a server that has yet to see that the one before has ended.
    pub(crate) fn next_mount(&self) -> Process {
        let until = Instant::now() + END_LIMIT;
        loop {
            let process = self.start_mount(&["--offload", self.socket().to_str().unwrap()]);
            if !process.announced.is_empty() {
                return process;
            }
            assert!(Instant::now() < until, "{}", self.place.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// One of several mounts of the files.
    pub(crate) fn shared_mount(&self, point: &Path) -> Process {
        let process = self.start_mount_on(point, &["--shared", "--offload", self.socket().to_str().unwrap()]);
        assert!(process.announced.starts_with("mounted: "), "{}{}", process.announced, self.place.log());
        process
    }

    fn mount_by(&self, flags: &[&str]) -> Process {
        let process = self.start_mount(flags);
        assert!(process.announced.starts_with("mounted: "), "{}{}", process.announced, self.place.log());
        process
    }

    fn start_mount(&self, flags: &[&str]) -> Process {
        self.start_mount_on(self.point.path(), flags)
    }

    fn start_mount_on(&self, point: &Path, flags: &[&str]) -> Process {
        let mut command = Command::new(binary());
        command.args(["fs", "mount"]).arg(point).args(flags);
        let process = Process::start(&mut command, &self.log());
        if process.announced.is_empty() {
            return process;
        }
        // The kernel asks once whether closing a file needs a request. A child of this process closes all files when it
        // becomes another program: it must not have to ask a server that is yet to be started by it.
        drop(File::create(point.join("closed")).unwrap());
        fs::remove_file(point.join("closed")).unwrap();
        process
    }

    /// What a mount that cannot be says.
    pub(crate) fn refusal(&self, point: &Path) -> String {
        self.refusal_of(point, &[])
    }

    /// What one with more flags says.
    pub(crate) fn refusal_of(&self, point: &Path, more: &[&str]) -> String {
        let (point, socket) = (point.to_str().unwrap().to_owned(), self.socket());
        let flags = ["fs", "mount", &point, "--offload", socket.to_str().unwrap()];
        let output = landfall(&[&flags, more].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    /// Removes a mount that nobody serves. Processes may wait for it, also ones that were killed.
    pub(crate) fn unmount(&self) {
        // Without root it is only detached.
        let _ =
            Command::new("umount").args(["-f", "-l"]).arg(self.point.path()).stderr(Stdio::null()).status();
        let _ = landfall_fuse::unmount(self.point.path(), landfall_fuse::Unmount::Lazily);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.unmount();
        if let Some(mut child) = self.stand_by.lock().unwrap().take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

/// Two mounts of one server. What is mounted on the second point is unmounted at the end, however the test ends.
pub(crate) struct Pair {
    pub(crate) site: Site,
    pub(crate) second: tempfile::TempDir,
}

impl Pair {
    pub(crate) fn new(place: Place, serve: &[&'static str]) -> Self {
        Self { site: Site::new(place, serve), second: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn mounts(&self) -> (Process, Process) {
        (self.site.shared_mount(self.site.point.path()), self.site.shared_mount(self.second.path()))
    }

    /// The file named so at the first mount, and at the second one.
    pub(crate) fn at(&self, name: &str) -> [PathBuf; 2] {
        [self.site.at(name), self.second.path().join(name)]
    }

    pub(crate) fn is_clean(&self) {
        assert_eq!(self.site.place.check(&[]).status.code(), Some(0));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = landfall_fuse::unmount(self.second.path(), landfall_fuse::Unmount::Lazily);
    }
}

/// Says that it is over when it is dropped. When a test fails, it also ends the mounts: programs that wait for them would wait for
/// ever, and the test for the programs.
pub(crate) struct OverAt<'a> {
    over: &'a AtomicBool,
    mounts: Vec<PathBuf>,
}

impl<'a> OverAt<'a> {
    pub(crate) fn new<'p>(over: &'a AtomicBool, mounts: impl IntoIterator<Item = &'p Path>) -> Self {
        Self { over, mounts: mounts.into_iter().map(Path::to_owned).collect() }
    }
}

impl Drop for OverAt<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if std::thread::panicking() {
            // Without root they stay.
            let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
            for point in &self.mounts {
                let _ = unmount(point, flags);
            }
        }
    }
}

/// Waits until a mount's calls are answered again.
pub(crate) fn wait_for_file(path: &Path) {
    let until = Instant::now() + END_LIMIT;
    while !path.exists() {
        assert!(Instant::now() < until, "{}", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the process of a mount that was told to end has begun to, by what it says in its log. Then it asks the
/// server, or has yet to: its end must not depend on that.
pub(crate) fn wait_until_it_ends(log: impl Fn() -> String) {
    let begun = super::wait_until(END_LIMIT, || log().contains("unmounting").then_some(()));
    assert!(begun.is_some(), "{}", log());
    std::thread::sleep(Duration::from_millis(300));
}

/// Random numbers (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
