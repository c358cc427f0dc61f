//! Heartbeats to the node behind: proofs that do not need the registry.

use crate::connection::{Connection, Lost};
use crate::lease::{Lease, boot_time};
use crate::node::Node;
use landfall_chain::{Code, HEARTBEAT_STREAM, Member, Proof, Standing, message};
use std::io::Write;
use std::time::Duration;

/// Longest time between two heartbeats. The proofs of a long chain are as old as the beats of all its nodes.
const PACE_MAX: Duration = Duration::from_millis(250);

/// Sends heartbeats until the node stops.
pub(crate) fn run(node: &Node, lease: &Lease) {
    let pace = PACE_MAX.min(lease.limit() / 20);
    let mut beats = Beats { node, lease, connection: None, generation: 0 };
    while !node.is_stopping() {
        if let Err(lost) = beats.beat() {
            beats.connection = None;
            tracing::debug!(error = %lost, "a heartbeat was not answered");
        }
        node.wait_for_change(pace);
    }
}

struct Beats<'n> {
    node: &'n Node,
    lease: &'n Lease,
    connection: Option<Connection>,
    /// The generation of the connection.
    generation: u64,
}

impl Beats<'_> {
    fn beat(&mut self) -> Result<(), Lost> {
        let begun = boot_time();
        let generation = self.node.generation();
        if generation != self.generation {
            (self.connection, self.generation) = (None, generation);
        }
        let (version, behind) = {
            let downstream = self.node.downstream.lock();
            let counts = downstream.standing() != Standing::Behind;
            (downstream.version(), downstream.node().filter(|_| counts).cloned())
        };
        // A node that is behind gets in step by this one only, and says its promise then.
        let answer = match behind {
            None => Proof { age: Some(Duration::ZERO) },
            Some(member) => self.ask(&member, version)?,
        };
        self.node.note_proof(self.lease, version, begun, answer);
        Ok(())
    }

    fn ask(&mut self, member: &Member, version: u64) -> Result<Proof, Lost> {
        let (node, generation) = (self.node, self.generation);
        let until = boot_time() + self.lease.limit();
        let goes_on = || !node.is_stopping() && node.generation() == generation && boot_time() < until;
        if self.connection.is_none() {
            let hello = node.hello_for(&node.view(), &member.name, HEARTBEAT_STREAM);
            self.connection = Some(Connection::open(&member.address, version, &hello, &goes_on)?.connection);
        }
        let Some(connection) = &mut self.connection else { return Err(Lost::Ended) };
        let number = connection.next_number();
        let bytes = message(Code::Heartbeat, version, number, &[], 0);
        connection.write_all(&bytes)?;
        connection.wait_for_proof(&goes_on)
    }
}
