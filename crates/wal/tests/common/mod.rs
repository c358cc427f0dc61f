//! Helpers for the tests: regions in memory, crashes, reads of whole logs.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

use landfall_heap::{NewRegion, Source, Writer, create};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Media, RUN_SIZE};
use landfall_wal::{LogRecovery, Logs, ReadLimit, WalError};
use std::sync::Arc;

pub const RUNS: u64 = 32;
pub const ALL: ReadLimit = ReadLimit { entries: usize::MAX, bytes: u64::MAX };

pub fn region() -> Arc<SimMedia> {
    let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    media
}

pub fn open(media: &Arc<SimMedia>) -> Logs {
    let media: Arc<dyn Media> = Arc::clone(media) as Arc<dyn Media>;
    let (logs, found) = LogRecovery::run(media).expect("opens");
    assert_eq!((found.damaged, found.notes.len()), (0, 0), "{found:?}");
    logs
}

/// Simulates a crash that loses all stores that are not durable, and opens the region again.
pub fn crash(media: &Arc<SimMedia>) -> (Arc<SimMedia>, Logs) {
    let media = SimMedia::from_image(media.crash_state().durable_image(), SimOptions::default());
    let logs = open(&media);
    (media, logs)
}

pub fn writer(logs: &Logs, id: u8) -> Writer {
    Writer::new(Arc::clone(logs.heap()), id)
}

pub fn append(logs: &Logs, writer: &mut Writer, log: &str, value: &[u8]) -> u64 {
    logs.append(writer, log.as_bytes(), &[Source::Bytes(value)], 1).expect("there is room").ungated().first
}

/// The first offset of a log, and all its durable entries.
pub fn all(logs: &Logs, log: &str) -> Result<(u64, Vec<Vec<u8>>), WalError> {
    let first = logs.stats_of(log.as_bytes())?.ungated().first;
    let mut entries = Vec::new();
    let mut from = first;
    loop {
        let page = logs.read(log.as_bytes(), from, ALL)?.ungated();
        for (offset, item) in page.entries {
            assert_eq!(offset, first + entries.len() as u64, "offsets are dense");
            entries.push(item?.to_vec()?);
        }
        from = page.next;
        if from == page.end {
            return Ok((first, entries));
        }
    }
}
