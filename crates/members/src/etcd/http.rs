//! POST requests to etcd's gateway, each with a time limit.
//!
//! `ureq` implements HTTP. It blocks the calling thread, limits the time of a whole exchange including name resolution,
//! and accepts chunked bodies with trailers, which the gateway uses for errors. It is built without TLS. Each connection
//! serves one request, so that no call uses a connection that etcd has closed meanwhile.

use crate::error::MembersError;
use std::io;
use std::time::Instant;
use ureq::{Agent, Error};

/// Longest answer, bytes: all members and a chain, in base64, are a tenth of it.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// One address of etcd.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    /// `HOST:PORT`.
    host: String,
    agent: Agent,
}

/// An answer that was read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status code.
    pub(super) status: u16,
    /// The body.
    pub(super) body: Vec<u8>,
}

impl Endpoint {
    /// Reads `http://HOST:PORT`, or without the scheme.
    pub(super) fn parse(text: &str) -> Result<Self, MembersError> {
        let host = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let port =
            host.rsplit_once(':').filter(|(name, _)| !name.is_empty()).map(|(_, port)| port.parse::<u16>());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
        if matches!(port, Some(Ok(1..))) && host.bytes().all(plain) {
            return Ok(Self { host: host.to_owned(), agent: agent() });
        }
        Err(MembersError::Endpoint { text: text.to_owned() })
    }

    /// The name in messages.
    pub(super) fn name(&self) -> &str {
        &self.host
    }

    /// Posts `json` and reads the answer. Both end by `end`.
    pub(super) fn post(&self, path: &str, json: &[u8], end: Instant) -> Result<Answer, MembersError> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.unreachable(io::ErrorKind::TimedOut.into()));
        }
        let request = self.agent.post(format!("http://{}{path}", self.host));
        let request = request.config().timeout_global(Some(left)).build();
        let request = request.content_type("application/json").header("Connection", "close");
        let exchange = || {
            let mut response = request.send(json)?;
            let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
            Ok(Answer { status: response.status().as_u16(), body })
        };
        exchange().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: Error) -> MembersError {
        match error {
            Error::Timeout(_) => self.unreachable(io::ErrorKind::TimedOut.into()),
            Error::HostNotFound => self.unreachable(io::Error::new(io::ErrorKind::NotFound, "no such host")),
            Error::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                self.nonsense("it ends in the middle")
            }
            Error::Io(source) => self.unreachable(source),
            Error::ConnectionFailed => self.unreachable(io::ErrorKind::ConnectionRefused.into()),
            Error::BodyExceedsLimit(_) => self.nonsense("it is too long"),
            _ => self.nonsense("no HTTP"),
        }
    }

    fn unreachable(&self, source: io::Error) -> MembersError {
        MembersError::Unreachable { endpoint: self.host.clone(), source }
    }

    /// The error for an invalid answer.
    pub(super) fn nonsense(&self, what: &'static str) -> MembersError {
        MembersError::Answer { endpoint: self.host.clone(), what }
    }
}

/// An agent that connects to the address itself: it uses no proxy from the environment and follows no redirect.
fn agent() -> Agent {
    Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_idle_connections(0)
        .build()
        .new_agent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    /// As etcd 3.4 answers for a lease that it does not know.
    const REFUSAL: &[u8] =
        b"HTTP/1.1 404 Not Found\r\nTrailer: Grpc-Trailer-Content-Type\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\nGrpc-Trailer-Content-Type: application/grpc\r\n\r\n";
    const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}\r\n";
    const UNTIL_CLOSED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n{}";
    /// A redirect, which is not followed: only the given addresses are used.
    const ELSEWHERE: &[u8] =
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";

    /// The outcome of a request that a server answers with these bytes before it closes the connection.
    fn answered(bytes: &[u8]) -> Result<Answer, MembersError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                // The whole question, so that closing does not reset the connection.
                let (mut question, mut piece) = (Vec::new(), [0; 1024]);
                while !question.ends_with(b"{\"q\":1}") {
                    let count = stream.read(&mut piece).unwrap();
                    assert_ne!(count, 0, "the question ends early");
                    question.extend_from_slice(&piece[..count]);
                }
                stream.write_all(bytes).unwrap();
            });
            endpoint.post("/v3/kv/range", b"{\"q\":1}", Instant::now() + Duration::from_secs(30))
        })
    }

    #[test]
    fn answers_are_read_whole_however_they_end() {
        for (bytes, status, body) in [
            (REFUSAL, 404, &b"{\"a\":1}"[..]),
            (LENGTH, 200, b"{}\r\n"),
            (UNTIL_CLOSED, 200, b"{}"),
            (ELSEWHERE, 302, b""),
        ] {
            assert_eq!(answered(bytes).unwrap(), Answer { status, body: body.to_vec() });
        }
    }

    #[test]
    fn an_answer_that_ends_in_the_middle_is_none() {
        let in_last_chunk =
            REFUSAL.len() - b"}\r\n0\r\nGrpc-Trailer-Content-Type: application/grpc\r\n\r\n".len();
        for (bytes, last) in [(REFUSAL, in_last_chunk), (LENGTH, LENGTH.len() - 1)] {
            for len in [0, 1, 20, last - 5, last] {
                let outcome = answered(&bytes[..len]);
                assert!(matches!(outcome, Err(MembersError::Answer { .. })), "{len} bytes: {outcome:?}");
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [
            &b"SSH-2.0-x\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            let outcome = answered(bytes);
            let text = String::from_utf8_lossy(bytes);
            assert!(matches!(outcome, Err(MembersError::Answer { .. })), "{text}: {outcome:?}");
        }
    }

    #[test]
    fn an_answer_without_end_is_given_up() {
        let long = vec![b' '; usize::try_from(ANSWER_BYTES_MAX).unwrap() + 1];
        let outcome = answered(&[b"HTTP/1.1 200 OK\r\n\r\n", &long[..]].concat()).unwrap_err();
        assert!(matches!(outcome, MembersError::Answer { what: "it is too long", .. }), "{outcome:?}");
    }

    #[test]
    fn addresses_are_a_host_and_a_port() {
        for text in ["http://127.0.0.1:2379", "127.0.0.1:2379", "http://[::1]:2379/", "etcd.lab:2379"] {
            assert!(Endpoint::parse(text).is_ok(), "{text}");
        }
        for text in
            ["", "http://", "host", "https://h:1", "h:0", "h:70000", ":1", "h:1/path", "h\r\n:1", "u@h:1"]
        {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_peer_that_does_not_answer_is_given_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let begun = Instant::now();
        let outcome = endpoint.post("/", b"{}", begun + Duration::from_millis(100)).unwrap_err();
        assert!(
            matches!(outcome, MembersError::Unreachable { ref source, .. } if source.kind() == io::ErrorKind::TimedOut)
        );
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
