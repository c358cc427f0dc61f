//! Which kind of medium holds the region: the kernel is asked; the path is not considered.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::call::{self, magic};
use super::image::{ALIGN_DEFAULT, maps_synchronously};
use super::request::MediaRequest;
use crate::error::MediaError;
use crate::kind::MediaKind;
use crate::units::BLOCK_SIZE;

/// What the kernel reports about an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The kind.
    pub(super) kind: MediaKind,
    /// File-system type as reported by `statfs(2)`; 0 for devices.
    pub(super) fs_type: i64,
    /// Alignment that a mapping needs, bytes.
    pub(super) map_align: u64,
}

impl Found {
    /// Asks the kernel.
    ///
    /// # Errors
    /// The error of a question, or `Unsupported` for what is neither a regular file nor device-DAX.
    pub(super) fn detect(path: &Path, file: &File) -> Result<Self, MediaError> {
        let fail = |source| MediaError::Io { path: path.into(), action: "inspect the region's file", source };
        let meta = file.metadata().map_err(fail)?;
        if meta.file_type().is_char_device() && is_dax_device(meta.rdev()) {
            return Ok(Self { kind: MediaKind::DeviceDax, fs_type: 0, map_align: device_align(meta.rdev()) });
        }
        if !meta.is_file() {
            return Err(MediaError::Unsupported(
                "a region is a regular file or a device-DAX character device: name one of these",
            ));
        }
        Self::of_regular_file(file).map_err(fail)
    }

    fn of_regular_file(file: &File) -> io::Result<Self> {
        let (fs_type, block) = call::file_system(file)?;
        let kind = match fs_type {
            magic::TMPFS | magic::RAMFS | magic::HUGETLBFS => MediaKind::Volatile,
            _ if maps_synchronously(file.as_raw_fd()) => MediaKind::FsDax,
            _ => MediaKind::File,
        };
        let map_align = if fs_type == magic::HUGETLBFS { block } else { BLOCK_SIZE };
        Ok(Self { kind, fs_type, map_align })
    }

    /// The file system's name, where messages name it.
    pub(super) fn fs_name(&self) -> &'static str {
        match self.fs_type {
            magic::TMPFS => "tmpfs",
            magic::RAMFS => "ramfs",
            magic::HUGETLBFS => "hugetlbfs",
            magic::BTRFS => "btrfs",
            magic::EXT4 => "ext4",
            magic::XFS => "xfs",
            _ => "other",
        }
    }

    /// Refuses a kind that was not requested.
    ///
    /// # Errors
    /// [`MediaError::WrongKind`] with advice.
    pub(super) fn require(&self, request: MediaRequest, path: &Path) -> Result<(), MediaError> {
        match mismatch(request, self.kind) {
            None => Ok(()),
            Some(advice) => Err(MediaError::WrongKind {
                path: path.into(),
                asked: request.name(),
                found: self.kind.name(),
                advice,
            }),
        }
    }
}

/// Advice for a request that the kind found does not satisfy.
fn mismatch(request: MediaRequest, found: MediaKind) -> Option<&'static str> {
    use MediaKind::{DeviceDax, File, FsDax, Volatile};
    match (request, found) {
        (MediaRequest::Auto, _)
        | (MediaRequest::Dax, DeviceDax | FsDax)
        | (MediaRequest::File, File)
        | (MediaRequest::Volatile, Volatile) => None,
        (MediaRequest::Dax, _) => {
            Some("give a /dev/dax device or a file on a file system mounted with -o dax, or use --media auto")
        }
        (MediaRequest::File, Volatile) => Some(
            "its memory does not survive a power loss; use --media volatile or auto, or a directory on a disk",
        ),
        (MediaRequest::File, _) => Some("it is persistent memory; use --media dax or auto"),
        (MediaRequest::Volatile, _) => {
            Some("give a file on tmpfs (such as /dev/shm) or hugetlbfs, or use --media auto")
        }
    }
}

/// The length of a device-DAX device, rounded down to the size of its pages, bytes.
pub(super) fn device_len(rdev: u64) -> io::Result<u64> {
    let text = fs::read_to_string(device_dir(rdev).join("size"))?;
    let len: u64 = text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(len - len % device_align(rdev))
}

fn device_align(rdev: u64) -> u64 {
    let text = fs::read_to_string(device_dir(rdev).join("align")).unwrap_or_default();
    text.trim().parse().ok().filter(|align: &u64| align.is_power_of_two()).unwrap_or(ALIGN_DEFAULT)
}

fn is_dax_device(rdev: u64) -> bool {
    let subsystem = fs::read_link(device_dir(rdev).join("subsystem"));
    subsystem.is_ok_and(|link| link.file_name().is_some_and(|name| name == "dax"))
}

fn device_dir(rdev: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/char/{}:{}", libc::major(rdev), libc::minor(rdev)))
}

/// True where the platform drains the CPU caches on a power loss (eADR), so that flushes are not needed.
pub(super) fn caches_are_persistent(file: &File, kind: MediaKind) -> bool {
    let Ok(meta) = file.metadata() else { return false };
    let dir = match kind {
        MediaKind::DeviceDax => device_dir(meta.rdev()),
        MediaKind::FsDax => {
            PathBuf::from(format!("/sys/dev/block/{}:{}", libc::major(meta.dev()), libc::minor(meta.dev())))
        }
        _ => return false,
    };
    fs::canonicalize(dir).is_ok_and(|dir| region_says_cpu_cache(&dir))
}

/// Finds the NVDIMM region above a device in sysfs and reads its persistence domain.
fn region_says_cpu_cache(device: &Path) -> bool {
    let domain = device.ancestors().find_map(|dir| fs::read_to_string(dir.join("persistence_domain")).ok());
    domain.is_some_and(|text| text.trim() == "cpu_cache")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_region_whose_domain_is_the_cpu_cache_makes_flushes_free() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let device = dir.path().join("region0/pfn0.1/block/pmem0");
        fs::create_dir_all(&device).expect("a directory");
        assert!(!region_says_cpu_cache(&device), "no region says anything");
        for (domain, expected) in [("memory_controller\n", false), ("cpu_cache\n", true)] {
            fs::write(dir.path().join("region0/persistence_domain"), domain).expect("a file");
            assert_eq!(region_says_cpu_cache(&device), expected);
        }
    }

    #[test]
    fn character_devices_other_than_dax_are_refused() {
        let null = File::open("/dev/null").expect("every Linux has it");
        assert!(matches!(Found::detect(Path::new("/dev/null"), &null), Err(MediaError::Unsupported(_))));
    }
}
