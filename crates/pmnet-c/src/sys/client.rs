//! The client's calls.

use super::guard::{guarded, poisoned};
use super::options;
use super::pointers::{bytes, place, reference, text};
use crate::abi::{ClientOptions, Code};
use crate::client::{Client, OpenSession, address};
use crate::error::CallError;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;

/// `PMNet_client`.
#[derive(Debug)]
pub struct ClientHandle(Client);

/// `PMNet_session`.
#[derive(Debug)]
pub struct SessionHandle(Mutex<OpenSession>);

// Handles may be used from any thread.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<ClientHandle>();
    is_shared::<SessionHandle>();
};

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_client_open(
    server: *const c_char,
    devices: u32,
    options: *const ClientOptions,
    client: *mut *mut ClientHandle,
) -> c_int {
    guarded(|| {
        let client = place(client, "client")?;
        // SAFETY: promised by the caller.
        let server = address(unsafe { text(server, "server")? })?;
        // SAFETY: promised by the caller.
        let options = unsafe { options::client(server, devices, options)? };
        let handle = Box::new(ClientHandle(Client { options }));
        // SAFETY: not null; the caller guarantees that it points to room for a pointer.
        unsafe { client.write(Box::into_raw(handle)) };
        Ok(Code::Ok)
    })
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says: null, or a handle that was not closed and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_client_close(client: *mut ClientHandle) {
    guarded(|| {
        if !client.is_null() {
            // SAFETY: handles come from `Box::into_raw`, and this handle is not used again.
            drop(unsafe { Box::from_raw(client) });
        }
        Ok(Code::Ok)
    });
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_start_session(
    client: *mut ClientHandle,
    session: *mut *mut SessionHandle,
) -> c_int {
    guarded(|| {
        let session = place(session, "session")?;
        // SAFETY: promised by the caller.
        let client = unsafe { reference(client.cast_const(), "client")? };
        let handle = Box::new(SessionHandle(Mutex::new(client.0.start_session()?)));
        // SAFETY: not null; the caller guarantees that it points to room for a pointer.
        unsafe { session.write(Box::into_raw(handle)) };
        Ok(Code::Ok)
    })
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_send_update(
    session: *mut SessionHandle,
    request: *const c_void,
    len: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let (session, request) = unsafe { both(session, request, len)? };
        session.0.lock().map_err(poisoned)?.update(request)?;
        Ok(Code::Ok)
    })
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_queue_update(
    session: *mut SessionHandle,
    request: *const c_void,
    len: usize,
    id: *mut u64,
) -> c_int {
    guarded(|| {
        let id = place(id, "id")?;
        // SAFETY: promised by the caller.
        let (session, request) = unsafe { both(session, request, len)? };
        let queued = session.0.lock().map_err(poisoned)?.queue(request)?;
        // SAFETY: not null; the caller guarantees that it points to room for a number.
        unsafe { id.write(queued) };
        Ok(Code::Ok)
    })
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_wait(session: *mut SessionHandle, id: u64) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let session = unsafe { reference(session.cast_const(), "session")? };
        session.0.lock().map_err(poisoned)?.wait(id)?;
        Ok(Code::Ok)
    })
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_bypass(
    session: *mut SessionHandle,
    request: *const c_void,
    len: usize,
    response: *mut *const u8,
    response_len: *mut usize,
) -> c_int {
    guarded(|| {
        let (to, to_len) = (place(response, "response")?, place(response_len, "response_len")?);
        // SAFETY: promised by the caller.
        let (session, request) = unsafe { both(session, request, len)? };
        let mut open = session.0.lock().map_err(poisoned)?;
        let response = open.bypass(request)?;
        // SAFETY: not null; the caller guarantees room for a pointer and a number.
        unsafe {
            to.write(response.as_ptr());
            to_len.write(response.len());
        }
        Ok(Code::Ok)
    })
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says: null, or a handle that was not ended and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_end_session(session: *mut SessionHandle) -> c_int {
    guarded(|| {
        let session = place(session, "session")?;
        // SAFETY: handles come from `Box::into_raw`, and this handle is not used again.
        let session = unsafe { Box::from_raw(session) };
        session.0.into_inner().map_err(poisoned)?.end()?;
        Ok(Code::Ok)
    })
}

/// # Safety
/// As `pmnet.h` says of calls with a session and a request.
unsafe fn both<'a>(
    session: *mut SessionHandle,
    request: *const c_void,
    len: usize,
) -> Result<(&'a SessionHandle, &'a [u8]), CallError> {
    // SAFETY: promised by the caller.
    unsafe { Ok((reference(session.cast_const(), "session")?, bytes(request, len, "request")?)) }
}
