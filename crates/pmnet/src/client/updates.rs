//! A client's updates in flight. They are kept until the server has committed them.

use super::config::{CompletedBy, RequestId};
use crate::wire::{DEVICES_MAX, FROM_HOSTS};
use landfall_net::Instant;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Most packets that are sent beyond the last server-ACK.
pub(super) const AHEAD_MAX: u32 = 4096;

/// A set of device numbers: the devices of a chain, or those that have acknowledged a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Devices([u64; 4]);

impl Devices {
    /// The devices from 0 to `count - 1`.
    pub fn first(count: u8) -> Self {
        (0..count.min(DEVICES_MAX)).collect()
    }

    /// Adds a device. True if it was not in the set.
    fn add(&mut self, number: u8) -> bool {
        let (word, bit) = (&mut self.0[usize::from(number / 64)], 1 << (number % 64));
        let news = *word & bit == 0;
        *word |= bit;
        news
    }

    /// True if the device is in the set.
    pub fn contains(&self, number: u8) -> bool {
        self.0[usize::from(number / 64)] >> (number % 64) & 1 == 1
    }

    /// True if every device of `others` is in the set.
    fn cover(&self, others: &Self) -> bool {
        self.0.iter().zip(others.0).all(|(have, wanted)| wanted & !have == 0)
    }

    /// Number of devices.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device of a set with one device.
    fn only(&self) -> Option<u8> {
        (self.len() == 1).then(|| (0..=u8::MAX).find(|number| self.contains(*number)))?
    }
}

impl FromIterator<u8> for Devices {
    fn from_iter<I: IntoIterator<Item = u8>>(numbers: I) -> Self {
        let mut devices = Self::default();
        numbers.into_iter().for_each(|number| {
            devices.add(number);
        });
        devices
    }
}

/// A packet that the server is not known to have committed.
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    devices: Devices,
    /// Whether every device of the chain has acknowledged it.
    acked: bool,
    /// How often it was sent.
    sent: u32,
    sent_at: Instant,
    /// When it is to be sent again, if it waits for an acknowledgement.
    deadline: Option<Instant>,
}

/// The effect of an acknowledgement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Acked {
    /// Whether it was new.
    pub(super) news: bool,
    /// When the acknowledged packet was sent, if it was sent once.
    pub(super) sent_at: Option<Instant>,
}

/// The session's updates, from the first one that the server is not known to have committed.
#[derive(Debug)]
pub(super) struct Updates {
    kept: VecDeque<Kept>,
    /// Number of the first packet that is kept. Every lower number is committed.
    base: u32,
    /// Number of the first packet that was never sent.
    unsent: u32,
    /// Number of the first packet that is not complete. Every packet before it is acknowledged.
    complete: u32,
    /// Number of the first packet of the first incomplete request.
    reported: u32,
    /// Incomplete requests: id and number of the last packet.
    requests: VecDeque<(RequestId, u32)>,
    /// Packets that were sent and are not acknowledged.
    in_flight: u32,
    /// The devices that must acknowledge. Without any, only the server completes updates.
    chain: Devices,
    window: u32,
    again: BTreeSet<u32>,
    deadlines: BTreeSet<(Instant, u32)>,
}

