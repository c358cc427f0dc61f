//! A connection to the node behind.

use landfall_chain::{
    Acknowledged, Code, Difference, HEADER_BYTES, Header, Hello, Proof, Reason, Refusal, Report, Welcome,
    WireError,
};
use landfall_heap::{KEY_BYTES_MAX, crc};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long a node may take to say welcome.
const WELCOME_MAX: Duration = Duration::from_secs(10);
/// How long a read waits before it looks whether the node is to stop.
const TURN: Duration = Duration::from_millis(100);
/// A peer of which nothing is heard for this long is asked whether it is there, ...
const SILENCE: Duration = Duration::from_secs(2);
/// ... and is not, if bytes are not taken for this long.
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// Longest head of an answer, bytes, ...
const HEAD_BYTES_MAX: usize = 4096;

/// ... but a comparison that stops says the key.
fn head_bytes_max(code: Code) -> usize {
    HEAD_BYTES_MAX + if code == Code::Compared { KEY_BYTES_MAX } else { 0 }
}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The node behind has operations on files that this one has lost before it became the first.
    #[error(
        "{node} has operations on files up to {theirs}, and this node only up to {ours}: nobody has been told that they \
         are durable; remove {node} from the chain, and add it again"
    )]
    Ahead {
        /// Its name.
        node: String,
        /// The operation that it expects.
        theirs: u64,
        /// The operation that comes next here.
        ours: u64,
    },
    /// The node behind does not answer, although the connection lives.
    #[error("no answer to a batch for {seconds} s: it is sent again by another connection")]
    Silent {
        /// How long it was waited.
        seconds: u64,
    },
    /// The caller does not want to wait any more.
    #[error("the wait was ended")]
    Ended,
}

impl Lost {
    /// True if only a change can help, which people must be told about.
    pub(crate) fn needs_people(&self) -> bool {
        match self {
            Self::Refused(refusal) => {
                matches!(refusal.reason, Reason::Release | Reason::Other | Reason::Password | Reason::Full)
            }
            Self::Ahead { .. } => true,
            Self::Io(_) | Self::Wire(_) | Self::Silent { .. } | Self::Ended => false,
        }
    }

    /// True if the node behind has no room.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.reason == Reason::Full)
    }
}

/// A connection, and what the node behind has said of itself.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) welcome: Welcome,
    pub(crate) room: Report,
}

/// A stream that the node behind has welcomed.
#[derive(Debug)]
pub(crate) struct Connection {
    tcp: TcpStream,
    /// Version of the view in which it was opened.
    version: u64,
    /// Number of the last message.
    number: u64,
    /// Bytes that were written, without the hello.
    written: u64,
}

impl Connection {
    /// Opens a stream.
    pub(crate) fn open(
        address: &str,
        version: u64,
        hello: &Hello,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Opened, Lost> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let tcp = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(TURN))?;
        tcp.set_write_timeout(Some(DEAD_AFTER))?;
        let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE);
        SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
        SockRef::from(&tcp).set_tcp_user_timeout(Some(DEAD_AFTER))?;
        let mut connection = Self { tcp, version, number: 0, written: 0 };
        connection.tcp.write_all(&hello.encode(version))?;
        let until = Instant::now() + WELCOME_MAX;
        let (header, head) = connection.read(&|| goes_on() && Instant::now() < until)?;
        match header.code {
            Code::Welcome => {
                let (welcome, room) = Welcome::decode(&head)?;
                Ok(Opened { connection, welcome, room })
            }
            code => Err(WireError::Unexpected(code).into()),
        }
    }

    /// Version of the view in which it was opened.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The number of the next message.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Bytes that were written, without the hello.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Waits until everything that was sent is acknowledged.
    pub(crate) fn wait_for_all(&mut self, goes_on: &dyn Fn() -> bool) -> Result<Acknowledged, Lost> {
        loop {
            let (header, head) = self.read(goes_on)?;
            if header.code != Code::Acknowledged || header.number > self.number {
                return Err(WireError::Unexpected(header.code).into());
            }
            let acknowledged = Acknowledged::decode(&head)?;
            if header.number == self.number {
                return Ok(acknowledged);
            }
        }
    }

    /// Waits for the answer to the last message, a comparison with so many sums or digests.
    pub(crate) fn wait_for_difference(
        &mut self,
        count: usize,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(Difference, Report), Lost> {
        let (header, head) = self.read(goes_on)?;
        if header.code != Code::Compared || header.number != self.number {
            return Err(WireError::Unexpected(header.code).into());
        }
        Ok(Difference::decode(&head, count)?)
    }

    /// Waits for the answer to the last message, a heartbeat.
    pub(crate) fn wait_for_proof(&mut self, goes_on: &dyn Fn() -> bool) -> Result<Proof, Lost> {
        let (header, head) = self.read(goes_on)?;
        if header.code != Code::Proof || header.number != self.number {
            return Err(WireError::Unexpected(header.code).into());
        }
        Ok(Proof::decode(&head)?)
    }

    /// Fails if the peer has closed the connection, or has sent what nobody waits for.
    pub(crate) fn check(&mut self) -> Result<(), Lost> {
        self.tcp.set_nonblocking(true)?;
        let mut byte = [0];
        let peeked = self.tcp.peek(&mut byte);
        self.tcp.set_nonblocking(false)?;
        match peeked {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            // A refusal, since everything is acknowledged.
            Ok(_) => self
                .read(&|| true)
                .map(|(header, _)| header.code)
                .and_then(|code| Err(WireError::Unexpected(code).into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The next message. A refusal is an error.
    fn read(&mut self, goes_on: &dyn Fn() -> bool) -> Result<(Header, Vec<u8>), Lost> {
        let mut bytes = [0; HEADER_BYTES];
        self.read_exact(&mut bytes, goes_on)?;
        let header = Header::decode(&bytes)?;
        if header.head_len as usize > head_bytes_max(header.code) || header.payload_len > 0 {
            return Err(WireError::Unexpected(header.code).into());
        }
        let mut head = vec![0; header.head_len as usize];
        self.read_exact(&mut head, goes_on)?;
        if crc::of(&head) != header.head_crc {
            return Err(WireError::Checksum.into());
        }
        if header.code == Code::Refused {
            return Err(Refusal::decode(&head)?.into());
        }
        Ok((header, head))
    }

    fn read_exact(&mut self, mut into: &mut [u8], goes_on: &dyn Fn() -> bool) -> Result<(), Lost> {
        while !into.is_empty() {
            match self.tcp.read(into) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if !goes_on() {
                        return Err(Lost::Ended);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.count(|tcp| tcp.write(bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.count(|tcp| tcp.write_vectored(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

impl Connection {
    fn count(&mut self, write: impl FnOnce(&mut TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let count = write(&mut self.tcp)?;
        self.written += count as u64;
        Ok(count)
    }
}
