//! Structures and numbers that cross the boundary, as `pmnet.h` declares them; it says what they mean.

use std::ffi::{CStr, c_char, c_int};

/// `PMNET_KEY_BYTES`.
pub const KEY_BYTES: usize = 20;
/// `PMNET_ROW_BYTES`.
pub const ROW_BYTES: usize = landfall_pmnet::SessionRow::BYTES;
/// `PMNET_SPIN_ALWAYS`.
pub const SPIN_ALWAYS: u32 = u32::MAX;

/// What calls return.
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
    /// All of them.
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

    /// The number that C sees.
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

/// Kinds of requests.
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
    /// Bytes of the structure that the caller knows.
    pub size: usize,
    /// An address, or null.
    pub bind: *const c_char,
    /// Bytes.
    pub mtu: u32,
    /// Packets.
    pub window: u32,
    /// Requests.
    pub requests_max: u32,
    /// Milliseconds.
    pub give_up_ms: u32,
    /// Microseconds, or [`SPIN_ALWAYS`].
    pub spin: u32,
    /// Zero.
    pub reserved: u32,
    /// A path, or null.
    pub key_file: *const c_char,
}

/// `PMNet_server_options`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ServerOptions {
    /// Bytes of the structure that the caller knows.
    pub size: usize,
    /// Rows, one behind the other, or null.
    pub rows: *const u8,
    /// How many.
    pub rows_count: usize,
    /// The floor.
    pub floor: u32,
    /// Bytes.
    pub mtu: u32,
    /// Sessions.
    pub sessions_max: u32,
    /// Requests.
    pub batch_max: u32,
    /// Whether sessions may begin with an update.
    pub foreign: u32,
    /// Microseconds, or [`SPIN_ALWAYS`].
    pub spin: u32,
    /// A path, or null.
    pub key_file: *const c_char,
}

/// `PMNet_request`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// Its name.
    pub id: u64,
    /// A [`Kind`].
    pub kind: u32,
    /// Whether the response to a bypass is lost.
    pub lost: u32,
    /// What the client has sent.
    pub bytes: *const u8,
    /// Bytes of it.
    pub len: usize,
    /// [`KEY_BYTES`].
    pub key: *const u8,
    /// [`ROW_BYTES`].
    pub row: *const u8,
    /// Keys, one behind the other.
    pub evicted: *const u8,
    /// How many.
    pub evicted_count: usize,
    /// The floor.
    pub floor: u32,
    /// Requests of the batch that have not been handed out.
    pub behind: u32,
}
