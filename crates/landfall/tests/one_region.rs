//! Keys, logs and files in one region: `landfall serve --files`.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod common;

use common::faults::Over;
use common::{Place, Reply, Resp, Server, bulk, can_mount, error_text, landfall, ok, pattern, wait_until};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MIB: usize = 1 << 20;
/// What was deleted is free after the next publication, and after compaction.
const FREE_SOON: Duration = Duration::from_secs(20);

/// No mount is needed for that.
#[test]
fn a_server_whose_mounts_are_other_processes_says_what_to_do_instead_of_making_files_of_values() {
    let place = Place::new();
    let (socket, file) = (place.path().join("offload.sock"), place.path().join("file"));
    let server = place.start(&["--files-offload", socket.to_str().unwrap()]);
    assert_eq!(server.call(&["SET", "key", "value"]), ok());
    for command in [["LF.PUBLISH", "key", "file"], ["LF.ADOPT", "file", "key"]] {
        let reply = server.call(&command);
        assert!(error_text(&reply).contains("--files MOUNTPOINT"), "{reply:?}");
    }
    let (is_done, says) = relink(&server, "import-key", &["key", file.to_str().unwrap()]);
    assert!(!is_done && says.contains("--files-offload") && says.contains("copy through a mount"), "{says}");
}

/// A directory to mount on, which nothing is mounted on at the end.
struct Point(tempfile::TempDir);

