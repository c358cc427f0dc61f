//! One batch between the thread that serves and those that execute.

use crate::abi::{KEY_BYTES, Kind, ROW_BYTES};
use crate::error::CallError;
use landfall_pmnet::{SessionKey, SessionRow, Work};
use landfall_pmnet_io::runtime::Outcome;
use std::io::{PipeWriter, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A piece of work, in the bytes that C sees.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) lost: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) key: [u8; KEY_BYTES],
    pub(crate) row: [u8; ROW_BYTES],
    /// [`KEY_BYTES`] each.
    pub(crate) evicted: Vec<u8>,
    pub(crate) floor: u32,
}

impl Piece {
    fn new(id: u64, work: &Work, floor: u32) -> Self {
        let (kind, bytes, row) = match work {
            Work::Update { request, row, .. } => (Kind::Update, request.as_slice(), row),
            Work::Bypass { request, row, .. } => (Kind::Bypass, request.as_slice(), row),
            Work::Row { row, .. } => (Kind::Row, [].as_slice(), row),
        };
        let evicted = if let Work::Row { evicted, .. } = work { evicted.as_slice() } else { &[] };
        Self {
            id,
            kind,
            lost: matches!(work, Work::Bypass { lost: true, .. }),
            bytes: bytes.to_vec(),
            key: key_bytes(row),
            row: row.to_bytes(),
            evicted: evicted.iter().flat_map(|key| key_bytes(&row_of(*key))).collect(),
            floor,
        }
    }
}

/// The part of a row that is the session's: address, port and number, as the row has them but in one piece.
fn key_bytes(row: &SessionRow) -> [u8; KEY_BYTES] {
    let row = row.to_bytes();
    let mut key = [0; KEY_BYTES];
    key[..18].copy_from_slice(&row[4..22]);
    key[18..].copy_from_slice(&row[2..4]);
    key
}

fn row_of(key: SessionKey) -> SessionRow {
    SessionRow { key, nonce: 0, update: 0, bypass: 0, ended: true, touched: 0 }
}

/// What the application says about a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'b> {
    /// An update or a row is committed.
    Committed,
    /// A bypass is executed.
    Response { bytes: &'b [u8], changed: bool },
    /// Nothing is.
    Failed,
}

#[derive(Debug)]
struct Entry {
    piece: Arc<Piece>,
    outcome: Option<Outcome>,
}

#[derive(Debug, Default)]
struct State {
    batch: Vec<Entry>,
    /// The name of the batch's first piece.
    first: u64,
    /// Pieces before this one have been handed out, or need not be.
    next: usize,
    closing: bool,
    ended: Option<CallError>,
}

/// The batch that is being executed.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    wake: PipeWriter,
}

impl Queue {
    /// A byte through `wake` asks for a look at [`Self::outcomes`].
    pub(super) fn new(wake: PipeWriter) -> Self {
        // No request has the number 0, which is what C programs leave in what they forget to set.
        let state = State { first: 1, ..State::default() };
        Self { state: Mutex::new(state), changed: Condvar::new(), wake }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under the lock leaves it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // A pipe that is full, or whose reader is gone, needs no byte.
        let _ = (&self.wake).write(&[1]);
    }

