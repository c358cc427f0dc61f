//! Fuzz targets: any frame may arrive. The stack does not panic, leaves no frame held, and reports no inconsistent
//! event.

mod support;

use bolero::{TypeGenerator, check};
use landfall_net::{Event, Frames};
use std::collections::BTreeSet;
use std::time::Duration;
use support::wire::{self, Seg, fix_checksums};
use support::{Faults, World};

/// Two hosts in the middle of a transfer; the fuzzer decides what the second one receives next.
fn talking(seed: u64) -> World {
    let mut world = World::with(seed, Faults::NONE, |config| {
        config.waiting_frames_per_connection = 16;
        config.receive_window = 20_000;
        config.user_timeout = Duration::from_secs(20);
        config.backlog_max = 4;
        config.connections_max = 8;
        config.time_wait_max = 4;
    });
    world.hosts[1].stack.bind_udp(53);
    let client = world.connect();
    world.run_until(|world| world.accepted().is_some());
    let server = world.accepted().unwrap();
    let bytes: Vec<u8> = (0..3000_u32).map(|i| i as u8).collect();
    world.hosts[0].stack.send_bytes(client, &bytes).unwrap();
    world.run_for(Duration::from_millis(1));
    assert!(world.hosts[1].send(server, &bytes, 700, true));
    world
}

/// Lets all connections end, and checks that nothing is left.
fn finish(mut world: World) {
    world.network.cut = true;
    world.run_for(Duration::from_secs(100));
    let now = world.now;
    for host in &mut world.hosts {
        host.stack.end_all(now, &mut host.arena);
        while host.transmit(now).is_some() {}
    }
    world.assert_nothing_held();
}

fn take_events(world: &mut World) {
    let mut ended = BTreeSet::new();
    while let Some(event) = world.hosts[1].stack.poll_event() {
        if let Event::Datagram { extent, .. } = event {
            world.hosts[1].arena.release(extent);
        }
        if let Some(conn) = event.conn() {
            assert!(!ended.contains(&conn), "{event:?} after the end");
        }
        if let Event::Ended { conn, .. } = event {
            ended.insert(conn);
        }
        world.hosts[1].take(&event);
    }
    while world.hosts[1].transmit(world.now).is_some() {}
    assert!(world.hosts[1].stack.deadline().is_none_or(|at| at > world.now), "a deadline stays in the past");
}

#[test]
fn any_bytes_as_a_frame() {
    check!().with_max_len(300).for_each(|bytes: &[u8]| {
        let mut world = talking(1);
        let now = world.now;
        world.hosts[1].deliver(now, bytes);
        // The bytes follow correct addresses, for each ethertype, and an IP header of each protocol.
        for ethertype in [[8, 0], [8, 6], [0x86, 0xdd]] {
            let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &ethertype[..], bytes].concat();
            world.hosts[1].deliver(now, &frame);
        }
        for protocol in [1, 6, 17, 58, 0, 43, 60] {
            for family in [support::address as fn(usize) -> _, support::address_v6] {
                let mut frame = wire::ip_frame(family(0), family(1), protocol, 0, bytes);
                frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
                if protocol == 6 {
                    fix_checksums(&mut frame);
                }
                world.hosts[1].deliver(now, &frame);
            }
        }
        take_events(&mut world);
        finish(world);
    });
}

/// A change to a segment of the transfer before it arrives. Checksums are corrected afterwards.
#[derive(Debug, TypeGenerator)]
enum Change {
    /// The segment with other fields, or unchanged.
    Segment {
        flags: u8,
        seq: i8,
        seq_far: i32,
        ack: i8,
        window: u16,
        payload: u8,
        options: Vec<u8>,
    },
    /// Sequence numbers near those that the stack expects, with any flags and a well-formed option.
    Near {
        flags: u8,
        seq: i16,
        ack: i16,
        len: u16,
        option: u8,
        value: [u8; 8],
    },
    /// One changed byte of the frame.
    Byte {
        at: u16,
        value: u8,
    },
    /// The segment from another port: strays, SYNs, cookies.
    Elsewhere {
        port: u8,
        flags: u8,
        seq: u32,
        ack: u32,
    },
    /// A call of the application.
    Call(u8),
    Wait(u16),
    WaitLong(u8),
}

fn option(kind: u8, value: [u8; 8]) -> Vec<u8> {
    match kind % 5 {
        0 => Vec::new(),
        1 => wire::encode_options(&[(8, value.to_vec())]),
        2 => wire::encode_options(&[(5, value.to_vec())]),
        3 => wire::encode_options(&[(2, value[..2].to_vec()), (3, value[2..3].to_vec()), (4, Vec::new())]),
        _ => wire::encode_options(&[(value[0], value[1..].to_vec())]),
    }
}

