//! Makes a request/response service durable: one file stores its state and the rows of its sessions.
//!
//! A [`Service`] is a state machine: updates change its state, queries read it. [`Durable`] runs it behind PMNet: each
//! batch of updates is one block of a journal, which is synced before any update of the batch is acknowledged. The file
//! format is `docs/format/pmnet-service.md`; an example is `examples/udp_service.rs`.

mod error;
mod journal;

pub use error::GenericError;

use crate::runtime::{Application, Network, Outcome, Saved};
use journal::{Block, Journal};
use landfall_pmnet::{SessionKey, SessionRow, Work};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Length above which the journal is compacted, bytes. If twice the snapshot's length is more, that length counts.
const JOURNAL_BYTES: u64 = 16 << 20;
/// The default answer to a bypass whose response is lost.
const LOST: &[u8] = b"the request was executed before a restart; its response is lost";

/// A state machine. The same requests in the same order must lead to the same state.
pub trait Service {
    /// Applies an update. Its response is not sent to the client.
    fn update(&mut self, request: &[u8]) {
        self.request(request);
    }

    /// True if a bypass may change the state. That depends on the request alone: it is asked before requests in front of
    /// it are executed.
    fn changes(&self, request: &[u8]) -> bool;

    /// Executes a request and returns its response.
    fn request(&mut self, request: &[u8]) -> Vec<u8>;

    /// The answer to a request that was executed and whose response is lost.
    fn lost(&self, request: &[u8]) -> Vec<u8> {
        let _ = request;
        LOST.to_vec()
    }

    /// Encodes the whole state.
    fn save(&self) -> Vec<u8>;

    /// Replaces the state by one that [`Self::save`] has encoded. False if the bytes are not such a state.
    fn restore(&mut self, state: &[u8]) -> bool;
}

/// A service behind PMNet.
#[derive(Debug)]
pub struct Durable<S> {
    service: S,
    path: PathBuf,
    journal: Option<Journal>,
    rows: BTreeMap<SessionKey, SessionRow>,
    floor: u32,
    initial: Vec<u8>,
}

impl<S: Service> Durable<S> {
    /// Makes `service`, in its initial state, durable in the file `path`, which may exist already.
    pub fn new(service: S, path: PathBuf) -> Self {
        let initial = service.save();
        Self { service, path, journal: None, rows: BTreeMap::new(), floor: 0, initial }
    }

    /// The service in its current state.
    pub fn service(&self) -> &S {
        &self.service
    }

    fn damaged(&self) -> GenericError {
        GenericError::Damaged { path: self.path.clone() }
    }

    fn replay(&mut self, block: Block) -> Result<(), GenericError> {
        self.floor = self.floor.max(block.floor);
        for key in &block.evicted {
            self.rows.remove(key);
        }
        self.rows.extend(block.rows.iter().map(|row| (row.key, *row)));
        if let Some(state) = &block.state {
            return if self.service.restore(state) { Ok(()) } else { Err(self.damaged()) };
        }
        block.requests.iter().for_each(|request| self.service.update(request));
        Ok(())
    }

    fn snapshot(&self) -> Block {
        Block {
            floor: self.floor,
            rows: self.rows.values().copied().collect(),
            state: Some(self.service.save()),
            ..Block::default()
        }
    }

    /// The block with all changes of a batch. The changes are not applied yet.
    fn block(&self, batch: &[Work]) -> Block {
        let mut block = Block { floor: self.floor, ..Block::default() };
        let mut rows = BTreeMap::new();
        for work in batch {
            match work {
                Work::Update { request, row, .. } => {
                    block.requests.push(request.clone());
                    rows.insert(row.key, *row);
                }
                Work::Bypass { request, row, lost: false, .. } if self.service.changes(request) => {
                    block.requests.push(request.clone());
                    rows.insert(row.key, *row);
                }
                Work::Bypass { .. } => {}
                Work::Row { row, evicted, floor, .. } => {
                    block.floor = block.floor.max(*floor);
                    block.evicted.extend(evicted);
                    rows.retain(|key, _| !evicted.contains(key));
                    rows.insert(row.key, *row);
                }
            }
        }
        block.rows = rows.into_values().collect();
        block
    }

    /// Applies a piece of work that is committed, and returns its outcome.
    fn outcome(&mut self, work: &Work) -> Outcome {
        match work {
            Work::Update { request, .. } => {
                self.service.update(request);
                Outcome::Committed
            }
            Work::Bypass { request, lost: true, .. } => {
                Outcome::Response { bytes: self.service.lost(request), changed: false }
            }
            Work::Bypass { request, .. } => {
                let changed = self.service.changes(request);
                Outcome::Response { bytes: self.service.request(request), changed }
            }
            Work::Row { .. } => Outcome::Committed,
        }
    }

    fn compact(&mut self) -> Result<(), GenericError> {
        let snapshot = self.snapshot();
        self.journal = Some(Journal::replace(&self.path, &snapshot)?);
        Ok(())
    }

    fn commit(&mut self, batch: &[Work]) -> Result<Vec<Outcome>, GenericError> {
        let block = self.block(batch);
        if !block.rows.is_empty() {
            let damaged = self.damaged();
            self.journal.as_mut().ok_or(damaged)?.append(&block)?;
        }
        self.floor = block.floor;
        for key in &block.evicted {
            self.rows.remove(key);
        }
        self.rows.extend(block.rows.iter().map(|row| (row.key, *row)));
        let outcomes = batch.iter().map(|work| self.outcome(work)).collect();
        if self.journal.as_ref().is_some_and(|journal| journal.wants_compaction(JOURNAL_BYTES)) {
            self.compact()?;
        }
        Ok(outcomes)
    }
}

impl<S: Service> Application for Durable<S> {
    type Error = GenericError;

    fn load(&mut self) -> Result<Saved, GenericError> {
        (self.journal, self.floor) = (None, 0);
        self.rows.clear();
        if !self.service.restore(&self.initial) {
            return Err(self.damaged());
        }
        for block in Journal::read(&self.path)?.into_iter().flatten() {
            self.replay(block)?;
        }
        // Only a new file is known to be durable.
        self.compact()?;
        Ok(Saved { rows: self.rows.values().copied().collect(), floor: self.floor, ..Saved::default() })
    }

    fn execute(&mut self, batch: &[Work], _network: &mut Network) -> Result<Vec<Outcome>, GenericError> {
        self.commit(batch)
    }

    fn is_fatal(&self, error: &GenericError) -> bool {
        matches!(error, GenericError::Damaged { .. } | GenericError::DamagedInside { .. })
    }
}
