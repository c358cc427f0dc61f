//! A mount and a library write the same files, each under its leases; and crashes at any store, flush or fence.
//!
//! After a crash the files are what prefixes of both logs make, and each prefix has what was known to be durable.

mod common;

use common::{Library, Server, TestLease, World, region};
use landfall_fs::InodeNumber;
use landfall_media::sim::{SimMedia, SimOptions};
use proptest::prelude::*;
use std::sync::Arc;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    /// By the library (or the mount), file, offset, length, seed.
    Write(bool, usize, u64, usize, u8),
    LibrarySync,
    MountSync,
    Adopt,
    Publish,
    Compact,
    Mark,
    /// The client ends, and another one comes.
    Again,
}

fn step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![0..30_000_u64, (0..8_u64).prop_map(|block| block * 4096)];
    let len = prop_oneof![1..200_usize, 1..9000_usize, Just(4096)];
    prop_oneof![
        12 => (prop::bool::weighted(0.7), 0..NAMES.len(), offset, len, any::<u8>())
            .prop_map(|(library, file, offset, len, seed)| Step::Write(library, file, offset, len, seed)),
        3 => Just(Step::LibrarySync),
        2 => Just(Step::MountSync),
        3 => Just(Step::Adopt),
        2 => Just(Step::Publish),
        1 => Just(Step::Compact),
        1 => Just(Step::Mark),
        1 => Just(Step::Again),
    ]
}

/// A write, by whom it was: 0 is the mount.
#[derive(Clone, Debug)]
struct Written {
    by: usize,
    file: usize,
    offset: usize,
    bytes: Vec<u8>,
}

type Contents = [Vec<u8>; NAMES.len()];

struct Pair {
    /// What the library does is executed again in the log of the mount.
    again: bool,
    world: World,
    server: Server,
    library: Library,
    leases: [Option<TestLease>; NAMES.len()],
    numbers: [InodeNumber; NAMES.len()],
    contents: Contents,
    written: Vec<Written>,
    /// Writes of the mount and of each client that are known to be durable.
    durable: Vec<usize>,
    /// The log of the mount with what is executed again in it, and how much of it is known to be durable.
    log: Vec<Written>,
    log_durable: usize,
    /// Writes of the library that are not adopted.
    appended: Vec<Written>,
}

impl Pair {
    fn new(again: bool) -> Self {
        let mut world = World::open(region());
        let numbers = NAMES.map(|name| world.create(name));
        let server = attach(&mut world, again);
        let library = Library::new(&world, &server);
        Self {
            again,
            log: Vec::new(),
            log_durable: 0,
            appended: Vec::new(),
            world,
            server,
            library,
            leases: [None; NAMES.len()],
            numbers,
            contents: Default::default(),
            written: Vec::new(),
            durable: vec![0, 0],
        }
    }

    fn client(&self) -> usize {
        self.durable.len() - 1
    }

    fn count(&self, by: usize) -> usize {
        self.written.iter().filter(|written| written.by == by).count()
    }

    fn note_durable(&mut self, by: usize, count: usize) {
        if self.world.media.frozen().is_none() {
            self.durable[by] = self.durable[by].max(count);
        }
    }

    /// All that is executed so far is durable.
    fn note_log_durable(&mut self) {
        if self.world.media.frozen().is_none() {
            self.log_durable = self.log.len();
        }
    }

    fn run(&mut self, step: &Step) {
        let client = self.client();
        match *step {
            Step::Write(true, file, offset, len, seed) => self.write_by_library(file, offset, len, seed),
            Step::Write(false, file, offset, len, seed) => self.write_by_mount(file, offset, len, seed),
            Step::LibrarySync => {
                self.library.sync();
                self.note_durable(client, self.count(client));
                if self.again {
                    self.adopt();
                    self.world.files.sync_all().expect("syncs");
                    self.note_log_durable();
                }
            }
            Step::MountSync => {
                self.world.files.sync_all().expect("syncs");
                self.note_durable(0, self.count(0));
                self.note_log_durable();
            }
            Step::Adopt => self.adopt(),
            Step::Publish => {
                self.world.publish();
                self.note_durable(0, self.count(0));
                self.note_log_durable();
            }
            Step::Compact => self.world.compact(),
            Step::Mark => drop(self.world.files.heap().mark_slabs(1).expect("marks")),
            Step::Again => {
                self.adopt();
                self.leases = [None; NAMES.len()];
                self.world.files.end_client(self.server.log.client());
                self.world.publish();
                self.note_durable(0, self.count(0));
                self.note_log_durable();
                self.server = attach(&mut self.world, self.again);
                self.library = Library::new(&self.world, &self.server);
                self.durable.push(0);
            }
        }
    }

