//! A server of PMNet around a handler. Effects and sessions' rows share a commit.

use super::counts::Executed;
use super::handler::{self, Handler, retry};
use super::replicas::Replicas;
use super::{announce_when, spin, tell_at, watch_stop};
use crate::common::error::BenchError;
use crate::pmnet::args::PmnetServerArgs;
use landfall_bench_handlers::HandlerError;
use landfall_pmnet::{SessionKey, SessionRow, Work};
use landfall_pmnet_io::runtime::{
    Application, Network, Outcome, Published, Saved, ServerOptions, ServerReport, serve,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) fn run(args: &PmnetServerArgs) -> Result<(), BenchError> {
    let replicas = Replicas::open(&args.replicas, args.spin)?;
    let rejected: Arc<AtomicU64> = Arc::default();
    let mut service = Service { handler: Handler::open(args)?, replicas, rejected: Arc::clone(&rejected) };
    let options = ServerOptions { spin: spin(args), ..ServerOptions::new(args.listen) };
    let published: Arc<Published<ServerReport>> = Arc::default();
    let (stop, ready, counted) = (watch_stop(), published.clone(), published.clone());
    tell_at(args.counts, move || Executed::of(&counted.get(), rejected.load(Ordering::Relaxed)))?;
    announce_when(move || ready.get().incarnations > 0);
    serve(options, &mut service, published, &stop).map_err(|error| BenchError::Store(error.to_string()))
}

/// A handler, its rows, and the replicas of both.
struct Service {
    handler: Handler,
    replicas: Replicas,
    /// Updates that the handler refused. Their clients have no reply that could say so.
    rejected: Arc<AtomicU64>,
}

/// Why the service ends.
#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error(transparent)]
    Handler(#[from] HandlerError),
    #[error(transparent)]
    Replicas(#[from] BenchError),
    #[error("a row that is none of ours")]
    Row,
}

/// A row's key: the row's own bytes begin with what varies, so the key is the client and the session.
fn key_of(key: SessionKey) -> Vec<u8> {
    format!("{}/{}", key.client, key.session).into_bytes()
}

impl Service {
    /// Executes one request and returns its response.
    fn one(&mut self, work: &Work) -> Result<Outcome, ServiceError> {
        match work {
            Work::Update { request, row, .. } => {
                self.update(request, row)?;
                Ok(Outcome::Committed)
            }
            // The row goes with every bypass: the codec does not tell here whether it changes anything.
            Work::Bypass { request, row, lost, .. } => {
                let changed = request.first() != Some(&b'G');
                let kept = (key_of(row.key), row.to_bytes());
                let kept = changed.then_some((&*kept.0, &kept.1[..]));
                let bytes = if *lost { b"Elost".to_vec() } else { self.handler.apply(request, kept)? };
                Ok(Outcome::Response { bytes, changed: changed && !*lost })
            }
            Work::Row { row, evicted, floor, .. } => {
                self.keep(row, evicted, *floor)?;
                Ok(Outcome::Committed)
            }
        }
    }

    /// Executes an update with its row. The row is stored even if the handler refuses the update.
    fn update(&mut self, request: &[u8], row: &SessionRow) -> Result<(), HandlerError> {
        let response = self.handler.apply(request, Some((&key_of(row.key), &row.to_bytes())))?;
        if response.first() == Some(&b'E') {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn keep(&mut self, row: &SessionRow, evicted: &[SessionKey], floor: u32) -> Result<(), HandlerError> {
        let Handler::Map(store) = &mut self.handler else { return Ok(()) };
        retry(store, |store| store.put_row(&key_of(row.key), &row.to_bytes()))?;
        for key in evicted {
            retry(store, |store| store.remove_row(&key_of(*key)))?;
        }
        retry(store, |store| store.set_floor(&floor.to_le_bytes()))
    }
}

impl Application for Service {
    type Error = ServiceError;

    fn load(&mut self) -> Result<Saved, ServiceError> {
        let Handler::Map(store) = &mut self.handler else { return Ok(Saved::default()) };
        store.abandon();
        let rows = store.rows()?;
        let rows = rows.iter().map(|(_, row)| SessionRow::from_bytes(row).ok_or(ServiceError::Row));
        let rows = rows.collect::<Result<_, _>>()?;
        let floor = store.floor()?.first_chunk().map_or(0, |floor| u32::from_le_bytes(*floor));
        Ok(Saved { rows, floor, ..Saved::default() })
    }

    fn execute(&mut self, batch: &[Work], _network: &mut Network) -> Result<Vec<Outcome>, ServiceError> {
        let changes = batch.iter().filter_map(|work| match work {
            Work::Update { request, .. } => Some(&request[..]),
            _ => None,
        });
        self.replicas.send(changes)?;
        let outcomes = batch.iter().map(|work| self.one(work)).collect::<Result<_, _>>()?;
        self.handler.commit()?;
        self.replicas.wait()?;
        Ok(outcomes)
    }

    fn is_fatal(&self, error: &ServiceError) -> bool {
        // Whatever else fails, the pool must be opened again by a new process.
        !matches!(error, ServiceError::Replicas(_))
    }
}

impl From<ServiceError> for BenchError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Handler(error) => handler::failed(error),
            ServiceError::Replicas(error) => error,
            ServiceError::Row => Self::Store("a row that is none of ours".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::handler::tests::args;
    use super::*;
    use landfall_bench_handlers::{Op, Request};

    fn row(update: u32) -> SessionRow {
        let key = SessionKey { client: "10.0.0.1:4000".parse().unwrap(), session: 7 };
        let bypass = landfall_pmnet::wire::FIRST_BYPASS - 1;
        SessionRow { key, nonce: 1, update, bypass, ended: false, touched: 0, lease: 0 }
    }

    fn service(dir: &std::path::Path) -> Service {
        let handler = Handler::open(&args(dir, Some("btree"))).unwrap();
        Service { handler, replicas: Replicas::open(&[], false).unwrap(), rejected: Arc::default() }
    }

    #[test]
    fn rows_and_effects_are_there_together_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = service(dir.path());
        first.keep(&row(0), &[], 3).unwrap();
        let set = Request { op: Op::Set, key: b"k", value: b"v" }.encode();
        let row = row(1);
        first.update(&set, &row).unwrap();
        first.handler.commit().unwrap();
        drop(first);
        let saved = service(dir.path()).load().unwrap();
        assert_eq!(saved, Saved { rows: vec![row], floor: 3, ..Saved::default() });
    }

    #[test]
    fn updates_that_the_handler_refuses_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut service = service(dir.path());
        let set = Request { op: Op::Set, key: b"k", value: b"v" }.encode();
        for request in [&set[..], b"no request", &set[..]] {
            service.update(request, &row(1)).unwrap();
        }
        assert_eq!(service.rejected.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_was_not_committed_is_forgotten_by_a_new_incarnation() {
        let dir = tempfile::tempdir().unwrap();
        let mut service = service(dir.path());
        service.keep(&row(1), &[], 0).unwrap();
        assert_eq!(service.load().unwrap(), Saved::default());
    }
}
