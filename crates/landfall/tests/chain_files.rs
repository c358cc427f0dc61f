//! Files of servers in a chain: what one has durably, all nodes have; whoever is the first one mounts them.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod common;

use common::faults::Over;
use common::nodes::{MOUNT_LIMIT, Nodes, Seen};
use common::{Server, mount_metric, pattern, wait_until};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a node is stopped, unless what waits for none is done before.
const STOPPED: Duration = Duration::from_secs(3);

/// Memory that a direct read takes.
#[repr(align(4096))]
struct AlignedPage([u8; 4096]);

impl Default for AlignedPage {
    fn default() -> Self {
        Self([0; 4096])
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// What programs do with files. `seed` makes it differ.
fn work(root: &Path, seed: u64) {
    let at = |name: &str| root.join(format!("{name}-{seed}"));
    fs::create_dir(at("d")).unwrap();
    write_durably(&at("d").join("long"), &pattern(seed, 5 << 20)).unwrap();
    write_durably(
        &at("d").join("a name that is too long to lie in a record of its directory beside others"),
        b"x",
    )
    .unwrap();
    fs::hard_link(at("d").join("long"), at("second name")).unwrap();
    symlink("d/long", at("link")).unwrap();
    let mut file = OpenOptions::new().append(true).create(true).open(at("appended")).unwrap();
    (0..20).for_each(|part| file.write_all(&pattern(part, 10_000)).unwrap());
    file.set_len(123_456).unwrap();
    file.write_all_at(b"behind a hole", 300_000).unwrap();
    fs::rename(at("appended"), at("d").join("moved")).unwrap();
    write_durably(&at("d").join("new"), &pattern(seed + 1, 70_000)).unwrap();
    fs::rename(at("d").join("new"), at("d").join("moved over")).unwrap();
    write_durably(&at("removed"), &pattern(9, 30_000)).unwrap();
    fs::remove_file(at("removed")).unwrap();
    fs::set_permissions(at("d").join("moved"), Permissions::from_mode(0o640)).unwrap();
    File::open(root).unwrap().sync_all().unwrap();
}

#[test]
fn files_outlive_the_nodes_that_were_the_first() {
    let Some(mut nodes) = Nodes::new(3, &["--workers", "2"]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    work(nodes.points[0].path(), 1);
    // It is open when its node is killed, and has no name.
    let open = File::create(nodes.at(0, "open")).unwrap();
    open.sync_all().unwrap();
    fs::remove_file(nodes.at(0, "open")).unwrap();
    write_durably(&nodes.at(0, "last"), b"of the first").unwrap();
    let tree = nodes.tree(0);

    nodes.replace_first(0, 1, &tree);
    work(nodes.points[1].path(), 2);
    let tree = nodes.tree(1);

    nodes.replace_first(1, 2, &tree);
    work(nodes.points[2].path(), 3);
    nodes.end(&[2]);
}

#[test]
fn a_node_that_was_killed_gets_the_files_that_it_has_missed() {
    let Some(mut nodes) = Nodes::new(3, &[]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let mut seed = 10;
    for victim in [2, 1, 2, 1, 0] {
        work(nodes.points[0].path(), seed);
        let late = nodes.at(0, &format!("late-{victim}-{seed}"));
        let started = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let write = scope.spawn(|| {
                started.store(true, Ordering::Release);
                // It waits for the node that is killed. If that is the first, it fails.
                write_durably(&late, &pattern(seed, 200_000)).is_ok()
            });
            while !started.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            nodes.chain.kill(victim);
            if victim == 0 {
                nodes.unmount(0);
            }
            nodes.chain.start(victim);
            assert!(write.join().unwrap() || victim == 0);
        });
        nodes.chain.wait_until_in_step();
        nodes.wait_until_mounted(0);
        seed += 10;
    }
    work(nodes.points[0].path(), seed);
    let tree = nodes.tree(0);
    nodes.replace_first(0, 1, &tree);
    nodes.replace_first(1, 2, &tree);
    nodes.end(&[2]);
}

#[test]
fn data_land_at_every_node_without_a_copy() {
    let Some(mut nodes) = Nodes::new(3, &[]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let copied = |nodes: &Nodes| -> Vec<f64> {
        let of = |node: usize, path: &str| {
            nodes.chain.server(node).metric(&format!("landfall_copied_bytes_total{{path=\"{path}\"}}"))
        };
        let paths = ["placed", "reply", "stalled", "consolidated", "moved"];
        (0..3).map(|node| paths.iter().map(|path| of(node, path)).sum()).collect()
    };
    let (name, block) = (nodes.at(0, "file"), pattern(3, 65_536));
    write_durably(&name, b"").unwrap();
    let file = OpenOptions::new().write(true).open(&name).unwrap();
    let before = copied(&nodes);
    (0..64).for_each(|at| file.write_all_at(&block, at * 65_536).unwrap());
    file.sync_all().unwrap();
    let now = copied(&nodes);
    // The file has 4 MiB. What is left are operations and attributes.
    let most = now.iter().zip(&before).map(|(now, before)| now - before).fold(0.0, f64::max);
    assert!(most < 20_000.0, "{before:?} {now:?}");
    drop(file);
    nodes.end(&[0, 1, 2]);
}

/// How often a write at the mount of a node has waited for who syncs.
fn pace_waits(nodes: &Nodes, node: usize) -> u64 {
    mount_metric(nodes.points[node].path(), "landfall_fs_pace_waits_total").expect("they are counted")
}

#[test]
fn who_writes_keeps_pace_with_who_syncs_and_with_nobody_else() {
    let Some(mut nodes) = Nodes::new(2, &[]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let write = |file: &File| {
        let block = pattern(5, 65_536);
        (0..64).for_each(|at| file.write_all_at(&block, at * 65_536).unwrap());
    };
    let file = File::create(nodes.at(0, "written")).unwrap();
    (0..4).for_each(|_| write(&file));
    assert_eq!(pace_waits(&nodes, 0), 0, "nobody syncs");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Over(&is_over);
        scope.spawn(|| {
            for round in 0_u64.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                write_durably(&nodes.at(0, "synced"), &pattern(round, 20_000)).unwrap();
            }
        });
        let waited = wait_until(MOUNT_LIMIT, || {
            write(&file);
            (pace_waits(&nodes, 0) > 0).then_some(())
        });
        drop(ends);
        assert!(waited.is_some(), "{}", nodes.chain.words());
    });
    let waited = pace_waits(&nodes, 0);
    (0..4).for_each(|_| write(&file));
    assert_eq!(pace_waits(&nodes, 0), waited, "nobody syncs any more");
    // The node behind ends first.
    file.sync_all().unwrap();
    drop(file);
    nodes.end(&[0, 1]);
}

#[test]
fn files_that_came_compressed_are_as_they_were() {
    let Some(mut nodes) = Nodes::new(2, &["--compression", "lz4"]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    for seed in 0..8_u64 {
        // Noise and zeros in turns.
        let mut bytes = pattern(seed, 300_000 + seed as usize);
        bytes.chunks_mut(100).for_each(|part| part.iter_mut().skip(40).for_each(|byte| *byte = 0));
        write_durably(&nodes.at(0, &format!("file-{seed}")), &bytes).unwrap();
    }
    work(nodes.points[0].path(), 1);
    let unpacked = nodes.chain.server(1).metric("landfall_chain_unpacked_bytes_total");
    assert!(unpacked > 1_000_000.0, "{unpacked}");
    let tree = nodes.tree(0);
    nodes.replace_first(0, 1, &tree);
    nodes.end(&[1]);
}

#[test]
fn a_full_chain_says_so_and_removing_files_makes_room() {
    let Some(mut nodes) = Nodes::new(2, &[]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let name = |at: u64| nodes.at(0, &format!("file-{at}"));
    let full = (0..64).find_map(|at| Some((at, write_durably(&name(at), &pattern(at, 4 << 20)).err()?)));
    let (at, error) = full.expect("the regions have 256 MiB");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(at > 30, "{at} files of 4 MiB");
    // The last one may not have been made.
    let _ = fs::remove_file(name(at));
    (0..at).for_each(|at| fs::remove_file(name(at)).unwrap());
    let again = wait_until(MOUNT_LIMIT, || write_durably(&name(0), &pattern(0, 4 << 20)).ok());
    assert!(again.is_some(), "{}", nodes.chain.words());
    nodes.end(&[0, 1]);
}

/// Lets `act` begin while the last node is stopped, and returns whether it was done before that node went on. After that it
/// must be done.
fn is_done_without_the_last(nodes: &Nodes, act: impl FnOnce() + Send) -> bool {
    is_done_within(STOPPED, nodes, act)
}

fn is_done_within(limit: Duration, nodes: &Nodes, act: impl FnOnce() + Send) -> bool {
    let last = nodes.chain.server(nodes.points.len() - 1);
    last.signal("STOP");
    let was_done = std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        // Whoever waits for a node that is stopped waits for as long as it is.
        let was_done = wait_until(limit, || acting.is_finished().then_some(())).is_some();
        last.signal("CONT");
        acting.join().expect("it is done");
        was_done
    });
    nodes.chain.wait_until_in_step();
    was_done
}

#[test]
fn in_the_background_fsync_waits_for_the_first_node_alone_and_the_others_follow() {
    let Some(mut nodes) = Nodes::new(2, &["--replicate", "background"]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let write = |round: u64| {
        (0..20).for_each(|file| {
            write_durably(&nodes.at(0, &format!("{round}-{file}")), &pattern(round + file, 20_000)).unwrap();
        });
    };
    assert!(is_done_within(MOUNT_LIMIT, &nodes, || write(1)), "{}", nodes.chain.words());
    // The first node restarts while the other one is stopped: what it has not sent it sends then.
    let last = nodes.chain.server(1);
    last.signal("STOP");
    write(2);
    let tree = nodes.tree(0);
    nodes.kill(0);
    nodes.chain.server(1).signal("CONT");
    nodes.chain.start(0);
    nodes.chain.wait_until_in_step();
    nodes.wait_until_mounted(0);
    assert_eq!(nodes.tree(0), tree, "{}", nodes.chain.words());
    nodes.replace_first(0, 1, &tree);
    nodes.end(&[1]);
}

#[test]
fn a_write_returns_at_once_and_fsync_when_all_nodes_have_it() {
    let Some(mut nodes) = Nodes::new(2, &["--replicate", "fsync"]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let mut file = File::create(nodes.at(0, "file")).unwrap();
    assert!(is_done_within(MOUNT_LIMIT, &nodes, || file.write_all(b"soon").unwrap()));
    assert!(!is_done_without_the_last(&nodes, || {
        (&file).write_all(b"now").unwrap();
        file.sync_all().unwrap();
    }));
    drop(file);
    nodes.end(&[0, 1]);
}

/// A stopped node goes on when this is dropped.
struct GoesOn<'s>(&'s Server);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.signal("CONT");
    }
}

