//! Opening a region: find or create the file, lock it, ask the kernel what it is, return the medium for it.

use std::fmt;
use std::fs::{File, OpenOptions as FileOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::FileMedia;
use super::flush::FlushInstruction;
use super::kind::{self, Found};
use super::lock::LockedFile;
use super::mapped::MappedMedia;
use super::region::Region;
use super::request::MediaRequest;
use super::{call, create};
use crate::error::MediaError;
use crate::kind::MediaKind;
use crate::media::Media;
use crate::units::RUN_SIZE;

/// How often the file may vanish or appear during opening before opening fails.
const OPEN_ATTEMPTS_MAX: u32 = 4;

/// The options of [`open`].
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The requested kind of medium.
    pub request: MediaRequest,
    /// Capacity in bytes, a multiple of [`RUN_SIZE`], of the file to create where there is none.
    /// `None`: the file must exist. Without effect with `read_only`.
    pub create: Option<u64>,
    /// Allow no changes; share the region with other readers.
    pub read_only: bool,
    /// How many bytes of a file's region may be in memory, besides those in use. `None`: all. Without effect where the
    /// whole region fits, on byte-addressable kinds, and with `read_only`.
    pub memory: Option<u64>,
    /// Blocks of a file that the device cannot read are zeroes in memory, and [`Media::unreadable`] names them: for checking
    /// and repairing. Otherwise whoever needs them gets the error. Without effect on byte-addressable kinds.
    pub salvage: bool,
    /// Cache-line instruction of byte-addressable kinds; `None`: the best one of this CPU, and none under eADR.
    pub flush: Option<FlushInstruction>,
}

/// An open region. It is unlocked when the last reference to `media` is dropped.
#[non_exhaustive]
pub struct Opened {
    /// The region.
    pub media: Arc<dyn Media>,
    /// True when this call created the file: the region is all zeroes. Always false for device-DAX.
    pub created: bool,
    /// The kind of medium that holds the region.
    pub kind: MediaKind,
    /// The path that was opened.
    pub path: PathBuf,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { media, created, kind, path } = self;
        f.debug_struct("Opened")
            .field("path", path)
            .field("kind", kind)
            .field("created", created)
            .field("len", &media.len())
            .finish_non_exhaustive()
    }
}

/// Opens the region at `path`, or creates it if `options` say so.
///
/// The region's length is the file's length (a device's size), rounded down to [`RUN_SIZE`].
///
/// # Errors
/// [`MediaError::Locked`] when another process has it open, [`MediaError::WrongKind`] when it is not of the requested
/// kind, [`MediaError::Truncated`] when it is shorter than one run, [`MediaError::Full`] when it cannot be allocated,
/// [`MediaError::Unsupported`] for invalid options, and [`MediaError::Io`] for errors of the kernel.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Opened, MediaError> {
    check(options)?;
    let (file, created) = find_or_create(path, options)?;
    let found = Found::detect(path, &file)?;
    found.require(options.request, path)?;
    let len = region_len(path, &file, found.kind)?;
    let OpenOptions { read_only, salvage, .. } = *options;
    let region = Region { file, path: path.into(), found, len, created, read_only, salvage };
    let whole = len.max(options.create.unwrap_or(0));
    let media: Arc<dyn Media> = match found.kind {
        MediaKind::File => {
            let memory = options.memory.filter(|memory| *memory < whole);
            Arc::new(FileMedia::open(region, memory, whole)?)
        }
        _ => Arc::new(MappedMedia::open(region, options.flush, whole)?),
    };
    Ok(Opened { media, created, kind: found.kind, path: path.into() })
}

fn check(options: &OpenOptions) -> Result<(), MediaError> {
    if options.create.is_some_and(|len| len == 0 || len % RUN_SIZE != 0) {
        return Err(MediaError::Unsupported("the capacity of a region is a positive multiple of 1 MiB"));
    }
    if options.flush.is_some_and(|flush| !flush.is_supported()) {
        return Err(MediaError::Unsupported(
            "this CPU does not have that flush instruction: leave --flush out, or use clflush",
        ));
    }
    Ok(())
}

/// The locked file, and whether this call created it.
fn find_or_create(path: &Path, options: &OpenOptions) -> Result<(LockedFile, bool), MediaError> {
    for _ in 0..OPEN_ATTEMPTS_MAX {
        match open_locked(path, options.read_only) {
            Err(MediaError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(|file| (file, false)),
        }
        let Some(capacity) = options.create.filter(|_| !options.read_only) else { break };
        // None: another process created the file in between. Open that file.
        if let Some(file) = create::create(path, capacity, options.request)? {
            return Ok((file, true));
        }
    }
    Err(MediaError::Io {
        path: path.into(),
        action: "open the region's file",
        source: io::ErrorKind::NotFound.into(),
    })
}

fn open_locked(path: &Path, read_only: bool) -> Result<LockedFile, MediaError> {
    let io = |action| move |source| MediaError::Io { path: path.into(), action, source };
    let file = FileOptions::new()
        .read(true)
        .write(!read_only)
        // Opening a FIFO by mistake must not block the start.
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(io("open the region's file"))?;
    call::set_blocking(&file).map_err(io("open the region's file"))?;
    LockedFile::take(path, file, read_only)
}

fn region_len(path: &Path, file: &File, kind: MediaKind) -> Result<u64, MediaError> {
    let actual = file
        .metadata()
        .and_then(|m| if kind == MediaKind::DeviceDax { kind::device_len(m.rdev()) } else { Ok(m.len()) })
        .map_err(|source| MediaError::Io { path: path.into(), action: "find the region's size", source })?;
    match actual - actual % RUN_SIZE {
        0 => Err(MediaError::Truncated { path: path.into(), expected: RUN_SIZE, actual }),
        len => Ok(len),
    }
}
