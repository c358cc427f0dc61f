//! Errors of sources of membership.

use std::io;
use std::path::PathBuf;

/// An error of a source of membership.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembersError {
    /// Environment: the file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Misuse: the file is longer than any chain needs.
    #[error("{}: longer than {max} bytes: this is no chain's file", path.display())]
    LongFile {
        /// Which file.
        path: PathBuf,
        /// Most, bytes.
        max: u64,
    },
    /// Misuse: the file is not valid TOML for a chain. The message contains line and column.
    #[error("{}: {source}\ncorrect the line; docs/pmnet-members.md has an example", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Where, and what was expected.
        source: Box<toml::de::Error>,
    },
    /// Misuse: the file is valid TOML but not a valid chain.
    #[error("{}: {source}", path.display())]
    FileChain {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: ChainError,
    },
    /// Misuse: an invalid chain, or a change that cannot be made.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// Misuse: the file of a static chain is changed with an editor.
    #[error("{} is a static chain: edit the file and raise its epoch", path.display())]
    ReadOnly {
        /// Which file.
        path: PathBuf,
    },
    /// Misuse: members cannot register in a file.
    #[error("{} is a static chain, in which nobody registers: keep the chain in etcd for that", path.display())]
    NoRegister {
        /// Which file.
        path: PathBuf,
    },
    /// Misuse: an invalid address of etcd.
    #[error("{text:?} is no address of etcd: write https://HOST:PORT, or http://HOST:PORT without TLS")]
    Endpoint {
        /// What was given.
        text: String,
    },
    /// Misuse: no address of etcd, or too many.
    #[error("1 to {max} addresses of etcd are needed, not {count}")]
    Endpoints {
        /// Addresses given.
        count: usize,
        /// Most.
        max: usize,
    },
    /// Misuse: the files for TLS.
    #[error("TLS of etcd: {0}")]
    TlsFile(#[from] TlsFileError),
    /// Misuse: the TTL of a member is out of range.
    #[error("the TTL of a member is {min} to {max} s, not {asked}")]
    Ttl {
        /// Asked for, seconds.
        asked: u64,
        /// Shortest, seconds.
        min: u64,
        /// Longest, seconds.
        max: u64,
    },
    /// Misuse: the chain exists already.
    #[error("chain {chain:?} is in etcd already, at epoch {epoch}: change it, or delete its key first")]
    Exists {
        /// The chain.
        chain: String,
        /// Its epoch.
        epoch: u64,
    },
    /// Environment: the chain does not exist yet.
    #[error("chain {chain:?} is not in etcd: there is no key {key}")]
    NoChain {
        /// The chain.
        chain: String,
        /// The missing key.
        key: String,
    },
    /// Environment: etcd cannot be reached, or does not answer in time. A change may have been made or not.
    #[error("etcd at {endpoint} does not answer: {source}")]
    Unreachable {
        /// Which of the addresses.
        endpoint: String,
        /// The system's error.
        source: io::Error,
    },
    /// Peer: there is no TLS connection that both sides trust.
    #[error("etcd at {endpoint}: TLS: {source}{}", advice(source))]
    Tls {
        /// Which of the addresses.
        endpoint: String,
        /// What TLS says.
        source: rustls::Error,
    },
    /// Peer: etcd does not let the user in.
    #[error("etcd at {endpoint} does not let user {user:?} in: {message}{}", refusal_advice(message))]
    Login {
        /// Which of the addresses.
        endpoint: String,
        /// Who.
        user: String,
        /// What etcd says.
        message: String,
    },
    /// None of several addresses has served: what each of them said, in the order of the attempts.
    #[error("no address of etcd serves: {}", joined(failures))]
    Addresses {
        /// One for each address that was tried.
        failures: Vec<MembersError>,
    },
    /// Peer: etcd refuses.
    #[error("etcd at {endpoint} refuses ({status}, code {code}): {message}{}", refusal_advice(message))]
    Refused {
        /// Which of the addresses.
        endpoint: String,
        /// The status of HTTP.
        status: u16,
        /// The code of gRPC; 0 where the answer holds none.
        code: u32,
        /// The message of etcd.
        message: String,
    },
    /// Peer: the answer is not one of etcd.
    #[error("the answer of {endpoint} makes no sense ({what}): is this etcd 3.4 or later?")]
    Answer {
        /// Which of the addresses.
        endpoint: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Corrupt: the value of a key is invalid.
    #[error("the value of {key} in etcd is damaged, or of a later version: {source}")]
    Value {
        /// Which key.
        key: String,
        /// Where, and what was expected.
        source: serde_json::Error,
    },
    /// Corrupt: the value of a key contradicts the key, or itself.
    #[error("the value of {key} in etcd is wrong: {source}")]
    ValueChain {
        /// Which key.
        key: String,
        /// What is wrong.
        source: ChainError,
    },
    /// Environment: more keys than a deployment has.
    #[error("chain {chain:?} has more than {max} keys in etcd")]
    TooMany {
        /// The chain.
        chain: String,
        /// Most.
        max: usize,
    },
    /// Environment: others changed a key each time that this change was tried.
    #[error("{key} in etcd was changed by somebody else {tries} times in a row: try again later")]
    Conflict {
        /// Which key.
        key: String,
        /// How often it was tried.
        tries: usize,
    },
    /// Corrupt: the chain changed, but its epoch did not grow.
    #[error("the chain's epoch went from {seen} to {found} with other contents: raise it above {seen}")]
    EpochNotRaised {
        /// The epoch known before.
        seen: u64,
        /// The epoch that came with the change.
        found: u64,
    },
    /// Environment: no thread can be started.
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
}

impl MembersError {
    /// Whether trying again may help: etcd does not answer, or says that it cannot at the moment.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => *status >= 500,
            Self::Addresses { failures } => failures.iter().any(Self::passes),
            _ => false,
        }
    }

    /// The error of a call that has failed at each of these addresses, at least one.
    pub(crate) fn of_addresses(mut failures: Vec<Self>) -> Self {
        match failures.pop() {
            Some(only) if failures.is_empty() => only,
            last => {
                failures.extend(last);
                Self::Addresses { failures }
            }
        }
    }
}

