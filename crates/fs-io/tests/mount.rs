//! What programs do with a mounted file system, and what is left of it after an end of every kind.

mod common;

use common::{Mounted, sys};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// How long something that happens in the background may take.
const SOON: Duration = Duration::from_secs(30);

fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

fn create(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).unwrap()
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + seed).wrapping_mul(2_654_435_761) >> 9) as u8).collect()
}

#[test]
fn files_directories_and_links_are_made_renamed_and_removed() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let at = |name: &str| mounted.at(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/a"), b"first").unwrap();
    fs::hard_link(at("d/a"), at("b")).unwrap();
    symlink("d/a", at("s")).unwrap();
    assert_eq!((fs::metadata(at("b")).unwrap().nlink(), fs::metadata(at("d")).unwrap().nlink()), (2, 2));
    assert_eq!(fs::metadata(mounted.point()).unwrap().nlink(), 3);
    assert_eq!(
        (fs::read(at("s")).unwrap(), fs::read_link(at("s")).unwrap()),
        (b"first".to_vec(), "d/a".into())
    );
    fs::write(at("c"), b"second").unwrap();
    assert_eq!(errno(sys::rename2(&at("c"), &at("b"), libc::RENAME_NOREPLACE)), libc::EEXIST);
    sys::rename2(&at("c"), &at("b"), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!(
        (fs::read(at("b")).unwrap(), fs::read(at("c")).unwrap()),
        (b"second".to_vec(), b"first".to_vec())
    );
    fs::rename(at("b"), at("c")).unwrap();
    assert_eq!(
        (fs::read(at("c")).unwrap(), fs::metadata(at("d/a")).unwrap().nlink()),
        (b"second".to_vec(), 1)
    );
    assert_eq!(errno(fs::remove_dir(at("d"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::rename(at("d"), at("d/e"))), libc::EINVAL);
    assert_eq!(errno(fs::create_dir(at(&"x".repeat(256)))), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::create_dir(at("c"))), libc::EEXIST);
    assert_eq!(errno(fs::read(at("none"))), libc::ENOENT);
    fs::remove_file(at("d/a")).unwrap();
    fs::remove_dir(at("d")).unwrap();
    assert_eq!(names(&mounted.point()), ["c", "s"]);
    mounted.stop();
}

#[test]
fn a_directory_of_many_names_is_listed_whole_while_names_are_removed() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let dir = mounted.at("many");
    fs::create_dir(&dir).unwrap();
    let all: BTreeSet<String> = (0..10_000).map(|index| format!("name {index}")).collect();
    all.iter().for_each(|name| drop(create(&dir.join(name))));
    assert!(names(&dir).iter().eq(&all));
    // Whoever lists goes on behind what was removed, and sees everything else once.
    let mut seen = Vec::new();
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        fs::remove_file(entry.path()).unwrap();
        seen.push(entry.file_name().into_string().unwrap());
    }
    seen.sort();
    assert!(seen.iter().eq(&all), "{} of {} names, each once", seen.len(), all.len());
    fs::remove_dir(&dir).unwrap();
    mounted.stop();
}

