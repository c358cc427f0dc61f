//! Request line and header fields.

use std::mem::MaybeUninit;

use httparse::{Error, Header, Status};

use crate::error::HttpError;
use crate::framing::{self, Framing};
use crate::limits::{HEADERS_CAP, Limits};
use crate::method::Method;
use crate::request::{Request, Version};
use crate::span::{Field, Fields, Span};
use crate::target;

/// A head that has been read.
pub(crate) struct Head {
    pub(crate) request: Request,
    pub(crate) framing: Framing,
    pub(crate) expects_continue: bool,
}

/// Reads a whole head, from its request line to its empty line.
pub(crate) fn parse(bytes: Vec<u8>, limits: &Limits) -> Result<Head, HttpError> {
    let (method, version, target, fields) = split(&bytes, limits)?;
    let target = target::parse(&bytes, target, &method, limits)?;
    let mut request = Request::new(bytes, method, version, target, fields);
    check_host(&request)?;
    let framing = framing::of(&request, limits)?;
    let expects_continue = framing::expects_continue(&request)?;
    request.keep_alive = framing::keep_alive(&request);
    Ok(Head { request, framing, expects_continue })
}

/// Splits a head into its parts.
fn split(bytes: &[u8], limits: &Limits) -> Result<(Method, Version, Span, Fields), HttpError> {
    let mut slots = [const { MaybeUninit::uninit() }; HEADERS_CAP];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(bytes, &mut slots[..limits.headers_max]);
    // It ends where we say that it does, or one of us is wrong about what a line is.
    if status.map_err(|error| explain(error, bytes))? != Status::Complete(bytes.len()) {
        return Err(HttpError::bad("malformed head"));
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(HttpError::bad("malformed request line"));
    };
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let field = |header: &Header<'_>| Field {
        name: Span::of(bytes, header.name.as_bytes()),
        value: Span::of(bytes, header.value),
    };
    let fields = parsed.headers.iter().map(field).collect();
    Ok((Method::from_token(method), version, Span::of(bytes, target.as_bytes()), fields))
}

/// What the parser's error means to the client.
fn explain(error: Error, head: &[u8]) -> HttpError {
    match error {
        Error::TooManyHeaders => HttpError::new(431, "too many header fields"),
        Error::HeaderName => HttpError::bad("malformed or folded header field"),
        Error::HeaderValue => HttpError::bad("malformed header value"),
        Error::NewLine => HttpError::bad("bare CR"),
        Error::Version if names_other_version(head) => {
            HttpError::new(505, "only HTTP/1.1 and HTTP/1.0 are spoken")
        }
        _ => HttpError::bad("malformed request line"),
    }
}

/// True for a request line that is well-formed but for a version that is not spoken.
fn names_other_version(head: &[u8]) -> bool {
    let line = head.trim_ascii_start().split(|b| *b == b'\r').next().unwrap_or(head);
    let mut parts = line.split(|b| *b == b' ').skip(2);
    let (version, rest) = (parts.next(), parts.next());
    let is_version = matches!(version, Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
        if major.is_ascii_digit() && minor.is_ascii_digit());
    is_version && rest.is_none()
}

/// One `Host`, of characters that a host may have; in HTTP/1.0 it may be absent (RFC 9112, section 3.2).
fn check_host(request: &Request) -> Result<(), HttpError> {
    let mut hosts = request.header_values("host");
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version == Version::Http11 => Err(HttpError::bad("missing Host")),
        (_, Some(_)) => Err(HttpError::bad("more than one Host")),
        (Some(host), None) if !host.iter().all(|b| target::is_host_byte(*b)) => {
            Err(HttpError::bad("malformed Host"))
        }
        _ => Ok(()),
    }
}

/// Checks the fields of a trailer section, which ends with an empty line.
pub(crate) fn check_fields(section: &[u8], limits: &Limits) -> Result<(), HttpError> {
    let mut slots = [httparse::EMPTY_HEADER; HEADERS_CAP];
    match httparse::parse_headers(section, &mut slots[..limits.headers_max]) {
        Ok(Status::Complete((len, _))) if len == section.len() => Ok(()),
        Ok(_) => Err(HttpError::bad("malformed trailer")),
        Err(error) => Err(explain(error, &[])),
    }
}
