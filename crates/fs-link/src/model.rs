//! Model of a lease and of *appended*: a library and a server on two threads, in every order that the memory model
//! allows.

use crate::layout::SEALED;
use crate::lease::{self, Kind, Word};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn exchange_weak(&self, old: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        // loom's weak exchange fails at random, without an end.
        self.compare_exchange(old, new, success, Ordering::Relaxed)
    }

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }

    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }
}

/// Two slots of a log and what the lease protects. Loads of a slot may return anything that is not ordered.
#[derive(Clone)]
struct Link(Arc<Shared>);

struct Shared {
    word: AtomicU64,
    appended: AtomicU64,
    slots: [AtomicU64; 2],
}

impl Link {
    fn new() -> Self {
        let shared = Shared {
            word: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        lease::grant(&shared.word, 1, Kind::Write);
        Self(Arc::new(shared))
    }

    /// The library appends operations until the lease is gone. Returns how many.
    fn append_all(&self) -> u64 {
        for (index, slot) in (0..).zip(&self.0.slots) {
            if lease::enter(&self.0.word, 1, Kind::Write).is_err() {
                return index;
            }
            slot.store(index + 1, Ordering::Relaxed);
            let appended = &self.0.appended;
            let counts = appended.compare_exchange(index, index + 1, Ordering::Release, Ordering::Relaxed);
            lease::leave(&self.0.word);
            if counts.is_err() {
                return index;
            }
        }
        self.0.slots.len() as u64
    }

    /// The server adopts what it finds, without a lease. Returns how many operations that are.
    fn adopt(&self) -> u64 {
        let appended = self.0.appended.load(Ordering::Acquire) & !SEALED;
        for (index, slot) in (0..appended).zip(&self.0.slots) {
            assert_eq!(slot.load(Ordering::Relaxed), index + 1, "the operation is whole");
        }
        appended
    }

    /// The server takes the lease back, and adopts.
    fn revoke(&self) -> u64 {
        lease::revoke(&self.0.word);
        while !lease::is_empty(&self.0.word) {
            loom::thread::yield_now();
        }
        self.adopt()
    }
}

#[test]
fn whoever_revokes_a_lease_sees_every_operation_that_was_appended_under_it() {
    loom::model(|| {
        let link = Link::new();
        let library = loom::thread::spawn({
            let link = link.clone();
            move || link.append_all()
        });
        let before = link.adopt();
        let seen = link.revoke();
        assert!(before <= seen);
        assert_eq!(library.join().unwrap(), seen, "nothing is appended behind");
    });
}

/// Whoever is fenced is not waited for.
#[test]
fn a_library_that_is_fenced_knows_which_operations_count() {
    loom::model(|| {
        let link = Link::new();
        let library = loom::thread::spawn({
            let link = link.clone();
            move || link.append_all()
        });
        link.0.appended.fetch_or(SEALED, Ordering::AcqRel);
        let seen = link.adopt();
        assert_eq!(library.join().unwrap(), seen, "what was seen, and nothing else");
    });
}

#[test]
fn a_place_that_is_granted_again_is_closed_to_the_lease_before() {
    loom::model(|| {
        let link = Link::new();
        let library = loom::thread::spawn({
            let link = link.clone();
            move || link.append_all()
        });
        let seen = link.revoke();
        lease::grant(&link.0.word, 2, Kind::Write);
        assert_eq!(library.join().unwrap(), seen);
        assert_eq!(lease::enter(&link.0.word, 2, Kind::Write), Ok(()));
    });
}
