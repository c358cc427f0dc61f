//! The destination of plain writes: `SET` without conditions, and `PUT` and `POST` of a key.
//!
//! Read [`PlainWrites`] first. [`InRegion`] is the store. Other implementations are for measurements and live outside
//! this crate: all of them share the path of a write up to here.

use landfall_heap::{Gated, Heap, Writer};
use landfall_kv::{Engine, KvError, SetRequest, Written};
use landfall_media::MediaError;
use std::fmt::Debug;

/// A destination of plain writes.
pub trait PlainWrites: Debug + Send + Sync {
    /// One line for the log; `None` for the store itself.
    fn describe(&self) -> Option<String> {
        None
    }

    /// True if values stay in the region and can be read back: they need space, and a checksum.
    fn keeps_values(&self) -> bool;

    /// Takes a write, which becomes durable with the commit that ends the worker's round. `None` if nothing can be read
    /// back.
    ///
    /// # Errors
    /// [`WriteError`].
    fn set(
        &self,
        to: Destination<'_>,
        request: &SetRequest<'_>,
    ) -> Result<Option<Gated<Written>>, WriteError>;

    /// Makes durable what this destination has taken for a worker and its [`Writer`] does not know of.
    ///
    /// # Errors
    /// Errors of the medium.
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

/// Why a write was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An error of the store: the write may have to wait.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// An error of the destination that replaces the store.
    #[error(transparent)]
    StandIn(Box<dyn std::error::Error + Send + Sync>),
}

/// The store: writes a record that refers to where the value landed.
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
