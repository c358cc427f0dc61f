//! Requests at which the real server ends the connection, which all sessions share: one that is longer than the server
//! takes, for one, or a command that ends the server.
//!
//! Whatever was sent when a connection ended is sent again to the next one. A request that ends connections is among it
//! each time. So it is sent alone after a while, which shows that it is the one, and is refused in the end.

use landfall_pmnet::{SessionKey, Work};
use std::collections::BTreeMap;

/// Lost connections after which a request is sent alone.
const ALONE_AFTER: u32 = 2;
/// Lost connections after which a request is refused: the last ones had sent nothing else.
const REFUSED_AFTER: u32 = 5;
/// Most requests that are suspected. More than these are not sent at once.
const SUSPECTS_MAX: usize = 1 << 14;
/// The answer to a request that is refused.
pub(super) const REFUSAL: &[u8] =
    b"-LANDFALL the server has ended the connection each time that this command was sent\r\n";

/// A piece of work, in each incarnation: its session, and the numbers of its row.
type Name = (SessionKey, u32, u32);

/// The requests that were sent when connections ended, and how often.
#[derive(Debug, Default)]
pub(super) struct Poison(BTreeMap<Name, u32>);

fn name(work: &Work) -> Name {
    let (Work::Update { row, .. } | Work::Bypass { row, .. } | Work::Row { row, .. }) = work;
    (row.key, row.update, row.bypass)
}

impl Poison {
    fn times(&self, work: &Work) -> u32 {
        if self.0.is_empty() { 0 } else { self.0.get(&name(work)).copied().unwrap_or(0) }
    }

    /// The batch in parts, in order: what is suspected is alone.
    pub(super) fn parts<'b>(&self, batch: &'b [Work]) -> Vec<&'b [Work]> {
        let is_alone = |work: &Work| self.times(work) >= ALONE_AFTER;
        batch.chunk_by(|a, b| !is_alone(a) && !is_alone(b)).collect()
    }

    /// True if the part is a request that is not sent any more.
    pub(super) fn is_refused(&self, part: &[Work]) -> bool {
        matches!(part, [work] if self.times(work) >= REFUSED_AFTER)
    }

    /// The connection has ended while the part was executed.
    pub(super) fn note_lost(&mut self, part: &[Work]) {
        if self.0.len() + part.len() > SUSPECTS_MAX {
            self.0.clear();
        }
        part.iter().for_each(|work| *self.0.entry(name(work)).or_default() += 1);
    }

    /// The part was executed.
    pub(super) fn note_done(&mut self, part: &[Work]) {
        if !self.0.is_empty() {
            part.iter().for_each(|work| _ = self.0.remove(&name(work)));
        }
    }
}
