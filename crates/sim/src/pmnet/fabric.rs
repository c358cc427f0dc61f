//! The simulated clock, the queue of events, and the links, which lose, duplicate, delay and damage packets, or are
//! cut.

use super::costs::Cores;
use super::datagram::{Datagram, Way};
use crate::rng::Rng;
use landfall_pmnet::Instant;
use std::collections::BTreeMap;
use std::ops::Add;
use std::time::Duration;

/// Time of a packet from one node to the next.
const HOP: Duration = Duration::from_micros(5);

/// Faults of a link in one direction. Chances are percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Chance that a packet is lost.
    pub loss: u64,
    /// Chance that a packet arrives twice.
    pub doubled: u64,
    /// Chance that a packet arrives late, behind others.
    pub late: u64,
    /// Longest delay of a late packet, microseconds.
    pub late_us: u64,
    /// Chance that a packet arrives damaged.
    pub damaged: u64,
}

/// Packets that a link drops or delays, for scenarios of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number of the hop; 0 is the clients' end.
    pub hop: usize,
    /// The direction.
    pub way: Way,
    /// Type of the packets; `None` for all types.
    pub kind: Option<u8>,
    /// Sequence number of the packets; `None` for all.
    pub seq: Option<u32>,
    /// Remaining number of packets that the rule applies to.
    pub count: u32,
    /// Delay of the packets; `None`: they are dropped.
    pub late: Option<Duration>,
}

impl Rule {
    /// A rule that drops every packet of a type.
    pub fn lose(hop: usize, way: Way, kind: u8) -> Self {
        Self { hop, way, kind: Some(kind), seq: None, count: u32::MAX, late: None }
    }

    fn matches(&self, hop: usize, way: Way, payload: &[u8]) -> bool {
        let seq = || payload.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        self.count > 0
            && (self.hop, self.way) == (hop, way)
            && self.kind.is_none_or(|kind| payload.first() == Some(&kind))
            && self.seq.is_none_or(|wanted| seq() == Some(wanted))
    }
}

/// One hop, with both directions: up, down.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    faults: [Faults; 2],
    /// Number of partitions that cut each direction now.
    cuts: [u32; 2],
}

/// Counts of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets lost by chance, or by a rule.
    pub lost: u64,
    /// Packets sent into a partition.
    pub cut: u64,
    /// Packets delivered twice.
    pub doubled: u64,
    /// Packets delivered late.
    pub late: u64,
    /// Packets damaged under way.
    pub damaged: u64,
}

impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            cut: self.cut + other.cut,
            doubled: self.doubled + other.doubled,
            late: self.late + other.late,
            damaged: self.damaged + other.damaged,
        }
    }
}

/// An event in the queue. `life` tells events of a node's former life from those of its present life.
#[derive(Debug)]
pub(super) enum Happening {
    /// A packet arrives behind a hop.
    Arrive { hop: usize, way: Way, datagram: Datagram },
    /// A device begins a fence.
    Commit { device: usize, life: u64 },
    /// A device's fence ends.
    Fence { device: usize, life: u64 },
    /// A device executes background work.
    Keep { device: usize, life: u64 },
    /// The server's own medium has stored the next batch.
    Stored { life: u64 },
    /// A replica has stored its next batch.
    Replicated { replica: usize, life: u64 },
    /// A client executes the next step of its workload.
    Act { client: usize, life: u64 },
    /// A fault of the schedule begins.
    Fault(usize),
    /// A fault ends.
    Repair(Repair),
}

/// What is repaired at the end of a fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repair {
    Device(usize),
    Server,
    Replica(usize),
    Link { hop: usize, up: bool, down: bool },
}

/// Clock, queue and links.
#[derive(Debug)]
pub(super) struct Fabric {
    pub(super) now: Instant,
    pub(super) rng: Rng,
    queue: BTreeMap<(Instant, u64), Happening>,
    links: Vec<Link>,
    pub(super) rules: Vec<Rule>,
    pub(super) traffic: Traffic,
    /// The cost model, if there is one.
    pub(super) cores: Option<Cores>,
    queued: u64,
}