#[test]
fn attributes_are_those_that_were_set() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let at = |name: &str| mounted.at(name);
    fs::write(at("f"), b"x").unwrap();
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("f"), b"x").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode();
    assert_eq!(mode(&at("f")), mode(&host.path().join("f")), "the umask is applied");
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH - Duration::from_nanos(5));
    File::open(at("f")).unwrap().set_times(times).unwrap();
    let found = fs::metadata(at("f")).unwrap();
    assert_eq!((found.mtime(), found.mtime_nsec(), found.len()), (-1, 999_999_995, 1));
    assert!(found.ctime() > 0 && found.created().is_ok());
    fs::write(at("f"), b"y").unwrap();
    assert!(fs::metadata(at("f")).unwrap().mtime() > 0, "a write changes mtime");
    fs::set_permissions(at("f"), fs::Permissions::from_mode(0o6_755)).unwrap();
    assert_eq!(fs::metadata(at("f")).unwrap().mode(), 0o106_755);
    sys::make_node(&at("pipe"), libc::S_IFIFO | 0o600, 0).unwrap();
    assert_eq!(fs::metadata(at("pipe")).unwrap().mode(), libc::S_IFIFO | 0o600);
    if !sys::is_root() {
        return;
    }
    chown(at("f"), Some(1), Some(2)).unwrap();
    let found = fs::metadata(at("f")).unwrap();
    assert_eq!((found.mode(), found.uid(), found.gid()), (0o100_755, 1, 2), "a program loses its rights");
    fs::create_dir(at("group")).unwrap();
    chown(at("group"), None, Some(55)).unwrap();
    fs::set_permissions(at("group"), fs::Permissions::from_mode(0o2_775)).unwrap();
    fs::create_dir(at("group/d")).unwrap();
    fs::write(at("group/f"), b"").unwrap();
    let (directory, file) = (fs::metadata(at("group/d")).unwrap(), fs::metadata(at("group/f")).unwrap());
    assert_eq!((directory.gid(), directory.mode() & 0o2_000, file.gid()), (55, 0o2_000, 55));
    sys::make_node(&at("null"), libc::S_IFCHR | 0o600, libc::makedev(1, 3)).unwrap();
    assert_eq!(fs::metadata(at("null")).unwrap().rdev(), libc::makedev(1, 3));
    mounted.stop();
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let f = mounted.at("f");
    fs::write(&f, b"").unwrap();
    sys::set_xattr(&f, "user.a", b"1", libc::XATTR_CREATE).unwrap();
    assert_eq!(errno(sys::set_xattr(&f, "user.a", b"2", libc::XATTR_CREATE)), libc::EEXIST);
    assert_eq!(errno(sys::set_xattr(&f, "user.b", b"2", libc::XATTR_REPLACE)), libc::ENODATA);
    sys::set_xattr(&f, "user.b/c", &bytes(65_536, 1), 0).unwrap();
    assert_eq!(
        (sys::xattr(&f, "user.a", 10).unwrap(), sys::xattrs(&f).unwrap()),
        (b"1".to_vec(), vec!["user.a".into(), "user.b/c".into()])
    );
    assert_eq!(errno(sys::xattr(&f, "user.b/c", 10)), libc::ERANGE);
    assert_eq!(sys::xattr(&f, "user.b/c", 65_536).unwrap(), bytes(65_536, 1));
    sys::remove_xattr(&f, "user.a").unwrap();
    assert_eq!(errno(sys::xattr(&f, "user.a", 10)), libc::ENODATA);
    mounted.stop();
    mounted.start();
    assert_eq!(sys::xattrs(&f).unwrap(), ["user.b/c"]);
    mounted.stop();
}

/// An ACL as an extended attribute has it, of tags, permissions and ids.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes().iter().chain(&permissions.to_le_bytes()).chain(&id.to_le_bytes()));
    }
    value
}

