//! One acknowledgement for several devices of a chain (§IV-C): a device joins its own to those of the devices behind it.
//!
//! The client waits for all of them in any case, and pays for each packet. So a device whose followers acknowledge within a few
//! microseconds keeps its own acknowledgement back, and adds it to theirs. Not where they take longer than a client takes to
//! wake up: it had better be woken by the first. Nothing that is promised depends on it: a client that misses an
//! acknowledgement repeats the update, and a repeated update is acknowledged at once.

use crate::wire::DEVICES_MAX;
use crate::{Identity, Instant};
use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::time::Duration;

/// An update whose acknowledgement has not come back for so long is not waited for any more, as a measure.
const MEASURE_MAX: Duration = Duration::from_millis(10);

/// What becomes of other devices' acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It goes on as it is.
    Passes,
    /// It waits for this device's fence.
    Waits,
    /// It goes on with this device's: numbers of the others.
    Joined(Vec<u8>),
}

/// The devices between this one and a server.
#[derive(Debug, Default)]
struct Behind {
    /// From an update's arrival here until one of them is heard to have it, smoothed; `None` before any was heard.
    lag: Option<Duration>,
    /// The update that is being measured, and when it arrived.
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

/// Acknowledgements that are kept back.
#[derive(Debug)]
pub(super) struct Joint {
    /// Longest lag of those behind for which one is; zero: nothing is joined.
    keep_back: Duration,
    servers_max: usize,
    behind: BTreeMap<SocketAddr, Behind>,
    /// For each update, who else has acknowledged it: nobody where it is durable here and the others are waited for.
    held: BTreeMap<Identity, Vec<u8>>,
}

impl Joint {
    /// At most `servers_max` servers are known; what goes to others is not joined.
    pub(super) fn new(keep_back: Duration, servers_max: usize) -> Self {
        Self { keep_back, servers_max, behind: BTreeMap::new(), held: BTreeMap::new() }
    }

    /// An update goes into the log.
    pub(super) fn logged(&mut self, identity: Identity, now: Instant) {
        let server = identity.flow.server;
        if self.keep_back.is_zero()
            || (self.behind.len() >= self.servers_max && !self.behind.contains_key(&server))
        {
            return;
        }
        self.behind.entry(server).or_default().begin(identity, now);
    }

    /// The devices `from` acknowledge an update to device `own`, which has it in its log if `durable` says anything.
    pub(super) fn hears(
        &mut self,
        identity: Identity,
        from: Vec<u8>,
        (own, durable): (u8, Option<bool>),
        now: Instant,
    ) -> Heard {
        let Some(behind) = self.behind.get_mut(&identity.flow.server) else { return Heard::Passes };
        behind.end(&identity, now);
        let is_chain = !from.contains(&own) && from.iter().all(|number| *number < DEVICES_MAX);
        match durable.filter(|_| is_chain) {
            None => Heard::Passes,
            Some(true) => self.held.remove(&identity).map_or(Heard::Passes, |_| Heard::Joined(from)),
            Some(false) => {
                let held = self.held.entry(identity).or_default();
                for number in from {
                    if !held.contains(&number) {
                        held.push(number);
                    }
                }
                Heard::Waits
            }
        }
    }

    /// An update is durable: whose acknowledgements go with this device's own, which is kept back if there is `None`.
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

    /// A durable update has come again. Perhaps there is nobody behind this device any more: until somebody is heard,
    /// nothing is kept back.
    pub(super) fn repeated(&mut self, identity: &Identity) {
        self.held.remove(identity);
        if let Some(behind) = self.behind.get_mut(&identity.flow.server) {
            *behind = Behind::default();
        }
    }

    /// An update is not in the log any more.
    pub(super) fn removed(&mut self, identity: &Identity) {
        self.held.remove(identity);
    }
}
