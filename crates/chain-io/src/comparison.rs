//! What the node behind lacks of a page of keys.

use crate::connection::{Connection, Lost};
use crate::pages::{CopiedPart, CopiedRecord, Position, record_of};
use landfall_chain::{
    Bits, Code, Compare, Compared, Difference, Digest, Digester, KeyRange, Report, WireError, message,
};
use landfall_heap::{Heap, HeapError};
use std::io::Write;

/// A page, and the range of keys for which it stands.
pub(crate) struct Comparison {
    space: u8,
    after: Option<Vec<u8>>,
    until: Option<Vec<u8>>,
    digester: Digester,
    digests: Vec<Digest>,
}

impl Comparison {
    /// The page `from` a position up to the next one.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn of(
        heap: &Heap,
        seed: u64,
        from: &Position,
        next: Option<&Position>,
        records: &[CopiedRecord<'_>],
    ) -> Result<Self, HeapError> {
        let digester = Digester::for_page(seed, records.len());
        let digest = |record: &CopiedRecord<'_>| match &record.part {
            CopiedPart::Value(item) | CopiedPart::Damaged(item) => {
                let record = record_of(heap, record.space, record.aux, &record.key, item)?;
                Ok(digester.digest(&record))
            }
            CopiedPart::Tombstone { .. } | CopiedPart::Bound { .. } => {
                unreachable!("a page that is compared has values only")
            }
        };
        Ok(Self {
            space: from.space,
            after: from.after.clone(),
            until: next.filter(|next| next.space == from.space).and_then(|next| next.after.clone()),
            digester,
            digests: records.iter().map(digest).collect::<Result<_, HeapError>>()?,
        })
    }

    /// Asks the node behind, which deletes what the page does not have. A bit for each record of the page that it lacks.
    pub(crate) fn lacking(
        &self,
        connection: &mut Connection,
        goes_on: &dyn Fn() -> bool,
        note_room: &dyn Fn(Report),
    ) -> Result<Bits, Lost> {
        let mut ask = |after: Option<&[u8]>, with: Compared, count: usize| {
            let range = KeyRange { space: self.space, after, until: self.until.as_deref() };
            let head = Compare { range, digester: self.digester, with }.encode();
            let (number, version) = (connection.next_number(), connection.version());
            connection.write_all(&message(Code::Compare, version, number, &head, 0))?;
            let (difference, room) = connection.wait_for_difference(count, goes_on)?;
            note_room(room);
            Ok::<Difference, Lost>(difference)
        };
        let sums = Compared::Sums(self.digester.sums(self.digests.iter().copied()));
        let differ = ask(self.after.as_deref(), sums, self.digester.buckets())?;
        if differ.is_nothing {
            return Ok(Bits::all(self.digests.len()));
        }
        if differ.missing.is_none() {
            return Ok(Bits::none(self.digests.len()));
        }
        let asked: Vec<usize> =
            (0..self.digests.len()).filter(|at| differ.missing.is_set(self.digests[*at].bucket)).collect();
        let digests: Vec<u64> = asked.iter().map(|at| self.digests[*at].digest).collect();
        let missing = self.missing(&differ.missing, &digests, &mut ask)?;
        let mut lacking = Bits::none(self.digests.len());
        asked.iter().enumerate().filter(|(at, _)| missing.is_set(*at)).for_each(|(_, of)| lacking.set(*of));
        Ok(lacking)
    }

    /// Asks for the records of some buckets, as often as the node behind stops.
    fn missing(
        &self,
        buckets: &Bits,
        digests: &[u64],
        ask: &mut impl FnMut(Option<&[u8]>, Compared, usize) -> Result<Difference, Lost>,
    ) -> Result<Bits, Lost> {
        let mut missing = Bits::all(digests.len());
        let mut after = self.after.clone();
        loop {
            let with = Compared::Records { buckets: buckets.clone(), digests: digests.to_vec() };
            let answer = ask(after.as_deref(), with, digests.len())?;
            // Nothing is in this part of the range: what was found in another one is there.
            if !answer.is_nothing {
                missing.keep(&answer.missing);
            }
            match answer.stopped_at {
                None => return Ok(missing),
                Some(at) if after.as_ref().is_none_or(|after| *after < at) => after = Some(at),
                Some(_) => return Err(WireError::Unexpected(Code::Compared).into()),
            }
        }
    }
}
