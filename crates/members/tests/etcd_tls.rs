//! TLS to a real etcd, with certificates that the test makes.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

mod server;

use landfall_members::{Chain, EtcdClient, EtcdConfig, MembersError, TlsFileError};
use server::{Certificates, Server, Setup, membership};
use std::fs;
use std::path::PathBuf;

fn chain() -> Chain {
    Chain::new("lab", "10.0.0.9:51000".parse().unwrap(), &[("near", None), ("far", None)]).unwrap()
}

fn refused(config: &EtcdConfig) -> MembersError {
    membership(config, "lab").show().unwrap_err()
}

#[test]
fn a_chain_is_kept_over_tls_with_the_ca_of_a_file() {
    let Some(server) = Server::start_as(&Setup::encrypted(&Certificates::new())) else { return };
    let lab = server.membership("lab");
    lab.init(&chain()).unwrap();
    assert_eq!(lab.fail_device("far").unwrap().epoch, 2);
}

#[test]
fn a_server_of_another_ca_is_not_trusted() {
    let Some(server) = Server::start_as(&Setup::encrypted(&Certificates::new())) else { return };
    let other = Certificates::new();
    let strange = [
        EtcdConfig { ca: Some(other.ca()), ..server.config() },
        // The system's roots do not have the CA of a test.
        EtcdConfig { ca: None, ..server.config() },
    ];
    for config in strange {
        let error = match EtcdClient::new(&config) {
            Ok(_) => refused(&config),
            // A system without any roots says so at the start.
            Err(error) => {
                assert!(matches!(error, MembersError::TlsFile(TlsFileError::NoRoots)), "{error}");
                continue;
            }
        };
        assert!(matches!(error, MembersError::Tls { .. }), "{error:?}");
        assert!(error.to_string().contains("give the CA that has signed its certificate"), "{error}");
    }
}

#[test]
fn a_server_whose_certificate_has_another_name_is_not_trusted() {
    let certificates = Certificates::new();
    let Some(server) = Server::start_as(&Setup::encrypted(&certificates)) else { return };
    let port = server.endpoint().rsplit_once(':').unwrap().1.to_owned();
    let reach = |host| EtcdConfig { addresses: vec![format!("https://{host}:{port}")], ..server.config() };
    assert!(matches!(refused(&reach("localhost")), MembersError::NoChain { .. }));
    // The address of loopback by a name that is not certified.
    let error = refused(&reach("[::ffff:127.0.0.1]"));
    assert!(error.to_string().contains("use an address that is in its certificate"), "{error}");
}

#[test]
fn a_client_certificate_that_is_demanded_is_shown() {
    let certificates = Certificates::new();
    let [certificate, key] = certificates.sign("client", &[], Some("client"));
    let mut setup = Setup::demanding(&certificates);
    setup.client.certificate = Some(certificate);
    setup.client.key = Some(key);
    let Some(server) = Server::start_as(&setup) else { return };
    server.membership("lab").init(&chain()).unwrap();

    let without = EtcdConfig { certificate: None, key: None, ..server.config() };
    let other = Certificates::new();
    let [certificate, key] = other.sign("stranger", &[], Some("stranger"));
    let strange = EtcdConfig { certificate: Some(certificate), key: Some(key), ..server.config() };
    for config in [without, strange] {
        let error = refused(&config);
        assert!(error.to_string().contains("client certificate that its own CA has signed"), "{error:?}");
    }
}

#[test]
fn a_server_with_tls_and_one_without_are_told_apart() {
    let Some(encrypted) = Server::start_as(&Setup::encrypted(&Certificates::new())) else { return };
    let Some(plain) = Server::start() else { return };
    let to_plain = plain.endpoint().replace("http://", "https://");
    let error = refused(&EtcdConfig { addresses: vec![to_plain], ..encrypted.config() });
    assert!(error.to_string().contains("no TLS, write http://"), "{error}");
    let error = refused(&EtcdConfig::at(&[encrypted.endpoint().replace("https://", "http://")]));
    assert!(error.to_string().contains("if etcd has TLS, write https://"), "{error}");
}

fn start_error(config: &EtcdConfig) -> TlsFileError {
    match EtcdClient::new(config).unwrap_err() {
        MembersError::TlsFile(error) => error,
        error => panic!("{error:?}"),
    }
}

#[test]
fn files_that_do_not_fit_are_refused_at_the_start() {
    let certificates = Certificates::new();
    let [certificate, key] = certificates.sign("client", &[], Some("client")).map(Some);
    let [_, other_key] = certificates.sign("other", &[], Some("other")).map(Some);
    let file = |name: &str, bytes: &str| -> Option<PathBuf> {
        let path = certificates.folder().join(name);
        fs::write(&path, bytes).unwrap();
        Some(path)
    };
    let nothing = file("text.pem", "this is no PEM\n");
    let damaged = file("damaged.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let base = EtcdConfig::at(&["https://127.0.0.1:1"]);
    let with = |ca: &Option<PathBuf>, certificate: &Option<PathBuf>, key: &Option<PathBuf>| EtcdConfig {
        ca: ca.clone().or_else(|| Some(certificates.ca())),
        certificate: certificate.clone(),
        key: key.clone(),
        ..base.clone()
    };
    assert!(EtcdClient::new(&with(&None, &certificate, &key)).is_ok());
    assert!(matches!(start_error(&with(&None, &certificate, &None)), TlsFileError::NoKey));
    assert!(matches!(start_error(&with(&None, &None, &key)), TlsFileError::NoCertificate));
    let absent = Some(certificates.folder().join("absent"));
    assert!(matches!(start_error(&with(&absent, &None, &None)), TlsFileError::Read { .. }));
    assert!(matches!(start_error(&with(&nothing, &None, &None)), TlsFileError::NotPem { .. }));
    assert!(matches!(start_error(&with(&damaged, &None, &None)), TlsFileError::Certificate { .. }));
    assert!(matches!(start_error(&with(&None, &certificate, &nothing)), TlsFileError::NotPem { .. }));
    assert!(matches!(start_error(&with(&None, &certificate, &certificate)), TlsFileError::NotPem { .. }));
    assert!(matches!(start_error(&with(&None, &certificate, &other_key)), TlsFileError::Certificate { .. }));
    let plain =
        EtcdConfig { addresses: vec!["http://127.0.0.1:1".into()], ..with(&None, &certificate, &key) };
    assert!(matches!(start_error(&plain), TlsFileError::Plain { what: "CA", .. }));
}

#[test]
fn a_key_is_not_in_what_is_printed() {
    let certificates = Certificates::new();
    let [certificate, key] = certificates.sign("client", &[], Some("client"));
    let pem = fs::read_to_string(&key).unwrap();
    let secret = pem.lines().nth(1).unwrap();
    let config = EtcdConfig {
        ca: Some(certificates.ca()),
        certificate: Some(certificate),
        key: Some(key),
        ..EtcdConfig::at(&["https://127.0.0.1:1"])
    };
    let printed = format!("{:?}", EtcdClient::new(&config).unwrap());
    assert!(!printed.contains(secret) && printed.len() < 1000, "{printed}");
}
