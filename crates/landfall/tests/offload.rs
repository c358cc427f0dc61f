//! `landfall fs serve`, and mounts that it serves: `docs/format/fs-offload.md`.

mod common;

use common::mounts::{END_LIMIT, Process, Random, Site, wait_for_file, wait_until_it_ends};
use common::{Place, binary, can_mount, install_program, landfall, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Files of a program, at most.
const FILES_MAX: usize = 50;

#[test]
fn files_of_a_mount_by_a_server_are_there_at_the_next_mount() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let server = site.server();
    for (round, signal) in ["TERM", "INT"].into_iter().enumerate() {
        let mount = site.mount(&[]);
        assert_eq!(fs::read_dir(site.point.path()).unwrap().count(), round);
        fs::write(site.at(signal), common::pattern(3, 300_000)).unwrap();
        fs::rename(site.at(signal), site.at(&format!("{signal} renamed"))).unwrap();
        mount.signal(signal);
        assert!(mount.wait().success());
        assert_eq!(fs::read_dir(site.point.path()).unwrap().count(), 0, "nothing is mounted");
    }
    let mount = site.mount(&[]);
    assert!(fs::read(site.at("INT renamed")).unwrap() == common::pattern(3, 300_000));
    // A program that another test starts has the file open until it is another program.
    let unmount = || landfall_fuse::unmount(site.point.path(), landfall_fuse::Unmount::WhenIdle).ok();
    wait_until(END_LIMIT, unmount).expect("it is unmounted");
    assert!(mount.wait().success(), "somebody else has unmounted it");
    server.stop();
    assert!(!site.socket().exists());
    assert_eq!(site.place.check(&[]).status.code(), Some(0));
}

#[test]
fn the_death_of_a_holder_ends_its_mount_and_not_the_server() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let server = site.server();
    let mount = site.mount(&[]);
    let file = File::create(site.at("file")).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    file.sync_all().unwrap();
    mount.kill();
    let until = Instant::now() + END_LIMIT;
    while fs::read_dir(site.point.path()).is_err() || site.at("file").exists() {
        assert!(Instant::now() < until, "it stays mounted");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(file.sync_all().is_err(), "the mount has ended");
    drop(file);
    let mount = site.mount(&[]);
    assert_eq!(fs::read(site.at("file")).unwrap(), b"kept");
    mount.stop();
    server.stop();
    assert_eq!(site.place.check(&[]).status.code(), Some(0));
}

#[test]
fn what_a_server_does_not_serve_is_refused_with_advice() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    fs::create_dir_all(site.place.dir()).unwrap();
    let said = site.refusal(site.point.path());
    assert!(said.contains("start `landfall fs serve --dir DIR` first"), "{said}");
    let server = site.server();
    let mount = site.mount(&[]);
    let second = tempfile::tempdir().unwrap();
    let said = site.refusal(second.path());
    assert!(said.contains(&format!("mounted on {}", site.point.path().display())), "{said}");
    fs::write(site.at("file"), b"the first mount works").unwrap();
    mount.stop();
    server.stop();
}

#[test]
fn another_user_cannot_mount() {
    use std::os::unix::process::CommandExt;
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let server = site.server();
    let other = tempfile::tempdir().unwrap();
    for path in [site.place.path(), &site.place.dir(), other.path()] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // The build's directories may be closed to others.
    let program = other.path().join("landfall");
    install_program(&binary(), &program);
    let mut command = Command::new(program);
    command.args(["fs", "mount"]).arg(other.path()).arg("--offload").arg(site.socket());
    match command.uid(65_534).gid(65_534).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains("the server's own user may mount"), "{said}");
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            eprintln!("SKIP: another user's process: {error}");
        }
        Err(error) => panic!("{error}"),
    }
    server.stop();
}

/// A program that changes names and files of its own, and takes no error for an answer.
struct Program {
    directory: PathBuf,
    random: Random,
    /// Its files, by name, with their contents.
    files: BTreeMap<String, Vec<u8>>,
    /// A file that stays open, and what was written to it.
    open: File,
    appended: Vec<u8>,
    made: u64,
}

