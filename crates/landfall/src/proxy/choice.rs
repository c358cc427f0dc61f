//! Which server is the first, by what several of them say.

use landfall_chain_io::ClientAddress;
use std::time::{Duration, Instant};

/// How long an answer counts: a server that is busy for a moment is believed.
const COUNTS_FOR: Duration = Duration::from_secs(3);

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The version of its view.
    pub(super) version: u64,
    /// Where clients connect to the first server.
    pub(super) first: ClientAddress,
}

/// What is heard of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Answer(Answer),
    /// It says that it does not know.
    Unknown,
    /// Nothing: it may be there, or not.
    Nothing,
}

/// The newest answers of all servers.
#[derive(Debug)]
pub(super) struct Choice {
    answers: Vec<Option<(Answer, Instant)>>,
}

impl Choice {
    pub(super) fn new(servers: usize) -> Self {
        Self { answers: vec![None; servers] }
    }

    pub(super) fn note(&mut self, server: usize, heard: Heard, now: Instant) {
        match heard {
            Heard::Answer(answer) => self.answers[server] = Some((answer, now)),
            Heard::Unknown => self.answers[server] = None,
            Heard::Nothing => {}
        }
    }

    /// The first server by the newest view of which somebody has told lately.
    pub(super) fn first(&self, now: Instant) -> Option<&ClientAddress> {
        let counts = |at: &Instant| now.saturating_duration_since(*at) < COUNTS_FOR;
        let lately = self.answers.iter().flatten().filter(|(_, at)| counts(at));
        lately.max_by_key(|(answer, _)| answer.version).map(|(answer, _)| &answer.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(version: u64, port: u16) -> Heard {
        Heard::Answer(Answer { version, first: ClientAddress { host: "10.0.0.1".into(), port } })
    }

    fn port(choice: &Choice, now: Instant) -> Option<u16> {
        choice.first(now).map(|first| first.port)
    }

    #[test]
    fn the_newest_view_counts_whoever_tells_of_it() {
        let (mut choice, now) = (Choice::new(3), Instant::now());
        assert_eq!(port(&choice, now), None);
        choice.note(0, says(3, 1), now);
        choice.note(1, says(4, 2), now);
        choice.note(2, says(3, 1), now);
        assert_eq!(port(&choice, now), Some(2));
        choice.note(1, Heard::Unknown, now);
        assert_eq!(port(&choice, now), Some(1), "it takes back what it said");
    }

    #[test]
    fn a_server_that_says_nothing_is_believed_for_a_while() {
        let (mut choice, now) = (Choice::new(2), Instant::now());
        choice.note(0, says(3, 1), now);
        choice.note(0, Heard::Nothing, now + COUNTS_FOR / 2);
        assert_eq!(port(&choice, now + COUNTS_FOR / 2), Some(1));
        assert_eq!(port(&choice, now + COUNTS_FOR), None);
        choice.note(1, says(2, 7), now + COUNTS_FOR);
        assert_eq!(port(&choice, now + COUNTS_FOR), Some(7));
    }
}
