//! Fuzz target: two of this crate's stacks, with any behaviour of both applications, the link and the clock. What
//! arrives is always a prefix of what was sent. All of it arrives if the link recovers and no side aborts, except for
//! data that an application had not taken when a reset came. No frame is held at the end.

mod support;

use bolero::{TypeGenerator, check};
use landfall_net::{CongestionControl, ConnId, Ended};
use std::time::Duration;
use support::wire::{checksum, ip_frame, put_word, word};
use support::{Faults, World, address};

#[derive(Clone, Debug, TypeGenerator)]
enum Op {
    Send {
        host: bool,
        len: u16,
    },
    Stored {
        host: bool,
        len: u16,
        piece: u8,
    },
    Pause {
        host: bool,
    },
    Resume {
        host: bool,
    },
    ShutDown {
        host: bool,
    },
    Close {
        host: bool,
    },
    Abort {
        host: bool,
    },
    Cut,
    Heal,
    Faults {
        loss: u8,
        reordering: u8,
        duplication: u8,
        delay_us: u16,
        slow: bool,
    },
    /// A router forwards only smaller packets.
    PathMtu {
        host: bool,
        mtu: u16,
    },
    Millis(u16),
    Hours(u8),
}

#[derive(Debug, TypeGenerator)]
struct Plan {
    seed: u8,
    mtu: u16,
    window: u8,
    newreno: bool,
    ecn: bool,
    long_packets: bool,
    frames: u8,
    strip: u8,
    ops: Vec<Op>,
}

/// One side's stream, as the application sees it.
#[derive(Default)]
struct Side {
    conn: Option<ConnId>,
    sent: Vec<u8>,
    done: bool,
    let_go: bool,
    /// The application takes no data.
    paused: bool,
    /// A reset came while the application took no data: the data that had arrived are discarded (RFC 9293, 3.10.7.4).
    discarded: bool,
}

struct Run {
    world: World,
    sides: [Side; 2],
    aborted: bool,
}

impl Run {
    fn of(plan: &Plan) -> Self {
        let mut world = World::with(u64::from(plan.seed), Faults::NONE, |config| {
            config.mtu = 576 + plan.mtu % 925;
            config.receive_window = 3000 << (plan.window % 9);
            config.ecn = plan.ecn;
            config.long_packets = plan.long_packets;
            config.user_timeout = Duration::from_secs(1_000_000);
            config.keep_alive = None;
            config.waiting_frames_per_connection = 4 + usize::from(plan.frames) * 4;
            config.set_aside_after = Duration::from_millis(100);
            if plan.newreno {
                config.congestion = CongestionControl::NewReno;
            }
        });
        // Kinds of options: MSS, window scale, SACK, timestamps.
        let kinds = [2, 3, 4, 8].into_iter().enumerate();
        world.network.strip =
            kinds.filter(|(bit, _)| plan.strip >> bit & 1 == 1).map(|(_, kind)| kind).collect();
        let client = world.connect();
        let sides = [Side { conn: Some(client), ..Side::default() }, Side::default()];
        Self { world, sides, aborted: false }
    }

    fn find_server(&mut self) {
        self.sides[1].conn = self.sides[1].conn.or(self.world.accepted());
    }

    fn send(&mut self, host: usize, len: u16, piece: Option<u8>) {
        let Some(conn) = self.sides[host].conn else { return };
        let side = &mut self.sides[host];
        // No more than the frames of the test can hold.
        if side.done || side.sent.len() > 200_000 || !self.world.hosts[host].stack.is_writable(conn) {
            return;
        }
        let from = side.sent.len();
        let bytes: Vec<u8> =
            (from..from + usize::from(len % 8000)).map(|i| (i * 7 + i / 251) as u8).collect();
        let host = &mut self.world.hosts[host];
        let taken = match piece {
            None => host.stack.send_bytes(conn, &bytes).is_ok(),
            Some(piece) => host.send(conn, &bytes, 200 + usize::from(piece) * 7, piece % 2 == 0),
        };
        if taken {
            side.sent.extend(bytes);
        }
    }

    fn apply(&mut self, op: &Op) {
        self.find_server();
        let now = self.world.now;
        match op {
            Op::Send { host, len } => self.send(usize::from(*host), *len, None),
            Op::Stored { host, len, piece } => self.send(usize::from(*host), *len, Some(*piece)),
            Op::Cut => self.world.network.cut = true,
            Op::Heal => self.world.network.cut = false,
            Op::Faults { loss, reordering, duplication, delay_us, slow } => {
                self.world.network.faults = Faults {
                    loss: u32::from(*loss) * 8,
                    reordering: u32::from(*reordering) * 20,
                    duplication: u32::from(*duplication) * 8,
                    reorder_by: Duration::from_micros(1 + u64::from(*delay_us)),
                    delay: Duration::from_micros(u64::from(*delay_us)),
                    rate: if *slow { 1_000_000 } else { 0 },
                    ..Faults::ALL
                };
            }
            Op::PathMtu { host, mtu } => self.too_big(usize::from(*host), *mtu % 1500),
            Op::Millis(millis) => self.world.run_for(Duration::from_millis(u64::from(*millis % 3000))),
            Op::Hours(hours) => self.world.run_for(Duration::from_secs(3600 * u64::from(*hours % 4))),
            Op::Pause { host }
            | Op::Resume { host }
            | Op::ShutDown { host }
            | Op::Close { host }
            | Op::Abort { host } => self.call(op, usize::from(*host), now),
        }
        self.note_resets();
        self.check_prefixes();
    }

