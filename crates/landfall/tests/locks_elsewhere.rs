//! Locks of shared mounts, and what ends: the mount, its process, the server, the network. `docs/fs.md`, "Several
//! mounts" and "Mounts on other machines".

mod common;

use common::chain::Chain;
use common::far::{Far, Network, served};
use common::locks::{Agent, Notes, Setting};
use common::mounts::{Pair, Process, Site};
use common::{Place, can_mount, has_program};
use std::path::Path;
use std::time::Duration;

/// Each kind of lock: taken, freed.
const LOCKS: [[&str; 2]; 3] =
    [["flock f ex", "flock f un"], ["posix f ex 10 10", "posix f un 0 0"], ["ofd f ex 0 0", "ofd f un 0 0"]];

fn is_possible() -> bool {
    has_program("python3", &["--version"]) && can_mount()
}

/// An agent at a mount that has opened a file as `f`.
fn at(directory: &Path, where_: &str) -> Agent {
    let mut agent = Agent::new(directory, where_);
    agent.does("open f file");
    agent
}

/// At the two mounts of a server, here and elsewhere. What is in memory is not lost with a server.
fn at_mounts(test: impl Fn(&mut Setting)) {
    if !is_possible() {
        return;
    }
    for kind in [Setting::here, Setting::elsewhere] {
        let Some(place) = Place::in_memory() else { return };
        let mut setting = kind(place);
        test(&mut setting);
        setting.end();
    }
}

/// A kind of lock, and the mount that has it.
struct Case {
    lock: &'static str,
    free: &'static str,
    side: usize,
}

