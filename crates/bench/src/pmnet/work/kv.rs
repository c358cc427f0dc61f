//! The ideal handler's requests, and a key-value load like YCSB's: keys follow Zipf's law.

use super::twitter::strange;
use super::{Ask, Settings, Workload, resp};
use crate::common::clients::zipf::Zipf;
use crate::common::clients::{Random, encode, key_of};
use crate::common::error::BenchError;
use landfall_bench_handlers::{Op, Request};

/// How requests are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// The codec of `landfall-bench-handlers`.
    Plain,
    /// The Redis protocol.
    Resp,
}

impl Codec {
    fn put(self, into: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
        into.clear();
        match (self, value) {
            (Self::Plain, _) => {
                let op = if value.is_some() { Op::Set } else { Op::Get };
                into.extend(Request { op, key, value: value.unwrap_or_default() }.encode());
            }
            (Self::Resp, Some(value)) => encode(into, &[b"SET", key, value]),
            (Self::Resp, None) => encode(into, &[b"GET", key]),
        }
    }

    /// Refuses a reply that says that its request was not executed.
    pub(super) fn check(self, reply: &[u8]) -> Result<(), BenchError> {
        let refused = match self {
            Self::Plain => reply.first() == Some(&b'E'),
            Self::Resp => resp::is_error(reply),
        };
        if refused { Err(strange(reply, "a result")) } else { Ok(()) }
    }

    /// Refuses a reply that says that there is no such key.
    fn check_found(self, reply: &[u8]) -> Result<(), BenchError> {
        let is_missing = match self {
            Self::Plain => reply.first() == Some(&b'N'),
            Self::Resp => resp::is_null(reply),
        };
        if is_missing { Err(strange(reply, "a value, as every key was filled")) } else { Ok(()) }
    }
}

/// Payloads of one length.
#[derive(Debug)]
pub(crate) struct Ideal {
    payload: usize,
    updates: u32,
    random: Random,
}

impl Ideal {
    pub(crate) fn new(payload: usize, updates: u32, seed: u64) -> Self {
        Self { payload, updates, random: Random::new(seed) }
    }
}

impl Workload for Ideal {
    fn next(&mut self, _reply: &[u8], ask: &mut Ask) -> Result<(), BenchError> {
        ask.bytes.resize(self.payload, b'x');
        (ask.update, ask.ends) = (self.random.below(100) < u64::from(self.updates), true);
        Ok(())
    }
}

/// SET and GET.
#[derive(Debug)]
pub(crate) struct KeyValue {
    keys: Zipf,
    codec: Codec,
    updates: u32,
    value: Vec<u8>,
    random: Random,
}

impl KeyValue {
    pub(crate) fn new(settings: Settings, keys: Zipf, codec: Codec, seed: u64) -> Self {
        let value = vec![b'v'; settings.payload];
        Self { keys, codec, updates: settings.updates, value, random: Random::new(seed) }
    }
}

impl Workload for KeyValue {
    fn next(&mut self, reply: &[u8], ask: &mut Ask) -> Result<(), BenchError> {
        self.codec.check(reply)?;
        self.codec.check_found(reply)?;
        let key = key_of(self.keys.draw(&mut self.random));
        ask.update = self.random.below(100) < u64::from(self.updates);
        ask.ends = true;
        // Every value is different, so that no server can skip a write of equal bytes.
        if let Some(stamp) = self.value.first_chunk_mut() {
            *stamp = self.random.next().to_le_bytes();
        }
        self.codec.put(&mut ask.bytes, &key, ask.update.then_some(&self.value));
        Ok(())
    }
}

/// Sets every key once.
pub(super) fn fill(settings: Settings, codec: Codec) -> Vec<Vec<u8>> {
    let value = vec![b'v'; settings.payload];
    let request = |number| {
        let mut bytes = Vec::new();
        codec.put(&mut bytes, &key_of(number), Some(&value));
        bytes
    };
    (0..settings.keys).map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmnet::app::App;
    use landfall_bench_handlers::Structure;

    fn settings(updates: u32) -> Settings {
        let app = App::Map(Structure::BTree);
        Settings { app, payload: 100, updates, keys: 10, seed: 1 }
    }

    #[test]
    fn the_share_of_updates_is_what_was_asked_for() {
        for (updates, expected) in [(100, 1000..=1000), (50, 430..=570), (0, 0..=0)] {
            let mut work = KeyValue::new(settings(updates), Zipf::new(10), Codec::Plain, 3);
            let mut ask = Ask::default();
            let mut count = 0;
            for _ in 0..1000 {
                work.next(b"O", &mut ask).unwrap();
                let request = Request::parse(&ask.bytes).unwrap();
                assert_eq!(ask.update, request.op == Op::Set);
                assert_eq!(request.value.len(), if ask.update { 100 } else { 0 });
                count += u32::from(ask.update);
            }
            assert!(expected.contains(&count), "{updates}: {count}");
        }
    }

    #[test]
    fn a_refusal_is_an_error_and_every_key_is_filled() {
        let mut work = KeyValue::new(settings(100), Zipf::new(10), Codec::Resp, 3);
        assert!(work.next(b"-OOM\r\n", &mut Ask::default()).is_err());
        let keys: std::collections::BTreeSet<Vec<u8>> = fill(settings(0), Codec::Plain)
            .iter()
            .map(|bytes| Request::parse(bytes).unwrap().key.to_vec())
            .collect();
        assert_eq!(keys.len(), 10);
    }

    #[test]
    fn a_read_that_finds_nothing_is_an_error() {
        for (codec, found, missing) in [
            (Codec::Plain, &b"Vvalue"[..], &b"N"[..]),
            (Codec::Resp, b"$1\r\nv\r\n", b"$-1\r\n"),
            (Codec::Resp, b"$0\r\n\r\n", b"_\r\n"),
        ] {
            let mut work = KeyValue::new(settings(0), Zipf::new(10), codec, 3);
            let mut ask = Ask::default();
            work.next(b"", &mut ask).unwrap();
            work.next(found, &mut ask).unwrap();
            assert!(work.next(missing, &mut ask).is_err(), "{codec:?} {missing:?}");
        }
    }
}
