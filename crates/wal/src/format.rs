//! Keys and values of log records, to and from bytes. Byte tables: `docs/format/wal.md`.

use crate::error::WalError;
use landfall_heap::Damage;

/// Longest name of a log, bytes. The name must fit into the log's record.
pub const NAME_BYTES_MAX: usize = 48;
/// Longest name of a consumer, bytes. The name must fit into the position's record, behind the number of the log.
pub const CONSUMER_BYTES_MAX: usize = 44;

/// Mark of a bound that deletes the log or the position that it names.
pub(crate) const ENDED: u64 = u64::MAX;

/// Highest offset of an entry. Values above it mark a deleted log.
pub(crate) const OFFSET_MAX: u64 = u64::MAX - 2;

/// Bytes of an entry's key.
const ENTRY_KEY_BYTES: usize = 12;
/// Bytes of a log's number.
const NUMBER_BYTES: usize = 4;

/// The key of an entry: number of its log, then its offset.
pub(crate) fn entry_key(number: u32, offset: u64) -> [u8; ENTRY_KEY_BYTES] {
    let mut key = [0; ENTRY_KEY_BYTES];
    key[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    key[NUMBER_BYTES..].copy_from_slice(&offset.to_le_bytes());
    key
}

/// Number and offset of an entry's key.
pub(crate) fn parse_entry_key(key: &[u8]) -> Option<(u32, u64)> {
    let key: &[u8; ENTRY_KEY_BYTES] = key.try_into().ok()?;
    let (number, offset) = key.split_first_chunk::<NUMBER_BYTES>()?;
    Some((u32::from_le_bytes(*number), u64::from_le_bytes(offset.try_into().ok()?)))
}

/// The key of a position: number of its log, then the consumer's name.
pub(crate) fn position_key(number: u32, consumer: &str) -> Vec<u8> {
    [&number.to_le_bytes(), consumer.as_bytes()].concat()
}

/// Number and consumer of a position's key.
pub(crate) fn parse_position_key(key: &[u8]) -> Option<(u32, &str)> {
    let (number, consumer) = key.split_first_chunk::<NUMBER_BYTES>()?;
    Some((u32::from_le_bytes(*number), std::str::from_utf8(consumer).ok()?))
}

/// Checks a name and returns it as text.
pub(crate) fn check_name<'a>(what: &'static str, name: &'a [u8], max: usize) -> Result<&'a str, WalError> {
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-".contains(byte);
    // HTTP clients resolve `.` and `..` in a path, so that such a name would not reach the server.
    let is_path = name.iter().all(|byte| *byte == b'.');
    let text = std::str::from_utf8(name).ok();
    text.filter(|_| (1..=max).contains(&name.len()) && name.iter().all(is_good) && !is_path)
        .ok_or(WalError::BadName { what, max })
}

/// Checks the name of a log.
pub(crate) fn check_log_name(name: &[u8]) -> Result<&str, WalError> {
    check_name("log name", name, NAME_BYTES_MAX)
}

/// How long a log keeps its entries. With 0 in every field, it keeps them until they are trimmed.
///
/// A log keeps at least the entries within these limits. Entries beyond a limit are deleted soon after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of entries to keep; 0 for no limit.
    pub retain_bytes: u64,
    /// Number of entries to keep; 0 for no limit.
    pub retain_entries: u64,
    /// Age up to which entries are kept, milliseconds; 0 for no limit.
    pub retain_ms: u64,
}

/// The cut of a log: an entry at or above `offset` with a sequence number below `seq` was never acknowledged. See
/// `docs/format/wal.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) offset: u64,
    pub(crate) seq: u64,
}

/// The value of a log's head: all fields but the first offset, which is the mark of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) settings: Settings,
    pub(crate) cut: Cut,
    /// Which of the logs of this name it is, on a chain.
    pub(crate) life: u64,
}

