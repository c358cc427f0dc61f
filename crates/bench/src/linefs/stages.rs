//! How long each stage of a chunk takes on its way along a chain: after LineFS, Figure 5.

use crate::common::clients::http::metric;
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::{Programs, Server};
use crate::common::tables::{Page, spread};
use crate::files::write_file;
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::overdue::{LOAD_MAX, Overdue};
use crate::linefs::place::{Kind, Place};
use crate::linefs::published::Published;
use serde::{Deserialize, Serialize};

/// Times are those of so many bytes: the least that a chunk has.
const CHUNK_BYTES: f64 = (4 << 20) as f64;

/// One stage.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StageRow {
    pub(super) server: String,
    pub(super) stage: String,
    /// Time of 4 MiB, ms.
    pub(super) ms: Summary,
}

/// What one run has found: the server, the stage, and its time, ms.
pub(super) type StageSample = Vec<(String, String, f64)>;

impl StageRow {
    /// A row for each stage, of all rounds.
    pub(super) fn all(rounds: &[StageSample]) -> Vec<Self> {
        let row = |(at, (server, stage, _)): (usize, &(String, String, f64))| {
            let ms = Summary::of(rounds.iter().filter_map(|stages| stages.get(at)).map(|(.., ms)| *ms))?;
            Some(Self { server: server.clone(), stage: stage.clone(), ms })
        };
        rounds.first().into_iter().flatten().enumerate().filter_map(row).collect()
    }
}

/// What a server has done so far for chunks: bytes and seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    sent_bytes: f64,
    batch: f64,
    send: f64,
    taken_bytes: f64,
    take: f64,
}

impl Done {
    fn by(server: &Server) -> Result<Self, BenchError> {
        let page = server.metrics()?;
        let value = |name: &'static str| -> Result<f64, BenchError> {
            let value = metric(&page, &format!("landfall_chain_{name}"));
            value.ok_or_else(|| BenchError::reply("landfall", "/metrics without it", name))
        };
        Ok(Self {
            sent_bytes: value("value_bytes_total")?,
            batch: value("batch_seconds_total")?,
            send: value("send_seconds_total")?,
            taken_bytes: value("taken_bytes_total")?,
            take: value("take_seconds_total")?,
        })
    }

    /// The stages since then, each with its time for 4 MiB, ms. Those without bytes are left out.
    fn stages_since(&self, before: &Self) -> Vec<(&'static str, f64)> {
        let ms = |seconds: f64, bytes: f64| seconds * 1000.0 * CHUNK_BYTES / bytes;
        let (sent, taken) = (self.sent_bytes - before.sent_bytes, self.taken_bytes - before.taken_bytes);
        let (batch, send) = (self.batch - before.batch, self.send - before.send);
        let mut stages = Vec::new();
        if taken > 0.0 {
            stages.push(("verified and appended", ms(self.take - before.take, taken)));
        }
        if sent > 0.0 {
            stages.push(("sent", ms(send, sent)));
            stages.push(("sent, until acknowledged", ms(batch - send, sent)));
        }
        stages
    }
}

/// Writes a file in sequence to a chain that has just been started.
pub(super) fn once(programs: &Programs, args: &LinefsArgs) -> Result<StageSample, BenchError> {
    let place = Place::new(Kind::Chain, programs, &args.of_loads(), args.region_bytes(LinefsLoad::Stages))?;
    let overdue = Overdue::watch(place.pids(), LOAD_MAX);
    let path = place.files().join("file");
    // It is written to memory and blocks that nothing has touched, as in the paper.
    let sample = (|| {
        let done = || place.servers().iter().map(Done::by).collect::<Result<Vec<_>, _>>();
        let (published, before) = (Published::by(&place)?, done()?);
        write_file(&path, args.file_mib)?;
        let (after, publishing) = (done()?, Published::by(&place)?.since(&published));
        let own = publishing
            .stages_ms
            .iter()
            .map(|(stage, ms)| ("first".to_owned(), format!("publishing: {stage}"), *ms));
        let servers = ["first", "second", "third"].into_iter().zip(before.iter().zip(&after));
        let of_chain = servers.flat_map(|(name, (before, after))| {
            let stages = after.stages_since(before).into_iter();
            stages.map(move |(stage, ms)| (name.to_owned(), stage.to_owned(), ms))
        });
        Ok(own.chain(of_chain).collect())
    })();
    overdue.end("a file that is written", sample)
}

/// The table of a report.
pub(super) fn show(rows: &[StageRow], mib: u64, page: &mut Page) {
    if rows.is_empty() {
        return;
    }
    page.paragraph("## Stages of a chunk");
    page.paragraph(&format!(
        "{mib} MiB are written in sequence by 16 KiB, and then synced, on a chain of three. Stages overlap, those of one chunk as \
         well as those of several: a server sends on what it is making durable, and publishes what the chain has. *Until \
         acknowledged* holds all that the servers behind do: they verify and append it, make it durable, and send it on. The \
         times of publishing are those of a chunk of at least 4 MiB, all others those of 4 MiB.",
    ));
    let row = |row: &StageRow| vec![row.server.clone(), row.stage.clone(), spread(&row.ms)];
    page.table(&["server", "stage", "ms"], rows.iter().map(row));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::linefs) fn rows() -> Vec<StageRow> {
        let before = Done::default();
        let (sent_bytes, taken_bytes) = (2.0 * CHUNK_BYTES, 4.0 * CHUNK_BYTES);
        let after = Done { sent_bytes, batch: 0.010, send: 0.004, taken_bytes, take: 0.002 };
        let stages = after.stages_since(&before).into_iter();
        let sample: StageSample = stages.map(|(stage, ms)| ("second".into(), stage.into(), ms)).collect();
        StageRow::all(&[sample.clone(), sample])
    }

    #[test]
    fn a_stage_takes_its_time_for_as_many_bytes_as_went_through_it() {
        let rows: Vec<(String, f64)> = rows().into_iter().map(|row| (row.stage, row.ms.median)).collect();
        let expected = [("verified and appended", 0.5), ("sent", 2.0), ("sent, until acknowledged", 3.0)];
        for ((stage, ms), (name, wanted)) in rows.iter().zip(expected) {
            assert!(stage == name && (ms - wanted).abs() < 1e-9, "{stage}: {ms}");
        }
        assert_eq!(rows.len(), 3);
        let first = Done { taken_bytes: 0.0, ..Done { sent_bytes: 1.0, ..Done::default() } };
        assert_eq!(first.stages_since(&Done::default()).len(), 2, "nobody sends it anything");
    }
}
