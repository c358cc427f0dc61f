//! Kills during load, and region files in states that must not be served.

mod common;

use common::{Place, REPLY_LIMIT, Reply, bulk, ok, pattern, wait_until};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn kill_cycles_lose_nothing_acknowledged_and_serve_nothing_torn() {
    for media in [&[][..], &["--transport", "epoll", "--clients", "8"]] {
        let output =
            common::landfall(&[&["demo", "--cycles", "3", "--seed", "11", "--json"], media].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["cycles"], 3);
        assert!(report["acknowledged"].as_u64().unwrap() > 100, "it did write: {report}");
        assert!(report["verified"].as_u64().unwrap() > 300, "and it did read: {report}");
        for count in ["lost", "torn", "resurrected", "split"] {
            assert_eq!(report[count], 0, "{report}");
        }
    }
}

#[test]
fn what_a_reader_has_seen_survives_kills() {
    let place = Place::new();
    let mut newest_shown = 0;
    for _ in 0..4 {
        let server = place.start(&["--workers", "2"]);
        let Reply::Int(now) = server.call(&["INCRBY", "n", "0"]) else { panic!("an integer") };
        let now = u64::try_from(now).unwrap();
        assert!(now >= newest_shown, "{newest_shown} was shown, {now} is there");
        newest_shown = seen_until_killed(server, now);
    }
}

/// Two clients increment and two read, over two workers. Returns the highest number that a reader has seen.
fn seen_until_killed(server: common::Server, from: u64) -> u64 {
    let (over, shown) = (AtomicBool::new(false), AtomicU64::new(from));
    std::thread::scope(|threads| {
        for _ in 0..2 {
            let mut writer = server.resp();
            let mut reader = server.resp();
            let (over, shown) = (&over, &shown);
            threads.spawn(
                move || while !over.load(Ordering::Relaxed) && writer.call(&[b"INCR", b"n"]).is_ok() {},
            );
            threads.spawn(move || {
                while let Ok(Reply::Bulk(text)) = reader.call(&[b"GET", b"n"]) {
                    let number = String::from_utf8(text).unwrap().parse().unwrap();
                    shown.fetch_max(number, Ordering::Relaxed);
                }
            });
        }
        wait_until(REPLY_LIMIT, || (shown.load(Ordering::Relaxed) > from).then_some(()));
        std::thread::sleep(Duration::from_millis(300));
        server.kill();
        over.store(true, Ordering::Relaxed);
    });
    assert!(shown.load(Ordering::Relaxed) > from, "the readers did read");
    shown.load(Ordering::Relaxed)
}

#[test]
fn acknowledged_deletes_and_flushes_stay_done() {
    let place = Place::new();
    let server = place.start(&[]);
    let mut resp = server.resp();
    for index in 0..200u64 {
        assert_eq!(resp.call(&[b"SET", format!("k{index}").as_bytes(), &pattern(index, 500)]).unwrap(), ok());
    }
    assert_eq!(resp.call(&[b"FLUSHALL"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"SET", b"after", b"1"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"SET", b"deleted", b"1"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"DEL", b"deleted"]).unwrap(), Reply::Int(1));
    server.kill();
    for _ in 0..2 {
        let server = place.start(&[]);
        assert_eq!(server.call(&["DBSIZE"]), Reply::Int(1));
        assert_eq!(
            server.call(&["MGET", "after", "deleted", "k7"]),
            Reply::Array(vec![bulk("1"), Reply::Nil, Reply::Nil])
        );
        server.kill();
    }
}

#[test]
fn files_that_are_not_regions_are_refused_and_not_changed() {
    let place = Place::new();
    let server = place.start(&[]);
    assert_eq!(server.call(&["SET", "a", "1"]), ok());
    assert!(server.stop().success());
    let good = std::fs::read(place.region()).unwrap();
    let newer = {
        let mut bytes = good.clone();
        for copy in [0, 32 << 10] {
            bytes[copy + 8..copy + 12].copy_from_slice(&99u32.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[copy..copy + 124]);
            bytes[copy + 124..copy + 128].copy_from_slice(&crc.to_le_bytes());
        }
        bytes
    };
    let mut both_damaged = good.clone();
    (both_damaged[30], both_damaged[(32 << 10) + 30]) = (!good[30], !good[30]);
    let mut erased = good.clone();
    erased[..64 << 10].fill(0);
    let wrong_magic = [&b"SOMETHING ELSE"[..], &vec![9; 64 << 20]].concat();
    let cases: BTreeMap<&str, &[u8]> = BTreeMap::from([
        ("not a Landfall region", &wrong_magic[..]),
        ("format version 99", &newer[..]),
        ("truncated", &good[..40 << 20]),
        ("both copies of the superblock are damaged", &both_damaged[..]),
        ("egion", &erased[..]),
        ("bytes", &good[..1000]),
    ]);
    for (word, bytes) in cases {
        std::fs::write(place.region(), bytes).unwrap();
        let refused = place.try_start(&[]).err().unwrap_or_else(|| panic!("{word}: it started"));
        assert!(
            refused.words.contains(word) && refused.words.contains("region.lf"),
            "{word}: {}",
            refused.words
        );
        assert_ne!(refused.code, Some(0));
        assert!(std::fs::read(place.region()).unwrap() == bytes, "{word}: the file was changed");
    }
    std::fs::write(place.region(), good).unwrap();
    assert_eq!(place.start(&[]).call(&["GET", "a"]), bulk("1"));
}

