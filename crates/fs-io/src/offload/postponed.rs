//! Mounts that are back, and that the server cannot serve yet: it has no descriptor, no thread or no memory left for them.
//!
//! Nobody may take their place: their kernels know inodes, and what their ledgers say was settled. So they are tried again
//! until they are served, and meanwhile count as mounts that are there.

use super::attached::{AttachError, Attached};
use crate::session::Earlier;
use std::time::{Duration, Instant};

/// The first pause before they are tried again.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest one.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Mounts that are tried again.
pub(super) struct Postponed {
    mounts: Vec<(Attached, Earlier)>,
    pause: Duration,
    due: Option<Instant>,
}

impl Default for Postponed {
    fn default() -> Self {
        Self { mounts: Vec::new(), pause: PAUSE_MIN, due: None }
    }
}

impl Postponed {
    /// One that could not be served now.
    pub(super) fn add(
        &mut self,
        (attached, earlier): (Attached, Earlier),
        error: &AttachError,
        now: Instant,
    ) {
        let point = attached.point();
        if self.pause == PAUSE_MIN {
            tracing::warn!(%error, point = %point.display(), "a mount that is back is served as soon as that is possible");
        } else {
            tracing::debug!(%error, point = %point.display(), "not yet");
        }
        self.mounts.push((attached, earlier));
        self.due.get_or_insert(now + self.pause);
    }

    /// How long to wait at most.
    pub(super) fn limit(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }

    /// Those that are to be tried again now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(Attached, Earlier)> {
        if self.due.take_if(|due| *due <= now).is_none() {
            return Vec::new();
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        std::mem::take(&mut self.mounts)
    }

    /// All of them.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &Attached> {
        self.mounts.iter().map(|(attached, _)| attached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Sharing;
    use crate::ledger::{Ledger, LostChanges};
    use crate::lives::MountNumber;
    use crate::offload::channel::Channel;
    use crate::offload::message::{Attach, Over, Since};
    use crate::session::SessionError;
    use landfall_fs::InodeNumber;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io;
    use std::sync::Arc;

    fn back() -> (Attached, Earlier) {
        let (ours, _) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("sockets");
        let attach = Attach {
            since: Since::Resumed,
            mount: [1; 16],
            minor: 45,
            features: 0,
            max_write: 1 << 20,
            max_readahead: 0,
            sharing: Sharing::Alone,
            over: Over::Device,
            heard: 0,
            id: "0:41".to_owned(),
            point: b"/m".to_vec(),
        };
        let memory = Ledger::memory().expect("memory");
        let ledger = Ledger::open(memory.file().try_clone_to_owned().expect("a descriptor"));
        let ledger = Arc::new(ledger.expect("a ledger"));
        let channel = Arc::new(Channel::new(ours).expect("a socket"));
        let attached = Attached { number: MountNumber(1), attach, ledger, queues: Vec::new(), channel };
        (attached, Earlier { lost: LostChanges::default(), below: InodeNumber(9) })
    }

    fn error(code: i32) -> AttachError {
        SessionError::Io(io::Error::from_raw_os_error(code)).into()
    }

    #[test]
    fn a_mount_is_tried_again_after_longer_and_longer_pauses_and_is_there_meanwhile() {
        let (mut postponed, mut now, mut pauses) = (Postponed::default(), Instant::now(), Vec::new());
        assert_eq!(postponed.limit(now), None);
        let mut mount = back();
        for _ in 0..8 {
            postponed.add(mount, &error(libc::EMFILE), now);
            assert_eq!(
                postponed.mounts().map(|attached| attached.attach.mount).collect::<Vec<_>>(),
                [[1; 16]]
            );
            let pause = postponed.limit(now).expect("a limit");
            assert!(postponed.take_due(now).is_empty(), "not before");
            now += pause;
            pauses.push(pause);
            mount = postponed.take_due(now).pop().expect("the mount");
            assert_eq!((postponed.limit(now), postponed.mounts().count()), (None, 0));
        }
        assert_eq!((pauses[0], pauses[1], pauses[7]), (PAUSE_MIN, 2 * PAUSE_MIN, PAUSE_MAX));
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
