//! Tells clients that another server of the chain takes writes: the message `+switch-master` of Redis Sentinel.

use super::state::Worker;
use crate::conn::{Conn, Speaks};
use crate::phase::Phase;
use landfall_sockets::ConnId;

/// The channel of the message.
const SWITCH_MASTER: &str = "+switch-master";

impl Worker {
    pub(super) fn tell_subscribers(&mut self) {
        let Some(node) = &self.shared.chain else { return };
        let Some(text) = self.told.update(&node.directory()) else { return };
        let listens =
            |conn: &Conn| matches!(&conn.speaks, Speaks::Resp { session, .. } if session.is_subscribed());
        let listeners: Vec<ConnId> =
            self.conns.values().filter(|conn| listens(conn)).map(|conn| conn.id).collect();
        for id in listeners {
            self.tell(id, &text);
        }
    }

    fn tell(&mut self, id: ConnId, text: &str) {
        let limit = self.shared.output_max();
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.phase.is_closing()) else { return };
        if conn.output_len() >= limit {
            // It does not read: it asks again when it connects again.
            conn.phase.advance(Phase::Closing);
        } else if let Speaks::Resp { session, .. } = &conn.speaks {
            let mut reply = conn.outbox.begin(&self.heap, self.round);
            session.write_message(SWITCH_MASTER, text, reply.bytes());
            reply.finish();
        }
        self.touch(id);
    }
}
