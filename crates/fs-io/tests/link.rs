//! A library beside a real mount: what one writes the other reads, whoever had the file before.

mod common;

use common::Mounted;
use common::library::{Leased, Library};
use landfall_fs_link::{Kind, LinkState, Reason};
use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Xorshift (Marsaglia 2003): the same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A mount of a region in memory, and a file in it.
fn mounted() -> Option<Mounted> {
    let mounted = Mounted::in_memory(128, &[])?;
    fs::write(mounted.at("file"), [1; 10_000]).expect("writes");
    Some(mounted)
}

fn inode(mounted: &Mounted) -> u64 {
    fs::metadata(mounted.at("file")).expect("it is there").ino()
}

fn linked(mounted: &Mounted) -> (Library, Leased) {
    let inode = inode(mounted);
    let mut library = Library::link(&mounted.door()).expect("it is linked");
    let leased = library.acquire(Kind::Write, inode);
    (library, leased)
}

#[test]
fn the_mount_reads_what_a_library_has_written_and_the_library_what_the_mount_has() {
    let Some(mounted) = mounted() else { return };
    // The kernel keeps the bytes and the size.
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), [1; 10_000]);
    let (mut library, mut leased) = linked(&mounted);
    assert_eq!((leased.fields.size, library.read(&leased, 10_000)), (10_000, vec![1; 10_000]));
    assert!(library.write(&mut leased, 4096, &[2; 4096]));
    assert!(library.write(&mut leased, 8192, &[3; 5000]));
    let expected = [vec![1; 4096], vec![2; 4096], vec![3; 5000]].concat();
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), expected);
    assert!(!library.write(&mut leased, 0, &[9; 4096]), "the mount has taken the lease back");
    let mut file = OpenOptions::new().write(true).open(mounted.at("file")).expect("opens");
    file.seek(SeekFrom::Start(100)).expect("seeks");
    file.write_all(&[4; 50]).expect("writes");
    let leased = library.acquire(Kind::Write, inode(&mounted));
    let expected = [vec![1; 100], vec![4; 50], vec![1; 3946], vec![2; 4096], vec![3; 5000]].concat();
    assert_eq!(library.read(&leased, leased.fields.size), expected);
}

/// Random writes by both, each read by the other one at once. An inode that goes back and forth too often is left to the
/// mount, so there are some.
#[test]
fn a_mount_and_a_library_that_take_turns_see_each_other() {
    let Some(mounted) = Mounted::in_memory(128, &[]) else { return };
    let mut library = Library::link(&mounted.door()).expect("it is linked");
    let (mut random, mut by_library) = (Random(7), 0);
    for file in 0..12 {
        let path = mounted.at(&format!("file-{file}"));
        fs::write(&path, [1; 10_000]).expect("writes");
        by_library += take_turns(&mut library, &path, &mut random);
    }
    assert!(by_library > 60, "the library has had its turns: {by_library}");
}

/// Returns how often it was the library's turn.
fn take_turns(library: &mut Library, path: &Path, random: &mut Random) -> u32 {
    let number = fs::metadata(path).expect("it is there").ino();
    let mut leased = library.acquire(Kind::Write, number);
    let (mut model, mut by_library) = (fs::read(path).expect("reads"), 0);
    for round in 0..40_u8 {
        let offset = random.next() % 8 * 4096;
        let at = usize::try_from(offset).expect("small");
        model.resize(model.len().max(at + 4096), 0);
        model[at..at + 4096].fill(round);
        let mut written = false;
        if !random.next().is_multiple_of(8) {
            written = library.write(&mut leased, offset, &[round; 4096]);
            if let (false, Ok(new)) = (written, library.try_acquire(Kind::Write, number)) {
                leased = new;
                written = library.write(&mut leased, offset, &[round; 4096]);
            }
        }
        by_library += u32::from(written);
        if !written {
            let file = OpenOptions::new().write(true).open(path).expect("opens");
            file.write_all_at(&[round; 4096], offset).expect("writes");
        }
        match random.next() % 4 {
            0 => assert_eq!(fs::read(path).expect("reads"), model, "round {round}"),
            1 => assert_eq!(fs::metadata(path).expect("it is there").len(), model.len() as u64),
            _ => {}
        }
    }
    assert_eq!(fs::read(path).expect("reads"), model);
    by_library
}