impl Fabric {
    /// Creates a chain of so many hops.
    pub(super) fn new(hops: usize, rng: Rng) -> Self {
        Self {
            now: Instant::default(),
            rng,
            queue: BTreeMap::new(),
            links: vec![Link::default(); hops],
            rules: Vec::new(),
            traffic: Traffic::default(),
            cores: None,
            queued: 0,
        }
    }

    pub(super) fn after(&mut self, delay: Duration, happening: Happening) {
        self.queued += 1;
        self.queue.insert((self.now + delay, self.queued), happening);
    }

    /// Time of the next event.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next event, if it is due.
    pub(super) fn pop(&mut self) -> Option<Happening> {
        let first = self.queue.first_entry().filter(|first| first.key().0 <= self.now)?;
        Some(first.remove())
    }

    /// A random duration between both bounds.
    pub(super) fn pause(&mut self, low_us: u64, high_us: u64) -> Duration {
        Duration::from_micros(low_us + self.rng.below(high_us - low_us + 1))
    }

    pub(super) fn set_faults(&mut self, hop: usize, up: Faults, down: Faults) {
        self.links[hop].faults = [up, down];
    }

    pub(super) fn cut(&mut self, hop: usize, up: bool, down: bool) {
        let cuts = &mut self.links[hop].cuts;
        (cuts[0], cuts[1]) = (cuts[0] + u32::from(up), cuts[1] + u32::from(down));
    }

    pub(super) fn repair(&mut self, hop: usize, up: bool, down: bool) {
        let cuts = &mut self.links[hop].cuts;
        cuts[0] = cuts[0].saturating_sub(u32::from(up));
        cuts[1] = cuts[1].saturating_sub(u32::from(down));
    }

    /// Removes all faults, cuts and rules of links.
    pub(super) fn calm(&mut self) {
        self.links.fill(Link::default());
        self.rules.clear();
    }

    /// Sends a packet over a hop, with the faults of the link.
    pub(super) fn send(&mut self, hop: usize, way: Way, mut datagram: Datagram) {
        self.traffic.sent += 1;
        let link = self.links[hop];
        let (faults, cuts) = match way {
            Way::Up => (link.faults[0], link.cuts[0]),
            Way::Down => (link.faults[1], link.cuts[1]),
        };
        if cuts > 0 {
            self.traffic.cut += 1;
            return;
        }
        let Some(extra) = self.ruled(hop, way, &datagram.payload) else {
            self.traffic.lost += 1;
            return;
        };
        if self.chance(faults.loss) {
            self.traffic.lost += 1;
            return;
        }
        if self.chance(faults.doubled) {
            self.traffic.doubled += 1;
            let delay = self.delay(&faults);
            self.after(delay, Happening::Arrive { hop, way, datagram: datagram.clone() });
        }
        if self.chance(faults.damaged) {
            self.traffic.damaged += 1;
            datagram.damage(&mut self.rng);
        }
        let delay = self.delay(&faults) + extra;
        self.after(delay, Happening::Arrive { hop, way, datagram });
    }

    /// The delay that rules add to a packet; `None`: a rule drops it.
    fn ruled(&mut self, hop: usize, way: Way, payload: &[u8]) -> Option<Duration> {
        let Some(rule) = self.rules.iter_mut().find(|rule| rule.matches(hop, way, payload)) else {
            return Some(Duration::ZERO);
        };
        rule.count -= 1;
        rule.late
    }

    fn delay(&mut self, faults: &Faults) -> Duration {
        let now = self.now;
        let hop = self.cores.as_mut().map_or(HOP, |cores| cores.delay(now));
        if !self.chance(faults.late) {
            return hop;
        }
        self.traffic.late += 1;
        hop + self.pause(0, faults.late_us)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        percent > 0 && self.rng.below(100) < percent
    }
}
