//! The pointers of callers, as references and values.

use crate::error::CallError;
use std::ffi::{CStr, c_char, c_void};

/// # Safety
/// `pointer` is null or points to a `T` that nobody changes or frees for as long as `'a` is used.
pub(super) unsafe fn reference<'a, T>(pointer: *const T, name: &'static str) -> Result<&'a T, CallError> {
    // SAFETY: promised by the caller.
    unsafe { pointer.as_ref() }.ok_or(CallError::Null(name))
}

/// Checks that a pointer to a result is not null.
pub(super) fn place<T>(pointer: *mut T, name: &'static str) -> Result<*mut T, CallError> {
    if pointer.is_null() { Err(CallError::Null(name)) } else { Ok(pointer) }
}

/// # Safety
/// `pointer` is null or points to `len` bytes that nobody changes or frees for as long as `'a` is used.
pub(super) unsafe fn bytes<'a>(
    pointer: *const c_void,
    len: usize,
    name: &'static str,
) -> Result<&'a [u8], CallError> {
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
pub(super) unsafe fn text<'a>(pointer: *const c_char, name: &'static str) -> Result<&'a str, CallError> {
    if pointer.is_null() {
        return Err(CallError::Null(name));
    }
    // SAFETY: not null; the caller guarantees the remaining conditions.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| CallError::Address { text: text.to_string_lossy().into_owned() })
}
