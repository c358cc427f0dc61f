//! What a node has met that keeps the chain from its work.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A node of another release that has not connected for so long is gone, or of this release now: it would have tried again.
const RELEASE_LIMIT: Duration = Duration::from_secs(30);

/// What a node has met, and nobody has mended.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// Why the node behind cannot be reached, by stream.
    streams: Mutex<BTreeMap<usize, String>>,
    /// Why the newest view does not count.
    view: Mutex<Option<String>>,
    /// Versions of messages of other releases, and when somebody has connected with them last.
    releases: Mutex<BTreeMap<u8, Instant>>,
}

impl Troubles {
    /// Why a stream has no connection to the node behind; `None`: it has one.
    pub(crate) fn note_stream(&self, stream: usize, why: Option<String>) {
        let mut streams = self.streams.lock();
        match why {
            Some(why) => streams.insert(stream, why),
            None => streams.remove(&stream),
        };
    }

    /// Another node is behind, or none: what was known of the one before does not count.
    pub(crate) fn forget_streams(&self) {
        self.streams.lock().clear();
    }

    /// Why the newest view does not count.
    pub(crate) fn view(&self) -> Option<String> {
        self.view.lock().clone()
    }

    /// Why streams have no connection to the node behind. Of all that say the same, one is heard.
    pub(crate) fn streams(&self) -> BTreeSet<String> {
        self.streams.lock().values().cloned().collect()
    }

    /// Somebody has sent messages of another version. False if that was known.
    pub(crate) fn note_release(&self, version: u8, now: Instant) -> bool {
        self.releases.lock().insert(version, now).is_none()
    }

    /// The versions of messages of other releases with which somebody connects to this node.
    pub(crate) fn releases(&self, now: Instant) -> BTreeSet<u8> {
        let lasts = |since: Instant| now.saturating_duration_since(since) < RELEASE_LIMIT;
        self.releases.lock().iter().filter(|(_, at)| lasts(**at)).map(|(version, _)| *version).collect()
    }

    /// Why the newest view is ignored; empty: it counts.
    pub(crate) fn note_view(&self, why: &str) {
        *self.view.lock() = Some(why.to_owned()).filter(|why| !why.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_another_release_is_a_trouble_as_long_as_it_tries_to_connect() {
        let (troubles, begun) = (Troubles::default(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert!(troubles.releases(begun).is_empty());
        assert!(troubles.note_release(3, begun) && troubles.note_release(9, begun));
        assert_eq!(troubles.releases(after(29)), BTreeSet::from([3, 9]));
        assert!(!troubles.note_release(9, after(29)), "it is known");
        assert_eq!(troubles.releases(after(30)), BTreeSet::from([9]));
        assert!(troubles.releases(after(59)).is_empty());
    }
}
