//! The value of the header, and the fields of a log's bound. Byte tables: `docs/format/fs.md`, "Header" and "Log".

use crate::calls::Calls;
use crate::fields::Fields;
use crate::key::InodeNumber;
use landfall_heap::{Damage, Heap};

/// The key of the header's record.
pub const HEADER_KEY: &[u8; 4] = b"tree";
/// Bytes of the header's value, without a seed.
pub const HEADER_BYTES: usize = 32;
/// Bytes of the fields of a log.
pub const LOG_BYTES: usize = 24;

/// The mark of a log whose client has ended.
pub const LOG_ENDED: u64 = u64::MAX;

/// Version of the format.
const VERSION: u32 = 1;
/// Version with a seed.
const VERSION_WITH_SEED: u32 = 2;
/// Version with a seed and a floor.
const VERSION_WITH_FLOOR: u32 = 3;

/// What is known of a tree as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Drawn when the tree is made.
    pub identity: [u8; 16],
    /// Number of the next client. No number is given twice.
    pub next_client: u32,
    /// Seed of the positions of names, if it is not the region's: the tree was copied from another region.
    pub seed: Option<u64>,
    /// Records of the tree with a lower seq mean nothing: they are of another tree, which a copy has replaced. Only a tree
    /// with a seed has one.
    pub floor: u64,
    /// A repair has begun, and has not ended: operations of the log may be published that its bound does not know of.
    pub under_repair: bool,
}

impl Header {
    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let version = match (self.seed, self.floor) {
            (None, _) => VERSION,
            (Some(_), 0) => VERSION_WITH_SEED,
            (Some(_), _) => VERSION_WITH_FLOOR,
        };
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&version.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.identity);
        bytes[24..28].copy_from_slice(&self.next_client.to_le_bytes());
        bytes[28] = u8::from(self.under_repair);
        bytes.extend(self.seed.iter().flat_map(|seed| seed.to_le_bytes()));
        if version == VERSION_WITH_FLOOR {
            bytes.extend(self.floor.to_le_bytes());
        }
        bytes
    }

    /// The seed of the positions of names of a tree with this header.
    pub(crate) fn seed_in(&self, heap: &Heap) -> u64 {
        self.seed.unwrap_or(heap.geometry().hash_seed)
    }

    /// The floor as the bound of the mount's log has it, which keeps it a second time. 0 there says nothing. Seqs begin
    /// with 1, so a floor of 1 is none.
    pub(crate) fn floor_in_bound(&self) -> u64 {
        self.floor.max(1)
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`Damage::Newer`]: a version above those known. [`Damage::RecordFields`]: another length, no version, or bytes that
    /// must be 0.
    pub fn decode(value: &[u8]) -> Result<Self, Damage> {
        let mut fields = Fields(value);
        let version = fields.u32()?;
        if version > VERSION_WITH_FLOOR {
            return Err(Damage::Newer);
        }
        let zero = fields.u32()?;
        let identity = fields.bytes(16)?.try_into().map_err(|_| Damage::RecordFields)?;
        let (next_client, flags) = (fields.u32()?, fields.u32()?);
        let seed = if version == VERSION { None } else { Some(fields.u64()?) };
        let floor = if version == VERSION_WITH_FLOOR { fields.u64()? } else { 0 };
        let is_known = version >= VERSION && zero == 0 && flags <= 1;
        fields.end()?;
        let header = Self { identity, next_client, seed, floor, under_repair: flags == 1 };
        is_known.then_some(header).ok_or(Damage::RecordFields)
    }
}

/// What the bound of a client's log says besides its first index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFields {
    /// Epoch of the client.
    pub epoch: u64,
    /// Operations under leases below this number are not accepted.
    pub lease: u64,
    /// Every inode that is published has a lower number.
    pub next_number: InodeNumber,
}

