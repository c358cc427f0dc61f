//! Appends with fsync beside a client that writes in sequence, and syncs nothing: what one program pays for another one's writes.

use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::Programs;
use crate::common::tables::{Page, spread, spread_of};
use crate::files::{Sample, write_file};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::busy::{Latency, append_to};
use crate::linefs::place::{Kind, Place, empty_and_wait};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of each write.
const WRITE_BYTES: usize = 16 << 10;
/// Bytes of the file that is written again and again, and in a quick run.
const FILE_BYTES: [u64; 2] = [256 << 20, 4 << 20];
/// How long the writer writes before the other one begins.
const AHEAD: Duration = Duration::from_millis(500);

/// Latencies of appends with fsync, alone and beside the writer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BesideRow {
    place: String,
    /// Microseconds, alone.
    alone: Latency,
    /// Beside the writer.
    beside: Latency,
    /// What the writer wrote meanwhile, MiB/s.
    rate: Summary,
}

/// What one turn has found.
pub(super) struct BesideSample {
    alone: Sample,
    beside: Sample,
    rate: f64,
}

/// Where it runs.
pub(super) const KINDS: [Kind; 4] = [Kind::Folder, Kind::Alone, Kind::Chain, Kind::Gluster];

impl BesideRow {
    /// Of all rounds; `None` if there is none.
    pub(super) fn of(kind: Kind, folder: &str, samples: &[BesideSample]) -> Option<Self> {
        Some(Self {
            place: kind.name(folder).into(),
            alone: Latency::of(samples.iter().map(|sample| &sample.alone))?,
            beside: Latency::of(samples.iter().map(|sample| &sample.beside))?,
            rate: Summary::of(samples.iter().map(|sample| sample.rate))?,
        })
    }
}

/// One turn, at servers that have just been started.
pub(super) fn once(kind: Kind, programs: &Programs, args: &LinefsArgs) -> Result<BesideSample, BenchError> {
    let (settings, region) = (args.of_loads(), args.region_bytes(LinefsLoad::Beside));
    let place = Place::new(kind, programs, &settings, region)?;
    let file = place.files().join("written");
    if args.used {
        // Everything that the writer will write to was touched before.
        write_file(&file, (region / 4 * 3) >> 20)?;
        empty_and_wait(place.files())?;
    }
    let alone = append_to(&place, &settings)?;
    let (written, bytes) = (Written::default(), FILE_BYTES[usize::from(args.quick)]);
    let (beside, rate, outcome) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| written.write_again(&file, bytes));
        let (beside, rate) = {
            let _ends = Ends(&written);
            std::thread::sleep(AHEAD);
            let (begun, before) = (Instant::now(), written.bytes());
            let beside = append_to(&place, &settings);
            let mib = (written.bytes() - before) as f64 / f64::from(1 << 20);
            (beside, mib / begun.elapsed().as_secs_f64())
        };
        (beside, rate, writer.join().expect("a writer does not panic"))
    });
    outcome.map_err(BenchError::file(&file))?;
    Ok(BesideSample { alone, beside: beside?, rate })
}

/// What the writer has written.
#[derive(Debug, Default)]
struct Written {
    bytes: AtomicU64,
    is_over: AtomicBool,
}

impl Written {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Writes a file in sequence, again and again, until it is over.
    fn write_again(&self, path: &Path, bytes: u64) -> std::io::Result<()> {
        let (file, block) = (File::create(path)?, [7; WRITE_BYTES]);
        while !self.is_over.load(Ordering::Acquire) {
            file.write_all_at(&block, self.bytes() % bytes)?;
            self.bytes.fetch_add(WRITE_BYTES as u64, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// The writer's end, whatever happens meanwhile.
struct Ends<'w>(&'w Written);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// The table of a report.
pub(super) fn show(rows: &[BesideRow], page: &mut Page) {
    if rows.is_empty() {
        return;
    }
    page.paragraph("## Beside a client that writes");
    page.paragraph(
        "Appends of 16 KiB, each with fsync, and then the same beside another client of the same mount, which writes a file of \
         256 MiB by 16 KiB again and again, and syncs nothing; what it writes is counted during these appends. Landfall's log has one order: what is synced waits for what was \
         written before. Other systems need not write that yet.",
    );
    let row = |row: &BesideRow| {
        vec![
            row.place.clone(),
            spread(&row.alone.mean),
            spread(&row.alone.p99),
            spread(&row.beside.mean),
            spread(&row.beside.p99),
            spread_of(row.beside.p99.over(&row.alone.p99).as_ref()),
            spread(&row.rate),
        ]
    };
    let head = [
        "place",
        "alone: mean µs",
        "alone: p99 µs",
        "beside: mean µs",
        "beside: p99 µs",
        "p99, beside over alone",
        "the writer's MiB/s",
    ];
    page.table(&head, rows.iter().map(row));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn rows() -> Vec<BesideRow> {
        let of = |us: f64| Summary::of([us, us * 1.1]).unwrap();
        let latency = |us: f64| Latency { mean: of(us / 2.0), p99: of(us) };
        let row = |kind: Kind| BesideRow {
            place: kind.name("ext4").into(),
            alone: latency(1000.0),
            beside: latency(4000.0),
            rate: of(300.0),
        };
        KINDS.map(row).into()
    }

    #[test]
    fn a_writer_writes_one_file_again_and_again_until_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (path, written) = (folder.path().join("written"), Written::default());
        let bytes = 4 * WRITE_BYTES as u64;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| written.write_again(&path, bytes));
            let ends = Ends(&written);
            while written.bytes() < 3 * bytes && !writer.is_finished() {
                std::thread::yield_now();
            }
            drop(ends);
            writer.join().unwrap().unwrap();
        });
        assert!(written.bytes() >= 3 * bytes);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    }
}
