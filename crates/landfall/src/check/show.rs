//! Prints the result of a check: lines of text, or one JSON object.

use super::{CheckError, Found, Names, Outcome};
use crate::output;
use landfall_heap::Finding;
use landfall_media::Extent;
use serde::Serialize;
use std::process::ExitCode;

/// Damaged keys and records that are listed, at most.
const LINES_MAX: usize = 1000;

/// The JSON object. Its names and units are part of the interface.
#[derive(Debug, Serialize)]
struct Json<'a> {
    region: String,
    medium: &'a str,
    clean: bool,
    #[serde(flatten)]
    counts: Counts,
    damage: Vec<Item>,
    /// What is wrong with the tree of files.
    tree: &'a [String],
    repaired: Option<&'a [String]>,
    clean_after_repair: Option<bool>,
    /// What is damaged after the repair.
    left: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct Counts {
    bytes: u64,
    used_bytes: u64,
    live_bytes: u64,
    slabs: u64,
    records: u64,
    keys: u64,
    log_entries: u64,
    file_records: u64,
    inodes: u64,
    names: u64,
    operations: u64,
    tombstones: u64,
    stale: u64,
    unacknowledged: u64,
    correctable: usize,
    damaged: u64,
    damaged_superblocks: u32,
    damaged_table_words: u32,
    damaged_runs: usize,
    unreadable_blocks: usize,
}

#[derive(Debug, Serialize)]
struct Item {
    what: String,
    database: Option<u8>,
    key: Option<String>,
    record: u32,
    offset: u64,
}

impl Counts {
    fn of(Found { records: found, tree, .. }: &Found) -> Self {
        Self {
            bytes: found.bytes,
            used_bytes: found.used_bytes,
            live_bytes: found.live_bytes,
            slabs: found.slabs,
            records: found.records,
            keys: found.keys,
            log_entries: found.log_entries,
            file_records: found.file_records,
            inodes: tree.inodes,
            names: tree.names,
            operations: tree.operations,
            tombstones: found.tombstones,
            stale: found.stale,
            unacknowledged: found.unacknowledged,
            correctable: found.correctable.len(),
            damaged: found.findings_count + tree.findings_count,
            damaged_superblocks: found.copies.superblocks,
            damaged_table_words: found.copies.words,
            damaged_runs: found.copies.runs.len(),
            unreadable_blocks: found.lost_blocks.len(),
        }
    }
}

impl Item {
    fn of(finding: &Finding) -> Self {
        Self {
            what: what(finding),
            database: finding.named.as_ref().map(|(space, _)| *space),
            key: finding.named.as_ref().map(|(_, key)| key.escape_ascii().to_string()),
            record: finding.slot.0,
            offset: finding.offset,
        }
    }
}

fn what(finding: &Finding) -> String {
    finding.what.map_or_else(|| "record gone".into(), |what| what.to_string())
}

/// Prints what was found and repaired, and ends with `code`.
pub(super) fn report(outcome: &Outcome, json: bool, code: ExitCode) -> ExitCode {
    match json.then(|| serde_json::to_string(&as_json(outcome))) {
        Some(Ok(text)) => output::report_lines([text], code),
        _ => output::report(&text(outcome), code),
    }
}

/// Prints why the region cannot be checked, and ends with `code`.
pub(super) fn report_error(error: &CheckError, json: bool, code: ExitCode) -> ExitCode {
    output::complain(error);
    let lines = json.then(|| serde_json::json!({ "error": error.to_string() }));
    output::report_lines(lines, code)
}

fn as_json(outcome: &Outcome) -> Json<'_> {
    Json {
        region: outcome.path.display().to_string(),
        medium: &outcome.medium,
        clean: outcome.found.is_clean(),
        counts: Counts::of(&outcome.found),
        damage: outcome.found.records.findings.iter().map(Item::of).collect(),
        tree: &outcome.found.tree.findings,
        repaired: outcome.repairs.as_deref(),
        clean_after_repair: outcome.after.as_ref().map(Found::is_clean),
        left: outcome.after.as_ref().map(damage_lines),
    }
}

