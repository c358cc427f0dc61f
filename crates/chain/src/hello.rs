//! The messages that open a stream.

use crate::room::{REPORT_BYTES, Report};
use crate::wire::{Code, WireError, message, u64_at};

/// Longest password, bytes.
const PASSWORD_BYTES_MAX: usize = 255;

/// A node opens a stream.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// The stream: the number of a writer, or [`crate::COPY_STREAM`].
    pub stream: u8,
    /// Which life of the sender, and which connection of the stream in it: higher than any before.
    pub incarnation: u64,
    /// The sender is in step.
    pub is_in_step: bool,
    /// The chain.
    pub chain: String,
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// The password of the receiver; empty if it has none.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { stream, incarnation, chain, from, to, .. } = self;
        write!(f, "Hello {{ stream {stream}, incarnation {incarnation:#x}, {chain}: {from} to {to} }}")
    }
}

impl Hello {
    /// The message.
    ///
    /// # Panics
    /// If a name or the password has more than 255 bytes.
    pub fn encode(&self, version: u64) -> Vec<u8> {
        let mut head = vec![self.stream];
        head.extend_from_slice(&self.incarnation.to_le_bytes());
        head.push(u8::from(self.is_in_step));
        for text in [self.chain.as_bytes(), self.from.as_bytes(), self.to.as_bytes(), &self.password] {
            head.push(u8::try_from(text.len()).expect("at most 255 bytes"));
            head.extend_from_slice(text);
        }
        message(Code::Hello, version, 0, &head, 0)
    }

    /// Reads the head of a hello.
    ///
    /// # Errors
    /// [`WireError::Length`].
    pub fn decode(head: &[u8]) -> Result<Self, WireError> {
        let (fixed, mut rest) = head.split_at_checked(10).ok_or(WireError::Length)?;
        let mut texts: [&[u8]; 4] = [&[]; 4];
        for text in &mut texts {
            let (len, behind) = rest.split_first().ok_or(WireError::Length)?;
            (*text, rest) = behind.split_at_checked(usize::from(*len)).ok_or(WireError::Length)?;
        }
        if !rest.is_empty() {
            return Err(WireError::Length);
        }
        let name = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let [chain, from, to, password] = texts;
        Ok(Self {
            stream: fixed[0],
            incarnation: u64_at(fixed, 1),
            is_in_step: fixed[9] == 1,
            chain: name(chain),
            from: name(from),
            to: name(to),
            password: password.to_vec(),
        })
    }

    /// True if a password can be sent.
    pub fn may_send(password: &[u8]) -> bool {
        password.len() <= PASSWORD_BYTES_MAX
    }
}

/// The stream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The `since` for which the receiver is in step; 0: it is behind.
    pub since: u64,
    /// Index of the operation that its log of files expects next; 0 without files.
    pub files: u64,
}

impl Welcome {
    /// The message, with the room of the receiver.
    pub fn encode(&self, version: u64, room: Report) -> Vec<u8> {
        let mut head = [self.since.to_le_bytes(), self.files.to_le_bytes()].concat();
        room.encode(&mut head);
        message(Code::Welcome, version, 0, &head, 0)
    }

    /// Reads the head of a welcome.
    ///
    /// # Errors
    /// [`WireError::Length`].
    pub fn decode(head: &[u8]) -> Result<(Self, Report), WireError> {
        let (fields, room) = head.split_at_checked(16).ok_or(WireError::Length)?;
        Ok((Self { since: u64_at(fields, 0), files: u64_at(fields, 8) }, Report::decode(room)?))
    }
}

/// Everything up to a message is durable at a node and behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// How many nodes have it; 0 is the answer to a check of records of which one is not there.
    pub nodes: u8,
    /// The room at these nodes.
    pub room: Report,
}

