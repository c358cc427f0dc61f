//! How long a body is, and what becomes of the connection (RFC 9112, sections 6 and 9; RFC 9110, section 10.1.1).

use crate::error::HttpError;
use crate::limits::Limits;
use crate::request::{Request, Version};

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By its length, bytes; 0 where there is no body.
    Length(usize),
    /// By its last chunk.
    Chunked,
}

/// The framing of a request. Anything that another recipient could take for a different one is refused.
pub(crate) fn of(request: &Request, limits: &Limits) -> Result<Framing, HttpError> {
    if is_chunked(request)? {
        return Ok(Framing::Chunked);
    }
    check_length(content_length(request)?.unwrap_or(0), limits)
}

fn check_length(length: u64, limits: &Limits) -> Result<Framing, HttpError> {
    let length = usize::try_from(length).ok().filter(|len| *len <= limits.body_bytes_max);
    length.map(Framing::Length).ok_or(HttpError::new(413, "body too large"))
}

/// True for `Transfer-Encoding: chunked`, which alone is known, and which excludes a `Content-Length`.
fn is_chunked(request: &Request) -> Result<bool, HttpError> {
    if request.header("transfer-encoding").is_none() {
        return Ok(false);
    }
    if request.version == Version::Http10 {
        return Err(HttpError::bad("Transfer-Encoding in HTTP/1.0"));
    }
    if request.header("content-length").is_some() {
        return Err(HttpError::bad("both Content-Length and Transfer-Encoding"));
    }
    let mut codings = request.header_values("transfer-encoding").flat_map(list);
    match (codings.next(), codings.next()) {
        (None, _) => Err(HttpError::bad("empty Transfer-Encoding")),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(HttpError::new(501, "only the chunked transfer coding is known")),
    }
}

/// The length that all of `Content-Length` agree on.
fn content_length(request: &Request) -> Result<Option<u64>, HttpError> {
    let mut length = None;
    for text in request.header_values("content-length").flat_map(|value| value.split(|b| *b == b',')) {
        let found = parse_length(text.trim_ascii())?;
        if length.replace(found).is_some_and(|known| known != found) {
            return Err(HttpError::bad("differing Content-Length"));
        }
    }
    Ok(length)
}

/// Digits and nothing else; a length beyond 64 bits is a length all the same, and too large.
fn parse_length(text: &[u8]) -> Result<u64, HttpError> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(HttpError::bad("malformed Content-Length"));
    }
    let append = |n: u64, digit: &u8| n.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    text.iter().try_fold(0, append).ok_or(HttpError::new(413, "body too large"))
}

/// True if the client waits for `100 Continue`.
pub(crate) fn expects_continue(request: &Request) -> Result<bool, HttpError> {
    let mut expectations = request.header_values("expect").flat_map(list).peekable();
    if request.version == Version::Http10 || expectations.peek().is_none() {
        return Ok(false);
    }
    if expectations.all(|expectation| expectation.eq_ignore_ascii_case(b"100-continue")) {
        return Ok(true);
    }
    Err(HttpError::new(417, "unknown expectation"))
}

/// True if the connection may carry another request (RFC 9112, section 9.3).
pub(crate) fn keep_alive(request: &Request) -> bool {
    let has = |option: &[u8]| {
        request.header_values("connection").flat_map(list).any(|found| found.eq_ignore_ascii_case(option))
    };
    !has(b"close") && (request.version == Version::Http11 || has(b"keep-alive"))
}

/// The elements of a comma-separated list; empty ones are skipped (RFC 9110, section 5.6.1.2).
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}
