//! Checks of a world: compare the engine with the oracle, and the heap with its records.

use super::World;
use crate::observe::{expect_state, read};
use crate::oracle::{Key, Value};
use crate::recount::recount;
use crate::violation::{Violation, ensure};

/// Most slabs that an empty region may keep: the slack of compaction, the last victim, and prepared slabs.
const SLACK_SLABS: u32 = 5;

impl World {
    /// Reads all keys and compares them with the executed operations.
    ///
    /// # Errors
    /// The differences.
    pub fn check(&self) -> Result<(), Violation> {
        expect_state(&self.engine, &self.oracle.newest(self.now_ms), self.now_ms)
    }

    /// Recounts references, live bytes and stale copies. All batches must be committed. The compactor abandons the run
    /// that it is emptying.
    ///
    /// # Errors
    /// The first count that differs.
    pub fn recount(&mut self) -> Result<(), Violation> {
        self.compactor.leave_victim();
        recount(&self.engine, self.workers.len() + 1)
    }

    /// Deletes every key one by one and then all at once, compacts, and checks that all space is free.
    ///
    /// # Errors
    /// Space that is not free.
    pub fn empty(&mut self) -> Result<(), Violation> {
        let keys: Vec<Key> = self.oracle.newest(self.now_ms).into_keys().collect();
        keys.iter().try_for_each(|key| self.delete(0, key))?;
        self.commit_all()?;
        self.compact_fully()?;
        self.recount().map_err(|violation| violation.during("with every key deleted"))?;
        self.flush_all(0)?;
        self.commit_all()?;
        self.compact_fully()?;
        self.recount().map_err(|violation| violation.during("with everything flushed"))?;
        ensure!(self.engine.heap().runs().live_bytes() == 0, "live bytes remain");
        let counts = self.engine.heap().runs().counts();
        let open = self.workers.len() as u32 + 1;
        ensure!(counts.data <= open && counts.slab <= open + SLACK_SLABS, "an empty region takes {counts:?}");
        self.check()
    }

    /// Checks that a result counts as durable exactly if no crash can undo it. This includes the absence of a key.
    ///
    /// # Errors
    /// A result that counts as durable too early, or that waits needlessly.
    pub fn check_durable(&self) -> Result<(), Violation> {
        let acknowledged = self.oracle.acknowledged(self.now_ms);
        let newest = self.oracle.newest(self.now_ms);
        // In deferred mode, and before a simulated crash, the oracle knows of all operations that are durable.
        let knows_all = self.setup.deferred && self.media.frozen().is_none();
        for key in acknowledged.keys().chain(newest.keys()) {
            let seen = self.engine.peek(key.space, &key.bytes, self.now_ms)?;
            let durable = seen.if_durable(self.engine.heap()).is_ok();
            if !self.oracle.is_pending(key) {
                ensure!(durable, "{key:?} was acknowledged, and counts as not durable");
            } else if knows_all && acknowledged.get(key) != newest.get(key) {
                ensure!(!durable, "{key:?} counts as durable, and a crash could still undo it");
            }
        }
        Ok(())
    }

    /// Reads one key.
    ///
    /// # Errors
    /// The key is damaged, or it is not durable and the region is closed.
    pub fn read(&self, key: &Key) -> Result<Option<Value>, Violation> {
        read(&self.engine, key, self.now_ms)
    }
}
