//! Locks of files that several mounts show (`docs/fs.md`, "Several mounts"): they are what locks of a local file system
//! are, whichever mount a program uses. Each test but those that say so runs at a local directory, too, as the proof
//! that it expects the right thing: `flock(2)`, `fcntl(2)`.

mod common;

use common::locks::{Agent, Notes, Setting, everywhere};
use common::mounts::{END_LIMIT, Random};
use common::{has_program, wait_until};
use std::process::Command;

/// More than a mount has workers.
const CROWD: u64 = 30;

#[test]
fn a_flock_excludes_and_is_shared_wherever_it_is_taken() {
    everywhere(|setting| {
        let [mut a, mut b, mut c] = setting.with_file("file", [0, 1, 0]);
        a.does("flock f ex nb");
        b.gets("flock f ex nb", "EAGAIN");
        b.gets("flock f sh nb", "EAGAIN");
        c.gets("flock f sh nb", "EAGAIN");
        a.does("flock f ex nb");
        a.does("flock f un");
        b.does("flock f ex nb");
        a.gets("flock f ex nb", "EAGAIN");
        b.does("flock f sh nb");
        a.does("flock f sh nb");
        c.does("flock f sh nb");
        c.does("flock f un");
        // Who asks for more than it can have has nothing afterwards.
        a.gets("flock f ex nb", "EAGAIN");
        b.does("flock f ex nb");
        a.gets("flock f sh nb", "EAGAIN");
        b.does("flock f un");
        a.does("flock f ex nb");
        // Another file is another lock.
        b.does("open other other");
        b.does("flock other ex nb");
    });
}

#[test]
fn a_flock_is_freed_by_the_last_descriptor_of_the_open_file() {
    everywhere(|setting| {
        let [mut a, mut b] = setting.with_file("file", [0, 1]);
        a.does("dup g f");
        a.does("flock f ex nb");
        a.does("flock g ex nb");
        a.does("close f");
        b.gets("flock f sh nb", "EAGAIN");
        b.begins("flock f ex");
        a.does("close g");
        b.answers("ok");
        // A child has descriptors of the open file.
        b.does("fork");
        b.does("close f");
        a.does("open f file");
        a.begins("flock f ex");
        b.does("join");
        a.answers("ok");
        // Any of them frees it at once.
        a.does("fork");
        a.does("dup g f");
        a.does("flock g un");
        b.does("open f file");
        b.does("flock f ex nb");
        a.does("join");
        // Another open file of one process is somebody else.
        b.does("open g file");
        b.gets("flock g ex nb", "EAGAIN");
        b.does("close g");
        a.gets("flock f ex nb", "EAGAIN");
    });
}

/// The kernel tells the server behind the program's back.
#[test]
fn a_flock_is_free_as_soon_as_the_program_that_had_it_has_ended() {
    everywhere(|setting| {
        let [here, there] = [0, 1].map(|side| setting.at(side, "lock"));
        let in_turns = "for _ in $(seq 100); do flock -n \"$1\" true && flock -n \"$2\" true || exit 1; done";
        let status = Command::new("sh").args(["-c", in_turns, "sh"]).args([here, there]).status().unwrap();
        assert!(status.success(), "{}", setting.name());
    });
}

#[test]
fn locks_of_a_killed_process_are_freed() {
    everywhere(|setting| {
        const LOCKS: [&str; 5] =
            ["flock f ex", "posix f ex 10 10", "ofd f ex 10 10", "flock f sh", "posix f sh 0 0"];
        let [mut waiter] = setting.with_file("file", [1]);
        for (lock, mut holder) in LOCKS.into_iter().zip(setting.with_file("file", [0; 5])) {
            holder.does(&format!("{lock} nb"));
            waiter.begins(&lock.replace("sh", "ex"));
            holder.kill();
            waiter.answers("ok");
            waiter.does(&lock.replace("sh", "un").replace("ex", "un"));
        }
    });
}

