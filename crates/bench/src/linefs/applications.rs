//! LevelDB and Filebench, load by load and place by place: after LineFS, Figure 8.

use crate::common::measure::stats::Summary;
use crate::common::tables::{Page, spread, spread_of};
use crate::files::{LoadChoice, Row};
use crate::linefs::args::LinefsLoad;
use crate::linefs::place::{ASSISE, CHAIN};

/// What Filebench does: the figure has its rates.
const FILEBENCH: [LoadChoice; 2] = [LoadChoice::Fileserver, LoadChoice::Varmail];

/// Writes the figure's two parts, of those of its loads that have been measured.
pub(super) fn show(rows: &[Row], page: &mut Page) {
    let leveldb: Vec<LoadChoice> = LinefsLoad::Leveldb.on_files().iter().map(|(load, _)| *load).collect();
    show_part(rows, page, &leveldb, LEVELDB_WORDS, |row| row.mean_us.as_ref());
    show_part(rows, page, &FILEBENCH, FILEBENCH_WORDS, |row| Some(&row.rate));
}

/// Heading and text of a part.
type Words = (&'static str, &'static str);

const LEVELDB_WORDS: Words = (
    "## LevelDB: mean µs of an operation",
    "Keys of 16 bytes, values of 1 KiB that do not compress, one thread: *fillsync* puts them in their order, each synced; \
     *fillseq* and *fillrandom*, in no order, are not synced; *readrandom*, *readseq*, in their order, and *readhot*, of a \
     hundredth of them, get keys of a database that has just been made, which the kernel keeps or the first server has: no \
     replica takes part. Nothing runs beside it. Landfall in Assise's way sends files when fsync asks \
     for them.",
);
const FILEBENCH_WORDS: Words = (
    "## Filebench: operations a second",
    "16 threads; an operation is one pass through varmail's or the file server's calls, of which the file server's have no \
     fsync. Nothing runs beside it.",
);

/// A table with a row for each place, and a column for each load.
fn show_part(
    rows: &[Row],
    page: &mut Page,
    loads: &[LoadChoice],
    (heading, text): Words,
    of: fn(&Row) -> Option<&Summary>,
) {
    let is_there = |load: &&LoadChoice| rows.iter().any(|row| row.load == **load);
    let loads: Vec<LoadChoice> = loads.iter().filter(is_there).copied().collect();
    if loads.is_empty() {
        return;
    }
    page.paragraph(heading);
    page.paragraph(text);
    let at =
        |load: LoadChoice, place: &str| of(rows.iter().find(|row| row.load == load && row.place == place)?);
    let names = loads.iter().map(|load| load.name());
    let head: Vec<&str> = std::iter::once("place").chain(names).collect();
    let mut places: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| loads.contains(&row.load)) {
        if !places.contains(&&*row.place) {
            places.push(&row.place);
        }
    }
    let line = |place: &&str| {
        let cells = loads.iter().map(|load| at(*load, place).map_or("–".into(), spread));
        std::iter::once((*place).to_owned()).chain(cells).collect()
    };
    let over = |load: &LoadChoice| {
        spread_of(at(*load, CHAIN).and_then(|ours| ours.over(at(*load, ASSISE)?)).as_ref())
    };
    let ratios = std::iter::once(format!("{CHAIN}, over {ASSISE}")).chain(loads.iter().map(over)).collect();
    page.table(&head, places.iter().map(line).chain([ratios]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(load: LoadChoice, place: &str, mean_us: f64) -> Row {
        let of = |value: f64| Summary::of([value]).unwrap();
        Row {
            load,
            threads: 1,
            place: place.into(),
            rate: of(1e6 / mean_us),
            mean_us: Some(of(mean_us)),
            p50_us: None,
            p99_us: None,
            cpu_us: of(1.0),
            device_bytes: None,
            final_sync: None,
        }
    }

    #[test]
    fn each_place_has_latencies_of_leveldb_and_rates_of_filebench() {
        let rows = [
            row(LoadChoice::LeveldbSync, CHAIN, 200.0),
            row(LoadChoice::LeveldbSync, ASSISE, 250.0),
            row(LoadChoice::LeveldbRead, CHAIN, 4.0),
            row(LoadChoice::Varmail, CHAIN, 500.0),
        ];
        let mut page = Page::default();
        show(&rows, &mut page);
        let text = page.0;
        assert!(text.contains("| place | LevelDB fillsync | LevelDB readrandom |"), "{text}");
        assert!(text.contains(&format!("| {CHAIN} | 200 | 4.00 |\n| {ASSISE} | 250 | – |")), "{text}");
        assert!(text.contains(&format!("| {CHAIN}, over {ASSISE} | 0.80 | – |")), "{text}");
        assert!(text.contains(&format!("| place | varmail |\n|---|---|\n| {CHAIN} | 2000 |")), "{text}");
        let mut page = Page::default();
        show(&[row(LoadChoice::Append, CHAIN, 1.0)], &mut page);
        assert_eq!(page.0, "");
    }
}
