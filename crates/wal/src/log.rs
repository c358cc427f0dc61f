//! The state of one log in DRAM: the slots of its entries, its settings, its consumers and its watchers.

use crate::error::WalError;
use crate::format::{Cut, Settings};
use crate::slots::Slots;
use crate::turns::Turns;
use landfall_heap::{Damage, Heap, SlotId, Ticket, Tickets, Until};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

/// A log. Its name is the key under which [`crate::Logs`] keeps it.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) number: u32,
    pub(crate) name: Box<str>,
    /// Hash of its head's key.
    pub(crate) hash: u64,
    /// Which of the logs of this name it is, on a chain.
    pub(crate) life: u64,
    pub(crate) state: Mutex<State>,
    /// Watchers that wait for the log to grow, one bit each.
    pub(crate) watchers: AtomicU64,
}

/// The newest entry of one writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByWriter {
    /// The entry is durable once this ticket is.
    pub(crate) last: Ticket,
    /// The log is on the writer's list of logs that its commits make grow.
    pub(crate) is_listed: bool,
}

/// A consumer's position.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    /// Its newest record that can be read; [`SlotId::NONE`] if there is none.
    pub(crate) slot: SlotId,
    pub(crate) offset: u64,
    /// Records of it that cannot be read, and which check each fails. One may be the newest.
    pub(crate) unreadable: Vec<(SlotId, Damage)>,
}

impl Position {
    pub(crate) fn new(slot: SlotId, offset: u64) -> Self {
        Self { slot, offset, unreadable: Vec::new() }
    }

    /// The offset of the entry that the consumer reads next. An older record must not stand in for one that cannot be
    /// read: the consumer would read again what it has read.
    pub(crate) fn known(&self, consumer: &str) -> Result<u64, WalError> {
        let Some(&(_, what)) = self.unreadable.first() else { return Ok(self.offset) };
        Err(WalError::DamagedPosition { consumer: consumer.into(), what })
    }

    /// All records of it.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SlotId> {
        self.readable().into_iter().chain(self.unreadable.iter().map(|(slot, _)| *slot))
    }

    pub(crate) fn readable(&self) -> Option<SlotId> {
        Some(self.slot).filter(|slot| *slot != SlotId::NONE)
    }
}

/// Whether heads on the medium hold the cut that recovery has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CutHeld {
    /// A durable head holds it.
    #[default]
    Durably,
    /// The current head does, and may not be durable.
    ByHead,
    /// None does.
    Not,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Offset of the first entry.
    pub(crate) first: u64,
    pub(crate) slots: Slots,
    /// All entries below this offset are known to be durable.
    pub(crate) durable: u64,
    /// Entries that cannot be read, by offset.
    pub(crate) unreadable: BTreeMap<u64, SlotId>,
    pub(crate) head: SlotIdOrNone,
    pub(crate) cut_held: CutHeld,
    pub(crate) settings: Settings,
    pub(crate) cut: Cut,
    pub(crate) positions: BTreeMap<Box<str>, Position>,
    pub(crate) by_writer: SmallVec<[ByWriter; 2]>,
    /// The log has been deleted. A caller that still holds it must look up its name again.
    pub(crate) ended: bool,
    /// On a chain.
    pub(crate) turns: Turns,
    /// Entries behind a gap, by offset, while they are copied to this machine.
    pub(crate) ahead: BTreeMap<u64, Ahead>,
    /// The log was made by something that came before its head, while it is copied to this machine.
    pub(crate) is_guessed: bool,
    /// Which check the head fails, if it cannot be read.
    pub(crate) damaged: Option<Damage>,
    pub(crate) unreadable_heads: Vec<SlotId>,
}

/// An entry behind a gap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) slot: SlotId,
    pub(crate) bytes: u64,
    /// The record says that the entry is lost.
    pub(crate) is_lost: bool,
}

/// A slot, [`SlotId::NONE`] by default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotIdOrNone(pub(crate) SlotId);

impl Default for SlotIdOrNone {
    fn default() -> Self {
        Self(SlotId::NONE)
    }
}

