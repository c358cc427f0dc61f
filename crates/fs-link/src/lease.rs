//! The word of a lease: who may be in, and how the server takes it back without a thread of the library.
//!
//! `docs/format/fs-link.md`, "The lease word". The model test (`model`) runs both sides in every interleaving.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits that count the threads that are in.
const IN: u64 = 0xffff;
const REVOKED: u64 = 1 << 16;
const WRITE: u64 = 1 << 17;
const GENERATION_SHIFT: u32 = 32;

/// What a lease allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// To read. Many clients may have one of an inode.
    Read,
    /// To read and write. Nobody else has a lease of the inode then.
    Write,
}

/// Why a thread may not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The server has taken the lease back, or the place belongs to another lease now.
    #[error("the lease has been revoked")]
    Revoked,
    /// The lease does not allow to write.
    #[error("the lease is one to read")]
    ReadOnly,
    /// Too many threads are in: try again.
    #[error("too many threads use the lease")]
    Crowded,
}

/// A shared word: an atomic, or the model checker's.
pub trait Word {
    /// [`AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;
    /// [`AtomicU64::store`].
    fn store(&self, value: u64, order: Ordering);
    /// [`AtomicU64::compare_exchange_weak`].
    ///
    /// # Errors
    /// The value that is there instead.
    fn exchange_weak(&self, old: u64, new: u64, success: Ordering) -> Result<u64, u64>;
    /// [`AtomicU64::fetch_or`].
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    /// [`AtomicU64::fetch_sub`].
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn exchange_weak(&self, old: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        self.compare_exchange_weak(old, new, success, Ordering::Relaxed)
    }

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }

    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }
}

/// A thread of the library enters: it may use the lease until [`leave`].
///
/// # Errors
/// [`Refused`]; the thread is not in then.
#[inline]
pub fn enter(word: &impl Word, generation: u32, needs: Kind) -> Result<(), Refused> {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        if seen & REVOKED != 0 || generation_of(seen) != generation {
            return Err(Refused::Revoked);
        }
        if needs == Kind::Write && seen & WRITE == 0 {
            return Err(Refused::ReadOnly);
        }
        if seen & IN == IN {
            return Err(Refused::Crowded);
        }
        match word.exchange_weak(seen, seen + 1, Ordering::Acquire) {
            Ok(_) => return Ok(()),
            Err(other) => seen = other,
        }
    }
}

/// A thread that is in leaves. Everything that it has stored is visible to whoever revokes the lease.
#[inline]
pub fn leave(word: &impl Word) {
    word.fetch_sub(1, Ordering::Release);
}

/// The server takes the lease back: nobody enters any more. Those who are in may still be.
pub fn revoke(word: &impl Word) {
    word.fetch_or(REVOKED, Ordering::Relaxed);
}

/// The server asks whether nobody is in. After [`revoke`] it stays so, and everything that was stored by those who were
/// in is visible.
pub fn is_empty(word: &impl Word) -> bool {
    word.load(Ordering::Acquire) & IN == 0
}

/// True if the lease can be entered.
pub fn is_granted(word: &impl Word) -> bool {
    word.load(Ordering::Relaxed) & REVOKED == 0
}

/// The server grants a lease at a place that is revoked and empty. `generation` is one that the place has not had.
pub fn grant(word: &impl Word, generation: u32, kind: Kind) {
    let kind = if kind == Kind::Write { WRITE } else { 0 };
    word.store(u64::from(generation) << GENERATION_SHIFT | kind, Ordering::Release);
}

/// The server closes a place, whatever is in its word: nobody is in, and nobody enters.
pub fn close(word: &impl Word, generation: u32) {
    word.store(u64::from(generation) << GENERATION_SHIFT | REVOKED, Ordering::Release);
}

/// The newest generation of a place.
pub fn generation(word: &impl Word) -> u32 {
    generation_of(word.load(Ordering::Acquire))
}

fn generation_of(word: u64) -> u32 {
    (word >> GENERATION_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_entered_only_with_its_generation_and_for_what_it_allows() {
        let word = AtomicU64::new(0);
        grant(&word, 7, Kind::Read);
        assert_eq!(enter(&word, 6, Kind::Read), Err(Refused::Revoked));
        assert_eq!(enter(&word, 7, Kind::Write), Err(Refused::ReadOnly));
        assert_eq!((enter(&word, 7, Kind::Read), is_empty(&word)), (Ok(()), false));
        revoke(&word);
        assert_eq!(enter(&word, 7, Kind::Read), Err(Refused::Revoked));
        assert!(!is_empty(&word) && !is_granted(&word), "who is in may stay");
        leave(&word);
        assert!(is_empty(&word));
        grant(&word, 8, Kind::Write);
        assert_eq!(enter(&word, 8, Kind::Write), Ok(()));
    }

    #[test]
    fn the_count_of_threads_never_reaches_the_other_bits() {
        let word = AtomicU64::new(0);
        grant(&word, 1, Kind::Read);
        (0..IN).for_each(|_| assert_eq!(enter(&word, 1, Kind::Read), Ok(())));
        assert_eq!(enter(&word, 1, Kind::Read), Err(Refused::Crowded));
        leave(&word);
        assert_eq!(enter(&word, 1, Kind::Read), Ok(()));
        assert!(is_granted(&word));
    }
}