/// Changes modes again and again until it is told to end, and counts how often.
fn change_modes(path: &Path, done: &AtomicU64, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let mode = 0o600 + done.fetch_add(1, Ordering::Relaxed) as u32 % 8;
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn while_a_node_does_not_answer_and_the_log_is_full_reads_go_on_and_who_writes_can_be_killed() {
    const WRITERS: usize = 8;
    let Some(mut nodes) = Nodes::new(2, &[]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let files: Vec<PathBuf> = (0..WRITERS).map(|writer| nodes.at(0, &format!("file-{writer}"))).collect();
    files.iter().for_each(|file| write_durably(file, &pattern(1, 4096)).unwrap());
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let last = nodes.chain.server(1);
    last.signal("STOP");
    let (reads, killed) = std::thread::scope(|scope| {
        let (_over, _goes_on) = (Over(&over), GoesOn(last));
        for file in &files {
            scope.spawn(|| change_modes(file, &done, &over));
        }
        // They wait when nothing has been done for a while.
        let mut before = 0;
        let waits = wait_until(MOUNT_LIMIT, || {
            std::thread::sleep(Duration::from_millis(300));
            let now = done.load(Ordering::Relaxed);
            (std::mem::replace(&mut before, now) == now).then_some(now)
        });
        let count = waits.expect("the log is full in the end");
        assert!(count > 50_000, "they have waited before the log was full: {count}");
        let reading = scope.spawn(|| {
            let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&files[0]).unwrap();
            let mut bytes = AlignedPage::default();
            (0..10).for_each(|_| assert_eq!(direct.read_at(&mut bytes.0, 0).unwrap(), 4096));
            bytes.0 == pattern(1, 4096)[..]
        });
        let reads = wait_until(STOPPED, || reading.is_finished().then_some(())).is_some();
        let mut writer = Command::new("chmod").arg("600").arg(&files[1]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let waited = writer.try_wait().unwrap().is_none();
        writer.kill().unwrap();
        let killed = wait_until(STOPPED, || writer.try_wait().unwrap()).is_some();
        last.signal("CONT");
        assert!(reading.join().unwrap() && waited);
        writer.wait().unwrap();
        let more = wait_until(MOUNT_LIMIT, || (done.load(Ordering::Relaxed) > before + 1000).then_some(()));
        assert!(more.is_some(), "writers go on with the node: {}", nodes.chain.words());
        (reads, killed)
    });
    assert!(reads, "reads waited for the node that was stopped");
    assert!(killed, "a program that waited could not be killed");
    nodes.chain.wait_until_in_step();
    let tree = nodes.tree(0);
    files.iter().for_each(|file| File::open(file).unwrap().sync_all().unwrap());
    nodes.replace_first(0, 1, &tree);
    nodes.end(&[1]);
}

#[test]
fn in_sync_every_change_waits_for_all_nodes() {
    let Some(mut nodes) = Nodes::new(2, &["--replicate", "sync"]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let (name, mut file) = (nodes.at(0, "renamed"), File::create(nodes.at(0, "file")).unwrap());
    assert!(!is_done_without_the_last(&nodes, || file.write_all(b"written").unwrap()));
    assert!(!is_done_without_the_last(&nodes, || fs::rename(nodes.at(0, "file"), &name).unwrap()));
    assert!(!is_done_without_the_last(&nodes, || fs::create_dir(nodes.at(0, "made")).unwrap()));
    drop(file);
    let tree = nodes.tree(0);
    // Nothing was synced: what has returned is there.
    nodes.replace_first(0, 1, &tree);
    nodes.end(&[1]);
}

#[test]
fn how_files_are_replicated_is_for_a_chain_with_files_and_must_be_known() {
    let words = |flags: &[&str]| {
        let output = common::landfall(&[&["serve"], flags].concat());
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let alone = words(&["--chain", "x", "--node", "a", "--replicate", "sync"]);
    assert!(alone.contains("--chain, --node and --files"), "{alone}");
    let unknown = words(&["--chain", "x", "--node", "a", "--files", "y", "--replicate", "never"]);
    assert!(unknown.contains("sync, fsync or background"), "{unknown}");
    let unknown = words(&["--chain", "x", "--node", "a", "--chain-send", "twice"]);
    assert!(unknown.contains("pipelined, one-at-a-time or at-fsync"), "{unknown}");
}

#[test]
fn files_are_the_same_however_chunks_follow_each_other() {
    for way in ["one-at-a-time", "at-fsync"] {
        let Some(mut nodes) = Nodes::new(3, &["--chain-send", way]) else { return };
        nodes.chain.start_all();
        nodes.wait_until_mounted(0);
        work(nodes.points[0].path(), 1);
        let batches = |nodes: &Nodes| nodes.chain.server(0).metric("landfall_chain_batches_total");
        let before = batches(&nodes);
        // It is longer than anything that is published by its size.
        let mut file = File::create(nodes.at(0, "late")).unwrap();
        file.write_all(&pattern(7, 8 << 20)).unwrap();
        let must_send = way == "one-at-a-time";
        let limit = if must_send { MOUNT_LIMIT } else { STOPPED };
        let sends = wait_until(limit, || (batches(&nodes) > before).then_some(())).is_some();
        assert_eq!(sends, must_send);
        file.sync_all().unwrap();
        assert!(batches(&nodes) > before);
        drop(file);
        let tree = nodes.tree(0);
        nodes.replace_first(0, 1, &tree);
        nodes.replace_first(1, 2, &tree);
        nodes.end(&[2]);
    }
}

/// A program that makes, writes, renames and removes files all the time.
struct Busy {
    over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Busy {
    fn start(root: &Path, seed: u64) -> Self {
        let (over, root) = (Arc::new(AtomicBool::new(false)), root.to_owned());
        let is_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut rounds = 0;
            while !is_over.load(Ordering::Acquire) {
                let name = root.join(format!("busy-{}", rounds % 7));
                let _ = fs::remove_file(&name);
                write_durably(&name, &pattern(seed + rounds, 50_000)).unwrap();
                fs::rename(&name, name.with_extension("renamed")).unwrap();
                rounds += 1;
            }
            rounds
        });
        Self { over, thread }
    }

    /// Returns how often it has done so.
    fn end(self) -> u64 {
        self.over.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

#[test]
fn a_node_that_comes_back_is_copied_to_while_files_are_written() {
    let Some(mut nodes) = Nodes::new(2, &["--workers", "2"]) else { return };
    nodes.chain.start(0);
    nodes.chain.remove(1);
    nodes.wait_until_mounted(0);
    (0..4).for_each(|seed| work(nodes.points[0].path(), seed));
    for round in 0..3 {
        nodes.chain.add(1);
        let busy = Busy::start(nodes.points[0].path(), 100 * (round + 1));
        nodes.chain.start(1);
        nodes.chain.wait_until_in_step();
        assert!(busy.end() > 0);
        work(nodes.points[0].path(), 1000 + round);
        nodes.kill(1);
        nodes.chain.remove(1);
        work(nodes.points[0].path(), 2000 + round);
    }
    nodes.chain.add(1);
    nodes.chain.start(1);
    nodes.chain.wait_until_in_step();
    let tree = nodes.tree(0);
    nodes.replace_first(0, 1, &tree);
    nodes.end(&[1]);
}

/// The region of a first node is older than those of the others, as that of one that was in the middle and has lost in a
/// crash what it had sent on.
/// Bytes that node 1 sends to node 2, which was away while files changed.
fn sent_after(nodes: &mut Nodes, change: impl FnOnce(&Nodes)) -> f64 {
    assert!(nodes.chain.take(2).stop().success());
    nodes.chain.remove(2);
    nodes.chain.wait_until_in_step();
    change(nodes);
    let bytes = |nodes: &Nodes| nodes.chain.server(1).metric("landfall_chain_copy_bytes_total");
    let before = bytes(nodes);
    nodes.chain.add(2);
    nodes.chain.start(2);
    nodes.chain.wait_until_in_step();
    bytes(nodes) - before
}

#[test]
fn a_node_that_comes_back_gets_the_files_that_have_changed_and_nothing_else() {
    let Some(mut nodes) = Nodes::new(3, &["--workers", "2"]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let file = |nodes: &Nodes, at: u64| nodes.at(0, &format!("directory-{}/file-{at}", at % 7));
    (0..7).for_each(|at| fs::create_dir(nodes.at(0, &format!("directory-{at}"))).unwrap());
    (0..200).for_each(|at| write_durably(&file(&nodes, at), &pattern(at, 65_536)).unwrap());
    write_durably(&nodes.at(0, "long"), &pattern(7, 16 << 20)).unwrap();
    let sent = sent_after(&mut nodes, |nodes| {
        (0..20).for_each(|at| fs::remove_file(file(nodes, at)).unwrap());
        (200..220).for_each(|at| write_durably(&file(nodes, at), &pattern(at, 65_536)).unwrap());
        (30..50).for_each(|at| fs::rename(file(nodes, at), file(nodes, at + 1000)).unwrap());
        let long = OpenOptions::new().append(true).open(nodes.at(0, "long")).unwrap();
        (&long).write_all(&pattern(8, 1 << 20)).unwrap();
        OpenOptions::new().write(true).open(file(nodes, 60)).unwrap().set_len(10_000).unwrap();
        fs::set_permissions(file(nodes, 61), Permissions::from_mode(0o600)).unwrap();
        long.sync_all().unwrap();
    });
    let changed = f64::from(20 * 65_536 + (1 << 20));
    assert!(sent < 1.3 * changed, "{sent} bytes, and {changed} have changed");
    let nothing = sent_after(&mut nodes, |_| {});
    assert!(nothing < 100_000.0, "{nothing}");
    let tree = nodes.tree(0);
    nodes.replace_first(0, 1, &tree);
    nodes.replace_first(1, 2, &tree);
    nodes.end(&[2]);
}

#[test]
fn a_first_node_that_has_lost_operations_does_not_go_on_as_if_it_had_them() {
    let Some(mut nodes) = Nodes::new(2, &[]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    write_durably(&nodes.at(0, "old"), b"of both").unwrap();
    let end = |nodes: &mut Nodes| [0, 1].map(|node| assert!(nodes.chain.take(node).stop().success()));
    end(&mut nodes);
    let region = nodes.chain.nodes[0].place.dir().join("region.lf");
    let older = nodes.chain.nodes[0].place.path().join("older");
    fs::copy(&region, &older).unwrap();
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    write_durably(&nodes.at(0, "new"), b"of the second only").unwrap();
    end(&mut nodes);
    fs::copy(&older, &region).unwrap();
    nodes.chain.start(0);
    nodes.chain.start(1);
    let says_why = wait_until(MOUNT_LIMIT, || {
        nodes.chain.words().contains("remove b from the chain, and add it again").then_some(())
    });
    assert!(says_why.is_some(), "{}", nodes.chain.words());
    assert!(fs::read_dir(nodes.points[0].path()).unwrap().next().is_none(), "nothing is mounted");
    nodes.kill(1);
    nodes.chain.remove(1);
    nodes.chain.add(1);
    nodes.chain.start(1);
    nodes.chain.wait_until_in_step();
    nodes.wait_until_mounted(0);
    let tree = nodes.tree(0);
    assert!(tree.contains_key(Path::new("old")) && !tree.contains_key(Path::new("new")));
    nodes.replace_first(0, 1, &tree);
    nodes.end(&[1]);
}

#[test]
fn a_first_node_that_was_killed_mounts_again_where_its_dead_mount_is() {
    let Some(mut nodes) = Nodes::new(2, &[]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    write_durably(&nodes.at(0, "file"), b"durable").unwrap();
    let open = File::open(nodes.at(0, "file")).unwrap();
    nodes.chain.kill(0);
    let is_dead = || fs::read_dir(nodes.points[0].path()).err();
    wait_until(MOUNT_LIMIT, is_dead).expect("its mount is dead");
    nodes.chain.start(0);
    let found = wait_until(MOUNT_LIMIT, || fs::read(nodes.at(0, "file")).ok());
    assert_eq!(found.as_deref(), Some(&b"durable"[..]), "{}", nodes.chain.words());
    assert!(nodes.chain.words().contains("the server of an earlier mount has died"));
    assert!(open.sync_all().is_err(), "what was open is of the mount before");
    nodes.end(&[0, 1]);
}

#[test]
fn who_takes_over_mounts_although_somebody_wrote_where_nothing_was_mounted() {
    let Some(mut nodes) = Nodes::new(2, &[]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    write_durably(&nodes.at(0, "file"), b"of the chain").unwrap();
    fs::write(nodes.at(1, "stray"), b"of this machine").unwrap();
    let tree = nodes.tree(0);
    nodes.replace_first(0, 1, &tree);
    assert!(nodes.chain.words().contains("not empty"), "{}", nodes.chain.words());
    nodes.end(&[1]);
}

/// Files of each program.
const FILES: usize = 6;
/// Programs that write.
const PROGRAMS: usize = 3;

/// What a program knows of one of its files: the numbers that it has written, and that are durable.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    sent: u64,
    durable: u64,
}

/// The bytes of a file with a number. They say which it is.
fn numbered(number: u64) -> Vec<u8> {
    let len = 4000 + (number % 9) as usize * 5000;
    [&number.to_le_bytes()[..], &pattern(number, len)].concat()
}

fn number_of(bytes: &[u8]) -> u64 {
    let number = bytes.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
    assert!(number == 0 || bytes == numbered(number), "a torn file: {number}, {} bytes", bytes.len());
    number
}

/// Puts a file with other bytes in the place of one, durably.
fn replace(root: &Path, name: &str, number: u64) -> std::io::Result<()> {
    let new = root.join(format!("{name}.new"));
    write_durably(&new, &numbered(number))?;
    fs::rename(&new, root.join(name))?;
    File::open(root)?.sync_all()
}

/// The files mounted at a directory, for as long as they are: behind its path may be nothing but the directory by now.
struct Mounted(File);

impl Mounted {
    fn at(point: &Path) -> std::io::Result<Self> {
        let root = File::open(point)?;
        let is_mount = root.metadata()?.dev() != fs::metadata(point.parent().unwrap())?.dev();
        is_mount.then_some(Self(root)).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Writes until it is over. Whatever fails is tried again at the node that is the first then.
fn program(id: usize, first: &Mutex<Option<PathBuf>>, over: &AtomicBool) -> Vec<Known> {
    let (mut known, mut at) = (vec![Known::default(); FILES], 0);
    while !over.load(Ordering::Acquire) {
        let Some(root) = first.lock().unwrap().clone() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let file = &mut known[at % FILES];
        file.sent += 1;
        let name = format!("p{id}-{}", at % FILES);
        match Mounted::at(&root).and_then(|mounted| replace(&mounted.path(), &name, file.sent)) {
            Ok(()) => file.durable = file.sent,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
        at += 1;
    }
    known
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// One node is killed, or ended, and comes back: at once, or after it was removed.
fn fault(nodes: &mut Nodes, draw: &mut Draw, first: &Mutex<Option<PathBuf>>) {
    let victim = draw.below(nodes.points.len());
    let is_first = first.lock().unwrap().as_deref() == Some(nodes.points[victim].path());
    if is_first {
        *first.lock().unwrap() = None;
    }
    let (ends, removes) = (draw.below(3) == 0, draw.below(2) == 0);
    if ends {
        let _ = nodes.chain.take(victim).stop();
        nodes.unmount(victim);
    } else {
        nodes.kill(victim);
    }
    if removes {
        nodes.chain.remove(victim);
        if draw.below(2) == 0 {
            let others = nodes.chain.wait_until_in_step();
            nodes.wait_until_mounted(others);
            *first.lock().unwrap() = Some(nodes.points[others].path().to_owned());
            std::thread::sleep(Duration::from_millis(draw.below(300) as u64));
        }
        nodes.chain.add(victim);
    }
    nodes.chain.start(victim);
    let now = nodes.chain.wait_until_in_step();
    nodes.wait_until_mounted(now);
    *first.lock().unwrap() = Some(nodes.points[now].path().to_owned());
}

#[test]
fn whatever_is_killed_removed_or_added_no_durable_file_is_lost() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (kills, mut draw) = (number("LANDFALL_KILLS", 6), Draw(number("LANDFALL_SEED", 1)));
    let Some(mut nodes) = Nodes::new(3, &["--workers", "2"]) else { return };
    nodes.chain.start_all();
    nodes.wait_until_mounted(0);
    let first = Mutex::new(Some(nodes.points[0].path().to_owned()));
    let over = AtomicBool::new(false);
    let known: Vec<Vec<Known>> = std::thread::scope(|scope| {
        let programs: Vec<_> = (0..PROGRAMS)
            .map(|id| {
                let (first, over) = (&first, &over);
                scope.spawn(move || program(id, first, over))
            })
            .collect();
        let faults = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..kills {
                std::thread::sleep(Duration::from_millis(draw.below(400) as u64));
                fault(&mut nodes, &mut draw, &first);
            }
            std::thread::sleep(Duration::from_millis(200));
        }));
        over.store(true, Ordering::Release);
        let known = programs.into_iter().map(|program| program.join().unwrap()).collect();
        faults.unwrap_or_else(|why| std::panic::resume_unwind(why));
        known
    });
    let mut running = vec![0, 1, 2];
    let mut trees: Vec<BTreeMap<PathBuf, Seen>> = Vec::new();
    while !running.is_empty() {
        let at = nodes.chain.wait_until_in_step();
        nodes.wait_until_mounted(at);
        for (id, files) in known.iter().enumerate() {
            for (file, known) in files.iter().enumerate() {
                let found = fs::read(nodes.at(at, &format!("p{id}-{file}"))).unwrap_or_default();
                let is_there = (known.durable..=known.sent).contains(&number_of(&found));
                assert!(is_there, "p{id}-{file}: {}, {known:?}{}", number_of(&found), nodes.chain.words());
            }
        }
        trees.push(nodes.tree(at));
        running.retain(|node| *node != at);
        if !running.is_empty() {
            nodes.kill(at);
            nodes.chain.remove(at);
        } else {
            assert!(trees.windows(2).all(|pair| pair[0] == pair[1]), "the nodes differ");
            assert!(known.iter().flatten().map(|known| known.durable).sum::<u64>() > 20, "they did write");
            return nodes.end(&[at]);
        }
    }
}
