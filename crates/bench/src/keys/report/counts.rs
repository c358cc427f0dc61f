//! Tables of what is counted, not timed: bytes written, resident memory.

use super::Results;
use crate::common::measure::proc::Memory;
use crate::common::peers::names;
use crate::common::tables::{Page, bytes, number};
use crate::keys::workloads::{amplification, instructions, memory};

/// Bytes written for each byte received.
pub(crate) fn amplification(page: &mut Page, results: &Results) {
    let Some(first) = results.amplification.first() else { return };
    page.paragraph("## Write amplification");
    page.paragraph(&format!(
        "Bytes written to the medium for each byte received, while keys with values of {} B are overwritten by one client in \
         batches, in a region of {}. *Live* is what keys' values and records take of the region. Written is, by the server's \
         own counters: what it received, which lands in the region as it is; a record of 128 B for each SET, and for each \
         record that the compactor rewrote; data that the compactor moved; data copied on their way in; zeroes in front of \
         records. *Storage* is what the kernel counts for the process on a file (`write_bytes` of `/proc/PID/io`): whole \
         blocks, zeroes ahead of the fill point and metadata included, but not what lies between the kernel and the flash.",
        amplification::VALUE_BYTES,
        bytes(first.region_bytes as f64),
    ));
    let head = [
        "medium",
        "live",
        "keys",
        "received",
        "records",
        "moved",
        "copied",
        "zeroes",
        "written ÷ received",
        "storage ÷ received",
    ];
    page.table(&head, results.amplification.iter().map(amplification_cells));
}

fn amplification_cells(row: &amplification::Row) -> Vec<String> {
    let counted = &row.counted;
    let share = |part: f64| number(part / counted.received);
    vec![
        row.media.name().into(),
        format!("{:.0} %", row.live_share * 100.0),
        format!("{} {}", row.records, row.draw.name()),
        bytes(counted.received),
        share(counted.records),
        share(counted.moved),
        share(counted.copied),
        share(counted.zeroes),
        number(counted.amplification()),
        counted.storage_amplification().map_or("–".into(), number),
    ]
}

/// Resident memory.
pub(crate) fn memory(page: &mut Page, results: &Results) {
    if results.memory.is_empty() && results.empty.is_empty() {
        return;
    }
    page.paragraph("## Memory");
    page.paragraph(
        "Resident memory (`VmRSS`), in brackets the part of it that is neither file nor shared memory, once it has settled. The \
         restart follows a kill.",
    );
    if !results.memory.is_empty() {
        let head =
            ["medium", "keys", "server", "after loading", "after a restart", "÷ redis", "÷ redis, restarted"];
        page.table(&head, results.memory.iter().map(|row| memory_cells(results, row)));
    }
    for empty in &results.empty {
        let starts: Vec<String> = empty.starts.iter().map(resident).collect();
        let region = bytes(empty.region_bytes as f64);
        page.paragraph(&format!(
            "{}: an empty region of {region}, after each start: {}.",
            empty.media.name(),
            starts.join(", ")
        ));
    }
}

fn memory_cells(results: &Results, row: &memory::Row) -> Vec<String> {
    let is_redis = |other: &&memory::Row| other.media == row.media && other.peer == names::REDIS_ALWAYS;
    let redis = results.memory.iter().find(is_redis).filter(|redis| redis.peer != row.peer);
    let ratio = |of: fn(&memory::Row) -> u64| {
        redis.map_or(String::new(), |redis| number(of(row) as f64 / of(redis) as f64))
    };
    vec![
        row.media.name().into(),
        format!("{} × {} B", row.records, memory::VALUE_BYTES),
        row.peer.clone(),
        resident(&row.loaded),
        resident(&row.restarted),
        ratio(|row| row.loaded.rss),
        ratio(|row| row.restarted.rss),
    ]
}

/// Instructions of a SET.
pub(crate) fn instructions(page: &mut Page, results: &Results) {
    let Some(whole) = results.instructions.iter().find(|row| row.is_whole) else { return };
    page.paragraph("## Instructions of a SET");
    page.paragraph(&format!(
        "Of the worker in user space, a request, by callgrind: the real server over kernel sockets (epoll), one client, \
         {} requests in a pipeline, values of {} B, {} keys that are there before. The same on every machine with the same \
         instructions (valgrind has no AVX-512, which takes a third of what is counted for checksums); what the kernel does is \
         not counted. Each stage is the difference to the one before.",
        instructions::PIPELINE,
        instructions::VALUE_BYTES,
        instructions::KEYS,
    ));
    let rows = results.instructions.iter();
    let cells = rows.map(|row| vec![row.stage.clone(), number(row.instructions), number(row.so_far)]);
    page.table(&["stage", "instructions", "so far"], cells);
    page.paragraph(
        "A SET that is stored, without its flush, by the part of the program whose code is executed:",
    );
    let mut parts: Vec<(&String, &f64)> = whole.parts.iter().filter(|part| *part.1 >= 0.5).collect();
    parts.sort_by(|a, b| b.1.total_cmp(a.1));
    let cells = parts.into_iter().map(|(part, count)| {
        vec![part.clone(), number(*count), format!("{:.0} %", count * 100.0 / whole.so_far)]
    });
    page.table(&["part", "instructions", "share"], cells);
}

