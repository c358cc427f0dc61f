//! What the loader calls.

// The loader finds functions by the section that names them.
#![allow(unsafe_code)]

use crate::library::Library;

static LIBRARY: Library = Library::new();

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    landfall_fs_calls::install(&LIBRARY);
}