impl Program {
    fn new(directory: PathBuf, seed: u64) -> Self {
        fs::create_dir(&directory).unwrap();
        let open = File::options().read(true).append(true).create_new(true).open(directory.join("open"));
        let files = BTreeMap::new();
        Self { directory, random: Random(seed), files, open: open.unwrap(), appended: Vec::new(), made: 0 }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("name {}", self.made)
    }

    /// The name of one of its files, if it has any.
    fn some_name(&mut self) -> Option<String> {
        let count = self.files.len() as u64;
        let at = usize::try_from(self.random.below(count.max(1))).unwrap();
        self.files.keys().nth(at).cloned()
    }

    fn step(&mut self) {
        let (new, old) = (self.new_name(), self.some_name());
        // A full region is no error of theirs.
        let what = if self.files.len() < FILES_MAX { self.random.below(8) } else { 3 };
        match (what, old) {
            (0..=1, _) | (_, None) => {
                let content = common::pattern(self.made, self.made as usize * 977 % 20_000);
                let file = File::create_new(self.at(&new)).unwrap();
                file.write_all_at(&content, 0).unwrap();
                file.sync_all().unwrap();
                self.files.insert(new, content);
            }
            (2, Some(old)) => {
                fs::rename(self.at(&old), self.at(&new)).unwrap();
                let content = self.files.remove(&old).unwrap();
                self.files.insert(new, content);
            }
            (3, Some(old)) => {
                fs::remove_file(self.at(&old)).unwrap();
                self.files.remove(&old);
            }
            (4, Some(old)) => {
                fs::hard_link(self.at(&old), self.at(&new)).unwrap();
                let content = self.files[&old].clone();
                self.files.insert(new, content);
            }
            (5, Some(old)) => {
                // It takes the place of another one.
                std::os::unix::fs::symlink("target", self.at(&new)).unwrap();
                fs::rename(self.at(&old), self.at(&new)).unwrap();
                let content = self.files.remove(&old).unwrap();
                self.files.insert(new, content);
            }
            (6, _) => {
                fs::create_dir(self.at(&new)).unwrap();
                fs::remove_dir(self.at(&new)).unwrap();
            }
            (_, Some(old)) => {
                let line = new.into_bytes();
                (&self.open).write_all(&line).unwrap();
                self.appended.extend(line);
                self.open.sync_data().unwrap();
                // The kernel fails a READ if the server is killed while it copies the bytes.
                let read = fs::read(self.at(&old)).or_else(|_| fs::read(self.at(&old)));
                assert!(read.unwrap() == self.files[&old]);
            }
        }
    }

    /// Everything that it has done is there, and nothing else.
    fn check(&self) {
        assert!(fs::read(self.at("open")).unwrap() == self.appended);
        let names: BTreeSet<String> = fs::read_dir(&self.directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "open")
            .collect();
        assert_eq!(names, self.files.keys().cloned().collect());
        self.files.iter().for_each(|(name, content)| assert!(fs::read(self.at(name)).unwrap() == *content));
    }
}

/// Steps that each program does at least.
const WORK: u64 = 20;

/// Programs work while their server is killed again and again.
#[allow(clippy::print_stderr, reason = "the seed of a failure must be known")]
fn programs_outlive_servers(site: &Site) {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, seed) = (number("LANDFALL_KILLS", 6), number("LANDFALL_SEED", 7));
    eprintln!("LANDFALL_KILLS={rounds} LANDFALL_SEED={seed}");
    let mut server = site.server();
    let mount = site.mount(&[]);
    let is_over = Arc::new(AtomicBool::new(false));
    let start = |index: u64| {
        let mut program = Program::new(site.at(&index.to_string()), seed * 31 + index);
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) || program.made <= WORK {
                program.step();
            }
            program
        })
    };
    let programs: Vec<_> = (1..=3).map(start).collect();
    let mut random = Random(seed);
    for _ in 0..rounds {
        std::thread::sleep(Duration::from_millis(30 + random.below(300)));
        server.kill();
        std::thread::sleep(Duration::from_millis(random.below(60)));
        server = site.server();
        wait_for_file(&site.at("1"));
    }
    is_over.store(true, Ordering::Relaxed);
    let programs: Vec<Program> = programs.into_iter().map(|program| program.join().unwrap()).collect();
    programs.iter().for_each(Program::check);
    drop(programs);
    mount.stop();
    server.stop();
    assert_eq!(site.place.check(&[]).status.code(), Some(0));
}

