//! The connection to the real server. Requests are collected and sent together. Their replies are fetched one by one,
//! and the network is served meanwhile.

use super::resp;
use crate::runtime::{Network, RuntimeError};
use landfall_resp::{ReplyError, ReplyScanner};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Most bytes of fetched replies that stay in the buffer.
const FETCHED_BYTES_MAX: usize = 1 << 20;
/// Most bytes that one call reads.
const READ_BYTES: usize = 256 << 10;

/// Errors of the real server and of the connection to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// Environment: the server cannot be reached.
    #[error("cannot connect to the Redis server at {address}: {source}; is it running?")]
    Connect {
        /// Address of the server.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Environment: the connection has ended.
    #[error("the connection to the Redis server has ended: {0}")]
    Lost(io::Error),
    /// Environment: the server does not answer within the limit.
    #[error("the Redis server has not answered for {0:?}")]
    Silent(Duration),
    /// Peer: a reply is malformed.
    #[error("a reply of the Redis server is malformed: {0}")]
    Reply(#[from] ReplyError),
    /// Peer: the server refuses a command that the side-car needs.
    #[error("the Redis server refuses {what}: {error}")]
    Refused {
        /// What the command is for.
        what: &'static str,
        /// Text of the server's error.
        error: String,
    },
    /// Another side-car has taken over.
    #[error(
        "another server's side-car uses the same Redis server and prefix: end one of them, or give each its own prefix"
    )]
    Fenced,
    /// Misuse: with its settings, the server may lose confirmed updates.
    #[error(
        "{setting} of the Redis server is {value}: it may lose confirmed updates, and no device has them any more; set it to \
         {wanted}, or start with --accept-data-loss"
    )]
    Undurable {
        /// Name of the setting.
        setting: &'static str,
        /// Value of the setting.
        value: String,
        /// Value that the setting must have.
        wanted: &'static str,
    },
    /// Misuse: the value of a key with the side-car's prefix was not written by a side-car.
    #[error("the value of {key} was not written by a side-car: move it away, or choose another prefix")]
    Foreign {
        /// The key.
        key: String,
    },
    /// The side-car was stopped while too few replicas had the last commit.
    #[error(
        "{have} of {needed} replicas have the last commit: it was not confirmed, devices keep its updates"
    )]
    Replicas {
        /// Number of replicas that must have it.
        needed: u32,
        /// Number of replicas that have it.
        have: u32,
    },
    /// The network of the side-car failed.
    #[error(transparent)]
    Network(#[from] RuntimeError),
}

impl UpstreamError {
    /// Another program has flushed the keys.
    pub(super) fn flushed(what: &'static str) -> Self {
        Self::Refused { what, error: "keys were flushed".to_owned() }
    }
}

/// Address and credentials of the real server.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) address: SocketAddr,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// Longest wait for a reply.
    pub(super) limit: Duration,
}

/// A reply, or the length of one that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Replied {
    Whole(Vec<u8>),
    /// The reply had so many bytes. They are discarded.
    TooLong(usize),
}

#[derive(Debug)]
pub(super) struct Upstream {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
    scratch: Vec<u8>,
    /// Bytes of `input` that were fetched.
    taken: usize,
    limit: Duration,
    /// Replies come as RESP3.
    resp3: bool,
}

impl Upstream {
    pub(super) fn connect(access: &Access) -> Result<Self, UpstreamError> {
        let address = access.address;
        let stream =
            dial(address, access.limit).map_err(|source| UpstreamError::Connect { address, source })?;
        let limit = access.limit;
        let (out, input, scratch) = (Vec::new(), Vec::new(), vec![0; READ_BYTES]);
        let mut upstream = Self { stream, out, input, scratch, taken: 0, limit, resp3: false };
        if let Some(password) = &access.password {
            upstream.authenticate(access.user.as_deref(), password)?;
        }
        Ok(upstream)
    }

    fn authenticate(&mut self, user: Option<&str>, password: &str) -> Result<(), UpstreamError> {
        match user {
            Some(user) => self.push(&[b"AUTH", user.as_bytes(), password.as_bytes()]),
            None => self.push(&[b"AUTH", password.as_bytes()]),
        }
        let reply = self.call(None)?;
        refuse_errors(&reply, "the user or password")
    }

    /// Collects a command.
    pub(super) fn push(&mut self, words: &[&[u8]]) {
        resp::put_command(&mut self.out, words);
    }

    /// Collects encoded commands.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Collects the command that switches to RESP3 or RESP2, if it is needed. True if it is, because it has a reply.
    pub(super) fn speak(&mut self, resp3: bool) -> bool {
        let changes = self.resp3 != resp3;
        if changes {
            self.push(&[b"HELLO", if resp3 { b"3" } else { b"2" }]);
            self.resp3 = resp3;
        }
        changes
    }

