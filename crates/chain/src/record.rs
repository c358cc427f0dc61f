//! Records in the heads of chunks.

use crate::wire::{WireError, u32_at, u64_at};

/// Length of a record without its key, bytes.
const FIXED_BYTES: usize = 36;
/// The next record belongs to the same group.
const MORE: u8 = 1;

/// What a record does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A version of a key.
    Put = 1,
    /// The key is gone.
    Tombstone = 2,
    /// Every key is gone.
    Flush = 3,
    /// A bound of a log: its head, or a position.
    Bound = 4,
}

/// A record as it is sent. Its value lies in the payload, behind those of the records before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it does.
    pub kind: RecordKind,
    /// The next record belongs to the same group.
    pub more: bool,
    /// Namespace of the key.
    pub space: u8,
    /// The owner's own field.
    pub aux: u32,
    /// Arrival of the value at the first node, Unix nanoseconds.
    pub arrival_ns: u64,
    /// Expiry of a key, Unix milliseconds; 0 never.
    pub mark: u64,
    /// The key.
    pub key: &'a [u8],
    /// Length of the value, bytes.
    pub value_len: u32,
    /// CRC-32C of the value.
    pub value_crc: u32,
}

impl Record<'_> {
    /// Appends the record to a head.
    ///
    /// # Panics
    /// If the key has 4 GiB.
    pub fn encode(&self, head: &mut Vec<u8>) {
        let key_len = u32::try_from(self.key.len()).expect("a key has less than 4 GiB");
        head.extend_from_slice(&[self.kind as u8, u8::from(self.more) * MORE, self.space, 0]);
        head.extend_from_slice(&self.aux.to_le_bytes());
        head.extend_from_slice(&self.arrival_ns.to_le_bytes());
        head.extend_from_slice(&self.mark.to_le_bytes());
        head.extend_from_slice(&key_len.to_le_bytes());
        head.extend_from_slice(&self.value_len.to_le_bytes());
        head.extend_from_slice(&self.value_crc.to_le_bytes());
        head.extend_from_slice(self.key);
    }
}

/// The records of a head, in order. It ends with the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// The records of a head.
    pub fn new(head: &'a [u8]) -> Self {
        Self { rest: head }
    }

    fn take(&mut self) -> Result<Record<'a>, WireError> {
        let fixed = self.rest.get(..FIXED_BYTES).ok_or(WireError::Length)?;
        let kind = match fixed[0] {
            1 => RecordKind::Put,
            2 => RecordKind::Tombstone,
            3 => RecordKind::Flush,
            4 => RecordKind::Bound,
            value => return Err(WireError::Unknown { what: "a record of kind", value }),
        };
        if fixed[1] & !MORE != 0 {
            return Err(WireError::Unknown { what: "a record with flags", value: fixed[1] });
        }
        let end = FIXED_BYTES + u32_at(fixed, 24) as usize;
        let key = self.rest.get(FIXED_BYTES..end).ok_or(WireError::Length)?;
        self.rest = &self.rest[end..];
        Ok(Record {
            kind,
            more: fixed[1] & MORE != 0,
            space: fixed[2],
            aux: u32_at(fixed, 4),
            arrival_ns: u64_at(fixed, 8),
            mark: u64_at(fixed, 16),
            key,
            value_len: u32_at(fixed, 28),
            value_crc: u32_at(fixed, 32),
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.rest = &[];
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Fields = (u8, bool, u8, u32, (u64, u64), Vec<u8>, (u32, u32));

    fn record(
        (kind, more, space, aux, (arrival_ns, mark), key, (value_len, value_crc)): &Fields,
    ) -> Record<'_> {
        let kinds = [RecordKind::Put, RecordKind::Tombstone, RecordKind::Flush, RecordKind::Bound];
        let kind = kinds[usize::from(*kind)];
        let (more, space, aux) = (*more, *space, *aux);
        let (arrival_ns, mark, value_len, value_crc) = (*arrival_ns, *mark, *value_len, *value_crc);
        Record { kind, more, space, aux, arrival_ns, mark, key, value_len, value_crc }
    }

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(fields: Vec<Fields>) {
            let fields: Vec<Fields> = fields.into_iter().map(|f| (f.0 % 4, f.1, f.2, f.3, f.4, f.5, f.6)).collect();
            let mut head = Vec::new();
            fields.iter().for_each(|fields| record(fields).encode(&mut head));
            let read: Result<Vec<Record<'_>>, WireError> = Records::new(&head).collect();
            prop_assert_eq!(read, Ok(fields.iter().map(record).collect()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(head: Vec<u8>) {
            let read = Records::new(&head).count();
            prop_assert!(read <= head.len());
        }
    }

    #[test]
    fn a_head_that_ends_early_is_refused() {
        let mut head = Vec::new();
        let key = b"key";
        let (kind, more, space, aux) = (RecordKind::Put, false, 0, 0);
        Record { kind, more, space, aux, arrival_ns: 1, mark: 2, key, value_len: 3, value_crc: 4 }
            .encode(&mut head);
        for end in 1..head.len() {
            assert_eq!(Records::new(&head[..end]).next(), Some(Err(WireError::Length)), "{end}");
        }
    }
}