fn text(outcome: &Outcome) -> String {
    let Found { records: found, tree, .. } = &outcome.found;
    let mut out = format!("{}: {}\n", outcome.path.display(), outcome.medium);
    let rows = [
        ("bytes", found.bytes),
        ("bytes in use", found.used_bytes),
        ("bytes live", found.live_bytes),
        ("keys", found.keys),
        ("entries of logs", found.log_entries),
        ("records", found.records),
        ("  replaced by newer ones", found.stale),
        ("  tombstones", found.tombstones),
        ("never acknowledged", found.unacknowledged),
    ];
    let of_files = [
        ("records of files", found.file_records),
        ("  inodes", tree.inodes),
        ("  names", tree.names),
        ("  not published yet", tree.operations),
    ];
    let of_files = of_files.iter().filter(|_| found.file_records > 0);
    let mut row = |name: &str, value: u64| out.push_str(&format!("  {name:<26} {value:>14}\n"));
    rows.iter().chain(of_files).for_each(|(name, value)| row(name, *value));
    damage_lines(&outcome.found).iter().for_each(|line| out.push_str(&format!("! {line}\n")));
    outcome.repairs.iter().flatten().for_each(|line| out.push_str(&format!("repaired: {line}\n")));
    let left = outcome.after.as_ref().map(damage_lines).unwrap_or_default();
    left.iter().for_each(|line| out.push_str(&format!("! left: {line}\n")));
    out.push_str(&verdict(outcome));
    out
}

fn verdict(outcome: &Outcome) -> String {
    match (outcome.found.is_clean(), outcome.after.as_ref().map(Found::is_clean)) {
        (true, None | Some(true)) => "clean\n".into(),
        (true, Some(false)) => "clean at first, AND DAMAGED THEN: check again, and check the device\n".into(),
        (false, None) => "damaged; nothing was changed. `--repair` drops what is damaged\n".into(),
        (false, Some(true)) => "damaged; repaired: clean now\n".into(),
        (false, Some(false)) => {
            "damaged; repaired, BUT NOT CLEAN: check again, and check the device\n".into()
        }
    }
}

/// Descriptions of all damage, one line each.
pub(super) fn damage_lines(Found { records: found, tree, names }: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    let copies = &found.copies;
    if copies.superblocks > 0 {
        lines.push("superblock: one copy is damaged, the other holds".into());
    }
    if copies.words > 0 {
        lines.push(format!("run table: {} words are damaged, their other copies hold", copies.words));
    }
    lines.extend(copies.runs.iter().map(|run| format!("run {}: both table words are damaged", run.0)));
    let block = |block: &Extent| format!("block at {:#x}: cannot be read from the medium", block.off);
    lines.extend(found.lost_blocks.iter().map(block));
    lines.extend(
        found.correctable.iter().map(|slot| format!("record {}: one flipped bit, correctable", slot.0)),
    );
    lines.extend(found.findings.iter().map(|finding| finding_line(finding, names)));
    lines.extend(tree.findings.iter().cloned());
    let all = found.findings_count + tree.findings_count;
    let unlisted = all - (found.findings.len() + tree.findings.len()) as u64;
    let more = lines.len().saturating_sub(LINES_MAX) as u64 + unlisted;
    if more > 0 {
        lines.truncate(LINES_MAX);
        lines.push(format!("and {more} more"));
    }
    lines
}

fn finding_line(finding: &Finding, names: &Names) -> String {
    let name = match &finding.named {
        Some(named) if names.contains_key(named) => names[named].clone(),
        Some((space, key)) => format!("database {space}, key {}", quoted(key)),
        None => "an unknown key".into(),
    };
    format!("{name}: {} (record {}, offset {:#x})", what(finding), finding.slot.0, finding.offset)
}

/// A key in readable form.
pub(super) fn quoted(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}
