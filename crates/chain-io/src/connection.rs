//! A connection to the node behind.

use landfall_chain::{
    Acknowledged, Code, Difference, HEADER_BYTES, Header, Hello, Proof, Reason, Refusal, Report, Welcome,
    WireError,
};
use landfall_heap::{KEY_BYTES_MAX, crc};
use rustix::net::{RecvFlags, SendFlags, recv};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
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
/// Bytes that are received at once: most answers are shorter.
const RECEIVED_BYTES: usize = 4096;
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
            Self::Ahead { .. } | Self::Wire(WireError::Version(_)) => true,
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
    tcp: Arc<TcpStream>,
    /// Version of the view in which it was opened.
    version: u64,
    /// Number of the last message.
    number: u64,
    /// Bytes that were written, without the hello.
    written: u64,
    /// What has come, and is no whole message yet.
    received: Vec<u8>,
    /// What was written at once, and the kernel has not taken.
    rest: Vec<u8>,
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
        (&tcp).write_all(&hello.encode(version))?;
        let (tcp, received, rest) = (Arc::new(tcp), Vec::new(), Vec::new());
        let mut connection = Self { tcp, version, number: 0, written: 0, received, rest };
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

    /// The socket, for whoever waits until there is something to read.
    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        &self.tcp
    }

    /// Waits until everything that was sent is acknowledged.
    pub(crate) fn wait_for_all(&mut self, goes_on: &dyn Fn() -> bool) -> Result<Acknowledged, Lost> {
        loop {
            let message = self.read(goes_on)?;
            if let Some(acknowledged) = self.acknowledged(message)? {
                return Ok(acknowledged);
            }
        }
    }

    /// The answer to everything that was sent, if it has come.
    pub(crate) fn answer_to_all(&mut self) -> Result<Option<Acknowledged>, Lost> {
        loop {
            while let Some(message) = self.next()? {
                if let Some(acknowledged) = self.acknowledged(message)? {
                    return Ok(Some(acknowledged));
                }
            }
            if !self.receive_now()? {
                return Ok(None);
            }
        }
    }

    /// What an answer says, if it is that to the last message.
    fn acknowledged(&self, (header, head): (Header, Vec<u8>)) -> Result<Option<Acknowledged>, Lost> {
        if header.code != Code::Acknowledged || header.number > self.number {
            return Err(WireError::Unexpected(header.code).into());
        }
        let acknowledged = Acknowledged::decode(&head)?;
        Ok((header.number == self.number).then_some(acknowledged))
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
        self.receive_now()?;
        // A refusal, since everything is acknowledged.
        self.next()?.map_or(Ok(()), |(header, _)| Err(WireError::Unexpected(header.code).into()))
    }

    /// Waits for the next message. A refusal is an error.
    fn read(&mut self, goes_on: &dyn Fn() -> bool) -> Result<(Header, Vec<u8>), Lost> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(message);
            }
            if !self.receive(RecvFlags::empty())? && !goes_on() {
                return Err(Lost::Ended);
            }
        }
    }

    /// The next message, if it has come as a whole. A refusal is an error.
    fn next(&mut self) -> Result<Option<(Header, Vec<u8>)>, Lost> {
        let Some(bytes) = self.received.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(bytes)?;
        if header.head_len as usize > head_bytes_max(header.code) || header.payload_len > 0 {
            return Err(WireError::Unexpected(header.code).into());
        }
        let end = HEADER_BYTES + header.head_len as usize;
        let Some(head) = self.received.get(HEADER_BYTES..end).map(<[u8]>::to_vec) else { return Ok(None) };
        self.received.drain(..end);
        if crc::of(&head) != header.head_crc {
            return Err(WireError::Checksum.into());
        }
        if header.code == Code::Refused {
            return Err(Refusal::decode(&head)?.into());
        }
        Ok(Some((header, head)))
    }

    /// Receives what there is; false if that is nothing.
    fn receive_now(&mut self) -> io::Result<bool> {
        self.receive(RecvFlags::DONTWAIT)
    }

    /// Receives something; false if nothing has come, for a while or, with a flag, yet.
    fn receive(&mut self, flags: RecvFlags) -> io::Result<bool> {
        let mut bytes = [0; RECEIVED_BYTES];
        match recv(&*self.tcp, &mut bytes, flags).map(|(count, _)| count).map_err(io::Error::from) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                Ok(true)
            }
            Err(error) if is_nothing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// True if something that was written at once is to be written yet.
    pub(crate) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Writes what is left of what was written at once.
    pub(crate) fn write_rest(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.rest);
        (&*self.tcp).write_all(&rest)
    }
}

