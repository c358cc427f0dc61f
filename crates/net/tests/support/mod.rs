//! Two hosts and a faulty network between them, in virtual time and from one seed.

#![allow(dead_code, reason = "each test uses its part")]

mod arena;
mod cut;
mod host;
mod network;
pub mod wire;

pub use host::Host;
#[allow(unused_imports, reason = "each test uses its part")]
pub use network::{Faults, Network, Rng};

use landfall_net::{Config, ConnId, Event, Instant};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Port that the second host listens on.
pub const PORT: u16 = 80;

/// Two hosts on one link.
pub struct World {
    pub now: Instant,
    pub hosts: [Host; 2],
    pub network: Network,
    /// Events of both hosts, in order.
    pub log: Vec<(usize, Event)>,
    /// Stop when nothing happens for this long.
    pub quiet: Duration,
}

/// Address of a host.
pub fn address(host: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, host as u8 + 1])
}

pub fn address_v6(host: usize) -> IpAddr {
    let mut bytes = [0; 16];
    bytes[0] = 0xfd;
    bytes[15] = host as u8 + 1;
    IpAddr::from(bytes)
}

pub fn config(host: usize) -> Config {
    Config::new([2, 0, 0, 0, 0, host as u8 + 1], vec![address(host), address_v6(host)])
}

/// A segment to the port that the first host listens on.
pub fn seg(remote: SocketAddr, flags: u8, seq: u32, ack: u32) -> wire::Seg {
    wire::Seg {
        from: remote,
        to: SocketAddr::new(address(0), PORT),
        seq,
        ack,
        flags,
        window: 60_000,
        urgent: 0,
        options: Vec::new(),
        payload: Vec::new(),
        ecn: 0,
    }
}

/// All frames that the host has to send.
pub fn sent(host: &mut Host, now: Instant) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| host.transmit(now)).collect()
}

impl World {
    /// Two hosts and their link. Hosts of odd seeds have a device that cuts long packets.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with(seed, faults, |config| config.long_packets = seed % 2 == 1)
    }

    pub fn with(seed: u64, faults: Faults, change: impl Fn(&mut Config)) -> Self {
        let host = |index| {
            let mut config = config(index);
            change(&mut config);
            Host::new(config, seed)
        };
        let mut hosts = [host(0), host(1)];
        hosts[1].stack.listen(PORT, 7);
        Self {
            now: Instant::from_nanos(1_000_000_000),
            hosts,
            network: Network::new(seed, faults),
            log: Vec::new(),
            quiet: Duration::from_secs(400),
        }
    }

    /// The first host opens a connection to the second.
    pub fn connect(&mut self) -> ConnId {
        let to = SocketAddr::new(address(1), PORT);
        self.hosts[0].stack.connect(self.now, to, address(1)).expect("a connection can be opened")
    }

    /// Moves packets and time until nothing is left to do, or until `done` returns true. False if the time ran out.
    pub fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + self.quiet;
        loop {
            self.exchange();
            if done(self) {
                return true;
            }
            let next =
                self.hosts.iter().filter_map(|host| host.stack.deadline()).chain(self.network.next()).min();
            match next {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => return false,
            }
            for host in &mut self.hosts {
                if host.stack.deadline().is_some_and(|at| at <= self.now) {
                    host.stack.handle_time(self.now, &mut host.arena);
                }
            }
        }
    }

    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        let quiet = std::mem::replace(&mut self.quiet, span);
        self.run_until(|world| world.now >= until);
        self.quiet = quiet;
        self.now = self.now.max(until);
        for host in &mut self.hosts {
            host.stack.handle_time(self.now, &mut host.arena);
        }
        self.exchange();
    }

    /// Delivers what has arrived by now, and sends what the hosts have to send.
    pub fn exchange(&mut self) {
        loop {
            let mut moved = false;
            for from in 0..2 {
                while let Some(frame) = self.hosts[from].transmit(self.now) {
                    self.network.send(self.now, from, frame);
                    moved = true;
                }
            }
            while let Some((to, frame)) = self.network.deliver(self.now) {
                self.hosts[to].deliver(self.now, &frame);
                moved = true;
            }
            for index in 0..2 {
                while let Some(event) = self.hosts[index].stack.poll_event() {
                    self.hosts[index].take(&event);
                    self.log.push((index, event));
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    pub fn accepted(&self) -> Option<ConnId> {
        self.log.iter().find_map(|(host, event)| match event {
            Event::Accepted { conn, .. } if *host == 1 => Some(*conn),
            _ => None,
        })
    }

    /// Checks that no frame is held after everything has ended.
    pub fn assert_nothing_held(&self) {
        for (index, host) in self.hosts.iter().enumerate() {
            assert_eq!(host.arena.held(), 0, "frames held by host {index}");
            assert_eq!(host.stack.waiting_frames(), 0, "host {index}");
        }
    }
}