impl Log {
    pub(crate) fn new(number: u32, name: &str, hash: u64, life: u64, state: State) -> Self {
        let (name, state, watchers) = (name.into(), Mutex::new(state), AtomicU64::new(0));
        Self { number, name, hash, life, state, watchers }
    }
}

impl State {
    /// Offset of the entry that comes next.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// The slot of an entry.
    pub(crate) fn slot(&self, offset: u64) -> Option<SlotId> {
        self.slots.get(usize::try_from(offset.checked_sub(self.first)?).ok()?)
    }

    /// The slot of an entry, or of the record that says that the entry is lost.
    pub(crate) fn entry_slot(&self, offset: u64) -> Option<SlotId> {
        let ahead = || self.ahead.get(&offset).map(|ahead| ahead.slot);
        self.unreadable.get(&offset).copied().or_else(ahead).or_else(|| self.slot(offset))
    }

    pub(crate) fn set_slot(&mut self, offset: u64, slot: SlotId) {
        if let Some(known) = self.unreadable.get_mut(&offset) {
            *known = slot;
            return;
        }
        if let Some(ahead) = self.ahead.get_mut(&offset) {
            ahead.slot = slot;
            return;
        }
        self.slots.set((offset - self.first) as usize, slot);
    }

    /// Offset up to which entries may be read: all entries below it are durable.
    pub(crate) fn durable(&mut self, heap: &Heap) -> u64 {
        self.durable = self.durable.max(self.first);
        while self.slot(self.durable).is_some_and(|slot| heap.pending(slot).is_none()) {
            self.durable += 1;
        }
        self.durable
    }

    /// Takes the entries behind a gap that is filled.
    pub(crate) fn take_ahead(&mut self) {
        while let Some(Ahead { slot, bytes, is_lost }) = self.ahead.remove(&self.next()) {
            if is_lost {
                self.unreadable.insert(self.next(), slot);
            }
            self.slots.push(if is_lost { SlotId::NONE } else { slot }, bytes);
        }
    }

    /// Fails if the log may not be served, because it is damaged or deleted.
    pub(crate) fn check(&self) -> Result<(), WalError> {
        match self.damaged {
            Some(what) => Err(WalError::Damaged { what }),
            None if self.ended => Err(WalError::NoLog),
            None => Ok(()),
        }
    }

    /// True if a head must be written before a writer's next entry: the entry must not be durable without a head that
    /// holds the cut, or what recovery has taken for void would follow the entry after the next crash.
    ///
    /// # Errors
    /// [`WalError::Wait`] for a head of another writer, which may be lost in a crash that the entry survives. (A head of
    /// this writer would have to repeat what that one says, such as a trim, and would make that durable too early.)
    pub(crate) fn needs_head(&mut self, heap: &Heap, writer: u8) -> Result<bool, WalError> {
        match (self.cut_held, heap.pending(self.head.0)) {
            (CutHeld::Durably, _) => Ok(false),
            (CutHeld::Not, _) => Ok(true),
            (CutHeld::ByHead, None) => {
                self.cut_held = CutHeld::Durably;
                Ok(false)
            }
            // Records of one writer become durable in their order.
            (CutHeld::ByHead, Some(ticket)) if ticket.writer() == writer => Ok(false),
            (CutHeld::ByHead, Some(ticket)) => Err(WalError::Wait(Until::Ticket(ticket))),
        }
    }

    /// The tickets that the newest entry depends on: those of the newest entry of every writer, and of the head.
    pub(crate) fn pending(&self, heap: &Heap) -> Tickets {
        let newest = self.by_writer.iter().map(|by| by.last);
        newest.filter(|ticket| !heap.is_durable(*ticket)).chain(heap.pending(self.head.0)).collect()
    }

    /// Notes the ticket of a writer's newest entry, or of its delete. True if the log must be put on the writer's list.
    pub(crate) fn note_writer(&mut self, last: Ticket) -> bool {
        match self.by_writer.iter_mut().find(|by| by.last.writer() == last.writer()) {
            Some(by) => {
                by.last = last;
                !std::mem::replace(&mut by.is_listed, true)
            }
            None => {
                self.by_writer.push(ByWriter { last, is_listed: true });
                true
            }
        }
    }
}