#[test]
fn ranges_exclude_split_merge_and_change() {
    everywhere(|setting| {
        for kind in ["posix", "ofd"] {
            let [mut a, mut b] = setting.with_file("file", [0, 1]);
            a.does(&format!("{kind} f ex 0 100 nb"));
            b.does(&format!("{kind} f ex 100 100 nb"));
            b.gets(&format!("{kind} f sh 99 1 nb"), "EAGAIN");
            a.gets(&format!("{kind} f ex 50 51 nb"), "EAGAIN");
            // A hole in the middle.
            a.does(&format!("{kind} f un 40 20"));
            b.does(&format!("{kind} f ex 40 20 nb"));
            b.gets(&format!("{kind} f ex 39 1 nb"), "EAGAIN");
            b.gets(&format!("{kind} f ex 60 1 nb"), "EAGAIN");
            b.does(&format!("{kind} f un 40 20"));
            // One range again, part of which is shared, and then none of it.
            a.does(&format!("{kind} f ex 40 20 nb"));
            a.does(&format!("{kind} f sh 10 20 nb"));
            b.does(&format!("{kind} f sh 10 20 nb"));
            b.gets(&format!("{kind} f sh 9 1 nb"), "EAGAIN");
            b.gets(&format!("{kind} f sh 30 1 nb"), "EAGAIN");
            a.gets(&format!("{kind} f ex 0 100 nb"), "EAGAIN");
            b.gets(&format!("{kind} f ex 15 1 nb"), "EAGAIN");
            b.does(&format!("{kind} f un 10 20"));
            a.does(&format!("{kind} f ex 0 100 nb"));
            // To the end, wherever that will be.
            b.does(&format!("{kind} f ex 1000 0 nb"));
            a.gets(&format!("{kind} f sh 9000000000000000000 1 nb"), "EAGAIN");
            b.does(&format!("{kind} f un 2000 0"));
            a.does(&format!("{kind} f sh 9000000000000000000 1 nb"));
            a.gets(&format!("{kind} f sh 1999 1 nb"), "EAGAIN");
            a.does(&format!("{kind} f un 0 0"));
            b.does(&format!("{kind} f ex 0 0 nb"));
        }
    });
}

#[test]
fn posix_locks_end_with_any_descriptor_of_the_file_and_with_the_process() {
    everywhere(|setting| {
        let [mut a, mut b] = setting.with_file("file", [0, 1]);
        a.does("open g file");
        a.does("open other other");
        a.does("posix f ex 0 10 nb");
        a.does("posix g ex 5 20 nb");
        a.does("posix other ex 0 0 nb");
        b.gets("posix f ex 20 1 nb", "EAGAIN");
        // Somebody else's descriptors do not count: not another process's, not a child's.
        b.does("open g file");
        b.does("close g");
        a.does("fork");
        a.does("join");
        b.gets("posix f ex 0 1 nb", "EAGAIN");
        a.does("close g");
        b.does("posix f ex 0 0 nb");
        b.does("open other other");
        b.gets("posix other sh 7 1 nb", "EAGAIN");
        b.begins("posix other ex 0 0");
        a.kill();
        b.answers("ok");
    });
}

#[test]
fn the_lock_in_the_way_is_told() {
    everywhere(|setting| {
        let [mut a, mut b, mut c] = setting.with_file("file", [0, 1, 0]);
        a.does("posix f ex 10 20 nb");
        a.does("posix f sh 40 0 nb");
        // Of another mount's process nothing is known.
        let pid = if setting.has_two_mounts() { 0 } else { a.pid() };
        for (agent, pid) in [(&mut b, pid), (&mut c, a.pid())] {
            agent.gets("posixget f ex 0 0", &format!("ex 10 20 {pid}"));
            agent.gets("posixget f sh 0 11", &format!("ex 10 20 {pid}"));
            agent.gets("posixget f ex 45 1", &format!("sh 40 0 {pid}"));
            agent.gets("posixget f sh 30 0", "un");
            agent.gets("posixget f ex 30 10", "un");
            assert!(agent.asked("ofdget f ex 29 1").starts_with("ex 10 20 "));
            agent.gets("ofdget f sh 100 1", "un");
        }
        a.gets("posixget f ex 0 0", "un");
        assert!(a.asked("ofdget f ex 0 0").starts_with("ex 10 20 "), "{}", setting.name());
        // What is asked for is not taken.
        a.does("posix f ex 0 0 nb");
        a.does("posix f un 0 0");
        b.does("ofd f ex 3 4 nb");
        assert!(a.asked("posixget f sh 0 0").starts_with("ex 3 4 "), "{}", setting.name());
    });
}

