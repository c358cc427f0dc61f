//! Requests through PMNet: each client has a session, and all sessions share one socket.

use super::channel::{By, Channel, Done, Patience, WAIT_MS};
use crate::common::error::BenchError;
use crate::pmnet::sys::{busy_poll_then_wait, wait_readable};
use crate::pmnet::work::Ask;
use landfall_pmnet::ClientConfig;
use landfall_pmnet::client::{CompletedBy, Event};
use landfall_pmnet_io::runtime::{SessionId, Sessions};
use landfall_spin::Alarm;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;

const NAME: &str = "the server through PMNet";

/// Sessions that share a socket.
#[derive(Debug)]
pub(crate) struct PmnetChannel {
    sessions: Sessions,
    ids: Vec<SessionId>,
    clients: BTreeMap<SessionId, usize>,
    events: Vec<(SessionId, Event)>,
    patience: Patience,
    /// Whether every request is sent as a bypass, so that the server answers it.
    bypass: bool,
    queued: bool,
    /// Updates so far.
    updates: u64,
    alarm: Alarm,
}

impl PmnetChannel {
    /// Opens a session for each client. `devices` of the chain must have an update before it is complete.
    pub(crate) fn open(
        server: SocketAddr,
        clients: usize,
        devices: u8,
        (patience, bypass): (Patience, bool),
    ) -> Result<Self, BenchError> {
        let config = ClientConfig { devices, ..ClientConfig::default() };
        let mut sessions = Sessions::new(server, None, config, None).map_err(failed)?;
        let mut ids = Vec::new();
        let alarm = Alarm::new().map_err(BenchError::connection(NAME))?;
        for _ in 0..clients {
            ids.push(sessions.start().map_err(failed)?);
        }
        let clients = ids.iter().copied().zip(0..).collect();
        let events = Vec::new();
        Ok(Self { sessions, ids, clients, events, patience, bypass, queued: false, updates: 0, alarm })
    }
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::connection(NAME)(std::io::Error::other(error.to_string()))
}

impl Channel for PmnetChannel {
    fn send(&mut self, client: usize, ask: &Ask) -> Result<(), BenchError> {
        let id = self.ids[client];
        let is_update = ask.update && !self.bypass;
        self.updates += u64::from(is_update);
        let queued = if is_update {
            self.sessions.update(id, &ask.bytes)
        } else {
            self.sessions.bypass(id, &ask.bytes)
        };
        self.queued = true;
        queued.map(drop).map_err(failed)
    }

    fn receive(&mut self, done: &mut Vec<Done>) -> Result<(), BenchError> {
        // Queued packets leave first.
        let turned = if std::mem::take(&mut self.queued) {
            self.sessions.send(&mut self.events)
        } else {
            self.sessions.turn(&mut self.events)
        };
        turned.map_err(failed)?;
        for (id, event) in self.events.drain(..) {
            let Some(client) = self.clients.get(&id).copied() else { continue };
            match event {
                Event::Complete { by, .. } => {
                    let by = if by == CompletedBy::Devices { By::Devices } else { By::Server };
                    done.push(Done { client, reply: Vec::new(), by });
                }
                Event::Response { bytes, from_cache, .. } => {
                    let by = if from_cache { By::Cache } else { By::Server };
                    done.push(Done { client, reply: bytes, by });
                }
                Event::Refused(why) => return Err(failed(format_args!("a session was refused: {why:?}"))),
                Event::Failed(why) => return Err(failed(format_args!("a session failed: {why:?}"))),
                _ => {}
            }
        }
        if let Patience::BusyPolls(length) = self.patience
            && done.is_empty()
        {
            let now = self.sessions.clock().now();
            if let Some(due) = self.sessions.next_timeout() {
                self.alarm.within(due.since(now)).map_err(BenchError::connection(NAME))?;
            }
            let sockets = [self.sessions.as_fd(), self.alarm.as_fd()];
            busy_poll_then_wait(length, WAIT_MS, |ms| wait_readable(&sockets, ms))
                .map_err(BenchError::connection(NAME))?;
        }
        Ok(())
    }

    fn sent_again(&self) -> u64 {
        let stats = self.ids.iter().filter_map(|id| self.sessions.stats(*id));
        stats.map(|stats| stats.sent_again).sum()
    }

    fn updates(&self) -> u64 {
        self.updates
    }
}
