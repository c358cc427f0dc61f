//! Replay protection: each stamp is accepted once, and only for a limited time.

use super::unsealed::Unsealed;
use std::collections::{BTreeMap, BTreeSet};

/// Most nanoseconds between a stamp and this host's clock. It covers a packet's time in the network and the
/// difference between two hosts' clocks.
const FRESH_NS: u64 = 30_000_000_000;
/// Most stamps that are stored for each sender. A packet may be overtaken by this many later packets of its sender.
const STAMPS_MAX: usize = 128;
/// Most senders whose stamps are stored. Each of them has sent within [`FRESH_NS`].
const SENDERS_MAX: usize = 1 << 16;

/// Accepted stamps by sender. A stamp that is deleted here is too old to be accepted again.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    seen: BTreeMap<u64, BTreeSet<u64>>,
}

impl Fresh {
    /// Accepts the stamp of a packet whose tag is valid, or says why not.
    pub(super) fn take(&mut self, sender: u64, stamp: u64, now: u64) -> Result<(), Unsealed> {
        if stamp.abs_diff(now) > FRESH_NS {
            return Err(Unsealed::Stale);
        }
        if self.seen.len() >= SENDERS_MAX && !self.seen.contains_key(&sender) {
            self.evict_old(now);
            if self.seen.len() >= SENDERS_MAX {
                return Err(Unsealed::Crowded);
            }
        }
        let seen = self.seen.entry(sender).or_default();
        let is_behind = seen.len() >= STAMPS_MAX && seen.first().is_some_and(|oldest| stamp < *oldest);
        if is_behind || !seen.insert(stamp) {
            return Err(Unsealed::Repeated);
        }
        if seen.len() > STAMPS_MAX {
            seen.pop_first();
        }
        Ok(())
    }

    fn evict_old(&mut self, now: u64) {
        let oldest = now.saturating_sub(FRESH_NS);
        self.seen.retain(|_, seen| seen.last().is_some_and(|last| *last >= oldest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1 << 60;

    #[test]
    fn stamps_too_far_from_the_clock_are_rejected() {
        let mut fresh = Fresh::default();
        assert_eq!(fresh.take(1, NOW - FRESH_NS - 1, NOW), Err(Unsealed::Stale));
        assert_eq!(fresh.take(1, NOW + FRESH_NS + 1, NOW), Err(Unsealed::Stale));
        assert_eq!(fresh.take(1, NOW - FRESH_NS, NOW), Ok(()));
    }

    #[test]
    fn stamps_older_than_all_that_are_stored_are_rejected() {
        let mut fresh = Fresh::default();
        for stamp in 0..1000 {
            assert_eq!(fresh.take(1, NOW + 2 * stamp, NOW), Ok(()));
        }
        assert_eq!(fresh.take(1, NOW + 1999, NOW), Ok(()), "out of order, but new");
        for stamp in 0..2000 {
            assert_eq!(
                fresh.take(1, NOW + stamp, NOW).is_ok(),
                stamp % 2 == 1 && stamp > 1746 && stamp < 1999
            );
        }
    }

    #[test]
    fn senders_that_have_been_silent_are_evicted() {
        let mut fresh = Fresh::default();
        (0..SENDERS_MAX as u64).for_each(|sender| fresh.take(sender, NOW, NOW).unwrap());
        assert_eq!(fresh.take(u64::MAX, NOW, NOW), Err(Unsealed::Crowded));
        let later = NOW + FRESH_NS + 1;
        assert_eq!(fresh.take(u64::MAX, later, later), Ok(()));
        assert_eq!(fresh.seen.len(), 1);
    }
}
