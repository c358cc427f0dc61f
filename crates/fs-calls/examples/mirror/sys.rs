//! What the loader calls.

// The loader finds functions by the section that names them.
#![allow(unsafe_code)]

use crate::Mirror;
use std::sync::OnceLock;

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

static MIRROR: OnceLock<Option<Mirror>> = OnceLock::new();

extern "C" fn begin() {
    if let Some(mirror) = MIRROR.get_or_init(Mirror::new) {
        landfall_fs_calls::install(mirror);
    }
}
