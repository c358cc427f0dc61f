//! The functions that are replaced.

use super::raw::{self, Arguments};
use crate::engine::Errno;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of the C library behind the one that replaces it.
pub(super) struct Real {
    name: &'static [u8],
    /// The system call that stands for it until it is found.
    number: Option<i64>,
    address: AtomicUsize,
}

/// What a function does that this C library does not have.
extern "C" fn absent() -> isize {
    raw::failed(Errno(libc::ENOSYS))
}

impl Real {
    /// The function of this name, which ends in a zero byte.
    pub(super) const fn new(name: &'static str, number: Option<i64>) -> Self {
        Self { name: name.as_bytes(), number, address: AtomicUsize::new(0) }
    }

    /// Its address.
    #[inline]
    pub(super) fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            address => address,
        }
    }

    /// Looks for it. That may allocate memory.
    #[cold]
    pub(super) fn find(&self) -> usize {
        let name = CStr::from_bytes_with_nul(self.name).unwrap_or(c"");
        // SAFETY: the name ends in a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.expose_provenance();
        let address = if found == 0 { absent as *const () as usize } else { found };
        self.address.store(address, Ordering::Relaxed);
        address
    }

    /// Calls it. Before it is found, the system call stands for it: looking for it could call it.
    ///
    /// # Safety
    /// The arguments are those of a caller of the function.
    #[inline]
    pub(super) unsafe fn call(&self, arguments: Arguments) -> isize {
        if let (0, Some(number)) = (self.address.load(Ordering::Relaxed), self.number) {
            // SAFETY: the caller vouches for the arguments.
            return unsafe { raw::as_function(number, arguments) };
        }
        type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> isize;
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: the address is that of a function, which ignores the registers that it does not use.
        let function = unsafe { std::mem::transmute::<usize, Function>(self.address()) };
        // SAFETY: the caller vouches for the arguments.
        unsafe { function(a, b, c, d, e, f) }
    }
}
