//! Answers that go on, line by line, until etcd, the time limit or another thread ends them.

use super::http::{Endpoint, Failure, Limits};
use crate::error::MembersError;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use ureq::{Agent, BodyReader, Error};

/// Longest line, bytes. etcd sends what has been missed in few lines; a change of 1.5 MB, its limit, has 2 MB in base64.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Ends the streams and the pauses of a thread from another thread.
#[derive(Debug, Default)]
pub(super) struct Interrupt {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Reading(Agent),
    Interrupted,
}

/// The lines of an answer.
pub(super) struct Lines {
    endpoint: Endpoint,
    body: BufReader<BodyReader<'static>>,
}

impl Interrupt {
    /// Ends what is being read, and lets nothing be read any more.
    pub(super) fn interrupt(&self) {
        let before = std::mem::replace(&mut *self.state(), State::Interrupted);
        self.changed.notify_all();
        if let State::Reading(agent) = before {
            agent.shutdown();
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        matches!(*self.state(), State::Interrupted)
    }

    /// Waits, unless interrupted.
    pub(super) fn pause(&self, pause: Duration) {
        let waits = |state: &mut State| !matches!(state, State::Interrupted);
        drop(self.changed.wait_timeout_while(self.state(), pause, waits));
    }

    /// Notes what is read from now on. False if interrupted.
    fn reads(&self, agent: &Agent) -> bool {
        let mut state = self.state();
        let goes_on = !matches!(*state, State::Interrupted);
        if goes_on {
            *state = State::Reading(agent.clone());
        }
        goes_on
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    /// Posts `json` and returns when the answer has begun, by `end`. It lasts for `lasts` from then on.
    pub(super) fn open(
        &self,
        path: &str,
        json: &[u8],
        token: Option<&str>,
        (end, lasts): (Instant, Duration),
        interrupt: &Interrupt,
    ) -> Result<Lines, Failure> {
        // One half each for the connection and for the beginning of the answer.
        let half = end.saturating_duration_since(Instant::now()) / 2;
        let limits = Limits { connect: Some(half), response: Some(half), body: Some(lasts), whole: None };
        self.exchange(limits, |agent| {
            if !interrupt.reads(agent) {
                return Err(Error::Io(io::ErrorKind::Interrupted.into()));
            }
            // A member without a leader cannot know what happens: it ends the stream, and another is asked.
            let request = self.request(agent, path, token).header("Grpc-Metadata-hasleader", "true");
            let body = request.send(json)?.into_body().into_reader();
            Ok(Lines { endpoint: self.clone(), body: BufReader::new(body) })
        })
    }
}

impl Lines {
    /// The next line; `None` if the time is up and nothing of it has come.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, MembersError> {
        let mut line = Vec::new();
        match self.body.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => Ok(Some(line)),
            Ok(count) if count as u64 == LINE_BYTES_MAX => Err(self.endpoint.nonsense("a line is too long")),
            Ok(_) => Err(self.endpoint.ended()),
            Err(error) => match Error::from(error) {
                Error::Timeout(_) if line.is_empty() => Ok(None),
                error => Err(self.endpoint.failed(error)),
            },
        }
    }
}
