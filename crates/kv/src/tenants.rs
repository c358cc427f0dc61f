//! The other systems of the region, as recovery and check bring them along.

use crate::error::KvError;
use landfall_heap::{
    Damage, DamagedSlot, FEATURE_LOGS, FEATURE_PMNET, Found, Heap, HeapError, Judge, RecordView, Scanned,
    SlotId, Tenant, spaces,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// No foreign record has been seen; space 0 is never foreign.
const NONE: u8 = 0;

/// All of them.
#[derive(Debug)]
pub(crate) struct Tenants {
    all: Vec<Arc<dyn Tenant>>,
    /// Space of a record that belongs to nobody who is here.
    foreign: AtomicU8,
}

impl Tenants {
    pub(crate) fn new(all: Vec<Arc<dyn Tenant>>) -> Self {
        Self { all, foreign: AtomicU8::new(NONE) }
    }

    fn of(&self, space: u8) -> Option<&Arc<dyn Tenant>> {
        self.all.iter().find(|tenant| tenant.owns(space))
    }

    pub(crate) fn own(&self, space: u8) -> bool {
        self.of(space).is_some()
    }

    /// True if the record is not the engine's.
    pub(crate) fn take(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) -> bool {
        match self.of(found.space) {
            Some(tenant) => tenant.take(heap, found, view),
            None if spaces::LOGS.contains(&found.space) || spaces::PMNET.contains(&found.space) => {
                self.foreign.store(found.space, Ordering::Relaxed);
            }
            None => return false,
        }
        true
    }

    /// Refuses a region that says that it may hold records of a system that is not here.
    pub(crate) fn check_features(&self, heap: &Heap) -> Result<(), KvError> {
        let systems = [(FEATURE_LOGS, spaces::LOG), (FEATURE_PMNET, spaces::PMNET_LOG)];
        let may_have = |feature: u32| heap.geometry().features & feature != 0;
        match systems.into_iter().find(|(feature, space)| may_have(*feature) && !self.own(*space)) {
            Some((_, space)) => Err(HeapError::Foreign { space }.into()),
            None => Ok(()),
        }
    }

    /// Refuses to go on without the owner of a record: what nobody takes would be given up.
    pub(crate) fn check(&self) -> Result<(), KvError> {
        match self.foreign.load(Ordering::Relaxed) {
            NONE => Ok(()),
            space => Err(HeapError::Foreign { space }.into()),
        }
    }

    /// Slots that cannot be read, or that the medium has lost.
    pub(crate) fn take_damaged(&self, scanned: &Scanned) {
        let lost = |slot: &SlotId| DamagedSlot { slot: *slot, what: Damage::Lost, named: None };
        for slot in scanned.damaged.iter().cloned().chain(scanned.holes.iter().map(lost)) {
            match &slot.named {
                Some((space, _, _)) => {
                    self.of(*space).into_iter().for_each(|tenant| tenant.take_damaged(&slot))
                }
                None => self.all.iter().for_each(|tenant| tenant.take_damaged(&slot)),
            }
        }
    }

    pub(crate) fn restart(&self) {
        self.all.iter().for_each(|tenant| tenant.restart());
    }

    pub(crate) fn settle(&self, heap: &Heap) -> Result<(), KvError> {
        self.check()?;
        self.all.iter().try_for_each(|tenant| tenant.settle(heap)).map_err(KvError::from)
    }

    /// A judge that asks whom a record belongs to; `own` judges the engine's.
    pub(crate) fn judge<J: Judge>(&self, own: J) -> EachItsOwn<'_, J> {
        EachItsOwn { tenants: self, own }
    }

    /// Visits some of the other systems' current slots; false when none is left.
    pub(crate) fn visit_some(
        &self,
        visit: &mut dyn FnMut(SlotId) -> Result<(), KvError>,
    ) -> Result<bool, KvError> {
        let mut outcome = Ok(());
        let mut keep_first = |slot| {
            if outcome.is_ok() {
                outcome = visit(slot);
            }
        };
        let more = self.all.iter().any(|tenant| tenant.current_some(&mut keep_first));
        outcome.map(|()| more)
    }

    /// What a person would call a record.
    pub(crate) fn describe(&self, space: u8, key: &[u8]) -> Option<String> {
        Some(self.of(space)?.describe(space, key))
    }
}

/// Asks whom a record belongs to.
pub(crate) struct EachItsOwn<'t, J> {
    tenants: &'t Tenants,
    own: J,
}

impl<J: Judge> Judge for EachItsOwn<'_, J> {
    fn is_superseded(&self, heap: &Heap, found: &Found) -> bool {
        match self.tenants.of(found.space) {
            Some(tenant) => tenant.is_superseded(heap, found),
            None => self.own.is_superseded(heap, found),
        }
    }

    fn lacks_bound(&self, found: &Found) -> bool {
        self.tenants.of(found.space).is_some_and(|tenant| tenant.lacks_bound(found))
    }

    fn is_flushed(&self, mark: &Found, found: &Found) -> bool {
        match self.tenants.of(found.space) {
            Some(tenant) => tenant.is_flushed(mark, found),
            None => self.own.is_flushed(mark, found),
        }
    }
}
