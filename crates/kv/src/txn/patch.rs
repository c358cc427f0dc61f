//! Changes of parts of a stored long value. The rest is kept by reference; it is neither read nor counted again.

use super::{Staged, Txn};
use crate::error::KvError;
use crate::shard::Lookup;
use landfall_heap::{Change, Gated, Heap, Patch};

/// A value that [`Txn::patch`] can change, where other values are written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patchable {
    /// Length, bytes.
    pub len: usize,
    /// When the key expires, Unix milliseconds; 0 means never.
    pub expiry_ms: u64,
}

/// Where a value is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At its end.
    End,
    /// From this byte on. Zeroes fill the gap if it lies behind the end.
    At(usize),
}

impl Txn<'_> {
    /// Length and expiry of a value that [`Self::patch`] can change, that is, a value in pieces; `None` for any other.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn patchable(&self, space: u8, key: &[u8]) -> Result<Gated<Option<Patchable>>, KvError> {
        let lookup = Lookup::new(&self.engine.heap, space, key);
        if let Some(staged) = self.find_staged(&lookup) {
            let Staged::Patched(patch) = &staged.value else { return Ok(Gated::durable(None)) };
            let patchable = Patchable { len: patch.len() as usize, expiry_ms: staged.expiry_ms };
            return Ok(Gated::durable(Some(patchable)));
        }
        let Some(hit) = self.shard(lookup.hash).find(&self.engine.heap, &lookup)? else {
            return Ok(Gated::durable(None));
        };
        let pending = self.engine.heap.pending(hit.slot);
        pending.map_or(Ok(()), |ticket| self.engine.check_obtainable(ticket))?;
        let is_patchable = hit.view.is_in_pieces() && !hit.is_expired(self.now_ms);
        let patchable = Patchable { len: hit.view.value_len(), expiry_ms: hit.view.expiry_ms() };
        Ok(Gated::new(is_patchable.then_some(patchable), pending))
    }

    /// Stages a change of a value for which [`Self::patchable`] returns `Some`.
    ///
    /// # Errors
    /// [`KvError::Damaged`] if a piece that is changed in part does not match its checksum; errors of the medium.
    ///
    /// # Panics
    /// If the key has no value in pieces.
    pub fn patch(&mut self, space: u8, key: &[u8], place: Place, change: Change<'_>) -> Result<(), KvError> {
        let heap = &*self.engine.heap;
        let lookup = Lookup::new(heap, space, key);
        if let Some(index) = self.staged_index(&lookup) {
            let Staged::Patched(patch) = &mut self.staged[index].value else { panic!("a value in pieces") };
            **patch = applied(heap, (**patch).clone(), place, change)?;
            return Ok(());
        }
        let hit = self.shard(lookup.hash).find(heap, &lookup)?.expect("the value has been found");
        let patch = Patch::of(heap, hit.slot, &hit.view)?.expect("a value in pieces");
        let patch = applied(heap, patch, place, change)?;
        self.stage(space, key, None, Staged::Patched(Box::new(patch)), hit.view.expiry_ms());
        Ok(())
    }
}

/// The patch with one more change. It holds the frames that have landed for the change.
fn applied(heap: &Heap, mut patch: Patch, place: Place, change: Change<'_>) -> Result<Patch, KvError> {
    let known = patch.landed().len();
    let done = apply(heap, &mut patch, place, change);
    if done.is_err() {
        patch.landed()[known..].iter().for_each(|extent| heap.runs().release(*extent));
    }
    done.map(|()| patch)
}

fn apply(heap: &Heap, patch: &mut Patch, place: Place, change: Change<'_>) -> Result<(), KvError> {
    match place {
        Place::End => patch.append(heap, change)?,
        Place::At(at) => {
            let (at, len) = (at as u64, patch.len());
            patch.append_zeroes(heap, at.saturating_sub(len))?;
            patch.overwrite(heap, at, change)?;
        }
    }
    Ok(())
}
