//! What a server of mounts on other machines asks: which of their calls were done. `docs/format/fs.md`, "Calls".

use crate::calls::{Call, CallerId, Calls};
use crate::error::FsError;
use crate::files::Files;
use crate::operation::Operation;

impl Files {
    /// The last call of a mount's queue, if one was done.
    pub fn last_call(&self, mount: CallerId, queue: u8) -> Option<Call> {
        self.lock().tree.calls.last(mount, queue)
    }

    /// Whether whatever a mount has called is known, if it was told of `heard` last ([`Calls::forgotten`]); and what it is to
    /// be told now.
    pub fn knows_calls(&self, mount: CallerId, heard: u64) -> (bool, u64) {
        let state = self.lock();
        (state.tree.calls.knows(mount, heard), state.tree.calls.forgotten())
    }

    /// A mount has ended: nothing need be known of its calls any more.
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub fn end_calls(&self, time_ns: i64, mount: CallerId) -> Result<(), FsError> {
        let is_known = self.lock().tree.calls.has(mount);
        if is_known { self.execute(time_ns, &Operation::EndCalls { mount }) } else { Ok(()) }
    }

    /// All calls that are known.
    pub fn calls(&self) -> Calls {
        self.lock().tree.calls.clone()
    }
}