    fn note_resets(&mut self) {
        for (side, host) in self.sides.iter_mut().zip(&self.world.hosts) {
            let reset = host.ended.iter().any(|(_, how)| *how == Ended::Reset);
            side.discarded |= side.paused && reset;
        }
    }

    /// An ICMP error (RFC 1191) about the segment that was sent last.
    fn too_big(&mut self, host: usize, mtu: u16) {
        let last = &self.world.hosts[host].last;
        if last.len() < 54 || word(last, 12) != 0x0800 {
            return;
        }
        let mut message = vec![3, 4, 0, 0, 0, 0];
        put_word(&mut message, mtu);
        message.extend(&last[14..]);
        let sum = checksum(&[&message]);
        (message[2], message[3]) = ((sum >> 8) as u8, sum as u8);
        let mut frame = ip_frame(address(1 - host), address(host), 1, 0, &message);
        frame[5] = host as u8 + 1;
        let now = self.world.now;
        self.world.hosts[host].deliver(now, &frame);
    }

    fn call(&mut self, op: &Op, index: usize, now: landfall_net::Instant) {
        let Some(conn) = self.sides[index].conn else { return };
        let host = &mut self.world.hosts[index];
        match op {
            Op::Pause { .. } => {
                host.stack.pause(conn);
                self.sides[index].paused = true;
            }
            Op::Resume { .. } => {
                host.stack.resume(now, &mut host.arena, conn);
                self.sides[index].paused = false;
            }
            Op::ShutDown { .. } => {
                host.stack.shut_down(conn);
                self.sides[index].done = true;
            }
            Op::Close { .. } => {
                host.stack.close(now, &mut host.arena, conn);
                (self.sides[index].done, self.sides[index].let_go) = (true, true);
                // Data that arrive from now on, or were not taken, are answered with a reset.
                self.aborted = true;
            }
            _ => {
                host.stack.abort(now, &mut host.arena, conn);
                (self.sides[index].done, self.sides[index].let_go) = (true, true);
                self.aborted = true;
            }
        }
    }

    fn arrived(&self, host: usize) -> &[u8] {
        let conn = self.sides[host].conn;
        conn.and_then(|conn| self.world.hosts[host].received.get(&conn)).map_or(&[], |bytes| bytes)
    }

    fn check_prefixes(&self) {
        for host in 0..2 {
            let (sent, got) = (&self.sides[1 - host].sent, self.arrived(host));
            assert!(
                sent.starts_with(got),
                "host {host} got {} of {} bytes, not as sent",
                got.len(),
                sent.len()
            );
        }
    }

    fn finish(mut self) {
        self.world.network.cut = false;
        self.world.network.faults = Faults { loss: 100, ..Faults::NONE };
        self.world.quiet = Duration::from_secs(100_000);
        self.world.run_until(|world| world.accepted().is_some());
        self.find_server();
        for index in 0..2 {
            let Some(conn) = self.sides[index].conn else { continue };
            let now = self.world.now;
            let host = &mut self.world.hosts[index];
            host.stack.resume(now, &mut host.arena, conn);
            if self.aborted {
                // The reset may have been lost: without keep-alive a peer in FIN-WAIT-2 would wait for ever.
                host.stack.close(now, &mut host.arena, conn);
            } else {
                host.stack.shut_down(conn);
            }
        }
        let gone = self.world.run_until(|world| world.hosts.iter().all(|host| host.stack.counts().0 == 0));
        assert!(
            gone,
            "connections that never end: {:?}",
            self.world.hosts.each_ref().map(|h| h.stack.counts())
        );
        self.check_prefixes();
        // A link that is cut during the handshake may end it on either side.
        if !self.aborted && self.sides[1].conn.is_some() {
            for host in (0..2).filter(|host| !self.sides[*host].discarded) {
                assert_eq!(self.arrived(host).len(), self.sides[1 - host].sent.len(), "host {host}");
            }
            let ends =
                self.world.hosts.each_ref().map(|h| h.ended.iter().map(|(_, how)| *how).collect::<Vec<_>>());
            // Timeouts may have grown to the length of TIME-WAIT: the peer of a retransmitted last FIN may have
            // forgotten the connection.
            let fine = |ended: &Vec<Ended>| matches!(ended[..], [Ended::Closed | Ended::Reset]);
            assert!(ends.iter().all(fine) && ends.contains(&vec![Ended::Closed]), "{ends:?}");
        }
        self.world.assert_nothing_held();
    }
}

#[test]
fn any_operations_on_both_ends_the_link_and_the_clock() {
    check!().with_type::<Plan>().for_each(|plan| {
        let mut run = Run::of(plan);
        plan.ops.iter().take(100).for_each(|op| run.apply(op));
        run.finish();
    });
}
