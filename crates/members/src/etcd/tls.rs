//! TLS of the connections to etcd: rustls with the cryptography of `ring`.
//!
//! The files are read and checked once, at the start. `ureq` would pass over a CA that it cannot parse, and panic at a
//! key that does not belong to its certificate.

use super::config::EtcdConfig;
use crate::error::{MembersError, TlsFileError};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use ureq::Error;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::unversioned::transport::{ConnectionDetails, Connector, RustlsConnector, Transport};

/// What all TLS connections to an etcd have in common: certificates are parsed once, and sessions are resumed.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    config: TlsConfig,
    rustls: Arc<RustlsConnector>,
}

/// The last step of a connection: TLS, if the address has it. Notes that the connection is made.
#[derive(Debug)]
pub(super) struct TlsConnector {
    rustls: Arc<RustlsConnector>,
    connected: Arc<AtomicBool>,
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = <RustlsConnector as Connector<In>>::Out;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let connection = self.rustls.connect(details, chained)?;
        self.connected.store(connection.is_some(), Ordering::Relaxed);
        Ok(connection)
    }
}

impl Tls {
    /// Reads the files. Without `encrypted` addresses there must be none, and nothing is read.
    pub(super) fn new(config: &EtcdConfig, encrypted: bool) -> Result<Self, MembersError> {
        let provider = Arc::new(ring::default_provider());
        let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::clone(&provider));
        if encrypted {
            let roots = config.ca.as_deref().map_or_else(system_roots, file_roots)?;
            let client = client_certificate(config, &provider)?;
            tls = tls.root_certs(RootCerts::Specific(Arc::new(roots))).client_cert(client);
        }
        Ok(Self { config: tls.build(), rustls: Arc::default() })
    }

    pub(super) fn config(&self) -> TlsConfig {
        self.config.clone()
    }

    /// A connector that sets `connected` once there is a connection, which a request may be sent on.
    pub(super) fn connector(&self, connected: &Arc<AtomicBool>) -> TlsConnector {
        TlsConnector { rustls: Arc::clone(&self.rustls), connected: Arc::clone(connected) }
    }
}

fn system_roots() -> Result<Vec<Certificate<'static>>, MembersError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err(TlsFileError::NoRoots.into());
    }
    Ok(found.certs.iter().map(certificate).collect())
}

fn file_roots(path: &Path) -> Result<Vec<Certificate<'static>>, MembersError> {
    let roots = certificates(path)?;
    let mut store = RootCertStore::empty();
    for root in &roots {
        let added = store.add(root.clone());
        added.map_err(|source| TlsFileError::Certificate { path: path.to_owned(), source })?;
    }
    Ok(roots.iter().map(certificate).collect())
}

fn client_certificate(
    config: &EtcdConfig,
    provider: &CryptoProvider,
) -> Result<Option<ClientCert>, MembersError> {
    let (path, key_path) = match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(TlsFileError::NoKey.into()),
        (None, Some(_)) => return Err(TlsFileError::NoCertificate.into()),
    };
    let chain = certificates(path)?;
    let pem = read(key_path)?;
    let no_key = || not_pem(key_path, "private key without a passphrase");
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| no_key())?;
    CertifiedKey::from_der(chain.clone(), key, provider)
        .map_err(|source| TlsFileError::Certificate { path: path.clone(), source })?;
    let chain: Vec<_> = chain.iter().map(certificate).collect();
    let key = PrivateKey::from_pem(&pem).map_err(|_| no_key())?;
    Ok(Some(ClientCert::new_with_certs(&chain, key)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, MembersError> {
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| not_pem(path, "certificate"))
}

fn certificate(der: &CertificateDer<'_>) -> Certificate<'static> {
    Certificate::from_der(der).to_owned()
}

fn read(path: &Path) -> Result<Vec<u8>, MembersError> {
    /// Longest file that is read, bytes. The CAs of a system are a quarter of a megabyte.
    const BYTES_MAX: u64 = 8 << 20;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|source| TlsFileError::Read { path: path.to_owned(), source })?;
    Ok(bytes)
}

fn not_pem(path: &Path, what: &'static str) -> MembersError {
    TlsFileError::NotPem { path: path.to_owned(), what }.into()
}
