//! Requests over TCP, one connection for each client. A length precedes each request, or the protocol is RESP.

use super::channel::{By, Channel, Done, Patience, WAIT_MS};
use crate::common::clients::encode;
use crate::common::error::BenchError;
use crate::common::sys::Readiness;
use crate::pmnet::serve::tcp::{LEN_BYTES, framed, put_frame};
use crate::pmnet::sys::busy_poll_then_wait;
use crate::pmnet::work::{Ask, resp};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

const NAME: &str = "the server over TCP";
const CONNECT_MAX: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 64 << 10;
/// The longest wait for replicas to have an update.
const WAIT_FOR_REPLICAS_MS: &[u8] = b"5000";

/// How requests and replies are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A length precedes each.
    Lengths,
    /// RESP.
    Resp,
    /// RESP. An update is complete once this many of the server's replicas have it (Redis's `WAIT`).
    RespOn { replicas: u8 },
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// Replicas that must have the request in flight. The reply to `WAIT` follows the reply to the request.
    replicas: Option<u8>,
}

/// One connection for each client.
#[derive(Debug)]
pub(crate) struct StreamChannel {
    connections: Vec<Connection>,
    clients: BTreeMap<RawFd, usize>,
    readiness: Readiness,
    framing: Framing,
    patience: Patience,
    ready: Vec<RawFd>,
}

impl StreamChannel {
    pub(crate) fn open(
        server: SocketAddr,
        clients: usize,
        framing: Framing,
        patience: Patience,
    ) -> Result<Self, BenchError> {
        let open = || {
            let (readiness, mut connections) = (Readiness::new()?, Vec::new());
            for _ in 0..clients {
                let stream = TcpStream::connect_timeout(&server, CONNECT_MAX)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                readiness.add(&stream)?;
                connections.push(Connection { stream, received: Vec::new(), replicas: None });
            }
            Ok((readiness, connections))
        };
        let (readiness, connections) = open().map_err(BenchError::connection(NAME))?;
        let descriptors = connections.iter().map(|connection| connection.stream.as_raw_fd());
        let clients = descriptors.zip(0..).collect();
        Ok(Self { connections, clients, readiness, framing, patience, ready: Vec::new() })
    }

    /// Returns the connections that can be read. Waits for one as [`Patience`] says.
    fn look(&mut self, ready: &mut Vec<RawFd>) -> std::io::Result<()> {
        let mut wait = |ms| {
            ready.extend(self.readiness.wait(ms)?);
            Ok(!ready.is_empty())
        };
        match self.patience {
            Patience::Spins => wait(0).map(drop),
            Patience::BusyPolls(length) => busy_poll_then_wait(length, WAIT_MS, wait),
        }
    }

