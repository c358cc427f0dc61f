//! A region as the NVDIMM of a virtual machine: `docs/fs.md`, "A virtual machine whose memory is the region".

use landfall_fs::Files;
use landfall_media::{Media, MediaError, write_nvdimm_info};

/// Why a region cannot be an NVDIMM.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NvdimmError {
    #[error("the region is not in memory: give it a directory on tmpfs (such as /dev/shm), or on DAX")]
    NotInMemory,
    #[error(transparent)]
    Info(#[from] MediaError),
}

/// Checks that a region is in memory, which a virtual machine can share.
///
/// # Errors
/// [`NvdimmError::NotInMemory`].
pub(crate) fn check(media: &dyn Media) -> Result<(), NvdimmError> {
    media.share().map(drop).ok_or(NvdimmError::NotInMemory)
}

/// Has a virtual machine whose NVDIMM is the region find it.
///
/// # Errors
/// [`NvdimmError`].
pub(crate) fn offer(files: &Files) -> Result<(), NvdimmError> {
    let media = files.heap().media();
    let shared = media.share().ok_or(NvdimmError::NotInMemory)?;
    let action = "open the region once more";
    let failed = |source| MediaError::Io { path: "the region's file".into(), action, source };
    Ok(write_nvdimm_info(&shared.map_err(failed)?, media.len())?)
}
