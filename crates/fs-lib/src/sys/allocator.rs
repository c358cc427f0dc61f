//! The library's own memory.
//!
//! A handler of a signal may write to a file while its thread is in the program's allocator. So the library must not call
//! that one: it takes memory from the kernel. A thread that answers a call keeps handlers out, so that none of them finds
//! the lock taken by its own thread.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sizes of small blocks: powers of two, from 16 B on.
const CLASSES: usize = 12;
const SMALLEST_BITS: u32 = 4;
/// Bytes that are taken from the kernel for small blocks at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Alignment of what the kernel gives.
const PAGE_BYTES: usize = 4096;

/// A free block.
struct Free {
    next: *mut Free,
}

struct Lists {
    free: [*mut Free; CLASSES],
    /// What is left of the newest chunk.
    chunk: *mut u8,
    chunk_len: usize,
}

/// Small blocks in lists by their size, large ones from the kernel.
struct Allocator {
    is_locked: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are accessed by whoever has the lock.
unsafe impl Sync for Allocator {}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator {
    is_locked: AtomicBool::new(false),
    lists: UnsafeCell::new(Lists { free: [null_mut(); CLASSES], chunk: null_mut(), chunk_len: 0 }),
};

/// The class of small blocks with room for a layout.
fn class_of(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(1 << SMALLEST_BITS).next_power_of_two();
    let class = (size.trailing_zeros() - SMALLEST_BITS) as usize;
    (class < CLASSES).then_some(class)
}

fn bytes_of(class: usize) -> usize {
    1 << (class + SMALLEST_BITS as usize)
}

fn from_kernel(len: usize) -> *mut u8 {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory at an address that the kernel chooses.
    let mapped = unsafe { mmap_anonymous(null_mut(), len, protection, MapFlags::PRIVATE) };
    mapped.map_or(null_mut(), |base| base.cast())
}

impl Allocator {
    fn with<T>(&self, call: impl FnOnce(&mut Lists) -> T) -> T {
        while self.is_locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: this thread has the lock.
        let done = call(unsafe { &mut *self.lists.get() });
        self.is_locked.store(false, Ordering::Release);
        done
    }
}

impl Lists {
    fn take(&mut self, class: usize) -> *mut u8 {
        let block = self.free[class];
        if block.is_null() {
            return self.cut(bytes_of(class));
        }
        // SAFETY: a block in a list begins with the link to the next one.
        self.free[class] = unsafe { (*block).next };
        block.cast()
    }

    /// Cuts a block from the chunk. Chunks begin at pages, and sizes are powers of two, so that each block is aligned to its
    /// size, or to a page, if the chunk's rest is a multiple of it: the rest that is not is left.
    fn cut(&mut self, len: usize) -> *mut u8 {
        let skip = self.chunk.addr().wrapping_neg() % len;
        if self.chunk.is_null() || self.chunk_len < skip + len {
            self.chunk = from_kernel(CHUNK_BYTES);
            if self.chunk.is_null() {
                self.chunk_len = 0;
                return null_mut();
            }
            self.chunk_len = CHUNK_BYTES;
            return self.cut_at(self.chunk.addr().wrapping_neg() % len, len);
        }
        self.cut_at(skip, len)
    }

    fn cut_at(&mut self, skip: usize, len: usize) -> *mut u8 {
        // SAFETY: the chunk has so many bytes: a new one is several times as long as the largest block.
        let block = unsafe { self.chunk.add(skip) };
        // SAFETY: as above.
        self.chunk = unsafe { block.add(len) };
        self.chunk_len -= skip + len;
        block
    }

    fn put(&mut self, class: usize, block: *mut u8) {
        let block: *mut Free = block.cast();
        // SAFETY: the caller gives the block back; it is at least as large and as aligned as a link.
        unsafe { block.write(Free { next: self.free[class] }) };
        self.free[class] = block;
    }
}

// SAFETY: blocks of a class have its size and alignment, and are in one place at a time: in use, or in a list. What the
// kernel gives is aligned to pages.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            Some(class) => self.with(|lists| lists.take(class)),
            None if layout.align() <= PAGE_BYTES => from_kernel(layout.size()),
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class_of(layout) {
            Some(class) => self.with(|lists| lists.put(class, block)),
            None => {
                // SAFETY: the block is a mapping of this size. If the kernel keeps it, it is lost to this process.
                let _ = unsafe { munmap(block.cast(), layout.size()) };
            }
        }
    }
}
