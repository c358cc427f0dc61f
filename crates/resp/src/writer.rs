//! Encoding of replies.

use crate::double::write_double;
use crate::error::ProtocolError;

/// Which version of the protocol a client speaks; RESP2 until it says `HELLO 3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2.
    #[default]
    Resp2,
    /// RESP3.
    Resp3,
}

/// Appends replies to a buffer, in the client's version of the protocol.
///
/// A stored value need not pass through the buffer: write [`Writer::bulk_header`], send the value from where
/// it lies, and go on with [`Writer::crlf`] in the buffer after it.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Writer<'a> {
    /// A writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// The version written.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string. CR and LF become blanks.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: `text` starts with its code, as in `ERR syntax error`. CR and LF become blanks.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.as_bytes());
    }

    /// The reply to a violation of the protocol: its text after `ERR`. The connection is then to be closed.
    pub fn protocol_error(&mut self, error: &ProtocolError) {
        self.error(&format!("ERR {error}"));
    }

    /// A signed integer.
    pub fn integer(&mut self, number: i64) {
        self.out.push(b':');
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.crlf();
    }

    /// A bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bulk_header(bytes.len());
        self.out.extend_from_slice(bytes);
        self.crlf();
    }

    /// What comes before the `len` bytes of a bulk string; they and [`Writer::crlf`] are to follow.
    pub fn bulk_header(&mut self, len: usize) {
        self.header(b'$', len);
    }

    /// The end of a line or of a bulk string.
    pub fn crlf(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// No value. RESP2: the null bulk string.
    pub fn null(&mut self) {
        self.pick(b"$-1\r\n", b"_\r\n");
    }

    /// No array. RESP2: the null array.
    pub fn null_array(&mut self) {
        self.pick(b"*-1\r\n", b"_\r\n");
    }

    /// An array; `count` elements are to follow.
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// A command: its words, as a client sends them.
    pub fn command(&mut self, words: &[&[u8]]) {
        self.array(words.len());
        for word in words {
            self.bulk(word);
        }
    }

    /// A map; `count` keys, each with its value, are to follow. RESP2: an array of both.
    pub fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', 2 * count),
            Protocol::Resp3 => self.header(b'%', count),
        }
    }

    /// A set; `count` elements are to follow. RESP2: an array.
    pub fn set(&mut self, count: usize) {
        self.aggregate(b'~', count);
    }

    /// A push; `count` elements, its kind first, are to follow. RESP2: an array.
    pub fn push(&mut self, count: usize) {
        self.aggregate(b'>', count);
    }

    /// A floating point number, in the fewest digits that read back the same; `inf`, `-inf`, `nan`.
    /// RESP2: a bulk string.
    pub fn double(&mut self, number: f64) {
        let mut text = Vec::with_capacity(32);
        write_double(&mut text, number);
        self.scalar(b',', &text);
    }

    /// A truth value. RESP2: 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        if value {
            self.pick(b":1\r\n", b"#t\r\n");
        } else {
            self.pick(b":0\r\n", b"#f\r\n");
        }
    }

    /// A text with its format: `txt` or `mkd`. RESP2: a bulk string without the format.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        if self.protocol == Protocol::Resp2 {
            return self.bulk(text);
        }
        self.header(b'=', format.len() + 1 + text.len());
        self.out.extend_from_slice(&format);
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.crlf();
    }

    /// An integer of any size, as decimal digits with an optional sign. RESP2: a bulk string.
    pub fn big_number(&mut self, digits: &str) {
        self.scalar(b'(', digits.as_bytes());
    }

    /// One line in RESP3, a bulk string in RESP2.
    fn scalar(&mut self, sigil: u8, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => self.line(sigil, text),
        }
    }

    /// An aggregate that RESP2 knows as an array.
    fn aggregate(&mut self, sigil: u8, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count),
            Protocol::Resp3 => self.header(sigil, count),
        }
    }

    fn pick(&mut self, resp2: &[u8], resp3: &[u8]) {
        self.out.extend_from_slice(if self.protocol == Protocol::Resp2 { resp2 } else { resp3 });
    }

    fn header(&mut self, sigil: u8, count: usize) {
        self.out.push(sigil);
        self.out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
        self.crlf();
    }

    /// A line of text that may hold what a client sent: it must not end the line early.
    fn line(&mut self, sigil: u8, text: &[u8]) {
        self.out.push(sigil);
        self.out.extend(text.iter().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b }));
        self.crlf();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_replies(write: impl Fn(&mut Writer<'_>), resp2: &str, resp3: &str) {
        for (protocol, want) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = Vec::new();
            write(&mut Writer::new(&mut out, protocol));
            assert_eq!(out.escape_ascii().to_string(), want.as_bytes().escape_ascii().to_string());
        }
    }

    #[track_caller]
    fn assert_reply(write: impl Fn(&mut Writer<'_>), want: &str) {
        assert_replies(write, want, want);
    }

    #[test]
    fn types_of_both_versions() {
        assert_reply(|w| w.ok(), "+OK\r\n");
        assert_reply(|w| w.simple("PONG"), "+PONG\r\n");
        assert_reply(|w| w.integer(-42), ":-42\r\n");
        assert_reply(|w| w.integer(i64::MIN), ":-9223372036854775808\r\n");
        assert_reply(|w| w.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n");
        assert_reply(|w| w.bulk(b""), "$0\r\n\r\n");
        assert_reply(|w| w.array(3), "*3\r\n");
    }

    #[test]
    fn types_of_resp3_have_a_resp2_form() {
        assert_replies(|w| w.null(), "$-1\r\n", "_\r\n");
        assert_replies(|w| w.null_array(), "*-1\r\n", "_\r\n");
        assert_replies(|w| w.map(2), "*4\r\n", "%2\r\n");
        assert_replies(|w| w.set(2), "*2\r\n", "~2\r\n");
        assert_replies(|w| w.push(3), "*3\r\n", ">3\r\n");
        assert_replies(|w| w.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
        assert_replies(|w| w.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
        assert_replies(|w| w.double(f64::NAN), "$3\r\nnan\r\n", ",nan\r\n");
        assert_replies(|w| w.boolean(true), ":1\r\n", "#t\r\n");
        assert_replies(|w| w.boolean(false), ":0\r\n", "#f\r\n");
        assert_replies(|w| w.verbatim(*b"txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
        assert_replies(
            |w| w.big_number("-12345678901234567890"),
            "$21\r\n-12345678901234567890\r\n",
            "(-12345678901234567890\r\n",
        );
    }

    #[test]
    fn a_value_can_be_sent_by_reference_between_header_and_end() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, Protocol::Resp2);
        writer.bulk_header(1024);
        writer.crlf();
        assert_eq!(out, b"$1024\r\n\r\n");
    }

    #[test]
    fn line_ends_in_errors_cannot_split_the_reply() {
        assert_reply(|w| w.error("ERR no 'a\r\n+OK\r\n'"), "-ERR no 'a  +OK  '\r\n");
        assert_reply(|w| w.simple("a\nb"), "+a b\r\n");
    }

    #[test]
    fn protocol_errors_read_as_in_redis() {
        let error = ProtocolError::ExpectedBulk { got: b'x' };
        assert_reply(|w| w.protocol_error(&error), "-ERR Protocol error: expected '$', got 'x'\r\n");
        let error = ProtocolError::ExpectedBulk { got: b'\r' };
        assert_reply(|w| w.protocol_error(&error), "-ERR Protocol error: expected '$', got ' '\r\n");
    }
}
