//! The current batch, which the thread of the server shares with the application's threads that execute it.

use crate::abi::{KEY_BYTES, Kind, ROW_BYTES};
use crate::error::CallError;
use landfall_pmnet::{SessionKey, SessionRow, Work};
use landfall_pmnet_io::runtime::Outcome;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A piece of work in the form that C sees.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) lost: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) key: [u8; KEY_BYTES],
    pub(crate) row: [u8; ROW_BYTES],
    /// Keys of [`KEY_BYTES`] bytes each.
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

/// The session's key: address, port and number, which a row contains in two separate places.
fn key_bytes(row: &SessionRow) -> [u8; KEY_BYTES] {
    let row = row.to_bytes();
    let mut key = [0; KEY_BYTES];
    key[..18].copy_from_slice(&row[4..22]);
    key[18..].copy_from_slice(&row[2..4]);
    key
}

fn row_of(key: SessionKey) -> SessionRow {
    SessionRow { key, nonce: 0, update: 0, bypass: 0, ended: true, touched: 0, lease: 0 }
}

/// The application's answer to a piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'b> {
    /// An update or a row is committed.
    Committed,
    /// A bypass is executed.
    Response { bytes: &'b [u8], changed: bool },
    /// Nothing is committed.
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
    /// The number of the batch's first piece.
    first: u64,
    /// Index of the next piece to hand out. The pieces before it are handed out, or need not be.
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
    /// The reading end. It is kept open, because writing to a closed pipe would kill a C program with SIGPIPE.
    woken: PipeReader,
}

impl Queue {
    /// An empty queue. A byte in the pipe tells the server's thread to check [`Self::outcomes`].
    pub(super) fn new((woken, wake): (PipeReader, PipeWriter)) -> Self {
        // No request has the number 0, because C programs often leave 0 in fields that they do not set.
        let state = State { first: 1, ..State::default() };
        Self { state: Mutex::new(state), changed: Condvar::new(), wake, woken }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // The pipe has room: one byte is written for each batch, and each batch begins with a check that empties the
        // pipe. If the kernel refuses the write, the thread checks after its timeout.
        let _ = (&self.wake).write(&[1]);
    }

