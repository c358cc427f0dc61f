//! Waits until servers have executed what clients sent through devices, and checks that they have.
//!
//! A device acknowledges an update before the server has it. Without this check, a server that is slow, or that rejects
//! everything, would not be told from a fast one.

use super::serve::counts::Executed;
use super::stand::Stand;
use crate::common::error::BenchError;
use crate::common::progress::check_stop;
use std::time::{Duration, Instant};

/// The longest wait for progress.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait for a server's counts, which it publishes several times a second.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two reads of a count.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until no device has any of `sent` updates in its log: the server has confirmed all of them.
pub(crate) fn drain(stand: &Stand, sent: u64) -> Result<(), BenchError> {
    if sent == 0 {
        return Ok(());
    }
    (0..stand.devices.len()).try_for_each(|device| {
        // A device publishes its counts several times a second. A log that is empty before the last updates have
        // arrived is not meant.
        let arrived = || stand.count(device, "updates_total");
        wait_for(&format!("{sent} updates at a device"), PATIENCE, |now| now >= sent, arrived)?;
        wait_until_log(stand, device, 0)
    })
}

/// Waits until a device has this many updates in its log.
pub(crate) fn wait_until_log(stand: &Stand, device: usize, wanted: u64) -> Result<(), BenchError> {
    let entries = || {
        stand.check_alive()?;
        stand.count(device, "log_entries")
    };
    wait_for(&format!("{wanted} updates in the log"), PATIENCE, |now| now == wanted, entries)
}

/// Checks that the server has executed `sent` updates, all that were sent, and has rejected none.
pub(crate) fn confirm(stand: &Stand, sent: u64) -> Result<(), BenchError> {
    if sent == 0 { Ok(()) } else { confirm_within(TOLD_WITHIN, sent, || stand.executed()) }
}

/// Waits until a count is as `is_wanted` says. Gives up once it has not changed for `patience`.
fn wait_for(
    what: &str,
    patience: Duration,
    is_wanted: impl Fn(u64) -> bool,
    mut count: impl FnMut() -> Result<Option<u64>, BenchError>,
) -> Result<(), BenchError> {
    let (mut last, mut since) = (None, Instant::now());
    loop {
        check_stop()?;
        let now = count()?;
        if now.is_some_and(&is_wanted) {
            return Ok(());
        }
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > patience {
            let found = now.map_or("no count".to_owned(), |now| now.to_string());
            let what = format!("{what} instead of {found}");
            return Err(BenchError::TooLong { what, seconds: patience.as_secs() });
        }
        std::thread::sleep(LOOK);
    }
}

fn confirm_within(
    patience: Duration,
    sent: u64,
    mut ask: impl FnMut() -> Result<Executed, BenchError>,
) -> Result<(), BenchError> {
    let begun = Instant::now();
    loop {
        check_stop()?;
        let found = ask()?;
        if found.applied >= sent || begun.elapsed() > patience {
            return check(sent, found);
        }
        std::thread::sleep(LOOK);
    }
}

fn check(sent: u64, Executed { applied, rejected, incarnations }: Executed) -> Result<(), BenchError> {
    if (applied, rejected) == (sent, 0) {
        return Ok(());
    }
    Err(BenchError::NotExecuted { sent, applied, rejected, incarnations })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn executed(applied: u64, rejected: u64) -> Executed {
        Executed { applied, rejected, incarnations: 1 }
    }

    #[test]
    fn updates_that_are_acknowledged_and_not_executed_are_an_error() {
        assert!(confirm_within(NOW, 5, || Ok(executed(5, 0))).is_ok());
        for (applied, rejected) in [(4, 0), (0, 0), (5, 1), (6, 0)] {
            let failed = confirm_within(NOW, 5, || Ok(executed(applied, rejected)));
            let is_seen = matches!(
                failed,
                Err(BenchError::NotExecuted { sent: 5, applied: a, rejected: r, .. })
                    if (a, r) == (applied, rejected)
            );
            assert!(is_seen, "{applied} {rejected}: {failed:?}");
        }
    }

    #[test]
    fn counts_that_are_published_late_are_waited_for() {
        let mut applied = 2;
        let late = || {
            applied += 1;
            Ok(executed(applied, 0))
        };
        confirm_within(PATIENCE, 5, late).unwrap();
        assert_eq!(applied, 5);
    }

    #[test]
    fn a_count_is_waited_for_as_long_as_it_changes() {
        let mut left = 3;
        let falls = || {
            left -= 1;
            Ok(Some(left))
        };
        wait_for("an empty log", PATIENCE, |now| now == 0, falls).unwrap();
        for stands_still in [Some(7), None] {
            let waited = wait_for("an empty log", NOW, |now| now == 0, || Ok(stands_still));
            assert!(matches!(waited, Err(BenchError::TooLong { .. })), "{stands_still:?}: {waited:?}");
        }
    }
}
