//! Comparing the engine with the oracle, and the heap with its records.

use super::World;
use crate::observe::{expect_state, read};
use crate::oracle::{Key, Value};
use crate::recount::recount;
use crate::violation::{Violation, ensure};

/// Slabs that an empty region may keep: what compaction calls slack, the last victim, prepared ones.
const SLACK_SLABS: u32 = 5;

impl World {
    /// Reads everything and compares it with what was executed.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self) -> Result<(), Violation> {
        expect_state(&self.engine, &self.oracle.newest(self.now_ms), self.now_ms)
    }

    /// Counts references, live bytes and stale copies again; every batch must be complete. The compactor leaves the run that
    /// it is emptying.
    ///
    /// # Errors
    /// The first count that differs.
    pub fn recount(&mut self) -> Result<(), Violation> {
        self.compactor.leave_victim();
        recount(&self.engine, self.workers.len() + 1)
    }

    /// Deletes every key, then everything at once, compacts, and wants all space back.
    ///
    /// # Errors
    /// What is left.
    pub fn empty(&mut self) -> Result<(), Violation> {
        let keys: Vec<Key> = self.oracle.newest(self.now_ms).into_keys().collect();
        keys.iter().try_for_each(|key| self.delete(0, key))?;
        self.commit_all()?;
        self.compact_to_rest()?;
        self.recount().map_err(|violation| violation.during("with every key deleted"))?;
        self.flush_all(0)?;
        self.commit_all()?;
        self.compact_to_rest()?;
        self.recount().map_err(|violation| violation.during("with everything flushed"))?;
        ensure!(self.engine.heap().runs().live_bytes() == 0, "live bytes are left");
        let counts = self.engine.heap().runs().counts();
        let open = self.workers.len() as u32 + 1;
        ensure!(counts.data <= open && counts.slab <= open + SLACK_SLABS, "an empty region takes {counts:?}");
        self.check()
    }

    /// What a client may be shown at once is what a crash cannot take back; absence is shown, too.
    ///
    /// # Errors
    /// What would be shown too early, or made to wait for nothing.
    pub fn check_durable(&self) -> Result<(), Violation> {
        let acknowledged = self.oracle.acknowledged(self.now_ms);
        let newest = self.oracle.newest(self.now_ms);
        // In deferred mode, and before a simulated crash, the oracle hears of everything that is durable.
        let sees_all = self.setup.deferred && self.media.frozen().is_none();
        for key in acknowledged.keys().chain(newest.keys()) {
            let seen = self.engine.look(key.space, &key.bytes, self.now_ms)?;
            let durable = seen.if_durable(self.engine.heap()).is_ok();
            if !self.oracle.is_pending(key) {
                ensure!(durable, "{key:?} was acknowledged and must not be shown");
            } else if sees_all && acknowledged.get(key) != newest.get(key) {
                ensure!(!durable, "{key:?} may be shown, and a crash could still take it back");
            }
        }
        Ok(())
    }

    /// Reads one key.
    ///
    /// # Errors
    /// It is damaged, or not durable on a closed region.
    pub fn read(&self, key: &Key) -> Result<Option<Value>, Violation> {
        read(&self.engine, key, self.now_ms)
    }
}
