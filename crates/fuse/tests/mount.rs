//! Real mounts on temporary directories, by `mount(2)` and by `fusermount3`. They are skipped where the kernel offers no
//! FUSE, or where the user may not mount.

mod tiny;

use landfall_fuse::{
    Entries, MountError, MountOptions, Node, Notification, Sent, Unmount, mount, unmount, unmount_dead,
};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use tiny::{End, STUCK, Tiny, pattern};

const MIB: usize = 1 << 20;

#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn skip(why: &str) {
    eprintln!("SKIP: a FUSE mount: {why}");
}

/// A mounted file system on a directory of its own, unless it is not possible here.
fn mounted() -> Option<(TempDir, Tiny)> {
    let dir = tempfile::tempdir().expect("a directory");
    match Tiny::mount(dir.path()) {
        Ok(tiny) => Some((dir, tiny)),
        Err(error @ (MountError::NoDevice { .. } | MountError::DeviceRefused | MountError::NoHelper)) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn patterned(range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(pattern).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let name =
        |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("text");
    let mut names: Vec<String> = fs::read_dir(dir).expect("a directory").map(name).collect();
    names.sort();
    names
}

/// What every mount must be able to do.
fn exercise(dir: &Path, tiny: &mut Tiny) {
    fs::write(dir.join("a"), patterned(0..10)).expect("a file");
    fs::create_dir(dir.join("d")).expect("a directory");
    fs::rename(dir.join("a"), dir.join("d/b")).expect("a rename");
    assert_eq!((names(dir), names(&dir.join("d"))), (vec!["d".to_owned()], vec!["b".to_owned()]));
    assert_eq!(fs::read(dir.join("d/b")).expect("the file"), patterned(0..10));
    assert_eq!(fs::metadata(dir.join("d/b")).expect("attributes").size(), 10);
    fs::remove_file(dir.join("d/b")).expect("an unlink");
    fs::remove_dir(dir.join("d")).expect("a removal");
    assert!(names(dir).is_empty());
    assert_eq!(fs::read(dir.join("a")).expect_err("it is gone").kind(), io::ErrorKind::NotFound);
    tiny.mount.unmount(Unmount::WhenIdle).expect("nobody uses it");
    assert_eq!(tiny.join(), [End::Unmounted; 2]);
    assert!(tiny.seen().displaced.is_empty());
}

#[test]
fn files_and_directories_are_made_renamed_and_removed() {
    let Some((dir, mut tiny)) = mounted() else { return };
    exercise(dir.path(), &mut tiny);
    assert!(names(dir.path()).is_empty(), "the directory below is back");
}

/// Memory whose data begin at a page's first byte, or one byte later.
fn aligned(data: &[u8], displacement: usize) -> (Vec<u8>, usize) {
    let mut memory = vec![0; data.len() + 2 * 4096];
    let start = memory.as_ptr().align_offset(4096) + displacement;
    memory[start..start + data.len()].copy_from_slice(data);
    (memory, start)
}

#[test]
fn written_data_land_at_the_first_byte_of_the_given_memory() {
    let Some((dir, tiny)) = mounted() else { return };
    let path = dir.path().join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    for (offset, displacement) in [(0, 0), (MIB, 1), (2 * MIB + 77, 0), (3 * MIB + 77, 100)] {
        let (memory, start) = aligned(&patterned(offset..offset + MIB), displacement);
        file.write_all_at(&memory[start..start + MIB], offset as u64).expect("a write");
    }
    file.write_all_at(&patterned(4 * MIB + 77..4 * MIB + 78), 4 * MIB as u64 + 77)
        .expect("a write of a byte");
    let seen = tiny.seen();
    assert!(seen.displaced.is_empty(), "displaced: {:?}", seen.displaced);
    let bytes: usize = seen.writes.iter().map(|write| write.1 as usize).sum();
    assert!(bytes > 4 * MIB && bytes < 5 * MIB, "{:?}", seen.writes);
    let largest = seen.writes.iter().map(|write| write.1 as usize).max();
    assert!(
        largest > Some(128 << 10) || tiny.negotiated.max_write <= 128 << 10,
        "large writes are negotiated"
    );
}

#[test]
fn stored_slices_are_read_back_as_one() {
    let Some((dir, tiny)) = mounted() else { return };
    let path = dir.path().join("file");
    let all = patterned(0..3 * MIB + 5);
    fs::write(&path, &all).expect("a file");
    let file = File::open(&path).expect("the file");
    for (offset, len) in [(0, MIB), (1, MIB), (4095, 2), (MIB + 77, 2 * MIB - 72), (3 * MIB, 5)] {
        let mut found = vec![0; len];
        file.read_exact_at(&mut found, offset as u64).expect("a read");
        assert!(found == all[offset..offset + len], "{len} bytes at {offset}");
    }
    assert_eq!(file.read_at(&mut [0; 10], 3 * MIB as u64).expect("a short read"), 5);
    assert_eq!(file.read_at(&mut [0; 10], 4 * MIB as u64).expect("the end"), 0);
    file.set_len(1).expect_err("it is open for reading");
    assert!(tiny.seen().displaced.is_empty());
}

#[test]
fn a_directory_larger_than_a_reply_is_read_whole() {
    let Some((dir, _tiny)) = mounted() else { return };
    let made: Vec<String> = (0..600).map(|n| format!("{n:04}-{}", "x".repeat(n % 200))).collect();
    for name in &made {
        File::create(dir.path().join(name)).expect("a file");
    }
    assert_eq!(names(dir.path()), made);
}

#[test]
fn statfs_gives_the_numbers_of_the_file_system() {
    let Some((dir, _tiny)) = mounted() else { return };
    let output = Command::new("stat").args(["-f", "-c", "%S %b %f %a %c %d %l"]).arg(dir.path()).output();
    let output = output.expect("stat").stdout;
    assert_eq!(String::from_utf8_lossy(&output).trim(), "4096 1000 600 500 100 60 255");
}

#[test]
fn notifications_drop_what_the_kernel_keeps() {
    let Some((dir, tiny)) = mounted() else { return };
    let path = dir.path().join("file");
    fs::write(&path, b"x").expect("a file");
    let node = Node(fs::metadata(&path).expect("attributes").ino());
    let entry = |name| Notification::inval_entry(Node::ROOT, OsStr::new(name), Entries::Forget);
    tiny.remove_behind_the_kernel("file");
    assert!(path.exists(), "the kernel keeps the name for an hour");
    assert_eq!(tiny.notify(&Notification::inval_inode(node, 0, 0)), Sent::Done);
    assert_eq!(tiny.notify(&entry("file")), Sent::Done);
    assert!(!path.exists(), "it has looked again");
    assert_eq!(tiny.notify(&entry("never seen")), Sent::Unwanted);
    assert_eq!(tiny.notify(&Notification::inval_inode(Node(4711), 0, 0)), Sent::Unwanted);

    fs::write(&path, b"x").expect("a file");
    let node = Node(fs::metadata(&path).expect("attributes").ino());
    tiny.remove_behind_the_kernel("file");
    assert_eq!(tiny.notify(&Notification::delete(Node::ROOT, node, OsStr::new("file"))), Sent::Done);
    assert!(!path.exists(), "the kernel has removed it");
}

#[test]
fn a_mount_in_use_is_busy_until_its_last_file_is_closed() {
    let Some((dir, mut tiny)) = mounted() else { return };
    let mut file = File::create(dir.path().join("file")).expect("a file");
    let busy = tiny.mount.unmount(Unmount::WhenIdle).expect_err("a file is open");
    assert!(matches!(busy, MountError::Busy { .. }), "{busy}");
    file.write_all(&patterned(0..100)).expect("it goes on");
    drop(file);
    // The kernel sends RELEASE behind the close.
    while let Err(MountError::Busy { .. }) = tiny.mount.unmount(Unmount::WhenIdle) {
        std::thread::yield_now();
    }
    assert_eq!(tiny.join(), [End::Unmounted; 2]);
    tiny.mount.unmount(Unmount::WhenIdle).expect("nothing is left to do");
}

#[test]
fn a_lazy_unmount_lets_open_files_go_on() {
    let Some((dir, mut tiny)) = mounted() else { return };
    let file = File::create_new(dir.path().join("file")).expect("a file");
    tiny.mount.unmount(Unmount::Lazily).expect("a lazy unmount");
    assert!(names(dir.path()).is_empty(), "it has left the tree");
    file.write_all_at(&patterned(0..100), 0).expect("it goes on");
    drop(file);
    assert_eq!(tiny.join(), [End::Unmounted; 2]);
    assert_eq!(tiny.seen().writes, [(0, 100)]);
}

#[test]
fn requests_in_flight_fail_when_the_server_goes() {
    let Some((dir, mut tiny)) = mounted() else { return };
    let path = dir.path().join("file");
    fs::write(&path, STUCK).expect("a file");
    let reader = std::thread::spawn(move || File::open(path).and_then(|mut file| file.read(&mut [0; 10])));
    while tiny.seen().stuck == 0 {
        std::thread::yield_now();
    }
    assert!(matches!(tiny.mount.unmount(Unmount::WhenIdle), Err(MountError::Busy { .. })));
    tiny.mount.unmount(Unmount::Lazily).expect("a lazy unmount");
    assert_eq!(tiny.stop(), [End::Stopped; 2]);
    let error = reader.join().expect("the reader ends").expect_err("its read is not answered");
    assert!(matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::ENOTCONN)), "{error}");
}

