//! Mounts that are back, and that the server cannot serve yet: it has no descriptor, no thread or no memory left for them.
//!
//! Nobody may take their place: their kernels know inodes, and what their ledgers say was settled. So they are tried again
//! until they are served, and meanwhile count as mounts that are there. Their holders are told at each try, so that they wait
//! on. One whose holder does not wait any more may come back for a while.

use super::attached::{AttachError, Attached};
use super::channel::ANSWER_LIMIT;
use super::message::Message;
use crate::lives::{MountId, MountNumber};
use crate::losses::Losses;
use std::time::{Duration, Instant};

/// The first pause before they are tried again.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest one.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How long a mount whose holder does not wait any more may come back: as long as that waits for an answer.
const RETURN_LIMIT: Duration = ANSWER_LIMIT;

/// Mounts that are tried again.
pub(super) struct Postponed {
    mounts: Vec<(Attached, Losses)>,
    /// Those whose holders do not wait, and until when they may be back.
    away: Vec<(Attached, Losses, Instant)>,
    pause: Duration,
    due: Option<Instant>,
}

impl Default for Postponed {
    fn default() -> Self {
        Self { mounts: Vec::new(), away: Vec::new(), pause: PAUSE_MIN, due: None }
    }
}

impl Postponed {
    /// One that could not be served now. Its holder hears that it has to wait.
    pub(super) fn add(&mut self, (attached, earlier): (Attached, Losses), error: &AttachError, now: Instant) {
        let point = attached.point();
        if self.pause == PAUSE_MIN {
            tracing::warn!(%error, point = %point.display(), "a mount that is back is served as soon as that is possible");
        } else {
            tracing::debug!(%error, point = %point.display(), "not yet");
        }
        self.wait_on((attached, earlier), now);
    }

    /// The number of a mount among them.
    pub(super) fn number_of(&self, mount: MountId) -> Option<MountNumber> {
        self.mounts().find(|attached| attached.attach.mount == mount).map(|attached| attached.number)
    }

    /// The holder of one of them has connected anew.
    pub(super) fn resume(&mut self, back: Attached, now: Instant) {
        let is_it = |attached: &Attached| attached.attach.mount == back.attach.mount;
        let waiting = self.mounts.extract_if(.., |(attached, _)| is_it(attached));
        let before = waiting.last().or_else(|| {
            let away = self.away.extract_if(.., |(attached, ..)| is_it(attached));
            away.last().map(|(attached, earlier, _)| (attached, earlier))
        });
        let Some((attached, earlier)) = before else { return };
        // Others note in the ledger that is open already, and know the places in it.
        let Attached { queues, channel, .. } = back;
        self.wait_on((Attached { queues, channel, ..attached }, earlier), now);
    }

    fn wait_on(&mut self, (attached, earlier): (Attached, Losses), now: Instant) {
        // Where there is no room for that, the holder has heard it, and has yet to read it.
        attached.channel.try_send(&Message::WAIT);
        self.mounts.push((attached, earlier));
        self.due.get_or_insert(now + self.pause);
    }

    /// How long to wait at most.
    pub(super) fn limit(&self, now: Instant) -> Option<Duration> {
        let ends = self.away.iter().map(|(.., until)| *until);
        self.due.into_iter().chain(ends).min().map(|at| at.saturating_duration_since(now))
    }

    /// Those that are to be tried again now. Others count as before.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(Attached, Losses)> {
        if self.mounts.is_empty() {
            // What is short the next time may be there sooner.
            (self.pause, self.due) = (PAUSE_MIN, None);
        }
        if self.due.take_if(|due| *due <= now).is_none() {
            return Vec::new();
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let all = std::mem::take(&mut self.mounts).into_iter();
        let (gone, due): (Vec<_>, Vec<_>) = all.partition(|(attached, _)| attached.has_given_up());
        let until = now + RETURN_LIMIT;
        self.away.extend(gone.into_iter().map(|(attached, earlier)| (attached, earlier, until)));
        due
    }

    /// Takes those that may not come back any more: whose holders do not wait, and that `is_over` says.
    pub(super) fn take_away(&mut self, is_over: impl Fn(&Attached, Instant) -> bool) -> Vec<MountNumber> {
        let over = self.away.extract_if(.., |(attached, _, until)| is_over(attached, *until));
        over.map(|(attached, ..)| attached.number).collect()
    }

