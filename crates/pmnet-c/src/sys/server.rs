//! The server's calls.

use super::guard::{guarded, poisoned};
use super::options;
use super::pointers::{bytes, place, reference, text};
use crate::abi::{self, Code, KEY_BYTES, ServerOptions};
use crate::client::address;
use crate::error::CallError;
use crate::server::{Answer, Piece, Running};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// `PMNet_server`.
#[derive(Debug)]
pub struct ServerHandle {
    running: Running,
    address: CString,
    /// The requests that the application has received and has not answered.
    held: Mutex<BTreeMap<u64, Arc<Held>>>,
}

/// A request, and the piece that its pointers refer to.
#[derive(Debug)]
struct Held {
    request: abi::Request,
    _piece: Arc<Piece>,
}

// SAFETY: the pointers refer to the piece in this structure, which is never changed.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

// Handles may be used from any thread.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<ServerHandle>();
};

impl Held {
    fn new(piece: Arc<Piece>, behind: u32) -> Self {
        let request = abi::Request {
            id: piece.id,
            kind: piece.kind as u32,
            lost: piece.lost.into(),
            bytes: piece.bytes.as_ptr(),
            len: piece.bytes.len(),
            key: piece.key.as_ptr(),
            row: piece.row.as_ptr(),
            evicted: piece.evicted.as_ptr(),
            evicted_count: piece.evicted.len() / KEY_BYTES,
            floor: piece.floor,
            behind,
        };
        Self { request, _piece: piece }
    }
}

impl ServerHandle {
    fn answer(&self, id: u64, answer: Answer<'_>) -> Result<Code, CallError> {
        self.running.answer(id, answer)?;
        self.held.lock().map_err(poisoned)?.remove(&id);
        Ok(Code::Ok)
    }
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_server_open(
    listen: *const c_char,
    options: *const ServerOptions,
    server: *mut *mut ServerHandle,
) -> c_int {
    guarded(|| {
        let server = place(server, "server")?;
        // SAFETY: promised by the caller.
        let listen = address(unsafe { text(listen, "listen")? })?;
        // SAFETY: promised by the caller.
        let (options, rows, floor) = unsafe { options::server(listen, options)? };
        let running = Running::open(options, rows, floor)?;
        let address = CString::new(running.address.to_string()).unwrap_or_default();
        let handle = Box::new(ServerHandle { running, address, held: Mutex::default() });
        // SAFETY: not null; the caller guarantees that it points to room for a pointer.
        unsafe { server.write(Box::into_raw(handle)) };
        Ok(Code::Ok)
    })
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_server_address(server: *const ServerHandle) -> *const c_char {
    // SAFETY: promised by the caller.
    unsafe { server.as_ref() }.map_or(null(), |server| server.address.as_ptr())
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_recv(
    server: *mut ServerHandle,
    timeout_ms: c_int,
    request: *mut *const abi::Request,
) -> c_int {
    guarded(|| {
        let request = place(request, "request")?;
        // SAFETY: promised by the caller.
        let server = unsafe { reference(server.cast_const(), "server")? };
        let most = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let Some((piece, behind)) = server.running.recv(most)? else { return Ok(Code::Again) };
        let (id, held) = (piece.id, Arc::new(Held::new(piece, behind)));
        let pointer = &raw const held.request;
        server.held.lock().map_err(poisoned)?.insert(id, held);
        // SAFETY: not null; the caller guarantees that it points to room for a pointer.
        unsafe { request.write(pointer) };
        Ok(Code::Ok)
    })
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_ack(server: *mut ServerHandle, id: u64) -> c_int {
    // SAFETY: promised by the caller.
    guarded(|| unsafe { reference(server.cast_const(), "server")? }.answer(id, Answer::Committed))
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_respond(
    server: *mut ServerHandle,
    id: u64,
    response: *const c_void,
    len: usize,
    changed: c_int,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let server = unsafe { reference(server.cast_const(), "server")? };
        // SAFETY: promised by the caller.
        let bytes = unsafe { bytes(response, len, "response")? };
        server.answer(id, Answer::Response { bytes, changed: changed != 0 })
    })
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_fail(server: *mut ServerHandle, id: u64) -> c_int {
    // SAFETY: promised by the caller.
    guarded(|| unsafe { reference(server.cast_const(), "server")? }.answer(id, Answer::Failed))
}

/// See `pmnet.h`.
///
/// # Safety
/// As the header says: null, or a handle that was not closed and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMNet_server_close(server: *mut ServerHandle) {
    guarded(|| {
        if !server.is_null() {
            // SAFETY: handles come from `Box::into_raw`, and this handle is not used again.
            drop(unsafe { Box::from_raw(server) });
        }
        Ok(Code::Ok)
    });
}
