//! Which server has a region, said in the region. A mount in a virtual machine whose NVDIMM that is follows its server, perhaps
//! to one of another region: its libraries join those alone that have theirs (`docs/format/fs-link.md`, "Virtual machines").

use super::message::ServerLife;
use crate::link::words_of;
use crate::sys::SharedMemory;
use landfall_media::NVDIMM_BEGIN;
use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

/// The first word: letters, and the version.
const LETTERS: u64 = u64::from_le_bytes(*b"LFSERVE\x01");
/// The letters, and the life of the server.
const WORDS: usize = 3;

/// Says in a region that the server of this life has it. Nobody reads it meanwhile: the server serves no mount yet.
///
/// # Errors
/// The region cannot be mapped.
pub(super) fn write(region: File, life: ServerLife) -> io::Result<()> {
    let memory = SharedMemory::within(region, WORDS, NVDIMM_BEGIN)?;
    memory.words().iter().zip(mark_of(life)).for_each(|(to, word)| to.store(word, Ordering::Release));
    Ok(())
}

/// True if the server of this life has the region that is in a virtual machine's device.
///
/// # Errors
/// The device cannot be mapped.
pub(super) fn is_of(device: File, life: ServerLife) -> io::Result<bool> {
    let memory = SharedMemory::within(device, WORDS, 0)?;
    Ok(memory.words().iter().zip(mark_of(life)).all(|(word, of)| word.load(Ordering::Acquire) == of))
}

fn mark_of(life: ServerLife) -> [u64; WORDS] {
    let [first, second] = words_of(life);
    [LETTERS, first, second]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// The bytes are those of `docs/format/region.md`.
    #[test]
    fn mark_names_the_server_that_has_written_it() {
        let region = tempfile::tempfile().expect("a file");
        region.set_len(32 << 20).expect("a length");
        let life = *b"0123456789abcdef";
        write(region.try_clone().expect("a descriptor"), life).expect("there is room");
        let mut bytes = [1; 64];
        region.read_exact_at(&mut bytes, 8192 - 16).expect("it is there");
        assert_eq!(&bytes[..40], b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0LFSERVE\x010123456789abcdef");
        assert_eq!(bytes[40..], [0; 24]);
        // The device begins where the mark is.
        let device = tempfile::tempfile().expect("a file");
        device.write_all_at(&bytes[16..], 0).expect("there is room");
        let is_of = |life| is_of(device.try_clone().expect("a descriptor"), life).expect("it has a mark");
        assert!(is_of(life) && !is_of(*b"0123456789abcdeF") && !is_of([0; 16]));
        let blank = tempfile::tempfile().expect("a file");
        blank.set_len(4096).expect("a length");
        assert!(!super::is_of(blank, [0; 16]).expect("it can be mapped"), "nobody has marked it");
    }
}