#[test]
fn acls_are_passed_on_by_directories_and_follow_the_mode() {
    const ACCESS: &str = "system.posix_acl_access";
    const DEFAULT: &str = "system.posix_acl_default";
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let at = |name: &str| mounted.at(name);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    // Owner, user 5, group, mask, others.
    let of = |mask, others| acl(&[(1, 6, !0), (2, 7, 5), (4, 5, !0), (16, mask, !0), (32, others, !0)]);
    let default = acl(&[(1, 7, !0), (2, 7, 5), (4, 5, !0), (16, 7, !0), (32, 0, !0)]);
    fs::create_dir(at("d")).unwrap();
    sys::set_xattr(&at("d"), DEFAULT, &default, 0).unwrap();
    create(&at("d/f"));
    fs::create_dir(at("d/e")).unwrap();
    assert_eq!((mode("d/f"), sys::xattr(&at("d/f"), ACCESS, 100).unwrap()), (0o660, of(6, 0)));
    assert_eq!((mode("d/e"), sys::xattr(&at("d/e"), DEFAULT, 100).unwrap()), (0o770, default));
    fs::set_permissions(at("d/f"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!((mode("d/f"), sys::xattr(&at("d/f"), ACCESS, 100).unwrap()), (0o644, of(4, 4)));
    sys::set_xattr(&at("d/f"), ACCESS, &acl(&[(1, 7, !0), (4, 5, !0), (32, 1, !0)]), 0).unwrap();
    assert_eq!((mode("d/f"), errno(sys::xattr(&at("d/f"), ACCESS, 100))), (0o751, libc::ENODATA));
    sys::remove_xattr(&at("d"), DEFAULT).unwrap();
    create(&at("d/g"));
    assert_eq!((mode("d/g") & 0o600, errno(sys::xattr(&at("d/g"), ACCESS, 100))), (0o600, libc::ENODATA));
    mounted.stop();
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed_and_its_space_is_free_then() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let (_, free) = sys::space(&mounted.point());
    let file = create(&mounted.at("f"));
    file.write_all_at(&bytes(8 * MIB, 1), 0).unwrap();
    fs::remove_file(mounted.at("f")).unwrap();
    let temporary = sys::tmpfile(&mounted.point()).unwrap();
    temporary.write_all_at(&bytes(8 * MIB, 2), 0).unwrap();
    let mut found = vec![0; 8 * MIB];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == bytes(8 * MIB, 1) && file.metadata().unwrap().nlink() == 0);
    let kept = sys::tmpfile(&mounted.point()).unwrap();
    kept.write_all_at(b"kept", 0).unwrap();
    sys::link_open(&kept, &mounted.at("kept")).unwrap();
    // From the first open on the kernel says nothing of closes any more.
    assert_eq!(fs::read(mounted.at("kept")).unwrap(), b"kept");
    drop((file, temporary, kept));
    let until = Instant::now() + SOON;
    while sys::space(&mounted.point()).1 + 4 * MIB as u64 <= free {
        assert!(Instant::now() < until, "{} bytes were free, {} are", free, sys::space(&mounted.point()).1);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(names(&mounted.point()), ["kept"]);
    mounted.stop();
}

#[test]
fn inodes_are_counted() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let (used, free) = sys::inodes(&mounted.point());
    (0..7).for_each(|at| drop(File::create(mounted.at(&at.to_string())).unwrap()));
    assert_eq!(sys::inodes(&mounted.point()).0, used + 7);
    fs::remove_file(mounted.at("3")).unwrap();
    // `close` does not wait for the kernel's RELEASE, until which the inode lives on.
    let until = Instant::now() + SOON;
    while sys::inodes(&mounted.point()).0 == used + 7 {
        assert!(Instant::now() < until, "the inode of a deleted file is counted");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(sys::inodes(&mounted.point()).0, used + 6);
    assert!(free > 1000, "{free}");
    mounted.stop();
}

#[test]
fn holes_are_found_and_take_no_space() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let file = create(&mounted.at("f"));
    file.write_all_at(&bytes(8192, 1), MIB as u64).unwrap();
    file.set_len(1 << 40).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 16);
    let seek = |offset, whence| sys::seek(&file, offset, whence);
    assert_eq!(seek(0, libc::SEEK_DATA).unwrap(), MIB as u64);
    assert_eq!(seek(MIB as u64 + 5, libc::SEEK_HOLE).unwrap(), MIB as u64 + 8192);
    assert_eq!(errno(seek(2 << 20, libc::SEEK_DATA)), libc::ENXIO);
    sys::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE, MIB as u64, 4096).unwrap();
    assert_eq!(
        (seek(0, libc::SEEK_DATA).unwrap(), file.metadata().unwrap().blocks()),
        (MIB as u64 + 4096, 8)
    );
    assert_eq!(errno(file.set_len(1 << 45)), libc::EFBIG);
    mounted.stop();
}

#[test]
fn a_copied_range_shares_its_space() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let from = create(&mounted.at("from"));
    from.write_all_at(&bytes(16 * MIB + 100, 1), 0).unwrap();
    from.sync_all().unwrap();
    for copy in 0..4 {
        let to = create(&mounted.at(&format!("copy {copy}")));
        let mut done = 0;
        while done < 16 * MIB as u64 + 100 {
            done += sys::copy_range((&from, done), (&to, done), 16 * MIB + 100 - done as usize).unwrap();
        }
    }
    // Five files of 16 MiB in a region of 64 MiB.
    for copy in 0..4 {
        assert!(fs::read(mounted.at(&format!("copy {copy}"))).unwrap() == bytes(16 * MIB + 100, 1));
    }
    mounted.stop();
}

