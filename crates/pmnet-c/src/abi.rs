//! Structures and numbers of the C interface. `pmnet.h` declares and explains them.

use std::ffi::{CStr, c_char, c_int};

/// `PMNET_KEY_BYTES`.
pub const KEY_BYTES: usize = 20;
/// `PMNET_ROW_BYTES`.
pub const ROW_BYTES: usize = landfall_pmnet::SessionRow::BYTES;
/// `PMNET_SPIN_ALWAYS`.
pub const SPIN_ALWAYS: u32 = u32::MAX;
/// `PMNET_NO_DEVICES`.
pub const NO_DEVICES: u32 = u32::MAX;

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// `PMNET_OK`.
    Ok = 0,
    /// `PMNET_AGAIN`.
    Again = 1,
    /// `PMNET_E_ARGUMENT`.
    Argument = -1,
    /// `PMNET_E_MISUSE`.
    Misuse = -2,
    /// `PMNET_E_TOO_LARGE`.
    TooLarge = -3,
    /// `PMNET_E_FULL`.
    Full = -4,
    /// `PMNET_E_EXHAUSTED`.
    Exhausted = -5,
    /// `PMNET_E_ENDED`.
    Ended = -6,
    /// `PMNET_E_REFUSED`.
    Refused = -7,
    /// `PMNET_E_NO_ANSWER`.
    NoAnswer = -8,
    /// `PMNET_E_SYSTEM`.
    System = -9,
    /// `PMNET_E_INTERNAL`.
    Internal = -10,
}

impl Code {
    /// Every result.
    pub const ALL: [Self; 12] = [
        Self::Ok,
        Self::Again,
        Self::Argument,
        Self::Misuse,
        Self::TooLarge,
        Self::Full,
        Self::Exhausted,
        Self::Ended,
        Self::Refused,
        Self::NoAnswer,
        Self::System,
        Self::Internal,
    ];

    /// The value in `pmnet.h`.
    pub fn number(self) -> c_int {
        self as c_int
    }

    /// The name in `pmnet.h`.
    pub fn name(self) -> &'static CStr {
        match self {
            Self::Ok => c"PMNET_OK",
            Self::Again => c"PMNET_AGAIN",
            Self::Argument => c"PMNET_E_ARGUMENT",
            Self::Misuse => c"PMNET_E_MISUSE",
            Self::TooLarge => c"PMNET_E_TOO_LARGE",
            Self::Full => c"PMNET_E_FULL",
            Self::Exhausted => c"PMNET_E_EXHAUSTED",
            Self::Ended => c"PMNET_E_ENDED",
            Self::Refused => c"PMNET_E_REFUSED",
            Self::NoAnswer => c"PMNET_E_NO_ANSWER",
            Self::System => c"PMNET_E_SYSTEM",
            Self::Internal => c"PMNET_E_INTERNAL",
        }
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// `PMNET_UPDATE`.
    Update = 1,
    /// `PMNET_BYPASS`.
    Bypass = 2,
    /// `PMNET_ROW`.
    Row = 3,
}

/// `PMNet_client_options`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ClientOptions {
    /// Size of the structure that the caller knows, in bytes.
    pub size: usize,
    /// An address, or null.
    pub bind: *const c_char,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Update packets in flight.
    pub window: u32,
    /// Requests in the queue or not yet waited for.
    pub requests_max: u32,
    /// Time without an answer before the session fails, in milliseconds.
    pub give_up_ms: u32,
    /// Time to busy-poll in microseconds, or [`SPIN_ALWAYS`].
    pub spin: u32,
    /// Must be zero.
    pub reserved: u32,
    /// Path of the key file, or null.
    pub key_file: *const c_char,
}

/// `PMNet_server_options`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ServerOptions {
    /// Size of the structure that the caller knows, in bytes.
    pub size: usize,
    /// The stored rows, [`ROW_BYTES`] each, or null.
    pub rows: *const u8,
    /// Number of rows.
    pub rows_count: usize,
    /// The stored floor.
    pub floor: u32,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Most sessions.
    pub sessions_max: u32,
    /// Most requests in a batch.
    pub batch_max: u32,
    /// Not zero: accept sessions without a session start.
    pub foreign: u32,
    /// Time to busy-poll in microseconds, or [`SPIN_ALWAYS`].
    pub spin: u32,
    /// Path of the key file, or null.
    pub key_file: *const c_char,
    /// Silence after which a session ends, in seconds. Zero: never.
    pub silence_seconds: u32,
    /// Devices that must hold nothing of a session that ends, or [`NO_DEVICES`].
    pub silence_devices: u32,
}

/// `PMNet_request`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// Names the request in later calls.
    pub id: u64,
    /// A [`Kind`].
    pub kind: u32,
    /// Not zero: the response to the bypass is lost.
    pub lost: u32,
    /// The request's bytes.
    pub bytes: *const u8,
    /// Length of `bytes`.
    pub len: usize,
    /// The session's key, [`KEY_BYTES`] bytes.
    pub key: *const u8,
    /// The row to store, [`ROW_BYTES`] bytes.
    pub row: *const u8,
    /// Keys of the rows to delete, [`KEY_BYTES`] each.
    pub evicted: *const u8,
    /// Number of these keys.
    pub evicted_count: usize,
    /// The floor to store.
    pub floor: u32,
    /// Number of requests of the batch that have not been handed out.
    pub behind: u32,
}
