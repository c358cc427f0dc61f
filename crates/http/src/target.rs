//! Request targets (RFC 9112, section 3.2).

use crate::error::HttpError;
use crate::limits::Limits;
use crate::method::Method;
use crate::span::Span;

/// Path and query of a target, as spans of the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Empty for an absolute form without a path, which means `/`.
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
}

/// Reads a target in origin, absolute or asterisk form.
pub(crate) fn parse(
    head: &[u8],
    target: Span,
    method: &Method,
    limits: &Limits,
) -> Result<Target, HttpError> {
    let text = target.bytes(head);
    if text.contains(&b'#') {
        return Err(HttpError::bad("fragment in request target"));
    }
    let rest = match text {
        b"*" if *method == Method::Options => text,
        [b'/', ..] => text,
        _ if matches!(method, Method::Other(name) if name == "CONNECT") => {
            return Err(HttpError::new(501, "CONNECT is not served"));
        }
        _ => strip_authority(text)?,
    };
    let (path, query) = match rest.iter().position(|b| *b == b'?') {
        Some(mark) => (&rest[..mark], Some(&rest[mark + 1..])),
        None => (rest, None),
    };
    check_path(path, limits)?;
    Ok(Target { path: Span::of(head, path), query: query.map(|query| Span::of(head, query)) })
}

/// What follows the authority of an absolute form; user information is refused (RFC 9110, section 4.2.4).
fn strip_authority(text: &[u8]) -> Result<&[u8], HttpError> {
    let malformed = HttpError::bad("malformed request target");
    let rest = strip_scheme(text).ok_or(malformed)?;
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    if authority.is_empty() || !authority.iter().all(|b| is_host_byte(*b)) {
        return Err(malformed);
    }
    Ok(rest)
}

fn strip_scheme(text: &[u8]) -> Option<&[u8]> {
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    let scheme =
        schemes.into_iter().find(|s| text.get(..s.len()).is_some_and(|t| t.eq_ignore_ascii_case(s)))?;
    Some(&text[scheme.len()..])
}

/// True for what a host and port may consist of (RFC 3986, section 3.2.2).
pub(crate) fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte)
}

/// Holds the decoded path to its limit; what is short as it is needs no count.
fn check_path(path: &[u8], limits: &Limits) -> Result<(), HttpError> {
    if path.len() <= limits.key_bytes_max {
        return Ok(());
    }
    let escapes = path.iter().filter(|b| **b == b'%').count();
    if path.len().saturating_sub(2 * escapes) > limits.key_bytes_max {
        return Err(HttpError::new(414, "path too long"));
    }
    Ok(())
}