impl Acknowledged {
    /// The message that acknowledges everything up to `number`.
    pub fn encode(&self, version: u64, number: u64) -> Vec<u8> {
        let mut head = Vec::with_capacity(1 + REPORT_BYTES);
        head.push(self.nodes);
        self.room.encode(&mut head);
        message(Code::Acknowledged, version, number, &head, 0)
    }

    /// Reads the head of an acknowledgement.
    ///
    /// # Errors
    /// [`WireError::Length`].
    pub fn decode(head: &[u8]) -> Result<Self, WireError> {
        let (nodes, room) = head.split_first().ok_or(WireError::Length)?;
        Ok(Self { nodes: *nodes, room: Report::decode(room)? })
    }
}

/// Why a connection is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Another version of the messages.
    Release = 1,
    /// Another chain, or another node.
    Other = 2,
    /// Another version of the view.
    View = 3,
    /// A wrong password.
    Password = 4,
    /// A newer connection has the stream.
    Newer = 5,
    /// A message that is none, or out of order.
    Message = 6,
    /// The copy begins anew.
    Copy = 7,
    /// The node has no room.
    Full = 8,
}

/// The connection is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// For people.
    pub text: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }

    /// The message.
    pub fn encode(&self, version: u64) -> Vec<u8> {
        let mut head = vec![self.reason as u8];
        head.extend_from_slice(self.text.as_bytes());
        message(Code::Refused, version, 0, &head, 0)
    }

    /// Reads the head of a refusal.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong.
    pub fn decode(head: &[u8]) -> Result<Self, WireError> {
        const REASONS: [Reason; 8] = [
            Reason::Release,
            Reason::Other,
            Reason::View,
            Reason::Password,
            Reason::Newer,
            Reason::Message,
            Reason::Copy,
            Reason::Full,
        ];
        let (reason, text) = head.split_first().ok_or(WireError::Length)?;
        let known = REASONS.into_iter().find(|known| *known as u8 == *reason);
        let reason = known.ok_or(WireError::Unknown { what: "a reason", value: *reason })?;
        Ok(Self { reason, text: String::from_utf8_lossy(text).into_owned() })
    }
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        let reason = if matches!(error, WireError::Version(_)) { Reason::Release } else { Reason::Message };
        Self::new(reason, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HEADER_BYTES;
    use proptest::prelude::*;

    fn hello() -> Hello {
        let (stream, incarnation, password) = (3, 77, b"secret".to_vec());
        let (chain, from, to) = ("orders".into(), "a".into(), "b".into());
        Hello { stream, incarnation, is_in_step: true, chain, from, to, password }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let head = |message: Vec<u8>| message[HEADER_BYTES..].to_vec();
        assert_eq!(Hello::decode(&head(hello().encode(1))), Ok(hello()));
        let room = Report { order: 5, free: 6, obtainable: 7 };
        let welcome = Welcome { since: 9, files: 7 };
        assert_eq!(Welcome::decode(&head(welcome.encode(1, room))), Ok((welcome, room)));
        let acknowledged = Acknowledged { nodes: 2, room };
        assert_eq!(Acknowledged::decode(&head(acknowledged.encode(1, 3))), Ok(acknowledged));
        assert_eq!(Acknowledged::decode(&[2]), Err(WireError::Length));
        let refusal = Refusal::new(Reason::View, "another view");
        assert_eq!(Refusal::decode(&head(refusal.encode(1))), Ok(refusal));
    }

    #[test]
    fn a_password_is_not_shown() {
        assert!(!format!("{:?}", hello()).contains("secret"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(head: Vec<u8>) {
            let _ = (Hello::decode(&head).is_ok(), Welcome::decode(&head).is_ok(), Refusal::decode(&head).is_ok());
        }

        #[test]
        fn a_hello_that_ends_early_is_refused(end in 0_usize..30) {
            let whole = hello().encode(1);
            let head = &whole[HEADER_BYTES..];
            prop_assume!(end < head.len());
            prop_assert_eq!(Hello::decode(&head[..end]), Err(WireError::Length));
        }
    }
}
