//! The holes of a file.

use std::fs::File;
use std::ops::Range;

use super::call;
use crate::units::RUN_SIZE;

/// Iterates over the data extents of the file. What lies between them, in whole runs, is reported as a hole.
pub(super) fn find_holes(file: &File, len: u64, mut hole: impl FnMut(Range<u64>)) {
    let mut at = 0;
    // Each step advances by an extent of at least a block, so that the loop ends.
    while at < len {
        let Ok(data) = call::seek_data(file, at) else { return };
        let data = data.unwrap_or(len).min(len);
        hole(at.div_ceil(RUN_SIZE)..data / RUN_SIZE);
        match call::seek_hole(file, data) {
            Ok(next) if next > data => at = next,
            _ => return,
        }
    }
}
