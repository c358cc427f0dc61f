//! The exported calls: pointers become references, results become numbers, and panics are caught.
//!
//! Unsafe code is needed here, because the pointers of a C caller cannot be checked. `pmnet.h` says what callers
//! must guarantee: a pointer is null or points to what the header says, and a handle was returned by the library and
//! is not closed.
#![allow(unsafe_code)]

mod client;
mod guard;
mod options;
mod pointers;
mod server;

pub use client::{
    PMNet_bypass, PMNet_client_close, PMNet_client_open, PMNet_end_session, PMNet_queue_update,
    PMNet_send_update, PMNet_start_session, PMNet_wait,
};
pub use guard::PMNet_last_error;
pub use server::{
    PMNet_ack, PMNet_fail, PMNet_recv, PMNet_respond, PMNet_server_address, PMNet_server_close,
    PMNet_server_open,
};

use crate::abi::Code;
use std::ffi::{CStr, c_char, c_int};

/// The library's version.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

/// The name of a result.
#[unsafe(no_mangle)]
pub extern "C" fn PMNet_result_name(result: c_int) -> *const c_char {
    let code = Code::ALL.into_iter().find(|code| code.number() == result);
    code.map_or(c"unknown", Code::name).as_ptr()
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn PMNet_version() -> *const c_char {
    VERSION.as_ptr()
}