#[test]
fn programs_see_no_error_while_servers_of_a_region_in_memory_are_killed() {
    let Some(place) = Place::in_memory().filter(|_| can_mount()) else { return };
    programs_outlive_servers(&Site::new(place, &[]));
}

#[test]
fn programs_see_no_error_while_servers_that_sync_always_are_killed() {
    if can_mount() {
        programs_outlive_servers(&Site::new(Place::new(), &["--sync", "always"]));
    }
}

#[test]
fn an_open_file_without_a_name_outlives_its_server_and_is_deleted_at_the_end() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let (server, mount) = (site.server(), site.mount(&[]));
    let open = |name: &str| {
        let file = File::options().read(true).write(true).create_new(true).open(site.at(name)).unwrap();
        file.write_all_at(&common::pattern(5, 70_000), 0).unwrap();
        file.sync_all().unwrap();
        file
    };
    let (before, after) = (open("before"), open("after"));
    fs::remove_file(site.at("before")).unwrap();
    File::open(site.point.path()).unwrap().sync_all().unwrap();
    server.kill();
    let server = site.server();
    fs::remove_file(site.at("after")).unwrap();
    for file in [&before, &after] {
        let mut content = vec![0; 70_000];
        file.read_exact_at(&mut content, 0).unwrap();
        assert!(content == common::pattern(5, 70_000));
        file.write_all_at(b"it goes on", 70_000).unwrap();
        file.sync_all().unwrap();
    }
    let inodes = || {
        let df = landfall(&["fs", "df", site.point.path().to_str().unwrap()]);
        let text = String::from_utf8(df.stdout).unwrap();
        text.lines()
            .find(|line| line.starts_with("inodes"))
            .unwrap()
            .trim_start_matches("inodes")
            .trim()
            .to_owned()
    };
    assert_eq!(inodes(), "3", "the root, and two without a name");
    drop((before, after));
    let until = Instant::now() + END_LIMIT;
    while inodes() != "1" {
        assert!(Instant::now() < until, "{} inodes", inodes());
        std::thread::sleep(Duration::from_millis(20));
    }
    mount.stop();
    server.stop();
    assert_eq!(site.place.check(&[]).status.code(), Some(0));
}

#[test]
fn without_patience_calls_fail_until_the_server_is_back() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let (server, mount) = (site.server(), site.mount(&["--patience", "1"]));
    fs::write(site.at("file"), b"before").unwrap();
    let file = File::options().read(true).write(true).open(site.at("file")).unwrap();
    file.sync_all().unwrap();
    server.kill();
    let begun = Instant::now();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(begun.elapsed() >= Duration::from_millis(500), "it waits first");
    assert_eq!(fs::create_dir(site.at("directory")).unwrap_err().raw_os_error(), Some(libc::EIO));
    let server = site.server();
    let until = Instant::now() + END_LIMIT;
    while fs::create_dir(site.at("directory")).is_err() {
        assert!(Instant::now() < until, "it stays refused");
        std::thread::sleep(Duration::from_millis(20));
    }
    file.write_all_at(b"behind", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(site.at("file")).unwrap(), b"behind");
    mount.stop();
    server.stop();
}

