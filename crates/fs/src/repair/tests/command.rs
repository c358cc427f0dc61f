//! What `landfall check --repair` does to a region of files.

use crate::check::check_tree;
use crate::key::InodeNumber;
use crate::open::OpenFiles;
use crate::recover::FilesRecovery;
use landfall_heap::{Checked, Keeper, RecordView, Region, RegionCheck, SlotId, spaces};
use landfall_media::sim::{CrashImage, SimMedia, SimOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const OPTIONS: OpenFiles =
    OpenFiles { now_ns: 5, identity: [9; 16], mode: 0o755, uid: 0, gid: 0, log_writer: 0, publish_writer: 1 };

pub(super) fn media(image: &CrashImage) -> Arc<SimMedia> {
    SimMedia::restart(image, SimOptions::default())
}

/// By number, space and place in the inode.
pub(super) type Values = BTreeMap<(u64, u8, u64), Option<Vec<u8>>>;

/// What a check of a region finds in its records and in its tree, and the values of the tree's records.
pub(super) struct Looked {
    pub(super) found: Checked,
    pub(super) tree: Vec<String>,
    pub(super) values: Values,
}

impl Looked {
    /// True where the command repairs nothing.
    pub(super) fn is_clean(&self) -> bool {
        self.found.is_clean() && self.tree.is_empty()
    }
}

pub(super) fn look(image: &CrashImage) -> Looked {
    let files = Arc::new(FilesRecovery::default());
    let check = RegionCheck::complete(media(image), vec![Arc::clone(&files) as _]).expect("a region");
    let settled = files.settled();
    let tree = check_tree(&settled, &check).expect("readable").findings;
    let mut values = BTreeMap::new();
    let mut add = |number: InodeNumber, space, place, slot: SlotId| {
        let mut value = None;
        let mut read = |view: &RecordView<'_>| {
            value = check.heap().value_bytes(slot, view).ok().map(|bytes| bytes.to_vec());
            Ok(false)
        };
        check.keep(slot, &mut read).expect("readable");
        values.insert((number.0, space, place), value);
    };
    settled.inodes.iter().for_each(|(number, slot)| add(*number, spaces::FILES_INODE, 0, *slot));
    settled.names.iter().for_each(|((number, first), slot)| {
        add(*number, spaces::FILES_NAMES, first.0, *slot);
    });
    settled.data.iter().for_each(|((number, first), slot)| {
        add(*number, spaces::FILES_DATA, u64::from(*first), *slot);
    });
    settled.extended.iter().for_each(|(number, slot)| add(*number, spaces::FILES_EXTENDED, 0, *slot));
    drop(settled);
    Looked { found: check.report(), tree, values }
}

/// Repairs what a check has found. Returns what the repair says.
pub(super) fn repair_on(media: &Arc<SimMedia>, found: &Checked) -> Vec<String> {
    let files = Arc::new(FilesRecovery::default());
    let (heap, _) = Region::run(Arc::clone(media) as _, vec![Arc::clone(&files) as _]).expect("opens");
    let suspects: BTreeSet<SlotId> = found.findings.iter().map(|finding| finding.slot).collect();
    let lines = files.repair(&heap, &OPTIONS, &suspects, &found.nameless()).expect("there is room");
    found.unreadable().for_each(|finding| heap.overwrite_with_tombstone(finding.slot).expect("stored"));
    found.copies.runs.iter().for_each(|run| heap.mark_not_slab(*run).expect("stored"));
    heap.mark_slabs(1).expect("stored");
    lines
}

/// What a repair has said, and what it has left.
pub(super) fn repair(image: &CrashImage) -> (Vec<String>, CrashImage) {
    let media = media(image);
    let lines = repair_on(&media, &look(image).found);
    (lines, media.crash_state().durable())
}