    /// Sends the collected commands.
    pub(super) fn send(&mut self) -> Result<(), UpstreamError> {
        self.stream.write_all(&self.out).map_err(UpstreamError::Lost)?;
        self.out.clear();
        Ok(())
    }

    /// Sends the collected command and fetches its reply.
    pub(super) fn call(&mut self, network: Option<&mut Network>) -> Result<Vec<u8>, UpstreamError> {
        self.send()?;
        self.reply(network)
    }

    /// Fetches the next reply.
    pub(super) fn reply(&mut self, network: Option<&mut Network>) -> Result<Vec<u8>, UpstreamError> {
        match self.reply_up_to(usize::MAX, network)? {
            Replied::Whole(reply) => Ok(reply),
            Replied::TooLong(_) => Err(UpstreamError::Lost(io::ErrorKind::OutOfMemory.into())),
        }
    }

    /// Fetches the next reply if it has `max` bytes at most. Of a longer reply, no more than `max` bytes are ever in
    /// memory.
    pub(super) fn reply_up_to(
        &mut self,
        max: usize,
        mut network: Option<&mut Network>,
    ) -> Result<Replied, UpstreamError> {
        let mut until = Instant::now() + self.limit;
        let (mut scanner, mut skipped) = (ReplyScanner::default(), 0);
        loop {
            let found = scanner.scan(&self.input[self.taken..])?;
            let least = skipped + found.unwrap_or(scanner.reached());
            if let Some(len) = found.filter(|_| least <= max) {
                let reply = self.take(len);
                if reply.first() != Some(&b'>') {
                    return Ok(Replied::Whole(reply));
                }
                scanner = ReplyScanner::default();
                continue;
            }
            if least > max {
                let here = scanner.reached().min(self.input.len() - self.taken);
                scanner.skip(here);
                skipped += here;
                self.drop_taken(here);
            }
            if found.is_some() {
                return Ok(Replied::TooLong(least));
            }
            if self.fetch()? {
                until = Instant::now() + self.limit;
            } else {
                self.wait(network.as_deref_mut(), until)?;
            }
        }
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        if self.taken == 0 && len == self.input.len() && len > READ_BYTES {
            let mut reply = std::mem::take(&mut self.input);
            reply.shrink_to_fit();
            return reply;
        }
        let reply = self.input[self.taken..self.taken + len].to_vec();
        self.drop_taken(len);
        reply
    }

    fn drop_taken(&mut self, len: usize) {
        self.taken += len;
        if self.taken == self.input.len() || self.taken > FETCHED_BYTES_MAX {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Reads bytes that have arrived. False if there are none.
    fn fetch(&mut self) -> Result<bool, UpstreamError> {
        let read = recv(&self.stream, &mut self.scratch[..], RecvFlags::DONTWAIT).map(|(len, _)| len);
        self.input.extend_from_slice(&self.scratch[..read.unwrap_or(0)]);
        match read {
            Ok(0) => Err(UpstreamError::Lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(UpstreamError::Lost(errno.into())),
        }
    }

    /// Serves only the network for `time`, while no reply is expected, or until the connection ends.
    pub(super) fn pause(&self, network: Option<&mut Network>, time: Duration) -> Result<(), UpstreamError> {
        if time.is_zero() { Ok(()) } else { self.wait(network, Instant::now() + time) }
    }

    fn wait(&self, network: Option<&mut Network>, until: Instant) -> Result<(), UpstreamError> {
        let remaining = until.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(UpstreamError::Silent(self.limit));
        }
        match network {
            Some(network) => drop(network.wait_for(self.stream.as_fd(), remaining)?),
            None => wait_alone(&self.stream, remaining)?,
        }
        Ok(())
    }
}

fn dial(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, limit)?;
    // If the server is on this host and its port has no listener, the kernel may choose the very same port for this
    // socket, and TCP then connects the socket to itself. Each command would come back as its own reply.
    if stream.local_addr()? == address {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(limit))?;
    Ok(stream)
}

fn wait_alone(stream: &TcpStream, most: Duration) -> Result<(), UpstreamError> {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
    let limit = Timespec { tv_sec: seconds, tv_nsec: most.subsec_nanos().into() };
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(UpstreamError::Lost(errno.into())),
    }
}

/// Converts an error reply to an error.
pub(super) fn refuse_errors(reply: &[u8], what: &'static str) -> Result<(), UpstreamError> {
    if !resp::is_error(reply) {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&reply[1..]).trim().to_owned();
    Err(UpstreamError::Refused { what, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_socket_never_stays_connected_to_itself() {
        // The kernel chooses even ports for connections.
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let unused = (40000..60000).step_by(2).find(is_free).expect("a free port");
        for _ in 0..30_000 {
            let error = dial(([127, 0, 0, 1], unused).into(), Duration::from_secs(1)).map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
    }
}
