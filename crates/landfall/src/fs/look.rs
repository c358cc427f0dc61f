//! `landfall fs df`, `stat` and `top`: what a mount says of itself. It says it in extended attributes that are computed
//! (`landfall_fs_io::inspect`), so that nothing but a path on the mount is needed.

use crate::output::{fail, report_lines};
use crate::top::{self, Counts, Pace};
use clap::Args;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The attribute with the page of metrics.
const METRICS: &str = "landfall.metrics";
/// The attribute that says where a file's data are.
const INODE: &str = "landfall.inode";
/// Prefix of the names of metrics.
const PREFIX: &str = "landfall_fs_";
/// Longest value of an extended attribute, by Linux.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Flags of `landfall fs df`.
#[derive(Debug, Args)]
pub(super) struct DfArgs {
    /// The mountpoint, or any file on the mount
    path: PathBuf,
}

/// Flags of `landfall fs stat`.
#[derive(Debug, Args)]
pub(super) struct StatArgs {
    /// A file on a mount
    path: PathBuf,
}

/// Flags of `landfall fs top`.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// The mountpoint, or any file on the mount
    path: PathBuf,
    #[command(flatten)]
    pace: Pace,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("{}: it is not on a mount of `landfall fs`", .0.display())]
    NotOurs(PathBuf),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Shows the space of a mount.
pub(super) fn df(args: &DfArgs) -> ExitCode {
    match counts(&args.path) {
        Ok(counts) => report_lines(space(&counts), ExitCode::SUCCESS),
        Err(error) => fail(&error),
    }
}

/// Shows an inode, and where its data are.
pub(super) fn stat(args: &StatArgs) -> ExitCode {
    match inode(&args.path) {
        Ok(lines) => report_lines(lines, ExitCode::SUCCESS),
        Err(error) => fail(&error),
    }
}

/// Shows the counters of a mount, and their rates.
pub(super) fn top(args: &TopArgs) -> ExitCode {
    top::show(args.pace, || counts(&args.path))
}

fn counts(path: &Path) -> Result<Counts, LookError> {
    Ok(top::parse(&attribute(path, METRICS)?, PREFIX))
}

fn inode(path: &Path) -> Result<Vec<String>, LookError> {
    let text = attribute(path, INODE)?;
    let meta = path.symlink_metadata().map_err(|source| LookError::Io { path: path.into(), source })?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let fields = [("size", meta.size()), ("links", meta.nlink()), ("allocated_bytes", meta.blocks() * 512)];
    lines.extend(fields.map(|(name, value)| format!("{name} {value}")));
    Ok(lines)
}

fn attribute(path: &Path, name: &str) -> Result<String, LookError> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    match rustix::fs::lgetxattr(path, name, &mut value[..]) {
        Ok(len) => Ok(String::from_utf8_lossy(&value[..len]).into_owned()),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Err(LookError::NotOurs(path.into())),
        Err(errno) => Err(LookError::Io { path: path.into(), source: errno.into() }),
    }
}

/// Bytes in the largest unit of which there is one at least.
fn rounded(bytes: f64) -> String {
    let units = [(2_f64.powi(40), "TiB"), (2_f64.powi(30), "GiB"), (2_f64.powi(20), "MiB"), (1024.0, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// The lines of `df`: what is missing from the page is left out.
fn space(counts: &Counts) -> Vec<String> {
    let sizes = [
        ("size", "region_bytes"),
        ("free", "region_room_bytes"),
        ("live", "live_bytes"),
        ("log", "log_bytes"),
        ("in memory", "region_memory_bytes"),
        ("memory limit", "region_memory_limit_bytes"),
    ];
    let numbers = [("inodes", "inodes"), ("operations in the log", "log_operations")];
    let size = |(label, name): (&str, &str)| {
        let bytes = *counts.get(name)?;
        Some(format!("{label:<24}{:>12}  {bytes} bytes", rounded(bytes)))
    };
    let number = |(label, name): (&str, &str)| Some(format!("{label:<24}{:>12}", counts.get(name)?));
    sizes.into_iter().filter_map(size).chain(numbers.into_iter().filter_map(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_shown_in_units_and_what_is_unknown_is_left_out() {
        let page = "landfall_fs_region_bytes 1073741824\nlandfall_fs_log_bytes 1536\nlandfall_fs_inodes 7\nother 3\n";
        let lines = space(&top::parse(page, PREFIX));
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("1.0 GiB") && lines[0].ends_with("1073741824 bytes"), "{}", lines[0]);
        assert!(lines[1].contains("1.5 KiB") && lines[2].ends_with(" 7"));
    }
}