#[test]
fn a_mount_whose_server_has_died_is_named_and_can_be_removed() {
    let Some((dir, mut tiny)) = mounted() else { return };
    assert_eq!(tiny.stop(), [End::Stopped; 2]);
    let error = Tiny::mount(dir.path()).err().expect("the old mount is in the way");
    assert!(matches!(error, MountError::DeadServer { .. }), "{error}");
    let of_others = MountOptions { subtype: "others".into(), ..MountOptions::default() };
    assert!(!unmount_dead(dir.path(), &of_others).expect("it stays"));
    assert!(unmount_dead(dir.path(), &MountOptions::default()).expect("an unmount"));
    assert!(!unmount_dead(dir.path(), &MountOptions::default()).expect("nothing is mounted any more"));
    unmount(dir.path(), Unmount::WhenIdle).expect("nothing is mounted any more");
    let mut again = Tiny::mount(dir.path()).expect("another mount");
    drop(tiny);
    exercise(dir.path(), &mut again);
}

#[test]
fn a_dropped_mount_leaves_the_directory_usable() {
    let Some((dir, mut tiny)) = mounted() else { return };
    tiny.stop();
    drop(tiny);
    assert!(names(dir.path()).is_empty());
}

/// True in a process that has no root, be it a child of the test.
#[allow(clippy::print_stderr, reason = "a child says that it is skipped")]
fn without_root(name: &str) -> bool {
    if fs::metadata("/proc/self").expect("procfs").uid() != 0 {
        return true;
    }
    let exe = std::env::current_exe().expect("this test");
    let child = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(exe)
        .args(["--exact", name, "--nocapture"])
        .output();
    match child {
        Ok(output) if output.status.success() => eprint!("{}", String::from_utf8_lossy(&output.stderr)),
        Ok(output) => panic!("without root: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => skip(&format!("setpriv: {error}")),
    }
    false
}

#[test]
fn the_helper_mounts_and_unmounts_without_root() {
    if !without_root("the_helper_mounts_and_unmounts_without_root") {
        return;
    }
    let Some((dir, mut tiny)) = mounted() else { return };
    File::create(dir.path().join("held")).map(drop).expect("a file");
    let held = File::open(dir.path().join("held")).expect("the file");
    assert!(matches!(tiny.mount.unmount(Unmount::WhenIdle), Err(MountError::Busy { .. })));
    drop(held);
    fs::remove_file(dir.path().join("held")).expect("an unlink");
    exercise(dir.path(), &mut tiny);
    let foreign = Tiny::mount(Path::new("/usr")).err().expect("somebody else's directory");
    assert!(matches!(foreign, MountError::NotYours { .. }), "{foreign}");
}

#[test]
fn a_mount_that_has_ended_does_not_end_the_next_one_of_its_directory() {
    let Some((dir, _)) = mounted() else { return };
    let options = MountOptions::default();
    for _ in 0..20 {
        let (device, mut earlier) = mount(dir.path(), &options).expect("a mount");
        unmount(dir.path(), Unmount::Lazily).expect("it is unmounted");
        drop(device);
        let (_device, mut later) = mount(dir.path(), &options).expect("a mount");
        let has_same_number = later.id() == earlier.id();
        earlier.unmount(Unmount::Lazily).expect("nothing to do");
        drop(earlier);
        let table = fs::read_to_string("/proc/self/mountinfo").expect("the table");
        assert!(table.contains(&format!(" {} ", later.point().display())), "it ended with the earlier one");
        later.unmount(Unmount::Lazily).expect("it is unmounted");
        if has_same_number {
            return;
        }
    }
    panic!("the kernel gives no number again");
}
