//! What the node behind lacks of a page of keys, of entries of a log, or of records of files.

use crate::connection::{Connection, Lost};
use crate::pages::{CopiedPart, CopiedRecord, Position, digest_of_files, entry_place, record_of};
use landfall_chain::{
    Bits, Code, Compare, Compared, Difference, Digest, Digester, KeyRange, Report, WireError, message,
};
use landfall_heap::{Heap, HeapError, spaces};
use std::io::Write;

/// A page, and the range of keys for which it stands.
pub(crate) struct Comparison {
    space: u8,
    after: Option<Vec<u8>>,
    until: Option<Vec<u8>>,
    digester: Digester,
    digests: Vec<Digest>,
    /// Number of records of the page.
    count: usize,
    /// Which of them are compared; all others are lacking.
    compared: Vec<usize>,
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
            CopiedPart::Value(item) if record.space == spaces::LOG => {
                let place = entry_place(item.expiry_ms, &record.key);
                Ok(Some(digester.digest(&record_of(heap, record.space, record.aux, &place, item)?)))
            }
            CopiedPart::Value(item) if is_of_files(record.space) => {
                digest_of_files(heap, &digester, (record.space, record.aux), &record.key, item).map(Some)
            }
            CopiedPart::Value(item) | CopiedPart::Damaged(item) => {
                let record = record_of(heap, record.space, record.aux, &record.key, item)?;
                Ok(Some(digester.digest(&record)))
            }
            CopiedPart::Tombstone { .. } | CopiedPart::Bound { .. } => Ok(None),
        };
        let found: Vec<Option<Digest>> = records.iter().map(digest).collect::<Result<_, HeapError>>()?;
        let compared = (0..found.len()).filter(|at| found[*at].is_some()).collect();
        let (after, until) = match from.space {
            spaces::LOG => entries_of(records),
            space => {
                let next = next.filter(|next| next.space == space);
                (from.after.clone(), next.and_then(|next| next.after.clone()))
            }
        };
        let digests = found.into_iter().flatten().collect();
        Ok(Self { space: from.space, after, until, digester, digests, count: records.len(), compared })
    }

    /// Asks the node behind. A bit for each record of the page that it lacks.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn lacking(
        &self,
        connection: &mut Connection,
        goes_on: &dyn Fn() -> bool,
        note_room: &dyn Fn(Report),
    ) -> Result<Bits, Lost> {
        let mut lacking = Bits::all(self.count);
        // A page of a log may have no entries. One of keys without any stands for a range all the same.
        if self.space == spaces::LOG && self.digests.is_empty() {
            return Ok(lacking);
        }
        let of_compared = self.lacking_of_compared(connection, goes_on, note_room)?;
        let there = self.compared.iter().enumerate().filter(|(at, _)| !of_compared.is_set(*at));
        there.for_each(|(_, record)| lacking.clear(*record));
        Ok(lacking)
    }

    /// The node behind deletes what the page does not have. A bit for each compared record that it lacks.
    fn lacking_of_compared(
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
        let of = |field: fn(&Digest) -> u64| asked.iter().map(|at| field(&self.digests[*at])).collect();
        let digests: Vec<u64> = of(|digest| digest.digest);
        let keys = is_of_files(self.space).then(|| of(|digest| digest.key));
        let with = Compared::Records { buckets: differ.missing, digests, keys };
        let missing = self.missing(&with, asked.len(), &mut ask)?;
        let mut lacking = Bits::none(self.digests.len());
        asked.iter().enumerate().filter(|(at, _)| missing.is_set(*at)).for_each(|(_, of)| lacking.set(*of));
        Ok(lacking)
    }

    /// Asks for so many records of some buckets, as often as the node behind stops.
    fn missing(
        &self,
        with: &Compared,
        count: usize,
        ask: &mut impl FnMut(Option<&[u8]>, Compared, usize) -> Result<Difference, Lost>,
    ) -> Result<Bits, Lost> {
        let mut missing = Bits::all(count);
        let mut after = self.after.clone();
        loop {
            let answer = ask(after.as_deref(), with.clone(), count)?;
            // Nothing is in this part of the range: what was found in another one is there.
            if !answer.is_nothing {
                missing.keep(&answer.missing);
            }
            match answer.stopped_at {
                None => return Ok(missing),
                Some(at) if after.as_ref().is_none_or(|after| self.is_behind(&at, after)) => after = Some(at),
                Some(_) => return Err(WireError::Unexpected(Code::Compared).into()),
            }
        }
    }

    /// True if a key comes behind another one in the order of the space.
    fn is_behind(&self, at: &[u8], after: &[u8]) -> bool {
        match self.space {
            // The entries of a page are compared at once.
            spaces::LOG => false,
            space if is_of_files(space) => numbers(at) > numbers(after),
            _ => at > after,
        }
    }
}

/// The first and the last entry of a page of a log.
fn entries_of(records: &[CopiedRecord<'_>]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let entry = |record: &CopiedRecord<'_>| match &record.part {
        CopiedPart::Value(item) => Some(entry_place(item.expiry_ms, &record.key)),
        _ => None,
    };
    (records.iter().find_map(entry), records.iter().rev().find_map(entry))
}

fn is_of_files(space: u8) -> bool {
    spaces::FILES.contains(&space)
}

/// The numbers of which the key of a record of files consists: one of 8 bytes, and one of the rest.
fn numbers(key: &[u8]) -> [u64; 2] {
    let number = |bytes: &[u8]| bytes.iter().take(8).rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let (first, rest) = key.split_at(key.len().min(8));
    [number(first), number(rest)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_files_are_in_the_order_of_their_numbers() {
        let key = |number: u64, place: u32| [&number.to_le_bytes()[..], &place.to_le_bytes()].concat();
        assert_eq!(numbers(&key(0x0102, 0x0304)), [0x0102, 0x0304]);
        assert!(numbers(&key(256, 0)) > numbers(&key(255, 9)) && key(256, 0) < key(255, 9));
        assert!(numbers(&key(1, 256)) > numbers(&key(1, 255)));
        assert_eq!(numbers(&[7]), [7, 0]);
    }
}
