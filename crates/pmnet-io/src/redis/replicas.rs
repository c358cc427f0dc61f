//! Waiting for the replicas of the real server.
//!
//! What is committed is confirmed once enough replicas have it: devices give up their copies then. Until that, nothing more is
//! committed, so that no reply tells of what the loss of one server would take back.

use super::server::{Link, Redis};
use super::upstream::{UpstreamError, refuse_errors};
use crate::runtime::Network;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest single wait for replicas: between two of them it is seen whether to stop.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Pauses between warnings double from the first to the last of these.
const WARN_PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];

/// A time in which too few replicas follow.
struct Shortage {
    began: Instant,
    /// When to warn next, and the pause after that.
    warn: (Instant, Duration),
}

impl Shortage {
    fn new(began: Instant) -> Self {
        Self { began, warn: (Instant::now(), WARN_PAUSES[0]) }
    }

    fn tell(&mut self, have: u32, needed: u32) {
        let (at, pause) = self.warn;
        if Instant::now() < at {
            return;
        }
        self.warn = (Instant::now() + pause, (pause * 2).min(WARN_PAUSES[1]));
        tracing::warn!(
            have,
            needed,
            since = ?self.began.elapsed(),
            "too few replicas have what was committed: nothing is confirmed until they do, updates stay in the devices' logs, \
             all else waits; bring replicas back (INFO replication on the Redis server shows those it has), or start this \
             side-car with fewer --replicas"
        );
    }
}

impl Redis {
    /// Waits until enough replicas have everything that this connection wrote, however long that takes.
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
                    tracing::info!(have, needed, ?after, "enough replicas have what was committed again");
                }
                return Ok(());
            }
            if shortage.is_none() {
                self.report.shortages += 1;
                self.publish();
            }
            shortage.get_or_insert_with(|| Shortage::new(began)).tell(have, needed);
            if self.stop.load(Ordering::Relaxed) {
                return Err(UpstreamError::Replicas { needed, have });
            }
            // Servers without replication answer at once.
            link.upstream.pause(network.as_deref_mut(), self.wait_max().saturating_sub(began.elapsed()))?;
        }
    }

    /// How many replicas have it, after a wait if they are too few.
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

    /// Shorter than the limit for replies, so that the answer is there in time; 0 would be for ever.
    fn wait_max(&self) -> Duration {
        WAIT_MAX.min(self.config.reply_limit / 2).max(Duration::from_millis(1))
    }
}
