//! What a server of mounts does now, shown from another thread.

use super::roster::{MountState, Roster};
use crate::inspect;
use crate::service::Service;
use landfall_metrics::Text;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shows what the server does now.
#[derive(Clone)]
pub struct Current {
    pub(super) service: Arc<Service>,
    pub(super) roster: Arc<Roster>,
}

impl Current {
    /// The page of metrics of all mounts that are served: Prometheus text format.
    pub fn metrics(&self) -> String {
        let mut text = Text::new("landfall_fs");
        let mounts = self.mounts();
        let silent = mounts.iter().filter(|mount| mount.silent.is_some()).count();
        text.gauge("mounts", "Mounts that are served now.", mounts.len());
        text.gauge("mounts_silent", "Those of them whose process does not answer.", silent);
        let own: String = text.into();
        own + &inspect::metrics(&self.service)
    }

    /// The mounts that are served now.
    pub fn mounts(&self) -> Vec<MountState> {
        self.roster.mounts(Instant::now())
    }

    /// How long there has been no mount whose process answers; `None`: there is one, or was none so far.
    pub fn away(&self) -> Option<Duration> {
        self.roster.away(Instant::now())
    }
}
