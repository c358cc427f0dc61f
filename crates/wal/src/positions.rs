//! Positions of consumers: how far each consumer has read a log, stored durably.

use crate::bounds::Bound;
use crate::error::WalError;
use crate::format::{CONSUMER_BYTES_MAX, ENDED, check_name, position_key};
use crate::log::{Log, Position};
use crate::logs::Logs;
use crate::tombstones::Tombstone;
use landfall_heap::{Gated, SlotId, Tickets, Writer, spaces};

impl Logs {
    /// Stores how far a consumer has read: `offset` is that of the entry that the consumer reads next.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] beyond the last durable entry; [`WalError::NoLog`], [`WalError::BadName`],
    /// [`WalError::Damaged`], [`WalError::Wait`], and the heap's errors for a full and for a closed region.
    pub fn commit_position(
        &self,
        writer: &mut Writer,
        name: &[u8],
        consumer: &[u8],
        offset: u64,
        arrival_ns: u64,
    ) -> Result<Gated<()>, WalError> {
        let (log, consumer) = self.consumer(name, consumer)?;
        let mut state = log.state.lock();
        state.check()?;
        state.turns.take(&self.heap, writer)?;
        let next = state.durable(&self.heap);
        if offset > next {
            return Err(WalError::OutOfRange { offset, first: state.first, next });
        }
        let old = state.positions.get(consumer);
        let slot = self.write_position(writer, &log, consumer, offset, old, arrival_ns)?;
        state.positions.insert(consumer.into(), Position::new(slot, offset));
        state.turns.note(writer);
        let mut tickets = Tickets::from(writer.ticket());
        self.heap.pending(state.head.0).into_iter().for_each(|head| tickets.add(head));
        Ok(Gated::new((), tickets))
    }

    fn consumer<'c>(
        &self,
        name: &[u8],
        consumer: &'c [u8],
    ) -> Result<(std::sync::Arc<Log>, &'c str), WalError> {
        let log = self.find(name)?;
        Ok((log, check_name("consumer name", consumer, CONSUMER_BYTES_MAX)?))
    }

    pub(crate) fn write_position(
        &self,
        writer: &mut Writer,
        log: &Log,
        consumer: &str,
        mark: u64,
        old: Option<&Position>,
        arrival_ns: u64,
    ) -> Result<SlotId, WalError> {
        let key = position_key(log.number, consumer);
        let hash = self.heap.hash(spaces::LOG_POSITION, &key);
        let (space, number) = (spaces::LOG_POSITION, log.number);
        let slot = Bound { space, hash, key: &key, number, mark, value: &[] }.append(writer, arrival_ns)?;
        let mut bounds = self.bounds.lock();
        bounds.supersede(writer, hash, old.and_then(Position::readable));
        // These are overwritten, and count for nothing then.
        old.iter().flat_map(|old| &old.unreadable).for_each(|(slot, _)| writer.supersede(*slot));
        if mark == ENDED {
            bounds.add_tombstone(hash, Tombstone { slot, number, space, life: log.life });
        }
        Ok(slot)
    }

    /// Returns how far a consumer has read: the offset of the entry that it reads next.
    ///
    /// # Errors
    /// [`WalError::NoConsumer`], [`WalError::NoLog`], [`WalError::BadName`], [`WalError::Damaged`],
    /// [`WalError::DamagedPosition`].
    pub fn position(&self, name: &[u8], consumer: &[u8]) -> Result<Gated<u64>, WalError> {
        let (log, consumer) = self.consumer(name, consumer)?;
        let state = log.state.lock();
        state.check()?;
        let position = state.positions.get(consumer).ok_or(WalError::NoConsumer)?;
        Ok(Gated::new(position.known(consumer)?, self.heap.pending(position.slot)))
    }

    /// Returns every consumer of a log with its position.
    ///
    /// # Errors
    /// [`WalError::NoLog`], [`WalError::BadName`], [`WalError::Damaged`], [`WalError::DamagedPosition`].
    pub fn positions(&self, name: &[u8]) -> Result<Gated<Vec<(String, u64)>>, WalError> {
        let log = self.find(name)?;
        let state = log.state.lock();
        state.check()?;
        let known = state.positions.iter().map(|(name, known)| Ok((name.to_string(), known.known(name)?)));
        let known = known.collect::<Result<_, WalError>>()?;
        let pending = state.positions.values().filter_map(|known| self.heap.pending(known.slot));
        Ok(Gated::new(known, pending.collect::<Tickets>()))
    }

    /// Deletes the position of a consumer; `None` if it has none.
    ///
    /// # Errors
    /// The errors of [`Self::commit_position`], except [`WalError::OutOfRange`].
    pub fn delete_position(
        &self,
        writer: &mut Writer,
        name: &[u8],
        consumer: &[u8],
        arrival_ns: u64,
    ) -> Result<Option<Gated<()>>, WalError> {
        let (log, consumer) = self.consumer(name, consumer)?;
        let mut state = log.state.lock();
        state.check()?;
        if !state.positions.contains_key(consumer) {
            return Ok(None);
        }
        state.turns.take(&self.heap, writer)?;
        let old = state.positions.get(consumer);
        self.write_position(writer, &log, consumer, ENDED, old, arrival_ns)?;
        state.positions.remove(consumer);
        state.turns.note(writer);
        Ok(Some(writer.gate(())))
    }
}