#[test]
fn a_program_that_reads_through_the_mount_never_sees_an_older_value() {
    let Some(mounted) = mounted() else { return };
    let number = inode(&mounted);
    let door = mounted.door();
    let is_done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut library = Library::link(&door).expect("it is linked");
            let mut leased = library.acquire(Kind::Write, number);
            let mut value = 1_u64;
            while !is_done.load(Ordering::Relaxed) && value < 1500 {
                let bytes: Vec<u8> = value.to_le_bytes().iter().copied().cycle().take(4096).collect();
                if library.write(&mut leased, 0, &bytes) {
                    value += 1;
                } else if let Ok(new) = library.try_acquire(Kind::Write, number) {
                    leased = new;
                }
                // So that what was appended fits into what was granted.
                while value - 1 > library.adopted() + 64 {
                    std::thread::yield_now();
                }
            }
            value
        });
        let mut last = 0;
        for _ in 0..200 {
            let bytes = fs::read(mounted.at("file")).expect("reads");
            let words: Vec<u64> = bytes[..4096]
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("eight")))
                .collect();
            assert!(words.iter().all(|word| *word == words[0]), "half of a write");
            if words[0] != u64::from_le_bytes([1; 8]) {
                assert!(words[0] >= last, "{} after {last}", words[0]);
                last = words[0];
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        is_done.store(true, Ordering::Relaxed);
        writer.join().expect("it writes")
    });
    assert!(written > 1);
}

#[test]
fn whatever_asks_for_attributes_sees_what_a_library_has_written() {
    let Some(mounted) = mounted() else { return };
    let (mut library, mut leased) = linked(&mounted);
    assert!(library.write(&mut leased, 8192, &[3; 5000]));
    let stat = fs::metadata(mounted.at("file")).expect("it is there");
    assert_eq!((stat.len(), stat.mtime()), (13_192, 1_700_000_000));
    let mut leased = library.acquire(Kind::Write, stat.ino());
    assert!(library.write(&mut leased, 12_288, &[3; 4096]));
    let entry = fs::read_dir(mounted.point()).expect("lists").next().expect("one").expect("reads");
    assert_eq!(entry.metadata().expect("it is there").len(), 16_384);
}

#[test]
fn open_files_of_the_kernel_see_what_a_library_writes_each_time() {
    let Some(mounted) = mounted() else { return };
    let mut file = fs::File::open(mounted.at("file")).expect("opens");
    let mut first = [0; 4096];
    file.read_exact(&mut first).expect("reads");
    let (mut library, _) = linked(&mounted);
    for round in 10..16 {
        let mut leased = library.acquire(Kind::Write, inode(&mounted));
        assert!(library.write(&mut leased, 0, &[round; 4096]));
        file.seek(SeekFrom::Start(0)).expect("seeks");
        file.read_exact(&mut first).expect("reads");
        assert_eq!(first, [round; 4096]);
    }
}

#[test]
fn synced_writes_of_a_library_are_there_after_the_server_is_killed() {
    let Some(mut mounted) = mounted() else { return };
    let (mut library, mut leased) = linked(&mounted);
    assert!(library.write(&mut leased, 0, &[7; 4096]));
    let file = fs::File::open(mounted.at("file")).expect("opens");
    file.sync_all().expect("syncs");
    drop((file, library));
    mounted.kill();
    mounted.start();
    let expected = [vec![7; 4096], vec![1; 5904]].concat();
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), expected);
}

#[test]
fn what_a_library_has_appended_is_there_after_the_server_is_killed_adopted_or_not() {
    let Some(mut mounted) = mounted() else { return };
    let (mut library, mut leased) = linked(&mounted);
    let count = 200_u8;
    for block in 0..count {
        assert!(library.write(&mut leased, u64::from(block) * 4096, &[block; 4096]));
    }
    mounted.kill();
    drop(library);
    mounted.start();
    let bytes = fs::read(mounted.at("file")).expect("reads");
    let seen: Vec<u8> = bytes.chunks(4096).map(|block| block[4095]).collect();
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
    // The mount goes on as ever.
    fs::write(mounted.at("file"), [5; 300]).expect("writes");
    mounted.stop();
    mounted.start();
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), [5; 300]);
}

