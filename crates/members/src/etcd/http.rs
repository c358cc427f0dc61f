//! POST requests to etcd's gateway, each with a time limit.
//!
//! `ureq` implements HTTP. It blocks the calling thread, limits the time of a whole exchange including name resolution,
//! and accepts chunked bodies with trailers, which the gateway uses for errors. Each connection serves one request, so
//! that no call uses a connection that etcd has closed meanwhile; TLS resumes the session of an earlier one.

use super::tls::Tls;
use crate::error::MembersError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use ureq::typestate::WithBody;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, TcpConnector};
use ureq::{Agent, Error, RequestBuilder};

/// Longest answer, bytes: all members and a chain, in base64, are a tenth of it.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// What may be wrong if etcd closes a connection that is to be encrypted.
const CLOSED: &str = "it closes the connection: it may demand a client certificate that its own CA has signed; \
    if it has no TLS, write http://";
/// The same of one without TLS.
const CLOSED_PLAIN: &str = "it closes the connection; if etcd has TLS, write https://";

/// One address of etcd.
#[derive(Clone, Debug)]
pub(super) struct Address {
    scheme: Scheme,
    /// `HOST:PORT`.
    host: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// An address and what a connection to it needs.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    address: Address,
    tls: Tls,
}

/// An answer that was read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status code.
    pub(super) status: u16,
    /// The body.
    pub(super) body: Vec<u8>,
}

/// Limits of the time of an exchange and of its parts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) whole: Option<Duration>,
    pub(super) connect: Option<Duration>,
    /// From the request to the head of the answer.
    pub(super) response: Option<Duration>,
    pub(super) body: Option<Duration>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: MembersError,
    /// Whether etcd may have received the request. If not, another address can be asked without doing anything twice.
    pub(super) sent: bool,
}

impl Address {
    /// Reads `https://HOST:PORT` or `http://HOST:PORT`. Without a scheme it is `http`.
    pub(super) fn parse(text: &str) -> Result<Self, MembersError> {
        let (scheme, host) = match text.strip_prefix("https://") {
            Some(host) => (Scheme::Https, host),
            None => (Scheme::Http, text.strip_prefix("http://").unwrap_or(text)),
        };
        let host = host.trim_end_matches('/');
        let port =
            host.rsplit_once(':').filter(|(name, _)| !name.is_empty()).map(|(_, port)| port.parse::<u16>());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
        if matches!(port, Some(Ok(1..))) && host.bytes().all(plain) {
            return Ok(Self { scheme, host: host.to_owned() });
        }
        Err(MembersError::Endpoint { text: text.to_owned() })
    }

    /// Whether connections to it are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// `HOST:PORT`.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    fn url(&self, path: &str) -> String {
        let scheme = if self.is_encrypted() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.host)
    }
}

impl Endpoint {
    pub(super) fn new(address: Address, tls: Tls) -> Self {
        Self { address, tls }
    }

    /// The name in messages.
    pub(super) fn name(&self) -> &str {
        &self.address.host
    }

    /// Posts `json`, with the token of a user if there is one, and reads the answer. Both end by `end`.
    pub(super) fn post(
        &self,
        path: &str,
        json: &[u8],
        token: Option<&str>,
        end: Instant,
    ) -> Result<Answer, Failure> {
        let left = end.saturating_duration_since(Instant::now());
        self.exchange(Limits { whole: Some(left), ..Limits::default() }, |agent| {
            let mut response = self.request(agent, path, token).send(json)?;
            let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
            Ok(Answer { status: response.status().as_u16(), body })
        })
    }

    /// An exchange within limits of time.
    pub(super) fn exchange<T>(
        &self,
        limits: Limits,
        exchange: impl FnOnce(&Agent) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let connected = Arc::default();
        if [limits.whole, limits.connect].contains(&Some(Duration::ZERO)) {
            return Err(Failure { error: self.unreachable(io::ErrorKind::TimedOut.into()), sent: false });
        }
        let outcome = exchange(&self.agent(limits, &connected));
        outcome
            .map_err(|error| Failure { error: self.failed(error), sent: connected.load(Ordering::Relaxed) })
    }

    /// A request, with the token of a user if there is one.
    pub(super) fn request(&self, agent: &Agent, path: &str, token: Option<&str>) -> RequestBuilder<WithBody> {
        let request = agent.post(self.address.url(path));
        let request = request.content_type("application/json").header("Connection", "close");
        match token {
            Some(token) => request.header("Authorization", token),
            None => request,
        }
    }

