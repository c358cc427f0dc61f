//! Streamed scans: each page is one chunk.

use super::answer::{Answer, Failure};
use super::base64;
use super::params::{self, Format, ScanParams};
use crate::config::Config;
use crate::context::Context;
use crate::counters::count;
use crate::reply::Reply;
use crate::shared::Shared;
use landfall_heap::CopyPath;
use landfall_http::{Request, Version};
use landfall_kv::{Item, KvError, PageLimit};

/// Bytes of keys and values at which a page ends, at most.
const PAGE_BYTES_MAX: usize = 512 << 10;

/// Keys of a page, at most; the engine has its own limit, too.
const PAGE_KEYS_MAX: u64 = 256;

/// Hexadecimal digits of a chunk's length, which is reserved before the length is known.
const CHUNK_DIGITS: usize = 8;

/// A scan that is being streamed.
#[derive(Debug)]
pub(super) struct Scan {
    params: ScanParams,
    page_bytes: usize,
    chunked: bool,
    /// Every key has been visited: only the end of the connection remains to be requested.
    exhausted: bool,
    /// Whether the connection stays open after the stream.
    pub(super) keep_alive: bool,
}

/// Bytes at which a page ends. The limit is so low that a client is not cut off because of the size of a page.
pub(super) fn page_bytes(config: &Config) -> usize {
    PAGE_BYTES_MAX.min(usize::try_from(config.max_output.0 / 2).unwrap_or(PAGE_BYTES_MAX)).max(1)
}

/// Writes the head and the first page; returns the scan if there is more.
pub(super) fn begin(
    ctx: &mut Context<'_>,
    request: &Request,
    page_bytes: usize,
    answer: &mut Answer<'_, '_>,
) -> Result<Option<Scan>, Failure> {
    let params = params::scan(request.query(), request.header_values("accept"))?;
    let chunked = request.version == Version::Http11;
    let is_head = answer.is_head;
    if !chunked {
        answer.connection = landfall_http::Connection::Close;
    }
    let mut writer = answer.status(200);
    writer.header("Content-Type", params.format.content_type());
    if chunked {
        writer.chunked();
    } else {
        answer.reply.bytes().extend_from_slice(b"\r\n");
    }
    if is_head {
        return Ok(None);
    }
    let keep_alive = request.keep_alive && chunked;
    let mut scan = Scan { params, page_bytes, chunked, exhausted: false, keep_alive };
    // Without chunks the end of the connection is the end of the body, and only a scan in progress can request that.
    Ok((scan.page(ctx, answer.reply)? || !chunked).then_some(scan))
}

impl Scan {
    /// False if the body ends with the connection.
    pub(super) fn is_chunked(&self) -> bool {
        self.chunked
    }

    /// Appends the next page; false if it was the last one.
    pub(super) fn page(&mut self, ctx: &mut Context<'_>, reply: &mut Reply<'_>) -> Result<bool, Failure> {
        if self.exhausted {
            return Ok(false);
        }
        let keys = self.params.limit.min(PAGE_KEYS_MAX) as usize;
        let limit = PageLimit { keys, bytes: self.page_bytes, verify: !self.params.keys_only };
        let page = ctx.engine.page(&self.params.query, limit, ctx.now_ms)?.open(reply);
        count(&ctx.shared.counters.hits, page.items.len() as u64);
        self.params.limit -= page.items.len() as u64;
        if !page.items.is_empty() {
            self.chunk(ctx, reply, page.items);
        }
        self.exhausted = self.params.limit == 0 || page.last.is_none();
        if let Some(last) = page.last {
            self.params.query.resume_after(last);
        }
        if self.exhausted && self.chunked {
            reply.bytes().extend_from_slice(b"0\r\n\r\n");
        }
        Ok(!self.exhausted)
    }

    /// Writes one chunk. Its length is filled in after its bytes.
    fn chunk(
        &self,
        ctx: &Context<'_>,
        reply: &mut Reply<'_>,
        items: Vec<(Vec<u8>, Result<Item<'_>, KvError>)>,
    ) {
        let at = reply.bytes().len();
        if self.chunked {
            reply.bytes().extend_from_slice(b"00000000\r\n");
        }
        let start = reply.len();
        for (key, item) in items {
            match self.params.format {
                Format::Octets => self.octets(reply, &key, item),
                Format::Lines => self.line(ctx, reply, &key, item),
            }
        }
        if self.chunked {
            let digits = chunk_digits(reply.len() - start);
            reply.bytes()[at..at + CHUNK_DIGITS].copy_from_slice(&digits);
            reply.bytes().extend_from_slice(b"\r\n");
        }
    }

    fn octets(&self, reply: &mut Reply<'_>, key: &[u8], item: Result<Item<'_>, KvError>) {
        let mut digits = itoa::Buffer::new();
        let out = reply.bytes();
        out.extend_from_slice(digits.format(key.len()).as_bytes());
        if !self.params.keys_only {
            out.push(b' ');
            match &item {
                Ok(item) => out.extend_from_slice(digits.format(item.len).as_bytes()),
                Err(_) => out.extend_from_slice(b"damaged"),
            }
        }
        out.push(b'\n');
        out.extend_from_slice(key);
        match item {
            Ok(item) if !self.params.keys_only => reply.item(item),
            _ => {}
        }
        reply.bytes().push(b'\n');
    }

    fn line(&self, ctx: &Context<'_>, reply: &mut Reply<'_>, key: &[u8], item: Result<Item<'_>, KvError>) {
        reply.bytes().push(b'{');
        field(reply.bytes(), "key", key);
        if !self.params.keys_only {
            reply.bytes().push(b',');
            let value = match &item {
                Ok(item) if item.len > line_bytes_max(ctx.shared) => Err(TOO_LONG.to_owned()),
                Ok(item) => item.bytes().map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match value {
                Ok(value) => {
                    ctx.engine.heap().copies.add(CopyPath::Reply, value.len());
                    field(reply.bytes(), "value", &value);
                }
                Err(error) => field(reply.bytes(), "error", error.as_bytes()),
            }
        }
        reply.bytes().extend_from_slice(b"}\n");
    }
}

/// What a line of JSON says instead of a value, or an entry, that is longer than [`line_bytes_max`].
pub(super) const TOO_LONG: &str = "too long for a line of JSON: read it alone";

/// Bytes of a value that a line of JSON may have: it is encoded in memory, where it takes a third more, or twice as much.
pub(super) fn line_bytes_max(shared: &Shared) -> usize {
    shared.config.reply_memory_max() / 2
}

/// Eight hexadecimal digits; a page is far below 4 GiB. Leading zeros are allowed (RFC 9112, section 7.1).
fn chunk_digits(len: usize) -> [u8; CHUNK_DIGITS] {
    std::array::from_fn(|place| b"0123456789abcdef"[len >> (4 * (CHUNK_DIGITS - 1 - place)) & 0xf])
}

/// Appends `"name":"text"`, or `"name64":"…"` where the bytes are not UTF-8.
pub(super) fn field(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            out.extend_from_slice(b"\":");
            json_string(out, text);
        }
        Err(_) => {
            out.extend_from_slice(b"64\":\"");
            base64::encode(bytes, out);
            out.push(b'"');
        }
    }
}

/// Writes a JSON string (RFC 8259, section 7) with quotes, backslashes and control characters escaped.
fn json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\')) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            byte => {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 0xf)]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}