fn joined(failures: &[MembersError]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What to do about an error of TLS, where one can tell.
fn advice(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, CertificateError as Wrong, Error, InvalidMessage};
    match error {
        Error::InvalidCertificate(Wrong::UnknownIssuer | Wrong::BadSignature) => {
            ": give the CA that has signed its certificate"
        }
        Error::InvalidCertificate(Wrong::NotValidForName | Wrong::NotValidForNameContext { .. }) => {
            ": use an address that is in its certificate"
        }
        Error::AlertReceived(Alert::CertificateRequired | Alert::BadCertificate | Alert::UnknownCA) => {
            ": it demands a client certificate that its own CA has signed"
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => ": if it has no TLS, write http://",
        _ => "",
    }
}

/// What to do about a refusal, where one can tell.
fn refusal_advice(message: &str) -> &'static str {
    const ADVICE: [(&str, &str); 2] = [
        ("user name is empty", ": give a user and a password"),
        ("CommonName of client sending a request", ": use a client certificate without a common name"),
    ];
    ADVICE.iter().find(|(words, _)| message.contains(words)).map_or("", |(_, advice)| advice)
}

/// Why the files for TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFileError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file holds nothing of this kind.
    #[error("{} holds no {what} in PEM (\"-----BEGIN ...\"): give a PEM file", path.display())]
    NotPem {
        /// Which file.
        path: PathBuf,
        /// `certificate` or `private key without a passphrase`.
        what: &'static str,
    },
    /// A certificate that cannot be used, or a key that does not belong to it.
    #[error("the certificate in {} cannot be used: {source}", path.display())]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// A certificate without its key.
    #[error("a client certificate needs its private key: give both files")]
    NoKey,
    /// A key without its certificate.
    #[error("a private key needs its client certificate: give both files")]
    NoCertificate,
    /// A file for TLS with an address that has none.
    #[error("{host} is an address without TLS, for which a {what} has no use: write https://{host}")]
    Plain {
        /// `HOST:PORT`.
        host: String,
        /// `CA`, `certificate` or `key`.
        what: &'static str,
    },
    /// The system trusts nobody.
    #[error("this machine has no CA certificates: give the CA that has signed etcd's")]
    NoRoots,
}

/// Why something is no chain, or a change to one cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// A name that nothing can have.
    #[error("{name:?} is no name of a {what}: 1 to {max} letters, digits, '.', '_' and '-'")]
    BadName {
        /// `chain`, `device` or `member`.
        what: &'static str,
        /// The name given.
        name: String,
        /// Longest, bytes.
        max: usize,
    },
    /// An epoch of 0: counting begins at 1.
    #[error("epoch is 0: the first epoch of a chain is 1")]
    NoEpoch,
    /// More of something than a chain has.
    #[error("a chain has at most {max} {what}, not {count}")]
    TooMany {
        /// `devices` or `replicas`.
        what: &'static str,
        /// Given.
        count: usize,
        /// Most.
        max: usize,
    },
    /// Two devices of one name.
    #[error("two devices are called {name:?}: each needs a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// Two devices of one number.
    #[error(
        "devices {first:?} and {second:?} have the number {number}: give each its own, and never another later"
    )]
    SameNumber {
        /// The number.
        number: u8,
        /// The one nearer to the clients.
        first: String,
        /// The other one.
        second: String,
    },
    /// A number that no PMNet-ACK can carry.
    #[error("device {name:?} has the number {number}: the highest is {max}")]
    BadNumber {
        /// The device.
        name: String,
        /// Its number.
        number: u8,
        /// The highest.
        max: u8,
    },
    /// There is no such device.
    #[error("chain {chain:?} has no device {name:?}")]
    NoDevice {
        /// The chain.
        chain: String,
        /// The name given.
        name: String,
    },
    /// A place behind the end of the chain.
    #[error("position {position} is behind the end: the chain has {devices} devices")]
    BadPosition {
        /// Asked for, from 0.
        position: usize,
        /// Devices that there are.
        devices: usize,
    },
    /// A chain's document under another chain's name.
    #[error("it describes chain {found:?}, not {wanted:?}")]
    OtherChain {
        /// The name that it should have.
        wanted: String,
        /// The name that it has.
        found: String,
    },
    /// Every epoch has been used.
    #[error("no epoch is left")]
    NoEpochLeft,
}
