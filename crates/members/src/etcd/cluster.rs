//! The addresses of one etcd: which of them is asked, and which next.

use super::config::EtcdConfig;
use super::http::{Address, Endpoint, Failure};
use super::login::Login;
use super::tls::Tls;
use super::wire::{is_final, is_token_refused, understand};
use crate::error::{MembersError, TlsFileError};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most addresses of one etcd.
pub const ENDPOINTS_MAX: usize = 8;

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
    /// The user, if etcd demands one.
    login: Option<Login>,
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
        let login = config.user.clone().map(Login::new);
        Ok(Self { cluster: Arc::new(Cluster { endpoints, current: AtomicUsize::new(0), login }) })
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
        self.in_turn(request.repeat, limit, |endpoint, token, end| {
            let answer = endpoint.post(request.path, json.as_bytes(), token, end)?;
            understand(endpoint, &answer).map_err(|error| Failure { error, sent: true })
        })
    }

    /// As [`Cluster::call`], for any question.
    pub(super) fn in_turn<T>(
        &self,
        repeat: Repeat,
        limit: Duration,
        ask: impl Fn(&Endpoint, Option<&str>, Instant) -> Result<T, Failure>,
    ) -> Result<(&Endpoint, T), MembersError> {
        let (end, first) = (Instant::now() + limit, self.current.load(Ordering::Relaxed));
        let mut failures = Vec::new();
        for (turn, others) in (0..self.endpoints.len()).rev().enumerate() {
            let at = (first + turn) % self.endpoints.len();
            let endpoint = &self.endpoints[at];
            let end = share(end, others);
            let Failure { error, sent } =
                match self.logged_in(endpoint, end, |token| ask(endpoint, token, end)) {
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
            if sent && repeat == Repeat::Unsent {
                // The next call begins with another address.
                self.current.store((at + 1) % self.endpoints.len(), Ordering::Relaxed);
                break;
            }
        }
        Err(MembersError::of_addresses(failures))
    }

    /// Asks with a token, if there is a user. A token that is refused is renewed once.
    fn logged_in<T>(
        &self,
        endpoint: &Endpoint,
        end: Instant,
        ask: impl Fn(Option<&str>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(login) = &self.login else { return ask(None) };
        let token = login.token(endpoint, end)?;
        match ask(Some(&token.text)) {
            Err(failure) if is_token_refused(&failure.error) => {
                login.forget(&token);
                if token.is_new {
                    // What is refused is not carried out: another address may be asked.
                    return Err(Failure { sent: false, ..failure });
                }
                ask(Some(&login.token(endpoint, end)?.text))
            }
            outcome => outcome,
        }
    }
}

/// The end of the time of one address, if so many others are to have as much of what is left.
fn share(end: Instant, others: usize) -> Instant {
    let now = Instant::now();
    let shares = u32::try_from(others + 1).unwrap_or(u32::MAX);
    now + end.saturating_duration_since(now) / shares
}