impl Updates {
    /// No updates yet. The first one will have the number `first`.
    pub(super) fn new(first: u32, chain: Devices, window: u16) -> Self {
        Self {
            kept: VecDeque::new(),
            base: first,
            unsent: first,
            complete: first,
            reported: first,
            requests: VecDeque::new(),
            in_flight: 0,
            chain,
            window: u32::from(window.max(1)),
            again: BTreeSet::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Number of the last packet that the server is known to have committed.
    pub(super) fn confirmed(&self) -> u32 {
        self.base - 1
    }

    /// Number of the next packet.
    pub(super) fn next(&self) -> u32 {
        self.base + self.kept.len() as u32
    }

    /// Requests that are not complete.
    pub(super) fn incomplete(&self) -> usize {
        self.requests.len()
    }

    /// The newest numbered update, if the server is not known to have committed it.
    pub(super) fn newest(&self) -> Option<u32> {
        (!self.kept.is_empty()).then(|| self.next() - 1)
    }

    /// Whether every packet has been sent.
    pub(super) fn all_sent(&self) -> bool {
        self.unsent == self.next()
    }

    /// Adds a request's packets, numbered from [`Self::next`] on.
    pub(super) fn push(&mut self, id: RequestId, packets: Vec<Vec<u8>>, now: Instant) {
        let fresh = |bytes| Kept {
            bytes,
            devices: Devices::default(),
            acked: false,
            sent: 0,
            sent_at: now,
            deadline: None,
        };
        self.kept.extend(packets.into_iter().map(fresh));
        self.requests.push_back((id, self.next() - 1));
    }

    /// The bytes of a packet to be sent again.
    pub(super) fn send_again(&mut self, now: Instant, timeout: impl Fn(u32) -> Duration) -> Option<&[u8]> {
        let seq = self.again.pop_first()?;
        Some(self.send(seq, now, timeout))
    }

    /// Whether a packet that was never sent may be sent.
    pub(super) fn may_send(&self) -> bool {
        !self.all_sent() && self.has_room()
    }

    /// Whether the window and the distance from the last server-ACK allow another packet. The oldest incomplete
    /// request is sent completely even if it exceeds the window, because the server acknowledges none of it before
    /// all of it has arrived.
    pub(super) fn has_room(&self) -> bool {
        let is_oldest = self.requests.len() == 1 && !self.all_sent();
        (is_oldest || self.in_flight < self.window) && self.unsent - self.base < AHEAD_MAX
    }

    /// The next packet that was never sent.
    pub(super) fn send_new(&mut self, now: Instant, timeout: impl Fn(u32) -> Duration) -> Option<&[u8]> {
        if !self.may_send() {
            return None;
        }
        let seq = self.unsent;
        self.unsent += 1;
        self.in_flight += 1;
        Some(self.send(seq, now, timeout))
    }

    fn send(&mut self, seq: u32, now: Instant, timeout: impl Fn(u32) -> Duration) -> &[u8] {
        let packet = &mut self.kept[(seq - self.base) as usize];
        if let Some(deadline) = packet.deadline.take() {
            self.deadlines.remove(&(deadline, seq));
        }
        if !packet.acked {
            let deadline = now + timeout(packet.sent);
            packet.deadline = Some(deadline);
            self.deadlines.insert((deadline, seq));
        }
        packet.sent = packet.sent.saturating_add(1);
        packet.sent_at = now;
        &packet.bytes
    }

    /// Handles a device's acknowledgement. [`FROM_HOSTS`] instead of a number means the only device of a chain.
    pub(super) fn ack(&mut self, seq: u32, number: u8) -> Acked {
        let number = if number == FROM_HOSTS { self.chain.only().unwrap_or(number) } else { number };
        if seq >= self.unsent || !self.chain.contains(number) {
            return Acked::default();
        }
        let Some(at) = seq.checked_sub(self.base) else { return Acked::default() };
        let packet = &mut self.kept[at as usize];
        let news = packet.devices.add(number) && !packet.acked;
        if packet.acked || !packet.devices.cover(&self.chain) {
            return Acked { news, sent_at: None };
        }
        packet.acked = true;
        self.in_flight -= 1;
        self.again.remove(&seq);
        if let Some(deadline) = packet.deadline.take() {
            self.deadlines.remove(&(deadline, seq));
        }
        Acked { news, sent_at: (packet.sent == 1).then_some(packet.sent_at) }
    }

    /// Handles a server-ACK: the server has committed every packet up to `seq`.
    pub(super) fn server_ack(&mut self, seq: u32) -> Acked {
        let mut acked = Acked::default();
        if seq >= self.unsent {
            return acked;
        }
        while self.base <= seq {
            let packet = self.kept.pop_front().expect("a sent packet is kept up to its server-ACK");
            if !packet.acked {
                self.in_flight -= 1;
                acked.sent_at = (packet.sent == 1).then_some(packet.sent_at);
            }
            self.again.remove(&self.base);
            if let Some(deadline) = packet.deadline {
                self.deadlines.remove(&(deadline, self.base));
            }
            self.base += 1;
            acked.news = true;
        }
        self.complete = self.complete.max(self.base);
        acked
    }

    /// The next request that has become complete: its packets and all earlier ones are acknowledged.
    pub(super) fn take_complete(&mut self) -> Option<(RequestId, CompletedBy)> {
        let (id, last) = *self.requests.front()?;
        while self.complete <= last && self.kept[(self.complete - self.base) as usize].acked {
            self.complete += 1;
        }
        if self.complete <= last {
            return None;
        }
        self.requests.pop_front();
        self.reported = last + 1;
        Some((id, if last < self.base { CompletedBy::Server } else { CompletedBy::Devices }))
    }

    /// Changes the chain. Incomplete updates need the acknowledgements of its devices, and are sent again. Numbers
    /// may now mean other devices, so earlier acknowledgements of incomplete updates are dropped.
    pub(super) fn set_chain(&mut self, chain: Devices) {
        self.chain = chain;
        self.complete = self.reported.max(self.base);
        for seq in self.complete..self.unsent {
            let packet = &mut self.kept[(seq - self.base) as usize];
            packet.devices = Devices::default();
            if packet.acked {
                packet.acked = false;
                self.in_flight += 1;
            }
            self.again.insert(seq);
        }
    }

    /// Queues packets whose timeout has expired to be sent again. Calls `expired` with the number of times that each
    /// was repeated.
    pub(super) fn expire(&mut self, now: Instant, mut expired: impl FnMut(u32)) {
        while let Some((deadline, seq)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.pop_first();
            let packet = &mut self.kept[(seq - self.base) as usize];
            packet.deadline = None;
            expired(packet.sent - 1);
            self.again.insert(seq);
        }
    }

    /// Queues `count` packets from `first` on to be sent again, as far as they have been sent and are kept.
    pub(super) fn send_range_again(&mut self, first: u32, count: u32) {
        let end = first.saturating_add(count).min(self.unsent);
        self.again.extend(first.max(self.base)..end);
    }

    /// The newest packet that was sent, if the devices have acknowledged every sent packet and the server has not.
    pub(super) fn newest_unconfirmed(&self) -> Option<u32> {
        (self.in_flight == 0 && self.unsent > self.base).then(|| self.unsent - 1)
    }

    /// When the next packet times out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }
}
