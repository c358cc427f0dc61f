//! The delay queue of one direction of a middlebox: it holds frames until they are due.

use super::fate::{Faults, Tally};
use std::collections::BTreeMap;
use std::time::Duration;

/// Length of the queue if the faults do not set one, frames.
const QUEUE_FRAMES: usize = 1000;

/// The queued frames of one direction. Times count from the start of the middlebox.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Frames by due time, then by order of arrival.
    waiting: BTreeMap<(Duration, u64), Vec<u8>>,
    added: u64,
    /// When the line has sent all frames that were added, at its rate.
    free: Duration,
}

impl Line {
    pub(super) fn add(
        &mut self,
        now: Duration,
        delay: Duration,
        frame: Vec<u8>,
        faults: &Faults,
        tally: &mut Tally,
    ) {
        let limit = if faults.queue_frames == 0 { QUEUE_FRAMES } else { faults.queue_frames };
        if self.waiting.len() >= limit {
            tally.overflowed += 1;
            return;
        }
        self.free = self.free.max(now) + transmission(frame.len(), faults.bytes_per_second);
        self.waiting.insert((self.free + delay, self.added), frame);
        self.added += 1;
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }

    pub(super) fn take_due(&mut self, now: Duration) -> Option<Vec<u8>> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

fn transmission(bytes: usize, bytes_per_second: u64) -> Duration {
    let nanos = (bytes as u64).saturating_mul(1_000_000_000).checked_div(bytes_per_second);
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn line(faults: &Faults, delays: &[Duration]) -> (Line, Tally) {
        let (mut line, mut tally) = (Line::default(), Tally::default());
        for (n, delay) in (0u8..).zip(delays) {
            line.add(Duration::ZERO, *delay, vec![n; 100], faults, &mut tally);
        }
        (line, tally)
    }

    fn due(line: &mut Line, now: Duration) -> Vec<u8> {
        std::iter::from_fn(|| line.take_due(now)).map(|frame| frame[0]).collect()
    }

    #[test]
    fn frames_leave_when_they_are_due_and_in_order() {
        let (mut line, _) = line(&Faults::default(), &[MS, 3 * MS, MS, 2 * MS]);
        assert_eq!((line.next_due(), due(&mut line, Duration::ZERO)), (Some(MS), vec![]));
        assert_eq!(due(&mut line, MS), [0, 2]);
        assert_eq!(due(&mut line, 5 * MS), [3, 1], "the frame that was held back is overtaken");
        assert_eq!(line.next_due(), None);
    }

    #[test]
    fn a_rate_limit_spaces_frames() {
        let faults = Faults { bytes_per_second: 100_000, ..Faults::default() };
        let (mut line, _) = line(&faults, &[Duration::ZERO; 3]);
        assert_eq!(due(&mut line, Duration::ZERO), []);
        assert_eq!(due(&mut line, MS), [0]);
        assert_eq!(due(&mut line, 3 * MS), [1, 2]);
    }

    #[test]
    fn a_full_queue_drops_the_newest_frames() {
        let faults = Faults { queue_frames: 2, ..Faults::default() };
        let (mut line, tally) = line(&faults, &[MS; 5]);
        assert_eq!((due(&mut line, MS), tally.overflowed), (vec![0, 1], 3));
    }
}