#[test]
fn a_mount_without_a_server_ends_and_says_whether_all_is_durable() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    for (ends, all_is_durable) in [(Process::stop as fn(Process), true), (Process::kill, false)] {
        let (server, mount) = (site.server(), site.next_mount());
        fs::write(site.at("file"), common::pattern(3, 300_000)).unwrap();
        let before = site.place.log().len();
        ends(server);
        let knows = || site.place.log()[before..].contains("the server is gone").then_some(());
        wait_until(END_LIMIT, knows).expect("the holder knows");
        mount.signal("TERM");
        assert_eq!(mount.wait().success(), all_is_durable, "{}", site.place.log());
    }
    site.server().stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn a_mount_whose_server_dies_while_it_ends_ends() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let (server, mount) = (site.server(), site.mount(&[]));
    fs::write(site.at("file"), common::pattern(3, 300_000)).unwrap();
    let user = Process::in_directory(site.point.path());
    server.signal("STOP");
    mount.signal("TERM");
    let log = || fs::read_to_string(site.log()).unwrap();
    wait_until_it_ends(log);
    server.kill();
    assert!(!mount.wait().success());
    assert!(log().contains("it has died, and publishes what is durable when it is back"), "{}", log());
    user.kill();
    let server = site.server();
    site.next_mount().stop();
    server.stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn a_server_that_is_told_to_stop_leaves_a_clean_region_and_a_mount_that_waits() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let (server, mount) = (site.server(), site.mount(&[]));
    let file = File::options().read(true).write(true).create_new(true).open(site.at("file")).unwrap();
    file.write_all_at(b"not synced", 0).unwrap();
    server.stop();
    assert_eq!(site.place.check(&[]).status.code(), Some(0));
    let waiting = std::thread::spawn(move || {
        file.write_all_at(b"now", 0).unwrap();
        file.sync_all().unwrap();
    });
    let server = site.server();
    waiting.join().unwrap();
    assert_eq!(fs::read(site.at("file")).unwrap(), b"now synced");
    mount.stop();
    server.stop();
}

#[test]
fn what_was_lost_with_a_server_is_not_shown_and_its_number_not_given_again() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let (mut server, mount) = (site.server(), site.mount(&[]));
    let mut lost = None;
    // What is published every second is durable, too.
    for round in 0..20 {
        fs::write(site.at("kept"), b"kept").unwrap();
        File::open(site.at("kept")).unwrap().sync_all().unwrap();
        let name = format!("lost {round}");
        let file = File::create(site.at(&name)).unwrap();
        let number = file.metadata().unwrap().ino();
        server.kill();
        server = site.server();
        if !site.at(&name).exists() {
            lost = Some((file, number, name));
            break;
        }
    }
    let (file, number, lost) = lost.expect("a file that was not synced is lost in one of 20 rounds");
    let errno = |done: std::io::Result<()>| done.unwrap_err().raw_os_error();
    assert_eq!(errno(file.set_len(7)), Some(libc::ESTALE));
    let root = File::open(site.point.path()).unwrap();
    assert_eq!(errno(root.sync_all()), Some(libc::EIO), "a name of it was lost that was acknowledged");
    root.sync_all().unwrap();
    for name in ["new", &lost] {
        fs::write(site.at(name), name).unwrap();
        let given = fs::metadata(site.at(name)).unwrap().ino();
        assert!(given > number, "{given} names another inode than {number}");
    }
    assert_eq!(fs::read(site.at("kept")).unwrap(), b"kept");
    mount.stop();
    server.stop();
}

/// A server that may have so many descriptors.
fn server_with_few(site: &Site, descriptors: u32) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n $0 && exec \"$@\"", &descriptors.to_string()]).arg(binary());
    command.args(["fs", "serve", "--size", "64MiB", "--dir"]).arg(site.place.dir());
    Process::start(&mut command, &site.log())
}

