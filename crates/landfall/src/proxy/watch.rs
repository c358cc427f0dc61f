//! Asks one server of a chain, again and again, which one takes writes.

use super::choice::{Answer, Heard};
use super::reach::reach;
use crate::demo::wire::{Reply, Resp};
use landfall_chain_io::ClientAddress;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Pause between two questions.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// Time limit of an answer, and of a connection to each address of the server.
const LIMIT: Duration = Duration::from_secs(1);

/// One server, and what it is asked with.
pub(super) struct Watch {
    server: ClientAddress,
    chain: String,
    password: Option<String>,
}

/// Why a server gives no answer that counts.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it refuses: {0}")]
    Refused(String),
    #[error("it does not know which server takes writes: ask it SENTINEL CKQUORUM {chain} for the reason")]
    Unknown { chain: String },
    #[error("it gives an answer that is none of Sentinel's")]
    Nonsense,
}

impl Watch {
    pub(super) fn new(server: ClientAddress, chain: &str, password: Option<String>) -> Self {
        Self { server, chain: chain.into(), password }
    }

    /// Tells what is heard, until the process ends.
    pub(super) fn run(&self, tell: impl Fn(Heard)) {
        let (mut connection, mut told) = (None, String::new());
        loop {
            let outcome = self.ask(&mut connection);
            let words = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
            if words != told && !words.is_empty() {
                tracing::warn!(server = %self.server, "no answer: {words}");
            }
            told = words;
            tell(match outcome {
                Ok(answer) => Heard::Answer(answer),
                Err(WatchError::Io(_)) => Heard::Nothing,
                Err(_) => Heard::Unknown,
            });
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Asks on the connection, which is made anew after an error of it.
    fn ask(&self, connection: &mut Option<Resp>) -> Result<Answer, WatchError> {
        let mut resp = match connection.take() {
            Some(resp) => resp,
            None => self.connect()?,
        };
        let reply = resp.call(&[b"SENTINEL", b"MASTER", self.chain.as_bytes()])?;
        *connection = Some(resp);
        self.understand(reply)
    }

    fn connect(&self) -> Result<Resp, WatchError> {
        let mut resp = reach(&self.server, |address| Resp::connect(address, LIMIT))?;
        if let Some(password) = &self.password {
            match resp.call(&[b"AUTH", password.as_bytes()])? {
                Reply::Error(text) => return Err(WatchError::Refused(text)),
                _ => return Ok(resp),
            }
        }
        Ok(resp)
    }

    fn understand(&self, reply: Reply) -> Result<Answer, WatchError> {
        let words = match reply {
            Reply::Array(words) => words,
            Reply::Error(text) => return Err(WatchError::Refused(text)),
            _ => return Err(WatchError::Nonsense),
        };
        let text = |word: &Reply| match word {
            Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).ok(),
            _ => None,
        };
        let pair = |pair: &[Reply]| Some((text(pair.first()?)?, text(pair.get(1)?)?));
        let fields: BTreeMap<String, String> =
            words.chunks(2).map(pair).collect::<Option<_>>().ok_or(WatchError::Nonsense)?;
        let field = |name: &str| fields.get(name).ok_or(WatchError::Nonsense);
        if field("flags")? != "master" {
            return Err(WatchError::Unknown { chain: self.chain.clone() });
        }
        let number = |text: &String| text.parse::<u64>().map_err(|_| WatchError::Nonsense);
        let port = number(field("port")?)?.try_into().map_err(|_| WatchError::Nonsense)?;
        let first = ClientAddress { host: field("ip")?.clone(), port };
        Ok(Answer { version: number(field("config-epoch")?)?, first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(fields: &[(&str, &str)]) -> Result<Answer, String> {
        let bulk = |text: &str| Reply::Bulk(text.into());
        let words = fields.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]).collect();
        let watch = Watch::new("10.0.0.1:6479".parse().unwrap(), "orders", None);
        watch.understand(Reply::Array(words)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_first_server_is_read_with_the_version_of_the_view() {
        let fields = [("ip", "::1"), ("port", "6479"), ("flags", "master"), ("config-epoch", "7")];
        let first = "[::1]:6479".parse().unwrap();
        assert_eq!(understood(&fields), Ok(Answer { version: 7, first }));
    }

    #[test]
    fn what_is_no_answer_is_named() {
        let mut doubt = [("ip", "::1"), ("port", "6479"), ("flags", "s_down,master"), ("config-epoch", "7")];
        assert!(understood(&doubt).unwrap_err().contains("CKQUORUM orders"));
        doubt[2].1 = "master";
        for (index, nonsense) in [(1, "65536"), (1, "-1"), (3, "x")] {
            let mut fields = doubt;
            fields[index].1 = nonsense;
            assert!(understood(&fields).unwrap_err().contains("none of Sentinel's"), "{fields:?}");
        }
        assert!(understood(&doubt[..3]).is_err());
    }
}
