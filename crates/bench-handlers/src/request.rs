//! The plain codec: requests and responses as bytes. All numbers are little-endian.
//!
//! A request is an op (`S` set, `G` get, `D` delete), the length of the key (2 bytes), the key, and for a set the
//! value, up to the end. The response is `O` to a set or a delete, `V` and the value or `N` to a get, and `E` and a
//! text to a bad request.

use crate::pool::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets the key's value.
    Set,
    /// Reads the key's value.
    Get,
    /// Removes the key.
    Delete,
}

/// A parsed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The operation.
    pub op: Op,
    /// The key, 0 to 255 bytes.
    pub key: &'a [u8],
    /// The value, 0 to 64 KiB; empty except for a set.
    pub value: &'a [u8],
}

impl<'a> Request<'a> {
    /// Parses a request.
    ///
    /// # Errors
    /// A text that describes what is wrong, for the response.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let Some((&[op, len @ ..], rest)) = bytes.split_first_chunk::<3>() else {
            return Err("short request");
        };
        let op = match op {
            b'S' => Op::Set,
            b'G' => Op::Get,
            b'D' => Op::Delete,
            _ => return Err("unknown op"),
        };
        let len = usize::from(u16::from_le_bytes(len));
        let (key, value) = rest.split_at_checked(len).ok_or("short request")?;
        match op {
            _ if len > KEY_BYTES_MAX => Err("key too long"),
            _ if value.len() > VALUE_BYTES_MAX => Err("value too long"),
            Op::Get | Op::Delete if !value.is_empty() => Err("bytes behind the key"),
            _ => Ok(Self { op, key, value }),
        }
    }

    /// The bytes of a request.
    pub fn encode(&self) -> Vec<u8> {
        let op = match self.op {
            Op::Set => b'S',
            Op::Get => b'G',
            Op::Delete => b'D',
        };
        let len = (self.key.len() as u16).to_le_bytes();
        [&[op], &len[..], self.key, self.value].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_frozen() {
        let set = Request { op: Op::Set, key: b"key", value: b"v" };
        assert_eq!(set.encode(), b"S\x03\0keyv");
        assert_eq!(Request::parse(b"S\x03\0keyv"), Ok(set));
        assert_eq!(Request::parse(b"G\x01\0k"), Ok(Request { op: Op::Get, key: b"k", value: b"" }));
        assert_eq!(Request::parse(b"D\0\0"), Ok(Request { op: Op::Delete, key: b"", value: b"" }));
    }

    #[test]
    fn bad_requests_are_refused() {
        let long_key = [&b"S\x00\x01"[..], &[b'k'; 256]].concat();
        let long_value = [&b"S\x01\0k"[..], &[0; VALUE_BYTES_MAX + 1]].concat();
        for (bytes, error) in [
            (&b""[..], "short request"),
            (b"S\x01", "short request"),
            (b"S\x02\0k", "short request"),
            (b"X\x01\0k", "unknown op"),
            (b"G\x01\0kv", "bytes behind the key"),
            (&long_key, "key too long"),
            (&long_value, "value too long"),
        ] {
            assert_eq!(Request::parse(bytes), Err(error));
        }
    }
}
