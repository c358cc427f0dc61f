//! A timer that ends a blocking wait and is set as rarely as possible.

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Longest time that the timer is set for.
const MOST: Duration = Duration::from_secs(3600);
const NOTHING: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A descriptor that becomes readable when a wait has to end. A loop polls it beside its other descriptors and then needs
/// no time limit for the wait itself.
///
/// With a time limit below the next tick, the kernel programs the processor's timer when the wait begins, and again when
/// the wait ends early. In a virtual machine each of the two leaves the guest. Hardly any wait lasts until its limit:
/// something is due a millisecond after each request, and the answer arrives long before. So the alarm stays set for the
/// earliest time that was due, and is set again only after it has expired.
/// `docs/results/decisions.md` has the times measured.
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
    expires: Option<Instant>,
}

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// The process has no free file descriptor.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timer, expires: None })
    }

    /// Sets the alarm to expire when `most` has passed, or earlier. A loop calls this before each wait, which also makes an
    /// expired alarm unreadable again.
    ///
    /// # Errors
    /// The kernel refuses the timer.
    pub fn within(&mut self, most: Duration) -> io::Result<()> {
        let (most, now) = (most.min(MOST), Instant::now());
        let due = now + most;
        if self.expires.is_some_and(|expires| now < expires && expires <= due) {
            return Ok(());
        }
        // Zero would disarm the timer.
        let most = most.max(Duration::from_nanos(1));
        let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: seconds, tv_nsec: most.subsec_nanos().into() };
        let when = Itimerspec { it_interval: NOTHING, it_value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &when)?;
        self.expires = Some(due);
        Ok(())
    }

    /// The descriptor to poll for input.
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

    /// True if the alarm expires within `most`.
    fn expires(alarm: &Alarm, most: Duration) -> bool {
        let mut fds = [PollFd::new(alarm, PollFlags::IN)];
        let most = Timespec { tv_sec: most.as_secs().cast_signed(), tv_nsec: most.subsec_nanos().into() };
        poll(&mut fds, Some(&most)).unwrap() == 1
    }

    #[test]
    fn an_alarm_that_expired_stays_readable_until_it_is_set_again() {
        let mut alarm = Alarm::new().unwrap();
        assert!(!expires(&alarm, Duration::ZERO), "never set");
        alarm.within(SOON).unwrap();
        assert!(expires(&alarm, NEVER) && expires(&alarm, Duration::ZERO), "the timer was not read");
        alarm.within(NEVER).unwrap();
        assert!(!expires(&alarm, Duration::ZERO), "set to a later time");
        alarm.within(Duration::ZERO).unwrap();
        assert!(expires(&alarm, NEVER), "zero time does not disarm the alarm");
    }

    #[test]
    fn an_alarm_is_set_again_only_for_an_earlier_time() {
        let mut alarm = Alarm::new().unwrap();
        alarm.within(NEVER / 2).unwrap();
        let first = alarm.expires;
        alarm.within(NEVER).unwrap();
        assert_eq!(alarm.expires, first, "the earlier expiry stays");
        alarm.within(SOON).unwrap();
        assert!(alarm.expires < first && expires(&alarm, NEVER));
        alarm.within(Duration::MAX).unwrap();
        assert!(alarm.expires > first, "the alarm had expired");
    }
}
