//! What a node has met that keeps the chain from its work.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// What a node has met, and nobody has mended.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// Why the node behind cannot be reached, by stream.
    streams: Mutex<BTreeMap<usize, String>>,
    /// Why the newest view does not count.
    view: Mutex<Option<String>>,
    /// Versions of messages of other releases, with which somebody has connected to this node.
    releases: Mutex<BTreeSet<u8>>,
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
    pub(crate) fn note_release(&self, version: u8) -> bool {
        self.releases.lock().insert(version)
    }

    /// Why the newest view is ignored; empty: it counts.
    pub(crate) fn note_view(&self, why: &str) {
        *self.view.lock() = Some(why.to_owned()).filter(|why| !why.is_empty());
    }
}
