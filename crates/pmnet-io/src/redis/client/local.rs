//! Commands that the side-car answers itself: those about the client's connection.

use crate::redis::commands::Answer;
use crate::redis::resp::{error, put_bulk};
use landfall_resp::{Protocol, Writer};
use subtle::ConstantTimeEq;

/// Version of Redis whose commands are in the table.
const REDIS_VERSION: &str = "7.0.15";
const OK: &[u8] = b"+OK\r\n";
/// Wrong passwords after which a connection is closed.
const FAILURES_MAX: u32 = 10;
/// Longest name of a connection, bytes.
const NAME_BYTES_MAX: usize = 128;
const NO_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                       AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                       version at the same time";

/// Settings of a connection, which its client changes by commands.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) id: u64,
    pub(super) name: Vec<u8>,
    pub(super) resp3: bool,
    pub(super) authenticated: bool,
    pub(super) closing: bool,
    /// Wrong passwords so far.
    pub(super) failures: u32,
}

impl Settings {
    /// Executes a command that the side-car answers itself, and returns the reply. Commands of transactions are handled
    /// elsewhere.
    pub(super) fn answer(&mut self, answer: Answer, args: &[&[u8]], password: Option<&str>) -> Vec<u8> {
        let reply = match answer {
            Answer::Auth => self.auth(args, password),
            Answer::Hello => self.hello(args, password),
            Answer::Ping => match args {
                [_] => Ok(b"+PONG\r\n".to_vec()),
                [_, text] => Ok(bulk(text)),
                _ => Err("ERR wrong number of arguments for 'ping' command".to_owned()),
            },
            Answer::Echo => match args {
                [_, text] => Ok(bulk(text)),
                _ => Err("ERR wrong number of arguments for 'echo' command".to_owned()),
            },
            Answer::Select => select(args),
            Answer::SetName => self.set_name(args.get(2).copied().unwrap_or_default()).map(|()| OK.to_vec()),
            Answer::GetName if self.name.is_empty() => {
                Ok(if self.resp3 { &b"_\r\n"[..] } else { b"$-1\r\n" }.to_vec())
            }
            Answer::GetName => Ok(bulk(&self.name)),
            Answer::Id => Ok(format!(":{}\r\n", self.id).into_bytes()),
            Answer::Docs => Ok(if self.resp3 { &b"%0\r\n"[..] } else { b"*0\r\n" }.to_vec()),
            Answer::Reset => {
                (self.resp3, self.authenticated) = (false, password.is_none());
                self.name.clear();
                Ok(b"+RESET\r\n".to_vec())
            }
            Answer::Quit => {
                self.closing = true;
                Ok(OK.to_vec())
            }
            Answer::Ok | Answer::Transaction => Ok(OK.to_vec()),
        };
        reply.unwrap_or_else(|text| error(&text))
    }

    fn auth(&mut self, args: &[&[u8]], password: Option<&str>) -> Result<Vec<u8>, String> {
        let (user, given) = match args {
            [_, given] => (&b"default"[..], *given),
            [_, user, given] => (*user, *given),
            _ => return Err("ERR wrong number of arguments for 'auth' command".to_owned()),
        };
        self.authenticate(user, given, password).map(|()| OK.to_vec())
    }

    fn authenticate(&mut self, user: &[u8], given: &[u8], password: Option<&str>) -> Result<(), String> {
        let Some(password) = password else {
            return Err(
                "ERR AUTH <password> called without any password configured for the default user. Are you \
                        sure your configuration is correct?"
                    .to_owned(),
            );
        };
        if user != b"default" || !bool::from(given.ct_eq(password.as_bytes())) {
            self.failures += 1;
            self.closing |= self.failures >= FAILURES_MAX;
            tracing::warn!(client = self.id, failures = self.failures, "failed to authenticate");
            return Err("WRONGPASS invalid username-password pair or user is disabled.".to_owned());
        }
        self.authenticated = true;
        Ok(())
    }

