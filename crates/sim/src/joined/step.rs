//! Steps of a transaction: what a client asks for, its effect, and its execution.

use super::values::{Effect, KEYS, LONG, Longs, digest, key, long, short};
use crate::rng::Rng;
use crate::violation::Violation;
use landfall_heap::{Change, PIECES_FROM, Writer};
use landfall_kv::{Engine, KvError, Place, Txn, TxnKey};
use landfall_media::Extent;
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of a long value. Longer ones are not extended.
const LONG_MAX: usize = 600_000;
/// A change may begin so many bytes behind the end.
const GAP_MAX: usize = 3000;
/// Most bytes of a change.
const CHANGE_MAX: usize = 90_000;

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Writes or deletes short values.
    Shorts { keys: Range<usize>, version: Option<u64> },
    /// Writes a long value.
    Set { number: usize, bytes: Bytes },
    /// Changes a part of a long value, which is there.
    Patch { number: usize, at: Option<usize>, bytes: Bytes },
    /// Copies a long value, which is there, by reference.
    Copy { from: usize, to: usize },
    /// Deletes a long value.
    Delete { number: usize },
}

/// Bytes that a client sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    len: usize,
    seed: u64,
    /// They are received into frames.
    landed: bool,
}

impl Bytes {
    fn get(self) -> Vec<u8> {
        long(self.len, self.seed)
    }
}

impl Step {
    /// A step that makes sense for a writer with these long values.
    pub(super) fn draw(rng: &mut Rng, longs: &Longs, version: u64, shorts_max: usize) -> Self {
        if rng.one_in(3) {
            let count = rng.between(1, shorts_max);
            let first = rng.between(LONG, KEYS - count);
            return Self::Shorts { keys: first..first + count, version: (!rng.one_in(4)).then_some(version) };
        }
        let mut bytes =
            |low, high| Bytes { len: rng.between(low, high), seed: rng.draw(), landed: rng.one_in(2) };
        let set = bytes(PIECES_FROM as usize, LONG_MAX);
        let change = bytes(1, [40, 5000, CHANGE_MAX][set.seed as usize % 3]);
        let number = rng.below(LONG as u64) as usize;
        let to = rng.below(LONG as u64) as usize;
        match (&longs[number], rng.below(10)) {
            (Some(old), 0..5) if old.len() < LONG_MAX => {
                let at = (!rng.one_in(2)).then(|| rng.between(0, old.len() + GAP_MAX));
                Self::Patch { number, at, bytes: change }
            }
            (Some(_), 5..7) if to != number => Self::Copy { from: number, to },
            (Some(_), 7) => Self::Delete { number },
            _ => Self::Set { number, bytes: set },
        }
    }

    /// Changes the long values as the step does, and notes what it does to all keys.
    pub(super) fn apply(&self, longs: &mut Longs, effect: &mut Effect) {
        let number = match *self {
            Self::Shorts { ref keys, version } => return effect.push(keys.clone(), version),
            Self::Set { number, bytes } => {
                longs[number] = Some(Arc::new(bytes.get()));
                number
            }
            Self::Patch { number, at, bytes } => {
                let mut value = longs[number].as_deref().cloned().unwrap_or_default();
                let at = at.unwrap_or(value.len());
                value.resize(value.len().max(at + bytes.len), 0);
                value[at..at + bytes.len].copy_from_slice(&bytes.get());
                longs[number] = Some(Arc::new(value));
                number
            }
            Self::Copy { from, to } => {
                longs[to] = longs[from].clone();
                to
            }
            Self::Delete { number } => {
                longs[number] = None;
                number
            }
        };
        effect.push(number..number + 1, longs[number].as_deref().map(|value| digest(value)));
    }

    fn bytes(&self) -> Option<Bytes> {
        match self {
            Self::Set { bytes, .. } | Self::Patch { bytes, .. } => Some(*bytes),
            _ => None,
        }
    }

