//! Several mounts of one `landfall fs serve` (`--shared`): `docs/fs.md`, "Several mounts".

mod common;

use common::mounts::{END_LIMIT, Pair, Process, Random, wait_for_file};
use common::{Place, can_mount, landfall, pattern};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Two mounts of a server whose region is on a file. `None` where there can be no mount.
fn mounted() -> Option<(Pair, Process, Process, Process)> {
    if !can_mount() {
        return None;
    }
    let pair = Pair::new(Place::new(), &[]);
    let server = pair.site.server();
    let (first, second) = pair.mounts();
    Some((pair, server, first, second))
}

/// Inodes of the region.
fn inodes(point: &Path) -> u64 {
    let df = landfall(&["fs", "df", point.to_str().unwrap()]);
    let text = String::from_utf8(df.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("inodes")).expect("a line of inodes");
    line.trim_start_matches("inodes").trim().parse().unwrap()
}

fn wait_for_inodes(point: &Path, count: u64) {
    let until = Instant::now() + END_LIMIT;
    while inodes(point) != count {
        assert!(Instant::now() < until, "{} inodes", inodes(point));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn errno<T>(done: std::io::Result<T>) -> Option<i32> {
    done.err().and_then(|error| error.raw_os_error())
}

#[test]
fn what_is_done_at_one_mount_is_seen_at_the_other_when_the_call_has_returned() {
    let Some((pair, server, first, second)) = mounted() else { return };
    let [here, there] = pair.at("file");
    assert!(!there.exists());
    let mut file = File::create(&here).unwrap();
    let mut other = OpenOptions::new().read(true).write(true).open(&there).unwrap();
    let mut content = String::new();
    for round in 0..50_u64 {
        let line = format!("line {round}\n");
        file.write_all(line.as_bytes()).unwrap();
        content.push_str(&line);
        assert_eq!(fs::read_to_string(&there).unwrap(), content, "by name");
        assert_eq!(other.metadata().unwrap().len(), content.len() as u64);
        other.seek(SeekFrom::Start(0)).unwrap();
        let mut read = String::new();
        other.read_to_string(&mut read).unwrap();
        assert_eq!(read, content, "by a descriptor that has read before");
    }
    // Of equal length, at the same place, with an old time of change.
    let modified = file.metadata().unwrap().modified().unwrap();
    other.write_all_at(b"LINE", 0).unwrap();
    other.set_modified(modified).unwrap();
    assert!(fs::read(&here).unwrap().starts_with(b"LINE 0\nline 1\n"));
    other.set_len(4).unwrap();
    assert_eq!(fs::read(&here).unwrap(), b"LINE");
    fs::set_permissions(&there, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(&here).unwrap().mode() & 0o777, 0o640);
    let [renamed, renamed_there] = pair.at("renamed");
    fs::rename(&there, &renamed_there).unwrap();
    assert!(!here.exists() && fs::read(&renamed).unwrap() == b"LINE");
    let [directory, directory_there] = pair.at("directory");
    fs::create_dir(&directory).unwrap();
    for count in 1..20 {
        fs::write(directory.join(format!("{count}")), b"").unwrap();
        assert_eq!(fs::read_dir(&directory_there).unwrap().count(), count);
    }
    assert_eq!(errno(fs::remove_dir(&directory_there)), Some(libc::ENOTEMPTY));
    fs::remove_dir_all(&directory_there).unwrap();
    assert!(!directory.exists());
    fs::remove_file(&renamed).unwrap();
    assert!(!renamed_there.exists());
    assert_eq!(other.metadata().unwrap().nlink(), 0);
    drop((file, other));
    first.stop();
    fs::write(pair.at("alone")[1].as_path(), b"one mount is left").unwrap();
    second.stop();
    server.stop();
    pair.is_clean();
}

#[test]
fn a_file_that_is_open_at_one_mount_outlives_its_name_and_the_other_mount() {
    let Some((pair, server, first, second)) = mounted() else { return };
    let [here, there] = pair.at("file");
    fs::write(&here, pattern(3, 70_000)).unwrap();
    let open = OpenOptions::new().read(true).write(true).open(&there).unwrap();
    fs::remove_file(&here).unwrap();
    let still_there = || {
        let mut content = vec![0; 70_000];
        open.read_exact_at(&mut content, 0).unwrap();
        assert!(content == pattern(3, 70_000));
        open.write_all_at(b"it goes on", 70_000).unwrap();
        open.sync_all().unwrap();
    };
    still_there();
    let orphan = {
        let path = pair.at("orphan")[0].clone();
        let file = File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file
    };
    assert_eq!(inodes(pair.second.path()), 3, "the root, and two without a name");
    first.kill();
    wait_for_inodes(pair.second.path(), 2);
    assert!(orphan.sync_all().is_err(), "its mount has ended");
    drop(orphan);
    still_there();
    drop(open);
    wait_for_inodes(pair.second.path(), 1);
    let again = pair.site.shared_mount(pair.site.point.path());
    fs::write(pair.at("new")[0].as_path(), b"new").unwrap();
    assert_eq!(fs::read(pair.at("new")[1].as_path()).unwrap(), b"new");
    again.stop();
    second.stop();
    server.stop();
    pair.is_clean();
}

/// Programs at both mounts go on while their server is killed again and again.
fn both_outlive_servers(pair: &Pair) {
    let mut server = pair.site.server();
    let (first, second) = pair.mounts();
    let paths = pair.at("log");
    let append = |path: &Path| OpenOptions::new().append(true).create(true).open(path).unwrap();
    let mut files = [append(&paths[0]), append(&paths[1])];
    let kept = OpenOptions::new().read(true).write(true).create_new(true).open(pair.site.at("kept")).unwrap();
    kept.write_all_at(b"kept", 0).unwrap();
    let other = File::open(pair.at("kept")[1].as_path()).unwrap();
    fs::remove_file(pair.at("kept")[1].as_path()).unwrap();
    let mut lines = Vec::new();
    for round in 0..4_usize {
        for step in 0..40_usize {
            let line = format!("{round} {step}\n");
            (&files[step % 2]).write_all(line.as_bytes()).unwrap();
            lines.push(line);
            let name = format!("{round}-{step}");
            fs::write(pair.at(&name)[step % 2].as_path(), &name).unwrap();
            fs::rename(pair.at(&name)[1 - step % 2].as_path(), pair.at("latest")[1 - step % 2].as_path())
                .unwrap();
            assert_eq!(fs::read_to_string(pair.at("latest")[step % 2].as_path()).unwrap(), name);
        }
        let killing = std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                for step in 0..200 {
                    let path = &pair.at(&format!("step {step}"))[step % 2];
                    File::create_new(path).unwrap();
                    fs::remove_file(&pair.at(&format!("step {step}"))[1 - step % 2]).unwrap();
                }
            });
            std::thread::sleep(Duration::from_millis(15));
            server.kill();
            let next = pair.site.server();
            working.join().unwrap();
            next
        });
        server = killing;
        let mut content = [0; 4];
        other.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"kept", "the descriptors go on");
    }
    assert!(paths.iter().all(|path| fs::read_to_string(path).unwrap() == lines.concat()));
    assert_eq!(fs::read_dir(pair.second.path()).unwrap().count(), 2);
    files.iter_mut().for_each(|file| file.sync_all().unwrap());
    drop((files, kept, other));
    wait_for_inodes(pair.second.path(), 3);
    first.stop();
    second.stop();
    server.stop();
    pair.is_clean();
}

