//! Prefetching: bringing bytes into the cache before they are read.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

const LINE: usize = 64;

/// Starts to fetch `bytes` into the cache, so that other work hides the memory latency. Only a hint.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    prefetch_at(bytes.as_ptr().addr(), bytes.len());
}

/// [`prefetch`] of the cache line in which a value starts.
#[inline]
pub fn prefetch_line<T>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).addr(), 1);
}

/// [`prefetch`] of the `len` bytes at an address. An unmapped address is harmless.
#[inline]
pub fn prefetch_at(addr: usize, len: usize) {
    let mut line = addr / LINE * LINE;
    while line < addr + len {
        // SAFETY: a prefetch reads nothing and faults on nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(line)) };
        line += LINE;
    }
}
