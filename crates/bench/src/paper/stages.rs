//! The stages of a durable write, one by one, in this process: what the server does between a packet's landing and
//! its reply, without any network.
//!
//! No clock is read within a stage: each is timed over a batch of requests, and what cannot be timed alone is the
//! difference of two that differ in nothing else.

use super::args::{StageStore, StagesArgs, Upto};
use crate::common::clients::{key_of, value_of};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::stores::{Batch, CopyStore, LevelDb};
use landfall_heap::{Crcs, Extents, Heap, Source, Writer};
use landfall_http::{Limits, Parser, Progress, Request, decode_path};
use landfall_kv::SetRequest;
use landfall_media::{Chain, Extent, RUN_SIZE, Segment};
use landfall_server::config::{Config, Size};
use landfall_server::store::{self, Store};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Requests of a batch: fewer than a landing run holds.
const BATCH: usize = 256;
/// Keys written in turns.
const KEYS: u64 = 10_000;
/// Bytes between requests in a landing run, and in front of each: as AF_XDP lays them.
const CHUNK_BYTES: u64 = 2048;
const HEADROOM: u64 = 256 + 14 + 20 + 32;
const VALUE_BYTES: usize = 1024;
const CAPACITY: u64 = 256 << 20;

/// Nanoseconds a request, median of the batches, by stage. The report explains the stages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StageTimes(pub(crate) BTreeMap<String, f64>);

impl StageTimes {
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

/// Runs the stages and prints their times as JSON.
#[expect(clippy::print_stdout, reason = "the output of a hidden command that a campaign reads")]
pub(crate) fn run(args: &StagesArgs) -> Result<(), BenchError> {
    let mut rig = Rig::open(args)?;
    if let Some(upto) = args.upto {
        return (0..args.batches).try_for_each(|_| rig.walk(upto));
    }
    let times = rig.time(args.batches)?;
    println!("{}", serde_json::to_string(&times).unwrap_or_default());
    Ok(())
}

/// A store without a server, and requests that have landed in it.
struct Rig {
    heap: Arc<Heap>,
    store: Store,
    writer: Writer,
    parser: Parser,
    kind: Kind,
    value: Vec<u8>,
    next_key: u64,
}

enum Kind {
    Heap,
    StandIn { copy: Box<CopyStore>, leveldb: Option<Box<(LevelDb, Batch)>> },
}

/// Requests that lie in a run, held.
struct Landed {
    run: u64,
    extents: Vec<Extent>,
}

impl Rig {
    fn open(args: &StagesArgs) -> Result<Self, BenchError> {
        let failed = |error: &dyn std::fmt::Display| BenchError::Store(error.to_string());
        let flush =
            if args.flush == "auto" { None } else { Some(args.flush.parse().map_err(|e| failed(&e))?) };
        let config = Config {
            dir: args.dir.clone(),
            capacity: Size(CAPACITY),
            workers: 1,
            flush,
            ..Config::default()
        };
        let store = store::open(&config).map_err(|e| failed(&e))?;
        let heap = Arc::clone(store.engine.heap());
        heap.reserve_landing(1);
        let kind = match args.store {
            StageStore::Heap => Kind::Heap,
            StageStore::Copy | StageStore::LevelDb => {
                let copy = CopyStore::open(1);
                let leveldb = (args.store == StageStore::LevelDb)
                    .then(|| LevelDb::open(&args.dir.join("leveldb")))
                    .transpose()
                    .map_err(|e| BenchError::Missing(e.to_string()))?;
                Kind::StandIn {
                    copy: Box::new(copy),
                    leveldb: leveldb.map(|db| {
                        let batch = db.batch();
                        Box::new((db, batch))
                    }),
                }
            }
        };
        let writer = Writer::new(Arc::clone(&heap), 0);
        let parser = Parser::new(Limits::default());
        Ok(Self { heap, store, writer, parser, kind, value: value_of(VALUE_BYTES), next_key: 0 })
    }

    /// Lands a batch of requests in a landing run, in place of a NIC.
    fn land(&mut self) -> Result<Landed, BenchError> {
        const { assert!(BATCH as u64 * CHUNK_BYTES <= RUN_SIZE) };
        let full = || BenchError::Store("no landing run is free".into());
        let run = self.heap.take_landing_run().ok_or_else(full)?;
        let mut extents = Vec::with_capacity(BATCH);
        for index in 0..BATCH as u64 {
            let key = key_of(self.next_key % KEYS);
            self.next_key += 1;
            let mut bytes = format!(
                "POST /kv/{} HTTP/1.1\r\nHost: 10.77.0.9:7002\r\nContent-Length: {VALUE_BYTES}\r\n\r\n",
                String::from_utf8_lossy(&key)
            )
            .into_bytes();
            bytes.extend_from_slice(&self.value);
            let at = Extent::new(run + index * CHUNK_BYTES + HEADROOM, bytes.len() as u32);
            self.heap.media().store(at.off, &bytes).map_err(media)?;
            self.heap.runs().hold(at);
            extents.push(at);
        }
        Ok(Landed { run, extents })
    }

