//! Starts the threads of a node.

use crate::beats;
use crate::copier;
use crate::error::NodeError;
use crate::line::{Begin, Prepare};
use crate::link;
use crate::node::Node;
use crate::pages::Pages;
use crate::room;
use landfall_heap::SlotId;
use std::sync::Arc;

impl Node {
    /// Connects to the node behind. `unsent` are the records from [`Self::floor`] on, in the order of their seqs: the node
    /// behind gets them before anything else. `prepare` is called then, before anybody is answered; it is tried again as
    /// long as it fails.
    ///
    /// # Errors
    /// [`NodeError::Thread`].
    pub fn start(
        self: &Arc<Self>,
        unsent: Vec<SlotId>,
        prepare: Prepare,
        pages: Arc<dyn Pages>,
    ) -> Result<(), NodeError> {
        if let Some(first) = self.slots.first() {
            first.line.lock().begin = Some(Begin { unsent, prepare });
        }
        for stream in 0..self.streams() {
            let node = Arc::clone(self);
            self.spawn(&format!("chain-{stream}"), move || link::run(&node, stream))?;
        }
        let node = Arc::clone(self);
        self.spawn("chain-copy", move || copier::run(&node, &*pages))?;
        if self.views().lease().is_some() {
            let node = Arc::clone(self);
            self.spawn("chain-beats", move || {
                node.views().lease().into_iter().for_each(|lease| beats::run(&node, lease));
            })?;
        }
        let node = Arc::clone(self);
        self.spawn("chain-room", move || room::run(&node))?;
        let node = Arc::clone(self);
        self.spawn("chain-view", move || node.watch())
    }
}