#[test]
fn processes_that_wait_for_each_other_are_told() {
    everywhere(|setting| {
        let mut agents = setting.with_file("file", [0, 1, 0]);
        for (place, agent) in agents.iter_mut().enumerate() {
            agent.does(&format!("posix f ex {place} 1 nb"));
        }
        agents[0].begins("posix f ex 1 1");
        agents[1].begins("posix f ex 2 1");
        agents[2].told("posix f ex 0 1");
        let told =
            |agents: &[Agent; 3]| (0..3).find_map(|who| agents[who].try_answer().map(|said| (who, said)));
        let (who, said) = wait_until(END_LIMIT, || told(&agents)).expect("they wait for ever");
        assert_eq!(said, "EDEADLK", "{}", setting.name());
        // It has what it had, and each other one goes on as soon as it can.
        let (next, last) = ((who + 2) % 3, (who + 1) % 3);
        agents[next].waits();
        agents[who].does("posix f un 0 0");
        agents[next].answers("ok");
        agents[last].waits();
        agents[next].does("posix f un 0 0");
        agents[last].answers("ok");
    });
}

#[test]
fn locks_of_an_open_file_end_with_its_last_descriptor() {
    everywhere(|setting| {
        let [mut a, mut b] = setting.with_file("file", [0, 1]);
        a.does("open g file");
        a.does("dup h f");
        a.does("ofd f ex 0 10 nb");
        a.does("ofd h ex 10 10 nb");
        // Another open file of one process is somebody else, and so is the process.
        a.gets("ofd g ex 0 1 nb", "EAGAIN");
        a.gets("posix f ex 0 1 nb", "EAGAIN");
        a.does("close g");
        a.does("close f");
        b.gets("ofd f sh 19 1 nb", "EAGAIN");
        b.begins("ofd f ex 0 0");
        // A child has descriptors of the open file.
        a.does("fork");
        a.does("close h");
        b.waits();
        a.does("join");
        b.answers("ok");
        a.does("open f file");
        a.begins("posix f sh 5 1");
        b.does("ofd f un 5 1");
        a.answers("ok");
        b.gets("ofd f ex 5 1 nb", "EAGAIN");
        a.gets("posix f sh 5 2 nb", "EAGAIN");
    });
}

#[test]
fn locks_by_flock_and_those_of_ranges_do_not_know_each_other() {
    everywhere(|setting| {
        let [mut a, mut b] = setting.with_file("file", [0, 1]);
        a.does("flock f ex nb");
        b.does("posix f ex 0 0 nb");
        a.gets("posix f sh 0 1 nb", "EAGAIN");
        b.gets("flock f sh nb", "EAGAIN");
        b.does("posix f un 0 0");
        a.does("posix f ex 0 0 nb");
        b.gets("flock f sh nb", "EAGAIN");
    });
}

#[test]
fn two_mounts_in_one_process_are_two_owners() {
    everywhere(|setting| {
        if !setting.has_two_mounts() {
            return;
        }
        let mut a = setting.agent(0);
        for side in [0, 1] {
            a.does(&format!("open {side} {}", setting.at(side, "file").display()));
        }
        a.does("posix 0 ex 0 10 nb");
        a.gets("posix 1 ex 5 1 nb", "EAGAIN");
        a.gets("posixget 1 sh 0 0", "ex 0 10 0");
        a.does("posix 1 ex 10 10 nb");
        a.does("close 1");
        a.gets("posixget 0 ex 0 0", "un");
        let [mut b] = setting.with_file("file", [1]);
        b.gets("posix f ex 0 1 nb", "EAGAIN");
        a.does("close 0");
        b.does("posix f ex 0 0 nb");
    });
}

#[test]
fn programs_that_wait_hold_up_nothing_else() {
    everywhere(|setting| {
        for kind in ["flock", "posix"] {
            let ranges = if kind == "flock" { "" } else { " 0 0" };
            let [mut a, mut b] = setting.with_file(kind, [0, 1]);
            a.does("write f 0");
            a.does(&format!("{kind} f ex{ranges} nb"));
            let [mut here, mut there] = [0, 1].map(|side| setting.agent(side));
            for crowd in [&mut here, &mut there] {
                crowd.gets(&format!("crowd {kind} {CROWD} {kind}"), "started");
            }
            Agent::all_wait([&here, &there]);
            for agent in [&mut a, &mut b] {
                agent.does("open other other");
                agent.does("write other text");
                agent.gets("read other", "-text");
                agent.does("flock other ex nb");
                agent.does("flock other un");
            }
            a.gets("read f", "-0");
            a.does(&format!("{kind} f un{ranges}"));
            here.answers("ok");
            there.answers("ok");
            b.gets("read f", &format!("-{:020}", 2 * CROWD));
        }
    });
}

