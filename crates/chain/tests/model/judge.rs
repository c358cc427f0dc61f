//! What must be true in the end.

use super::{KEYS, NODES, STREAMS, World, name};
use landfall_chain::Standing;

/// Steps in which the nodes must get in step once nothing fails any more.
const HEAL_STEPS: usize = 60_000;

impl World {
    /// Nothing fails any more: all nodes of the newest view get in step.
    pub fn heal(&mut self) -> Result<(), String> {
        for _ in 0..HEAL_STEPS {
            let node = self.below(NODES);
            if self.nodes[node].live.is_none() {
                self.restart(node);
            }
            match self.below(8) {
                0 => self.follow_view(node),
                1 => {
                    let stream = self.below(STREAMS);
                    self.fence(node, stream);
                }
                2 | 3 => self.deliver(),
                4 | 5 => self.copy_step(node),
                _ => {
                    let stream = self.below(STREAMS);
                    self.link_step(node, stream);
                }
            }
            if self.is_settled() {
                return Ok(());
            }
        }
        Err(format!("the nodes do not get in step: {self:?}"))
    }

    fn members(&self) -> Vec<usize> {
        let view = self.newest();
        (0..NODES).filter(|node| view.find(&name(*node)).is_ok()).collect()
    }

    fn is_settled(&self) -> bool {
        let version = self.newest().version;
        self.members().into_iter().all(|node| {
            self.nodes[node].live.as_ref().is_some_and(|live| {
                let is_quiet = live.links.iter().all(|link| link.batch.is_none());
                let behind =
                    live.downstream.node().is_none() || live.downstream.standing() == Standing::InStep;
                live.view.version == version
                    && live.upstream.is_in_step()
                    && live.is_ready
                    && is_quiet
                    && behind
            })
        })
    }

    /// Compares the nodes with each other and with what clients know; returns how much was acknowledged.
    pub fn judge(&self) -> Result<u64, String> {
        let members = self.members();
        let first = self.nodes[members[0]].disk.present();
        for node in &members {
            let other = self.nodes[*node].disk.present();
            if other != first {
                return Err(format!("{} has {other:?}, and {} {first:?}", name(*node), name(members[0])));
            }
        }
        for key in 0..KEYS {
            let known = self.acknowledged.get(&key).copied().unwrap_or_default();
            let tried = self.tried.get(&key).map_or(&[][..], Vec::as_slice);
            let fits = match first.get(&key) {
                Some(number) => *number >= known.0 && tried.contains(&(*number, true)),
                None => !known.1 || tried.iter().any(|(number, is_there)| *number > known.0 && !is_there),
            };
            if !fits {
                return Err(format!("key {key} is {:?}, {known:?} was acknowledged", first.get(&key)));
            }
        }
        Ok(self.count)
    }
}
