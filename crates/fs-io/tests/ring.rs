//! Mounts over io_uring: everything that mounts over `/dev/fuse` are tested for, and what is particular to rings. `common`
//! mounts over io_uring in this program.

#![allow(
    clippy::duplicate_mod,
    reason = "each test program that is included has its part of what they have in common"
)]

mod common;
#[path = "kills.rs"]
mod kills;
#[path = "mount.rs"]
mod mount;
#[path = "random.rs"]
mod random;

use common::Mounted;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

const MIB: usize = 1 << 20;
/// More than a queue has entries.
const THREADS: usize = 40;
/// How long calls on a mount without a server may take to fail.
const SOON: Duration = Duration::from_secs(20);

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + seed).wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

#[test]
fn sizes_and_offsets_of_every_kind_come_back() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let path = mounted.at("f");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let mut expected = Vec::new();
    for (round, len) in
        [1, 4095, 4096, 4097, 65_537, MIB - 1, MIB, MIB + 1, 3 * MIB + 5].into_iter().enumerate()
    {
        // Memory that begins in the middle of a page, too.
        let data = bytes(len + round, round);
        file.write_all_at(&data[round..], expected.len() as u64).unwrap();
        expected.extend_from_slice(&data[round..]);
    }
    file.sync_all().unwrap();
    drop(file);
    mounted.stop();
    mounted.start();
    assert!(fs::read(&path).unwrap() == expected);
    let file = File::open(&path).unwrap();
    for (offset, len) in [(0, 1), (4095, 2), (MIB - 3, 2 * MIB + 7), (expected.len() - 5, 5)] {
        let mut found = vec![0; len];
        file.read_exact_at(&mut found, offset as u64).unwrap();
        assert!(found == expected[offset..offset + len], "{len} bytes at {offset}");
    }
    assert_eq!(file.read_at(&mut [0; 9], expected.len() as u64).unwrap(), 0);
    drop(file);
    mounted.stop();
}

#[test]
fn more_threads_than_entries_write_sync_and_read_at_once() {
    let Some(mut mounted) = Mounted::new(128, &[]) else { return };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let path = mounted.at(&format!("f{thread}"));
            scope.spawn(move || {
                for round in 0..8 {
                    let content = bytes(10_000 + thread * 777, round);
                    let file = File::create(&path).unwrap();
                    file.write_all_at(&content, 0).unwrap();
                    file.sync_all().unwrap();
                    assert!(fs::read(&path).unwrap() == content);
                }
            });
        }
    });
    assert_eq!(fs::read_dir(mounted.point()).unwrap().count(), THREADS);
    mounted.stop();
}

#[test]
fn programs_of_a_killed_server_get_enotconn_and_none_hangs() {
    let Some(mut mounted) = Mounted::new(64, &[]) else { return };
    let (done, outcomes) = sync_channel(THREADS);
    let began = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (path, done, began) = (mounted.at(&format!("f{thread}")), done.clone(), &began);
            scope.spawn(move || {
                let file = File::create(&path).unwrap();
                file.sync_all().unwrap();
                began.fetch_add(1, Ordering::AcqRel);
                let error = loop {
                    let written = file.write_all_at(&[7; 20_000], 0).and_then(|()| file.sync_all());
                    if let Err(error) = written {
                        break error;
                    }
                };
                done.send(error).unwrap();
            });
        }
        while began.load(Ordering::Acquire) < THREADS {
            std::thread::yield_now();
        }
        mounted.kill_server();
        for _ in 0..THREADS {
            let error = outcomes.recv_timeout(SOON).expect("a call on the mount hangs");
            // Those that were in flight have been aborted or canceled.
            let in_flight = [libc::ECONNABORTED, libc::ECANCELED];
            let errno = error.raw_os_error().unwrap_or(0);
            assert!(errno == libc::ENOTCONN || in_flight.contains(&errno), "{error}");
        }
    });
    assert_eq!(fs::read_dir(mounted.point()).unwrap_err().kind(), ErrorKind::NotConnected);
    mounted.remove();
    mounted.start();
    assert_eq!(fs::read_dir(mounted.point()).unwrap().count(), THREADS);
    mounted.stop();
}
