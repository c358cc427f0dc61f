//! What is killed when, drawn from a seed.

use crate::seed::Random;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// One in so many kills is not verified: the next load, and the next kill, meet what the program has yet to recover.
const UNVERIFIED: usize = 5;
/// One in so many servers that follow a killed one is killed, too, within this time of its start: while it recovers.
const RECOVERING: usize = 3;
const RECOVERY_MS: u64 = 60;

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// The server of the mount, or the process that has made it, as the way says. The program may see its calls fail.
    Server,
    /// The program with all its processes. The mount stays.
    Program,
    /// The server, and at once the program.
    Both,
}

/// When, once the time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// At once, whatever the program is doing.
    Any,
    /// When the next thing has just been acknowledged: nothing that follows makes it durable by chance.
    Acknowledged,
}

/// One kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kill {
    pub(super) victim: Victim,
    /// From the start of the load on.
    pub(super) after: Duration,
    pub(super) moment: Moment,
    /// The next server is killed so long after its start, and another one started.
    pub(super) again: Option<Duration>,
    pub(super) is_verified: bool,
}

impl Kill {
    /// Draws a kill within these milliseconds of load. The last one is verified always.
    pub(super) fn draw(random: &mut Random, load_ms: &Range<u64>, is_last: bool) -> Self {
        // Servers more often than programs: their kills test the medium, too.
        let victim = match random.below(5) {
            0 | 1 => Victim::Server,
            2 => Victim::Program,
            _ => Victim::Both,
        };
        let after = load_ms.start + random.number() % (load_ms.end - load_ms.start).max(1);
        let moment = if random.below(2) == 0 { Moment::Any } else { Moment::Acknowledged };
        let again =
            (random.below(RECOVERING) == 0).then(|| Duration::from_millis(random.number() % RECOVERY_MS));
        let again = again.filter(|_| victim != Victim::Program);
        let is_verified = random.below(UNVERIFIED) != 0 || is_last;
        Self { victim, after: Duration::from_millis(after), moment, again, is_verified }
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let victim = match self.victim {
            Victim::Server => "server",
            Victim::Program => "program",
            Victim::Both => "both",
        };
        let moment = match self.moment {
            Moment::Any => "",
            Moment::Acknowledged => " and an acknowledgement",
        };
        write!(f, "{victim:<7} killed after {:>4} ms{moment}", self.after.as_millis())?;
        match self.again {
            Some(after) => write!(f, ", the next server after {} ms", after.as_millis()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, count: usize) -> Vec<Kill> {
        let mut random = Random::new(seed);
        (0..count).map(|index| Kill::draw(&mut random, &(100..200), index + 1 == count)).collect()
    }

    #[test]
    fn a_seed_repeats_its_kills() {
        assert_eq!(drawn(7, 50), drawn(7, 50));
        assert_ne!(drawn(7, 50), drawn(8, 50));
    }

    #[test]
    fn every_victim_is_drawn_within_the_time_and_the_last_kill_is_verified() {
        for seed in 0..20 {
            let kills = drawn(seed, 50);
            for victim in [Victim::Server, Victim::Program, Victim::Both] {
                assert!(kills.iter().any(|kill| kill.victim == victim), "{victim:?}");
            }
            assert!(kills.iter().all(|kill| (100..200).contains(&kill.after.as_millis())));
            assert!(kills.iter().any(|kill| !kill.is_verified));
            assert!(kills.iter().any(|kill| kill.again.is_some()));
            assert!(kills.iter().all(|kill| kill.again.is_none() || kill.victim != Victim::Program));
            for moment in [Moment::Any, Moment::Acknowledged] {
                assert!(kills.iter().any(|kill| kill.moment == moment), "{moment:?}");
            }
            assert!(kills[49].is_verified);
        }
    }
}
