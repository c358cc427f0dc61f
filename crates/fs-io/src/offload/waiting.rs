//! How long programs wait for a server that is away.

use super::error::HoldError;
use std::time::{Duration, Instant};

/// How long programs wait at a server of another release, if nobody has said how long. An upgrade may be taken back, so that
/// they wait at first; otherwise that server does not serve this mount, however long they wait.
const OTHER_RELEASE_MAX: Duration = Duration::from_secs(60);

/// Since when programs wait, and for what.
#[derive(Debug)]
pub(super) struct Waiting {
    begun: Instant,
    /// What people have said: how long. `None`: nothing.
    patience: Option<Duration>,
    /// Since when a server is there that is of another release.
    other_since: Option<Instant>,
    /// Why there was no server, as it was said last.
    said: String,
}

impl Waiting {
    /// The server is gone.
    pub(super) fn begin(now: Instant, patience: Option<Duration>) -> Self {
        Self { begun: now, patience, other_since: None, said: String::new() }
    }

    /// No server has accepted the mount. Says why, unless that was said last.
    pub(super) fn note(&mut self, error: &HoldError, now: Instant) {
        let is_other = error.is_of_other_release();
        self.other_since = is_other.then(|| self.other_since.unwrap_or(now));
        let text = error.to_string();
        if text == self.said {
            return;
        }
        match error {
            _ if is_other => {
                tracing::error!(
                    "{text}: end this mount, and mount anew with the program of the server's release"
                );
            }
            HoldError::NotLetIn { .. } | HoldError::NotYours { .. } | HoldError::OtherRegion { .. } => {
                tracing::warn!("{text}");
            }
            _ => tracing::info!("{text}"),
        }
        self.said = text;
    }

    /// True if programs have waited for long enough: their calls fail from now on.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let lasts = |since: Instant, limit: Duration| now.saturating_duration_since(since) >= limit;
        match self.patience {
            Some(limit) => lasts(self.begun, limit),
            None => self.other_since.is_some_and(|since| lasts(since, OTHER_RELEASE_MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::error::failed;
    use crate::offload::message::{MessageError, VERSION};

    fn newer() -> HoldError {
        failed("there", MessageError::Version(VERSION + 1).into())
    }

    fn nobody() -> HoldError {
        HoldError::Unreachable {
            server: "there".into(),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        }
    }

    #[test]
    fn programs_wait_for_ever_for_a_server_and_a_minute_at_one_of_another_release() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut waiting = Waiting::begin(begun, None);
        waiting.note(&nobody(), begun);
        assert!(!waiting.is_over(after(100_000)));
        waiting.note(&newer(), after(100_000));
        assert!(!waiting.is_over(after(100_059)));
        waiting.note(&HoldError::None(vec![nobody(), newer()]), after(100_050));
        assert!(waiting.is_over(after(100_060)), "one of several servers is there, and of another release");
        // It was taken back, and the next try begins anew.
        waiting.note(&nobody(), after(100_061));
        assert!(!waiting.is_over(after(200_000)));
        waiting.note(&newer(), after(200_000));
        assert!(!waiting.is_over(after(200_059)) && waiting.is_over(after(200_060)));
    }

    #[test]
    fn who_says_how_long_is_obeyed() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        for error in [newer(), nobody()] {
            let mut waiting = Waiting::begin(begun, Some(Duration::from_secs(600)));
            waiting.note(&error, begun);
            assert!(!waiting.is_over(after(599)) && waiting.is_over(after(600)));
        }
    }
}
