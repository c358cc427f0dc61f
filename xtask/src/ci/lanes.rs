//! Runs test programs side by side: most wait for a disk, a timer or a peer for a third of their time.

use super::tally::Tally;
use crate::error::Error;
use std::sync::Mutex;

/// Programs that run at once: two processors have something to do while one of them waits.
const LANES: usize = 3;

/// Calls `run` on every item, in order, in [`LANES`] threads, and returns the sum of the counts. After an error no
/// further item is begun.
///
/// # Errors
/// The first of `run`.
pub(crate) fn side_by_side<T: Send>(
    items: impl Iterator<Item = T> + Send,
    run: impl Fn(T) -> Result<Tally, Error> + Sync,
) -> Result<Tally, Error> {
    let (items, sum) = (Mutex::new(items.fuse()), Mutex::new(Ok(Tally::default())));
    let lock = || sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let next = || items.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
    let lane = || {
        while lock().is_ok() {
            let Some(item) = next() else { return };
            let ran = run(item);
            let mut sum = lock();
            match (&mut *sum, ran) {
                (Ok(sum), Ok(tally)) => sum.add(&tally),
                (sum @ Ok(_), Err(error)) => *sum = Err(error),
                (Err(_), _) => {}
            }
        }
    };
    std::thread::scope(|threads| (0..LANES).for_each(|_| drop(threads.spawn(lane))));
    sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn passed(passed: usize) -> Tally {
        Tally { passed, ..Tally::default() }
    }

    #[test]
    fn items_run_at_once_and_their_counts_are_added() {
        let all = Barrier::new(LANES);
        let sum = side_by_side(1..=LANES, |n| {
            all.wait();
            Ok(passed(n))
        });
        assert_eq!(sum.unwrap(), passed((1..=LANES).sum()));
    }

    #[test]
    fn after_an_error_nothing_more_is_begun() {
        let begun = AtomicUsize::new(0);
        let ran = side_by_side(0..1000, |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            Err(Error::Found("bad".to_owned()))
        });
        assert!(matches!(ran, Err(Error::Found(_))));
        assert!(begun.into_inner() <= LANES);
    }
}
