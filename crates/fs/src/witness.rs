//! Who is told of each operation: a mount that outlives its server has to know what the server has done.

use crate::calls::Call;
use crate::key::InodeNumber;
use std::fmt::Debug;

/// Learns of each operation of the mount's log when it has been executed.
pub trait Witness: Debug + Send + Sync {
    /// The call that the calling thread executes, if what it does next is the first that it does for it: the two are in the
    /// log together, or neither is.
    fn call(&self) -> Option<Call>;

    /// Operations are about to be appended: they are in the log if all those below `end` are. `None`: they were refused, and
    /// are not in the log.
    ///
    /// It is called by the thread that executes, under a lock: it must be quick.
    fn appending(&self, end: Option<u64>);

    /// Operations were executed; those with indices below `end` are in the log now. They have changed, made or deleted the
    /// inodes `touched`.
    ///
    /// It is called by the thread that executes, before anybody sees what was done, and under a lock: it must be quick.
    fn executed(&self, end: u64, touched: &[InodeNumber]);

    /// As [`Self::executed`], of what clients have done ([`crate::Files::execute_adopted`]), whatever the calling thread
    /// executes: nothing was said of it before.
    fn adopted(&self, end: u64, touched: &[InodeNumber]);
}
