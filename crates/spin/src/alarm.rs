//! Ends of waits.

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Longest time that a timer is set for.
const MOST: Duration = Duration::from_secs(3600);
const NOTHING: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Becomes readable when a wait is to end: to be watched beside what is waited for, in waits that have no time limit of their own.
///
/// A limit that is nearer than the next tick has the kernel set the processor's timer when the wait begins, and again when it
/// ends before that. In a virtual machine each of the two leaves the guest (docs/results/decisions.md). But hardly any
/// wait lasts as long as it may: something is due a millisecond after each request, and the answer comes long before. So the
/// alarm stays set for what was due first, and is set again when it rings for nothing.
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
    rings: Option<Instant>,
}

impl Alarm {
    /// An alarm that never rings.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timer, rings: None })
    }

    /// It rings when `most` has passed, or earlier. To be called before each wait: that silences it, too.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn within(&mut self, most: Duration) -> io::Result<()> {
        let (most, now) = (most.min(MOST), Instant::now());
        let due = now + most;
        if self.rings.is_some_and(|rings| now < rings && rings <= due) {
            return Ok(());
        }
        // Zero would mean never.
        let most = most.max(Duration::from_nanos(1));
        let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: seconds, tv_nsec: most.subsec_nanos().into() };
        let when = Itimerspec { it_interval: NOTHING, it_value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &when)?;
        self.rings = Some(due);
        Ok(())
    }

    /// What to watch for input.
    pub fn descriptor(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    const SOON: Duration = Duration::from_micros(100);
    const NEVER: Duration = Duration::from_secs(1000);

    /// Whether it rings within `most`.
    fn rings(alarm: &Alarm, most: Duration) -> bool {
        let mut fds = [PollFd::new(alarm, PollFlags::IN)];
        let most = Timespec { tv_sec: most.as_secs().cast_signed(), tv_nsec: most.subsec_nanos().into() };
        poll(&mut fds, Some(&most)).unwrap() == 1
    }

    #[test]
    fn it_rings_until_it_is_set_again() {
        let mut alarm = Alarm::new().unwrap();
        assert!(!rings(&alarm, Duration::ZERO), "never set");
        alarm.within(SOON).unwrap();
        assert!(rings(&alarm, NEVER) && rings(&alarm, Duration::ZERO), "nobody has read it");
        alarm.within(NEVER).unwrap();
        assert!(!rings(&alarm, Duration::ZERO), "silenced");
        alarm.within(Duration::ZERO).unwrap();
        assert!(rings(&alarm, NEVER), "no time is not never");
    }

    #[test]
    fn it_is_set_again_only_for_what_is_due_earlier() {
        let mut alarm = Alarm::new().unwrap();
        alarm.within(NEVER / 2).unwrap();
        let first = alarm.rings;
        alarm.within(NEVER).unwrap();
        assert_eq!(alarm.rings, first, "it will ring early, for nothing");
        alarm.within(SOON).unwrap();
        assert!(alarm.rings < first && rings(&alarm, NEVER));
        alarm.within(Duration::MAX).unwrap();
        assert!(alarm.rings > first, "it has rung");
    }
}
