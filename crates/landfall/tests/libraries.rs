//! Programs with the library of files, on mounts whose processes are killed: what was acknowledged is there.

mod common;

use common::far::{Far, leaked};
use common::faults::Over;
use common::mounts::{END_LIMIT, Pair, Process, Random, Site, wait_for_file};
use common::writers::{Acknowledged, By, Programs, Writer};
use common::{Place, can_mount, mount_metric, own_address, pattern};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a call on a mount says that has ended.
const ENDED: [i32; 4] = [libc::ENOTCONN, libc::ECONNABORTED, libc::ENODEV, libc::EIO];
/// Records that a writer has written before something happens to it.
const RECORDS: u64 = 60;
/// After so long a mount elsewhere gets a lease again of what was recalled.
const COOLED: Duration = Duration::from_millis(1200);
/// Time in which a library gets a lease, and writes.
const ASKED: Duration = Duration::from_secs(2);

/// A region in memory, and the programs. `None` where there can be no mount.
fn in_memory(serve: &[&'static str]) -> Option<(Site, Programs)> {
    let place = Place::in_memory().filter(|_| can_mount())?;
    let programs = Programs::build(&place)?;
    Some((Site::new(place, serve), programs))
}

fn is_clean(site: &Site) {
    let output = site.place.check(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_program_with_the_library_is_answered_in_its_process_where_a_server_serves_the_mount() {
    let Some((site, programs)) = in_memory(&[]) else { return };
    let (server, mount) = (site.server(), site.mount(&[]));
    let mut writer = Writer::start(&site, &programs, By::Library(0), Acknowledged::Synced, 1);
    writer.wait_for_records(RECORDS);
    // Others read it meanwhile.
    writer.check();
    writer.wait_for_records(2 * RECORDS);
    assert!(writer.stop() > RECORDS, "it has leases: {}", writer.said());
    writer.check();
    mount.stop();
    server.stop();
    is_clean(&site);
}

/// Operations of libraries that the server has adopted.
fn adopted(site: &Site) -> Option<u64> {
    mount_metric(site.point.path(), "landfall_fs_library_operations_total")
}

#[test]
fn a_program_with_the_library_joins_the_next_server() {
    let Some((site, programs)) = in_memory(&[]) else { return };
    let (mut server, mount) = (site.server(), site.mount(&[]));
    let mut writer = Writer::start(&site, &programs, By::Library(0), Acknowledged::Returned, 1);
    writer.wait_for_records(RECORDS);
    let ends: [fn(Process); 2] = [Process::kill, Process::stop];
    for end in ends {
        end(server);
        server = site.server();
        let is_joined = || adopted(&site).filter(|adopted| *adopted > 0);
        common::wait_until(END_LIMIT, is_joined).expect("it is answered in its process again");
        assert!(writer.is_running(), "{}", writer.said());
    }
    writer.stop();
    writer.check();
    mount.stop();
    server.stop();
    is_clean(&site);
}

/// The server ends while programs write, by `end`, and the next one starts.
fn writers_go_on((site, programs): &(Site, Programs), what: Acknowledged, end: impl Fn(Process)) -> u64 {
    let (mut server, mount) = (site.server(), site.mount(&[]));
    let mut answered = 0;
    for round in 0..3 {
        let by = [By::Library(0), By::Library(8), By::Mount];
        let mut writers: Vec<Writer> = (1..)
            .zip(by)
            .map(|(index, by)| Writer::start(site, programs, by, what, round * 10 + index))
            .collect();
        writers.iter_mut().for_each(|writer| writer.wait_for_records(RECORDS));
        end(server);
        server = site.server();
        wait_for_file(&site.at("writer 1"));
        for writer in &mut writers {
            let count = writer.records() + RECORDS;
            writer.wait_for_records(count);
            answered += writer.stop();
            writer.check();
        }
    }
    mount.stop();
    server.stop();
    is_clean(site);
    answered
}

#[test]
fn programs_with_the_library_go_on_through_the_mount_when_its_server_is_killed() {
    let Some(site) = in_memory(&[]) else { return };
    assert!(writers_go_on(&site, Acknowledged::Returned, Process::kill) > 0, "they have leases before");
}

#[test]
fn programs_with_the_library_go_on_when_their_server_is_told_to_stop() {
    let Some(site) = in_memory(&[]) else { return };
    assert!(writers_go_on(&site, Acknowledged::Returned, Process::stop) > 0, "they have leases before");
}

#[test]
fn nothing_that_has_returned_is_lost_where_every_change_is_durable_first() {
    let Some(site) = in_memory(&["--sync", "always"]) else { return };
    assert_eq!(writers_go_on(&site, Acknowledged::Returned, Process::kill), 0, "all is passed on");
    let place = Place::new();
    let Some(programs) = Programs::build(&place) else { return };
    let on_a_file = (Site::new(place, &["--sync", "always"]), programs);
    assert_eq!(writers_go_on(&on_a_file, Acknowledged::Returned, Process::kill), 0, "all is passed on");
}

#[test]
fn nothing_that_is_synced_is_lost_where_the_region_is_on_a_file() {
    let place = Place::new();
    if !can_mount() {
        return;
    }
    let Some(programs) = Programs::build(&place) else { return };
    let (site, mut seed) = (Site::new(place, &[]), 0);
    let (mut server, mount) = (site.server(), site.mount(&[]));
    for _ in 0..3 {
        seed += 1;
        let mut writer = Writer::start(&site, &programs, By::Library(0), Acknowledged::Synced, seed);
        writer.wait_for_records(RECORDS);
        // What the server loses is told by `fsync`, and ends the writer: it is killed before.
        writer.kill();
        server.kill();
        server = site.server();
        writer.check();
    }
    mount.stop();
    server.stop();
}

#[test]
fn a_program_with_the_library_gets_eio_where_the_mount_has_no_more_patience() {
    let Some((site, programs)) = in_memory(&[]) else { return };
    let (server, mount) = (site.server(), site.mount(&["--patience", "1"]));
    let mut writer = Writer::start(&site, &programs, By::Library(0), Acknowledged::Returned, 1);
    writer.wait_for_records(RECORDS);
    server.kill();
    assert_eq!(writer.wait().code(), Some(3));
    assert!(writer.said().contains(&format!("errno {}", libc::EIO)), "{}", writer.said());
    let server = site.server();
    wait_for_file(&site.at("writer 1"));
    writer.check();
    mount.stop();
    server.stop();
}

/// What is killed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Library,
    Server,
    /// The process that has made the mount.
    Mount,
}

/// A mount with writers, of which processes are killed.
struct Campaign {
    site: Site,
    programs: Programs,
    /// `None`: the mount serves itself.
    server: Option<Process>,
    mount: Option<Process>,
    writers: Vec<Writer>,
    random: Random,
    started: u64,
    checked: u64,
}

impl Campaign {
    fn start((site, programs): (Site, Programs), is_offloaded: bool, seed: u64) -> Self {
        let server = is_offloaded.then(|| site.server());
        let mount = Some(if is_offloaded { site.mount(&[]) } else { site.own_mount() });
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut campaign =
            Self { site, programs, server, mount, writers: Vec::new(), random, started: 0, checked: 0 };
        (0..3).for_each(|_| campaign.start_writer());
        campaign
    }

    fn start_writer(&mut self) {
        self.started += 1;
        let by = match self.random.below(4) {
            0 => By::Mount,
            1 => By::Library(8),
            _ => By::Library(0),
        };
        self.writers.push(Writer::start(
            &self.site,
            &self.programs,
            by,
            Acknowledged::Returned,
            self.started,
        ));
    }

    fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.random.below(most_ms)));
    }

    /// Kills some processes, and starts all of them again.
    #[allow(clippy::print_stderr, reason = "what was done before a failure must be known")]
    fn round(&mut self) {
        use Victim::{Library, Mount, Server};
        let offloaded: [&[Victim]; 8] = [
            &[Server],
            &[Library],
            &[Server, Library],
            &[Server],
            &[Mount],
            &[Mount, Server],
            &[Server, Mount],
            &[Library, Mount, Server],
        ];
        let embedded: [&[Victim]; 4] = [&[Mount], &[Library], &[Library, Mount], &[Mount, Library]];
        self.pause(300);
        let all: &[&[Victim]] = if self.server.is_some() { &offloaded } else { &embedded };
        let victims = all[usize::try_from(self.random.below(all.len() as u64)).unwrap()];
        eprintln!("killed: {victims:?}");
        let is_offloaded = self.server.is_some();
        let mut killed = Vec::new();
        for victim in victims {
            match victim {
                Library => self.writers[0].kill_now(),
                Server => self.server.take().unwrap().kill(),
                Mount => killed.push(self.mount.take().unwrap().kill_now()),
            }
            self.pause(15);
        }
        if self.mount.is_none() && self.server.is_none() {
            // What was killed may wait for a request that nobody answers any more.
            self.site.unmount();
        }
        for process in killed {
            process.wait();
        }
        if self.mount.is_none() {
            self.writers.iter_mut().for_each(writer_of_ended_mount);
        }
        if victims.contains(&Server) {
            self.pause(60);
            self.server = Some(self.site.server());
        }
        if self.mount.is_none() {
            self.mount_again(is_offloaded);
        }
        if victims.contains(&Library) {
            self.writers[0].wait();
        }
        self.go_on();
    }

    fn mount_again(&mut self, is_offloaded: bool) {
        self.site.unmount();
        self.mount = Some(if is_offloaded { self.site.next_mount() } else { self.site.own_mount() });
    }

    /// Checks writers that have ended, and starts others.
    fn go_on(&mut self) {
        for at in (0..self.writers.len()).rev() {
            if self.writers[at].is_running() {
                continue;
            }
            let writer = self.writers.remove(at);
            writer.check();
            self.checked += writer.records();
            writer.remove();
            self.start_writer();
        }
    }

    fn end(mut self) {
        let answered: u64 = self.writers.iter_mut().map(Writer::stop).sum();
        assert!(answered + self.checked > 0, "they have worked");
        self.writers.drain(..).for_each(|writer| writer.check());
        self.mount.take().unwrap().stop();
        self.server.take().into_iter().for_each(Process::stop);
        is_clean(&self.site);
    }
}