    /// An agent that connects to the address itself: it uses no proxy from the environment and follows no redirect. It
    /// has its own limits of time, because `ureq` parses certificates anew for limits of a request.
    fn agent(&self, limits: Limits, connected: &Arc<AtomicBool>) -> Agent {
        let config = Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_idle_connections(0)
            .tls_config(self.tls.config())
            .timeout_global(limits.whole)
            .timeout_connect(limits.connect)
            .timeout_recv_response(limits.response)
            .timeout_recv_body(limits.body)
            .build();
        let connector = TcpConnector::default().chain(self.tls.connector(connected));
        Agent::with_parts(config, connector, DefaultResolver::default())
    }

    pub(super) fn failed(&self, error: Error) -> MembersError {
        match error {
            Error::Timeout(_) => self.unreachable(io::ErrorKind::TimedOut.into()),
            Error::HostNotFound => self.unreachable(io::Error::new(io::ErrorKind::NotFound, "no such host")),
            Error::Rustls(source) => self.no_tls(source),
            Error::Io(source) => self.failed_io(source),
            Error::ConnectionFailed => self.unreachable(io::ErrorKind::ConnectionRefused.into()),
            Error::BodyExceedsLimit(_) => self.nonsense("it is too long"),
            _ => self.nonsense("no HTTP"),
        }
    }

    fn failed_io(&self, source: io::Error) -> MembersError {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        if let Some(tls) = tls_error(&source) {
            return self.no_tls(tls.clone());
        }
        match source.kind() {
            UnexpectedEof => self.nonsense(self.cut_short()),
            // An alert that says more may be lost, because etcd closes the connection right after it.
            kind @ (BrokenPipe | ConnectionReset) => {
                let why = if self.address.is_encrypted() { CLOSED } else { CLOSED_PLAIN };
                self.unreachable(io::Error::new(kind, why))
            }
            _ => self.unreachable(source),
        }
    }

    /// What an answer is that ends early. etcd closes connections that are not what it expects.
    fn cut_short(&self) -> &'static str {
        match self.address.scheme {
            Scheme::Https => "it ends in the middle; if etcd has no TLS, write http://",
            Scheme::Http => "it ends in the middle; if etcd has TLS, write https://",
        }
    }

    fn unreachable(&self, source: io::Error) -> MembersError {
        MembersError::Unreachable { endpoint: self.name().to_owned(), source }
    }

    fn no_tls(&self, source: rustls::Error) -> MembersError {
        MembersError::Tls { endpoint: self.name().to_owned(), source }
    }

    /// The error for an answer that goes on, but was ended.
    pub(super) fn ended(&self) -> MembersError {
        self.unreachable(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended the stream"))
    }

    /// The error for an invalid answer.
    pub(super) fn nonsense(&self, what: &'static str) -> MembersError {
        MembersError::Answer { endpoint: self.name().to_owned(), what }
    }
}

/// The error of TLS that a system's error wraps.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|source| source.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::config::EtcdConfig;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// As etcd 3.4 answers for a lease that it does not know.
    const REFUSAL: &[u8] =
        b"HTTP/1.1 404 Not Found\r\nTrailer: Grpc-Trailer-Content-Type\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\nGrpc-Trailer-Content-Type: application/grpc\r\n\r\n";
    const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}\r\n";
    const UNTIL_CLOSED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n{}";
    /// A redirect, which is not followed: only the given addresses are used.
    const ELSEWHERE: &[u8] =
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";

    fn plain(listener: &TcpListener) -> Endpoint {
        let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        Endpoint::new(address, Tls::new(&EtcdConfig::default(), false).unwrap())
    }

    /// The outcome of a request that a server answers with these bytes before it closes the connection.
    fn answered(bytes: &[u8]) -> Result<Answer, MembersError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = plain(&listener);
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
            let end = Instant::now() + Duration::from_secs(30);
            endpoint.post("/v3/kv/range", b"{\"q\":1}", None, end).map_err(|failure| failure.error)
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
        for (text, encrypted) in [
            ("http://127.0.0.1:2379", false),
            ("127.0.0.1:2379", false),
            ("http://[::1]:2379/", false),
            ("https://etcd.lab:2379", true),
        ] {
            assert_eq!(Address::parse(text).unwrap().is_encrypted(), encrypted, "{text}");
        }
        for text in [
            "",
            "http://",
            "host",
            "https://h",
            "ftp://h:1",
            "h:0",
            "h:70000",
            ":1",
            "h:1/path",
            "h\r\n:1",
            "u@h:1",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_peer_that_does_not_answer_is_given_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = plain(&listener);
        let begun = Instant::now();
        let outcome = endpoint.post("/", b"{}", None, begun + Duration::from_millis(100)).unwrap_err();
        assert!(outcome.sent);
        assert!(
            matches!(outcome.error, MembersError::Unreachable { ref source, .. } if source.kind() == io::ErrorKind::TimedOut)
        );
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
