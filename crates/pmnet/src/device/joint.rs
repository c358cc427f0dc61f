//! Joint acknowledgements: one packet for several devices of a chain (§IV-C). A device adds its own acknowledgement
//! to that of the devices behind it.
//!
//! The client waits for all of them in any case, and each packet costs it time. So a device whose downstream devices
//! acknowledge within a few microseconds delays its own acknowledgement and adds it to theirs. If they take longer
//! than a client takes to wake up, the device does not wait, so that the first acknowledgement wakes the client in
//! the meantime. No promise depends on joint acknowledgements: a client that misses an acknowledgement sends the
//! update again, and a repeated update is acknowledged at once.

use crate::identity::Identity;
use crate::wire::DEVICES_MAX;
use core::net::SocketAddr;
use landfall_net::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time for which a measurement waits for the acknowledgement of an update.
const MEASURE_MAX: Duration = Duration::from_millis(10);

/// What the device does with an acknowledgement of downstream devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AckAction {
    /// Forward it unchanged.
    Forward,
    /// Delay it until this device's fence has ended.
    Delay,
    /// Send it together with this device's acknowledgement. Contains the numbers of the other devices.
    Join(Vec<u8>),
}

/// The devices between this one and a server.
#[derive(Debug, Default)]
struct Behind {
    /// Smoothed time from an update's arrival here to the first acknowledgement by a downstream device. `None`
    /// before the first one.
    lag: Option<Duration>,
    /// The update that is being measured, and its time of arrival.
    measured: Option<(Identity, Instant)>,
}

impl Behind {
    fn begin(&mut self, identity: Identity, now: Instant) {
        if self.measured.is_none_or(|(_, since)| now.since(since) > MEASURE_MAX) {
            self.measured = Some((identity, now));
        }
    }

    fn end(&mut self, identity: &Identity, now: Instant) {
        let Some((_, since)) = self.measured.take_if(|(measured, _)| measured == identity) else { return };
        let lag = now.since(since);
        self.lag = Some(self.lag.map_or(lag, |before| (before * 7 + lag) / 8));
    }
}

/// Acknowledgements that wait to be joined.
#[derive(Debug)]
pub(super) struct Joint {
    /// Longest lag of the downstream devices for which this device delays its acknowledgement. Zero disables
    /// joining.
    keep_back: Duration,
    servers_max: usize,
    behind: BTreeMap<SocketAddr, Behind>,
    /// The other devices that have acknowledged each update. Empty if the update is durable here, and this device
    /// waits for the others.
    held: BTreeMap<Identity, Vec<u8>>,
}

impl Joint {
    /// At most `servers_max` servers are tracked. Acknowledgements for updates to other servers are not joined.
    pub(super) fn new(keep_back: Duration, servers_max: usize) -> Self {
        Self { keep_back, servers_max, behind: BTreeMap::new(), held: BTreeMap::new() }
    }

    /// Notes that an update is being logged.
    pub(super) fn logged(&mut self, identity: Identity, now: Instant) {
        let server = identity.flow.server;
        if self.keep_back.is_zero()
            || (self.behind.len() >= self.servers_max && !self.behind.contains_key(&server))
        {
            return;
        }
        self.behind.entry(server).or_default().begin(identity, now);
    }

    /// Decides about an acknowledgement by the devices `from`. `own` is this device's number. `durable` says whether
    /// its log entry is durable; `None` if the update is not in its log.
    pub(super) fn receive_ack(
        &mut self,
        identity: Identity,
        from: Vec<u8>,
        (own, durable): (u8, Option<bool>),
        now: Instant,
    ) -> AckAction {
        let Some(behind) = self.behind.get_mut(&identity.flow.server) else { return AckAction::Forward };
        behind.end(&identity, now);
        let is_chain = !from.contains(&own) && from.iter().all(|number| *number < DEVICES_MAX);
        match durable.filter(|_| is_chain) {
            None => AckAction::Forward,
            Some(true) => self.held.remove(&identity).map_or(AckAction::Forward, |_| AckAction::Join(from)),
            Some(false) => {
                let held = self.held.entry(identity).or_default();
                for number in from {
                    if !held.contains(&number) {
                        held.push(number);
                    }
                }
                AckAction::Delay
            }
        }
    }

    /// Notes that an update is durable. Returns the devices whose acknowledgements are joined with this device's.
    /// `None`: this device's acknowledgement is delayed.
    pub(super) fn durable(&mut self, identity: &Identity) -> Option<Vec<u8>> {
        if let Some(others) = self.held.remove(identity) {
            return Some(others);
        }
        let behind = self.behind.get(&identity.flow.server);
        if behind.and_then(|behind| behind.lag).is_some_and(|lag| lag <= self.keep_back) {
            self.held.insert(*identity, Vec::new());
            return None;
        }
        Some(Vec::new())
    }

    /// Notes that a durable update has arrived again. The devices behind this one may be gone, so no acknowledgement
    /// is delayed until one of them acknowledges an update.
    pub(super) fn repeated(&mut self, identity: &Identity) {
        self.held.remove(identity);
        if let Some(behind) = self.behind.get_mut(&identity.flow.server) {
            *behind = Behind::default();
        }
    }

    /// Notes that an update has left the log.
    pub(super) fn removed(&mut self, identity: &Identity) {
        self.held.remove(identity);
    }
}