#[test]
fn leftovers_of_a_dead_creator_and_blank_files_do_not_prevent_a_start() {
    let place = Place::new();
    std::fs::create_dir(place.dir()).unwrap();
    std::fs::write(place.dir().join("region.lf.creating"), b"half").unwrap();
    let server = place.start(&[]);
    assert_eq!(server.call(&["SET", "a", "1"]), ok());
    server.kill();
    assert!(!place.dir().join("region.lf.creating").exists());
    let blank = std::fs::File::create(place.region()).unwrap();
    blank.set_len(64 << 20).unwrap();
    assert_eq!(place.start(&[]).call(&["DBSIZE"]), Reply::Int(0));
}

#[test]
fn one_damaged_superblock_copy_is_repaired_at_start() {
    let place = Place::new();
    place.start(&[]).kill();
    for copy in [0u64, 32 << 10] {
        let file = std::fs::File::options().write(true).open(place.region()).unwrap();
        file.write_all_at(&[0xee; 100], copy).unwrap();
        place.start(&[]).kill();
    }
    assert_eq!(place.check(&[]).status.code(), Some(0));
}

#[test]
fn failing_writes_close_the_region_for_writing_and_lose_nothing_acknowledged() {
    let place = Place::new();
    let server = place.start(&[]);
    assert_eq!(server.call(&["SET", "before", "1"]), ok());
    assert!(server.stop().success());
    let server = place.start_with_failing_writes(20 << 10);
    let mut resp = server.resp();
    let mut acknowledged = Vec::new();
    let refused = (0..2000u64).find_map(|index| {
        let key = format!("k{index}");
        match resp.call(&[b"SET", key.as_bytes(), &pattern(index, 50_000)]) {
            Ok(Reply::Simple(_)) => {
                acknowledged.push(index);
                None
            }
            Ok(reply) => Some(reply),
            // It is unknown whether a write in flight became durable: its client gets no reply.
            Err(_) => Some(Reply::Nil),
        }
    });
    assert!(refused.is_some(), "100 MB do not fit into 20 MiB");
    let again = server.call(&["SET", "again", "1"]);
    assert!(common::error_text(&again).starts_with("MISCONF"), "{again:?}");
    assert_eq!(server.http().call("PUT", "/kv/again", "", b"1").unwrap().status, 503);
    assert_eq!(server.http().call("GET", "/healthz", "", b"").unwrap().status, 503);
    let remains = |server: &common::Server| {
        assert_eq!(server.call(&["GET", "before"]), bulk("1"));
        for index in &acknowledged {
            let key = format!("k{index}");
            assert_eq!(server.call(&["GET", &key]), Reply::Bulk(pattern(*index, 50_000)), "{key}");
        }
    };
    remains(&server);
    server.kill();
    let server = place.start(&[]);
    remains(&server);
    assert_eq!(server.call(&["SET", "again", "1"]), ok());
}

#[test]
fn directory_that_cannot_be_written_is_named() {
    let place = Place::new();
    std::fs::write(place.dir(), b"a file").unwrap();
    let refused = place.try_start(&[]).err().expect("refused");
    assert!(refused.words.contains("data"), "{}", refused.words);
    if is_root() {
        eprintln!("SKIP: read-only directory: root may write anywhere");
        return;
    }
    std::fs::remove_file(place.dir()).unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
    let refused = place.try_start(&[]).err();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(refused.expect("refused").words.contains("ermission"));
}

#[test]
fn full_and_read_only_file_systems_are_named() {
    let place = Place::new();
    let Some(mounted) = Mounted::new(place.dir(), "size=40m") else {
        eprintln!("SKIP: file system of limited size: mounting needs root");
        return;
    };
    let refused = place.try_start(&["--capacity", "64MiB"]).err().expect("refused");
    assert!(refused.words.contains("no space"), "{}", refused.words);
    let left: Vec<_> = std::fs::read_dir(place.dir()).unwrap().collect();
    assert!(left.is_empty(), "nothing is left behind: {left:?}");
    let server = place.start(&["--capacity", "36MiB"]);
    assert_eq!(server.call(&["SET", "a", "1"]), ok());
    server.kill();
    let refused = place.try_start(&["--capacity", "64MiB"]).err().expect("refused");
    assert!(refused.words.contains("no space"), "{}", refused.words);
    assert_eq!(place.start(&["--capacity", "36MiB"]).call(&["GET", "a"]), bulk("1"));
    mounted.remount("ro");
    let refused = place.try_start(&["--capacity", "36MiB"]).err().expect("refused");
    assert!(refused.words.contains("ead-only"), "{}", refused.words);
    assert_eq!(place.check(&[]).status.code(), Some(0), "what cannot be written can still be checked");
}

#[test]
fn sparse_region_on_a_full_file_system_is_refused_before_it_is_served() {
    let place = Place::new();
    let Some(_mounted) = Mounted::new(place.dir(), "size=40m") else {
        eprintln!("SKIP: file system of limited size: mounting needs root");
        return;
    };
    let file = std::fs::File::create(place.region()).unwrap();
    file.set_len(64 << 20).unwrap();
    let refused = place.try_start(&["--capacity", "64MiB"]).err().expect("no SIGBUS later");
    assert!(refused.words.contains("no space"), "{}", refused.words);
}

/// A tmpfs, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: PathBuf, options: &str) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&at);
        let (mounted, _) = common::run(&mut mount, Duration::from_secs(10));
        mounted.then_some(Self(at))
    }

    fn remount(&self, options: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,{options}")]).arg(&self.0);
        let (done, text) = common::run(&mut mount, Duration::from_secs(10));
        assert!(done, "{text}");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let (unmounted, text) = common::run(Command::new("umount").arg(&self.0), Duration::from_secs(10));
        assert!(unmounted || std::thread::panicking(), "{text}");
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}