    /// All of them.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &Attached> {
        self.waiting().chain(self.away.iter().map(|(attached, ..)| attached))
    }

    /// Those whose holders wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Attached> {
        self.mounts.iter().map(|(attached, _)| attached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Sharing;
    use crate::ledger::LostChanges;
    use crate::offload::attached::tests::attached_by;
    use crate::offload::channel::Channel;
    use crate::offload::message::Since;
    use crate::session::SessionError;
    use landfall_fs::InodeNumber;
    use std::io;

    /// A mount that is back, and its holder's end of the connection.
    fn back() -> ((Attached, Losses), Channel) {
        let (attached, holder) = attached_by(1, Since::Resumed, Sharing::Alone);
        let earlier = Losses::new(LostChanges::default(), InodeNumber(9));
        ((attached, earlier), holder)
    }

    fn error(code: i32) -> AttachError {
        SessionError::Io(io::Error::from_raw_os_error(code)).into()
    }

    #[test]
    fn a_mount_is_tried_again_after_longer_and_longer_pauses_and_is_there_meanwhile() {
        let (mut postponed, mut now, mut pauses) = (Postponed::default(), Instant::now(), Vec::new());
        assert_eq!(postponed.limit(now), None);
        let (mut mount, holder) = back();
        for _ in 0..8 {
            postponed.add(mount, &error(libc::EMFILE), now);
            assert_eq!(
                postponed.mounts().map(|attached| attached.attach.mount).collect::<Vec<_>>(),
                [[1; 16]]
            );
            let pause = postponed.limit(now).expect("a limit");
            assert!(postponed.take_due(now).is_empty(), "not before");
            assert_eq!(holder.receive().expect("a message").0, Message::WAIT, "its patience begins anew");
            now += pause;
            pauses.push(pause);
            mount = postponed.take_due(now).pop().expect("the mount");
            assert_eq!((postponed.limit(now), postponed.mounts().count()), (None, 0));
        }
        assert_eq!((pauses[0], pauses[1], pauses[7]), (PAUSE_MIN, 2 * PAUSE_MIN, PAUSE_MAX));
        assert!(postponed.take_due(now).is_empty());
        postponed.add(mount, &error(libc::EMFILE), now);
        assert_eq!(postponed.limit(now), Some(PAUSE_MIN), "all were served in between");
    }

    #[test]
    fn a_mount_whose_holder_does_not_wait_any_more_is_there_for_a_while_and_may_come_back() {
        let (mut postponed, mut now) = (Postponed::default(), Instant::now());
        let (mount, holder) = back();
        postponed.add(mount, &error(libc::EMFILE), now);
        drop(holder);
        now += PAUSE_MIN;
        assert!(postponed.take_due(now).is_empty(), "nobody would hear that it is served");
        assert_eq!((postponed.mounts().count(), postponed.waiting().count()), (1, 0), "it is named still");
        assert_eq!(postponed.limit(now), Some(RETURN_LIMIT));
        assert_eq!(postponed.number_of([1; 16]), Some(MountNumber(1)));
        let ((again, _), holder) = back();
        postponed.resume(Attached { number: MountNumber(2), ..again }, now);
        assert_eq!(holder.receive().expect("a message").0, Message::WAIT);
        assert!(postponed.take_away(|_, _| true).is_empty());
        now += PAUSE_MAX;
        let (attached, earlier) = postponed.take_due(now).pop().expect("it is tried again");
        assert_eq!(attached.number, MountNumber(1), "the other mounts know it by that");
        assert!(!attached.has_given_up());
        postponed.add((attached, earlier), &error(libc::EMFILE), now);
        drop(holder);
        now += PAUSE_MAX;
        assert!(postponed.take_due(now).is_empty());
        let is_over = |now: Instant| move |_: &Attached, until: Instant| until <= now;
        assert!(postponed.take_away(is_over(now)).is_empty());
        assert_eq!(postponed.take_away(is_over(now + RETURN_LIMIT)), [MountNumber(1)]);
        assert_eq!((postponed.limit(now), postponed.number_of([1; 16])), (None, None));
    }

    #[test]
    fn a_shortage_passes_and_nonsense_does_not() {
        for code in [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM] {
            assert!(error(code).may_pass(), "{code}");
            assert!(AttachError::Descriptors(io::Error::from_raw_os_error(code)).may_pass(), "{code}");
        }
        assert!(!error(libc::EINVAL).may_pass());
        assert!(!AttachError::Stale.may_pass() && !AttachError::Session(SessionError::NoImage).may_pass());
    }
}
