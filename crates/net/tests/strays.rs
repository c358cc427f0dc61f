//! Two stacks behind one address, each with a queue of one interface: what belongs to a connection of the other stack is
//! left to that one, by a driver as `packets` is.

mod support;

use landfall_net::{FlowChange, Frames, Instant, Received, Tuple};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use support::wire::{ACK, RST, SYN, Seg};
use support::{Host, PORT, config, seg, sent};

const START: Instant = Instant::from_nanos(10_000_000_000);

struct Workers {
    hosts: [Host; 2],
    owners: HashMap<Tuple, usize>,
}

impl Workers {
    fn new() -> Self {
        let host = |_| {
            let mut host = Host::new(config(0), 5);
            host.stack.listen(PORT, 1);
            host.stack.share_flows();
            host
        };
        Self { hosts: [0, 1].map(host), owners: HashMap::new() }
    }

    /// A segment comes to the queue of a worker.
    fn deliver(&mut self, now: Instant, at: usize, segment: &Seg) {
        let frame = segment.frame();
        if let Received::Stray(tuple) = self.receive(now, at, &frame, false) {
            let owner = self.owners.get(&tuple).copied().filter(|owner| *owner != at);
            let outcome = self.receive(now, owner.unwrap_or(at), &frame, owner.is_none());
            if let (Some(owner), Received::Stray(_)) = (owner, outcome) {
                self.receive(now, owner, &frame, true);
            }
        }
        for (worker, host) in self.hosts.iter_mut().enumerate() {
            host.stack.take_flow_changes(|change| match change {
                FlowChange::Here(tuple) => _ = self.owners.insert(tuple, worker),
                FlowChange::Gone(tuple) => _ = self.owners.remove(&tuple),
            });
        }
    }

    /// A worker's stack handles a segment, or one that is of no stack.
    fn receive(&mut self, now: Instant, at: usize, frame: &[u8], is_unowned: bool) -> Received {
        let host = &mut self.hosts[at];
        let landed = host.arena.store(256, frame).expect("room");
        let outcome = match is_unowned {
            true => {
                host.stack.refuse(now, &host.arena, landed);
                Received::Done
            }
            false => host.stack.receive(now, &mut host.arena, landed, now.nanos()),
        };
        host.arena.release(landed);
        outcome
    }

    /// What a worker sends.
    fn answers(&mut self, now: Instant, at: usize) -> Vec<Seg> {
        sent(&mut self.hosts[at], now).iter().filter_map(|frame| Seg::parse(frame)).collect()
    }

    /// Connections and half-open connections of each worker.
    fn counts(&self) -> [(usize, usize); 2] {
        [0, 1].map(|at| {
            let (connections, half_open, _) = self.hosts[at].stack.counts();
            (connections, half_open)
        })
    }
}

fn peer(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], port))
}

#[test]
fn a_syn_that_comes_again_to_another_queue_is_answered_by_the_stack_that_has_answered_it() {
    let mut workers = Workers::new();
    workers.deliver(START, 0, &seg(peer(4000), SYN, 999, 0));
    let first = workers.answers(START, 0);
    assert!(first.len() == 1 && first[0].has(SYN | ACK), "{first:?}");
    let now = START + Duration::from_millis(500);
    workers.deliver(now, 1, &seg(peer(4000), SYN, 999, 0));
    assert_eq!(workers.counts(), [(0, 1), (0, 0)]);
    assert!(workers.answers(now, 1).is_empty());
    let again = workers.answers(now, 0);
    assert_eq!(again.iter().map(|answer| answer.seq).collect::<Vec<_>>(), [first[0].seq]);
    workers.deliver(now, 1, &seg(peer(4000), ACK, 1000, first[0].seq.wrapping_add(1)));
    assert_eq!(workers.counts(), [(1, 0), (0, 0)]);
    // The peer has started anew, or somebody pretends to be it: that is for the connection's stack to find out.
    workers.deliver(now, 1, &seg(peer(4000), SYN, 7000, 0));
    assert_eq!(workers.counts(), [(1, 0), (0, 0)]);
    let all = [workers.answers(now, 0), workers.answers(now, 1)].concat();
    assert!(all.iter().all(|answer| !answer.has(RST) && !answer.has(SYN)), "{all:?}");
}

#[test]
fn what_belongs_to_no_stack_is_answered_where_it_comes() {
    let mut workers = Workers::new();
    for at in [0, 1] {
        let port = 5000 + at as u16;
        workers.deliver(START, at, &seg(peer(port), SYN, 1, 0));
        assert!(workers.answers(START, at).iter().any(|answer| answer.has(SYN | ACK)));
        workers.deliver(START, at, &seg(peer(port + 10), ACK, 7, 8));
        assert!(workers.answers(START, at).iter().any(|answer| answer.has(RST)));
    }
    assert_eq!(workers.counts(), [(0, 1), (0, 1)]);
}