fn resident(memory: &Memory) -> String {
    format!("{} ({})", bytes(memory.rss as f64), bytes(memory.anon as f64))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::keys::args::MediaChoice;
    use crate::keys::report::targets::judge;
    use crate::keys::report::tests::sample_results;
    use crate::keys::workloads::amplification::{Counted, Draw};

    pub(in crate::keys::report) fn with_counts() -> Results {
        let mut results = sample_results();
        let counted = Counted {
            received: 1000.0,
            records: 100.0,
            moved: 400.0,
            zeroes: 250.0,
            storage: Some(2100.0),
            ..Counted::default()
        };
        let row = |live_share, draw| amplification::Row {
            media: MediaChoice::File,
            live_share,
            draw,
            region_bytes: 512 << 20,
            records: 7,
            counted,
        };
        results.amplification = vec![row(0.6, Draw::Uniform), row(0.8, Draw::Zipf)];
        let mib = |mib: u64| Memory { rss: mib << 20, anon: 1 << 20, shmem: 0 };
        let memory = |peer: &str, loaded, restarted| memory::Row {
            media: MediaChoice::Pm,
            peer: peer.into(),
            records: 5,
            loaded: mib(loaded),
            restarted: mib(restarted),
        };
        results.memory = vec![memory(names::LANDFALL, 300, 150), memory(names::REDIS_ALWAYS, 200, 200)];
        let starts = [12, 76, 140, 204].map(mib).into();
        results.empty = vec![memory::Empty { media: MediaChoice::Pm, region_bytes: 1 << 30, starts }];
        let row = |stage: &str, instructions, so_far, is_whole| instructions::Row {
            stage: stage.into(),
            instructions,
            so_far,
            is_whole,
            parts: [("kv".to_owned(), 1000.0), ("resp".into(), 3000.0), ("net".into(), 0.2)].into(),
        };
        results.instructions =
            vec![row("parsing", 1500.0, 1500.0, false), row("storing", 2500.0, 4000.0, true)];
        results
    }

    #[test]
    fn instructions_are_shown_by_stage_and_by_part() {
        let mut page = Page::default();
        instructions(&mut page, &with_counts());
        assert!(page.0.contains("| parsing | 1500 | 1500 |\n| storing | 2500 | 4000 |"), "{}", page.0);
        assert!(page.0.contains("| resp | 3000 | 75 % |\n| kv | 1000 | 25 % |\n\n"), "{}", page.0);
    }

    #[test]
    fn written_bytes_are_shown_by_what_they_are() {
        let mut page = Page::default();
        amplification(&mut page, &with_counts());
        let row = "| file | 60 % | 7 uniform | 1000 B | 0.10 | 0.40 | 0 | 0.25 | 1.75 | 2.10 |";
        assert!(page.0.contains(row), "{}", page.0);
    }

    #[test]
    fn memory_is_set_against_redis_and_shown_for_each_start() {
        let mut page = Page::default();
        memory(&mut page, &with_counts());
        assert!(page.0.contains("300.0 MiB (1.0 MiB) | 150.0 MiB (1.0 MiB) | 1.50 | 0.75 |"), "{}", page.0);
        assert!(page.0.contains("pm: an empty region of 1.0 GiB, after each start: 12.0 MiB"), "{}", page.0);
    }

    #[test]
    fn what_is_counted_is_judged() {
        let targets = judge(&with_counts());
        let verdict = |what: &str| targets.iter().find(|target| target.what == what).unwrap().met();
        assert_eq!(verdict("file: bytes written for each received, 60 % live, uniform keys"), Some(true));
        assert_eq!(verdict("file: the same as the kernel counts, 60 % live, uniform keys"), Some(false));
        assert_eq!(verdict("file: bytes written for each received, 80 % live, zipf 0.99 keys"), Some(true));
        assert_eq!(verdict("file: bytes written for each received, 80 % live, uniform keys"), None);
        assert_eq!(verdict("pm: bytes written for each received, 60 % live, uniform keys"), None);
        assert_eq!(verdict("pm: memory with keys of 100 B after loading over redis always"), Some(false));
        assert_eq!(verdict("pm: memory with keys of 100 B after a restart over redis always"), Some(true));
        assert_eq!(verdict("instructions of a SET in a pipeline of 16, without its flush"), Some(false));
        assert_eq!(verdict("pm: memory that an empty region gains over three restarts"), Some(false));
    }
}