#[test]
fn direct_and_synchronous_files_and_locks_work() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let open = |name: &str, flags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).custom_flags(flags).open(mounted.at(name)).unwrap()
    };
    for flags in [libc::O_SYNC, libc::O_DSYNC, libc::O_DIRECT] {
        let file = open("f", flags);
        // An aligned buffer, for direct transfers.
        let mut room = vec![0; 3 * 4096];
        let start = room.as_ptr().align_offset(4096);
        let block = &mut room[start..start + 4096];
        block.copy_from_slice(&bytes(4096, 3));
        file.write_all_at(block, 8192).unwrap();
        block.fill(0);
        file.read_exact_at(block, 8192).unwrap();
        assert!(block == bytes(4096, 3), "{flags:o}");
    }
    let (one, other) = (open("f", 0), open("f", 0));
    sys::flock(&one).unwrap();
    assert_eq!(errno(sys::flock(&other)), libc::EWOULDBLOCK);
    let mut appended = OpenOptions::new().append(true).open(mounted.at("f")).unwrap();
    appended.write_all(b"end").unwrap();
    assert_eq!(fs::metadata(mounted.at("f")).unwrap().len(), 8192 + 4096 + 3);
    mounted.stop();
}

/// Writes files, each known by its content.
fn write_some(mounted: &Mounted, sync: bool) -> Vec<(String, Vec<u8>)> {
    let write = |index: usize| {
        let (name, content) = (format!("f{index}"), bytes(1 + index * 7919, index));
        let file = create(&mounted.at(&name));
        file.write_all_at(&content[..content.len() / 2], 0).unwrap();
        file.write_all_at(&content[content.len() / 2..], content.len() as u64 / 2).unwrap();
        if sync {
            file.sync_all().unwrap();
        }
        (name, content)
    };
    (0..40).map(write).collect()
}

fn check_some(mounted: &Mounted, files: &[(String, Vec<u8>)]) {
    for (name, content) in files {
        assert!(&fs::read(mounted.at(name)).unwrap() == content, "{name}");
    }
}

#[test]
fn what_was_synced_is_there_after_the_server_is_killed() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    for round in 0..3 {
        let files = write_some(&mounted, true);
        fs::rename(mounted.at("f1"), mounted.at("g1")).unwrap();
        File::open(mounted.point()).unwrap().sync_all().unwrap();
        mounted.kill();
        mounted.start();
        assert_eq!(errno(fs::metadata(mounted.at("f1"))), libc::ENOENT, "round {round}");
        fs::rename(mounted.at("g1"), mounted.at("f1")).unwrap();
        check_some(&mounted, &files);
        files.iter().for_each(|(name, _)| fs::remove_file(mounted.at(name)).unwrap());
    }
    mounted.stop();
    mounted.start();
    assert!(names(&mounted.point()).is_empty());
    mounted.stop();
}

#[test]
fn everything_is_there_after_the_server_is_killed_where_every_change_is_durable() {
    let Some(mut mounted) = Mounted::new(64, &["always"]) else { return };
    let files = write_some(&mounted, false);
    fs::create_dir(mounted.at("d")).unwrap();
    symlink("d", mounted.at("s")).unwrap();
    fs::remove_file(mounted.at("f0")).unwrap();
    mounted.kill();
    mounted.start();
    check_some(&mounted, &files[1..]);
    assert!(mounted.at("s").is_dir() && !mounted.at("f0").exists());
    mounted.stop();
}

#[test]
fn everything_is_there_after_an_end_in_good_order() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let files = write_some(&mounted, false);
    mounted.stop();
    mounted.start();
    check_some(&mounted, &files);
    // Somebody else unmounts it.
    landfall_fuse::unmount(&mounted.point(), landfall_fuse::Unmount::WhenIdle).unwrap();
    mounted.wait();
    mounted.start();
    check_some(&mounted, &files);
    // A program uses it: it is detached, and the program's files end.
    let file = File::options().write(true).open(mounted.at("f9")).unwrap();
    mounted.stop();
    assert!(names(&mounted.point()).is_empty(), "nothing is mounted");
    assert_eq!(errno(file.set_len(0)), libc::ENOTCONN);
    mounted.start();
    check_some(&mounted, &files);
    mounted.stop();
}