/// A writer of a mount that has ended says so, unless it was killed.
fn writer_of_ended_mount(writer: &mut Writer) {
    let status = writer.wait();
    let said = writer.said();
    let is_told = ENDED.iter().any(|errno| said.contains(&format!("errno {errno}\n")));
    // It may have begun when the mount had ended.
    let is_late = said.contains(&format!("open the directory: errno {}\n", libc::ENOENT));
    assert!(status.code().is_none() || is_told || is_late, "{status}: {said}");
}

/// Reads what writers write, so that they lose their leases now and then.
fn read_all(point: &Path, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        for directory in fs::read_dir(point).into_iter().flatten().flatten() {
            for name in ["log", "slots", "name 1"] {
                // Files come and go, and so do mounts.
                let _ = fs::read(directory.path().join(name));
                std::thread::sleep(Duration::from_millis(7));
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[allow(clippy::print_stderr, reason = "the seed of a failure must be known")]
fn kill_again_and_again(is_offloaded: bool) {
    let Some(place) = in_memory(&[]) else { return };
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, seed) = (number("LANDFALL_KILLS", 8), number("LANDFALL_SEED", 7));
    eprintln!("LANDFALL_KILLS={rounds} LANDFALL_SEED={seed}");
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut campaign = Campaign::start(place, is_offloaded, seed);
        let point = campaign.site.point.path().to_owned();
        let reader = scope.spawn(move || read_all(&point, is_over));
        let over = Over(is_over);
        (0..rounds).for_each(|_| campaign.round());
        drop(over);
        reader.join().unwrap();
        campaign.end();
    });
}