    fn let_go(&self, landed: &Landed) {
        landed.extents.iter().for_each(|extent| self.heap.runs().release(*extent));
        self.heap.retire_landing_run(landed.run);
    }

    /// Executes a batch up to a stage, one request after the other.
    fn walk(&mut self, upto: Upto) -> Result<(), BenchError> {
        let landed = self.land()?;
        for extent in &landed.extents {
            if upto < Upto::Parse {
                continue;
            }
            let parsed = self.parse(*extent)?;
            if upto > Upto::Parse {
                self.take(&parsed, upto)?;
            }
        }
        // What is left over becomes durable in one go, so that the region does not fill.
        self.writer.commit_now().map_err(|error| BenchError::Store(error.to_string()))?;
        self.let_go(&landed);
        Ok(())
    }

    fn take(&mut self, parsed: &Parsed, upto: Upto) -> Result<(), BenchError> {
        if matches!(self.kind, Kind::Heap) {
            self.insert(parsed, upto >= Upto::Checksum)?;
        } else {
            if upto >= Upto::Prepare {
                self.prepare(parsed, VALUE_BYTES)?;
            }
            if upto >= Upto::Insert {
                self.write()?;
            }
            if upto >= Upto::Copy {
                self.copy(parsed)?;
            }
        }
        if upto >= Upto::Commit { self.commit() } else { Ok(()) }
    }

    fn parse(&mut self, landed: Extent) -> Result<Parsed, BenchError> {
        let bytes = self.heap.media().bytes(landed).map_err(media)?;
        let segments = [Segment::new(landed.off, bytes)];
        match self.parser.next(&Chain::new(&segments), 0) {
            Ok(Progress::Request(request)) => Ok(Parsed { landed, request }),
            other => Err(BenchError::Store(format!("a request was not understood: {other:?}"))),
        }
    }