#[test]
fn a_mount_is_tried_again_for_longer_than_its_process_waits_for_an_answer() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let (server, mount) = (site.server(), site.mount(&[]));
    fs::write(site.at("file"), b"kept").unwrap();
    File::open(site.at("file")).unwrap().sync_all().unwrap();
    server.kill();
    let is_postponed = (12..44).any(|descriptors| {
        let server = server_with_few(&site, descriptors);
        std::thread::sleep(Duration::from_millis(250));
        let is_postponed =
            site.place.log().contains("a mount that is back is served as soon as that is possible");
        if is_postponed {
            std::thread::sleep(Duration::from_secs(12));
        }
        server.kill();
        is_postponed
    });
    assert!(is_postponed, "{}", site.place.log());
    let server = site.server();
    assert_eq!(fs::read(site.at("file")).unwrap(), b"kept");
    assert!(!site.place.log().contains("the files were mounted elsewhere since"), "{}", site.place.log());
    mount.stop();
    server.stop();
}

/// What a server lacks for a mount that is back may be there soon, or at the next server. Nothing is mounted anew in between.
#[test]
fn a_mount_outlives_servers_that_have_too_few_descriptors_to_take_it_over() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let (server, mount) = (site.server(), site.mount(&[]));
    fs::write(site.at("file"), b"kept").unwrap();
    File::open(site.at("file")).unwrap().sync_all().unwrap();
    server.kill();
    for descriptors in 12..44 {
        let server = server_with_few(&site, descriptors);
        // The mount comes back, if the server has come so far.
        std::thread::sleep(Duration::from_millis(250));
        server.kill();
    }
    let server = site.server();
    assert_eq!(fs::read(site.at("file")).unwrap(), b"kept");
    fs::write(site.at("file"), b"goes on").unwrap();
    assert!(!site.place.log().contains("the files were mounted elsewhere since"), "{}", site.place.log());
    mount.stop();
    server.stop();
}

/// While a mount waits for the next server, `others_write` writes into a file. Then the mount must not go on.
fn does_not_resume_when(others_write: impl FnOnce(&Site, &[u8])) {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let (server, mount) = (site.server(), site.mount(&[]));
    fs::write(site.at("file"), b"by the server").unwrap();
    File::open(site.at("file")).unwrap().sync_all().unwrap();
    server.kill();
    others_write(&site, b"by others");
    let server = site.server();
    assert!(!mount.wait().success());
    assert!(site.place.log().contains("the files were mounted elsewhere since"), "{}", site.place.log());
    assert_eq!(fs::read_dir(site.point.path()).unwrap().count(), 0, "nothing is mounted");
    let mount = site.mount(&[]);
    assert_eq!(fs::read(site.at("file")).unwrap(), b"by others");
    mount.stop();
    server.stop();
}

#[test]
fn a_mount_does_not_resume_when_others_have_changed_the_files_meanwhile() {
    does_not_resume_when(|site, written| {
        let point = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary());
        command.args(["fs", "mount"]).arg(point.path()).arg("--dir").arg(site.place.dir());
        let own = Process::start(&mut command, &site.log());
        fs::write(point.path().join("file"), written).unwrap();
        own.stop();
    });
}

#[test]
fn a_mount_does_not_resume_when_a_server_at_another_socket_has_changed_the_files_meanwhile() {
    does_not_resume_when(|site, written| {
        let (there, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let socket = there.path().join("other.sock");
        let mut command = Command::new(binary());
        command.args(["fs", "serve", "--size", "64MiB", "--dir"]).arg(site.place.dir());
        let other = Process::start(command.arg("--socket").arg(&socket), &site.log());
        let mut command = Command::new(binary());
        command.args(["fs", "mount"]).arg(point.path()).arg("--offload").arg(&socket);
        let second = Process::start(&mut command, &site.log());
        fs::write(point.path().join("file"), written).unwrap();
        second.stop();
        other.stop();
        assert_eq!(fs::read_dir(there.path()).unwrap().count(), 0, "the notes are in the region's directory");
    });
}

/// Offers files in another version to whoever connects. When it `is_over`, to the next one for the last time.
fn offer_in_another_version(site: &Site, is_over: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    use rustix::net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, send, socket,
    };
    // A server that was killed has left it.
    let _ = fs::remove_file(site.socket());
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(site.socket()).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    let is_over = Arc::clone(is_over);
    std::thread::spawn(move || {
        loop {
            let connection = accept(&listener).unwrap();
            send(&connection, b"LFOF\xff\xff\x01\x00whatever it says", SendFlags::empty()).unwrap();
            if is_over.load(Ordering::Acquire) {
                return;
            }
        }
    })
}

