//! A CA, and certificates that it has signed, in PEM files.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A CA in a folder of its own, which lasts as long as the last clone.
#[derive(Clone)]
pub struct Certificates {
    folder: Arc<tempfile::TempDir>,
    issuer: Arc<CertifiedIssuer<'static, KeyPair>>,
}

impl Certificates {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, "CA of a test");
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder: Arc::new(folder), issuer: Arc::new(issuer) }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for these names, and its key. It is for servers and for clients, as etcd's gateway needs it, which
    /// is a client of its own server.
    pub fn sign(&self, file: &str, names: &[&str], common_name: Option<&str>) -> [PathBuf; 2] {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name = DistinguishedName::new();
        if let Some(name) = common_name {
            parameters.distinguished_name.push(DnType::CommonName, name);
        }
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &*self.issuer).unwrap();
        let paths = ["pem", "key"].map(|ending| self.folder.path().join(format!("{file}.{ending}")));
        fs::write(&paths[0], certificate.pem()).unwrap();
        fs::write(&paths[1], key.serialize_pem()).unwrap();
        paths
    }
}
