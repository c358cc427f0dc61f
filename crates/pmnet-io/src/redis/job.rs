//! Parses a request on the wire into commands for the real server.
//!
//! A request is one command, or `MULTI`, commands and `EXEC`. A `HELLO 3` in front requests a RESP3 reply. Requests
//! come from the network and are not trusted: commands that would change the state of the connection to the server,
//! which all sessions share, are refused here, even if a client's side-car has sent them.

use super::commands::{Answer, Class, Why, classify};
use super::ledger::Flush;
use super::resp::{self, RespError};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;

/// Errors of a request that is not executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JobError {
    #[error("ERR {0}")]
    Resp(#[from] RespError),
    #[error("ERR a request of PMNet ends in the middle of a command")]
    Short,
    #[error("ERR PMNet carries one command, or one transaction, a request")]
    Shape,
    #[error("ERR {0}")]
    Refused(&'static str),
    #[error("ERR this command concerns the connection to the side-car, which answers it")]
    Local,
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) resp3: bool,
    /// The reply is an array of the commands' replies.
    pub(super) transaction: bool,
    /// The request must be executed once, together with its row.
    pub(super) changes: bool,
    /// Whether the request removes the rows of all sessions.
    pub(super) flush: Flush,
    /// The request may fail because of a key's type, though it was acknowledged.
    pub(super) typed: bool,
    /// Positions of the commands in the request.
    pub(super) commands: SmallVec<[Range<usize>; 1]>,
}

impl Job {
    pub(super) fn read(request: &[u8]) -> Result<Self, JobError> {
        let mut job = Self {
            resp3: false,
            transaction: false,
            changes: false,
            flush: Flush::No,
            typed: false,
            commands: SmallVec::new(),
        };
        let (mut at, mut ended) = (0, false);
        while at < request.len() {
            let command = resp::request(&request[at..])?.ok_or(JobError::Short)?;
            // The client's side-car encodes inline requests as arrays and drops empty requests in front of a command.
            if matches!(command.text, Cow::Owned(_)) || command.text.len() != command.bytes {
                return Err(JobError::Short);
            }
            let end = at + command.bytes;
            if ended || !job.takes(&command.args(), at..end, &mut ended)? {
                return Err(JobError::Shape);
            }
            at = end;
        }
        if job.transaction == ended && (ended || job.commands.len() == 1) {
            Ok(job)
        } else {
            Err(JobError::Shape)
        }
    }

    /// Adds a command. False if it is out of place.
    fn takes(&mut self, args: &[&[u8]], span: Range<usize>, ended: &mut bool) -> Result<bool, JobError> {
        let is = |name: &[u8]| args.first().is_some_and(|arg| arg.eq_ignore_ascii_case(name));
        let fresh = !self.transaction && self.commands.is_empty();
        if span.start == 0 && is(b"HELLO") && args.get(1) == Some(&b"3".as_slice()) && args.len() == 2 {
            self.resp3 = true;
        } else if is(b"MULTI") && fresh {
            (self.transaction, self.changes) = (true, true);
        } else if is(b"EXEC") && self.transaction {
            *ended = true;
        } else if fresh || self.transaction {
            self.note_class(args)?;
            self.commands.push(span);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn note_class(&mut self, args: &[&[u8]]) -> Result<(), JobError> {
        match classify(args) {
            Class::Early(_) => self.changes = true,
            Class::Typed(_) => (self.changes, self.typed) = (true, true),
            Class::Bypass(why) => {
                self.changes |= why.changes();
                self.flush = self.flush.max(match why {
                    Why::Keyspace => Flush::Certain,
                    Why::Script => Flush::Possible,
                    _ => Flush::No,
                });
            }
            Class::Local(Answer::Ping | Answer::Echo) if self.transaction => {}
            Class::Local(_) => return Err(JobError::Local),
            Class::Refused(refusal) => return Err(JobError::Refused(refusal.words())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(commands: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for command in commands {
            let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            resp::put_command(&mut bytes, &words);
        }
        bytes
    }

    fn job(commands: &[&str]) -> Result<Job, JobError> {
        Job::read(&bytes(commands))
    }

    #[test]
    fn commands_and_transactions_are_jobs() {
        let get = job(&["GET a"]).unwrap();
        assert!(!get.changes && !get.transaction && !get.resp3 && get.commands.len() == 1);
        let incr = job(&["HELLO 3", "INCR a"]).unwrap();
        assert!(incr.changes && incr.resp3);
        let all = job(&["HELLO 3", "MULTI", "GET a", "PING", "EXEC"]).unwrap();
        assert!(all.changes && all.transaction && all.resp3 && all.commands.len() == 2);
        assert!(job(&["MULTI", "EXEC"]).unwrap().commands.is_empty());
        assert_eq!(job(&["FLUSHDB"]).unwrap().flush, Flush::Certain);
        assert!(job(&["HMSET k f v"]).unwrap().typed);
    }

    #[test]
    fn a_script_may_remove_all_keys_whatever_its_text() {
        for script in ["EVAL return(1) 0", "EVALSHA abc 0", "FCALL f 0"] {
            assert_eq!(job(&[script]).unwrap().flush, Flush::Possible, "{script}");
            assert_eq!(job(&["MULTI", script, "GET a", "EXEC"]).unwrap().flush, Flush::Possible, "{script}");
            assert_eq!(
                job(&["MULTI", "FLUSHALL", script, "EXEC"]).unwrap().flush,
                Flush::Certain,
                "{script}"
            );
        }
        for command in ["GET a", "INCR a", "EVAL_RO return(1) 0", "FCALL_RO f 0"] {
            assert_eq!(job(&[command]).unwrap().flush, Flush::No, "{command}");
        }
    }

    #[test]
    fn requests_of_another_shape_are_refused() {
        for commands in [
            &[][..],
            &["HELLO 3"],
            &["GET a", "GET b"],
            &["MULTI", "GET a"],
            &["MULTI", "EXEC", "GET a"],
            &["GET a", "MULTI", "EXEC"],
            &["MULTI", "EXEC", "EXEC"],
        ] {
            assert_eq!(job(commands), Err(JobError::Shape), "{commands:?}");
        }
        assert_eq!(Job::read(&bytes(&["GET a"])[..9]), Err(JobError::Short));
        assert_eq!(Job::read(b"GET a\r\n"), Err(JobError::Short));
    }

    #[test]
    fn commands_that_would_change_the_shared_connection_are_refused() {
        for command in [
            "SUBSCRIBE a",
            "CLIENT REPLY OFF",
            "SELECT 1",
            "RESET",
            "QUIT",
            "WATCH a",
            "DISCARD",
            "EXEC",
            "AUTH x",
            "HELLO 2",
            "MONITOR",
            "SHUTDOWN",
        ] {
            assert!(job(&[command]).is_err(), "{command}");
            assert!(job(&["MULTI", command, "EXEC"]).is_err(), "{command} in a transaction");
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        proptest::proptest!(|(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100))| {
            let _ = Job::read(&bytes);
        });
    }
}
