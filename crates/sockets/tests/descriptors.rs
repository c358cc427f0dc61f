//! Accepting without a free file descriptor. This test has its own process, because other tests need descriptors.

mod common;

use common::Rig;
use landfall_sockets::{Event, TransportRequest};
use std::fs::File;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Descriptors that the test opens, at most, to use up all of them.
const DESCRIPTORS_MAX: usize = 200_000;

/// CPU time of this thread, from an already open `/proc/thread-self/schedstat`.
fn cpu_time(schedstat: &File) -> Duration {
    let mut text = [0; 64];
    let len = schedstat.read_at(&mut text, 0).unwrap();
    let text = std::str::from_utf8(&text[..len]).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Opens all available descriptors; `None` if there are too many.
fn take_all_descriptors() -> Option<Vec<File>> {
    let mut all = Vec::new();
    while all.len() < DESCRIPTORS_MAX {
        match File::open("/dev/null") {
            Ok(file) => all.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
                return Some(all);
            }
        }
    }
    None
}

fn accepting_pauses_and_continues(request: TransportRequest) {
    let schedstat = File::open("/proc/thread-self/schedstat").unwrap();
    let mut rig = Rig::new(request, 4);
    let (first, first_conn) = rig.connect();
    let second = TcpStream::connect(rig.address).unwrap();
    let Some(descriptors) = take_all_descriptors() else {
        return common::skip(&format!("more than {DESCRIPTORS_MAX} descriptors may be open"));
    };
    let (started, cpu_before) = (Instant::now(), cpu_time(&schedstat));
    while started.elapsed() < Duration::from_millis(300) {
        assert!(rig.poll_for(Duration::from_millis(50)).is_empty(), "nothing can be accepted");
    }
    let spent = cpu_time(&schedstat) - cpu_before;
    assert!(spent < Duration::from_millis(100), "it spins: {spent:?} of CPU in {:?}", started.elapsed());
    drop(descriptors);
    let accepted = rig.expect("accepting again", |event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    assert_ne!(accepted, first_conn);
    drop((first, second));
    rig.finish();
}

// One test for both transports: two tests would take each other's descriptors.
#[test]
fn accepting_pauses_without_descriptors_and_continues_with_them() {
    accepting_pauses_and_continues(TransportRequest::Epoll);
    common::with_uring(accepting_pauses_and_continues);
}
