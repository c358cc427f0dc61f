//! What a peer may ask a parser to hold.

/// No head may be longer, whatever `Limits::head_bytes_max` says, bytes.
pub const HEAD_BYTES_CAP: usize = 16 << 20;

/// No head may have more header fields, whatever `Limits::headers_max` says.
pub const HEADERS_CAP: usize = 128;

/// What a peer may ask the parser to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest head: request line and header fields, bytes; at most [`HEAD_BYTES_CAP`].
    pub head_bytes_max: usize,
    /// Most header fields; at most [`HEADERS_CAP`]. Also bounds the fields of a trailer.
    pub headers_max: usize,
    /// Longest body, without chunk headers, bytes.
    pub body_bytes_max: usize,
    /// Longest path once percent-decoded, bytes.
    pub key_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 64 << 10,
            headers_max: 100,
            body_bytes_max: 512 << 20,
            key_bytes_max: 64 << 10,
        }
    }
}