    fn adopt(&mut self) {
        self.server.adopt().expect("adopts");
        self.note_durable(self.client(), self.count(self.client()));
        self.log.append(&mut self.appended);
    }

    fn write_by_library(&mut self, file: usize, offset: u64, len: usize, seed: u8) {
        let number = self.numbers[file];
        if self.leases[file].is_none() {
            self.leases[file] = Some(self.server.lease(number));
            // The mount's log is durable up to its newest write of the file.
            let by_mount = self.written.iter().filter(|written| written.by == 0);
            let newest = by_mount.collect::<Vec<_>>().iter().rposition(|written| written.file == file);
            self.note_durable(0, newest.map_or(0, |at| at + 1));
            if newest.is_some() && self.world.media.frozen().is_none() {
                let newest = self.log.iter().rposition(|written| written.file == file);
                self.log_durable = self.log_durable.max(newest.map_or(0, |at| at + 1));
            }
        }
        let bytes = bytes_of(len, seed);
        let lease = self.leases[file].as_mut().expect("it was granted");
        self.world.now_ns += 1;
        self.library.write(lease, &mut self.contents[file], offset, &bytes, self.world.now_ns);
        let written = Written { by: self.client(), file, offset: offset as usize, bytes };
        self.appended.push(written.clone());
        self.written.push(written);
    }

    fn write_by_mount(&mut self, file: usize, offset: u64, len: usize, seed: u8) {
        if let Some(lease) = self.leases[file].take() {
            self.adopt();
            self.server.log.end_lease(lease.number);
        }
        let bytes = bytes_of(len, seed);
        self.world.write(self.numbers[file], offset, &bytes);
        let written = Written { by: 0, file, offset: offset as usize, bytes };
        apply(&mut self.contents, &written);
        self.log.push(written.clone());
        self.written.push(written);
    }

    /// True if prefixes of the logs make these contents.
    fn is_possible(&self, seen: &Contents) -> bool {
        let counts: Vec<usize> = (0..self.durable.len()).map(|by| self.count(by)).collect();
        let mut prefixes = self.durable.clone();
        loop {
            if self.contents_of(&prefixes) == *seen {
                return true;
            }
            let Some(at) = (0..prefixes.len()).find(|at| prefixes[*at] < counts[*at]) else { return false };
            prefixes[..at].copy_from_slice(&self.durable[..at]);
            prefixes[at] += 1;
        }
    }

    /// True if a prefix of the log makes these contents.
    fn is_possible_again(&self, seen: &Contents) -> bool {
        (self.log_durable..=self.log.len()).any(|count| {
            let mut contents = Contents::default();
            self.log[..count].iter().for_each(|written| apply(&mut contents, written));
            contents == *seen
        })
    }

    fn contents_of(&self, prefixes: &[usize]) -> Contents {
        let mut contents = Contents::default();
        let mut seen = vec![0; prefixes.len()];
        for written in &self.written {
            if seen[written.by] < prefixes[written.by] {
                apply(&mut contents, written);
            }
            seen[written.by] += 1;
        }
        contents
    }
}

fn attach(world: &mut World, again: bool) -> Server {
    if again { Server::attach_again(world) } else { Server::attach(world) }
}

fn bytes_of(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 13 % 241) as u8 ^ seed).collect()
}

fn apply(contents: &mut Contents, written: &Written) {
    let content = &mut contents[written.file];
    let end = written.offset + written.bytes.len();
    content.resize(content.len().max(end), 0);
    content[written.offset..end].copy_from_slice(&written.bytes);
}

fn contents(world: &World) -> Contents {
    NAMES.map(|name| world.bytes(world.find(name)))
}