    fn take(&mut self, client: usize, done: &mut Vec<Done>) -> Result<(), BenchError> {
        let connection = &mut self.connections[client];
        let mut bytes = [0; READ_BYTES];
        match connection.stream.read(&mut bytes) {
            Ok(0) => return Err(BenchError::connection(NAME)(ErrorKind::UnexpectedEof.into())),
            Ok(len) => connection.received.extend_from_slice(&bytes[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(BenchError::connection(NAME)(error)),
        }
        let received = &connection.received;
        let whole = match self.framing {
            Framing::Lengths => framed(received).map(|len| LEN_BYTES..LEN_BYTES + len),
            Framing::Resp | Framing::RespOn { .. } => reply_len(received)?.map(|len| 0..len),
        };
        let Some(range) = whole.filter(|range| range.end <= received.len()) else { return Ok(()) };
        let mut end = range.end;
        if let Some(wanted) = connection.replicas {
            let Some(len) = reply_len(&received[end..])? else { return Ok(()) };
            check_replicas(&received[end..end + len], wanted)?;
            end += len;
        }
        let reply = received[range].to_vec();
        connection.received.drain(..end);
        done.push(Done { client, reply, by: By::Server });
        Ok(())
    }
}

fn reply_len(received: &[u8]) -> Result<Option<usize>, BenchError> {
    let strange = |_| BenchError::reply(NAME, String::from_utf8_lossy(received), "a reply");
    resp::reply_len(received).map_err(strange)
}

/// Refuses the reply to a `WAIT` that reports too few replicas.
fn check_replicas(reply: &[u8], wanted: u8) -> Result<(), BenchError> {
    if resp::integer(reply).is_some_and(|have| have >= i64::from(wanted)) {
        return Ok(());
    }
    Err(BenchError::reply(NAME, String::from_utf8_lossy(reply), "that the replicas have it"))
}

impl Channel for StreamChannel {
    fn send(&mut self, client: usize, ask: &Ask) -> Result<(), BenchError> {
        let connection = &mut self.connections[client];
        let sent = match self.framing {
            Framing::Lengths => {
                let mut frame = Vec::with_capacity(LEN_BYTES + ask.bytes.len());
                put_frame(&mut frame, &ask.bytes);
                connection.stream.write_all(&frame)
            }
            Framing::Resp => connection.stream.write_all(&ask.bytes),
            Framing::RespOn { replicas } => {
                connection.replicas = (!resp::is_read(&ask.bytes)).then_some(replicas);
                let mut bytes = ask.bytes.clone();
                if connection.replicas.is_some() {
                    encode(&mut bytes, &[b"WAIT", replicas.to_string().as_bytes(), WAIT_FOR_REPLICAS_MS]);
                }
                connection.stream.write_all(&bytes)
            }
        };
        sent.map_err(BenchError::connection(NAME))
    }

    fn receive(&mut self, done: &mut Vec<Done>) -> Result<(), BenchError> {
        let mut ready = std::mem::take(&mut self.ready);
        self.look(&mut ready).map_err(BenchError::connection(NAME))?;
        for descriptor in ready.drain(..) {
            let client = self.clients.get(&descriptor).copied();
            client.map_or(Ok(()), |client| self.take(client, done))?;
        }
        self.ready = ready;
        Ok(())
    }

    fn sent_again(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Returns the reply to a request and its length in the buffer.
    fn exchange(
        framing: Framing,
        request: &[u8],
        pieces: &'static [&'static [u8]],
    ) -> (Result<Vec<u8>, BenchError>, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let len = stream.read(&mut [0; 64]).unwrap();
            for piece in pieces {
                stream.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
            len
        });
        let mut channel = StreamChannel::open(address, 1, framing, Patience::WAITS).unwrap();
        channel.send(0, &Ask { bytes: request.to_vec(), ..Ask::default() }).unwrap();
        let mut done = Vec::new();
        let mut outcome = Ok(());
        while done.is_empty() && outcome.is_ok() {
            outcome = channel.receive(&mut done);
        }
        let len = server.join().unwrap();
        (outcome.map(|()| done.remove(0).reply), len)
    }

    fn reply_in_pieces(framing: Framing, pieces: &'static [&'static [u8]]) -> Vec<u8> {
        let (reply, len) = exchange(framing, b"ask", pieces);
        assert_eq!(len, if framing == Framing::Lengths { LEN_BYTES + 3 } else { 3 });
        reply.unwrap()
    }

    #[test]
    fn what_changes_something_is_done_once_the_replicas_have_it() {
        let framing = Framing::RespOn { replicas: 2 };
        let (set, get) = (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        let (reply, len) = exchange(framing, set, &[b"+OK\r\n", b":", b"2\r\n"]);
        assert_eq!(reply.unwrap(), b"+OK\r\n");
        assert!(len > set.len(), "a WAIT goes with it");
        let (reply, len) = exchange(framing, get, &[b"$1\r\nv\r\n"]);
        assert_eq!((reply.unwrap(), len), (b"$1\r\nv\r\n".to_vec(), get.len()));
        assert!(exchange(framing, set, &[b"+OK\r\n:1\r\n"]).0.is_err(), "one replica is too few");
    }

    #[test]
    fn replies_are_whole_however_they_arrive() {
        assert_eq!(reply_in_pieces(Framing::Lengths, &[b"\x02\0", b"\0\0O", b"K"]), b"OK");
        assert_eq!(reply_in_pieces(Framing::Resp, &[b"*1\r\n$2", b"\r\nab\r\n"]), b"*1\r\n$2\r\nab\r\n");
    }
}
