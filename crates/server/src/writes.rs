//! Where plain writes go: `SET` without conditions, `PUT` and `POST` of a key.
//!
//! Read [`PlainWrites`] first. [`InRegion`] is the store. Other implementations are for measurements, which live outside this
//! crate: the path of a write is one, whatever it ends in.

use landfall_heap::{Gated, Heap, Writer};
use landfall_kv::{Engine, KvError, SetRequest, Written};
use landfall_media::MediaError;
use std::fmt::Debug;

/// Takes plain writes.
pub trait PlainWrites: Debug + Send + Sync {
    /// One line for people; `None` for the store itself.
    fn describe(&self) -> Option<String> {
        None
    }

    /// True if values stay in the region and can be read back: they need space, and a checksum.
    fn keeps_values(&self) -> bool;

    /// Takes a write, durable with the commit that ends the worker's round. `None` where nothing can be read back.
    ///
    /// # Errors
    /// [`WriteError`].
    fn set(
        &self,
        to: Destination<'_>,
        request: &SetRequest<'_>,
    ) -> Result<Option<Gated<Written>>, WriteError>;

    /// Makes durable what a worker has taken and its [`Writer`] does not know of.
    ///
    /// # Errors
    /// The medium's.
    fn commit(&self, _worker: usize, _heap: &Heap) -> Result<(), MediaError> {
        Ok(())
    }
}

/// What a worker writes with.
#[derive(Debug)]
pub struct Destination<'a> {
    /// The store.
    pub engine: &'a Engine,
    /// The worker's writer.
    pub writer: &'a mut Writer,
    /// The worker's number.
    pub worker: usize,
}

/// Why a write was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// From the store: the write may have to wait.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// From what stands in for the store.
    #[error(transparent)]
    StandIn(Box<dyn std::error::Error + Send + Sync>),
}

/// The store: a record that refers to where the value landed.
#[derive(Clone, Copy, Debug)]
pub struct InRegion;

impl PlainWrites for InRegion {
    fn keeps_values(&self) -> bool {
        true
    }

    fn set(
        &self,
        to: Destination<'_>,
        request: &SetRequest<'_>,
    ) -> Result<Option<Gated<Written>>, WriteError> {
        Ok(Some(to.engine.set(to.writer, request)?))
    }
}
