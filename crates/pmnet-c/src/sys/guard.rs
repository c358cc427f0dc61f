//! Runs calls so that errors and panics become results, and keeps the last error of each thread.

use crate::abi::Code;
use crate::error::CallError;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST_ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// The message of the last error on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn PMNet_last_error() -> *const c_char {
    // The string's bytes do not move until the next error.
    let text = LAST_ERROR.try_with(|text| text.borrow().as_ref().map(|text| text.as_ptr()));
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

/// Runs a call. Stores its error for [`PMNet_last_error`]; a panic becomes an error, too.
pub(super) fn guarded(call: impl FnOnce() -> Result<Code, CallError>) -> c_int {
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

pub(super) fn poisoned<T>(_: T) -> CallError {
    CallError::Panicked { message: "an earlier call on this handle has panicked".to_owned() }
}
