//! Contestants in turns.

use super::error::BenchError;
use super::progress::check_stop;

/// Measures contestants in turns, A B C A B C ..., so that a disturbance of the machine affects all of them. `once`
/// measures one of them in a round, from 1 on.
///
/// `fail` is told of one that fails. It is left out, with what was measured of it before: it has not shown that it can
/// do the work, and medians over fewer rounds do not compare.
///
/// # Errors
/// [`BenchError::Interrupted`].
pub(crate) fn in_turns<C: Copy, S>(
    rounds: u32,
    contestants: impl IntoIterator<Item = C>,
    mut once: impl FnMut(u32, C) -> Result<S, BenchError>,
    mut fail: impl FnMut(C, &BenchError),
) -> Result<Vec<(C, Vec<S>)>, BenchError> {
    let mut runs: Vec<(C, Vec<S>)> = Vec::new();
    runs.extend(contestants.into_iter().map(|contestant| (contestant, Vec::new())));
    for round in 1..=rounds {
        let mut left = Vec::new();
        for (contestant, mut samples) in runs {
            check_stop()?;
            match once(round, contestant) {
                Ok(sample) => {
                    samples.push(sample);
                    left.push((contestant, samples));
                }
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    // Ctrl-C also ends servers, which is no failure of theirs.
                    check_stop()?;
                    fail(contestant, &error);
                }
            }
        }
        runs = left;
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_is_left_out_with_its_earlier_rounds() {
        let (mut turns, mut failed) = (Vec::new(), Vec::new());
        let once = |round: u32, contestant: char| {
            turns.push((round, contestant));
            if (round, contestant) == (2, 'b') { Err(BenchError::Nothing("it failed")) } else { Ok(round) }
        };
        let runs = in_turns(3, ['a', 'b', 'c'], once, |contestant, error| {
            failed.push((contestant, error.to_string()));
        });
        assert_eq!(runs.unwrap(), [('a', vec![1, 2, 3]), ('c', vec![1, 2, 3])]);
        assert_eq!(failed, [('b', "it failed".to_owned())]);
        let order = [(1, 'a'), (1, 'b'), (1, 'c'), (2, 'a'), (2, 'b'), (2, 'c'), (3, 'a'), (3, 'c')];
        assert_eq!(turns, order);
    }

    #[test]
    fn an_interruption_ends_all_turns_and_is_no_failure() {
        let once = |_: u32, _: char| Err::<u32, _>(BenchError::Interrupted);
        let runs = in_turns(3, ['a', 'b'], once, |_, _| panic!("nobody failed"));
        assert!(matches!(runs, Err(BenchError::Interrupted)));
    }
}
