//! Until when a node answers clients without news: `docs/format/chain.md`, "Who may answer".

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Time since the machine has started, suspended or not. A process that was stopped finds it gone on.
pub fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What proves that a node still has its place. All times are those of [`boot_time`].
#[derive(Debug)]
pub struct Lease {
    limit: Duration,
    /// When the last successful inquiry at the registry began, nanoseconds; 0: there was none.
    registered_ns: AtomicU64,
    /// Since when it is proven that no other node has a newer view, by the chain itself; 0: it is not.
    chain_ns: AtomicU64,
    /// The node has said that it answers nobody any more.
    is_left: AtomicBool,
}

impl Lease {
    /// A node answers clients for `limit` from a proof on.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            registered_ns: AtomicU64::new(0),
            chain_ns: AtomicU64::new(0),
            is_left: AtomicBool::new(false),
        }
    }

    /// How long a proof lasts.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The registry has shown that this node is registered, to an inquiry that began at `begun`.
    pub fn prove(&self, begun: Duration) {
        self.registered_ns.fetch_max(nanos(begun), Ordering::AcqRel);
    }

    /// The nodes behind the first one have proven that none of them has a newer view, from `begun` on; or it is not known any
    /// more.
    pub(crate) fn prove_by_chain(&self, begun: Option<Duration>) {
        self.chain_ns.store(begun.map_or(0, nanos), Ordering::Release);
    }

    /// The node answers nobody from now on, whatever is proven, or does so again.
    pub fn set_left(&self, is_left: bool) {
        self.is_left.store(is_left, Ordering::SeqCst);
    }

    /// True if the node is registered for sure.
    pub fn is_registered(&self) -> bool {
        self.holds(&self.registered_ns)
    }

    /// True if the node is registered for sure, or is the first one for sure by what the chain says.
    pub(crate) fn is_first(&self) -> bool {
        self.is_registered() || self.holds(&self.chain_ns)
    }

    fn holds(&self, proven: &AtomicU64) -> bool {
        !self.is_left.load(Ordering::SeqCst) && age(proven).is_some_and(|age| age < self.limit)
    }

    /// How old the registry's last proof is.
    pub fn age(&self) -> Option<Duration> {
        age(&self.registered_ns)
    }
}

fn age(proven: &AtomicU64) -> Option<Duration> {
    let proven = proven.load(Ordering::Acquire);
    (proven > 0).then(|| boot_time().saturating_sub(Duration::from_nanos(proven)))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_lasts_for_its_time_from_before_it_was_asked_for() {
        let lease = Lease::new(Duration::from_millis(300));
        assert!(!lease.is_registered() && lease.age().is_none());
        lease.prove(boot_time() - Duration::from_millis(200));
        assert!(lease.is_registered());
        // An older proof does not count for more.
        lease.prove(boot_time() - Duration::from_millis(250));
        std::thread::sleep(Duration::from_millis(110));
        assert!(!lease.is_registered());
        lease.prove(boot_time());
        assert!(lease.is_registered());
    }

    #[test]
    fn a_proof_by_the_chain_counts_for_the_first_node_only() {
        let lease = Lease::new(Duration::from_secs(60));
        lease.prove_by_chain(Some(boot_time()));
        assert!(lease.is_first() && !lease.is_registered());
        lease.prove_by_chain(Some(boot_time() - Duration::from_secs(61)));
        assert!(!lease.is_first());
        lease.prove_by_chain(Some(boot_time()));
        lease.set_left(true);
        assert!(!lease.is_first());
        lease.set_left(false);
        lease.prove_by_chain(None);
        assert!(!lease.is_first());
    }

    #[test]
    fn a_node_that_leaves_answers_nobody() {
        let lease = Lease::new(Duration::from_secs(60));
        lease.prove(boot_time());
        lease.set_left(true);
        assert!(!lease.is_registered());
        lease.prove(boot_time());
        assert!(!lease.is_registered());
        lease.set_left(false);
        assert!(lease.is_registered());
    }
}
