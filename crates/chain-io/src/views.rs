//! Where a node has its view from.

use crate::clients::ClientAddress;
use crate::error::NodeError;
use crate::lease::Lease;
use crate::progress::CopyProgress;
use crate::view_file::read_document;
use landfall_chain::View;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

/// Where a node has the views of its chain from, and whom it tells of itself.
pub trait Views: Debug + Send + Sync {
    /// Where that is, for people.
    fn describe(&self) -> String;

    /// The newest view that is known. It is asked for several times a second.
    ///
    /// # Errors
    /// [`NodeError`] says why there is none.
    fn newest(&self) -> Result<View, NodeError>;

    /// What the node needs to answer clients. `None`: nothing, since people see to it that no other node takes its place
    /// while it runs.
    fn lease(&self) -> Option<&Lease> {
        None
    }

    /// Who changes the chain now, if that is known.
    fn manager(&self) -> Option<String> {
        None
    }

    /// Where clients connect to a node, if that is known.
    fn clients_of(&self, node: &str) -> Option<ClientAddress>;

    /// Where clients connect to this node; `None`: nowhere. The server says so once, when it listens.
    fn note_clients(&self, _address: Option<&ClientAddress>) {}

    /// False if a member is known to be silent, or behind.
    fn is_sound(&self, _node: &str) -> bool {
        true
    }

    /// Why there may be a view that is newer than the newest known one.
    fn doubt(&self) -> Option<String> {
        None
    }

    /// What makes no sense in the place that the views are from, and costs single nodes something. Who asks there sees it, so
    /// that it is not told back by [`Self::note_troubles`].
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    /// The node is in step for this `since`; 0: it is behind.
    fn note_in_step(&self, _since: u64) {}

    /// How far the copy to the node behind has come; `None`: there is none.
    fn note_copy(&self, _progress: Option<&CopyProgress>) {}

    /// What keeps the chain from its work at this node ([`crate::Node::troubles`], without [`Self::troubles`]); empty: nothing
    /// does. It is said several times a second.
    fn note_troubles(&self, _troubles: &str) {}

    /// The node was removed from the chain while it ran. It serves nobody, and completes nothing any more.
    fn note_removed(&self) {
        tracing::error!(
            "this node was removed from the chain: it serves nobody, and must be started anew if it is added again"
        );
    }
}

/// The view is a file, which people change.
#[derive(Debug)]
pub struct ViewFile {
    path: PathBuf,
    /// As of the last reading.
    clients: Mutex<BTreeMap<String, ClientAddress>>,
}

impl ViewFile {
    /// The file with this path.
    pub fn new(path: PathBuf) -> Self {
        Self { path, clients: Mutex::default() }
    }
}

impl Views for ViewFile {
    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn newest(&self) -> Result<View, NodeError> {
        let document = read_document(&self.path)?;
        *self.clients.lock() = document.clients;
        Ok(document.view)
    }

    fn clients_of(&self, node: &str) -> Option<ClientAddress> {
        self.clients.lock().get(node).cloned()
    }
}