#[test]
fn a_server_of_another_version_is_refused() {
    let site = Site::new(Place::new(), &[]);
    fs::create_dir_all(site.place.dir()).unwrap();
    let serve = offer_in_another_version(&site, &Arc::new(AtomicBool::new(true)));
    let said = site.refusal(site.point.path());
    assert!(said.contains("it speaks version 65535 of the offload protocol"), "{said}");
    serve.join().unwrap();
}

#[test]
fn a_mount_whose_next_server_is_of_another_version_says_so_as_an_error_and_goes_on_when_that_is_taken_back() {
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let (server, mount) = (site.server(), site.mount(&[]));
    server.kill();
    let is_over = Arc::new(AtomicBool::new(false));
    let newer = offer_in_another_version(&site, &is_over);
    let said = || fs::read_to_string(site.log()).unwrap();
    let line = || said().lines().find(|line| line.contains("it speaks version 65535")).map(str::to_owned);
    let line = wait_until(END_LIMIT, line).expect("it says why");
    assert!(line.contains("ERROR"), "{line}");
    let at = site.at("file");
    let waiting = std::thread::spawn(move || fs::write(at, b"now"));
    std::thread::sleep(Duration::from_secs(1));
    assert!(!waiting.is_finished(), "programs wait for a while");
    assert_eq!(said().matches("it speaks version 65535").count(), 1, "{}", said());
    is_over.store(true, Ordering::Release);
    newer.join().unwrap();
    let server = site.server();
    waiting.join().unwrap().unwrap();
    assert_eq!(fs::read(site.at("file")).unwrap(), b"now");
    mount.stop();
    server.stop();
}

/// A holder that is stopped before it has said what it mounts, or whose machine has died.
#[test]
fn a_holder_that_says_nothing_keeps_nobody_from_the_server() {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketType, connect, recv, socket};
    if !can_mount() {
        return;
    }
    let site = Site::new(Place::new(), &[]);
    let server = site.server();
    let silent = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&silent, &SocketAddrUnix::new(site.socket()).unwrap()).unwrap();
    let hear = |flags| recv(&silent, &mut [0; 256][..], flags).map(|(len, _)| len);
    assert!(hear(RecvFlags::empty()).unwrap() > 8, "the files are offered");
    let mount = site.mount(&[]);
    fs::write(site.at("file"), b"1").unwrap();
    assert_eq!(hear(RecvFlags::DONTWAIT), Err(Errno::AGAIN), "it has not been refused before");
    assert!(hear(RecvFlags::empty()).unwrap() > 8, "it is refused then");
    mount.stop();
    server.stop();
}

#[test]
fn a_server_runs_where_and_how_it_is_told() {
    let site = Site::new(Place::new(), &["--cpus", "0", "--nice", "5"]);
    let server = site.server();
    let proc = PathBuf::from(format!("/proc/{}/task", server.child.id()));
    for thread in fs::read_dir(proc).unwrap() {
        let thread = thread.unwrap().path();
        let status = fs::read_to_string(thread.join("status")).unwrap();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        assert_eq!(allowed.trim(), "0", "{status}");
        let stat = fs::read_to_string(thread.join("stat")).unwrap();
        assert_eq!(stat.rsplit(')').next().unwrap().split_whitespace().nth(16), Some("5"), "{stat}");
    }
    server.stop();
    let refused = landfall(&["fs", "serve", "--dir", site.place.dir().to_str().unwrap(), "--cpus", "x"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--cpus needs one, such as 2,4-7"));
}
