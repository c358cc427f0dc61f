//! `landfall check`: verifies a region, and with `--repair` repairs it.
//!
//! Without `--repair` the region is opened read-only and nothing is stored. Exit codes: 0 clean, 1 damaged (repaired or
//! not), 2 the region cannot be checked.

mod repair;
mod show;

use crate::sockets;
use clap::Args;
use landfall_chain_io::{NodeError, fall_behind};
use landfall_fs::{FilesRecovery, TreeChecked, check_tree};
use landfall_fs_io::forget_offloaded;
use landfall_heap::{Checked, FEATURE_FILES, HeapError, Keeper, RegionCheck, Tenant};
use landfall_kv::KeyCheck;
use landfall_media::{Media, MediaError, OpenOptions};
use landfall_server::store::{StoreError, finish_on_all_cores, memory_limit, region_path};
use landfall_wal::LogRecovery;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Flags of `landfall check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The region, or the directory it is in
    region: PathBuf,
    /// Drop what is damaged, so that the region opens without complaint; named keys get a tombstone
    #[arg(long)]
    repair: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Why a region cannot be checked or repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CheckError {
    /// The medium: missing, not permitted, locked by a server, or truncated.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The region: not a region, of a newer version, or without a valid superblock.
    #[error("{}: {source}", path.display())]
    Region {
        /// The region.
        path: PathBuf,
        /// The cause.
        source: HeapError,
    },
    /// The region, during a repair.
    #[error("{}: {source}", path.display())]
    Repair {
        /// The region.
        path: PathBuf,
        /// The cause.
        source: Box<repair::RepairError>,
    },
    /// Environment: mounts by a server could resume on files that the repair changes.
    #[error("a file that names an earlier mount by a server cannot be removed: {0}")]
    Earlier(std::io::Error),
    /// The region belongs to a chain, whose other servers would not know that it has lost something.
    #[error(transparent)]
    Chain(#[from] NodeError),
    /// No clock or no source of randomness is available.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a check has found in a region.
#[derive(Debug)]
pub(crate) struct Found {
    /// In its records.
    pub(crate) records: Checked,
    /// In the tree of files.
    pub(crate) tree: TreeChecked,
    /// Readable names of records of logs and files, by space and key.
    pub(crate) names: Names,
}

impl Found {
    fn new(region: &RegionCheck, tree: TreeChecked) -> Self {
        let records = region.report();
        Self { names: names(region, &records), records, tree }
    }

    /// True if nothing is damaged.
    pub(crate) fn is_clean(&self) -> bool {
        self.records.is_clean() && self.tree.findings_count == 0
    }

    /// True if something of the data is lost: not if there is a second copy of what is damaged, or it can be corrected.
    fn has_lost(&self) -> bool {
        let Checked { findings_count, copies, .. } = &self.records;
        let has_lost = *findings_count > 0 || !copies.runs.is_empty() || self.records.has_lost_blocks();
        has_lost || self.tree.findings_count > 0
    }
}

/// Result of a check, and of the repair if one was requested.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The region.
    pub(crate) path: PathBuf,
    /// The medium of the region.
    pub(crate) medium: String,
    /// What the check found.
    pub(crate) found: Found,
    /// Descriptions of the repairs.
    pub(crate) repairs: Option<Vec<String>>,
    /// What a check found after the repair.
    pub(crate) after: Option<Found>,
}

/// A region that has been read.
struct Inspected {
    region: RegionCheck,
    tree: TreeChecked,
}

/// Checks a region.
pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    match check(&args.region, args.repair) {
        Ok(outcome) => {
            let is_clean = outcome.found.is_clean() && outcome.after.as_ref().is_none_or(Found::is_clean);
            let code = if is_clean { ExitCode::SUCCESS } else { ExitCode::from(1) };
            show::report(&outcome, args.json, code)
        }
        Err(error) => show::report_error(&error, args.json, ExitCode::from(2)),
    }
}

/// Descriptions of all damage in a region; nothing is changed.
///
/// # Errors
/// [`CheckError`].
pub(crate) fn find_damage(region: &Path) -> Result<Vec<String>, CheckError> {
    let outcome = check(region, false)?;
    Ok(show::damage_lines(&outcome.found))
}

fn check(region: &Path, repairs: bool) -> Result<Outcome, CheckError> {
    let path = if region.is_dir() { region_path(region) } else { region.to_owned() };
    let media = open(&path, !repairs)?;
    let medium = media.describe();
    let Inspected { region, tree } =
        inspect(&media).map_err(|source| CheckError::Region { path: path.clone(), source })?;
    let found = Found::new(&region, tree);
    let has_files = region.heap().geometry().features & FEATURE_FILES != 0;
    // A repair of files executes what their logs have, and deletes what has no name: where nothing is lost, somebody may go
    // on with them, or the next server of a chain may lack what the logs have.
    let files = match (has_files, found.has_lost()) {
        (false, _) => repair::Files::None,
        (true, false) => repair::Files::StayAsTheyAre,
        (true, true) => repair::Files::AreRepaired,
    };
    let repairs_any = repairs && !(has_files && found.is_clean());
    let mut outcome = Outcome { path, medium, found, repairs: repairs.then(Vec::new), after: None };
    if repairs_any {
        if let Some(dir) = outcome.path.parent().filter(|_| files == repair::Files::AreRepaired) {
            forget_offloaded(&sockets::of_mounts(dir)).map_err(CheckError::Earlier)?;
        }
        let in_chain = if outcome.found.has_lost() { leave_step(&outcome.path)? } else { None };
        let done = repair::repair(media, &region, &outcome.found.records, files);
        drop(region);
        let path = outcome.path.clone();
        let mut done =
            done.map_err(|source| CheckError::Repair { path: path.clone(), source: source.into() })?;
        done.extend(in_chain);
        outcome.repairs = Some(done);
        // The region is opened again, so that the check reads what a restart would read.
        let after = inspect(&open(&path, true)?).map_err(|source| CheckError::Region { path, source })?;
        outcome.after = Some(Found::new(&after.region, after.tree));
    }
    Ok(outcome)
}

/// What a repair drops, the other servers of a chain may have: the region's server is behind from now on. Says so.
fn leave_step(region: &Path) -> Result<Option<String>, NodeError> {
    let Some(dir) = region.parent() else { return Ok(None) };
    let word = |(chain, node): (String, String)| {
        format!(
            "server {node} of the chain {chain} is behind now: it gets what it has lost from the server before it. If it is \
             the first one, remove it from the chain and add it again; if no other server has the data, run \
             `landfall chain init` for it"
        )
    };
    Ok(fall_behind(dir)?.map(word))
}

/// Readable names of records of logs and files, by space and key.
pub(crate) type Names = BTreeMap<(u8, Vec<u8>), String>;

fn names(check: &RegionCheck, found: &Checked) -> Names {
    let named = found.findings.iter().filter_map(|finding| finding.named.clone());
    named.filter_map(|(space, key)| Some(((space, key.clone()), check.describe(space, &key)?))).collect()
}

fn open(path: &Path, read_only: bool) -> Result<Arc<dyn Media>, MediaError> {
    // As much memory as a server would take: the region may be larger than the machine's. A bad block is a finding.
    let options = OpenOptions { read_only, memory: memory_limit(), salvage: true, ..OpenOptions::default() };
    Ok(landfall_media::open(path, &options)?.media)
}

/// Reads and checks the whole region, on all cores. The tree of files is compared on one core.
fn inspect(media: &Arc<dyn Media>) -> Result<Inspected, HeapError> {
    let files = Arc::new(FilesRecovery::default());
    let tenants: Vec<Arc<dyn Tenant>> = vec![
        Arc::new(KeyCheck::default()),
        Arc::new(LogRecovery::default()),
        Arc::clone(&files) as Arc<dyn Tenant>,
    ];
    let mut region = RegionCheck::begin(Arc::clone(media), tenants)?;
    finish_on_all_cores(|| region.scan_some())?;
    finish_on_all_cores(|| region.gather_some())?;
    region.settle()?;
    finish_on_all_cores(|| region.verify_some())?;
    let tree = check_tree(&files.settled(), &region)?;
    Ok(Inspected { region, tree })
}