    /// Becomes readable when [`Self::outcomes`] should be checked.
    pub(super) fn woken(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// Removes the bytes from the pipe. Each of them stands for one check.
    pub(super) fn take_woken(&self) -> io::Result<()> {
        (&self.woken).read(&mut [0; 64]).map(drop)
    }

    /// Waits until `started` returns something, or until the thread has ended.
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

    /// Hands the next batch to the application. Every piece carries the floor, which may only rise.
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

    /// The outcomes of the batch, once every piece has one. When the queue is closing, pieces without an outcome
    /// have failed.
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

    /// The next piece and the number of pieces behind it.
    pub(super) fn recv(&self, most: Option<Duration>) -> Result<Option<(Arc<Piece>, u32)>, CallError> {
        // A timeout beyond the range of the clock means no timeout.
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
                Some(remaining) => {
                    self.changed.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0
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

    /// Stops waiting for answers.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.wake();
    }

    /// Notes that the thread has ended.
    pub(super) fn end(&self, error: CallError) {
        self.lock().ended = Some(error);
        self.changed.notify_all();
    }
}

impl State {
    fn hand_out(&mut self) -> Option<Arc<Piece>> {
        let remaining = self.batch.get(self.next..)?;
        let at = self.next + remaining.iter().position(|entry| entry.outcome.is_none())?;
        self.next = at + 1;
        Some(Arc::clone(&self.batch[at].piece))
    }

    fn behind(&self) -> u32 {
        let remaining = self.batch.iter().skip(self.next).filter(|entry| entry.outcome.is_none());
        u32::try_from(remaining.count()).unwrap_or(u32::MAX)
    }

    /// Index of the piece, if it was handed out and has no outcome.
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

    /// The entries in `among` that belong to the session of entry `at`.
    fn of_session(&self, at: usize, among: std::ops::Range<usize>) -> impl Iterator<Item = &Entry> {
        let key = self.batch[at].piece.key;
        self.batch[among].iter().filter(move |entry| entry.piece.key == key)
    }

    /// Fails the later pieces of the session of a failed piece that have not been handed out.
    fn fail_behind(&mut self, at: usize) {
        let key = self.batch[at].piece.key;
        for entry in self.batch.iter_mut().skip(self.next).filter(|entry| entry.piece.key == key) {
            entry.outcome = Some(Outcome::Failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_pmnet::wire::{Body, Packet, Start};
    use landfall_pmnet::{Instant, Server, ServerConfig};

    fn queue() -> Queue {
        Queue::new(io::pipe().unwrap())
    }

    /// Work of two sessions: their session starts, or `updates` updates of each, in turns.
    fn work(server: &mut Server, updates: u32) -> Vec<Work> {
        let now = Instant::from_nanos(0);
        for session in [1, 2] {
            let update = |seq| Packet::new(session, seq, Body::Update(b"request"));
            let start = Packet::new(session, 0, Body::SessionStart { nonce: 7, asks: Start::Plain });
            let packets = if updates == 0 { vec![start] } else { (1..=updates).map(update).collect() };
            for packet in packets {
                server.handle_datagram("10.0.0.1:40000".parse().unwrap(), &packet.to_bytes(), now);
            }
        }
        std::iter::from_fn(|| server.poll_work()).collect()
    }

    fn updates() -> Vec<Work> {
        let now = Instant::from_nanos(0);
        let mut server = Server::new(ServerConfig::default(), 1, [], 0, now);
        for begun in work(&mut server, 0) {
            server.committed(begun.ticket(), now);
        }
        let updates = work(&mut server, 2);
        assert_eq!(updates.len(), 4);
        updates
    }

    fn next(queue: &Queue) -> (u64, u32) {
        let (piece, behind) = queue.recv(Some(Duration::ZERO)).unwrap().expect("a piece");
        (piece.id, behind)
    }

    #[test]
    fn outcomes_are_complete_once_all_pieces_are_answered_in_any_order() {
        let (queue, mut floor) = (queue(), 0);
        queue.offer(&updates(), &mut floor);
        assert_eq!((0..4).map(|_| next(&queue)).collect::<Vec<_>>(), [(1, 3), (2, 2), (3, 1), (4, 0)]);
        assert!(queue.recv(Some(Duration::ZERO)).unwrap().is_none());
        for id in [3, 1, 4, 2] {
            assert_eq!(queue.outcomes(), None);
            queue.answer(id, Answer::Committed).unwrap();
        }
        assert_eq!(queue.outcomes(), Some(vec![Outcome::Committed; 4]));
        assert!(matches!(queue.answer(1, Answer::Committed), Err(CallError::NotWaiting { id: 1 })));
        queue.offer(&updates(), &mut floor);
        assert_eq!(next(&queue).0, 5);
    }

    #[test]
    fn after_a_failure_the_session_fails_and_no_other() {
        let (queue, batch) = (queue(), updates());
        queue.offer(&batch, &mut 0);
        let first = next(&queue).0;
        queue.answer(first, Answer::Failed).unwrap();
        let others = batch.iter().filter(|work| work.ticket().session() != batch[0].ticket().session());
        for _ in others {
            queue.answer(next(&queue).0, Answer::Committed).unwrap();
        }
        let outcomes = queue.outcomes().expect("nothing else is handed out");
        for (work, outcome) in batch.iter().zip(outcomes) {
            let fails = work.ticket().session() == batch[0].ticket().session();
            assert_eq!(outcome == Outcome::Failed, fails);
        }
    }

    #[test]
    fn pieces_handed_out_after_a_failure_must_fail() {
        let (queue, batch) = (queue(), updates());
        queue.offer(&batch, &mut 0);
        (0..4).for_each(|at| assert_eq!(next(&queue).0, at + 1));
        let session = batch[0].ticket().session();
        let second = (1..4).find(|at| batch[*at].ticket().session() == session).unwrap() as u64 + 1;
        queue.answer(1, Answer::Failed).unwrap();
        assert!(matches!(queue.answer(second, Answer::Committed), Err(CallError::BehindFailed { .. })));
        queue.answer(second, Answer::Failed).unwrap();
    }

    #[test]
    fn a_piece_before_a_committed_one_cannot_fail() {
        let (queue, batch) = (queue(), updates());
        queue.offer(&batch, &mut 0);
        (0..4).for_each(|at| assert_eq!(next(&queue).0, at + 1));
        let session = batch[0].ticket().session();
        let second = (1..4).find(|at| batch[*at].ticket().session() == session).unwrap() as u64 + 1;
        queue.answer(second, Answer::Committed).unwrap();
        assert!(matches!(queue.answer(1, Answer::Failed), Err(CallError::BeforeDone { id: 1 })));
        queue.answer(1, Answer::Committed).unwrap();
    }

    #[test]
    fn closing_fails_the_pieces_that_are_not_answered() {
        let queue = queue();
        queue.offer(&updates(), &mut 0);
        let id = next(&queue).0;
        queue.answer(id, Answer::Committed).unwrap();
        queue.close();
        let outcomes = queue.outcomes().unwrap();
        assert_eq!(outcomes[0], Outcome::Committed);
        assert_eq!(outcomes[1..], vec![Outcome::Failed; 3]);
    }

    #[test]
    fn a_waiting_thread_is_told_of_the_end() {
        let queue = queue();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.recv(None).map(drop));
            queue.end(CallError::Ended { reason: "a test".to_owned() });
            assert!(matches!(waiting.join().unwrap(), Err(CallError::Ended { .. })));
        });
    }
}