    /// Key and value of a request, as the server takes them: by reference.
    fn insert(&mut self, parsed: &Parsed, checksum: bool) -> Result<(), BenchError> {
        let bytes = self.heap.media().bytes(parsed.landed).map_err(media)?;
        let segments = [Segment::new(parsed.landed.off, bytes)];
        let chain = Chain::new(&segments);
        let mut extents = Extents::new();
        parsed.request.body.iter().for_each(|range| chain.extents(range.clone(), |e| extents.push(e)));
        let key = key_in(&parsed.request)?;
        let crc = if checksum { None } else { Some(Crcs::Whole(0)) };
        let value = Source::Landed { extents: &extents, crc };
        let request = SetRequest { space: 0, key: &key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
        let stored = self.store.engine.set(&mut self.writer, &request);
        stored.map(drop).map_err(|error| BenchError::Store(error.to_string()))
    }

    fn prepare(&mut self, parsed: &Parsed, value_bytes: usize) -> Result<(), BenchError> {
        let Kind::StandIn { leveldb: Some(leveldb), .. } = &mut self.kind else { return Ok(()) };
        let (db, batch) = &mut **leveldb;
        let bytes = self.heap.media().bytes(parsed.landed).map_err(media)?;
        db.prepare(batch, &key_in(&parsed.request)?, &bytes[bytes.len() - value_bytes..]);
        Ok(())
    }

    fn write(&mut self) -> Result<(), BenchError> {
        let Kind::StandIn { leveldb: Some(leveldb), .. } = &mut self.kind else { return Ok(()) };
        let (db, batch) = &mut **leveldb;
        db.write(batch).map_err(|error| BenchError::Store(error.to_string()))
    }

    fn copy(&mut self, parsed: &Parsed) -> Result<(), BenchError> {
        let Kind::StandIn { copy, .. } = &self.kind else { return Ok(()) };
        let bytes = self.heap.media().bytes(parsed.landed).map_err(media)?;
        let stored = copy.store(0, &self.heap, b"", &bytes[bytes.len() - VALUE_BYTES..]);
        stored.map_err(|error| BenchError::Store(error.to_string()))
    }

    fn commit(&mut self) -> Result<(), BenchError> {
        match &self.kind {
            Kind::Heap => self.writer.commit_now().map_err(|error| BenchError::Store(error.to_string())),
            Kind::StandIn { copy, .. } => copy.flush(0, &self.heap).map_err(media),
        }
    }

    /// Times every stage over many batches, the variants in turns.
    fn time(&mut self, batches: u32) -> Result<StageTimes, BenchError> {
        let mut samples: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for round in 0..batches {
            let landed = self.land()?;
            let mut parsed = Vec::with_capacity(BATCH);
            let parse = timed(|| {
                landed.extents.iter().try_for_each(|extent| {
                    parsed.push(self.parse(*extent)?);
                    Ok(())
                })
            })?;
            samples.entry("parse").or_default().push(parse);
            let timed_stages = match self.kind {
                Kind::Heap => self.time_heap(&parsed, round)?,
                Kind::StandIn { .. } => self.time_copies(&parsed, round)?,
            };
            timed_stages.into_iter().for_each(|(name, ns)| samples.entry(name).or_default().push(ns));
            self.commit()?;
            self.let_go(&landed);
        }
        let median = |samples: Vec<f64>| Summary::of(samples).map_or(f64::NAN, |summary| summary.median);
        Ok(StageTimes(samples.into_iter().map(|(name, ns)| (name.to_owned(), median(ns))).collect()))
    }

    fn time_heap(&mut self, parsed: &[Parsed], round: u32) -> Result<Vec<(&'static str, f64)>, BenchError> {
        Ok(match round % 3 {
            0 => {
                let insert = timed(|| parsed.iter().try_for_each(|one| self.insert(one, false)))?;
                vec![("insert", insert)]
            }
            1 => {
                let insert = timed(|| parsed.iter().try_for_each(|one| self.insert(one, true)))?;
                let commit = timed(|| self.commit())?;
                vec![("insert, checksum", insert), ("commit of a batch", commit)]
            }
            _ => {
                let each = timed(|| {
                    parsed.iter().try_for_each(|one| self.insert(one, true).and_then(|()| self.commit()))
                })?;
                vec![("insert, checksum, commit each", each)]
            }
        })
    }

    fn time_copies(&mut self, parsed: &[Parsed], round: u32) -> Result<Vec<(&'static str, f64)>, BenchError> {
        if matches!(self.kind, Kind::StandIn { leveldb: Some(_), .. }) {
            return self.time_leveldb(parsed, round);
        }
        Ok(match round % 2 {
            0 => vec![("copy", timed(|| parsed.iter().try_for_each(|one| self.copy(one)))?)],
            _ => {
                let each =
                    timed(|| parsed.iter().try_for_each(|one| self.copy(one).and_then(|()| self.commit())))?;
                vec![("copy, commit each", each)]
            }
        })
    }

    fn time_leveldb(
        &mut self,
        parsed: &[Parsed],
        round: u32,
    ) -> Result<Vec<(&'static str, f64)>, BenchError> {
        let whole = |rig: &mut Self, one: &Parsed, value_bytes: usize| {
            rig.prepare(one, value_bytes)?;
            rig.write()
        };
        Ok(match round % 4 {
            0 => {
                vec![("prepare", timed(|| parsed.iter().try_for_each(|one| self.prepare(one, VALUE_BYTES)))?)]
            }
            1 => vec![(
                "prepare, write",
                timed(|| parsed.iter().try_for_each(|one| whole(self, one, VALUE_BYTES)))?,
            )],
            2 => vec![(
                "prepare, write of nothing",
                timed(|| parsed.iter().try_for_each(|one| whole(self, one, 0)))?,
            )],
            _ => {
                let each = timed(|| {
                    parsed.iter().try_for_each(|one| {
                        whole(self, one, VALUE_BYTES)?;
                        self.copy(one)?;
                        self.commit()
                    })
                })?;
                vec![("prepare, write, copy, commit each", each)]
            }
        })
    }
}

/// A parsed request.
struct Parsed {
    landed: Extent,
    request: Request,
}

fn key_in(request: &Request) -> Result<std::borrow::Cow<'_, [u8]>, BenchError> {
    let key = request.path().strip_prefix(b"/kv/").unwrap_or_default();
    decode_path(key).map_err(|error| BenchError::Store(error.to_string()))
}

fn media(error: landfall_media::MediaError) -> BenchError {
    BenchError::Store(error.to_string())
}

/// Nanoseconds a request that `work` takes for a batch.
fn timed(work: impl FnOnce() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_nanos() as f64 / BATCH as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(dir: &std::path::Path, store: StageStore) -> StagesArgs {
        StagesArgs { store, dir: dir.into(), flush: "none".into(), batches: 6, upto: None }
    }

    #[test]
    fn every_stage_of_the_heap_is_timed_and_the_region_does_not_fill() {
        let dir = tempfile::tempdir().unwrap();
        let mut rig = Rig::open(&args(dir.path(), StageStore::Heap)).unwrap();
        let times = rig.time(60).unwrap();
        for stage in
            ["parse", "insert", "insert, checksum", "commit of a batch", "insert, checksum, commit each"]
        {
            assert!(times.get(stage).is_some_and(|ns| ns > 0.0), "{stage}: {times:?}");
        }
        // As many keys as requests, up to the number of keys: all were inserted.
        assert_eq!(rig.store.engine.count(0).ungated(), KEYS.min(60 * BATCH as u64));
    }

    #[test]
    fn requests_are_taken_as_far_as_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let mut rig = Rig::open(&args(dir.path(), StageStore::Heap)).unwrap();
        rig.walk(Upto::Parse).unwrap();
        assert_eq!(rig.store.engine.count(0).ungated(), 0);
        rig.walk(Upto::Commit).unwrap();
        assert_eq!(rig.store.engine.count(0).ungated(), BATCH as u64);
    }

    #[test]
    fn copying_is_timed_with_and_without_its_flush() {
        let dir = tempfile::tempdir().unwrap();
        let mut rig = Rig::open(&args(dir.path(), StageStore::Copy)).unwrap();
        let times = rig.time(4).unwrap();
        assert!(times.get("copy").is_some() && times.get("copy, commit each").is_some());
    }
}