impl Case {
    /// One of each. Each has a file of its own, so that one server that is killed does for all.
    fn all(setting: &Setting) -> Vec<Self> {
        // Two mounts here are alike.
        let sides = if setting.is_one_elsewhere() { 0..2 } else { 0..1 };
        let at_each =
            |[lock, free]: [&'static str; 2]| sides.clone().map(move |side| Self { lock, free, side });
        LOCKS.into_iter().flat_map(at_each).collect()
    }

    fn agents<const N: usize>(&self, setting: &Setting, sides: [usize; N]) -> [Agent; N] {
        let kind = self.lock.split(' ').next().unwrap_or_default();
        setting.with_file(&format!("{kind}-{}", self.side), sides)
    }

    /// The other mount.
    const fn across(&self) -> usize {
        1 - self.side
    }
}

#[test]
fn locks_of_a_mount_that_ends_or_is_killed_are_freed() {
    if !is_possible() {
        return;
    }
    let pair = Pair::new(Place::new(), &[]);
    let server = pair.site.server();
    let (here, there) = (pair.site.point.path(), pair.second.path());
    let staying = pair.site.shared_mount(there);
    for ends in [Process::stop, Process::kill] {
        let leaving = pair.site.shared_mount(here);
        let begin = |[lock, free]: [&'static str; 2]| {
            let mut agents = [here, there].map(|point| at(point, "here"));
            agents[0].does(lock);
            agents[1].begins(lock);
            (agents, free)
        };
        // They do not know each other, but for the ranges.
        let begun = [LOCKS[0], LOCKS[1]].map(begin);
        ends(leaving);
        for ([gone, mut waiter], free) in begun {
            waiter.answers("ok");
            waiter.does(free);
            gone.kill();
        }
        let _ = landfall_fuse::unmount(here, landfall_fuse::Unmount::Lazily);
    }
    staying.stop();
    server.stop();
    pair.is_clean();
}

#[test]
fn locks_of_a_mount_elsewhere_that_ends_or_is_killed_are_freed() {
    if !is_possible() {
        return;
    }
    let Some((site, address)) = served() else { return };
    let server = site.server();
    let staying = Far::mount(&[address], &[]);
    for ends in [Far::stop, Far::kill] {
        let leaving = Far::mount(&[address], &[]);
        let begin = |[lock, free]: [&'static str; 2]| {
            let mut agents = [&leaving, &staying].map(|far| at(far.point.path(), "elsewhere"));
            agents[0].does(lock);
            agents[1].begins(lock);
            (agents, free)
        };
        let begun = [LOCKS[0], LOCKS[2]].map(begin);
        ends(leaving);
        for ([gone, mut waiter], free) in begun {
            waiter.answers("ok");
            waiter.does(free);
            gone.kill();
        }
    }
    staying.stop();
    server.stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn locks_and_who_waits_for_them_outlive_servers() {
    at_mounts(|setting| {
        let begin = |case: Case| {
            let [mut holder, mut waiter, mut beside] =
                case.agents(setting, [case.side, case.across(), case.side]);
            holder.does(case.lock);
            holder.does("write f text");
            waiter.told(case.lock);
            beside.told(case.lock);
            (case, holder, [waiter, beside])
        };
        let mut begun: Vec<_> = Case::all(setting).into_iter().map(begin).collect();
        Agent::all_wait(begun.iter().flat_map(|(.., waiters)| waiters));
        setting.kill_server(|| ());
        setting.kill_server(|| ());
        Agent::all_wait(begun.iter().flat_map(|(.., waiters)| waiters));
        for (case, holder, _) in &mut begun {
            for mut other in case.agents(setting, [0, 1]) {
                other.gets(&format!("{} nb", case.lock), "EAGAIN");
                other.gets(&format!("alarm 0.1 {}", case.lock.replace("ex", "sh")), "interrupted");
            }
            holder.gets("read f", "-text");
            holder.does("write f more");
        }
        for (case, mut holder, mut waiters) in begun {
            // Each frees it as soon as it has it.
            waiters.iter_mut().for_each(|waiter| waiter.told(case.free));
            Agent::all_wait(&waiters);
            holder.does(case.free);
            for waiter in &waiters {
                waiter.answers("ok");
                waiter.answers("ok");
            }
        }
    });
}

/// The next server gets these requests first, perhaps before it has the locks of the other mount.
#[test]
fn who_asks_while_there_is_no_server_gets_no_lock_that_another_mount_has() {
    at_mounts(|setting| {
        let begin = |case: Case| {
            let mut agents = case.agents(setting, [case.side, case.across(), case.across()]);
            agents[0].does(case.lock);
            (case, agents)
        };
        let mut begun: Vec<_> = Case::all(setting).into_iter().map(begin).collect();
        setting.kill_server(|| {
            for (case, [_, asking, waiting]) in &mut begun {
                asking.told(&format!("{} nb", case.lock));
                waiting.told(case.lock);
            }
        });
        for (case, [mut holder, asking, waiting]) in begun {
            asking.answers("EAGAIN");
            waiting.waits();
            holder.does(case.free);
            waiting.answers("ok");
        }
    });
}

#[test]
fn who_ends_while_there_is_no_server_does_not_get_the_lock() {
    at_mounts(|setting| {
        let is_one_elsewhere = setting.is_one_elsewhere();
        let begin = |case: Case| {
            let mut agents = case.agents(setting, [case.side, 0, 1, 1]);
            agents[0].does(case.lock);
            agents[1].told(case.lock);
            (case, agents)
        };
        let mut begun: Vec<_> = Case::all(setting).into_iter().map(begin).collect();
        Agent::all_wait(begun.iter().map(|(_, agents)| &agents[1]));
        for (case, [_, _, interrupted, _]) in &mut begun {
            interrupted.told(&format!("alarm 1 {}", case.lock));
        }
        // On a machine that stands still they may be interrupted by now.
        std::thread::sleep(Duration::from_millis(100));
        setting.kill_server(|| {
            begun.iter_mut().for_each(|(_, [_, killed, ..])| killed.kill_now());
            if !is_one_elsewhere {
                return std::thread::sleep(Duration::from_millis(1200));
            }
            // They are more than the threads of their holder, which says so without a server.
            for (case, [.., late]) in &mut begun {
                late.told(&format!("alarm 0.2 {}", case.lock));
            }
            for (_, [.., interrupted, late]) in &begun {
                interrupted.answers("interrupted");
                late.answers("interrupted");
            }
        });
        for (case, [mut holder, killed, interrupted, late]) in begun {
            if !is_one_elsewhere {
                interrupted.answers("interrupted");
            }
            drop(late);
            killed.kill();
            let [mut next] = case.agents(setting, [case.across()]);
            next.begins(case.lock);
            holder.does(case.free);
            next.answers("ok");
        }
    });
}

#[test]
fn what_is_freed_while_there_is_no_server_is_free_afterwards() {
    at_mounts(|setting| {
        let begin = |case: Case| {
            let mut agents = case.agents(setting, [case.side, case.across(), case.side]);
            agents[0].does(case.lock);
            agents[1].told(case.lock);
            (case, agents)
        };
        let mut begun: Vec<_> = Case::all(setting).into_iter().map(begin).collect();
        Agent::all_wait(begun.iter().map(|(_, agents)| &agents[1]));
        setting.kill_server(|| {
            begun.iter_mut().for_each(|(case, [holder, _, _])| holder.told(case.free));
        });
        for (case, [holder, next, last]) in &mut begun {
            holder.answers("ok");
            next.answers("ok");
            last.told(case.lock);
        }
        Agent::all_wait(begun.iter().map(|(_, agents)| &agents[2]));
        // It is freed by the end of the process, too.
        setting.kill_server(|| begun.iter_mut().for_each(|(_, [_, next, _])| next.kill_now()));
        for (_, [_, next, last]) in begun {
            last.answers("ok");
            next.kill();
        }
    });
}

#[test]
fn a_descriptor_of_a_file_with_a_lock_that_is_closed_while_the_server_dies_holds_nobody_up() {
    at_mounts(|setting| {
        let [mut holder, mut next] = setting.with_file("f", [1, 1]);
        holder.does("flock f ex");
        holder.does("dup g f");
        setting.kill_stopped_server(|| holder.begins("close g"));
        holder.answers("ok");
        holder.does("flock f un");
        next.does("flock f ex");
    });
}

#[test]
fn a_crowd_that_waits_for_a_lock_outlives_servers() {
    const CROWD: u64 = 20;
    at_mounts(|setting| {
        for kind in ["flock", "posix"] {
            let ranges = if kind == "flock" { "" } else { " 0 0" };
            let [mut holder] = setting.with_file(kind, [0]);
            holder.does("write f 0");
            holder.does(&format!("{kind} f ex{ranges}"));
            let mut crowds = [0, 1].map(|side| setting.agent(side));
            for crowd in &mut crowds {
                crowd.gets(&format!("crowd {kind} {CROWD} {kind}"), "started");
                crowd.waits();
            }
            setting.kill_server(|| ());
            crowds.iter().for_each(Agent::waits);
            holder.does(&format!("{kind} f un{ranges}"));
            setting.kill_server(|| ());
            crowds.iter().for_each(|crowd| crowd.answers("ok"));
            holder.gets("read f", &format!("-{:020}", 2 * CROWD));
        }
    });
}

#[test]
fn nobody_is_inside_with_somebody_else_while_servers_are_killed() {
    at_mounts(|setting| {
        for kinds in [["flock", "posix"], ["ofd", "reopen"]] {
            let notes = [Notes::new(), Notes::new()];
            let mut agents = [Vec::new(), Vec::new()];
            for (group, kind) in kinds.iter().enumerate() {
                for side in [0, 1] {
                    let mut agent = setting.agent(side);
                    agent.told(&format!("sections counter-{kind} {} {kind}", notes[group].path()));
                    agents[group].push(agent);
                }
            }
            let go_on = || notes.iter().zip(&agents).for_each(|(notes, agents)| notes.go_on(agents, 20));
            for _ in 0..2 {
                go_on();
                setting.kill_server(|| ());
            }
            go_on();
            for (group, kind) in kinds.iter().enumerate() {
                notes[group].end(&agents[group], &setting.at(group, &format!("counter-{kind}")));
            }
        }
    });
}

/// Nobody on that server's machine knows who has locks: it hears that from the mounts.
#[test]
fn locks_and_who_waits_for_them_follow_the_first_server_of_a_chain() {
    if !is_possible() {
        return;
    }
    let mut chain = Chain::new(3, &["--capacity", "256MiB", "--workers", "2"]);
    let addresses = chain.serve_mounts();
    chain.start_all();
    let fars = [(); 2].map(|()| Far::mount(&addresses, &[]));
    let begin = |[lock, free]: [&'static str; 2]| {
        let mut agents = [0, 1, 1].map(|side: usize| at(fars[side].point.path(), "elsewhere"));
        let [holder, waiter, _] = &mut agents;
        holder.does("write f before");
        holder.does("sync f");
        holder.does(lock);
        waiter.begins(lock);
        (lock, free, agents)
    };
    // They do not know each other.
    let mut begun = [LOCKS[0], LOCKS[1]].map(begin);
    chain.kill(0);
    for (lock, _, [_, _, asking]) in &mut begun {
        asking.told(&format!("{lock} nb"));
    }
    chain.remove(0);
    for (lock, free, [mut holder, waiter, asking]) in begun {
        asking.answers("EAGAIN");
        holder.gets("read f", "-before");
        waiter.waits();
        holder.does(free);
        waiter.answers("ok");
        holder.gets(&format!("{lock} nb"), "EAGAIN");
    }
    fars.into_iter().for_each(Far::stop);
    chain.end(&[1, 2]);
}

/// A mount here, and one elsewhere behind a network that can be cut.
struct Apart {
    far: Far,
    near: Process,
    server: Process,
    network: Network,
    site: Site,
}

impl Apart {
    fn new() -> Option<Self> {
        let (site, address) = is_possible().then(served).flatten()?;
        let server = site.server();
        let near = site.shared_mount(site.point.path());
        let network = Network::before(address);
        let far = Far::mount(&[network.address], &[]);
        Some(Self { far, near, server, network, site })
    }

    fn here(&self) -> Agent {
        at(self.site.point.path(), "here")
    }

    fn elsewhere(&self) -> Agent {
        at(self.far.point.path(), "elsewhere")
    }

    fn end(self) {
        self.far.stop();
        self.near.stop();
        self.server.stop();
        assert!(self.site.place.check(&[]).status.success());
    }
}

#[test]
fn a_lock_that_nobody_has_taken_while_its_mount_was_away_is_held_on() {
    let Some(apart) = Apart::new() else { return };
    for [lock, free] in LOCKS {
        let (mut holder, mut beside, mut other) = (apart.elsewhere(), apart.elsewhere(), apart.here());
        holder.does(lock);
        holder.does("write f before");
        beside.begins(lock);
        apart.network.cut();
        // Other files and other locks are nobody's business.
        other.does("open other other");
        other.does("flock other ex");
        apart.network.mend();
        holder.does("write f behind");
        holder.gets("read f", "-behind");
        other.gets(&format!("{lock} nb"), "EAGAIN");
        beside.waits();
        holder.does(free);
        beside.answers("ok");
        other.gets(&format!("{lock} nb"), "EAGAIN");
        beside.does(free);
        other.does(&format!("{lock} nb"));
    }
    apart.end();
}

#[test]
fn a_lock_that_somebody_has_taken_while_its_mount_was_away_is_lost_and_its_descriptor_says_so() {
    let Some(apart) = Apart::new() else { return };
    for [lock, free] in LOCKS {
        for is_free_again in [false, true] {
            let (mut holder, mut other) = (apart.elsewhere(), apart.here());
            let mut beside = apart.elsewhere();
            holder.does("open copy copy");
            holder.does(lock);
            holder.does("write f before");
            for kept in ["copy f copy", "copy copy f", "hole f"] {
                holder.does(kept);
            }
            other.begins(lock);
            apart.network.cut();
            other.answers("ok");
            other.does("write f theirs");
            if is_free_again {
                other.does(free);
            }
            apart.network.mend();
            holder.gets("write f mine--", "EIO");
            for lost in ["read f", "copy f copy", "copy copy f", "hole f"] {
                holder.gets(lost, "EIO");
            }
            holder.does("write copy whole");
            beside.gets("read f", "-theirs");
            holder.does("close f");
            holder.does("open f file");
            holder.gets("read f", "-theirs");
            if !is_free_again {
                holder.gets(&format!("{lock} nb"), "EAGAIN");
                other.does(free);
            }
            holder.does(lock);
            holder.does("write f second");
            other.gets("read f", "-second");
            other.gets(&format!("{lock} nb"), "EAGAIN");
        }
    }
    apart.end();
}

/// The server goes on without the mount, and hears from it with the next connection only.
#[test]
fn locks_are_held_on_by_a_mount_whose_connections_are_lost_without_a_word() {
    let Some(apart) = Apart::new() else { return };
    for [lock, free] in LOCKS {
        let (mut holder, mut waiter, mut other) = (apart.elsewhere(), apart.elsewhere(), apart.here());
        holder.does(lock);
        waiter.begins(lock);
        apart.network.lose();
        holder.does("write f more");
        waiter.waits();
        other.begins(lock);
        apart.network.deliver();
        waiter.told(free);
        holder.does(free);
        waiter.answers("ok");
        waiter.answers("ok");
        other.answers("ok");
    }
    apart.end();
}