#[test]
fn fuzz_random_messages_are_refused_and_everybody_is_served() {
    let Some(mounted) = mounted() else { return };
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut next = || random.next();
    let (mut library, mut leased) = linked(&mounted);
    for _ in 0..2000 {
        let code = u32::try_from(next() % 8).expect("small");
        let len = usize::try_from(next() % 40).expect("small");
        let mut message = code.to_le_bytes().to_vec();
        // Small numbers name places and inodes that there are.
        message.extend((0..len).map(|_| if next() % 2 == 0 { 0 } else { (next() % 256) as u8 }));
        library.send_raw(&message);
    }
    let _ = library.write(&mut leased, 0, &[7; 4096]);
    fs::write(mounted.at("other"), b"everybody goes on").expect("writes");
    let mut other = Library::link(&mounted.door()).expect("it is linked");
    let mut leased = other.acquire(Kind::Write, inode(&mounted));
    assert!(other.write(&mut leased, 0, &[9; 4096]));
    assert_eq!(fs::read(mounted.at("file")).expect("reads")[..4096], [9; 4096]);
}

#[test]
fn a_library_that_does_not_give_a_lease_back_is_fenced_and_the_file_is_served() {
    let Some(mounted) = mounted() else { return };
    let (mut library, mut leased) = linked(&mounted);
    assert!(library.write(&mut leased, 0, &[7; 4096]));
    assert!(library.enter(&leased, Kind::Write), "and it stays in");
    let expected = [vec![7; 4096], vec![1; 5904]].concat();
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), expected);
    assert_eq!(library.state(), LinkState::Fenced);
    library.append(&mut leased, 0, &[8; 4096]);
    fs::write(mounted.at("other"), b"everybody goes on").expect("writes");
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), expected, "nothing of it counts");
    let (mut other, mut leased) = linked(&mounted);
    assert!(other.write(&mut leased, 0, &[9; 4096]), "another library is served");
}

#[test]
fn a_mount_counts_what_libraries_do() {
    let Some(mounted) = mounted() else { return };
    let count = |name: &str| mounted.counted(name);
    let ended = |why: &str| count(&format!("leases_ended_total{{why=\"{why}\"}}"));
    let logs_ended = |why: &str| count(&format!("library_logs_ended_total{{why=\"{why}\"}}"));
    let now = || (count("libraries"), count("leases"), count("leases_granted_total"));
    assert_eq!(now(), (0, 0, 0));
    let (mut library, mut leased) = linked(&mounted);
    (0..3).for_each(|block| assert!(library.write(&mut leased, block * 4096, &[7; 4096])));
    assert_eq!(now(), (1, 1, 1));
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), [7; 12_288]);
    assert_eq!((now(), ended("conflict")), ((1, 0, 1), 1));
    assert_eq!((count("library_operations_total"), count("library_bytes_total")), (3, 12_288));
    let Leased { place, generation, .. } = library.acquire(Kind::Write, inode(&mounted));
    library.ask(&landfall_fs_link::Request::Release { place, generation });
    assert_eq!((now(), ended("released")), ((1, 0, 2), 1));
    let mut leased = library.acquire(Kind::Write, inode(&mounted));
    assert!(library.write(&mut leased, 100, &[8; 4096]), "it breaks a rule");
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), [7; 12_288]);
    assert_eq!((now(), ended("ended"), logs_ended("refused")), ((0, 0, 3), 1, 1));
    let (slow, leased) = linked(&mounted);
    assert!(slow.enter(&leased, Kind::Write), "and it stays in");
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), [7; 12_288]);
    assert_eq!((now(), logs_ended("slow"), count("library_operations_total")), ((0, 0, 4), 1, 3));
}