    /// Waits until `started` gives something, or the thread has ended.
    pub(super) fn wait_for_start<T>(
        &self,
        pause: Duration,
        started: impl Fn() -> Option<T>,
    ) -> Result<T, CallError> {
        let mut state = self.lock();
        loop {
            if let Some(error) = state.ended.take() {
                return Err(error);
            }
            if let Some(started) = started() {
                return Ok(started);
            }
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Hands the next batch to the application. The floor goes with every piece, as it may only rise.
    pub(super) fn offer(&self, batch: &[Work], floor: &mut u32) {
        let mut state = self.lock();
        let first = state.first;
        let entry = |(id, work): (u64, &Work)| {
            if let Work::Row { floor: new, .. } = work {
                *floor = (*floor).max(*new);
            }
            Entry { piece: Arc::new(Piece::new(id, work, *floor)), outcome: None }
        };
        state.batch = (first..).zip(batch).map(entry).collect();
        state.next = 0;
        self.changed.notify_all();
    }

    /// All answers of the batch, once they are there, or it is time to go: what has none then has failed.
    pub(super) fn outcomes(&self) -> Option<Vec<Outcome>> {
        let mut state = self.lock();
        if !state.closing && state.batch.iter().any(|entry| entry.outcome.is_none()) {
            return None;
        }
        let batch = std::mem::take(&mut state.batch);
        state.first += batch.len() as u64;
        state.next = 0;
        Some(batch.into_iter().map(|entry| entry.outcome.unwrap_or(Outcome::Failed)).collect())
    }

    /// The next piece and how many are behind it.
    pub(super) fn recv(&self, most: Option<Duration>) -> Result<Option<(Arc<Piece>, u32)>, CallError> {
        // Too far away to be a time: for ever.
        let until = most.and_then(|most| Instant::now().checked_add(most));
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.ended {
                return Err(CallError::Ended { reason: error.to_string() });
            }
            if let Some(piece) = state.hand_out() {
                return Ok(Some((piece, state.behind())));
            }
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return Ok(None),
                Some(rest) => {
                    self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(super) fn answer(&self, id: u64, answer: Answer<'_>) -> Result<(), CallError> {
        let mut state = self.lock();
        let at = state.find(id)?;
        state.check(at, answer)?;
        state.batch[at].outcome = Some(match answer {
            Answer::Committed => Outcome::Committed,
            Answer::Response { bytes, changed } => Outcome::Response { bytes: bytes.to_vec(), changed },
            Answer::Failed => Outcome::Failed,
        });
        if matches!(answer, Answer::Failed) {
            state.fail_behind(at);
        }
        if state.batch.iter().all(|entry| entry.outcome.is_some()) {
            self.wake();
        }
        Ok(())
    }

    /// No answers are waited for any more.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.wake();
    }

    /// The thread has ended.
    pub(super) fn end(&self, error: CallError) {
        self.lock().ended = Some(error);
        self.changed.notify_all();
    }
}

impl State {
    fn hand_out(&mut self) -> Option<Arc<Piece>> {
        let rest = self.batch.get(self.next..)?;
        let at = self.next + rest.iter().position(|entry| entry.outcome.is_none())?;
        self.next = at + 1;
        Some(Arc::clone(&self.batch[at].piece))
    }

    fn behind(&self) -> u32 {
        let rest = self.batch.iter().skip(self.next).filter(|entry| entry.outcome.is_none());
        u32::try_from(rest.count()).unwrap_or(u32::MAX)
    }

    /// Where the piece is, if it was handed out and has no answer.
    fn find(&self, id: u64) -> Result<usize, CallError> {
        let at = id.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| *at < self.next && self.batch[*at].outcome.is_none());
        at.ok_or(CallError::NotWaiting { id })
    }

    fn check(&self, at: usize, answer: Answer<'_>) -> Result<(), CallError> {
        let (id, kind) = (self.batch[at].piece.id, self.batch[at].piece.kind);
        match (answer, kind) {
            (Answer::Committed, Kind::Bypass) => {
                return Err(CallError::WrongAnswer { id, is: "is a bypass", instead: "PMNet_respond" });
            }
            (Answer::Response { .. }, Kind::Update | Kind::Row) => {
                return Err(CallError::WrongAnswer { id, is: "is no bypass", instead: "PMNet_ack" });
            }
            _ => {}
        }
        let failed = |entry: &Entry| entry.outcome == Some(Outcome::Failed);
        let done = |entry: &Entry| entry.outcome.is_some() && !failed(entry);
        let is_failure = matches!(answer, Answer::Failed);
        if !is_failure && self.of_session(at, 0..at).any(failed) {
            return Err(CallError::BehindFailed { id });
        }
        if is_failure && self.of_session(at, at + 1..self.batch.len()).any(done) {
            return Err(CallError::BeforeDone { id });
        }
        Ok(())
    }

    /// Entries of one session among some.
    fn of_session(&self, at: usize, among: std::ops::Range<usize>) -> impl Iterator<Item = &Entry> {
        let key = self.batch[at].piece.key;
        self.batch[among].iter().filter(move |entry| entry.piece.key == key)
    }

    /// What the session has behind a failed piece, and nobody has seen, fails with it.
    fn fail_behind(&mut self, at: usize) {
        let key = self.batch[at].piece.key;
        for entry in self.batch.iter_mut().skip(self.next).filter(|entry| entry.piece.key == key) {
            entry.outcome = Some(Outcome::Failed);
        }
    }
}
