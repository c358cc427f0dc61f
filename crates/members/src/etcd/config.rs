//! How an etcd is reached: its addresses, and the files for TLS.

use std::path::PathBuf;

/// How an etcd is reached. Nothing is read or sent before [`EtcdClient::new`](super::EtcdClient::new).
#[derive(Clone, Debug, Default)]
pub struct EtcdConfig {
    /// The addresses of one cluster, each `https://HOST:PORT` or `http://HOST:PORT`.
    pub addresses: Vec<String>,
    /// PEM file of the CAs whose certificates are trusted. Without one, those of the system are.
    pub ca: Option<PathBuf>,
    /// PEM file of this client's certificate, and of those between it and its CA.
    pub certificate: Option<PathBuf>,
    /// PEM file of the certificate's private key.
    pub key: Option<PathBuf>,
}

impl EtcdConfig {
    /// The etcd at these addresses, with nothing else set.
    pub fn at<S: AsRef<str>>(addresses: &[S]) -> Self {
        let addresses = addresses.iter().map(|address| address.as_ref().to_owned()).collect();
        Self { addresses, ..Self::default() }
    }

    /// The first of the files that only TLS needs, by what it holds.
    pub(super) fn tls_file(&self) -> Option<&'static str> {
        let files = [(&self.ca, "CA"), (&self.certificate, "certificate"), (&self.key, "key")];
        files.into_iter().find(|(path, _)| path.is_some()).map(|(_, what)| what)
    }
}
