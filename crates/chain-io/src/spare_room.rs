//! Room behind for what is packed.

use crate::node::Node;

/// Room behind that packed payloads have until they are acknowledged.
pub(crate) struct SpareRoom<'n> {
    node: &'n Node,
    taken: u64,
}

impl<'n> SpareRoom<'n> {
    pub(crate) fn new(node: &'n Node) -> Self {
        Self { node, taken: 0 }
    }

    /// Takes so many bytes more; false if there is not plenty.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let is_taken = self.node.downstream.lock().take_spare_room(bytes);
        if is_taken {
            self.taken += bytes;
        }
        is_taken
    }
}

impl Drop for SpareRoom<'_> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.node.downstream.lock().give_room_back(self.taken);
        }
    }
}
