//! What a holder on another machine says first, and what the door answers. Byte tables: `docs/format/fs-network.md`,
//! "Connections".

use std::io::{self, Read};

/// Version of hello and welcome.
const VERSION: u16 = 1;
/// "LFNM"
const MAGIC: [u8; 4] = *b"LFNM";
/// Bytes before the password.
const HEAD_BYTES: usize = 24;
/// Longest password.
pub(super) const PASSWORD_BYTES_MAX: usize = 255;

/// Random bytes that name the connections of a holder, from one attempt to connect to the next.
pub(super) type ConnectionId = [u8; 16];

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Control,
    Queue,
    /// Of a library in a virtual machine.
    Libraries,
}

/// The first word of the holder.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) purpose: Purpose,
    pub(super) connection: ConnectionId,
    pub(super) password: Vec<u8>,
}

/// The answer of the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Welcome {
    #[error("welcome")]
    LetIn,
    #[error("wrong password: give the server's by --password-file")]
    Password,
    #[error("it is of another version: install one release")]
    Version,
    #[error("it has no more connections")]
    Many,
    #[error("the mount's control connection has ended")]
    Unknown,
    #[error("it shares its region with no virtual machine: start it with --nvdimm")]
    NoLibraries,
}

/// Peer: what listens there does not speak this protocol.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelloError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    NotWelcome(#[from] Welcome),
    #[error(
        "what listens there does not serve files: name an address of --files-listen, or of `landfall fs serve --listen`"
    )]
    Foreign,
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let purpose = match self.purpose {
            Purpose::Control => 1,
            Purpose::Queue => 2,
            Purpose::Libraries => 3,
        };
        let len = u8::try_from(self.password.len()).unwrap_or(u8::MAX);
        [&MAGIC[..], &VERSION.to_le_bytes(), &[purpose, len], &self.connection, &self.password].concat()
    }

    /// Reads what a connection says first. `Err` of `Ok`: what to answer to something else.
    ///
    /// # Errors
    /// The connection's.
    pub(super) fn read(mut from: impl Read) -> io::Result<Result<Self, Welcome>> {
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head)?;
        let version = u16::from_le_bytes([head[4], head[5]]);
        let purpose = match head[6] {
            1 => Purpose::Control,
            2 => Purpose::Queue,
            3 => Purpose::Libraries,
            _ => return Ok(Err(Welcome::Version)),
        };
        if head[..4] != MAGIC || version != VERSION {
            return Ok(Err(Welcome::Version));
        }
        let mut password = vec![0; usize::from(head[7])];
        from.read_exact(&mut password)?;
        let mut connection = ConnectionId::default();
        connection.copy_from_slice(&head[8..]);
        Ok(Ok(Self { purpose, connection, password }))
    }
}

impl Welcome {
    pub(super) fn encode(self) -> [u8; 8] {
        let code: u16 = match self {
            Self::LetIn => 0,
            Self::Password => 1,
            Self::Version => 2,
            Self::Many => 3,
            Self::Unknown => 4,
            Self::NoLibraries => 5,
        };
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..].copy_from_slice(&code.to_le_bytes());
        bytes
    }

    /// Reads what a door answers.
    ///
    /// # Errors
    /// [`HelloError`].
    pub(super) fn read(mut from: impl Read) -> Result<Self, HelloError> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        if bytes[..4] != MAGIC {
            return Err(HelloError::Foreign);
        }
        match u16::from_le_bytes([bytes[6], bytes[7]]) {
            0 => Ok(Self::LetIn),
            1 => Ok(Self::Password),
            2 => Ok(Self::Version),
            3 => Ok(Self::Many),
            4 => Ok(Self::Unknown),
            5 => Ok(Self::NoLibraries),
            _ => Err(HelloError::Foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes are those of `docs/format/fs-network.md`.
    #[test]
    fn hello_and_welcome_are_frozen() {
        let hello =
            Hello { purpose: Purpose::Queue, connection: *b"0123456789abcdef", password: b"pw".to_vec() };
        assert_eq!(hello.encode(), b"LFNM\x01\x00\x02\x020123456789abcdefpw");
        assert_eq!(Welcome::Unknown.encode(), *b"LFNM\x01\x00\x04\x00");
        let machine = Hello { purpose: Purpose::Libraries, ..hello };
        assert_eq!(machine.encode()[6], 3);
        assert_eq!(Welcome::NoLibraries.encode()[6..], [5, 0]);
        let all = [
            Welcome::LetIn,
            Welcome::Password,
            Welcome::Version,
            Welcome::Many,
            Welcome::Unknown,
            Welcome::NoLibraries,
        ];
        for welcome in all {
            assert_eq!(Welcome::read(&welcome.encode()[..]).ok(), Some(welcome));
        }
    }

    #[test]
    fn others_are_told_so() {
        let mut newer =
            Hello { purpose: Purpose::Control, connection: [1; 16], password: Vec::new() }.encode();
        newer[4] = 2;
        assert!(matches!(Hello::read(&newer[..]), Ok(Err(Welcome::Version))));
        assert!(matches!(Hello::read(&b"GET / HTTP/1.1\r\nHost: a\r\n"[..]), Ok(Err(Welcome::Version))));
        assert!(matches!(Welcome::read(&b"-ERR unknown command"[..]), Err(HelloError::Foreign)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Ok(hello)) = Hello::read(&bytes[..]) {
                let encoded = hello.encode();
                prop_assert_eq!(&encoded[..], &bytes[..encoded.len()]);
            }
        }
    }
}
