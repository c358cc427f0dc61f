//! How commands reach an etcd: the flags, which all of them have in common.

use clap::Args;
use landfall_members::{EtcdClient, EtcdConfig, MembersError};
use std::path::PathBuf;

/// Flags that say where etcd is, and by what each side knows the other.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct EtcdArgs {
    /// Addresses of etcd, https://HOST:PORT or http://HOST:PORT, several separated by commas or with a flag each. One
    /// that answers stays in use, and one that fails is left for another
    #[arg(id = "etcd", long = "etcd", value_name = "URLS", value_delimiter = ',')]
    addresses: Vec<String>,
    /// CAs whose certificates etcd may have, in PEM [default: those of the system]
    #[arg(id = "etcd_ca", long = "etcd-ca", value_name = "FILE", requires = "etcd")]
    ca: Option<PathBuf>,
    /// Own certificate, if etcd demands one, in PEM
    #[arg(id = "etcd_cert", long = "etcd-cert", value_name = "FILE", requires_all = ["etcd", "etcd_key"])]
    certificate: Option<PathBuf>,
    /// Private key of the own certificate, in PEM
    #[arg(id = "etcd_key", long = "etcd-key", value_name = "FILE", requires_all = ["etcd", "etcd_cert"])]
    key: Option<PathBuf>,
}

impl EtcdArgs {
    /// The etcd, if the flags name one. Its files are read now; nothing is sent yet.
    pub(crate) fn client(&self) -> Result<Option<EtcdClient>, MembersError> {
        if self.addresses.is_empty() {
            return Ok(None);
        }
        let config = EtcdConfig {
            addresses: self.addresses.clone(),
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
        };
        EtcdClient::new(&config).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use clap::error::ErrorKind;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        etcd: EtcdArgs,
    }

    fn parsed(line: &str) -> Result<EtcdArgs, ErrorKind> {
        let words = std::iter::once("command").chain(line.split_whitespace());
        Command::try_parse_from(words).map(|command| command.etcd).map_err(|error| error.kind())
    }

    #[test]
    fn addresses_come_with_commas_and_with_flags_of_their_own() {
        let args = parsed("--etcd https://a:1,https://b:2 --etcd https://c:3").unwrap();
        assert_eq!(args.addresses, ["https://a:1", "https://b:2", "https://c:3"]);
        assert!(parsed("").unwrap().client().unwrap().is_none());
    }

    #[test]
    fn flags_without_what_they_belong_to_are_refused() {
        for line in [
            "--etcd-ca ca.pem",
            "--etcd-cert c.pem --etcd-key k.pem",
            "--etcd https://a:1 --etcd-cert c.pem",
            "--etcd https://a:1 --etcd-key k.pem",
        ] {
            assert_eq!(parsed(line).unwrap_err(), ErrorKind::MissingRequiredArgument, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        let refused = |line| parsed(line).unwrap().client().unwrap_err().to_string();
        let text = refused("--etcd http://a:1 --etcd-ca ca.pem");
        assert!(text.contains("write https://a:1"), "{text}");
        let text = refused("--etcd https://a:1 --etcd-ca /does/not/exist");
        assert!(text.contains("/does/not/exist: No such file"), "{text}");
        let text = refused("--etcd https://a:1 --etcd-ca /dev/null");
        assert!(text.contains("give a PEM file"), "{text}");
    }
}
