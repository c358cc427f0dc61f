//! Bringing bytes near before they are looked at.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

const LINE: usize = 64;

/// Has the core begin to fetch `bytes`, so that what is done meanwhile hides the time it takes. Only a hint.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        // SAFETY: a prefetch reads nothing and faults on nothing; the address lies in a borrowed slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}