#[test]
fn what_is_acknowledged_is_there_whichever_of_library_server_and_mount_are_killed() {
    kill_again_and_again(true);
}

#[test]
fn what_is_acknowledged_is_there_whichever_of_library_and_mount_are_killed() {
    kill_again_and_again(false);
}

#[test]
fn programs_with_the_library_at_two_mounts_of_a_server_see_each_other_and_go_on_with_the_next_one() {
    let Some(place) = Place::in_memory().filter(|_| can_mount()) else { return };
    let Some(programs) = Programs::build(&place) else { return };
    let pair = Pair::new(place, &[]);
    let mut server = pair.site.server();
    let (first, second) = pair.mounts();
    let points = [pair.site.point.path(), pair.second.path()];
    let start = |(seed, point)| {
        Writer::start_on((&pair.site, point), &programs, By::Library(0), Acknowledged::Returned, seed)
    };
    let mut writers: Vec<Writer> = (1..).zip(points).map(start).collect();
    let ends: [fn(Process); 2] = [Process::kill, Process::stop];
    for end in ends {
        for (writer, other) in writers.iter_mut().zip([points[1], points[0]]) {
            writer.wait_for_records(RECORDS);
            writer.check_at(other);
        }
        assert!(adopted(&pair.site) > Some(0), "they are answered in their processes");
        end(server);
        server = pair.site.server();
        let is_joined = || adopted(&pair.site).filter(|adopted| *adopted > 0);
        common::wait_until(END_LIMIT, is_joined).expect("they are answered in their processes again");
    }
    let mut other = writers.pop().expect("there are two");
    assert!(other.stop() > RECORDS, "it has leases: {}", other.said());
    second.stop();
    // One mount's end is none of the other's.
    let (mut writer, before) = (writers.pop().expect("there are two"), adopted(&pair.site));
    let before = before.expect("they are counted");
    let is_answered = || adopted(&pair.site).filter(|adopted| *adopted > before);
    common::wait_until(END_LIMIT, is_answered).expect("it is still answered in its process");
    assert!(writer.stop() > RECORDS, "it has leases: {}", writer.said());
    writer.check();
    other.check_at(points[0]);
    first.stop();
    server.stop();
    pair.is_clean();
}

