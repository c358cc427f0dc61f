//! Messages in a received stream, as it lies in frames.

use crate::wire::{HEADER_BYTES, Header, WireError};
use landfall_heap::crc;
use landfall_media::Chain;
use std::borrow::Cow;
use std::ops::Range;

/// A whole message. Positions are those of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The header.
    pub header: Header,
    head: Range<usize>,
    payload: Range<usize>,
}

impl Message {
    /// The head, if it matches its checksum. It is copied only where it is split.
    ///
    /// # Errors
    /// [`WireError::Checksum`].
    pub fn head<'a>(&self, stream: &Chain<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        let head = stream.gather(self.head.clone());
        if crc::of(&head) == self.header.head_crc { Ok(head) } else { Err(WireError::Checksum) }
    }

    /// Where the payload lies.
    pub fn payload(&self) -> Range<usize> {
        self.payload.clone()
    }

    /// Where the next message begins.
    pub fn end(&self) -> usize {
        self.payload.end
    }
}

/// Finds the messages of one connection.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    /// The header of the message that arrives.
    header: Option<Header>,
}

impl Parser {
    /// How many bytes from the message's start on are needed before [`Self::next`] can do more.
    pub fn bytes_wanted(&self) -> usize {
        self.header.map_or(HEADER_BYTES, |header| header.message_len())
    }

    /// The message that begins at position `from`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`WireError`]: the connection must be closed.
    pub fn next(&mut self, stream: &Chain<'_>, from: usize) -> Result<Option<Message>, WireError> {
        let arrived = stream.len() - from;
        let header = match self.header {
            Some(header) => header,
            None if arrived < HEADER_BYTES => return Ok(None),
            None => {
                let bytes = stream.gather(from..from + HEADER_BYTES);
                let header = Header::decode(bytes[..].try_into().expect("the length of a header"))?;
                *self.header.insert(header)
            }
        };
        if arrived < header.message_len() {
            return Ok(None);
        }
        self.header = None;
        let head = from + HEADER_BYTES..from + HEADER_BYTES + header.head_len as usize;
        let payload = head.end..head.end + header.payload_len as usize;
        Ok(Some(Message { header, head, payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Code, message};
    use landfall_media::Segment;
    use proptest::prelude::*;

    fn stream(messages: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, (head, payload)) in messages.iter().enumerate() {
            bytes.extend(message(Code::Chunk, 7, number as u64, head, payload.len() as u64));
            bytes.extend_from_slice(payload);
        }
        bytes
    }

    proptest! {
        #[test]
        fn messages_are_found_wherever_a_stream_is_split(
            messages: Vec<(Vec<u8>, Vec<u8>)>, step in 1_usize..200,
        ) {
            let bytes = stream(&messages);
            let segments: Vec<Segment<'_>> =
                bytes.chunks(step).enumerate().map(|(at, part)| Segment::new((at * step) as u64, part)).collect();
            let (mut parser, mut from, mut found) = (Parser::default(), 0, Vec::new());
            for count in 0..=segments.len() {
                let arrived = Chain::new(&segments[..count]);
                while let Some(message) = parser.next(&arrived, from).unwrap() {
                    found.push((message.head(&arrived).unwrap().into_owned(), arrived.gather(message.payload()).into_owned()));
                    from = message.end();
                }
            }
            prop_assert_eq!(found, messages);
            prop_assert_eq!(from, bytes.len());
        }

        #[test]
        fn a_changed_head_is_seen(bit in 0_usize..80) {
            let mut bytes = stream(&[(b"0123456789".to_vec(), vec![])]);
            bytes[HEADER_BYTES + bit / 8] ^= 1 << (bit % 8);
            let segments = [Segment::new(0, &bytes)];
            let arrived = Chain::new(&segments);
            let message = Parser::default().next(&arrived, 0).unwrap().unwrap();
            prop_assert_eq!(message.head(&arrived), Err(WireError::Checksum));
        }
    }
}