#[test]
fn a_program_that_a_signal_ends_or_interrupts_does_not_get_the_lock() {
    everywhere(|setting| {
        const LOCKS: [[&str; 2]; 3] = [
            ["flock f ex", "flock f un"],
            ["posix f ex 5 5", "posix f un 0 0"],
            ["ofd f ex 5 5", "ofd f un 0 0"],
        ];
        let [mut a, mut b] = setting.with_file("file", [0, 1]);
        for ([lock, free], mut killed) in LOCKS.into_iter().zip(setting.with_file("file", [1; 3])) {
            a.does(lock);
            b.gets(&format!("alarm 0.1 {lock}"), "interrupted");
            killed.begins(lock);
            killed.kill();
            // It has what it had before, and can ask again.
            b.begins(lock);
            a.does(free);
            b.answers("ok");
            b.does(free);
            a.does(lock);
            a.does(free);
        }
    });
}

/// What agents do at random with locks, without waiting.
fn any_order(random: &mut Random) -> String {
    let mode = ["sh", "ex", "un"][usize::try_from(random.below(3)).unwrap()];
    let file = ["f", "g"][usize::try_from(random.below(2)).unwrap()];
    let (start, length) = (random.below(12), random.below(6));
    match random.below(10) {
        0..=3 => format!("posix {file} {mode} {start} {length} nb"),
        4..=5 => format!("ofd {file} {mode} {start} {length} nb"),
        6..=7 => format!("flock {file} {mode} nb"),
        8 => format!("posixget {file} {} {start} {length}", mode.replace("un", "ex")),
        _ => format!("ofdget {file} {} {start} {length}", mode.replace("un", "ex")),
    }
}

/// A close frees locks of the process at once. It may free those of the open file a moment later.
fn reopen(agent: &mut Agent, file: &str) {
    for order in ["flock FILE un", "ofd FILE un 0 0", "close FILE", "open FILE file"] {
        agent.does(&order.replace("FILE", file));
    }
}

/// Which lock in the way is told is not said where there are several.
fn outline(said: &str) -> &str {
    if said.contains(' ') { "a lock" } else { said }
}

/// Against a local file system. It says its seed.
#[test]
#[allow(clippy::print_stderr, reason = "the seed of a failure must be known")]
fn orders_in_turns_end_as_they_do_at_a_local_file_system() {
    let seed = std::env::var("LANDFALL_SEED").map_or(11, |text| text.parse().unwrap());
    eprintln!("LANDFALL_SEED={seed}");
    let local = Setting::plain();
    everywhere(|setting| {
        let agents = |setting: &Setting| {
            let mut agents = setting.with_file("file", [0, 1, 0, 1]);
            agents.iter_mut().for_each(|agent| agent.does("open g file"));
            agents
        };
        let (mut known, mut tried) = (agents(&local), agents(setting));
        let mut random = Random(seed);
        for step in 0..1500 {
            let who = usize::try_from(random.below(4)).unwrap();
            if random.below(12) == 0 {
                let file = if random.below(2) == 0 { "f" } else { "g" };
                reopen(&mut known[who], file);
                reopen(&mut tried[who], file);
                continue;
            }
            let order = any_order(&mut random);
            let (expected, said) = (known[who].asked(&order), tried[who].asked(&order));
            assert_eq!(outline(&said), outline(&expected), "{}: step {step}: {who}: {order}", setting.name());
        }
    });
}

/// Agents at both directories lock, count and unlock. A file elsewhere says whether somebody else is inside.
fn count(setting: &Setting, counter: &str, kinds: [&str; 2]) {
    let notes = Notes::new();
    let mut agents: Vec<Agent> = [0, 1, 0, 1].map(|side| setting.agent(side)).into();
    for (agent, kind) in agents.iter_mut().zip(kinds.iter().flat_map(|kind| [kind, kind])) {
        agent.told(&format!("sections {counter} {} {kind}", notes.path()));
    }
    notes.go_on(&agents, 400);
    notes.end(&agents, &setting.at(1, counter));
}

#[test]
fn nobody_is_inside_with_somebody_else() {
    everywhere(|setting| {
        count(setting, "files", ["flock", "reopen"]);
        count(setting, "ranges", ["posix", "ofd"]);
    });
}

#[test]
fn sqlite_at_two_mounts_loses_no_transaction() {
    const COUNT: u64 = 20;
    if !has_program("python3", &["-c", "import sqlite3"]) {
        return;
    }
    everywhere(|setting| {
        let mut agents = [0, 1, 0, 1].map(|side| setting.agent(side));
        agents.iter_mut().for_each(|agent| agent.told(&format!("sqlite database {COUNT}")));
        let mut said = agents.each_ref().map(Agent::answer);
        said.sort();
        assert_eq!(said[3], format!("ok {}", 4 * COUNT), "{said:?}, {}", setting.name());
    });
}
