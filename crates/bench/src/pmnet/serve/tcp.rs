//! Plain client-server over TCP. A length precedes each request and each response.

use super::handler::{self, Handler};
use super::{WAIT_MS, announce};
use crate::common::error::BenchError;
use crate::common::sys::Readiness;
use crate::common::sys::{note_stop_signals, stop_asked};
use crate::pmnet::args::PmnetServerArgs;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Bytes of the longest request.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Bytes of the length in front of a request or a response.
pub(crate) const LEN_BYTES: usize = 4;

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    replies: Vec<u8>,
}

pub(super) fn run(args: &PmnetServerArgs) -> Result<(), BenchError> {
    note_stop_signals();
    let failed = || BenchError::connection("a client");
    let listener = TcpListener::bind(args.listen).map_err(failed())?;
    listener.set_nonblocking(true).map_err(failed())?;
    let mut handler = Handler::open(args)?;
    let mut readiness = Readiness::new().map_err(failed())?;
    readiness.add(&listener).map_err(failed())?;
    announce();
    let mut connections: BTreeMap<RawFd, Connection> = BTreeMap::new();
    let mut ready: Vec<RawFd> = Vec::new();
    while !stop_asked() {
        ready.clear();
        let wait = if args.spin { 0 } else { WAIT_MS };
        ready.extend(readiness.wait(wait).map_err(failed())?);
        for descriptor in &ready {
            if *descriptor == listener.as_raw_fd() {
                accept(&listener, &readiness, &mut connections).map_err(failed())?;
            } else if let Some(connection) = connections.get_mut(descriptor)
                && !take(connection, &mut handler)?
            {
                connections.remove(descriptor);
            }
        }
        handler.commit().map_err(handler::failed)?;
        ready.iter().filter_map(|descriptor| connections.get_mut(descriptor).map(answer)).for_each(drop);
    }
    Ok(())
}

fn accept(
    listener: &TcpListener,
    readiness: &Readiness,
    connections: &mut BTreeMap<RawFd, Connection>,
) -> std::io::Result<()> {
    while let Ok((stream, _)) = listener.accept() {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        readiness.add(&stream)?;
        let connection = Connection { stream, received: Vec::new(), replies: Vec::new() };
        connections.insert(connection.stream.as_raw_fd(), connection);
    }
    Ok(())
}

/// Reads and executes the requests that have arrived. False if the connection has ended or a request is malformed.
fn take(connection: &mut Connection, handler: &mut Handler) -> Result<bool, BenchError> {
    let mut bytes = [0; READ_BYTES];
    match connection.stream.read(&mut bytes) {
        Ok(0) => return Ok(false),
        Ok(len) => connection.received.extend_from_slice(&bytes[..len]),
        Err(error) => return Ok(error.kind() == ErrorKind::WouldBlock),
    }
    let mut at = 0;
    while let Some(len) = framed(&connection.received[at..]) {
        if len > REQUEST_BYTES_MAX {
            return Ok(false);
        }
        let Some(request) = connection.received.get(at + LEN_BYTES..at + LEN_BYTES + len) else { break };
        let response = handler.apply(request, None).map_err(handler::failed)?;
        put_frame(&mut connection.replies, &response);
        at += LEN_BYTES + len;
    }
    connection.received.drain(..at);
    Ok(true)
}

/// Sends the replies once their requests are committed. If they cannot be sent, the connection ends.
fn answer(connection: &mut Connection) -> std::io::Result<()> {
    let done = connection.stream.write_all(&connection.replies);
    connection.replies.clear();
    done
}

/// Reads the length at the start of a frame.
pub(crate) fn framed(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk::<LEN_BYTES>().map(|len| u32::from_le_bytes(*len) as usize)
}

/// Appends a frame.
pub(crate) fn put_frame(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    into.extend_from_slice(bytes);
}