#[test]
fn a_full_region_is_enospc_and_what_is_removed_makes_room() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let content = bytes(2 * MIB, 1);
    let fill = || {
        for index in 0.. {
            let path = mounted.at(&format!("f{index}"));
            let written = File::create(&path).and_then(|file| file.write_all_at(&content, 0));
            match written {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return index,
                Err(error) => panic!("{error}"),
            }
        }
        0
    };
    let count = fill();
    assert!(count > 15, "{count} files of 2 MiB in 64 MiB");
    for round in 0..3 {
        // Without space, files are still read, cut off and removed.
        assert!(fs::read(mounted.at("f1")).unwrap() == content);
        File::options().write(true).open(mounted.at("f2")).unwrap().set_len(5).unwrap();
        assert_eq!(fs::read(mounted.at("f2")).unwrap(), content[..5]);
        for index in 0..=count {
            let _ = fs::remove_file(mounted.at(&format!("f{index}")));
        }
        let again = fill();
        assert!(again + 1 >= count, "round {round}: {again} instead of {count} files");
    }
    mounted.stop();
}

#[test]
fn when_the_medium_fails_changes_are_eio_and_what_was_synced_is_there() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    mounted.stop();
    mounted.fails_behind_kib = Some(24 << 10);
    mounted.start();
    let write = |index: usize| {
        let file = File::create_new(mounted.at(&format!("f{index}")))?;
        file.write_all_at(&bytes(MIB, index), 0)?;
        file.sync_all()
    };
    let failed = (0..60).find(|index| write(*index).is_err()).expect("a write to the medium fails");
    assert!(failed > 0, "some are written");
    assert_eq!(errno(File::create(mounted.at("new"))), libc::EIO);
    assert_eq!(errno(fs::remove_file(mounted.at("f0"))), libc::EIO);
    assert_eq!(
        errno(File::options().write(true).open(mounted.at("f0")).unwrap().write_all_at(b"x", 0)),
        libc::EIO
    );
    assert!(fs::read(mounted.at("f0")).unwrap() == bytes(MIB, 0));
    mounted.stop_failed();
    mounted.fails_behind_kib = None;
    mounted.start();
    for index in 0..failed {
        assert!(fs::read(mounted.at(&format!("f{index}"))).unwrap() == bytes(MIB, index), "f{index}");
    }
    mounted.stop();
}

/// The kernel drops each page of which a part is written at a file's end, keeps its place, and would read every one alone.
#[test]
fn a_file_that_was_written_record_by_record_is_read_ahead() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let (file, data) = (create(&mounted.at("f")), bytes(2 * MIB, 1));
    for (at, record) in data.chunks(1000).enumerate() {
        file.write_all_at(record, at as u64 * 1000).unwrap();
    }
    let reads = || mounted.counted("requests_total{kind=\"read\"}");
    let pages = data.len() / 4096;
    // Each page once, in no order.
    let places: Vec<usize> = (0..pages).map(|index| index * 211 % pages * 4096 + 17).collect();
    sys::mapped(&file, data.len(), |mapped| {
        let (some, others) = places.split_at(32);
        some.iter().for_each(|at| assert_eq!(mapped[*at], data[*at], "{at}"));
        while mounted.counted("dropped_caches_total") == 0 {
            std::thread::yield_now();
        }
        let before = reads();
        others.iter().for_each(|at| assert_eq!(mapped[*at], data[*at], "{at}"));
        let requests = reads() - before;
        assert!(requests < 100, "{requests} requests for {pages} pages");
    });
    assert!(fs::read(mounted.at("f")).unwrap() == data);
    mounted.stop();
}

#[test]
fn what_the_kernel_keeps_is_no_hole() {
    let Some(mut mounted) = Mounted::new(64, &["writeback"]) else { return };
    let file = create(&mounted.at("f"));
    file.set_len(MIB as u64).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(b"not written back yet", 4096).unwrap();
    assert!(sys::seek(&file, 0, libc::SEEK_DATA).unwrap() <= 4096);
    assert!(sys::seek(&file, 4096, libc::SEEK_HOLE).unwrap() > 4096);
    mounted.stop();
}

#[test]
fn what_cannot_be_mounted_is_refused_with_advice() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    fs::write(mounted.at("f"), b"").unwrap();
    let busy = mounted.refusal();
    assert!(busy.contains("another process"), "{busy}");
    mounted.stop();
    fs::write(mounted.at("below"), b"").unwrap();
    let hidden = mounted.refusal();
    assert!(hidden.contains("not empty"), "{hidden}");
    fs::remove_file(mounted.at("below")).unwrap();
    mounted.start();
    assert_eq!(names(&mounted.point()), ["f"]);
    mounted.stop();
}
