//! Packets that are held until the updates that they must wait for are applied.

use super::blockers::{Blockers, Place, Scope};
use crate::identity::{Flow, Identity};
use crate::log::Stored;
use core::net::SocketAddr;
use landfall_net::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Most packets that are held at once. Further packets are dropped, and their clients send them again.
const PACKETS_MAX: usize = 1024;
/// Most waits that are stored, including waits whose packet was dropped.
const WAITS_MAX: usize = 4096;
/// How long a wait without its packet is stored, in multiples of the longest hold. This is longer than a client's
/// longest pause.
const STORED: u32 = 8;

/// Identifies a packet that waits. All pieces of a bypass have one number, so the index of the piece belongs to it.
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

/// A packet in the region whose bytes are held.
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
    /// Updates that begin to block later are not waited for, also not by a repeated packet.
    before: Place,
    /// The update that is currently waited for; `None` if there is none left.
    on: Option<Identity>,
    /// `None` after the packet was held for too long.
    packet: Option<Packet>,
    /// When the packet is dropped or, without a packet, when the wait is deleted.
    due: Instant,
}

/// What happens to a packet that has arrived.
#[derive(Debug)]
pub(super) enum Held {
    /// It is processed now.
    Proceeds,
    /// It must wait. The caller passes it to [`Holds::keep`].
    Waits,
    /// It is dropped, because a copy of it is held already or because there is no room.
    Dropped,
}

/// All waits.
#[derive(Debug)]
pub(super) struct Holds {
    longest: Duration,
    waits: BTreeMap<Name, Wait>,
    /// The packets that wait for each update.
    on: BTreeMap<Identity, Vec<Name>>,
    /// `held_until`: when held packets are dropped. `known_until`: when waits without a packet are deleted.
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

    /// Decides whether a packet that has arrived must wait.
    pub(super) fn arrives(&mut self, name: Name, scope: impl FnOnce() -> Scope, blockers: &Blockers) -> Held {
        if let Some(wait) = self.waits.get(&name) {
            if wait.on.is_none() {
                self.waits.remove(&name);
                return Held::Proceeds;
            }
            let has_room = wait.packet.is_none() && self.packets < PACKETS_MAX;
            return if has_room { Held::Waits } else { Held::Dropped };
        }
        let (scope, before) = (scope(), blockers.now());
        let Some(on) = blockers.first(&scope, name.own(), before) else { return Held::Proceeds };
        if self.packets >= PACKETS_MAX || self.waits.len() >= WAITS_MAX {
            return Held::Dropped;
        }
        self.on.entry(on).or_default().push(name);
        let due = Instant::default();
        self.waits.insert(name, Wait { scope, before, on: Some(on), packet: None, due });
        Held::Waits
    }

    /// The keys of an update that waits, or that was dropped after a wait.
    pub(super) fn scope_of(&self, update: Identity) -> Option<&Scope> {
        self.waits.get(&Name { identity: update, piece: 0 }).map(|wait| &wait.scope)
    }

    /// Holds a packet.
    pub(super) fn keep(&mut self, name: Name, packet: Packet, now: Instant) {
        let Some(wait) = self.waits.get_mut(&name) else { return };
        (wait.packet, wait.due) = (Some(packet), now + self.longest);
        self.packets += 1;
        self.held_until.push_back((wait.due, name));
    }

    /// Handles updates that have ceased to block. Returns the packets that no longer have to wait for any update.
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

    /// Returns the packets that were held for too long. Their waits stay stored for the repeated packets.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Packet> {
        let mut expired = Vec::new();
        while let Some(name) = next_due(&mut self.held_until, &self.waits, now) {
            let Some(wait) = self.waits.get_mut(&name) else { continue };
            self.packets -= usize::from(wait.packet.is_some());
            expired.extend(wait.packet.take());
            wait.due = now + self.longest * STORED;
            self.known_until.push_back((wait.due, name));
        }
        while let Some(name) = next_due(&mut self.known_until, &self.waits, now) {
            self.delete(&name);
        }
        expired
    }

    fn delete(&mut self, name: &Name) {
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

/// The next wait of a queue that is due. Entries with outdated times are skipped.
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