impl Point {
    /// `None` where FUSE mounts are not possible.
    fn new() -> Option<Self> {
        can_mount().then(|| Self(tempfile::tempdir().unwrap()))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn serve(&self, place: &Place) -> Server {
        place.start(&["--files", self.path().to_str().unwrap(), "--files-commands", "--workers", "1"])
    }

    /// Ends a server as a power failure of its process would.
    fn kill(&self, server: Server) {
        server.kill();
        self.unmount();
    }

    fn unmount(&self) {
        landfall_fuse::unmount(self.path(), landfall_fuse::Unmount::Lazily).unwrap();
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // After an end in good order there is nothing left to do.
        let _ = landfall_fuse::unmount(self.path(), landfall_fuse::Unmount::Lazily);
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn set(resp: &mut Resp, key: &str, value: &[u8]) -> Reply {
    resp.call(&[b"SET", key.as_bytes(), value]).unwrap()
}

/// The value of a field of `INFO`.
fn info(server: &Server, name: &str) -> String {
    let Reply::Bulk(text) = server.call(&["INFO"]) else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).to_owned()
}

fn assert_clean(place: &Place) {
    let checked = place.check(&[]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn keys_logs_and_files_survive_a_kill_in_one_region_and_flushall_touches_no_file() {
    let Some(point) = Point::new() else { return };
    let (place, bytes) = (Place::new(), pattern(1, MIB));
    let server = point.serve(&place);
    assert!(server.lines.iter().any(|line| *line == format!("files: {}", point.path().display())));
    fs::create_dir(point.file("d")).unwrap();
    write_durably(&point.file("d/file"), &bytes).unwrap();
    assert_eq!(set(&mut server.resp(), "key", &bytes), ok());
    assert_eq!(server.call(&["LF.APPEND", "log", "entry"]), Reply::Int(0));
    assert_eq!((info(&server, "files"), info(&server, "files_inodes")), ("mounted".into(), "3".into()));
    point.kill(server);
    assert_clean(&place);

    let server = point.serve(&place);
    assert!(fs::read(point.file("d/file")).unwrap() == bytes);
    assert_eq!(server.call(&["GET", "key"]), bulk(&bytes));
    assert_eq!(server.call(&["LF.LEN", "log"]), Reply::Int(1));
    assert_eq!(server.call(&["FLUSHALL"]), ok());
    assert_eq!(server.call(&["DBSIZE"]), Reply::Int(0));
    assert!(fs::read(point.file("d/file")).unwrap() == bytes);
    point.kill(server);

    let server = point.serve(&place);
    assert_eq!((server.call(&["DBSIZE"]), server.call(&["LF.LEN", "log"])), (Reply::Int(0), Reply::Int(1)));
    assert!(fs::read(point.file("d/file")).unwrap() == bytes);
    assert!(server.stop().success());
    assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "a server that has ended leaves no mount");
    assert_clean(&place);
}

/// Sets keys of a mebibyte until the region is full. Returns how many.
fn fill_with_keys(resp: &mut Resp) -> usize {
    for key in 0..100 {
        if let refused @ Reply::Error(_) = set(resp, &format!("k{key}"), &pattern(key as u64, MIB)) {
            assert!(error_text(&refused).starts_with("OOM"), "{refused:?}");
            return key;
        }
    }
    panic!("the region never fills");
}

fn delete_keys(resp: &mut Resp, count: usize) {
    for key in 0..count {
        assert_eq!(resp.call(&[b"DEL", format!("k{key}").as_bytes()]).unwrap(), Reply::Int(1));
    }
}

/// Fills the region: whatever can be moved is moved before a write is refused.
fn compact(server: &Server) {
    let mut resp = server.resp();
    let count = fill_with_keys(&mut resp);
    delete_keys(&mut resp, count);
}

#[test]
fn files_are_kept_and_moved_by_a_server_that_does_not_mount_them() {
    let Some(point) = Point::new() else { return };
    let place = Place::new();
    let server = point.serve(&place);
    let bytes = |at: u64| pattern(at, 150_000);
    for at in 0..80 {
        write_durably(&point.file(&format!("f{at}")), &bytes(at)).unwrap();
    }
    // What they leave between the others is worth compacting.
    let is_kept = |at: &u64| at.is_multiple_of(4);
    for at in (0..80).filter(|at| !is_kept(at)) {
        fs::remove_file(point.file(&format!("f{at}"))).unwrap();
    }
    // What was unlinked is worth it once that is published.
    let moves = || {
        compact(&server);
        (server.metric("landfall_copied_bytes_total{path=\"moved\"}") > 0.0).then_some(())
    };
    assert!(wait_until(FREE_SOON, moves).is_some(), "nothing is moved");
    assert!(server.stop().success());

    let server = place.start(&["--workers", "1"]);
    assert_eq!(info(&server, "files"), "kept");
    compact(&server);
    assert!(server.stop().success());
    assert_clean(&place);

    let server = point.serve(&place);
    for at in (0..80).filter(is_kept) {
        assert!(fs::read(point.file(&format!("f{at}"))).unwrap() == bytes(at), "f{at}");
    }
    assert!(server.stop().success());
}

#[test]
fn a_region_full_of_keys_is_enospc_for_files_and_deleting_makes_room() {
    let Some(point) = Point::new() else { return };
    let place = Place::new();
    let server = point.serve(&place);
    fs::write(point.file("old"), pattern(1, 2 * MIB)).unwrap();
    let mut resp = server.resp();
    let count = fill_with_keys(&mut resp);
    let refused = write_durably(&point.file("new"), &pattern(2, 4 * MIB)).expect_err("the region is full");
    assert_eq!(refused.raw_os_error(), Some(28), "{refused}");
    assert!(fs::read(point.file("old")).unwrap() == pattern(1, 2 * MIB));
    // What frees space is always possible.
    fs::File::options().write(true).open(point.file("old")).unwrap().set_len(4096).unwrap();
    fs::remove_file(point.file("old")).unwrap();
    delete_keys(&mut resp, count);
    write_durably(&point.file("new"), &pattern(2, 4 * MIB)).unwrap();
    assert!(fs::read(point.file("new")).unwrap() == pattern(2, 4 * MIB));
    assert!(server.stop().success());
    assert_clean(&place);
}

#[test]
fn a_region_full_of_files_is_oom_for_keys_and_unlinking_makes_room() {
    let Some(point) = Point::new() else { return };
    let place = Place::new();
    let server = point.serve(&place);
    let mut resp = server.resp();
    assert_eq!(set(&mut resp, "old", &pattern(1, MIB)), ok());
    let full = (0..100).find_map(|at| {
        let outcome = write_durably(&point.file(&format!("f{at}")), &pattern(at, MIB));
        outcome.err().map(|error| (at, error))
    });
    let (count, refused) = full.expect("the region never fills");
    assert_eq!(refused.raw_os_error(), Some(28), "{refused}");
    // Some room may be left, and be made when what is left of files is published.
    let mut replies = (0..100).map(|key| set(&mut resp, &format!("k{key}"), &pattern(key, MIB)));
    let refused = replies.find(|reply| *reply != ok()).expect("the region never fills");
    assert!(error_text(&refused).starts_with("OOM"), "{refused:?}");
    assert_eq!(resp.call(&[b"GET", b"old"]).unwrap(), bulk(pattern(1, MIB)));
    assert_eq!(resp.call(&[b"DEL", b"old"]).unwrap(), Reply::Int(1));
    fs::File::options().write(true).open(point.file("f0")).unwrap().set_len(0).unwrap();
    for at in 1..=count {
        // The last one may not have been made.
        let _ = fs::remove_file(point.file(&format!("f{at}")));
    }
    let set = wait_until(FREE_SOON, || (set(&mut resp, "new", &pattern(3, MIB)) == ok()).then_some(()));
    assert!(set.is_some(), "what was unlinked is free soon");
    assert!(server.stop().success());
    assert_clean(&place);
}

#[test]
fn an_unmounted_server_serves_keys_on() {
    let Some(point) = Point::new() else { return };
    let place = Place::new();
    let server = point.serve(&place);
    fs::write(point.file("file"), b"here").unwrap();
    // The child of another test has the file until it becomes another program.
    let unmounted = || landfall_fuse::unmount(point.path(), landfall_fuse::Unmount::WhenIdle).ok();
    assert!(wait_until(FREE_SOON, unmounted).is_some(), "somebody uses the mount");
    let kept = wait_until(FREE_SOON, || (info(&server, "files") == "kept").then_some(()));
    assert!(kept.is_some(), "{}", info(&server, "files"));
    assert_eq!(set(&mut server.resp(), "key", b"value"), ok());
    assert!(server.stop().success());
    let mut server = point.serve(&place);
    assert_eq!(
        (fs::read(point.file("file")).unwrap(), server.call(&["GET", "key"])),
        (b"here".to_vec(), bulk("value"))
    );
    assert!(server.resp().call(&[b"SHUTDOWN"]).is_err(), "there is no reply");
    assert!(server.wait().is_some_and(|status| status.success()));
    assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "nothing is mounted");
}

/// Bytes that were copied so far, but those of the compactor.
fn copied(server: &Server) -> f64 {
    let is_copy = |name: &str| name.starts_with("landfall_copied_bytes_total") && !name.contains("moved");
    server.metrics().iter().filter(|(name, _)| is_copy(name)).map(|(_, count)| count).sum()
}

/// Bytes for names and fields of a few records.
const LITTLE: f64 = 4096.0;

#[test]
fn a_value_is_published_as_a_file_without_a_copy_and_both_survive_a_kill() {
    let Some(point) = Point::new() else { return };
    let (place, value) = (Place::new(), pattern(1, MIB));
    let server = point.serve(&place);
    fs::create_dir(point.file("d")).unwrap();
    assert!(!point.file("d/file").exists(), "the kernel knows that there is no such file");
    assert_eq!(set(&mut server.resp(), "key", &value), ok());
    let before = copied(&server);
    assert_eq!(server.call(&["LF.PUBLISH", "key", "d/file"]), ok());
    let cat = std::process::Command::new("cat").arg(point.file("d/file")).output().unwrap();
    assert!(cat.stdout == value, "{}", String::from_utf8_lossy(&cat.stderr));
    assert!(copied(&server) - before < LITTLE, "{}", copied(&server) - before);
    assert_eq!(fs::read_dir(point.file("d")).unwrap().count(), 1);
    point.kill(server);
    assert_clean(&place);

    let server = point.serve(&place);
    assert!(fs::read(point.file("d/file")).unwrap() == value);
    assert_eq!(server.call(&["GET", "key"]), bulk(&value));
    // Each keeps its bytes whatever becomes of the other.
    assert_eq!(server.call(&["FLUSHALL"]), ok());
    assert!(fs::read(point.file("d/file")).unwrap() == value);
    assert_eq!(set(&mut server.resp(), "other", b"short"), ok());
    assert_eq!(server.call(&["LF.PUBLISH", "other", "/d/file", "NX"]), Reply::Nil);
    let open = fs::File::open(point.file("d/file")).unwrap();
    assert_eq!(server.call(&["LF.PUBLISH", "other", "/d/file"]), ok());
    assert_eq!(fs::read(point.file("d/file")).unwrap(), b"short");
    let mut old = Vec::new();
    std::io::Read::read_to_end(&mut &open, &mut old).unwrap();
    assert!(old == value, "who has the old file open still reads it");
    drop(open);
    for (path, refused) in [("absent/file", "no such file"), ("d", "is a directory"), ("", "is a directory")]
    {
        let reply = server.call(&["LF.PUBLISH", "other", path]);
        assert!(error_text(&reply).contains(refused), "{path}: {reply:?}");
    }
    assert!(error_text(&server.call(&["LF.PUBLISH", "absent", "f"])).contains("no such key"));
    assert!(server.stop().success());
    assert_clean(&place);
    let server = place.start(&[]);
    assert!(error_text(&server.call(&["LF.PUBLISH", "other", "f"])).contains("--files MOUNTPOINT"));
}

#[test]
fn clients_may_not_read_or_replace_files_unless_they_are_allowed_to() {
    let Some(point) = Point::new() else { return };
    let place = Place::new();
    let server = place.start(&["--files", point.path().to_str().unwrap(), "--workers", "1"]);
    write_durably(&point.file("secret"), b"of its owner").unwrap();
    fs::set_permissions(point.file("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(set(&mut server.resp(), "key", b"of a stranger"), ok());
    server.call(&["LF.APPEND", "log", "entry"]);
    for words in [
        &["LF.ADOPT", "secret", "stolen"][..],
        &["LF.PUBLISH", "key", "secret"],
        &["LF.PUBLISHENTRY", "log", "0", "secret"],
    ] {
        let reply = server.call(words);
        assert!(error_text(&reply).contains("--files-commands"), "{words:?}: {reply:?}");
    }
    assert_eq!(server.call(&["GET", "stolen"]), Reply::Nil);
    assert_eq!(fs::read(point.file("secret")).unwrap(), b"of its owner");
    assert!(server.stop().success());
}

#[test]
fn a_file_is_adopted_as_a_value_without_a_copy_and_both_survive_a_kill() {
    let Some(point) = Point::new() else { return };
    let (place, bytes) = (Place::new(), pattern(2, MIB + 5000));
    let server = point.serve(&place);
    fs::write(point.file("file"), &bytes).unwrap();
    let before = copied(&server);
    assert_eq!(server.call(&["LF.ADOPT", "file", "key"]), ok());
    assert!(copied(&server) - before < LITTLE, "{}", copied(&server) - before);
    assert_eq!(server.call(&["GET", "key"]), bulk(&bytes));
    assert_eq!(server.call(&["LF.ADOPT", "file", "key", "NX"]), Reply::Nil);
    point.kill(server);
    assert_clean(&place);

    let server = point.serve(&place);
    assert_eq!(server.call(&["GET", "key"]), bulk(&bytes));
    // What is written later is the file's alone.
    fs::write(point.file("file"), b"other").unwrap();
    assert_eq!(server.call(&["GET", "key"]), bulk(&bytes));
    assert_eq!(server.call(&["LF.ADOPT", "file", "key"]), ok());
    assert_eq!(server.call(&["GET", "key"]), bulk("other"));
    fs::remove_file(point.file("file")).unwrap();
    fs::File::create(point.file("holes")).unwrap().set_len(10_000).unwrap();
    assert!(error_text(&server.call(&["LF.ADOPT", "holes", "key"])).contains("holes"));
    assert!(error_text(&server.call(&["LF.ADOPT", "absent", "key"])).contains("no such file"));
    assert_eq!(server.call(&["GET", "key"]), bulk("other"));
    assert!(server.stop().success());
    assert_clean(&place);
}

#[test]
fn a_file_that_is_written_all_the_time_is_adopted_whole() {
    let Some(point) = Point::new() else { return };
    let place = Place::new();
    let server = point.serve(&place);
    let is_over = AtomicBool::new(false);
    let write = || {
        let file = fs::File::create(point.file("file")).unwrap();
        for round in 0_u64.. {
            file.write_all_at(&[round as u8; 4096], 0).unwrap();
            if is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let _ends = Over(&is_over);
        // There is hardly a moment in which all of its bytes are durable.
        (0..2).for_each(|_| _ = scope.spawn(write));
        std::thread::sleep(Duration::from_millis(100));
        let adopted: Vec<Reply> = (0..200).map(|_| server.call(&["LF.ADOPT", "file", "key"])).collect();
        assert!(adopted.iter().all(|reply| *reply == ok()), "{adopted:?}");
    });
    let Reply::Bulk(value) = server.call(&["GET", "key"]) else { panic!("no value") };
    assert!(value.len() == 4096 && value.iter().all(|byte| *byte == value[0]));
    point.kill(server);
    assert_clean(&place);
    assert_eq!(point.serve(&place).call(&["GET", "key"]), Reply::Bulk(value));
}

/// `landfall fs COMMAND` with words, at a server. Returns whether it succeeded, and what it says of an error.
fn relink(server: &Server, command: &str, words: &[&str]) -> (bool, String) {
    let address = server.resp.to_string();
    let output = landfall(&[&["fs", command, "--addr", &address], words].concat());
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_command_line_makes_files_of_keys_and_keys_of_files() {
    let Some(point) = Point::new() else { return };
    let (place, value) = (Place::new(), pattern(4, 70_000));
    let server = point.serve(&place);
    fs::create_dir(point.file("d")).unwrap();
    let path = point.file("d/file");
    let path = path.to_str().unwrap();
    assert_eq!(set(&mut server.resp(), "key", &value), ok());
    assert_eq!(relink(&server, "import-key", &["key", path]), (true, String::new()));
    assert!(fs::read(path).unwrap() == value);
    let (is_done, says) = relink(&server, "import-key", &["key", path, "--new"]);
    assert!(!is_done && says.contains("exists"), "{says}");
    assert_eq!(relink(&server, "export-key", &[path, "other"]), (true, String::new()));
    assert_eq!(server.call(&["GET", "other"]), bulk(&value));
    let (is_done, says) = relink(&server, "export-key", &[path, "other", "--new"]);
    assert!(!is_done && says.contains("exists"), "{says}");
    let outside = place.dir().join("file");
    let (is_done, says) = relink(&server, "import-key", &["key", outside.to_str().unwrap()]);
    assert!(!is_done && says.contains("is not below"), "{says}");
    let (is_done, says) = relink(&server, "import-key", &["absent", path]);
    assert!(!is_done && says.contains("no such key"), "{says}");
    assert!(server.stop().success());
    let server = place.start(&[]);
    let (is_done, says) = relink(&server, "import-key", &["key", path]);
    assert!(!is_done && says.contains("--files MOUNTPOINT"), "{says}");
}

#[test]
fn an_entry_of_a_log_is_published_as_a_file_without_a_copy() {
    let Some(point) = Point::new() else { return };
    let (place, entry) = (Place::new(), pattern(3, 300_000));
    let server = point.serve(&place);
    assert_eq!(server.resp().call(&[b"LF.APPEND", b"log", b"0", &entry]).unwrap(), Reply::Int(0));
    let before = copied(&server);
    assert_eq!(server.call(&["LF.PUBLISHENTRY", "log", "1", "file"]), ok());
    assert!(copied(&server) - before < LITTLE, "{}", copied(&server) - before);
    assert_eq!(server.call(&["LF.PUBLISHENTRY", "log", "0", "file", "NX"]), Reply::Nil);
    assert!(error_text(&server.call(&["LF.PUBLISHENTRY", "log", "2", "f"])).starts_with("OUTOFRANGE"));
    assert_eq!(server.call(&["LF.TRIM", "log", "2"]), Reply::Int(2));
    point.kill(server);
    let server = point.serve(&place);
    assert!(fs::read(point.file("file")).unwrap() == entry, "the file keeps what the log has trimmed");
    assert!(server.stop().success());
    assert_clean(&place);
}
