//! What a node knows of whether its view still counts behind it, and what it has promised to the nodes before it.

use crate::wire::{Code, WireError, message, u64_at};
use std::time::Duration;

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// How long ago it was proven that no node behind the one that answers has another view; `None`: it is not proven.
    pub age: Option<Duration>,
}

impl Proof {
    /// The message.
    pub fn encode(self, version: u64, number: u64) -> Vec<u8> {
        let age = self.age.and_then(|age| u64::try_from(age.as_nanos()).ok()).unwrap_or(u64::MAX);
        message(Code::Proof, version, number, &age.to_le_bytes(), 0)
    }

    /// Reads the head of an answer.
    ///
    /// # Errors
    /// [`WireError::Length`].
    pub fn decode(head: &[u8]) -> Result<Self, WireError> {
        if head.len() != 8 {
            return Err(WireError::Length);
        }
        let age = u64_at(head, 0);
        Ok(Self { age: (age != u64::MAX).then(|| Duration::from_nanos(age)) })
    }
}

/// Heartbeats of a node: those of the nodes before it, and its own to the node behind it.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// The time for which a node before this one answers clients from a proof on, and a little more, as clocks differ.
    promise: Duration,
    version: u64,
    /// Until when this node is not the first one of a newer view.
    until: Duration,
    /// Since when it is proven that no node behind this one has another view.
    proven: Option<Duration>,
}

impl Heartbeat {
    /// For a node that may have promised something until `now`, and before which nodes answer clients for `lasts` from a
    /// proof on.
    pub fn new(lasts: Duration, now: Duration) -> Self {
        let promise = lasts + lasts / 10;
        Self { promise, version: 0, until: now + promise, proven: None }
    }

    /// Another view counts. What was proven was proven for the view before.
    pub fn set_view(&mut self, version: u64) {
        self.version = version;
        self.proven = None;
    }

    /// This node has kept all promises that it had made before it started.
    pub fn forget_promises(&mut self) {
        self.until = Duration::ZERO;
    }

    /// Another node may rely on it, from now on, that this one does not become the first one for a while.
    pub fn promise(&mut self, now: Duration) {
        self.until = self.until.max(now + self.promise);
    }

    /// The node before asks, in the view that counts.
    pub fn answer(&mut self, now: Duration) -> Proof {
        self.promise(now);
        Proof { age: self.proven.map(|proven| now.saturating_sub(proven)) }
    }

    /// True if this node may be the first one: no older first one relies on it any more.
    pub fn may_lead(&self, now: Duration) -> bool {
        now >= self.until
    }

    /// The node behind has answered a heartbeat that was sent at `begun`, in this version of the view.
    pub fn prove(&mut self, version: u64, begun: Duration, answer: Proof) {
        let Some(age) = answer.age.filter(|_| version == self.version) else { return };
        self.proven = self.proven.max(Some(begun.saturating_sub(age)));
    }

    /// Since when it is proven that no node behind this one has another view.
    pub fn proven(&self) -> Option<Duration> {
        self.proven
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HEADER_BYTES;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn proof(age: u64) -> Proof {
        Proof { age: Some(seconds(age)) }
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        for answer in [Proof { age: None }, proof(0), proof(77)] {
            assert_eq!(Proof::decode(&answer.encode(1, 2)[HEADER_BYTES..]), Ok(answer));
        }
        assert_eq!(Proof::decode(&[0; 7]), Err(WireError::Length));
    }

    #[test]
    fn a_proof_is_as_old_as_its_oldest_part() {
        let mut heartbeat = Heartbeat::new(seconds(10), seconds(0));
        heartbeat.set_view(3);
        assert_eq!(heartbeat.answer(seconds(20)), Proof { age: None });
        heartbeat.prove(3, seconds(30), Proof { age: None });
        assert_eq!(heartbeat.proven(), None);
        heartbeat.prove(3, seconds(30), proof(4));
        assert_eq!(heartbeat.proven(), Some(seconds(26)));
        assert_eq!(heartbeat.answer(seconds(31)), proof(5));
        // An answer that came late does not take anything back.
        heartbeat.prove(3, seconds(29), proof(9));
        assert_eq!(heartbeat.proven(), Some(seconds(26)));
    }

    #[test]
    fn a_proof_counts_in_its_view_only() {
        let mut heartbeat = Heartbeat::new(seconds(10), seconds(0));
        heartbeat.set_view(3);
        heartbeat.prove(3, seconds(30), proof(0));
        heartbeat.set_view(4);
        assert_eq!(heartbeat.proven(), None);
        heartbeat.prove(3, seconds(31), proof(0));
        assert_eq!(heartbeat.proven(), None);
    }

    #[test]
    fn who_has_answered_does_not_lead_for_longer_than_the_proof_lasts() {
        let mut heartbeat = Heartbeat::new(seconds(10), seconds(100));
        assert!(!heartbeat.may_lead(seconds(110)) && heartbeat.may_lead(seconds(111)));
        heartbeat.answer(seconds(120));
        heartbeat.set_view(2);
        assert!(!heartbeat.may_lead(seconds(130)) && heartbeat.may_lead(seconds(131)));
        let mut heartbeat = Heartbeat::new(seconds(10), seconds(100));
        heartbeat.forget_promises();
        assert!(heartbeat.may_lead(seconds(100)));
    }
}