#[test]
fn what_a_library_has_written_is_seen_by_a_mount_elsewhere_that_has_kept_the_file() {
    let Some(place) = Place::in_memory().filter(|_| can_mount()) else { return };
    let Some(programs) = Programs::build(&place) else { return };
    let address = own_address();
    let site = Site::new(place, &["--listen", leaked(address.to_string())]);
    let server = site.server();
    let mount = site.shared_mount(site.point.path());
    let far = Far::mount(&[address], &[]);
    let (near, seen) = (site.at("file"), far.at("file"));
    File::create(&near).unwrap();
    let mut command = programs.with_library(Path::new("dd"), 0);
    command.args(["bs=4096", "conv=notrunc", "iflag=fullblock", "status=none"]);
    command.arg(format!("of={}", near.display())).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut writer = command.spawn().unwrap();
    let (mut expected, mut by_library) = (Vec::new(), 0);
    for round in 0..20_u64 {
        // After a recall an inode cools for a second; then its holder keeps what it has read.
        std::thread::sleep(COOLED);
        (0..3).for_each(|_| assert_eq!(fs::read(&seen).unwrap(), expected));
        let (block, before) = (pattern(round, 4096), adopted(&site));
        expected.extend_from_slice(&block);
        writer.stdin.as_mut().unwrap().write_all(&block).unwrap();
        // Who looks at the file while its lease is asked for gets in the way: it is written by the kernel then.
        let is_adopted = || adopted(&site).filter(|_| adopted(&site) > before);
        by_library += u32::from(common::wait_until(ASKED, is_adopted).is_some());
        let is_written = || (near.metadata().unwrap().len() == expected.len() as u64).then_some(());
        common::wait_until(END_LIMIT, is_written).expect("it is written");
        assert_eq!(seen.metadata().unwrap().len(), expected.len() as u64, "round {round}");
        assert_eq!(fs::read(&seen).unwrap(), expected, "round {round}");
        if by_library == 3 {
            break;
        }
    }
    drop(writer.stdin.take());
    let said = writer.wait_with_output().unwrap();
    assert_eq!(by_library, 3, "{}", String::from_utf8_lossy(&said.stderr));
    far.stop();
    mount.stop();
    server.stop();
    is_clean(&site);
}
