//! Programs with the library at the first server of a chain: what is acknowledged is durable at every server.

mod common;

use common::chain::{Chain, LIMIT};
use common::mounts::{END_LIMIT, Process, Random, wait_for_file};
use common::writers::{Acknowledged, By, Programs, Writer};
use common::{Place, binary, can_mount, mount_metric, pattern, signal, wait_until};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Records that a writer has written before something happens.
const RECORDS: u64 = 60;
const BLOCK: usize = 4096;

/// A chain of three whose regions are in memory, and a mount at the first one.
struct Site {
    chain: Chain,
    /// The programs, and what writers note.
    beside: Place,
    programs: Programs,
    point: tempfile::TempDir,
}

impl Site {
    /// `None` where there can be no mount, and without memory for regions.
    fn start(flags: &[&str]) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        drop(Place::in_memory()?);
        let beside = Place::new();
        let programs = Programs::build(&beside)?;
        let flags = [&["--capacity", "96MiB", "--workers", "2"], flags].concat();
        let mut chain = Chain::at(3, &flags, || Place::in_memory().expect("there was memory"));
        for node in &mut chain.nodes {
            let socket = node.place.dir().join("offload.sock");
            node.flags = vec!["--files-offload".into(), socket.to_str().unwrap().into()];
        }
        chain.start_all();
        Some(Self { chain, beside, programs, point: tempfile::tempdir().unwrap() })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    /// Mounts at a server as soon as that serves mounts.
    fn mount(&self, node: usize) -> Process {
        let place = &self.chain.nodes[node].place;
        let (socket, log) = (place.dir().join("offload.sock"), place.path().join("host.log"));
        let mounted = wait_until(LIMIT, || {
            let mut command = Command::new(binary());
            command.args(["fs", "mount"]).arg(self.point.path()).arg("--offload").arg(&socket);
            Some(Process::start(&mut command, &log))
                .filter(|process| process.announced.starts_with("mounted: "))
        });
        mounted.unwrap_or_else(|| panic!("{}", fs::read_to_string(log).unwrap_or_default()))
    }

    fn writer(&self, by: By, seed: u64) -> Writer {
        let at = (self.beside.path(), self.point.path());
        Writer::start_in(at, &self.programs, by, Acknowledged::Synced, seed)
    }

    /// Operations of libraries that the server of the mount has adopted.
    fn adopted(&self) -> Option<u64> {
        mount_metric(self.point.path(), "landfall_fs_library_operations_total")
    }

    /// Kills a server, and starts it again.
    fn restart(&mut self, node: usize) {
        let next = self.chain.stand_by(node);
        self.chain.kill(node);
        self.chain.put(node, next.start().unwrap_or_else(|why| panic!("{why}")));
    }

    /// The first server is killed, and removed. What writers at it have synced is at the next one. Mounts there.
    fn check_at_next(&mut self, first: usize, mount: Process, writers: &[Writer]) -> Process {
        let removed = self.chain.remove_later(first);
        self.chain.kill(first);
        removed();
        mount.kill();
        let _ = landfall_fuse::unmount(self.point.path(), landfall_fuse::Unmount::Lazily);
        self.chain.wait_until_in_step();
        let mount = self.mount(first + 1);
        writers.iter().for_each(|writer| writer.check_at(self.point.path()));
        mount
    }

    /// Ends everything. The servers that run have the same.
    fn end(mut self, mount: Process, running: &[usize]) {
        mount.stop();
        self.chain.end(running);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = landfall_fuse::unmount(self.point.path(), landfall_fuse::Unmount::Lazily);
    }
}

#[test]
fn what_programs_with_the_library_have_synced_is_at_every_server() {
    let Some(mut site) = Site::start(&[]) else { return };
    let mount = site.mount(0);
    let mut writers: Vec<Writer> = (1..)
        .zip([By::Library(0), By::Library(8), By::Mount])
        .map(|(seed, by)| site.writer(by, seed))
        .collect();
    writers.iter_mut().for_each(|writer| writer.wait_for_records(RECORDS));
    writers.iter().for_each(|writer| writer.check());
    assert!(site.adopted().is_some_and(|adopted| adopted > RECORDS), "{:?}", site.adopted());
    // They are in the middle of something when their server dies.
    writers.iter_mut().for_each(Writer::kill_now);
    let mount = site.check_at_next(0, mount, &writers);
    let mount = site.check_at_next(1, mount, &writers);
    site.end(mount, &[2]);
}

