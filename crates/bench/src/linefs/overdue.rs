//! Programs that wait in the kernel for a server that hangs, or for one that waits for another which has died, do not end by
//! themselves: their load has a time limit, and ends with any of its servers that this process has started.

use crate::common::error::BenchError;
use crate::common::measure::proc::is_zombie;
use crate::common::sys::kill;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit of a load with its preparation.
pub(super) const LOAD_MAX: Duration = Duration::from_secs(600);
/// How often it looks whether the servers are there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Ends processes if [`Self::end`] is not called in time, or one of them has ended before.
#[derive(Debug)]
pub(super) struct Overdue {
    ended: SyncSender<()>,
    watch: JoinHandle<Course>,
    limit: Duration,
}

/// What has become of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    InTime,
    TooLong,
    Died,
}

impl Overdue {
    /// From now on `pids` have so much time.
    pub(super) fn watch(pids: Vec<u32>, limit: Duration) -> Self {
        let (ended, ends) = sync_channel(1);
        let watch = std::thread::spawn(move || {
            let course = follow(&pids, limit, &ends);
            if course != Course::InTime {
                pids.into_iter().filter(|pid| !is_zombie(*pid)).for_each(kill);
            }
            course
        });
        Self { ended, watch, limit }
    }

    /// Passes on what has come of `what`, unless it took too long, or a server has died.
    ///
    /// # Errors
    /// [`BenchError::TooLong`], [`BenchError::Died`]; those of `outcome`.
    pub(super) fn end<T>(self, what: &str, outcome: Result<T, BenchError>) -> Result<T, BenchError> {
        drop(self.ended);
        match self.watch.join().unwrap_or(Course::InTime) {
            Course::InTime => outcome,
            Course::Died => Err(BenchError::Died(what.to_owned())),
            Course::TooLong => {
                let (what, seconds) = (format!("{what}, whose servers were ended,"), self.limit.as_secs());
                Err(BenchError::TooLong { what, seconds })
            }
        }
    }
}

fn follow(pids: &[u32], limit: Duration, ends: &Receiver<()>) -> Course {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if ends.recv_timeout(LOOK_EVERY.min(left)) != Err(RecvTimeoutError::Timeout) {
            return Course::InTime;
        }
        if pids.iter().any(|pid| is_zombie(*pid)) {
            return Course::Died;
        }
        if Instant::now() >= until {
            return Course::TooLong;
        }
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
    fn a_load_ends_with_one_of_its_processes() {
        let sleep = |seconds: &str| Command::new("sleep").arg(seconds).spawn().unwrap();
        let (mut dead, mut other) = (sleep("0"), sleep("600"));
        let watched = Overdue::watch(vec![other.id(), dead.id()], Duration::from_secs(600));
        // Who waits for what the other one does goes on. The dead one is nobody's yet.
        other.wait().unwrap();
        assert!(matches!(watched.end("it", Ok(())), Err(BenchError::Died(_))));
        dead.wait().unwrap();
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
