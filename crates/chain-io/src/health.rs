//! What keeps a chain from its work, as its nodes see it: for those who look after it.

use crate::node::Node;
use std::time::Instant;

impl Node {
    /// What keeps the chain from its work at this node and the one behind it: full regions, refusals, views that are
    /// ignored; and what makes no sense in the place that the views are from. Empty if there is nothing that people should
    /// know.
    pub fn troubles(&self) -> Vec<String> {
        [self.own_troubles(), self.views().troubles()].concat()
    }

    /// Somebody has connected whose messages have this version, which is not the one of this program. False if that was
    /// known: the node before tries again and again, and is told so.
    pub fn note_release(&self, version: u8) -> bool {
        self.troubles.note_release(version, Instant::now())
    }

    /// What this node alone can say.
    pub(crate) fn own_troubles(&self) -> Vec<String> {
        let view = self.troubles.view().map(|why| format!("its view is not followed: {why}"));
        let mut troubles = Vec::from_iter(view);
        if self.heap.room_bytes() == 0 {
            troubles.push("no room for new values".into());
        }
        if self.has_found_damage() {
            troubles.push("a record that cannot be read".into());
        }
        let versions: Vec<String> =
            self.troubles.releases(Instant::now()).iter().map(ToString::to_string).collect();
        if !versions.is_empty() {
            let versions = versions.join(", ");
            troubles.push(format!(
                "a node of another release is refused: its messages are of version {versions}"
            ));
        }
        let Some((next, _)) = self.behind() else { return troubles };
        if self.is_full_behind() {
            troubles.push(format!("{next} has no room for its copy"));
        }
        let streams = self.troubles.streams();
        troubles.extend(streams.into_iter().map(|why| format!("no connection to {next}: {why}")));
        troubles
    }
}
