//! How commands reach an etcd: the flags, which all of them have in common.

use crate::password::read_password;
use clap::Args;
use landfall_members::{EtcdClient, EtcdConfig, EtcdUser, MembersError};
use landfall_server::config::{ConfigError, FileConfig};
use std::path::PathBuf;

/// The environment variable with the user's password. Only the process's owner and root can read it, as opposed to the
/// command line.
const PASSWORD_VARIABLE: &str = "LANDFALL_ETCD_PASSWORD";

/// Flags that say where etcd is, and by what each side knows the other.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct EtcdArgs {
    /// Addresses of etcd, https://HOST:PORT or http://HOST:PORT, several separated by commas or with a flag each. One
    /// that answers stays in use, and one that fails is left for another
    #[arg(id = "etcd", long = "etcd", value_name = "URLS", value_delimiter = ',')]
    addresses: Vec<String>,
    /// CAs whose certificates etcd may have, in PEM [default: those of the system]
    #[arg(id = "etcd_ca", long = "etcd-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Own certificate, if etcd demands one, in PEM
    #[arg(id = "etcd_cert", long = "etcd-cert", value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Private key of the own certificate, in PEM
    #[arg(id = "etcd_key", long = "etcd-key", value_name = "FILE")]
    key: Option<PathBuf>,
    /// User, if etcd demands one. The password comes from --etcd-password-file, or from the environment variable
    /// LANDFALL_ETCD_PASSWORD
    #[arg(id = "etcd_user", long = "etcd-user", value_name = "NAME", value_parser = parse_user)]
    user: Option<String>,
    /// File with the user's password, on its first line
    #[arg(id = "etcd_password_file", long = "etcd-password-file", value_name = "FILE")]
    password_file: Option<PathBuf>,
}

/// The flags, where a file stands for etcd.
pub(crate) const ETCD_FLAGS: [&str; 6] =
    ["etcd", "etcd_ca", "etcd_cert", "etcd_key", "etcd_user", "etcd_password_file"];

/// Why the flags name no etcd that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EtcdArgsError {
    #[error(transparent)]
    Members(#[from] MembersError),
    #[error(transparent)]
    Password(#[from] ConfigError),
    #[error(
        "etcd's user {user:?} has no password: give --etcd-password-file FILE, or set {PASSWORD_VARIABLE}"
    )]
    NoPassword { user: String },
    #[error("{flag} means nothing without {needs}: give that, too")]
    Alone { flag: &'static str, needs: &'static str },
}

impl EtcdArgs {
    /// What a configuration file says.
    pub(crate) fn of_file(file: &mut FileConfig) -> Self {
        Self {
            addresses: std::mem::take(&mut file.etcd),
            ca: file.etcd_ca.take(),
            certificate: file.etcd_cert.take(),
            key: file.etcd_key.take(),
            user: file.etcd_user.take(),
            password_file: file.etcd_password_file.take(),
        }
    }

