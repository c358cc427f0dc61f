//! How an etcd is reached: its addresses, the files for TLS, and the user.

use std::fmt;
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
    /// The user, if etcd demands one.
    pub user: Option<EtcdUser>,
}

/// A user of etcd and their password, which is not printed.
#[derive(Clone)]
pub struct EtcdUser {
    name: String,
    password: String,
}

impl EtcdUser {
    /// The user of this name with this password.
    pub fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        Self { name: name.into(), password: password.into() }
    }

    /// Their name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdUser").field(&self.name).finish()
    }
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
