//! Pages that the kernel keeps without knowing what they have.
//!
//! Where a write ends within a page at the end of a file, and the next one goes on there, the kernel drops what it had of
//! this page. It still has a place for it, and later reads each such page with a request of its own: reading ahead passes
//! over places that are taken. A file that was written record by record is made of such pages. So once some of them have
//! been read, the kernel is made to drop all that it keeps of the file, and reads ahead again.

use landfall_fs::InodeNumber;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Pages that a file must have got in this way.
const PAGES_MIN: u32 = 16;
/// Reads of single ones among them after which the kernel drops them, at first. It is twice as many each time, so that a
/// file that is appended to and read all the time is seldom dropped.
const READS_MIN: u32 = 8;
/// Locks of the table.
const SHARDS: usize = 16;
/// Files in a shard. What is forgotten about further ones costs reads, and nothing else.
const FILES_MAX: usize = 256;

/// What is known of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct File {
    /// Where the newest write ended.
    end: u64,
    /// Bytes from the first to the last of these pages.
    first: u64,
    last: u64,
    /// How many there are.
    pages: u32,
    /// Single ones that were read.
    reads: u32,
    /// How often the kernel has dropped them.
    drops: u32,
}

impl File {
    /// A write begins where the one before ended, within a page.
    fn go_on(&mut self, at: u64) {
        if self.pages == 0 {
            self.first = at;
        }
        self.last = at;
        self.pages = self.pages.saturating_add(1);
    }

    /// A page of its own was read. True if the kernel is to drop what it keeps.
    fn note_read(&mut self, page: u64) -> bool {
        let is_among =
            (self.first..=self.last).contains(&page) || page == self.first / PAGE_BYTES * PAGE_BYTES;
        if self.pages < PAGES_MIN || !is_among {
            return false;
        }
        self.reads += 1;
        if self.reads < READS_MIN << self.drops.min(16) {
            return false;
        }
        *self = Self { end: self.end, drops: self.drops + 1, ..Self::default() };
        true
    }
}

/// The files that are written in this way.
#[derive(Debug, Default)]
pub(crate) struct Ragged {
    shards: [Mutex<HashMap<InodeNumber, File>>; SHARDS],
}

impl Ragged {
    /// Bytes were written.
    pub(crate) fn note_write(&self, number: InodeNumber, bytes: Range<u64>) {
        let begins_within = !bytes.start.is_multiple_of(PAGE_BYTES);
        if !begins_within && bytes.end.is_multiple_of(PAGE_BYTES) {
            return;
        }
        let mut files = self.shard(number).lock();
        if files.len() >= FILES_MAX && !files.contains_key(&number) {
            files.retain(|_, file| file.pages >= PAGES_MIN);
            if files.len() >= FILES_MAX {
                files.clear();
            }
        }
        let file = files.entry(number).or_default();
        if begins_within && bytes.start == file.end {
            file.go_on(bytes.start);
        }
        file.end = bytes.end;
    }

    /// Bytes were read through the kernel's cache. True if it is to drop what it keeps of the file.
    pub(crate) fn note_read(&self, number: InodeNumber, bytes: Range<u64>) -> bool {
        if bytes.end - bytes.start > PAGE_BYTES {
            return false;
        }
        self.shard(number).lock().get_mut(&number).is_some_and(|file| file.note_read(bytes.start))
    }

    fn shard(&self, number: InodeNumber) -> &Mutex<HashMap<InodeNumber, File>> {
        &self.shards[usize::try_from(number.0 % SHARDS as u64).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: InodeNumber = InodeNumber(5);

    /// Appends records of 1,000 B from `from` on. Returns the end.
    fn append(ragged: &Ragged, from: u64, records: u64) -> u64 {
        (0..records).for_each(|index| ragged.note_write(A, from + index * 1000..from + index * 1000 + 1000));
        from + records * 1000
    }

    /// How many of the pages are read, each alone, until the kernel is to drop what it keeps.
    fn reads_until_drop(ragged: &Ragged, pages: Range<u64>) -> Option<usize> {
        pages.into_iter().position(|page| ragged.note_read(A, page * PAGE_BYTES..(page + 1) * PAGE_BYTES))
    }

    #[test]
    fn a_file_that_was_written_record_by_record_is_dropped_once_some_of_its_pages_were_read_alone() {
        let ragged = Ragged::default();
        let end = append(&ragged, 0, 100);
        assert!(!ragged.note_read(A, 0..32 * PAGE_BYTES), "reading ahead is well");
        assert_eq!(reads_until_drop(&ragged, 0..20), Some(7));
        assert_eq!(reads_until_drop(&ragged, 0..20), None, "the kernel reads ahead again");
        append(&ragged, end, 200);
        let pages = end / PAGE_BYTES + 1..end / PAGE_BYTES + 40;
        assert_eq!(reads_until_drop(&ragged, pages), Some(15), "twice as many as before");
    }

    #[test]
    fn files_that_are_written_by_pages_or_in_place_are_not_dropped() {
        let ragged = Ragged::default();
        (0..100).for_each(|index| ragged.note_write(A, index * PAGE_BYTES..(index + 1) * PAGE_BYTES));
        assert_eq!(reads_until_drop(&ragged, 0..100), None);
        (0..100).for_each(|index| {
            ragged.note_write(A, (index * 37 % 100) * 4000..(index * 37 % 100) * 4000 + 100)
        });
        assert_eq!(reads_until_drop(&ragged, 0..100), None);
        assert_eq!(reads_until_drop(&Ragged::default(), 0..100), None);
    }

    #[test]
    fn what_is_known_has_a_bound() {
        let ragged = Ragged::default();
        append(&ragged, 0, 100);
        for number in 0..100_000 {
            ragged.note_write(InodeNumber(number * SHARDS as u64 + A.0 + SHARDS as u64), 0..1000);
        }
        assert!(ragged.shards.iter().map(|shard| shard.lock().len()).sum::<usize>() <= FILES_MAX);
        assert_eq!(reads_until_drop(&ragged, 0..20), Some(7), "files with such pages are kept longest");
    }
}