/// At the first server the process that asks sends what is synced, and at the second one the worker that receives it: no other
/// thread is woken for it.
#[test]
fn what_is_synced_in_memory_is_sent_by_who_waits_for_it() {
    let Some(site) = Site::start(&[]) else { return };
    let mount = site.mount(0);
    let sent = |node: usize| {
        let of = |name: &str| site.chain.server(node).metric(&format!("landfall_chain_{name}_total"));
        ["batches", "own_batches"].map(of)
    };
    let before = [sent(0), sent(1)];
    let mut file = File::create(site.at("file")).unwrap();
    for seed in 0..300 {
        file.write_all(&pattern(seed, 16 << 10)).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    for (node, [batches, own]) in before.into_iter().enumerate() {
        let [all_batches, all_own] = sent(node);
        let (batches, own) = (all_batches - batches, all_own - own);
        assert!(batches >= 300.0 && own >= batches * 0.8, "node {node}: {own} of {batches}");
    }
    site.end(mount, &[0, 1, 2]);
}

#[test]
fn programs_with_the_library_go_on_when_the_first_server_is_killed_and_started_again() {
    let Some(mut site) = Site::start(&[]) else { return };
    let mount = site.mount(0);
    let mut writers: Vec<Writer> = Vec::new();
    for round in 1..4 {
        let mut writer = site.writer(By::Library(0), round);
        writer.wait_for_records(RECORDS);
        site.restart(0);
        wait_for_file(&site.at("writer 1"));
        let count = writer.records() + RECORDS;
        writer.wait_for_records(count);
        assert!(writer.stop() > 0, "it has leases: {}", writer.said());
        writer.check();
        writers.push(writer);
    }
    site.chain.wait_until_in_step();
    let mount = site.check_at_next(0, mount, &writers);
    site.end(mount, &[1, 2]);
}

/// A program writes a block that its server, which is stopped, does not see. The server is killed, `between` is done, and
/// it is started again. Returns what the program has said when it has synced the file, and what is there.
fn killed_before_it_has_seen(site: &mut Site, between: impl Fn(&Place)) -> (String, Vec<u8>) {
    let path = site.at("file");
    File::create(&path).unwrap();
    let next = site.chain.stand_by(0);
    let program = write_unseen(site, &path);
    site.chain.kill(0);
    between(&site.chain.nodes[0].place);
    site.chain.put(0, next.start().unwrap_or_else(|why| panic!("{why}")));
    let said = program.end();
    wait_for_file(&path);
    (said, fs::read(&path).unwrap())
}

/// A program writes a block, which all servers have then, and another one while the first server is stopped.
fn write_unseen(site: &Site, path: &Path) -> Copying {
    let adopted = site.adopted();
    let mut program = Copying::start(site, path);
    program.write(&pattern(1, BLOCK), 1);
    wait_until(END_LIMIT, || site.adopted().filter(|_| site.adopted() > adopted)).expect("it has a lease");
    // The log is one: what was adopted is at all servers.
    File::open(site.point.path()).unwrap().sync_all().unwrap();
    site.chain.server(0).signal("STOP");
    program.write(&pattern(2, BLOCK), 2);
    program
}

#[test]
fn what_a_killed_server_has_not_seen_the_next_one_executes() {
    let Some(mut site) = Site::start(&[]) else { return };
    let mount = site.mount(0);
    let (said, found) = killed_before_it_has_seen(&mut site, |_| ());
    assert!(!said.contains("failed"), "{said}");
    assert!(found == [pattern(1, BLOCK), pattern(2, BLOCK)].concat(), "{} bytes", found.len());
    let mount = site.check_at_next(0, mount, &[]);
    assert!(fs::read(site.at("file")).unwrap() == found);
    site.end(mount, &[1, 2]);
}

/// What is executed when a server starts has higher numbers than what counts as sent, or nobody sends it if that server is
/// killed, too, before the next one has it.
#[test]
fn what_a_server_executes_when_it_starts_is_sent_although_it_is_killed_again() {
    let Some(mut site) = Site::start(&[]) else { return };
    let (mount, path) = (site.mount(0), site.at("file"));
    File::create(&path).unwrap();
    let mut standing_by: Vec<_> = [0, 0, 1].map(|node| site.chain.stand_by(node)).into();
    let program = write_unseen(&site, &path);
    (0..2).for_each(|node| site.chain.kill(node));
    site.chain.nodes[0].draw_numbers();
    let mut start = |site: &mut Site, node| {
        let server = standing_by.remove(0).start().unwrap_or_else(|why| panic!("{why}"));
        site.chain.put(node, server);
    };
    start(&mut site, 0);
    std::thread::sleep(Duration::from_secs(2));
    site.chain.kill(0);
    start(&mut site, 0);
    start(&mut site, 1);
    let said = program.end();
    assert!(!said.contains("failed"), "{said}");
    let mount = site.check_at_next(0, mount, &[]);
    let found = fs::read(&path).unwrap();
    assert!(found == [pattern(1, BLOCK), pattern(2, BLOCK)].concat(), "{} bytes", found.len());
    site.end(mount, &[1, 2]);
}

#[test]
fn fsync_says_once_that_something_is_lost_which_no_server_has_seen() {
    let Some(mut site) = Site::start(&[]) else { return };
    let mount = site.mount(0);
    // It cannot find the library, as if that was in another space of process ids.
    let forget = |place: &Place| fs::remove_file(place.dir().join("files.sock.clients")).unwrap();
    let (said, found) = killed_before_it_has_seen(&mut site, forget);
    assert!(said.contains("fsync failed"), "{said}");
    assert!(found == pattern(1, BLOCK), "{} bytes", found.len());
    let path = site.at("file");
    File::open(&path).unwrap().sync_all().unwrap();
    // A program that has lost nothing is told nothing.
    let mut program = Copying::start(&site, &path);
    program.write(&pattern(3, BLOCK), 1);
    let said = program.end();
    assert!(!said.contains("failed"), "{said}");
    assert!(fs::read(&path).unwrap() == pattern(3, BLOCK));
    site.end(mount, &[0, 1, 2]);
}

/// `dd` with the library: it writes blocks to a file as they come, and syncs it at the end.
struct Copying {
    child: Child,
    errors: PathBuf,
}

impl Copying {
    fn start(site: &Site, path: &Path) -> Self {
        let mut command = site.programs.with_library(Path::new("dd"), 0);
        command.args([&format!("bs={BLOCK}"), "conv=notrunc,fsync", "iflag=fullblock"]);
        let errors = site.beside.path().join("dd.errors");
        command.arg(format!("of={}", path.display())).stdin(Stdio::piped());
        let child = command.stderr(File::create(&errors).unwrap()).spawn().unwrap();
        Self { child, errors }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    /// Has it write a block, which is number `count`.
    fn write(&mut self, block: &[u8], count: u64) {
        self.child.stdin.as_mut().unwrap().write_all(block).unwrap();
        let is_written = || {
            // It may not have begun yet, and then a signal would end it.
            let handles = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
            let caught = handles.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
            let caught = u64::from_str_radix(caught, 16).unwrap();
            if caught >> (libc::SIGUSR1 - 1) & 1 == 1 {
                signal(&self.child, "USR1");
            }
            std::thread::sleep(Duration::from_millis(20));
            self.said().contains(&format!("{count}+0 records out")).then_some(())
        };
        wait_until(END_LIMIT, is_written).unwrap_or_else(|| panic!("{}", self.said()));
    }

    /// Ends its input. Returns what it has said.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        wait_until(END_LIMIT, || self.child.try_wait().unwrap()).expect("it ends");
        self.said()
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

#[test]
fn what_is_acknowledged_is_there_whatever_happens_to_the_servers() {
    let Some(mut site) = Site::start(&[]) else { return };
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, seed): (u64, u64) = (number("LANDFALL_KILLS", 6), number("LANDFALL_SEED", 3));
    println!("LANDFALL_KILLS={rounds} LANDFALL_SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mount = site.mount(0);
    let (mut running, mut ended): (Vec<Writer>, Vec<Writer>) = Default::default();
    let mut started = 0;
    for _ in 0..rounds {
        while running.len() < 3 {
            started += 1;
            let by = [By::Library(0), By::Library(8), By::Mount][random.below(3) as usize];
            running.push(site.writer(by, started));
        }
        std::thread::sleep(Duration::from_millis(random.below(300)));
        let node = random.below(3) as usize;
        match random.below(3) {
            0 => {
                site.chain.server(node).signal("STOP");
                std::thread::sleep(Duration::from_millis(random.below(500)));
                site.chain.server(node).signal("CONT");
            }
            1 => {
                let mut writer = running.remove(0);
                writer.kill();
                writer.check();
                ended.push(writer);
            }
            _ => site.restart(node),
        }
        site.chain.wait_until_in_step();
        for writer in &mut running {
            assert!(writer.is_running(), "{}", writer.said());
        }
    }
    assert!(site.adopted().is_some());
    running.iter_mut().for_each(Writer::kill_now);
    ended.append(&mut running);
    let mount = site.check_at_next(0, mount, &ended);
    site.end(mount, &[1, 2]);
}
