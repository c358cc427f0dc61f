//! Waits for the replicas of the real server.
//!
//! A commit is confirmed once enough replicas have it; devices then delete their copies. Until then, nothing more is
//! committed, so that no reply depends on data that the loss of one server would undo.

use super::state::{Link, Redis};
use super::upstream::{UpstreamError, refuse_errors};
use crate::runtime::Network;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest single wait for replicas. Between two waits, the side-car checks whether it must stop.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Pauses between warnings double from the first to the last of these.
const WARN_PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];

/// A period in which too few replicas follow.
struct Shortage {
    began: Instant,
    /// Time of the next warning, and the pause after it.
    warn: (Instant, Duration),
}

impl Shortage {
    fn new(began: Instant) -> Self {
        Self { began, warn: (Instant::now(), WARN_PAUSES[0]) }
    }

    fn warn(&mut self, have: u32, needed: u32) {
        let (at, pause) = self.warn;
        if Instant::now() < at {
            return;
        }
        self.warn = (Instant::now() + pause, (pause * 2).min(WARN_PAUSES[1]));
        tracing::warn!(
            have,
            needed,
            since = ?self.began.elapsed(),
            "too few replicas have the last commit: nothing is confirmed until they do, updates stay in the devices' logs, \
             all other requests wait; restore replicas (INFO replication on the Redis server lists them), or start this \
             side-car with fewer --replicas"
        );
    }
}

impl Redis {
    /// Waits until enough replicas have all writes of this connection, without a timeout.
    pub(super) fn replicate(
        &mut self,
        link: &mut Link,
        mut network: Option<&mut Network>,
    ) -> Result<(), UpstreamError> {
        let needed = self.config.replicas;
        if needed == 0 {
            return Ok(());
        }
        let mut shortage: Option<Shortage> = None;
        loop {
            let began = Instant::now();
            let have = self.wait_for_replicas(link, network.as_deref_mut())?;
            if have >= needed {
                if let Some(shortage) = shortage {
                    let after = shortage.began.elapsed();
                    tracing::info!(have, needed, ?after, "enough replicas have the last commit again");
                }
                return Ok(());
            }
            if shortage.is_none() {
                self.report.shortages += 1;
                self.publish();
            }
            shortage.get_or_insert_with(|| Shortage::new(began)).warn(have, needed);
            if self.stop.load(Ordering::Relaxed) {
                return Err(UpstreamError::Replicas { needed, have });
            }
            // Servers without replication answer at once.
            link.upstream.pause(network.as_deref_mut(), self.wait_max().saturating_sub(began.elapsed()))?;
        }
    }

    /// Number of replicas that have all writes. If they are too few, the server waits before it answers.
    fn wait_for_replicas(
        &self,
        link: &mut Link,
        network: Option<&mut Network>,
    ) -> Result<u32, UpstreamError> {
        let (needed, millis) = (self.config.replicas.to_string(), self.wait_max().as_millis().to_string());
        link.upstream.push(&[b"WAIT", needed.as_bytes(), millis.as_bytes()]);
        let reply = link.upstream.call(network)?;
        refuse_errors(&reply, "to wait for replicas")?;
        let text = String::from_utf8_lossy(&reply);
        Ok(text.trim_start_matches(':').trim_end().parse().unwrap_or(0))
    }

    /// The timeout of one wait. It is shorter than the limit for replies, so that the reply comes in time. It is never
    /// 0, which would mean no timeout.
    fn wait_max(&self) -> Duration {
        WAIT_MAX.min(self.config.reply_limit / 2).max(Duration::from_millis(1))
    }
}
