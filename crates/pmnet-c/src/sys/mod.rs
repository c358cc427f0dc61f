//! The exported calls: pointers become references, results become numbers, and panics are caught.
//!
//! Unsafe code is needed here, because the pointers of a C caller cannot be checked. `pmnet.h` says what callers
//! must guarantee: a pointer is null or points to what the header says, and a handle was returned by the library and
//! is not closed.
#![allow(unsafe_code)]

mod client;
mod options;
mod server;

pub use client::{
    PMNet_bypass, PMNet_client_close, PMNet_client_open, PMNet_end_session, PMNet_queue_update,
    PMNet_send_update, PMNet_start_session, PMNet_wait,
};
pub use server::{
    PMNet_ack, PMNet_fail, PMNet_recv, PMNet_respond, PMNet_server_address, PMNet_server_close,
    PMNet_server_open,
};

use crate::abi::Code;
use crate::error::CallError;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST_ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// The library's version.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

/// The message of the last error on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn PMNet_last_error() -> *const c_char {
    // The string's bytes do not move until the next error.
    let text = LAST_ERROR.try_with(|text| text.borrow().as_ref().map(|text| text.as_ptr()));
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

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

/// Runs a call. Stores its error for [`PMNet_last_error`]; a panic becomes an error, too.
fn guarded(call: impl FnOnce() -> Result<Code, CallError>) -> c_int {
    // After a panic the handle may only be closed: its locks are poisoned.
    let error = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => return code.number(),
        Ok(Err(error)) => error,
        Err(panic) => CallError::Panicked { message: message(&*panic) },
    };
    let text = CString::new(error.to_string().replace('\0', "?")).ok();
    // A thread that is ending has no more calls that could ask for the error.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
    error.code().number()
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic").to_owned()
}

fn poisoned<T>(_: T) -> CallError {
    CallError::Panicked { message: "an earlier call on this handle has panicked".to_owned() }
}

/// # Safety
/// `pointer` is null or points to a `T` that nobody changes or frees for as long as `'a` is used.
unsafe fn reference<'a, T>(pointer: *const T, name: &'static str) -> Result<&'a T, CallError> {
    // SAFETY: promised by the caller.
    unsafe { pointer.as_ref() }.ok_or(CallError::Null(name))
}

/// Checks that a pointer to a result is not null.
fn place<T>(pointer: *mut T, name: &'static str) -> Result<*mut T, CallError> {
    if pointer.is_null() { Err(CallError::Null(name)) } else { Ok(pointer) }
}

/// # Safety
/// `pointer` is null or points to `len` bytes that nobody changes or frees for as long as `'a` is used.
unsafe fn bytes<'a>(pointer: *const c_void, len: usize, name: &'static str) -> Result<&'a [u8], CallError> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(CallError::Null(name));
    }
    if isize::try_from(len).is_err() {
        return Err(CallError::Range {
            what: "a length",
            value: len as u64,
            range: "at most half of the address space",
        });
    }
    // SAFETY: not null and not too long; the caller guarantees the remaining conditions.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), len) })
}

/// # Safety
/// `pointer` is null or points to a string that ends with a zero byte and lives for as long as `'a` is used.
unsafe fn text<'a>(pointer: *const c_char, name: &'static str) -> Result<&'a str, CallError> {
    if pointer.is_null() {
        return Err(CallError::Null(name));
    }
    // SAFETY: not null; the caller guarantees the remaining conditions.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| CallError::Address { text: text.to_string_lossy().into_owned() })
}
