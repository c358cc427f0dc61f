//! Streams between two of this crate's stacks, over links with faults.

mod support;

use landfall_net::{CongestionControl, ConnId, Ended};
use std::time::Duration;
use support::{Faults, PORT, Rng, World};

fn sample(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    (0..len).map(|_| rng.next() as u8).collect()
}

/// Sends a stream each way, closes both sides, and checks what arrived.
fn transfer(world: &mut World, there: &[u8], back: &[u8], piece: usize) {
    let client = world.connect();
    let mut sent = [0, 0];
    let data = [there, back];
    let mut closed = [false, false];
    let done = world.run_until(|world| {
        let conns = [Some(client), world.accepted()];
        for host in 0..2 {
            let Some(conn) = conns[host] else { continue };
            feed(world, host, conn, data[host], &mut sent[host], piece);
            if sent[host] == data[host].len() && !closed[host] {
                world.hosts[host].stack.shut_down(conn);
                closed[host] = true;
            }
        }
        world.hosts.iter().all(|host| !host.ended.is_empty())
    });
    assert!(done, "the transfer came to an end; sent {sent:?}, got {:?}", lengths(world));
    let server = world.accepted().expect("accepted");
    assert_same(world.hosts[1].received.get(&server), there);
    assert_same(world.hosts[0].received.get(&client), back);
    for host in &world.hosts {
        assert_eq!(host.ended.iter().map(|(_, how)| *how).collect::<Vec<_>>(), [Ended::Closed]);
    }
    world.assert_nothing_held();
}

fn assert_same(got: Option<&Vec<u8>>, sent: &[u8]) {
    let got = got.map_or(&[][..], |bytes| bytes);
    let differs = got.iter().zip(sent).position(|(a, b)| a != b);
    assert!(got == sent, "{} bytes arrived of {}; first wrong one: {differs:?}", got.len(), sent.len());
}

fn lengths(world: &World) -> Vec<usize> {
    world.hosts.iter().map(|h| h.received.values().map(Vec::len).sum()).collect()
}

fn feed(world: &mut World, host: usize, conn: ConnId, data: &[u8], sent: &mut usize, piece: usize) {
    let host = &mut world.hosts[host];
    while *sent < data.len() && host.stack.is_writable(conn) {
        let end = (*sent + 8 * piece).min(data.len());
        // Some batches are protocol bytes, and every third one has known sums.
        if (*sent / piece) % 16 == 8 {
            if host.stack.send_bytes(conn, &data[*sent..end]).is_err() {
                return;
            }
        } else if !host.send(conn, &data[*sent..end], piece, sent.is_multiple_of(3)) {
            return;
        }
        *sent = end;
    }
}

#[test]
fn a_stream_arrives_whole_each_way_over_a_good_link() {
    let mut world = World::new(1, Faults::NONE);
    transfer(&mut world, &sample(3_000_000, 1), &sample(1_000_000, 2), 1024);
    let stats = world.hosts[0].stack.stats();
    assert_eq!((stats.retransmitted, stats.timeouts), (0, 0), "nothing was lost and nothing sent twice");
}

#[test]
fn a_device_that_cuts_long_packets_changes_nothing_on_the_wire_but_asks_less_often() {
    let run = |long_packets| {
        let mut world = World::with(2, Faults::NONE, |config| config.long_packets = long_packets);
        transfer(&mut world, &sample(1_000_000, 1), &[], 1024);
        let host = &world.hosts[0];
        (host.sent, host.stack.stats().sent, host.long_packets)
    };
    let ((frames, sent, none), (cut_frames, cut_sent, long)) = (run(false), run(true));
    assert_eq!((frames, sent, none), (cut_frames, cut_sent, 0));
    // About 690 segments, in runs of up to 45.
    assert!((16..200).contains(&long), "{long} long packets");
}

#[test]
fn a_stream_survives_loss_duplication_reordering_corruption_and_truncation_at_once() {
    for seed in 0..12 {
        let mut world = World::new(seed, Faults::ALL);
        transfer(&mut world, &sample(400_000, seed), &sample(150_000, !seed), 700 + seed as usize * 53);
        assert!(world.network.lost > 0 && world.network.corrupted > 0);
    }
}

#[test]
fn a_stream_survives_heavy_loss_with_either_congestion_control_and_without_sack() {
    for (seed, control) in [(3, CongestionControl::NewReno), (4, CongestionControl::Cubic)] {
        for strip in [vec![], vec![4], vec![2, 3, 4, 8]] {
            let faults = Faults { loss: 1000, ..Faults::NONE };
            let mut world = World::with(seed, faults, |config| config.congestion = control);
            world.network.strip = strip;
            // Without timestamps, only a segment that was not retransmitted ends a timer's back-off.
            world.quiet = Duration::from_secs(4000);
            transfer(&mut world, &sample(300_000, seed), &[], 1000);
        }
    }
}