fn apply(world: &mut World, last: &Seg, change: &Change) {
    let now = world.now;
    let mut seg = last.clone();
    match change {
        Change::Segment { flags, seq, seq_far, ack, window, payload, options } => {
            seg.flags = *flags;
            seg.seq = seg.seq.wrapping_add_signed(i32::from(*seq) * 100);
            if *seq == 0 {
                seg.seq = seg.seq.wrapping_add_signed(*seq_far);
            }
            seg.ack = seg.ack.wrapping_add_signed(i32::from(*ack));
            seg.window = *window;
            seg.payload = vec![0xaa; usize::from(*payload)];
            seg.options = options[..options.len().min(40) / 4 * 4].to_vec();
        }
        Change::Near { flags, seq, ack, len, option: kind, value } => {
            seg.flags = flags | wire::ACK;
            seg.seq = seg.seq.wrapping_add_signed(i32::from(*seq));
            seg.ack = seg.ack.wrapping_add_signed(i32::from(*ack));
            seg.payload = vec![0xbb; usize::from(*len % 1400)];
            let mut options = option(*kind, *value);
            if kind % 5 == 2 {
                // SACK blocks near the data in flight.
                let (start, end) = (seg.ack.wrapping_add(value[2].into()), seg.ack.wrapping_add(word(value)));
                options.clear();
                options.extend([1, 1, 5, 10]);
                wire::put_long(&mut options, start);
                wire::put_long(&mut options, end);
            }
            seg.options = options;
            if let Some((value, echo)) = last.timestamps().filter(|_| kind % 5 == 0) {
                let mut both = Vec::new();
                wire::put_long(&mut both, value);
                wire::put_long(&mut both, echo);
                seg.options = wire::encode_options(&[(8, both)]);
            }
        }
        Change::Byte { at, value } => {
            let mut frame = addressed(&seg);
            let at = usize::from(*at) % frame.len();
            frame[at] = *value;
            fix_checksums(&mut frame);
            return world.hosts[1].deliver(now, &frame);
        }
        Change::Elsewhere { port, flags, seq, ack } => {
            seg.from.set_port(1000 + u16::from(*port % 16));
            (seg.flags, seg.seq, seg.ack) = (*flags, *seq, *ack);
        }
        Change::Call(what) => return call(world, *what),
        Change::Wait(millis) => return world.run_for(Duration::from_millis(u64::from(*millis % 2000))),
        Change::WaitLong(seconds) => return world.run_for(Duration::from_secs(u64::from(*seconds))),
    }
    let frame = addressed(&seg);
    world.hosts[1].deliver(now, &frame);
}

fn word(value: &[u8; 8]) -> u32 {
    u32::from(value[0]) << 8 | u32::from(value[1])
}

fn addressed(seg: &Seg) -> Vec<u8> {
    let mut frame = seg.frame();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame
}

fn call(world: &mut World, what: u8) {
    let Some(conn) = world.accepted() else { return };
    let now = world.now;
    let host = &mut world.hosts[1];
    match what % 7 {
        0 => host.stack.pause(conn),
        1 => host.stack.resume(now, &mut host.arena, conn),
        2 => host.stack.shut_down(conn),
        3 => host.stack.close(now, &mut host.arena, conn),
        4 => host.stack.abort(now, &mut host.arena, conn),
        5 => drop(host.stack.send_bytes(conn, &[1; 2000])),
        _ => drop(host.send(conn, &[2; 5000], 1000, false)),
    }
}

#[test]
fn segments_of_a_live_connection_changed_at_will() {
    check!().with_type::<Vec<Change>>().for_each(|changes| {
        let mut world = talking(2);
        let now = world.now;
        world.hosts[0].stack.send_bytes(landfall_net::ConnId(0), b"").unwrap_err();
        // A real segment of the first host; all other segments are made from it.
        let client = world.log.iter().find_map(|(_, event)| match event {
            Event::Connected { conn } => Some(*conn),
            _ => None,
        });
        world.hosts[0].stack.send_bytes(client.unwrap(), &[9; 50]).unwrap();
        let frame = world.hosts[0].transmit(now).unwrap();
        let last = Seg::parse(&frame).unwrap();
        world.network.cut = true;
        for change in changes.iter().take(64) {
            apply(&mut world, &last, change);
            take_events(&mut world);
        }
        finish(world);
    });
}
