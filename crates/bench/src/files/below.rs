//! The file system that a mount is compared with: its type, and whether it has a journal.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The type of the file system with a folder, as the kernel names it.
pub(crate) fn file_system_of(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.into());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let all = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let below = all.filter(|(point, _)| dir.starts_with(point));
    below.max_by_key(|(point, _)| point.len()).map_or("a folder".into(), |(_, kind)| kind.into())
}

/// What a reader must know of the file system with a folder: an ext4 without a journal promises less, and its `fsync` does
/// less.
pub(crate) fn remark_on(kind: &str, dir: &Path) -> Option<&'static str> {
    if kind != "ext4" {
        return None;
    }
    match has_journal(Path::new("/"), fs::metadata(dir).ok()?.dev())? {
        true => Some("The ext4 below has a journal."),
        false => Some(
            "The ext4 below has no journal: after a crash its names, sizes and data need not fit each other, and its \
             `fsync` waits for no commit of a journal.",
        ),
    }
}

/// True if the kernel has a journal for an ext4 on a device, which it names below `/sys`.
fn has_journal(root: &Path, device: u64) -> Option<bool> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let link = root.join(format!("sys/dev/block/{major}:{minor}"));
    let name = fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned();
    let journals = fs::read_dir(root.join("proc/fs/jbd2"));
    // Where no file system has a journal the kernel has no such folder, or an empty one.
    let mut names = journals.into_iter().flatten().flatten().map(|entry| entry.file_name());
    Some(names.any(|journal| {
        journal.to_str().and_then(|text| text.rsplit_once('-')).is_some_and(|(of, _)| of == name)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_ext4_has_a_journal_if_the_kernel_has_one_for_its_device() {
        let root = tempfile::tempdir().expect("a folder");
        let block = root.path().join("sys/dev/block");
        fs::create_dir_all(&block).expect("a folder");
        symlink("../../devices/virtual/block/dm-1", block.join("253:1")).expect("a link");
        let device = libc::makedev(253, 1);
        assert_eq!(has_journal(root.path(), libc::makedev(7, 7)), None, "no such device");
        assert_eq!(has_journal(root.path(), device), Some(false));
        fs::create_dir_all(root.path().join("proc/fs/jbd2/dm-10-8")).expect("a folder");
        assert_eq!(has_journal(root.path(), device), Some(false), "of another device");
        fs::create_dir(root.path().join("proc/fs/jbd2/dm-1-8")).expect("a folder");
        assert_eq!(has_journal(root.path(), device), Some(true));
    }

    #[test]
    fn only_ext4_gets_a_remark() {
        assert_eq!(remark_on("tmpfs", Path::new("/")), None);
    }
}