/// True if nothing has come, or a signal.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Writes to a connection without waiting: what the kernel does not take is kept for [`Connection::write_rest`].
pub(crate) struct AtOnce<'c>(pub(crate) &'c mut Connection);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Connection { tcp, rest, written, .. } = &mut *self.0;
        let taken = match rest.is_empty() {
            true => SockRef::from(&**tcp).send_vectored_with_flags(slices, at_once_flags()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        let count = match taken {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                slices.iter().for_each(|slice| rest.extend_from_slice(slice));
                slices.iter().map(|slice| slice.len()).sum()
            }
            taken => taken?,
        };
        *written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn at_once_flags() -> i32 {
    (SendFlags::DONTWAIT | SendFlags::NOSIGNAL).bits().cast_signed()
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.count(|mut tcp| tcp.write(bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.count(|mut tcp| tcp.write_vectored(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.tcp).flush()
    }
}

impl Connection {
    fn count(&mut self, write: impl FnOnce(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let count = write(&self.tcp)?;
        self.written += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    /// A connection that was welcomed, and the other end.
    fn connected() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tcp.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let (tcp, received, rest) = (Arc::new(tcp), Vec::new(), Vec::new());
        (Connection { tcp, version: 1, number: 0, written: 0, received, rest }, listener.accept().unwrap().0)
    }

    fn acknowledged(number: u64) -> Vec<u8> {
        let room = Report { order: 1, free: 2, obtainable: 3 };
        Acknowledged { nodes: 1, room }.encode(1, number)
    }

    #[test]
    fn what_the_kernel_does_not_take_at_once_follows_in_order() {
        const BYTES: usize = 16 << 20;
        let (mut connection, mut far) = connected();
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
        let (first, second) = bytes.split_at(BYTES / 3);
        let mut at_once = AtOnce(&mut connection);
        at_once.write_all(first).unwrap();
        at_once.write_all(second).unwrap();
        assert!(connection.has_rest(), "nobody reads, and no socket has room for all of it");
        assert_eq!(connection.written(), BYTES as u64);
        let reading = thread::spawn(move || {
            let mut read = vec![0; BYTES];
            far.read_exact(&mut read).map(|()| read).unwrap()
        });
        connection.write_rest().unwrap();
        assert!(!connection.has_rest() && reading.join().unwrap() == bytes);
    }

    #[test]
    fn an_answer_is_read_when_all_of_it_has_come() {
        let (mut connection, mut far) = connected();
        connection.number = 7;
        let (older, answer) = (acknowledged(6), acknowledged(7));
        far.set_nodelay(true).unwrap();
        far.write_all(&older).unwrap();
        for byte in &answer {
            assert!(connection.answer_to_all().unwrap().is_none());
            far.write_all(&[*byte]).unwrap();
        }
        let read = connection.wait_for_all(&|| true).unwrap();
        assert_eq!((read.nodes, read.room.obtainable), (1, 3));
        assert!(connection.answer_to_all().unwrap().is_none() && connection.check().is_ok());
    }

    #[test]
    fn an_answer_that_nobody_waits_for_ends_the_connection() {
        let (mut connection, mut far) = connected();
        far.write_all(&acknowledged(1)).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while connection.check().is_ok() {
            assert!(Instant::now() < until, "it was not seen");
        }
    }

    /// The message as another release sends it.
    fn of_next_release(mut message: Vec<u8>) -> Vec<u8> {
        message[4] += 1;
        let crc = crc::of(&message[..44]);
        message[44..48].copy_from_slice(&crc.to_le_bytes());
        message
    }

    #[test]
    fn another_release_is_told_by_its_refusal_or_by_its_messages_and_needs_people() {
        let (mut connection, mut far) = connected();
        let refusal = Refusal::new(Reason::Release, "run one release");
        far.write_all(&of_next_release(refusal.encode(0))).unwrap();
        let lost = connection.wait_for_all(&|| true).unwrap_err();
        assert!(matches!(&lost, Lost::Refused(read) if *read == refusal), "{lost}");
        assert!(lost.needs_people());
        let (mut connection, mut far) = connected();
        far.write_all(&of_next_release(acknowledged(1))).unwrap();
        let lost = connection.wait_for_all(&|| true).unwrap_err();
        assert!(matches!(&lost, Lost::Wire(WireError::Version(_))) && lost.needs_people(), "{lost}");
    }

    #[test]
    fn a_wait_ends_when_the_peer_has_gone_or_the_caller_says_so() {
        let (mut connection, far) = connected();
        assert!(matches!(connection.wait_for_all(&|| false), Err(Lost::Ended)));
        drop(far);
        assert!(matches!(connection.wait_for_all(&|| true), Err(Lost::Io(_))));
    }
}