#[test]
fn programs_at_both_mounts_go_on_when_servers_of_a_region_in_memory_are_killed() {
    let Some(place) = Place::in_memory().filter(|_| can_mount()) else { return };
    both_outlive_servers(&Pair::new(place, &[]));
}

#[test]
fn programs_at_both_mounts_go_on_when_servers_that_sync_always_are_killed() {
    if can_mount() {
        both_outlive_servers(&Pair::new(Place::new(), &["--sync", "always"]));
    }
}

/// What a file holds, and the descriptors of it at both mounts.
struct Known {
    content: Vec<u8>,
    files: [File; 2],
}

#[test]
#[allow(clippy::print_stderr, reason = "the seed of a failure must be known")]
fn operations_at_two_mounts_in_turns_are_those_of_one_file_system() {
    let Some((pair, server, first, second)) = mounted() else { return };
    let seed = std::env::var("LANDFALL_SEED").map_or(11, |text| text.parse().unwrap());
    eprintln!("LANDFALL_SEED={seed}");
    let mut random = Random(seed);
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    for step in 0..3000_u64 {
        let side = usize::try_from(random.below(2)).unwrap();
        let number = random.below(6);
        let path = pair.at(&number.to_string())[side].clone();
        let Some(Known { content, files }) = known.get_mut(&number) else {
            File::create_new(&path).unwrap();
            let open = |path: &PathBuf| OpenOptions::new().read(true).write(true).open(path).unwrap();
            let files = pair.at(&number.to_string()).each_ref().map(open);
            known.insert(number, Known { content: Vec::new(), files });
            continue;
        };
        let offset = usize::try_from(random.below(20_000)).unwrap();
        match random.below(10) {
            0..=3 => {
                let bytes = pattern(step, 1 + usize::try_from(random.below(9000)).unwrap());
                files[side].write_all_at(&bytes, offset as u64).unwrap();
                content.resize(content.len().max(offset + bytes.len()), 0);
                content[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            4 => {
                files[side].set_len(offset as u64).unwrap();
                content.resize(offset, 0);
            }
            5 => {
                let mut append = OpenOptions::new().append(true).open(&path).unwrap();
                append.write_all(b"appended").unwrap();
                content.extend(b"appended");
            }
            6 => {
                let to = random.below(6);
                fs::rename(&path, &pair.at(&to.to_string())[side]).unwrap();
                let moved = known.remove(&number).unwrap();
                known.insert(to, moved);
            }
            7 => {
                fs::remove_file(&path).unwrap();
                known.remove(&number);
            }
            _ => {
                let mut read = vec![0; content.len() + 1];
                let len = files[side].read_at(&mut read, 0).unwrap();
                assert!(read[..len] == content[..], "step {step}");
                assert!(fs::read(&path).unwrap() == *content, "step {step}");
            }
        }
        let names = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(names, known.len(), "step {step}");
    }
    drop(known);
    first.stop();
    second.stop();
    server.stop();
    pair.is_clean();
}

#[test]
fn programs_that_append_and_create_at_the_same_time_do_not_lose_each_others_work() {
    const ROUNDS: usize = 400;
    let Some((pair, server, first, second)) = mounted() else { return };
    let work = |side: usize| {
        for round in 0..ROUNDS {
            let open = |name: &str| OpenOptions::new().append(true).create(true).open(&pair.at(name)[side]);
            open("log").unwrap().write_all(format!("{side}{round:07}").as_bytes()).unwrap();
            open(&format!("both {round}")).unwrap().write_all(b"x").unwrap();
            if round % 10 == 0 {
                let (old, new) = (&pair.at(&format!("both {round}"))[side], &pair.at("new")[side]);
                // Either of the two programs may be first.
                let _ = fs::rename(old, new);
            }
        }
    };
    std::thread::scope(|scope| {
        [0, 1].into_iter().for_each(|side| drop(scope.spawn(move || work(side))));
    });
    let log = fs::read(&pair.at("log")[0]).unwrap();
    let mut lines: Vec<&[u8]> = log.chunks(8).collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!((log.len(), lines.len()), (2 * ROUNDS * 8, 2 * ROUNDS));
    for round in (0..ROUNDS).filter(|round| round % 10 != 0) {
        assert_eq!(fs::read(&pair.at(&format!("both {round}"))[round % 2]).unwrap(), b"xx");
    }
    first.stop();
    second.stop();
    server.stop();
    pair.is_clean();
}

#[test]
fn a_stopped_holder_holds_nobody_up_but_a_server_that_starts_and_loses_its_mount_then() {
    let Some((pair, server, first, second)) = mounted() else { return };
    let [here, there] = pair.at("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&here).unwrap();
    second.signal("STOP");
    let begun = Instant::now();
    for round in 0..100_u64 {
        file.write_all_at(&round.to_le_bytes(), 0).unwrap();
        // The server answers the kernel itself.
        assert_eq!(fs::read(&there).unwrap(), round.to_le_bytes());
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    file.sync_all().unwrap();
    server.kill();
    let begun = Instant::now();
    let server = pair.site.server();
    file.write_all_at(b"afterwards", 0).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    wait_for_file(&here);
    second.signal("CONT");
    assert!(!second.wait().success(), "what was done meanwhile is not known to its kernel");
    assert!(pair.site.place.log().contains("the files were mounted elsewhere since"));
    let second = pair.site.shared_mount(pair.second.path());
    assert_eq!(fs::read(&there).unwrap(), b"afterwards");
    drop(file);
    first.stop();
    second.stop();
    server.stop();
    pair.is_clean();
}

#[test]
fn a_stopped_holder_that_has_much_to_read_holds_nobody_up_when_its_mount_ends() {
    let Some((pair, server, first, second)) = mounted() else { return };
    second.signal("STOP");
    // It is told of each of these names.
    for round in 0..2000 {
        let path = pair.at(&format!("name {round}"))[0].clone();
        drop(File::create(&path).unwrap());
        fs::remove_file(path).unwrap();
    }
    landfall_fuse::unmount(pair.second.path(), landfall_fuse::Unmount::Lazily).unwrap();
    // Its end takes half a second: it may have something to say.
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    let third = pair.site.shared_mount(pair.second.path());
    fs::write(pair.second.path().join("file"), b"here").unwrap();
    assert_eq!(fs::read(pair.at("file")[0].clone()).unwrap(), b"here");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    second.signal("CONT");
    let _ = second.wait();
    first.stop();
    third.stop();
    server.stop();
    pair.is_clean();
}

#[test]
fn mounts_go_on_although_the_server_cannot_note_that_one_has_ended() {
    let Some((pair, server, first, second)) = mounted() else { return };
    let in_the_way = pair.site.place.dir().join("offload.sock.new");
    fs::create_dir(&in_the_way).unwrap();
    second.stop();
    fs::write(pair.at("file")[0].clone(), b"here").unwrap();
    let said = pair.site.refusal_of(pair.second.path(), &["--shared"]);
    assert!(said.contains("cannot be noted for the next server"), "{said}");
    fs::remove_dir(in_the_way).unwrap();
    let second = pair.site.shared_mount(pair.second.path());
    let file = File::open(pair.at("file")[1].clone()).unwrap();
    file.sync_all().unwrap();
    // Both are known to the next server.
    server.kill();
    let server = pair.site.server();
    assert_eq!(pair.at("file").map(|path| fs::read(path).unwrap()), [b"here", b"here"]);
    drop(file);
    first.stop();
    second.stop();
    server.stop();
    pair.is_clean();
}

#[test]
fn a_mount_whose_kernel_keeps_files_is_alone() {
    if !can_mount() {
        return;
    }
    let pair = Pair::new(Place::new(), &[]);
    let server = pair.site.server();
    let shared = pair.site.shared_mount(pair.site.point.path());
    let said = pair.site.refusal(pair.second.path());
    assert!(said.contains("not both mounts are --shared"), "{said}");
    shared.stop();
    let alone = pair.site.mount(&[]);
    let point = pair.second.path().to_str().unwrap();
    let socket = pair.site.socket();
    let refused = landfall(&["fs", "mount", point, "--shared", "--offload", socket.to_str().unwrap()]);
    assert!(!refused.status.success());
    fs::write(pair.site.at("file"), b"the first mount works").unwrap();
    alone.stop();
    server.stop();
}

/// What a mount that ends has reserved is missing only until it has ended.
#[test]
fn a_mount_takes_the_place_of_one_that_ends_where_there_is_no_room_for_both() {
    if !can_mount() {
        return;
    }
    // The buffers of five workers each: the region has room for those of one mount.
    let pair = Pair::new(Place::new(), &["--workers", "5"]);
    let server = pair.site.server();
    let (here, there) = (pair.site.point.path(), pair.second.path());
    for round in 0..4 {
        let first = pair.site.shared_mount(here);
        fs::write(here.join("file"), pattern(round, 12 << 20)).unwrap();
        // Its changes have yet to become durable. The server may see the end of the first one and the second one at once.
        server.signal("STOP");
        first.kill();
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| pair.site.shared_mount(there));
            std::thread::sleep(Duration::from_millis(200));
            server.signal("CONT");
            second.join().unwrap()
        });
        let _ = landfall_fuse::unmount(here, landfall_fuse::Unmount::Lazily);
        assert!(fs::read(there.join("file")).unwrap() == pattern(round, 12 << 20));
        second.stop();
    }
    server.stop();
}
