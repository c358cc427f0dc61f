//! Clients that have not given the password. When all places are taken, those that have had time for it make room.

use crate::conn::{Conn, Speaks};
use landfall_sockets::ConnId;
use std::collections::VecDeque;

/// How long a client has for the password, or between two requests over HTTP, where each has the password, before it may
/// lose its place to another one.
const PROOF_MS: u64 = 5_000;
/// Clients that are looked at for one that comes.
const LOOKS: usize = 32;
/// Where so many have just come, the oldest of them has had its time: they would take all places for good.
const CROWD: usize = 8;

/// What is known of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has given the password, or is gone.
    Settled,
    /// It has sent a request with the password not long ago.
    Busy,
    /// It has not been here for long.
    New,
    /// It may lose its place.
    Unproven,
}

/// Clients in the order in which they came, or were last looked at, until they have given the password.
#[derive(Debug, Default)]
pub(super) struct Unproven(VecDeque<ConnId>);

impl Unproven {
    pub(super) fn add(&mut self, id: ConnId, clients: usize, is_there: impl Fn(&ConnId) -> bool) {
        if self.0.len() > 2 * clients + LOOKS {
            self.0.retain(is_there);
        }
        self.0.push_back(id);
    }

    /// The oldest that may lose its place.
    pub(super) fn take(&mut self, standing: impl Fn(&ConnId) -> Standing) -> Option<ConnId> {
        for _ in 0..LOOKS {
            let id = self.0.pop_front()?;
            match standing(&id) {
                Standing::Unproven => return Some(id),
                Standing::Settled => {}
                Standing::Busy => self.0.push_back(id),
                // Those behind it have come later, or are busy.
                Standing::New if self.is_crowd(&standing) => return Some(id),
                Standing::New => {
                    self.0.push_front(id);
                    return None;
                }
            }
        }
        None
    }

    fn is_crowd(&self, standing: impl Fn(&ConnId) -> Standing) -> bool {
        let new = self.0.iter().take(LOOKS).filter(|id| standing(id) == Standing::New);
        new.take(CROWD).count() == CROWD
    }
}

/// True if nothing of a request or a reply is under way.
fn is_idle(conn: &Conn) -> bool {
    conn.park.is_none() && conn.sending.is_none() && conn.inbox.len() == 0
}

pub(super) fn standing(conn: &Conn, now_ms: u64) -> Standing {
    let is_long_ago = |since_ms: u64| now_ms.saturating_sub(since_ms) >= PROOF_MS;
    match &conn.speaks {
        _ if conn.phase.is_closing() && conn.linger.is_none() => Standing::Settled,
        Speaks::Chain { .. } => Standing::Settled,
        Speaks::Resp { session, .. } if session.is_authenticated() => Standing::Settled,
        _ if !is_long_ago(conn.since_ms) => Standing::New,
        Speaks::Resp { .. } => Standing::Unproven,
        Speaks::Http { session, .. } => match session.proved_ms() {
            Some(proved_ms) if !is_idle(conn) || !is_long_ago(proved_ms) => Standing::Busy,
            _ => Standing::Unproven,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_without_the_password_gives_way_and_nobody_else() {
        let mut unproven = Unproven::default();
        (0..10).for_each(|id| unproven.add(ConnId(id), 10, |_| true));
        let standing = |id: &ConnId| match id.0 {
            0 | 3 => Standing::Settled,
            1 => Standing::Busy,
            2 | 4 => Standing::Unproven,
            _ => Standing::New,
        };
        assert_eq!(unproven.take(standing), Some(ConnId(2)));
        assert_eq!(unproven.take(standing), Some(ConnId(4)));
        assert_eq!(unproven.take(standing), None);
        assert_eq!(unproven.0.len(), 6, "those that are new and the busy one stay");
    }

    /// Whoever comes gets a place, however fast others come, and keeps it as long as so many have come before.
    #[test]
    fn of_a_crowd_that_has_just_come_the_oldest_gives_way() {
        let mut unproven = Unproven::default();
        (0..CROWD as u64).for_each(|id| unproven.add(ConnId(id), 10, |_| true));
        assert_eq!(unproven.take(|_| Standing::New), None, "each has time for the password");
        (0..100).for_each(|id| unproven.add(ConnId(CROWD as u64 + id), 200, |_| true));
        for id in 0..70 {
            let standing = |id: &ConnId| if id.0 % 3 == 1 { Standing::Busy } else { Standing::New };
            let taken = unproven.take(standing).expect("one gives way");
            assert!(standing(&taken) == Standing::New && taken.0 <= id * 3 / 2 + 1, "{id}: {taken:?}");
            unproven.add(ConnId(200 + id), 200, |_| true);
        }
    }

    #[test]
    fn those_that_are_gone_take_no_memory_for_ever() {
        let mut unproven = Unproven::default();
        (0..10_000).for_each(|id| unproven.add(ConnId(id), 1, |other| other.0 + 1 >= id));
        assert!(unproven.0.len() <= LOOKS + 4, "{}", unproven.0.len());
    }
}
