//! A time limit for a load: programs that wait in the kernel for a server that hangs do not end by themselves.

use crate::common::error::BenchError;
use crate::common::sys::kill;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time limit of a load with its preparation.
pub(super) const LOAD_MAX: Duration = Duration::from_secs(600);

/// Ends processes if [`Self::end`] is not called in time.
#[derive(Debug)]
pub(super) struct Overdue {
    ended: SyncSender<()>,
    watch: JoinHandle<bool>,
    limit: Duration,
}

impl Overdue {
    /// From now on `pids` have so much time.
    pub(super) fn watch(pids: Vec<u32>, limit: Duration) -> Self {
        let (ended, ends) = sync_channel(1);
        let watch = std::thread::spawn(move || {
            let is_overdue = ends.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if is_overdue {
                pids.into_iter().for_each(kill);
            }
            is_overdue
        });
        Self { ended, watch, limit }
    }

    /// Passes on what has come of `what`, unless it took too long.
    ///
    /// # Errors
    /// [`BenchError::TooLong`]; those of `outcome`.
    pub(super) fn end<T>(self, what: &str, outcome: Result<T, BenchError>) -> Result<T, BenchError> {
        drop(self.ended);
        if self.watch.join().unwrap_or(false) {
            let (what, seconds) = (format!("{what}, whose servers were ended,"), self.limit.as_secs());
            return Err(BenchError::TooLong { what, seconds });
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_ended_if_its_load_takes_too_long() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let watched = Overdue::watch(vec![child.id()], Duration::from_millis(10));
        // Who waits for it goes on.
        child.wait().unwrap();
        assert!(matches!(watched.end("it", Ok(())), Err(BenchError::TooLong { .. })));
    }

    #[test]
    fn a_process_lives_on_if_its_load_ends_in_time() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(Overdue::watch(vec![child.id()], Duration::from_secs(600)).end("it", Ok(())).is_ok());
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
