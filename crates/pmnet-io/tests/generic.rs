//! Tests of a durable service with clients over UDP and restarts.

use landfall_pmnet_io::generic::{Durable, Service};
use landfall_pmnet_io::runtime::{Published, ServerOptions, ServerReport, Session, SessionOptions, serve};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A service whose state is the concatenation of all updates.
#[derive(Default)]
struct Log(Vec<u8>);

impl Service for Log {
    fn changes(&self, request: &[u8]) -> bool {
        !request.is_empty()
    }

    fn request(&mut self, request: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(request);
        if request.is_empty() { self.0.clone() } else { self.0.len().to_string().into_bytes() }
    }

    fn save(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn restore(&mut self, state: &[u8]) -> bool {
        self.0 = state.to_vec();
        true
    }
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl Running {
    fn start(listen: SocketAddr, path: &Path) -> Self {
        let report = Arc::new(Published::<ServerReport>::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, published, path) = (stop.clone(), report.clone(), PathBuf::from(path));
        let thread = thread::spawn(move || {
            let mut service = Durable::new(Log::default(), path);
            serve(ServerOptions::new(listen), &mut service, published, &stopping).unwrap();
        });
        let began = Instant::now();
        while report.get().listens.is_none() {
            assert!(began.elapsed() < Duration::from_secs(10), "the service did not start");
            thread::sleep(Duration::from_millis(1));
        }
        Self { stop, thread: Some(thread), address: report.get().listens.unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn updates_survive_restarts_in_order_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut running = Running::start("127.0.0.1:0".parse().unwrap(), &path);
    let address = running.address;
    let mut session = Session::start(SessionOptions::new(address)).unwrap();
    let mut expected = Vec::new();
    for round in 0_u8..3 {
        for n in 0_u8..20 {
            let request = [round, n];
            expected.extend_from_slice(&request);
            if n.is_multiple_of(3) {
                let len = session.bypass(&request).unwrap();
                assert_eq!(len, expected.len().to_string().into_bytes());
            } else {
                session.update(&request).unwrap();
            }
        }
        drop(running);
        running = Running::start(address, &path);
        assert_eq!(session.bypass(b"").unwrap(), expected, "round {round}");
    }
    session.end().unwrap();
}

/// After a sync that has failed, pages that the medium does not have pass for clean: what is read from them is not
/// durable, and syncing the file again does nothing.
#[test]
fn a_service_that_starts_writes_what_it_has_read_to_a_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, earlier) = (dir.path().join("journal"), dir.path().join("earlier"));
    let running = Running::start("127.0.0.1:0".parse().unwrap(), &path);
    let address = running.address;
    let mut session = Session::start(SessionOptions::new(address)).unwrap();
    session.bypass(b"one").unwrap();
    drop(running);
    std::fs::hard_link(&path, &earlier).unwrap();
    let before = std::fs::read(&earlier).unwrap();
    let running = Running::start(address, &path);
    session.bypass(b"two").unwrap();
    assert_eq!(session.bypass(b"").unwrap(), b"onetwo");
    drop(running);
    assert_eq!(std::fs::read(&earlier).unwrap(), before, "nothing was appended to it");
    std::fs::remove_file(&earlier).unwrap();
    let _running = Running::start(address, &path);
    assert_eq!(session.bypass(b"").unwrap(), b"onetwo");
}

#[test]
fn many_updates_under_way_are_applied_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start("127.0.0.1:0".parse().unwrap(), &dir.path().join("journal"));
    let mut session = Session::start(SessionOptions::new(running.address)).unwrap();
    let mut expected = Vec::new();
    // Some requests are longer than a packet, so that they are sent in fragments.
    let sent: Vec<_> = (0_u8..100)
        .map(|n| {
            let request = vec![n; 100 * usize::from(n) + 1];
            expected.extend_from_slice(&request);
            session.send_update(&request).unwrap()
        })
        .collect();
    for id in sent {
        session.wait(id).unwrap();
    }
    assert_eq!(session.bypass(b"").unwrap(), expected);
    session.end().unwrap();
}
