//! Holders that were offered the files and have not said what they mount. Nobody waits for them: a holder that is stopped, or
//! whose machine has died, says nothing, and the others are asked whether they are there all the time.

use super::channel::Channel;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a holder may take to mount.
const MOUNT_LIMIT: Duration = Duration::from_secs(10);
/// Most holders at a time: when there are more, the first one is refused.
const GREETED_MAX: usize = 64;

/// Holders that may take their time, oldest first.
#[derive(Default)]
pub(super) struct Greeted {
    waiting: Vec<(Arc<Channel>, Instant)>,
}

impl Greeted {
    /// Adds one that was offered the files at `now`.
    pub(super) fn add(&mut self, channel: Arc<Channel>, now: Instant) {
        self.waiting.push((channel, now + MOUNT_LIMIT));
    }

    /// Readable when they say something.
    pub(super) fn channels(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.waiting.iter().map(|(channel, _)| channel.as_fd())
    }

    /// Takes the one at this place among [`Self::channels`].
    pub(super) fn take(&mut self, at: usize) -> Arc<Channel> {
        self.waiting.remove(at).0
    }

    /// How long the first one may still take.
    pub(super) fn limit(&self, now: Instant) -> Option<Duration> {
        self.waiting.first().map(|(_, until)| until.saturating_duration_since(now))
    }

    /// Takes one that has not said anything in time, or is too much.
    pub(super) fn take_silent(&mut self, now: Instant) -> Option<Arc<Channel>> {
        let (_, until) = self.waiting.first()?;
        let is_over = *until <= now || self.waiting.len() > GREETED_MAX;
        is_over.then(|| self.take(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn channel() -> Arc<Channel> {
        let (one, _) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        Arc::new(Channel::new(one).expect("a socket"))
    }

    #[test]
    fn who_says_nothing_in_time_is_refused_and_so_is_the_first_of_too_many() {
        let (mut greeted, now) = (Greeted::default(), Instant::now());
        assert!(greeted.limit(now).is_none() && greeted.take_silent(now).is_none());
        greeted.add(channel(), now);
        greeted.add(channel(), now + Duration::from_secs(1));
        assert_eq!(greeted.limit(now + Duration::from_secs(4)), Some(Duration::from_secs(6)));
        assert!(greeted.take_silent(now + Duration::from_secs(9)).is_none());
        assert!(greeted.take_silent(now + MOUNT_LIMIT).is_some());
        assert!(greeted.take_silent(now + MOUNT_LIMIT).is_none(), "the second one has its own time");
        let later = now + Duration::from_secs(2);
        (0..GREETED_MAX).for_each(|_| greeted.add(channel(), later));
        assert!(greeted.take_silent(later).is_some() && greeted.take_silent(later).is_none());
        assert_eq!(greeted.channels().count(), GREETED_MAX);
    }
}
