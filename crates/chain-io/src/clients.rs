//! Where clients connect to a node: `docs/format/chain.md`, "Clients".

use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Longest name of a host, bytes.
const HOST_BYTES_MAX: usize = 253;

/// Misuse: a text that is no address for clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no address for clients: expected HOST:PORT, such as db-1.example.org:6479 or [2001:db8::1]:6479"
)]
pub struct BadClientAddress(String);

/// A host and a port. Clients get them as they are: the host may be a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ClientAddress {
    /// A name, or an IP address without brackets.
    pub host: String,
    /// Above 0.
    pub port: u16,
}

impl FromStr for ClientAddress {
    type Err = BadClientAddress;

    fn from_str(text: &str) -> Result<Self, BadClientAddress> {
        let bad = || BadClientAddress(text.into());
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_host = match in_brackets {
            Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
            None => (1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(is_allowed),
        };
        let port = port.parse().ok().filter(|port| is_host && *port > 0).ok_or_else(bad)?;
        Ok(Self { host: in_brackets.unwrap_or(host).into(), port })
    }
}

impl TryFrom<String> for ClientAddress {
    type Error = BadClientAddress;

    fn try_from(text: String) -> Result<Self, BadClientAddress> {
        text.parse()
    }
}

impl From<SocketAddr> for ClientAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses_and_are_written_as_they_were_read() {
        for (text, host) in
            [("db-1.example.org:6479", "db-1.example.org"), ("10.0.0.1:1", "10.0.0.1"), ("[::1]:6479", "::1")]
        {
            let address: ClientAddress = text.parse().unwrap();
            assert_eq!(address.host, host);
            assert_eq!(address.to_string(), text);
        }
        assert_eq!(ClientAddress::from("[::1]:7".parse::<SocketAddr>().unwrap()).to_string(), "[::1]:7");
    }

    #[test]
    fn what_would_break_a_message_or_lead_nowhere_is_refused() {
        for text in
            ["", "host", ":6479", "host:0", "host:65536", "a b:1", "::1:6479", "[db]:1", "a\":1", "host:"]
        {
            let refused = text.parse::<ClientAddress>().unwrap_err();
            assert!(refused.to_string().contains("HOST:PORT"), "{text:?}");
        }
    }
}
