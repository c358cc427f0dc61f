//! The addresses of one etcd: which of them is asked, and which next.

use super::config::EtcdConfig;
use super::http::{Address, Answer, Endpoint, Failure};
use super::tls::Tls;
use crate::error::{MembersError, TlsFileError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most addresses of one etcd.
pub const ENDPOINTS_MAX: usize = 8;
/// gRPC's code *not found*, which etcd returns for an unknown lease.
const NOT_FOUND: u32 = 5;

/// One etcd, 3.4 or later, through its JSON gateway. Clones share the address in use.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    cluster: Arc<Cluster>,
}

/// The addresses, and which of them has answered last.
#[derive(Debug)]
pub(super) struct Cluster {
    endpoints: Vec<Endpoint>,
    /// The index of the address that is asked first.
    current: AtomicUsize,
}

/// What a call is, and when it may be made at one more address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Carrying it out twice does no harm.
    Always,
    /// Only if no other address has received it.
    Unsent,
}

/// A request in JSON.
#[derive(Debug)]
pub(super) struct Request<'r> {
    pub(super) path: &'static str,
    pub(super) json: &'r serde_json::Value,
    pub(super) repeat: Repeat,
}

impl EtcdClient {
    /// Reads the files that the configuration names. Nothing is sent yet.
    ///
    /// # Errors
    /// [`MembersError::Endpoint`], [`MembersError::Endpoints`], [`MembersError::TlsFile`].
    pub fn new(config: &EtcdConfig) -> Result<Self, MembersError> {
        let count = config.addresses.len();
        if !(1..=ENDPOINTS_MAX).contains(&count) {
            return Err(MembersError::Endpoints { count, max: ENDPOINTS_MAX });
        }
        let addresses = config.addresses.iter().map(|text| Address::parse(text));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        if let (Some(plain), Some(what)) =
            (addresses.iter().find(|address| !address.is_encrypted()), config.tls_file())
        {
            return Err(TlsFileError::Plain { host: plain.host().to_owned(), what }.into());
        }
        let tls = Tls::new(config, addresses.iter().any(Address::is_encrypted))?;
        let endpoints = addresses.into_iter().map(|address| Endpoint::new(address, tls.clone())).collect();
        Ok(Self { cluster: Arc::new(Cluster { endpoints, current: AtomicUsize::new(0) }) })
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

impl Cluster {
    /// Calls the address in use. If it fails, calls the others in turn; the one that answers stays in use. All of them
    /// share the time limit.
    pub(super) fn call<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        limit: Duration,
    ) -> Result<(&Endpoint, T), MembersError> {
        let json = request.json.to_string();
        let (end, first) = (Instant::now() + limit, self.current.load(Ordering::Relaxed));
        let mut failures = Vec::new();
        for (turn, others) in (0..self.endpoints.len()).rev().enumerate() {
            let at = (first + turn) % self.endpoints.len();
            let endpoint = &self.endpoints[at];
            let Failure { error, sent } = match ask(endpoint, request.path, &json, share(end, others)) {
                Ok(answer) => {
                    self.current.store(at, Ordering::Relaxed);
                    return Ok((endpoint, answer));
                }
                Err(failure) => failure,
            };
            if is_final(&error) {
                self.current.store(at, Ordering::Relaxed);
                return Err(error);
            }
            failures.push(error);
            if sent && request.repeat == Repeat::Unsent {
                // The next call begins with another address.
                self.current.store((at + 1) % self.endpoints.len(), Ordering::Relaxed);
                break;
            }
        }
        Err(MembersError::of_addresses(failures))
    }
}

/// The end of the time of one address, if so many others are to have as much of what is left.
fn share(end: Instant, others: usize) -> Instant {
    let now = Instant::now();
    let shares = u32::try_from(others + 1).unwrap_or(u32::MAX);
    now + end.saturating_duration_since(now) / shares
}

fn ask<T: DeserializeOwned>(endpoint: &Endpoint, path: &str, json: &str, end: Instant) -> Result<T, Failure> {
    let answer = endpoint.post(path, json.as_bytes(), end)?;
    understand(endpoint, &answer).map_err(|error| Failure { error, sent: true })
}

/// Whether the other addresses would answer the same: etcd has understood the request and refuses it.
fn is_final(error: &MembersError) -> bool {
    matches!(error, MembersError::Refused { status, code, .. } if *status < 500 && *code != 0)
}

/// Whether etcd does not know the lease.
pub(super) fn is_not_found(error: &MembersError) -> bool {
    matches!(error, MembersError::Refused { code: NOT_FOUND, .. })
}

pub(super) fn understand<T: DeserializeOwned>(
    endpoint: &Endpoint,
    answer: &Answer,
) -> Result<T, MembersError> {
    if answer.status != 200 {
        return Err(refusal(endpoint, answer));
    }
    serde_json::from_slice(&answer.body).map_err(|_| endpoint.nonsense("not the JSON that was expected"))
}

/// The JSON of a refusal.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: String,
    message: String,
    code: u32,
}

fn refusal(endpoint: &Endpoint, answer: &Answer) -> MembersError {
    let refusal = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Refusal {
        // A server that is no gateway, or that wants TLS, says so in text.
        message: String::from_utf8_lossy(&answer.body).trim().to_owned(),
        ..Refusal::default()
    });
    let message = if refusal.message.is_empty() { refusal.error } else { refusal.message };
    refused(endpoint, answer.status, refusal.code, &message)
}

fn refused(endpoint: &Endpoint, status: u16, code: u32, message: &str) -> MembersError {
    /// Longest part of a message that is passed on, characters.
    const MESSAGE_MAX: usize = 200;
    MembersError::Refused {
        endpoint: endpoint.name().to_owned(),
        status,
        code,
        message: message.chars().filter(|char| !char.is_control()).take(MESSAGE_MAX).collect(),
    }
}