    fn keys(&self, owner: usize) -> Vec<Vec<u8>> {
        match self {
            Self::Shorts { keys, .. } => keys.clone().map(|number| key(owner, number)).collect(),
            Self::Set { number, .. } | Self::Patch { number, .. } | Self::Delete { number } => {
                vec![key(owner, *number)]
            }
            Self::Copy { from, to } => vec![key(owner, *from), key(owner, *to)],
        }
    }
}

/// The bytes of a step, received into frames and held, if they are to be.
pub(super) struct Landing(Option<Extent>);

impl Landing {
    pub(super) fn of(engine: &Engine, step: &Step) -> Result<Self, Violation> {
        let heap = engine.heap();
        let Some(bytes) = step.bytes().filter(|bytes| bytes.landed) else { return Ok(Self(None)) };
        let Some(run) = heap.take_landing_run() else { return Ok(Self(None)) };
        let extent = Extent::new(run + 100, bytes.len as u32);
        heap.media().store(extent.off, &bytes.get())?;
        heap.runs().hold(extent);
        heap.retire_landing_run(run);
        Ok(Self(Some(extent)))
    }

    pub(super) fn release(&self, engine: &Engine) {
        self.0.iter().for_each(|extent| engine.heap().runs().release(*extent));
    }
}

/// Executes steps as one transaction. `longs` are the long values before it.
pub(super) fn write(
    engine: &Engine,
    writer: &mut Writer,
    owner: usize,
    longs: &Longs,
    steps: &[Step],
    landings: &[Landing],
) -> Result<(), KvError> {
    let keys: Vec<Vec<u8>> = steps.iter().flat_map(|step| step.keys(owner)).collect();
    let mut txn = engine.transaction(keys.iter().map(|key| TxnKey { space: 0, key }), 0);
    let mut longs = longs.clone();
    for (step, landing) in steps.iter().zip(landings) {
        step.apply(&mut longs, &mut Effect::default());
        stage(&mut txn, owner, step, landing, &longs)?;
    }
    txn.commit(writer, 1)?.ungated();
    Ok(())
}

/// Stages one step. `longs` are the long values after it.
fn stage(
    txn: &mut Txn<'_>,
    owner: usize,
    step: &Step,
    landing: &Landing,
    longs: &Longs,
) -> Result<(), KvError> {
    match *step {
        Step::Shorts { ref keys, version } => keys.clone().try_for_each(|number| {
            match version {
                Some(version) => txn.put_bytes(0, &key(owner, number), short(number, version), 0),
                None => _ = txn.delete(0, &key(owner, number))?.ungated(),
            }
            Ok(())
        }),
        Step::Set { number, bytes } => {
            match landing.0 {
                Some(extent) => txn.put_landed(0, &key(owner, number), None, &[extent], None, 0),
                None => txn.put_bytes(0, &key(owner, number), bytes.get(), 0),
            }
            Ok(())
        }
        Step::Patch { number, at, bytes } => {
            let name = key(owner, number);
            // What the transaction itself has written whole is not kept in pieces yet.
            let Some(_) = txn.patchable(0, &name)?.ungated() else {
                let whole = longs[number].as_deref().cloned().unwrap_or_default();
                txn.put_bytes(0, &name, whole, 0);
                return Ok(());
            };
            let (sent, extents) = (bytes.get(), landing.0.as_slice());
            let change =
                if extents.is_empty() { Change::Bytes(&sent) } else { Change::Landed(extents, None) };
            txn.patch(0, &name, at.map_or(Place::End, Place::At), change)
        }
        Step::Copy { from, to } => {
            let Some(item) = txn.read(0, &key(owner, from))?.ungated() else { return Ok(()) };
            txn.copy_item(0, &key(owner, to), &item, 0)
        }
        Step::Delete { number } => {
            txn.delete(0, &key(owner, number))?.ungated();
            Ok(())
        }
    }
}
