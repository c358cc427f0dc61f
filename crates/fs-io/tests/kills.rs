//! The server is killed while programs work: what was synced is there, and the tree is whole.

mod common;

use common::Mounted;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

const ROUNDS: u64 = 8;
const WORKERS: usize = 4;
/// Names that all workers use together.
const SHARED_NAMES: usize = 12;

fn content(worker: usize, index: usize) -> Vec<u8> {
    (0..index * 911 % 30_000).map(|at| ((at * 31) ^ (worker * 7 + index)) as u8).collect()
}

/// Makes, links, renames and removes shared names, and syncs files of its own, until the server is gone. Returns the
/// number of files that were synced.
fn work(point: &Path, worker: usize, round: u64) -> usize {
    for index in 0.. {
        let name = |number: usize| point.join(format!("shared {}", number % SHARED_NAMES));
        let (a, b) = (name(index * 7 + worker), name(index * 5 + 3));
        let done = match index % 5 {
            0 => fs::write(&a, content(worker, index)),
            1 => fs::rename(&a, &b),
            2 => fs::hard_link(&a, &b),
            3 => fs::remove_file(&a),
            _ => fs::read(&a).map(drop),
        };
        let own = point.join(format!("{round} {worker} {index}"));
        if is_gone(&done) || is_gone(&synced(&own, &content(worker, index))) {
            return index;
        }
    }
    0
}

fn synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let file = File::create_new(path)?;
    file.write_all_at(content, 0)?;
    file.sync_all()
}

/// True if nobody serves the mount (`EIO`: of a page that the kernel was reading; `ECANCELED`: of a request that was about to
/// be handed over by io_uring); other errors are those of names that
/// others have removed or made. Whether files can be read is checked afterwards.
fn is_gone(done: &io::Result<()>) -> bool {
    match done {
        Ok(()) => false,
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::AlreadyExists => false,
            _ => {
                matches!(
                    error.raw_os_error(),
                    Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO | libc::ECANCELED)
                ) || panic!("{error}")
            }
        },
    }
}

/// Every file can be read to its end, and has as many names as its inode says.
fn check_tree(point: &Path) {
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(point).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap().len() as u64, found.len(), "{}", path.display());
        names.entry(found.ino()).or_insert((found.nlink(), 0)).1 += 1;
    }
    assert!(names.values().all(|(links, names)| links == names), "{names:?}");
}

#[test]
fn kills_at_any_time_lose_nothing_synced_and_leave_a_whole_tree() {
    let Some(mut mounted) = Mounted::new(128, &[]) else { return };
    for round in 0..ROUNDS {
        let point = mounted.point();
        let counts: Vec<usize> = std::thread::scope(|scope| {
            let point = &point;
            let start = |worker| scope.spawn(move || work(point, worker, round));
            let workers: Vec<_> = (0..WORKERS).map(start).collect();
            std::thread::sleep(Duration::from_millis(40 + round * 53));
            mounted.kill_server();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        mounted.remove();
        mounted.start();
        check_tree(&point);
        for (worker, count) in counts.iter().enumerate() {
            for index in 0..*count {
                let own = point.join(format!("{round} {worker} {index}"));
                assert!(fs::read(&own).unwrap() == content(worker, index), "{}", own.display());
                fs::remove_file(own).unwrap();
            }
        }
        // What was not synced may be there or not.
        for entry in fs::read_dir(&point).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    mounted.stop();
}
