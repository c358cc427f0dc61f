//! The mounts of a server, as others see them: which there are, and whether the process that holds each answers.
//!
//! The server serves a mount whether that process runs or not. A process that has died is known by its connection, one
//! that is stopped, or whose machine does nothing any more, by its silence.

use crate::common::Sharing;
use crate::lives::MountNumber;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often each is asked whether it is there.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// One that has not answered for so long is silent.
const SILENT_AFTER: Duration = Duration::from_secs(2);

/// A mount that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountState {
    /// The mountpoint.
    pub point: PathBuf,
    /// Whether others change the files, too.
    pub sharing: Sharing,
    /// How long the process that holds it has not answered; `None`: it answers.
    pub silent: Option<Duration>,
}

struct Entry {
    number: MountNumber,
    point: PathBuf,
    sharing: Sharing,
    /// When the oldest question was asked that has no answer.
    asked: Option<Instant>,
    /// That question is on its way: it need not be sent again.
    is_sent: bool,
    is_silent: bool,
}

impl Entry {
    fn silent(&self, now: Instant) -> Option<Duration> {
        self.asked
            .map(|asked| now.saturating_duration_since(asked))
            .filter(|silence| *silence >= SILENT_AFTER)
    }
}

/// The mounts that are served now.
#[derive(Default)]
pub(super) struct Roster {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// When the last mount was gone; `None`: there is one, or was none.
    empty_since: Option<Instant>,
    asked_all: Option<Instant>,
    /// Number of the last question.
    number: u64,
}

impl Roster {
    /// A mount is served from now on.
    pub(super) fn add(&self, number: MountNumber, point: &Path, sharing: Sharing) {
        let mut state = self.state.lock();
        state.empty_since = None;
        let point = point.to_owned();
        state.entries.push(Entry { number, point, sharing, asked: None, is_sent: false, is_silent: false });
    }

    /// A mount is served no more.
    pub(super) fn remove(&self, number: MountNumber) {
        let mut state = self.state.lock();
        state.entries.retain(|entry| entry.number != number);
        if state.entries.is_empty() {
            state.empty_since = Some(Instant::now());
        }
    }

    /// How long nobody need be asked; `None`: there is nobody.
    pub(super) fn limit(&self) -> Option<Duration> {
        let state = self.state.lock();
        let next = state
            .asked_all
            .map_or(Duration::ZERO, |asked| (asked + ASK_EVERY).saturating_duration_since(Instant::now()));
        Some(next).filter(|_| !state.entries.is_empty())
    }

    /// Asks all that have nothing to answer, if it is time. `send` gets the number of the question, and says whether it is on
    /// its way.
    pub(super) fn ask(&self, now: Instant, mut send: impl FnMut(MountNumber, u64) -> bool) {
        let mut state = self.state.lock();
        if state.asked_all.is_some_and(|asked| now < asked + ASK_EVERY) {
            return;
        }
        state.asked_all = Some(now);
        state.number += 1;
        let question = state.number;
        for entry in &mut state.entries {
            if entry.asked.is_none() || !entry.is_sent {
                entry.asked.get_or_insert(now);
                entry.is_sent = send(entry.number, question);
            }
            if entry.silent(now).is_some() && !std::mem::replace(&mut entry.is_silent, true) {
                tracing::warn!(
                    point = %entry.point.display(),
                    "the process that holds the mount does not answer: the mount is served on"
                );
            }
        }
    }

    /// A mount's process has answered.
    pub(super) fn note_answer(&self, number: MountNumber) {
        let mut state = self.state.lock();
        let Some(entry) = state.entries.iter_mut().find(|entry| entry.number == number) else { return };
        entry.asked = None;
        if std::mem::take(&mut entry.is_silent) {
            tracing::info!(point = %entry.point.display(), "the process that holds the mount answers again");
        }
    }

    /// The mounts that are served now.
    pub(super) fn mounts(&self, now: Instant) -> Vec<MountState> {
        let show = |entry: &Entry| MountState {
            point: entry.point.clone(),
            sharing: entry.sharing,
            silent: entry.silent(now),
        };
        self.state.lock().entries.iter().map(show).collect()
    }

    /// How long there has been no mount whose process answers; `None`: there is one, or was none so far.
    pub(super) fn away(&self, now: Instant) -> Option<Duration> {
        let state = self.state.lock();
        if state.entries.is_empty() {
            return state.empty_since.map(|since| now.saturating_duration_since(since));
        }
        let silences: Option<Vec<Duration>> = state.entries.iter().map(|entry| entry.silent(now)).collect();
        silences?.into_iter().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: MountNumber = MountNumber(1);
    const SECOND: MountNumber = MountNumber(2);

    /// The roster, and who was asked in a round.
    fn asked(roster: &Roster, now: Instant, is_sent: bool) -> Vec<MountNumber> {
        let mut asked = Vec::new();
        roster.ask(now, |number, _| {
            asked.push(number);
            is_sent
        });
        asked
    }

    #[test]
    fn whoever_does_not_answer_is_silent_until_it_does() {
        let (roster, now) = (Roster::default(), Instant::now());
        assert!(roster.limit().is_none() && roster.away(now).is_none(), "there was none");
        roster.add(FIRST, Path::new("/a"), Sharing::Shared);
        roster.add(SECOND, Path::new("/b"), Sharing::Shared);
        assert_eq!(asked(&roster, now, true), [FIRST, SECOND]);
        assert!(asked(&roster, now + ASK_EVERY / 2, true).is_empty(), "it is too early");
        roster.note_answer(SECOND);
        let later = now + SILENT_AFTER;
        assert_eq!(asked(&roster, later, true), [SECOND], "the other one has a question already");
        let silent = |now| roster.mounts(now).into_iter().map(|mount| mount.silent).collect::<Vec<_>>();
        assert_eq!(silent(later), [Some(SILENT_AFTER), None]);
        assert_eq!(roster.away(later), None, "one is there");
        let much_later = later + SILENT_AFTER;
        assert_eq!(silent(much_later), [Some(2 * SILENT_AFTER), Some(SILENT_AFTER)]);
        assert_eq!(roster.away(much_later), Some(SILENT_AFTER), "since the second one is away");
        roster.note_answer(FIRST);
        assert_eq!((silent(much_later)[0], roster.away(much_later)), (None, None));
    }

    #[test]
    fn a_question_that_could_not_be_sent_is_asked_again_and_counts() {
        let (roster, now) = (Roster::default(), Instant::now());
        roster.add(FIRST, Path::new("/a"), Sharing::Alone);
        assert_eq!(asked(&roster, now, false), [FIRST]);
        assert_eq!(asked(&roster, now + SILENT_AFTER, true), [FIRST]);
        assert_eq!(roster.away(now + SILENT_AFTER), Some(SILENT_AFTER));
        assert!(asked(&roster, now + 2 * SILENT_AFTER, true).is_empty());
    }

    #[test]
    fn without_a_mount_everybody_is_away_since_the_last_one() {
        let roster = Roster::default();
        roster.add(FIRST, Path::new("/a"), Sharing::Alone);
        roster.remove(FIRST);
        assert!(roster.mounts(Instant::now()).is_empty());
        assert!(roster.away(Instant::now()).is_some_and(|away| away < SILENT_AFTER));
        roster.add(SECOND, Path::new("/a"), Sharing::Alone);
        assert_eq!(roster.away(Instant::now()), None);
    }
}
