//! Several workers, several queues, many connections, and flows that change their queue.

#![allow(clippy::print_stderr, reason = "a test reports that it is skipped")]

mod common;
mod xdp;

use common::faults::Over;
use common::{Place, Reply, Server, ok, pattern};
use landfall_testbed::LinkOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xdp::Net;

const QUEUES: u32 = 2;

fn two_queues() -> Option<Net> {
    Net::with(&LinkOptions { queues: QUEUES, ..xdp::link() })
}

/// Makes the client's host send over this many queues: flows of the other queues move to the first one.
fn send_by(net: &Net, queues: u32) -> bool {
    let mut ethtool = net.client.command("ethtool");
    ethtool.args(["-L", &net.client_interface, "tx", &queues.to_string()]);
    let (set, text) = common::run(&mut ethtool, xdp::PATIENCE);
    if !set {
        eprintln!("SKIP: number of queues: {text}");
    }
    set
}

/// Writes and reads values of its own until told to stop; returns their number.
fn exchange(server: &Server, id: u64, over: &AtomicBool) -> u64 {
    let mut resp = server.resp();
    let mut count = 0;
    while !over.load(Ordering::Relaxed) || count < 20 {
        let (key, len) = (format!("{id}:{}", count % 20), [10, 1024, 5000, 40_000][count as usize % 4]);
        let value = pattern(id << 32 | count, len);
        assert_eq!(resp.call(&[b"SET", key.as_bytes(), &value]).unwrap(), ok(), "{id}: {count}");
        assert!(resp.call(&[b"GET", key.as_bytes()]).unwrap() == Reply::Bulk(value), "{id}: {count}");
        count += 1;
    }
    count
}

#[test]
fn connections_continue_while_their_packets_change_queues() {
    let Some(net) = two_queues() else { return };
    if !common::has_program("ethtool", &["--version"]) || !send_by(&net, 2) {
        return;
    }
    let place = Place::new();
    let server = net.start(&place, &["--workers", "2", "--capacity", "256MiB"]);
    for _ in 0..5 {
        // Connections begin on both queues, and continue on one.
        assert!(send_by(&net, 2));
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let ends = Over(&over);
            let start = |id| {
                let (server, over) = (&server, &over);
                threads.spawn(move || exchange(server, id, over))
            };
            let clients: Vec<_> = (0..8).map(start).collect();
            std::thread::sleep(Duration::from_millis(150));
            assert!(send_by(&net, 1));
            std::thread::sleep(Duration::from_millis(150));
            drop(ends);
            for client in clients {
                assert!(client.join().unwrap() > 0);
            }
        });
    }
    xdp::settles(&server, "landfall_connections", |count| count <= 1.0);
}

#[test]
fn queues_without_a_worker_are_named_with_what_to_do() {
    let Some(net) = two_queues() else { return };
    for (workers, named) in [("1", true), ("2", false)] {
        let place = Place::new();
        let _server = net.start(&place, &["--workers", workers, "--capacity", "256MiB"]);
        let log = place.log();
        assert_eq!(log.contains("not served") && log.contains("--workers"), named, "{log}");
    }
}

#[test]
fn hundreds_of_connections_are_spread_over_two_workers() {
    let Some(net) = two_queues() else { return };
    let place = Place::new();
    let server = net.start(&place, &["--workers", "2", "--capacity", "256MiB"]);
    let mut clients: Vec<_> = (0..300).map(|_| server.resp()).collect();
    for round in 0..3u64 {
        for (id, client) in clients.iter_mut().enumerate() {
            client.push(&[b"SET", format!("c{id}").as_bytes(), &pattern(round << 32 | id as u64, 1500)]);
            client.push(&[b"GET", format!("c{}", (id + 1) % 300).as_bytes()]);
            client.flush().unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.read().unwrap(), ok());
            assert!(matches!(client.read().unwrap(), Reply::Bulk(_) | Reply::Nil));
        }
    }
    for (id, client) in clients.iter_mut().enumerate() {
        let value = pattern(2 << 32 | id as u64, 1500);
        assert!(client.call(&[b"GET", format!("c{id}").as_bytes()]).unwrap() == Reply::Bulk(value));
    }
}