#[test]
fn writes_of_a_library_that_ends_are_in_the_file() {
    let Some(mounted) = mounted() else { return };
    let (mut library, mut leased) = linked(&mounted);
    assert!(library.write(&mut leased, 0, &[7; 4096]));
    drop(library);
    let expected = [vec![7; 4096], vec![1; 5904]].concat();
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), expected);
}

#[test]
fn a_mount_ends_in_good_order_though_a_library_is_linked() {
    let Some(mut mounted) = mounted() else { return };
    let (mut library, mut leased) = linked(&mounted);
    assert!(library.write(&mut leased, 0, &[7; 4096]));
    let (socket, _) = mounted.door();
    mounted.stop();
    assert_eq!(library.state(), LinkState::Ended);
    assert!(!library.write(&mut leased, 0, &[8; 4096]));
    assert!(!socket.exists());
    mounted.start();
    let expected = [vec![7; 4096], vec![1; 5904]].concat();
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), expected);
}

#[test]
fn a_library_that_is_in_when_its_server_is_killed_is_waited_for() {
    let Some(mut mounted) = mounted() else { return };
    let (mut library, mut leased) = linked(&mounted);
    assert!(library.write(&mut leased, 0, &[7; 4096]));
    assert!(library.enter(&leased, Kind::Write));
    mounted.kill();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| mounted.start());
        while library.state() == LinkState::Running {
            assert!(!next.is_finished(), "the region is open, and a library may store to it");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!library.enter(&leased, Kind::Write), "nobody enters any more");
        std::thread::sleep(Duration::from_millis(20));
        assert!(!next.is_finished());
        library.append(&mut leased, 4096, &[8; 4096]);
        library.leave(&leased);
        next.join().expect("it mounts");
    });
    assert_eq!(library.state(), LinkState::Ended);
    let expected = [vec![7; 4096], vec![8; 4096], vec![1; 1808]].concat();
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), expected);
}

#[test]
fn a_library_that_stays_in_is_fenced_by_the_next_server() {
    let Some(mut mounted) = mounted() else { return };
    let (library, leased) = linked(&mounted);
    assert!(library.enter(&leased, Kind::Write));
    mounted.kill();
    mounted.start();
    assert_eq!(library.state(), LinkState::Fenced);
}

#[test]
fn a_library_that_stays_in_when_its_mount_ends_is_fenced() {
    let Some(mut mounted) = mounted() else { return };
    let (mut library, mut leased) = linked(&mounted);
    assert!(library.enter(&leased, Kind::Write));
    mounted.stop();
    assert_eq!(library.state(), LinkState::Fenced);
    library.append(&mut leased, 0, &[7; 4096]);
    mounted.start();
    assert_eq!(fs::read(mounted.at("file")).expect("reads"), [1; 10_000], "it does not count");
}

#[test]
fn what_cannot_be_linked_says_why() {
    let reason = |mounted: &Mounted| Library::link(&mounted.door()).map(drop).expect_err("refused").reason;
    let Some(kept) = Mounted::in_memory(64, &["writeback"]) else { return };
    assert_eq!(reason(&kept), Reason::WriteBack);
    let Some(always) = Mounted::in_memory(64, &["always"]) else { return };
    assert_eq!(reason(&always), Reason::Always);
    let Some(mounted) = mounted() else { return };
    let (socket, device) = mounted.door();
    let elsewhere = Library::link(&(socket, device + 1)).map(drop).expect_err("refused");
    assert_eq!(elsewhere.reason, Reason::Mount);
    let mut library = Library::link(&mounted.door()).expect("it is linked");
    let root = fs::metadata(mounted.point()).expect("it is there").ino();
    for inode in [root, 999_999] {
        let acquire =
            landfall_fs_link::Request::Acquire { kind: Kind::Read, inode: landfall_fs::InodeNumber(inode) };
        let landfall_fs_link::Reply::Refused(refusal) = library.ask(&acquire) else { panic!("no file") };
        assert_eq!(refusal.reason, Reason::Inode);
    }
}

#[test]
fn a_region_on_a_file_is_not_shared() {
    let Some(on_disk) = Mounted::on_disk(64) else { return };
    let refused = Library::link(&on_disk.door()).map(drop).expect_err("refused");
    assert_eq!(refused.reason, Reason::Medium);
}
