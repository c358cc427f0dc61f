//! Packets that are held until what they must wait for is applied.

use super::blockers::{Blockers, Place, Scope};
use crate::log::Stored;
use crate::{Flow, Identity, Instant};
use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Packets that are held at once at most; of more, each is dropped, and sent again by its client.
const PACKETS_MAX: usize = 1024;
/// Waits that are remembered at once at most, those included whose packet was dropped.
const WAITS_MAX: usize = 4096;
/// For so many times the longest hold a wait is remembered without its packet: longer than a client's longest pause.
const REMEMBERED: u32 = 8;

/// Which packet waits: bypasses of several pieces have one number for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) identity: Identity,
    pub(super) piece: u16,
}

impl Name {
    fn own(&self) -> (Flow, u16) {
        (self.identity.flow, self.identity.session)
    }
}

/// A packet in the region, held.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) arrival_ns: u64,
    pub(super) stored: Stored,
}

#[derive(Debug)]
struct Wait {
    scope: Scope,
    /// What came to block later is not waited for: also not by a repetition.
    before: Place,
    /// The update that is waited for at this time; `None` once there is none any more.
    on: Option<Identity>,
    /// `None` once it was held for too long.
    packet: Option<Packet>,
    /// When the packet is dropped, or the wait forgotten.
    due: Instant,
}

/// What becomes of a packet.
#[derive(Debug)]
pub(super) enum Held {
    /// It goes on.
    Goes,
    /// It is held; [`Holds::keep`] takes it.
    Waits,
    /// It is dropped: it is held already, or there is no room.
    Dropped,
}

/// All that wait.
#[derive(Debug)]
pub(super) struct Holds {
    longest: Duration,
    waits: BTreeMap<Name, Wait>,
    /// Who waits for an update.
    on: BTreeMap<Identity, Vec<Name>>,
    /// Until when packets are held, and until when waits without their packet are remembered.
    held_until: VecDeque<(Instant, Name)>,
    known_until: VecDeque<(Instant, Name)>,
    packets: usize,
}

impl Holds {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            waits: BTreeMap::new(),
            on: BTreeMap::new(),
            held_until: VecDeque::new(),
            known_until: VecDeque::new(),
            packets: 0,
        }
    }

    /// Whether a packet that arrives must wait.
    pub(super) fn arrives(&mut self, name: Name, scope: impl FnOnce() -> Scope, blockers: &Blockers) -> Held {
        if let Some(wait) = self.waits.get(&name) {
            if wait.on.is_none() {
                self.waits.remove(&name);
                return Held::Goes;
            }
            let has_room = wait.packet.is_none() && self.packets < PACKETS_MAX;
            return if has_room { Held::Waits } else { Held::Dropped };
        }
        let (scope, before) = (scope(), blockers.now());
        let Some(on) = blockers.first(&scope, name.own(), before) else { return Held::Goes };
        if self.packets >= PACKETS_MAX || self.waits.len() >= WAITS_MAX {
            return Held::Dropped;
        }
        self.on.entry(on).or_default().push(name);
        let due = Instant::default();
        self.waits.insert(name, Wait { scope, before, on: Some(on), packet: None, due });
        Held::Waits
    }

    /// What an update is about that waits, or has waited for too long.
    pub(super) fn scope_of(&self, update: Identity) -> Option<&Scope> {
        self.waits.get(&Name { identity: update, piece: 0 }).map(|wait| &wait.scope)
    }

    /// Holds the packet.
    pub(super) fn keep(&mut self, name: Name, packet: Packet, now: Instant) {
        let Some(wait) = self.waits.get_mut(&name) else { return };
        (wait.packet, wait.due) = (Some(packet), now + self.longest);
        self.packets += 1;
        self.held_until.push_back((wait.due, name));
    }

    /// Updates have ceased to block: what has waited for them and waits for nothing more goes on.
    pub(super) fn release(&mut self, ended: Vec<Identity>, blockers: &Blockers) -> Vec<(Name, Packet)> {
        let mut free = Vec::new();
        let names: Vec<Name> = ended.iter().filter_map(|ended| self.on.remove(ended)).flatten().collect();
        for name in names {
            let Some(wait) = self.waits.get_mut(&name) else { continue };
            wait.on = blockers.first(&wait.scope, name.own(), wait.before);
            if let Some(on) = wait.on {
                self.on.entry(on).or_default().push(name);
            } else if let Some(packet) = wait.packet.take() {
                self.packets -= 1;
                self.waits.remove(&name);
                free.push((name, packet));
            }
        }
        free
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let queues = [&self.held_until, &self.known_until];
        queues.into_iter().filter_map(|queue| Some(queue.front()?.0)).min()
    }

    /// Packets that were held for too long. What they waited for is remembered for their repetitions.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Packet> {
        let mut expired = Vec::new();
        while let Some(name) = next_due(&mut self.held_until, &self.waits, now) {
            let Some(wait) = self.waits.get_mut(&name) else { continue };
            self.packets -= usize::from(wait.packet.is_some());
            expired.extend(wait.packet.take());
            wait.due = now + self.longest * REMEMBERED;
            self.known_until.push_back((wait.due, name));
        }
        while let Some(name) = next_due(&mut self.known_until, &self.waits, now) {
            self.forget(&name);
        }
        expired
    }

    fn forget(&mut self, name: &Name) {
        if let Some(on) = self.waits.remove(name).and_then(|wait| wait.on)
            && let Some(names) = self.on.get_mut(&on)
        {
            names.retain(|known| known != name);
            if names.is_empty() {
                self.on.remove(&on);
            }
        }
    }
}

/// The next wait of a queue whose time has come. Times that were put off since do not count.
fn next_due(
    queue: &mut VecDeque<(Instant, Name)>,
    waits: &BTreeMap<Name, Wait>,
    now: Instant,
) -> Option<Name> {
    while let Some((due, name)) = queue.front().copied().filter(|(due, _)| *due <= now) {
        queue.pop_front();
        if waits.get(&name).is_some_and(|wait| wait.due == due) {
            return Some(name);
        }
    }
    None
}
