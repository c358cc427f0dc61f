//! The connection to the real server: requests are collected, sent at once, and their replies fetched one by one
//! while the network goes on.

use super::resp::{self, RespError, Scanner};
use crate::runtime::{Network, RuntimeError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Bytes of replies that have been fetched and are still in the buffer.
const FETCHED_BYTES_MAX: usize = 1 << 20;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Why the server behind the side-car cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// It cannot be reached.
    #[error("cannot connect to the Redis server at {address}: {source}; is it running?")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The connection has ended.
    #[error("the connection to the Redis server has ended: {0}")]
    Lost(io::Error),
    /// It does not answer.
    #[error("the Redis server has not answered for {0:?}")]
    Silent(Duration),
    /// It answers with what is no reply.
    #[error("the Redis server answers with what is no reply: {0}")]
    Reply(#[from] RespError),
    /// It refuses what the side-car cannot do without.
    #[error("the Redis server refuses {what}: {error}")]
    Refused {
        /// What.
        what: &'static str,
        /// Its words.
        error: String,
    },
    /// Another side-car has taken over.
    #[error(
        "another server's side-car uses the same Redis server and prefix: end one of them, or give each its own prefix"
    )]
    Fenced,
    /// It may lose what it has confirmed.
    #[error(
        "{setting} of the Redis server is {value}: it may lose what it has confirmed, and no device has that any more; set it to \
         {wanted}, or start with --accept-data-loss"
    )]
    Undurable {
        /// Which setting.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// What lies under the side-car's keys was not written by one.
    #[error("the value of {key} was not written by a side-car: move it away, or choose another prefix")]
    Foreign {
        /// The key.
        key: String,
    },
    /// Told to end while too few replicas follow.
    #[error(
        "{have} of {needed} replicas have what was committed last: it was not confirmed, devices keep it"
    )]
    Replicas {
        /// How many must.
        needed: u32,
        /// How many do.
        have: u32,
    },
    /// The side-car's own network.
    #[error(transparent)]
    Network(#[from] RuntimeError),
}

/// How the server is reached.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) address: SocketAddr,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// Longest wait for a reply.
    pub(super) limit: Duration,
}

/// A reply, as far as it was wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Replied {
    Whole(Vec<u8>),
    /// It had so many bytes, and none of them is here.
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
    /// Whether replies come as RESP3.
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

    /// Collects commands that are encoded.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Collects what is needed for replies as RESP3 or RESP2; true if that has a reply of its own.
    pub(super) fn speak(&mut self, resp3: bool) -> bool {
        let changes = self.resp3 != resp3;
        if changes {
            self.push(&[b"HELLO", if resp3 { b"3" } else { b"2" }]);
            self.resp3 = resp3;
        }
        changes
    }

    /// Sends what was collected.
    pub(super) fn send(&mut self) -> Result<(), UpstreamError> {
        self.stream.write_all(&self.out).map_err(UpstreamError::Lost)?;
        self.out.clear();
        Ok(())
    }

    /// Sends what was collected, one command, and fetches its reply.
    pub(super) fn call(&mut self, network: Option<&mut Network>) -> Result<Vec<u8>, UpstreamError> {
        self.send()?;
        self.reply(network)
    }

    /// The next reply.
    pub(super) fn reply(&mut self, network: Option<&mut Network>) -> Result<Vec<u8>, UpstreamError> {
        match self.reply_up_to(usize::MAX, network)? {
            Replied::Whole(reply) => Ok(reply),
            Replied::TooLong(_) => Err(UpstreamError::Lost(io::ErrorKind::OutOfMemory.into())),
        }
    }

    /// The next reply, if it is no longer than `max`; of a longer one no more than that is ever held.
    pub(super) fn reply_up_to(
        &mut self,
        max: usize,
        mut network: Option<&mut Network>,
    ) -> Result<Replied, UpstreamError> {
        let mut until = Instant::now() + self.limit;
        let (mut scanner, mut skipped) = (Scanner::default(), 0);
        loop {
            let found = scanner.scan(&self.input[self.taken..])?;
            let least = skipped + found.unwrap_or(scanner.reached());
            if let Some(len) = found.filter(|_| least <= max) {
                let reply = self.take(len);
                if reply.first() != Some(&b'>') {
                    return Ok(Replied::Whole(reply));
                }
                scanner = Scanner::default();
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

    /// Reads what is there; false if nothing is.
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

    /// Nothing is to come: serves the network alone for so long, or until the connection ends.
    pub(super) fn pause(&self, network: Option<&mut Network>, rest: Duration) -> Result<(), UpstreamError> {
        if rest.is_zero() { Ok(()) } else { self.wait(network, Instant::now() + rest) }
    }

    fn wait(&self, network: Option<&mut Network>, until: Instant) -> Result<(), UpstreamError> {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(UpstreamError::Silent(self.limit));
        }
        match network {
            Some(network) => drop(network.wait_for(self.stream.as_fd(), rest)?),
            None => wait_alone(&self.stream, rest)?,
        }
        Ok(())
    }
}

fn dial(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, limit)?;
    // Where nobody listens on this host, TCP connects a socket with itself if the kernel happens to give it that very port.
    // Each command would come back as its own reply then.
    if stream.local_addr()? == address {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(limit))?;
    Ok(stream)
}

fn wait_alone(stream: &TcpStream, rest: Duration) -> Result<(), UpstreamError> {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    let seconds = i64::try_from(rest.as_secs()).unwrap_or(i64::MAX);
    let rest = Timespec { tv_sec: seconds, tv_nsec: rest.subsec_nanos().into() };
    match poll(&mut fds, Some(&rest)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(UpstreamError::Lost(errno.into())),
    }
}

/// An error if the reply is one.
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
    fn a_connection_is_never_one_with_itself() {
        // The kernel goes through the even ones of its ports when it chooses for a connection.
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let nobody = (40000..60000).step_by(2).find(is_free).expect("a free port");
        for _ in 0..30_000 {
            let error = dial(([127, 0, 0, 1], nobody).into(), Duration::from_secs(1)).map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
    }
}
