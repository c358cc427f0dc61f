//! Keys of records as they are sent along a chain: `docs/format/chain.md`. Numbers of logs mean something in one region
//! only: others know a log by its name, and by its life.

use crate::format::{CONSUMER_BYTES_MAX, Settings, check_log_name, check_name};

/// Bytes of a number.
const NUMBER_BYTES: usize = 8;

pub(crate) fn entry_key(life: u64, name: &str) -> Vec<u8> {
    [&life.to_le_bytes(), name.as_bytes()].concat()
}

pub(crate) fn head_key(life: u64, settings: Settings, name: &str) -> Vec<u8> {
    let Settings { retain_bytes, retain_entries, retain_ms } = settings;
    let numbers = [life, retain_bytes, retain_entries, retain_ms].map(u64::to_le_bytes);
    [numbers.as_flattened(), name.as_bytes()].concat()
}

pub(crate) fn position_key(life: u64, name: &str, consumer: &str) -> Vec<u8> {
    let len = u8::try_from(name.len()).expect("a name is short");
    [&life.to_le_bytes(), &[len][..], name.as_bytes(), consumer.as_bytes()].concat()
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
    Some((u64::from_le_bytes(*number), rest))
}

/// Life and name of an entry's log.
pub(crate) fn parse_entry(key: &[u8]) -> Option<(u64, &str)> {
    let (life, name) = number(key)?;
    Some((life, check_log_name(name).ok()?))
}

/// Life, settings and name of a head.
pub(crate) fn parse_head(key: &[u8]) -> Option<(u64, Settings, &str)> {
    let (life, rest) = number(key)?;
    let (retain_bytes, rest) = number(rest)?;
    let (retain_entries, rest) = number(rest)?;
    let (retain_ms, name) = number(rest)?;
    Some((life, Settings { retain_bytes, retain_entries, retain_ms }, check_log_name(name).ok()?))
}

/// Life and name of a position's log, and its consumer.
pub(crate) fn parse_position(key: &[u8]) -> Option<(u64, &str, &str)> {
    let (life, rest) = number(key)?;
    let (len, rest) = rest.split_first()?;
    let (name, consumer) = rest.split_at_checked(usize::from(*len))?;
    let consumer = check_name("consumer name", consumer, CONSUMER_BYTES_MAX).ok()?;
    Some((life, check_log_name(name).ok()?, consumer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_read_as_they_were_written(
            life: u64, retain: (u64, u64, u64), name in "[a-z]{1,48}", consumer in "[a-z]{1,44}"
        ) {
            let (retain_bytes, retain_entries, retain_ms) = retain;
            let settings = Settings { retain_bytes, retain_entries, retain_ms };
            let key = entry_key(life, &name);
            prop_assert_eq!(parse_entry(&key), Some((life, &*name)));
            let key = head_key(life, settings, &name);
            prop_assert_eq!(parse_head(&key), Some((life, settings, &*name)));
            let key = position_key(life, &name, &consumer);
            prop_assert_eq!(parse_position(&key), Some((life, &*name, &*consumer)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(key: Vec<u8>) {
            let read = parse_entry(&key).is_some() || parse_head(&key).is_some() || parse_position(&key).is_some();
            prop_assert!(!read || key.len() > NUMBER_BYTES);
        }
    }
}
