//! A reply as a Redis client gets it.

use super::super::resp::{self, Scanner};

/// The bytes of exactly one reply: nothing else is ever put into a reply's place, so that a client never takes the reply to one
/// of its commands for that to another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    /// `None` for bytes that are no reply, a part of one, or more than one.
    pub(super) fn whole(bytes: Vec<u8>) -> Option<Self> {
        let len = Scanner::default().scan(&bytes).ok().flatten();
        (len == Some(bytes.len())).then_some(Self(bytes))
    }

    /// An error, whatever its words.
    pub(super) fn error(text: &str) -> Self {
        Self(resp::error(text))
    }

    /// Whether it is one of the nulls.
    pub(super) fn is_null(&self) -> bool {
        resp::is_null(&self.0)
    }

    /// Bytes of memory that it holds.
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Goes behind what a client is sent already.
    pub(super) fn append_to(self, output: &mut Vec<u8>) {
        if output.is_empty() {
            *output = self.0;
        } else {
            // Doubling would hold twice what waits.
            if output.capacity() - output.len() < self.0.len() {
                output.reserve_exact(self.0.len().max(output.len() / 8));
            }
            output.extend_from_slice(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_whole_reply_is_a_reply() {
        for bytes in [&b"+OK\r\n"[..], b"$2\r\nab\r\n", b"*2\r\n:1\r\n$-1\r\n", b"_\r\n"] {
            assert!(Reply::whole(bytes.to_vec()).is_some(), "{}", bytes.escape_ascii());
        }
        for bytes in [&b""[..], b"\r\n", b"+OK", b"$2\r\nab", b"*2\r\n:1\r\n", b"+OK\r\n+OK\r\n", b"text\r\n"]
        {
            assert_eq!(Reply::whole(bytes.to_vec()), None, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn an_errors_words_never_make_two_replies() {
        let mut output = Vec::new();
        Reply::error("ERR a\r\n+OK").append_to(&mut output);
        assert!(Reply::whole(output).is_some());
    }
}