    fn hello(&mut self, args: &[&[u8]], password: Option<&str>) -> Result<Vec<u8>, String> {
        let resp3 = match args.get(1).copied() {
            None => self.resp3,
            Some(b"2") => false,
            Some(b"3") => true,
            Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
        };
        let mut options = args.get(2..).unwrap_or_default();
        while let [option, more @ ..] = options {
            options = match more {
                [user, given, more @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    self.authenticate(user, given, password)?;
                    more
                }
                [name, more @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    self.set_name(name)?;
                    more
                }
                _ => return Err(format!("ERR Syntax error in HELLO option '{}'", option.escape_ascii())),
            };
        }
        if !self.authenticated {
            return Err(NO_AUTH.to_owned());
        }
        self.resp3 = resp3;
        Ok(self.greeting())
    }

    fn greeting(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let protocol = if self.resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut writer = Writer::new(&mut out, protocol);
        writer.map(7);
        for text in ["server", "redis", "version", REDIS_VERSION, "proto"] {
            writer.bulk(text.as_bytes());
        }
        writer.integer(if self.resp3 { 3 } else { 2 });
        writer.bulk(b"id");
        writer.integer(i64::try_from(self.id).unwrap_or(i64::MAX));
        for text in ["mode", "standalone", "role", "master", "modules"] {
            writer.bulk(text.as_bytes());
        }
        writer.array(0);
        out
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), String> {
        if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.".to_owned());
        }
        self.name = name.to_vec();
        Ok(())
    }
}

fn select(args: &[&[u8]]) -> Result<Vec<u8>, String> {
    match args {
        [_, b"0"] => Ok(OK.to_vec()),
        [_, _] => Err("ERR DB index is out of range: PMNet serves database 0 only".to_owned()),
        _ => Err("ERR wrong number of arguments for 'select' command".to_owned()),
    }
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bulk(&mut out, bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(settings: &mut Settings, answer: Answer, line: &str, password: Option<&str>) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8(settings.answer(answer, &args, password)).unwrap()
    }

    #[test]
    fn hello_switches_the_protocol_once_the_client_is_authenticated() {
        let mut settings = Settings { id: 7, ..Settings::default() };
        assert!(ask(&mut settings, Answer::Hello, "HELLO 3", Some("x")).starts_with("-NOAUTH"));
        assert!(
            ask(&mut settings, Answer::Hello, "HELLO 3 AUTH default y", Some("x")).starts_with("-WRONGPASS")
        );
        assert!(!settings.resp3 && !settings.authenticated);
        let greeting = ask(&mut settings, Answer::Hello, "HELLO 3 AUTH default x SETNAME me", Some("x"));
        assert!(greeting.starts_with("%7\r\n") && greeting.contains("proto\r\n:3\r\n"), "{greeting}");
        assert!(settings.resp3 && settings.authenticated && settings.name == b"me");
        assert!(ask(&mut settings, Answer::Hello, "HELLO 2", Some("x")).starts_with("*14\r\n"));
        assert!(ask(&mut settings, Answer::Hello, "HELLO 4", Some("x")).starts_with("-NOPROTO"));
        assert!(ask(&mut settings, Answer::Hello, "HELLO 3 NOVELTY", Some("x")).starts_with("-ERR Syntax"));
    }

    #[test]
    fn a_reset_clears_name_protocol_and_authentication() {
        let mut settings =
            Settings { authenticated: true, resp3: true, name: b"me".to_vec(), ..Settings::default() };
        assert_eq!(ask(&mut settings, Answer::Reset, "RESET", Some("x")), "+RESET\r\n");
        assert!(!settings.authenticated && !settings.resp3);
        assert_eq!(ask(&mut settings, Answer::GetName, "CLIENT GETNAME", None), "$-1\r\n");
    }

    #[test]
    fn only_database_0_can_be_selected() {
        let mut settings = Settings::default();
        assert_eq!(ask(&mut settings, Answer::Select, "SELECT 0", None), "+OK\r\n");
        assert!(ask(&mut settings, Answer::Select, "SELECT 1", None).starts_with("-ERR"));
    }
}
