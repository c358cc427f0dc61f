//! The end of a run: faults end, the system becomes idle, and the oracle judges.

use super::super::device::{DeviceCounts, DeviceNode};
use super::super::history::End;
use super::super::oracle::judge;
use super::super::setup::PmnetSummary;
use super::PmnetWorld;
use crate::violation::{Violation, ensure};
use landfall_pmnet::{Identity, SessionKey, SessionRow};
use std::time::Duration;

/// Longest time until all silent sessions have ended and all devices have been asked again.
const SILENCE_MAX: Duration = Duration::from_secs(600);
/// Time in which devices send all updates that remain in their logs again.
const RESEND_TIME: Duration = Duration::from_secs(30);

impl PmnetWorld {
    /// Ends all faults, starts all nodes, lets every client finish, waits until the system is idle, and judges.
    ///
    /// # Errors
    /// A violation of the rules; the system is not idle within `span`.
    pub fn finish(mut self, span: Duration) -> Result<PmnetSummary, Violation> {
        let settled = self.settle(span).and_then(|()| self.wait_for_silence());
        let outcome = settled.and_then(|()| judge(&self.history, self.held(), self.loss, self.promise));
        let judged = outcome.map_err(|violation| self.explain(violation))?;
        let counts: Vec<DeviceCounts> = self.devices.iter().map(DeviceNode::counts).collect();
        let recoveries: u64 = self.devices.iter().map(|device| device.recovery_crashes).sum();
        Ok(PmnetSummary {
            device_crashes: self.summary.device_crashes + recoveries,
            gave_up: self.clients.iter().map(|client| client.gave_up).sum(),
            told_gone: self.clients.iter().map(|client| client.told_gone).sum(),
            ended_by_silence: self.server_stats().map_or(0, |stats| stats.ended_by_silence),
            traffic: self.fabric.traffic,
            resent: counts.iter().map(|counts| counts.resent).sum(),
            not_logged: counts.iter().map(|counts| counts.not_logged).sum(),
            held: counts.iter().map(|counts| counts.held).sum(),
            held_dropped: counts.iter().map(|counts| counts.held_dropped).sum(),
            joined: counts.iter().map(|counts| counts.joined).sum(),
            stranded: self.devices.iter().map(|device| device.identities().len() as u64).sum(),
            millis: self.fabric.now.millis(),
            judged,
            ..self.summary
        })
    }

    fn settle(&mut self, span: Duration) -> Result<(), Violation> {
        self.calm = true;
        self.note("calm");
        self.fabric.calm();
        for device in 0..self.devices.len() {
            // A crash that was scheduled for the middle of an operation happens now.
            if self.devices[device].armed().is_some() {
                self.crash_device(device);
            }
            self.start_device(device)?;
        }
        self.start_server()?;
        for replica in 0..self.server.store.replicas.len() {
            self.start_replica(replica);
        }
        for client in &mut self.clients {
            client.drain(&mut self.fabric, &mut self.history)?;
        }
        let end = self.fabric.now + span;
        let mut stranded = None;
        loop {
            while let Some(why) = self.unsettled() {
                ensure!(self.fabric.now < end, "the system is not idle after {span:?}: {why}");
                self.run_for(Duration::from_millis(10))?;
            }
            // Updates that remain in logs are behind a gap if sending them again changes nothing.
            let left: Vec<Vec<Identity>> = self.devices.iter().map(DeviceNode::identities).collect();
            if left.iter().all(Vec::is_empty) || stranded.as_ref() == Some(&left) {
                return Ok(());
            }
            stranded = Some(left);
            self.run_for(RESEND_TIME)?;
        }
    }

    /// Waits until all silent sessions have ended, except for those of which a device holds updates. No client is left.
    fn wait_for_silence(&mut self) -> Result<(), Violation> {
        if self.server.silence().is_none() {
            return Ok(());
        }
        let end = self.fabric.now + SILENCE_MAX;
        while let Some(row) = self.silent_row() {
            ensure!(self.fabric.now < end, "{row:?} remains, and no device holds updates of the session");
            self.run_for(Duration::from_secs(1))?;
        }
        Ok(())
    }

    /// The row of a session that must end because of its silence.
    fn silent_row(&self) -> Option<SessionRow> {
        let held: Vec<Identity> = self.devices.iter().flat_map(DeviceNode::identities).collect();
        let is_held = |key: &SessionKey| {
            held.iter().any(|identity| (identity.flow.client, identity.session) == (key.client, key.session))
        };
        let mut open = self.held().rows.values().filter(|row| !row.ended && row.lease > 0);
        open.find(|row| !is_held(&row.key)).copied()
    }

    /// Describes work that is still under way; `None` if the system is idle.
    fn unsettled(&self) -> Option<String> {
        if let Some(at) = self.clients.iter().position(|client| !client.is_done()) {
            return Some(format!("client {at} has not finished: {:?}", self.clients[at]));
        }
        if !self.server.is_idle() {
            return Some("the server has work".into());
        }
        for (at, device) in self.devices.iter().enumerate() {
            if let Some(identity) = device.identities().into_iter().find(|identity| !self.may_stay(identity))
            {
                return Some(format!("{identity:?} is in the log of device {at}"));
            }
        }
        None
    }

    /// True for an update that may remain in a log: one behind a gap that a crashed client has left.
    fn may_stay(&self, identity: &Identity) -> bool {
        let key = SessionKey { client: identity.flow.client, session: identity.session };
        let row = self.held().rows.get(&key);
        self.history.is_abandoned(key) && row.is_some_and(|row| !row.ended && identity.seq > row.update)
    }

    /// Adds the diary of the system to a violation.
    pub fn explain(&self, violation: Violation) -> Violation {
        let open = self.history.sessions.iter().filter(|session| session.end == End::Open).count();
        let diary = self.diary.join("\n");
        Violation(format!("{violation}\n{open} sessions are open; faults and repairs:\n{diary}"))
    }
}