fn config() -> ProptestConfig {
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 24 };
    ProptestConfig { cases, max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_mount_and_a_library_make_the_same_files_as_one_writer(
        steps in prop::collection::vec(step(), 1..60), again: bool,
    ) {
        let mut pair = Pair::new(again);
        for step in &steps {
            pair.run(step);
            for (file, lease) in pair.leases.iter().enumerate() {
                if lease.is_none() {
                    prop_assert!(pair.world.bytes(pair.numbers[file]) == pair.contents[file], "{:?}", step);
                }
            }
        }
        pair.adopt();
        prop_assert!(contents(&pair.world) == pair.contents);
        prop_assert_eq!(pair.world.files.dangling(), []);
    }

    #[test]
    fn a_crash_leaves_what_prefixes_of_both_logs_make(
        steps in prop::collection::vec(step(), 1..40), crash in 0..1000_u64, again in 0..1000_u64, seed: u64,
    ) {
        let (pair, seen) = crashed(&steps, false, (crash, again), seed);
        prop_assert!(pair.is_possible(&seen), "no prefixes: {:?}", pair.durable);
    }

    #[test]
    fn a_crash_leaves_a_prefix_of_the_log_in_which_operations_of_a_library_are_executed_again(
        steps in prop::collection::vec(step(), 1..40), crash in 0..1000_u64, again in 0..1000_u64, seed: u64,
    ) {
        let (pair, seen) = crashed(&steps, true, (crash, again), seed);
        prop_assert!(pair.is_possible_again(&seen), "no prefix: {}", pair.log_durable);
    }

    #[test]
    fn a_server_that_is_killed_loses_nothing_of_a_library_whose_operations_are_executed_again(
        steps in prop::collection::vec(step(), 1..40), seed: u64,
    ) {
        let mut pair = Pair::new(true);
        steps.iter().for_each(|step| pair.run(step));
        let left = pair.server.left(&pair.numbers);
        let image = pair.world.media.crash_state().newest();
        let medium = SimMedia::restart(&image, SimOptions::default());
        let (mut world, damaged) = World::open_after(medium, left.iter().cloned().collect());
        prop_assert_eq!(damaged, 0);
        prop_assert!(contents(&world) == pair.contents);
        let executed = left.as_ref().map(|left| left.executed());
        prop_assert_eq!(executed, left.map(|_| pair.server.control().appended()));
        world.files.sync_all().expect("syncs");
        let image = world.media.crash_state().draw(seed);
        prop_assert!(contents(&World::open(SimMedia::restart(&image, SimOptions::default()))) == pair.contents);
        world.publish();
        world.compact();
        prop_assert!(contents(&world) == pair.contents);
        prop_assert_eq!(world.files.dangling(), []);
    }
}

/// Crashes in the middle of `steps`, and once more while the files are opened. Returns what is there.
fn crashed(steps: &[Step], is_again: bool, (crash, again): (u64, u64), seed: u64) -> (Pair, Contents) {
    let mut pair = Pair::new(is_again);
    let begin = pair.world.media.ops().total();
    steps.iter().for_each(|step| pair.run(step));
    let all = pair.world.media.ops().total() - begin;
    let mut pair = Pair::new(is_again);
    pair.world.files.sync_all().expect("syncs");
    let begin = pair.world.media.ops().total();
    pair.world.media.freeze_at(begin + all * crash / 1000);
    steps.iter().for_each(|step| pair.run(step));
    let state = pair.world.media.frozen().unwrap_or_else(|| pair.world.media.crash_state());
    let image = state.draw(seed);
    let medium = || SimMedia::restart(&image, SimOptions::default());
    let world = World::open(medium());
    let seen = contents(&world);
    assert_eq!(world.files.clients(), Vec::<u32>::new());
    // Another crash, while the files are being opened, changes nothing.
    let medium = medium();
    medium.freeze_at(world.media.ops().total() * again / 1000);
    drop(World::open(Arc::clone(&medium)));
    let state = medium.frozen().unwrap_or_else(|| medium.crash_state());
    let twice = World::open(SimMedia::restart(&state.draw(seed ^ 1), SimOptions::default()));
    assert!(contents(&twice) == seen, "after a crash of recovery");
    (pair, seen)
}