    /// These flags; the others where these say nothing.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            addresses: if self.addresses.is_empty() { other.addresses } else { self.addresses },
            ca: self.ca.or(other.ca),
            certificate: self.certificate.or(other.certificate),
            key: self.key.or(other.key),
            user: self.user.or(other.user),
            password_file: self.password_file.or(other.password_file),
        }
    }

    /// Refuses what means nothing without another flag, which the configuration file may have.
    fn check(&self) -> Result<(), EtcdArgsError> {
        let needs = [
            ("--etcd-ca", self.ca.is_some(), "--etcd", !self.addresses.is_empty()),
            ("--etcd-cert", self.certificate.is_some(), "--etcd", !self.addresses.is_empty()),
            ("--etcd-cert", self.certificate.is_some(), "--etcd-key", self.key.is_some()),
            ("--etcd-key", self.key.is_some(), "--etcd-cert", self.certificate.is_some()),
            ("--etcd-user", self.user.is_some(), "--etcd", !self.addresses.is_empty()),
            ("--etcd-password-file", self.password_file.is_some(), "--etcd-user", self.user.is_some()),
        ];
        let alone = needs.iter().find(|(_, is_given, _, has_other)| *is_given && !has_other);
        alone.map_or(Ok(()), |(flag, _, needs, _)| Err(EtcdArgsError::Alone { flag, needs }))
    }

    /// The etcd, if the flags name one. Its files are read now; nothing is sent yet.
    pub(crate) fn client(&self) -> Result<Option<EtcdClient>, EtcdArgsError> {
        self.client_with(|| std::env::var(PASSWORD_VARIABLE).ok())
    }

    fn client_with(
        &self,
        environment: impl Fn() -> Option<String>,
    ) -> Result<Option<EtcdClient>, EtcdArgsError> {
        self.check()?;
        if self.addresses.is_empty() {
            return Ok(None);
        }
        let user =
            |name: &String| Ok::<_, EtcdArgsError>(EtcdUser::new(name, self.password(name, environment)?));
        let config = EtcdConfig {
            addresses: self.addresses.clone(),
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            user: self.user.as_ref().map(user).transpose()?,
        };
        Ok(Some(EtcdClient::new(&config)?))
    }

    /// The password. A file goes before the environment.
    fn password(
        &self,
        user: &str,
        environment: impl Fn() -> Option<String>,
    ) -> Result<String, EtcdArgsError> {
        if let Some(path) = &self.password_file {
            return Ok(read_password(path)?);
        }
        let password = environment().filter(|password| !password.is_empty());
        password.ok_or_else(|| EtcdArgsError::NoPassword { user: user.to_owned() })
    }
}

/// A user's name. `NAME:PASSWORD`, as etcdctl takes it, would show the password to everybody on this machine.
fn parse_user(text: &str) -> Result<String, BadUser> {
    if text.is_empty() || text.contains(':') { Err(BadUser) } else { Ok(text.to_owned()) }
}

#[derive(Debug, thiserror::Error)]
#[error("give the name only; the password comes from --etcd-password-file, or from {PASSWORD_VARIABLE}")]
struct BadUser;

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
            "--etcd-user operator",
            "--etcd https://a:1 --etcd-password-file p",
        ] {
            let refused = parsed(line).unwrap().client().unwrap_err();
            assert!(matches!(refused, EtcdArgsError::Alone { .. }), "{line}: {refused}");
        }
    }

    #[test]
    fn a_configuration_file_has_what_the_flags_do_not_say() {
        let file = "--etcd https://a:1 --etcd-ca ca.pem --etcd-user operator --etcd-password-file p";
        let all = parsed("--etcd https://b:2 --etcd-ca other.pem").unwrap().or(parsed(file).unwrap());
        assert_eq!((&all.addresses[..], all.ca), (&["https://b:2".to_owned()][..], Some("other.pem".into())));
        assert_eq!((all.user.as_deref(), all.password_file), (Some("operator"), Some("p".into())));
        let all = parsed("--etcd-user another").unwrap().or(parsed(file).unwrap());
        assert_eq!((all.addresses.len(), all.user.as_deref()), (1, Some("another")));
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

    #[test]
    fn a_password_comes_from_a_file_or_from_the_environment_and_never_from_the_command_line() {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("password");
        std::fs::write(&path, "from the file\n").unwrap();
        let environment = || Some("from the environment".to_owned());
        let user = "--etcd https://a:1 --etcd-user operator";
        let args = parsed(user).unwrap();
        assert_eq!(args.password("operator", environment).unwrap(), "from the environment");
        assert!(args.client_with(environment).is_ok());
        let both = parsed(&format!("{user} --etcd-password-file {}", path.display())).unwrap();
        assert_eq!(both.password("operator", environment).unwrap(), "from the file");
        for environment in [None, Some(String::new())] {
            let error = args.client_with(|| environment.clone()).unwrap_err().to_string();
            assert!(error.contains("--etcd-password-file FILE, or set LANDFALL_ETCD_PASSWORD"), "{error}");
        }
        assert_eq!(
            parsed("--etcd https://a:1 --etcd-user a:secret").unwrap_err(),
            ErrorKind::ValueValidation
        );
    }
}