impl LogFields {
    /// The fields' bytes.
    pub fn encode(&self) -> [u8; LOG_BYTES] {
        let mut bytes = [0; LOG_BYTES];
        bytes[..8].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lease.to_le_bytes());
        bytes[16..].copy_from_slice(&self.next_number.key());
        bytes
    }

    /// The value of a bound: the fields, and for the mount's log what is published of calls.
    pub fn bound(&self, calls: &Calls) -> Vec<u8> {
        [&self.encode()[..], &calls.encode()].concat()
    }

    /// Reads the value of a bound.
    ///
    /// # Errors
    /// [`Damage::RecordFields`]: whatever [`Self::bound`] does not write.
    pub fn decode(value: &[u8]) -> Result<(Self, Calls), Damage> {
        let mut fields = Fields(value);
        let log =
            Self { epoch: fields.u64()?, lease: fields.u64()?, next_number: InodeNumber(fields.u64()?) };
        Ok((log, Calls::decode(fields.0)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are those of `docs/format/fs.md`: later versions must read what earlier versions wrote.
    #[test]
    fn header_and_log_are_frozen() {
        let identity = *b"0123456789abcdef";
        let header = Header { identity, next_client: 0x0102, seed: None, floor: 0, under_repair: false };
        let bytes = [&[1, 0, 0, 0, 0, 0, 0, 0][..], b"0123456789abcdef", &[2, 1, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(header.encode()[..], bytes);
        assert_eq!(Header::decode(&bytes), Ok(header));
        let (copied, mut bytes) = (Header { seed: Some(0x0708), ..header }, bytes);
        bytes[0] = 2;
        bytes.extend([8, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(copied.encode(), bytes);
        assert_eq!(Header::decode(&bytes), Ok(copied));
        let replaced = Header { floor: 0x090a, ..copied };
        bytes[0] = 3;
        bytes.extend([10, 9, 0, 0, 0, 0, 0, 0]);
        assert_eq!(replaced.encode(), bytes);
        assert_eq!(Header::decode(&bytes), Ok(replaced));
        let begun = Header { under_repair: true, ..replaced };
        bytes[28] = 1;
        assert_eq!(begun.encode(), bytes);
        assert_eq!(Header::decode(&bytes), Ok(begun));
        let log = LogFields { epoch: 3, lease: 0x0405, next_number: InodeNumber(6) };
        let bytes = [[3, 0, 0, 0, 0, 0, 0, 0], [5, 4, 0, 0, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(log.encode()[..], bytes);
        assert_eq!(log.bound(&Calls::default()), bytes);
        assert_eq!(LogFields::decode(&bytes), Ok((log, Calls::default())));
        let lost = [&bytes[..], &[0, 0, 0, 0, 0, 0, 0, 128]].concat();
        assert_eq!(log.bound(&Calls::lost()), lost);
        assert_eq!(LogFields::decode(&lost), Ok((log, Calls::lost())));
    }

    #[test]
    fn other_lengths_and_bytes_that_must_be_zero_are_damage_and_later_versions_are_newer() {
        let good =
            Header { identity: [7; 16], next_client: 1, seed: None, floor: 0, under_repair: false }.encode();
        let changed = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Header::decode(&bytes)
        };
        for (at, value) in [(0, 0), (0, 2), (0, 3), (4, 1), (28, 2), (31, 1)] {
            assert_eq!(changed(at, value), Err(Damage::RecordFields), "byte {at}");
        }
        for (at, value) in [(0, 4), (1, 1), (3, 255)] {
            assert_eq!(changed(at, value), Err(Damage::Newer), "byte {at}");
        }
        assert_eq!(Header::decode(&good[1..]), Err(Damage::RecordFields));
        assert_eq!(Header::decode(&[&good[..], &[0]].concat()), Err(Damage::RecordFields));
        let log = LogFields { epoch: 1, lease: 2, next_number: InodeNumber(3) }.encode();
        assert_eq!(LogFields::decode(&log[..LOG_BYTES - 1]), Err(Damage::RecordFields));
        assert_eq!(LogFields::decode(&[&log[..], &[0]].concat()), Err(Damage::RecordFields));
    }
}