#[test]
fn one_percent_of_loss_without_sack_is_repaired_mostly_without_timeouts() {
    let mut world = World::new(9, Faults { loss: 100, ..Faults::NONE });
    world.network.strip = vec![4];
    transfer(&mut world, &sample(10_000_000, 9), &[], 1024);
    let stats = *world.hosts[0].stack.stats();
    assert!(stats.recoveries > 20, "{stats:?}");
    assert!(stats.timeouts * 4 < stats.recoveries, "{stats:?}");
}

#[test]
fn small_segments_and_odd_pieces_keep_their_sums() {
    let mut world = World::with(5, Faults { loss: 300, ..Faults::NONE }, |config| config.mtu = 600);
    transfer(&mut world, &sample(60_001, 5), &sample(7, 6), 13);
}

#[test]
fn one_percent_of_loss_is_repaired_without_waiting_for_timeouts() {
    let mut world = World::new(9, Faults { loss: 100, ..Faults::NONE });
    transfer(&mut world, &sample(20_000_000, 9), &[], 1024);
    let stats = *world.hosts[0].stack.stats();
    assert!(stats.retransmitted > 100, "{stats:?}");
    assert!(stats.timeouts <= 2, "{stats:?}");
}

#[test]
fn a_slow_reader_closes_the_window_and_opens_it_again() {
    let mut world = World::with(2, Faults::NONE, |config| config.send_queue = 4 << 20);
    let client = world.connect();
    assert!(world.run_until(|world| world.accepted().is_some()));
    let server = world.accepted().expect("accepted");
    world.hosts[1].stack.pause(server);
    let data = sample(3 << 20, 3);
    let mut sent = 0;
    feed(&mut world, 0, client, &data, &mut sent, 1024);
    world.run_for(Duration::from_secs(30));
    let kept = world.hosts[1].stack.waiting_frames();
    assert!(kept > 500 && kept < 1500, "{kept} frames wait for a reader");
    assert_eq!(world.hosts[1].received.len(), 0);
    let now = world.now;
    let host = &mut world.hosts[1];
    host.stack.resume(now, &mut host.arena, server);
    assert!(world.run_until(|world| lengths(world)[1] == data.len()));
    assert!(world.hosts[1].received[&server] == data);
}

#[test]
fn an_unknown_port_is_refused_and_a_silent_host_times_out() {
    let mut world = World::new(7, Faults::NONE);
    let to = std::net::SocketAddr::new(support::address(1), PORT + 1);
    world.hosts[0].stack.connect(world.now, to, support::address(1)).expect("opened");
    assert!(world.run_until(|world| !world.hosts[0].ended.is_empty()));
    assert_eq!(world.hosts[0].ended[0].1, Ended::Refused);

    let mut world = World::new(7, Faults::NONE);
    world.network.cut = true;
    world.connect();
    assert!(world.run_until(|world| !world.hosts[0].ended.is_empty()));
    assert_eq!(world.hosts[0].ended[0].1, Ended::TimedOut);
}

#[test]
fn a_peer_that_vanishes_is_given_up_and_leaves_nothing_behind() {
    let mut world = World::new(8, Faults::NONE);
    let client = world.connect();
    assert!(world.run_until(|world| world.accepted().is_some()));
    let data = sample(100_000, 8);
    assert!(world.hosts[0].send(client, &data, 1024, true));
    world.network.cut = true;
    assert!(world.run_until(|world| world.hosts[0].ended.len() == 1), "the user timeout");
    assert_eq!(world.hosts[0].ended[0].1, Ended::TimedOut);
    // The other side has nothing to send: its keep-alive probes detect the end.
    world.quiet = Duration::from_secs(3600);
    assert!(world.run_until(|world| world.hosts[1].ended.len() == 1));
    world.assert_nothing_held();
}

#[test]
fn streams_work_over_ipv6() {
    let mut world = World::new(11, Faults { loss: 200, ..Faults::NONE });
    let to = std::net::SocketAddr::new(support::address_v6(1), PORT);
    let client = world.hosts[0].stack.connect(world.now, to, support::address_v6(1)).expect("opened");
    let data = sample(200_000, 11);
    let mut sent = 0;
    assert!(world.run_until(|world| {
        feed(world, 0, client, &data, &mut sent, 999);
        lengths(world)[1] == data.len()
    }));
    let server = world.accepted().expect("accepted");
    assert!(world.hosts[1].received[&server] == data);
}
