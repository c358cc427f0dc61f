//! Kills while packets arrive, and restarts with the remaining data.

#![allow(clippy::print_stderr, reason = "a test reports that it is skipped")]

mod common;
mod xdp;

use common::{Place, Reply, Resp, Server, ok, pattern, wait_until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use xdp::{Net, SERVER};

const CLIENTS: u64 = 6;
/// Writes before each kill, unless [`AT_MOST`] passes first: a fast machine must not fill the region.
const WRITES: u64 = 6_000;
const AT_MOST: Duration = Duration::from_millis(400);
/// After this long without a reply the server counts as dead.
const SILENCE: Duration = Duration::from_secs(3);

/// Values of different lengths: in the record, in one packet, in several packets.
fn value(client: u64, index: u64) -> Vec<u8> {
    pattern(client << 40 | index, [20, 1024, 1400, 9000][index as usize % 4])
}

/// Six clients write until the server is killed. Returns how many writes of each were acknowledged, from `from` on.
fn acknowledged_until_killed(server: Server, from: &[u64]) -> Vec<u64> {
    let counts: Vec<AtomicU64> = from.iter().map(|from| AtomicU64::new(*from)).collect();
    std::thread::scope(|threads| {
        for (client, count) in (0..).zip(&counts) {
            // No host has the address of the dead server, so its clients get no reset.
            let mut resp = server.at_clients(|| Resp::connect(server.resp, SILENCE)).unwrap();
            threads.spawn(move || {
                loop {
                    let index = count.load(Ordering::Relaxed);
                    let key = format!("{client}:{index}");
                    match resp.call(&[b"SET", key.as_bytes(), &value(client, index)]) {
                        Ok(reply) => assert_eq!(reply, ok()),
                        Err(_) => return,
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let wanted = from.iter().sum::<u64>() + WRITES;
        let total = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
        wait_until(AT_MOST, || (total() >= wanted).then_some(()));
        // A packet may have been lost, and be sent again.
        let have_all = || counts.iter().zip(from).all(|(count, from)| count.load(Ordering::Relaxed) > *from);
        wait_until(common::REPLY_LIMIT, || have_all().then_some(()));
        server.kill();
    });
    counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

fn all_there(server: &Server, counts: &[u64]) {
    let mut resp = server.resp();
    for (client, count) in (0..).zip(counts) {
        for index in 0..*count {
            let got = resp.call(&[b"GET", format!("{client}:{index}").as_bytes()]).unwrap();
            assert!(got == Reply::Bulk(value(client, index)), "{client}:{index} of {count}");
        }
    }
}

#[test]
fn acknowledged_writes_survive_kills_in_their_frames_and_the_kernel_continues() {
    let Some(net) = Net::new() else { return };
    for place in [Place::in_memory(), Some(Place::new())].into_iter().flatten() {
        survive(&net, &place);
    }
}

fn survive(net: &Net, place: &Place) {
    let mut counts = vec![0; CLIENTS as usize];
    for _ in 0..3 {
        // Clients of the dead server keep sending to its address: the new server resets them, and serves others.
        let server = net.start(place, &["--capacity", "256MiB", "--request-timeout", "5"]);
        all_there(&server, &counts);
        let before = counts.clone();
        counts = acknowledged_until_killed(server, &before);
        assert!(counts.iter().zip(&before).all(|(now, before)| now > before), "{counts:?} after {before:?}");
        assert_eq!(place.check(&[]).status.code(), Some(0), "clean after a kill");
    }
    let server = net.start(place, &["--capacity", "256MiB"]);
    all_there(&server, &counts);
    assert!(server.stop().success());
}

#[test]
fn values_stay_in_the_frames_their_packets_landed_in_over_a_kill() {
    let Some(net) = Net::new() else { return };
    let Some(place) = Place::in_memory() else {
        eprintln!("SKIP: shared memory: cannot be written");
        return;
    };
    let server = net.start(&place, &["--scrub-rate", "0"]);
    let mut resp = server.resp();
    for index in 0..300 {
        assert_eq!(
            resp.call(&[b"SET", format!("k{index}").as_bytes(), &pattern(index, 1024)]).unwrap(),
            ok()
        );
    }
    server.kill();
    // A packet that a client's kernel has sent again may lie in other frames, too, which are free.
    let places = || {
        let region = std::fs::read(place.region()).unwrap();
        [0u64, 150, 299].map(|index| xdp::positions(&region, &pattern(index, 1024)))
    };
    let before = places();
    let server = net.start(&place, &["--scrub-rate", "0"]);
    let mut resp = server.resp();
    // New packets land elsewhere.
    for index in 0..300 {
        let key = format!("new{index}");
        assert_eq!(resp.call(&[b"SET", key.as_bytes(), &pattern(9000 + index, 1024)]).unwrap(), ok());
    }
    for index in 0..300 {
        let got = resp.call(&[b"GET", format!("k{index}").as_bytes()]).unwrap();
        assert!(got == Reply::Bulk(pattern(index, 1024)), "k{index}");
    }
    for (before, after) in before.iter().zip(&places()) {
        assert!(before.iter().any(|place| after.contains(place)), "{before:?} {after:?}");
    }
}

#[test]
fn kernel_on_the_same_interface_continues_when_the_server_is_killed_and_the_next_one_starts_at_once() {
    let Some(net) = Net::new() else { return };
    let echo = net.server.enter(|| TcpListener::bind((SERVER, 7000))).unwrap();
    std::thread::spawn(move || {
        for stream in echo.incoming().take(1).flatten() {
            let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream);
            let _ = std::io::copy(&mut reader, &mut writer);
        }
    });
    let place = Place::new();
    let server = net.start_shared(&place, &[]);
    let mut kernel = xdp::stream(&server, SocketAddr::from((SERVER, 7000)));
    let mut echoes = |word: &[u8; 5]| {
        kernel.write_all(word).unwrap();
        let mut back = [0; 5];
        kernel.read_exact(&mut back).unwrap();
        assert_eq!(&back, word);
    };
    echoes(b"first");
    assert_eq!(server.call(&["SET", "a", "0"]), ok());
    server.kill();
    for round in 1..5u8 {
        echoes(b"after");
        let server = net.start_shared(&place, &[]);
        assert_eq!(server.call(&["GET", "a"]), common::bulk((round - 1).to_string()));
        assert_eq!(server.call(&["SET", "a", &round.to_string()]), ok());
        echoes(b"while");
        server.kill();
    }
    echoes(b"again");
}
