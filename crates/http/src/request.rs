//! A parsed request.

use std::ops::Range;

use smallvec::SmallVec;

use crate::method::Method;
use crate::response::Connection;
use crate::span::Fields;
use crate::target::Target;

/// Version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// A whole request. It owns its head; its body lies in the chain that was parsed.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Version.
    pub version: Version,
    /// True if the connection may carry another request after this one.
    pub keep_alive: bool,
    /// Where the body lies: stream offsets, in order; one range a chunk. Empty without a body.
    pub body: SmallVec<[Range<usize>; 1]>,
    /// Length of the body, bytes: the sum over `body`.
    pub body_len: usize,
    /// Stream offset of the first byte after the request.
    pub end: usize,
    head: Vec<u8>,
    target: Target,
    fields: Fields,
}

impl Request {
    /// A request without a body.
    pub(crate) fn new(
        head: Vec<u8>,
        method: Method,
        version: Version,
        target: Target,
        fields: Fields,
    ) -> Self {
        let (keep_alive, body, body_len, end) = (false, SmallVec::new(), 0, 0);
        Self { method, version, keep_alive, body, body_len, end, head, target, fields }
    }

    /// The path as it was sent, percent-encoded; starts with `/`, or is `*`. See [`decode_path`].
    ///
    /// [`decode_path`]: crate::decode_path
    pub fn path(&self) -> &[u8] {
        match self.target.path.bytes(&self.head) {
            [] => b"/",
            path => path,
        }
    }

    /// What follows the `?`, as it was sent. See [`query_pairs`].
    ///
    /// [`query_pairs`]: crate::query_pairs
    pub fn query(&self) -> Option<&[u8]> {
        self.target.query.map(|query| query.bytes(&self.head))
    }

    /// The value of the first field of that name, in any case, without surrounding blanks.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_values(name).next()
    }

    /// The values of every field of that name, in any case, in order.
    pub fn header_values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let is_named = move |(found, _): &(&[u8], &[u8])| found.eq_ignore_ascii_case(name.as_bytes());
        self.headers().filter(is_named).map(|(_, value)| value)
    }

    /// Names and values of the header fields, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.bytes(&self.head), field.value.bytes(&self.head)))
    }

    /// What the reply has to say about the connection.
    pub fn connection(&self) -> Connection {
        match (self.keep_alive, self.version) {
            (false, _) => Connection::Close,
            (true, Version::Http10) => Connection::KeepAlive,
            (true, Version::Http11) => Connection::Implied,
        }
    }
}
