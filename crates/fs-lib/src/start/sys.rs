//! What the loader calls.

// The loader finds functions by the section that names them.
#![allow(unsafe_code)]

use crate::library::Library;
use std::ffi::CStr;

static LIBRARY: Library = Library::new();

/// The variable that says after how many writes to a file a lease of it is asked for.
const LEASE_AFTER: &CStr = c"LANDFALL_FS_LEASE_AFTER";

/// A variable of the environment that is a number.
fn number(name: &CStr) -> Option<u32> {
    // SAFETY: the loader calls `begin` while the process has one thread: nobody changes the environment meanwhile.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: what `getenv` returns ends with a NUL, and stays where it is, as above.
    unsafe { CStr::from_ptr(value) }.to_str().ok()?.parse().ok()
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    if let Some(writes) = number(LEASE_AFTER) {
        LIBRARY.lease_after(writes);
    }
    landfall_fs_calls::install(&LIBRARY);
}
