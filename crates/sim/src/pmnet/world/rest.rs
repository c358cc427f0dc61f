//! The end of a run: faults end, everything comes to rest, the oracle judges.

use super::super::device::{DeviceCounts, DeviceNode};
use super::super::history::End;
use super::super::oracle::judge;
use super::super::setup::PmnetSummary;
use super::PmnetWorld;
use crate::violation::{Violation, ensure};
use landfall_pmnet::{Identity, SessionKey, SessionRow};
use std::time::Duration;

/// Within this every silence is over, and every device has been asked again.
const ASKING: Duration = Duration::from_secs(600);
/// Within this devices send everything that is left in their logs again.
const STRANDED: Duration = Duration::from_secs(30);

impl PmnetWorld {
    /// Ends all faults, has everything started, lets every client finish, waits until nothing is under way, and judges.
    ///
    /// # Errors
    /// What the rules do not allow; that it does not come to rest within `span`.
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
            // One that was to crash inside something does it now.
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
                ensure!(self.fabric.now < end, "no rest after {span:?}: {why}");
                self.run_for(Duration::from_millis(10))?;
            }
            // What is left lies behind a gap only if sending it again changes nothing.
            let left: Vec<Vec<Identity>> = self.devices.iter().map(DeviceNode::identities).collect();
            if left.iter().all(Vec::is_empty) || stranded.as_ref() == Some(&left) {
                return Ok(());
            }
            stranded = Some(left);
            self.run_for(STRANDED)?;
        }
    }

    /// Every client is gone: in the end no session is left but those of which a device holds something.
    fn wait_for_silence(&mut self) -> Result<(), Violation> {
        if self.server.silence().is_none() {
            return Ok(());
        }
        let end = self.fabric.now + ASKING;
        while let Some(row) = self.forgotten_row() {
            ensure!(self.fabric.now < end, "{row:?} stays, and no device holds anything of it");
            self.run_for(Duration::from_secs(1))?;
        }
        Ok(())
    }

    /// The row of a session that should end by its silence.
    fn forgotten_row(&self) -> Option<SessionRow> {
        let held: Vec<Identity> = self.devices.iter().flat_map(DeviceNode::identities).collect();
        let is_held = |key: &SessionKey| {
            held.iter().any(|identity| (identity.flow.client, identity.session) == (key.client, key.session))
        };
        let mut open = self.held().rows.values().filter(|row| !row.ended && row.lease > 0);
        open.find(|row| !is_held(&row.key)).copied()
    }

    /// What is still under way.
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

    /// Only what lies behind a gap that a dead client has left may stay in a log.
    fn may_stay(&self, identity: &Identity) -> bool {
        let key = SessionKey { client: identity.flow.client, session: identity.session };
        let row = self.held().rows.get(&key);
        self.history.is_abandoned(key) && row.is_some_and(|row| !row.ended && identity.seq > row.update)
    }

    /// Adds what was done to the system.
    pub fn explain(&self, violation: Violation) -> Violation {
        let open = self.history.sessions.iter().filter(|session| session.end == End::Open).count();
        let diary = self.diary.join("\n");
        Violation(format!("{violation}\n{open} sessions are open; what was done:\n{diary}"))
    }
}
