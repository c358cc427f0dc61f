//! Several workers, several queues, many connections, and flows that change their queue.

mod common;
mod xdp;

use common::{Place, Reply, Server, ok, pattern};
use landfall_testbed::LinkOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use xdp::Net;

const QUEUES: u32 = 2;

fn two_queues() -> Option<Net> {
    Net::with(&LinkOptions { queues: QUEUES, ..xdp::link() })
}

/// Sets which of the client's queues its processors send to: `None` leaves it to the flow's hash.
fn send_by(net: &Net, queue: Option<u32>) -> bool {
    let interface = &net.client_interface;
    // Read and written inside: /sys shows the namespace of who mounted it, so it is mounted anew.
    let lines: String = (0..QUEUES)
        .map(|index| {
            let mask = if queue == Some(index) { "ffffffff" } else { "0" };
            format!("echo {mask} > /sys/class/net/{interface}/queues/tx-{index}/xps_cpus || exit 1;")
        })
        .collect();
    let script = format!("mount -t sysfs sysfs /sys && {{ {lines} }}");
    let mut command = net.client.command("unshare");
    let (set, text) = common::run(command.args(["-m", "sh", "-c", &script]), xdp::PATIENCE);
    if !set {
        eprintln!("SKIP: XPS: {text}");
    }
    set
}

/// Writes and reads values of its own until told to stop; how many.
fn exchange(server: &Server, id: u64, over: &AtomicBool) -> u64 {
    let mut resp = server.resp();
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let (key, len) = (format!("{id}:{}", count % 20), [10, 1024, 5000, 40_000][count as usize % 4]);
        let value = pattern(id << 32 | count, len);
        assert_eq!(resp.call(&[b"SET", key.as_bytes(), &value]).unwrap(), ok(), "{id}: {count}");
        assert!(resp.call(&[b"GET", key.as_bytes()]).unwrap() == Reply::Bulk(value), "{id}: {count}");
        count += 1;
    }
    count
}

#[test]
fn connections_go_on_while_their_packets_change_queues() {
    let Some(net) = two_queues() else { return };
    if !send_by(&net, Some(0)) {
        return;
    }
    let place = Place::new();
    let server = net.start(&place, &["--workers", "2", "--capacity", "256MiB"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let clients: Vec<_> = (0..8)
            .map(|id| {
                threads.spawn({
                    let (server, over) = (&server, &over);
                    move || exchange(server, id, over)
                })
            })
            .collect();
        for round in 0..30 {
            assert!(send_by(&net, [Some(0), Some(1), None][round % 3]));
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().unwrap() > 10);
        }
    });
    assert_eq!(server.metric("landfall_connections"), 1.0, "who asks is the only one left");
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
