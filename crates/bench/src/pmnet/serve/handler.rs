//! The handlers of requests: the ideal handler and a durable map.

use crate::common::error::BenchError;
use crate::pmnet::args::PmnetServerArgs;
use landfall_bench_handlers::{HandlerError, Store, StoreOptions, Structure};
use landfall_media::{OpenOptions, RUN_SIZE, open};
use std::path::Path;

/// The handler of requests in the plain codec of `landfall-bench-handlers`.
pub(super) enum Handler {
    /// Acknowledges.
    Ideal,
    /// Applies to a map; [`Handler::commit`] makes it durable.
    Map(Box<Store>),
}

impl Handler {
    pub(super) fn open(args: &PmnetServerArgs) -> Result<Self, BenchError> {
        let Some(name) = &args.structure else { return Ok(Self::Ideal) };
        let structure = Structure::named(name).ok_or(BenchError::Nothing("no such structure"))?;
        let store = open_store(&args.dir.join("handler"), args.capacity, structure);
        store.map(|store| Self::Map(Box::new(store))).map_err(failed)
    }

    /// Executes a request and stores `row`, to be committed with it. Returns the response.
    pub(super) fn apply(
        &mut self,
        request: &[u8],
        row: Option<(&[u8], &[u8])>,
    ) -> Result<Vec<u8>, HandlerError> {
        match self {
            Self::Ideal => Ok(b"O".to_vec()),
            Self::Map(store) => retry(store, |store| store.apply(request, row)),
        }
    }

    /// Makes everything applied durable.
    pub(super) fn commit(&mut self) -> Result<(), HandlerError> {
        match self {
            Self::Ideal => Ok(()),
            Self::Map(store) => store.commit(),
        }
    }
}

/// Applies a change to a store. If the batch is full, commits and applies the change again.
pub(super) fn retry<T>(
    store: &mut Store,
    mut act: impl FnMut(&mut Store) -> Result<T, HandlerError>,
) -> Result<T, HandlerError> {
    match act(store) {
        Err(HandlerError::BatchFull) => {
            store.commit()?;
            act(store)
        }
        done => done,
    }
}

fn open_store(path: &Path, capacity: u64, structure: Structure) -> Result<Store, HandlerError> {
    let is_new = !path.exists();
    let capacity = capacity.next_multiple_of(RUN_SIZE);
    let media = open(path, &OpenOptions { create: Some(capacity), ..OpenOptions::default() })?.media;
    let options = StoreOptions::new(structure);
    if is_new { Store::create(media, options) } else { Store::open(media, options) }
}

pub(super) fn failed(error: HandlerError) -> BenchError {
    BenchError::Store(error.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::pmnet::args::ServeKind;
    use landfall_bench_handlers::{Op, Request};

    pub(crate) fn args(dir: &Path, structure: Option<&str>) -> PmnetServerArgs {
        PmnetServerArgs {
            kind: ServeKind::Udp,
            structure: structure.map(str::to_owned),
            listen: ([127, 0, 0, 1], 0).into(),
            dir: dir.into(),
            capacity: 8 << 20,
            replicas: Vec::new(),
            forward: None,
            counts: None,
            spin: false,
            stamps: false,
            background: false,
        }
    }

    #[test]
    fn a_map_keeps_what_was_committed_and_the_ideal_handler_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let set = Request { op: Op::Set, key: b"k", value: b"v" }.encode();
        let get = Request { op: Op::Get, key: b"k", value: b"" }.encode();
        let mut map = Handler::open(&args(dir.path(), Some("rbtree"))).unwrap();
        assert_eq!(map.apply(&set, None).unwrap(), b"O");
        map.commit().unwrap();
        drop(map);
        let mut map = Handler::open(&args(dir.path(), Some("rbtree"))).unwrap();
        assert_eq!(map.apply(&get, None).unwrap(), b"Vv");
        let mut ideal = Handler::open(&args(dir.path(), None)).unwrap();
        assert_eq!(ideal.apply(&get, None).unwrap(), b"O");
        assert!(Handler::open(&args(dir.path(), Some("heap"))).is_err(), "there is no such structure");
    }
}
