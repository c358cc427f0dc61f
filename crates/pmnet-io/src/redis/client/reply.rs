//! A reply to a Redis client, as a type that holds exactly one whole reply.

use crate::redis::resp;

/// The bytes of exactly one reply. No other bytes are ever sent in the place of a reply, so that a client never takes
/// the reply to one command for that to another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    /// `None` for bytes that are malformed, a part of a reply, or more than one reply.
    pub(super) fn whole(bytes: Vec<u8>) -> Option<Self> {
        let is_whole = landfall_resp::Reply::whole(&bytes).is_some();
        is_whole.then_some(Self(bytes))
    }

    /// An error reply, whatever bytes its text has.
    pub(super) fn error(text: &str) -> Self {
        Self(resp::error(text))
    }

    /// True for a null reply.
    pub(super) fn is_null(&self) -> bool {
        resp::is_null(&self.0)
    }

    /// Bytes of memory that the reply holds.
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Appends the reply to the output of a connection.
    pub(super) fn append_to(self, output: &mut Vec<u8>) {
        if output.is_empty() {
            *output = self.0;
        } else {
            // Doubling the buffer could hold twice the memory of the waiting replies.
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
    fn only_one_whole_reply_is_accepted() {
        for bytes in [&b"+OK\r\n"[..], b"$2\r\nab\r\n", b"*2\r\n:1\r\n$-1\r\n", b"_\r\n"] {
            assert!(Reply::whole(bytes.to_vec()).is_some(), "{}", bytes.escape_ascii());
        }
        for bytes in [&b""[..], b"\r\n", b"+OK", b"$2\r\nab", b"*2\r\n:1\r\n", b"+OK\r\n+OK\r\n", b"text\r\n"]
        {
            assert_eq!(Reply::whole(bytes.to_vec()), None, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn the_text_of_an_error_never_makes_two_replies() {
        let mut output = Vec::new();
        Reply::error("ERR a\r\n+OK").append_to(&mut output);
        assert!(Reply::whole(output).is_some());
    }
}
