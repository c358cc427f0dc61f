//! Scrubbing: check the published data of files against their checksums, step by step, with a limit for each step.

use crate::data_map::BLOCK_BYTES;
use crate::files::Files;
use crate::key::InodeNumber;
use landfall_heap::{Damage, HeapError, Item};
use std::ops::Bound;

/// Bytes after which a step ends. A record that is larger is checked as a whole.
const STEP_BYTES: u64 = 1 << 20;

/// The file and the first block of a record of data.
type Place = (InodeNumber, u32);

/// How far a scrub of files has come.
#[derive(Clone, Debug, Default)]
pub struct FilesScrub {
    /// The record that was checked last.
    after: Option<Place>,
}

/// What a step has checked.
#[derive(Clone, Debug, Default)]
pub struct FilesScrubbed {
    /// Records of data that were checked.
    pub records: u64,
    /// Bytes of those that hold.
    pub bytes: u64,
    /// File, offset of the record in it, bytes, and failed check of each damaged record.
    pub findings: Vec<(InodeNumber, u64, Damage)>,
    /// All files have been checked; the next step starts with the first one again.
    pub wrapped: bool,
}

impl Files {
    /// Checks the next records of data, `records_max` at most. It blocks while bytes are read that have left memory, and lets
    /// others leave it.
    pub fn scrub(&self, at: &mut FilesScrub, records_max: u64) -> FilesScrubbed {
        let mut done = FilesScrubbed::default();
        while done.records < records_max && done.bytes < STEP_BYTES {
            let Some((record, held)) = self.hold_data_behind(at.after) else {
                at.after = None;
                done.wrapped = true;
                break;
            };
            match held.and_then(|item| verify(&item)) {
                Ok(bytes) => done.bytes += bytes,
                Err(HeapError::Loading(load)) if self.heap.wait_for_load(load) => continue,
                // The next step continues here.
                Err(HeapError::Loading(_)) => break,
                Err(error) => {
                    let what = match error {
                        HeapError::Damaged { what, .. } => what,
                        _ => Damage::Unreadable,
                    };
                    done.findings.push((record.0, u64::from(record.1) * BLOCK_BYTES, what));
                }
            }
            done.records += 1;
            at.after = Some(record);
        }
        self.heap.relieve_memory(0);
        done
    }

    /// The next record of data, with what it refers to: held, so that it is checked without the lock.
    fn hold_data_behind(&self, after: Option<Place>) -> Option<(Place, Result<Item<'_>, HeapError>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.lock();
        let next = state.stored.data.range::<Place, _>((from, Bound::Unbounded)).next();
        let (record, slot) = next.map(|(record, slot)| (*record, *slot))?;
        let held = self.heap.record(slot).and_then(|view| {
            self.heap.check_counted(slot, &view)?;
            Item::hold(&self.heap, slot, &view)
        });
        Some((record, held))
    }
}

/// The length of a value that holds.
fn verify(item: &Item<'_>) -> Result<u64, HeapError> {
    item.fetch()?;
    if item.verify()? {
        return Ok(item.len as u64);
    }
    Err(HeapError::Damaged { slot: item.slot, what: Damage::ValueChecksum })
}
