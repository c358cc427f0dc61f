//! Keys of the records of files. Byte tables: `docs/format/fs.md`, "Records".

use crate::fields::Fields;
use landfall_heap::Damage;

/// The number of an inode. A number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeNumber(pub u64);

impl InodeNumber {
    /// The root directory.
    pub const ROOT: Self = Self(1);

    /// The key of an inode's record, and of the record of its extended attributes.
    pub fn key(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The number in such a key.
    ///
    /// # Errors
    /// [`Damage::RecordFields`].
    pub fn of_key(key: &[u8]) -> Result<Self, Damage> {
        key.try_into().map(|bytes| Self(u64::from_le_bytes(bytes))).map_err(|_| Damage::RecordFields)
    }
}

/// The key of a record of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamesKey {
    /// The directory.
    pub directory: InodeNumber,
    /// The first position that the record covers.
    pub first: u64,
}

impl NamesKey {
    /// The key's bytes.
    pub fn encode(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.directory.key());
        key[8..].copy_from_slice(&self.first.to_le_bytes());
        key
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`Damage::RecordFields`].
    pub fn decode(key: &[u8]) -> Result<Self, Damage> {
        let mut fields = Fields(key);
        let decoded = Self { directory: InodeNumber(fields.u64()?), first: fields.u64()? };
        fields.end().map(|()| decoded)
    }
}

/// The key of a record of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataKey {
    /// The file.
    pub file: InodeNumber,
    /// The first block.
    pub first: u32,
}

impl DataKey {
    /// The key's bytes.
    pub fn encode(self) -> [u8; 12] {
        let mut key = [0; 12];
        key[..8].copy_from_slice(&self.file.key());
        key[8..].copy_from_slice(&self.first.to_le_bytes());
        key
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`Damage::RecordFields`].
    pub fn decode(key: &[u8]) -> Result<Self, Damage> {
        let mut fields = Fields(key);
        let decoded = Self { file: InodeNumber(fields.u64()?), first: fields.u32()? };
        fields.end().map(|()| decoded)
    }
}

/// Where a write goes, and under which lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePlace {
    /// The file.
    pub file: InodeNumber,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Number of the lease.
    pub lease: u64,
}

/// The key of an operation's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationKey {
    /// The client in whose log the operation is.
    pub client: u32,
    /// Index in that log, without gaps from 0 on.
    pub index: u64,
    /// The place of a write; `None` for all other operations, which are in the record's value.
    pub write: Option<WritePlace>,
}

/// Bytes of the longest key of an operation.
const OPERATION_KEY_BYTES_MAX: usize = 36;

impl OperationKey {
    /// The key's bytes: 36 of a write, 12 of another operation.
    pub fn encode(self) -> Vec<u8> {
        let mut key = Vec::with_capacity(OPERATION_KEY_BYTES_MAX);
        key.extend_from_slice(&self.client.to_le_bytes());
        key.extend_from_slice(&self.index.to_le_bytes());
        if let Some(write) = self.write {
            key.extend_from_slice(&write.file.key());
            key.extend_from_slice(&write.offset.to_le_bytes());
            key.extend_from_slice(&write.lease.to_le_bytes());
        }
        key
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`Damage::RecordFields`].
    pub fn decode(key: &[u8]) -> Result<Self, Damage> {
        let mut fields = Fields(key);
        let (client, index) = (fields.u32()?, fields.u64()?);
        if fields.is_empty() {
            return Ok(Self { client, index, write: None });
        }
        let write =
            WritePlace { file: InodeNumber(fields.u64()?), offset: fields.u64()?, lease: fields.u64()? };
        fields.end().map(|()| Self { client, index, write: Some(write) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes are those of `docs/format/fs.md`: later versions must read what earlier versions wrote.
    #[test]
    fn keys_are_frozen() {
        assert_eq!(InodeNumber(0x0102).key(), [2, 1, 0, 0, 0, 0, 0, 0]);
        let names = NamesKey { directory: InodeNumber(1), first: 0x10 };
        assert_eq!(names.encode(), [1, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0]);
        let data = DataKey { file: InodeNumber(3), first: 0x0405_0607 };
        assert_eq!(data.encode(), [3, 0, 0, 0, 0, 0, 0, 0, 7, 6, 5, 4]);
        let place = WritePlace { file: InodeNumber(2), offset: 4096, lease: 9 };
        let write = OperationKey { client: 7, index: 8, write: Some(place) };
        let bytes = [
            [7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
            [2, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0],
            [0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(write.encode(), bytes.concat());
        assert_eq!(OperationKey { write: None, ..write }.encode(), bytes[0]);
    }

    proptest! {
        #[test]
        fn keys_decode_to_what_was_encoded_and_other_lengths_are_damage(
            client: u32, index: u64, file: u64, offset: u64, lease: u64, block: u32, is_write: bool,
        ) {
            let write = is_write.then_some(WritePlace { file: InodeNumber(file), offset, lease });
            let key = OperationKey { client, index, write };
            let bytes = key.encode();
            prop_assert_eq!(OperationKey::decode(&bytes), Ok(key));
            prop_assert_eq!(OperationKey::decode(&bytes[..bytes.len() - 1]), Err(Damage::RecordFields));
            prop_assert_eq!(OperationKey::decode(&[&bytes[..], &[0]].concat()), Err(Damage::RecordFields));
            let key = NamesKey { directory: InodeNumber(file), first: offset };
            prop_assert_eq!(NamesKey::decode(&key.encode()), Ok(key));
            let key = DataKey { file: InodeNumber(file), first: block };
            prop_assert_eq!(DataKey::decode(&key.encode()), Ok(key));
            prop_assert_eq!(DataKey::decode(&key.encode()[..11]), Err(Damage::RecordFields));
            prop_assert_eq!(InodeNumber::of_key(&InodeNumber(file).key()), Ok(InodeNumber(file)));
            prop_assert_eq!(InodeNumber::of_key(&[0; 7]), Err(Damage::RecordFields));
        }
    }
}