/// Tags of a head's fields, in the order of [`Head::fields`].
const TAGS: [u8; 6] = [1, 2, 3, 4, 5, 6];
/// Bytes of a field: one for its tag, eight for its value.
const FIELD_BYTES: usize = 9;

impl Head {
    fn fields(&self) -> [u64; TAGS.len()] {
        let Settings { retain_bytes, retain_entries, retain_ms } = self.settings;
        [retain_bytes, retain_entries, retain_ms, self.cut.offset, self.cut.seq, self.life]
    }

    /// Encodes the head. Fields with the value 0 are left out.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (tag, value) in TAGS.into_iter().zip(self.fields()).filter(|(_, value)| *value != 0) {
            bytes.push(tag);
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Decodes a head. The bytes are not trusted.
    ///
    /// # Errors
    /// [`Damage::Newer`] for a tag above those known; [`Damage::RecordFields`] for tags out of order and remaining bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut fields = [0; TAGS.len()];
        let (chunks, remainder) = bytes.as_chunks::<FIELD_BYTES>();
        let mut last = 0;
        for [tag, value @ ..] in chunks {
            if *tag <= last {
                return Err(Damage::RecordFields);
            }
            let place = TAGS.iter().position(|known| known == tag).ok_or(Damage::Newer)?;
            fields[place] = u64::from_le_bytes(*value);
            last = *tag;
        }
        if !remainder.is_empty() {
            return Err(Damage::RecordFields);
        }
        let [retain_bytes, retain_entries, retain_ms, offset, seq, life] = fields;
        let settings = Settings { retain_bytes, retain_entries, retain_ms };
        Ok(Self { settings, cut: Cut { offset, seq }, life })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes are those of `docs/format/wal.md`: later versions must read what earlier versions wrote.
    #[test]
    fn keys_and_heads_are_frozen() {
        assert_eq!(hex(&entry_key(7, 0x0102_0304)), "070000000403020100000000");
        assert_eq!(hex(&position_key(7, "mirror")), "070000006d6972726f72");
        let settings = Settings { retain_bytes: 5, retain_entries: 0, retain_ms: 6 };
        let head = Head { settings, cut: Cut { offset: 9, seq: 0x0a0b }, life: 0 };
        let frozen = "010500000000000000030600000000000000040900000000000000050b0a000000000000";
        assert_eq!(hex(&head.encode()), frozen);
        let on_a_chain = format!("{frozen}060700000000000000");
        assert_eq!(hex(&Head { life: 7, ..head }.encode()), on_a_chain);
    }

    #[test]
    fn encoded_keys_and_heads_decode_and_malformed_ones_are_damage() {
        assert_eq!(parse_entry_key(&entry_key(3, u64::MAX - 1)), Some((3, u64::MAX - 1)));
        assert_eq!(parse_entry_key(b"short"), None);
        assert_eq!(parse_position_key(&position_key(9, "a")), Some((9, "a")));
        let settings = Settings { retain_entries: 4, ..Settings::default() };
        let head = Head { settings, cut: Cut::default(), life: 5 };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Ok(head));
        assert_eq!(Head::decode(&[]), Ok(Head::default()));
        for bad in [&bytes[..8], &[&bytes[..], &bytes[..]].concat(), &[0; 9]] {
            assert_eq!(Head::decode(bad), Err(Damage::RecordFields), "{bad:?}");
        }
        for newer in [&[7_u8; 9][..], &[&bytes[..], &[9; 9]].concat(), &[&bytes[..], &[9; 12]].concat()] {
            assert_eq!(Head::decode(newer), Err(Damage::Newer), "{newer:?}");
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "orders.eu-west_1:v2", &"x".repeat(NAME_BYTES_MAX), "..a"] {
            assert_eq!(check_log_name(good.as_bytes()).expect("good"), good);
        }
        for bad in ["", "a/b", "a b", "\u{e4}", ".", "..", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(matches!(check_log_name(bad.as_bytes()), Err(WalError::BadName { .. })), "{bad}");
        }
    }
}
