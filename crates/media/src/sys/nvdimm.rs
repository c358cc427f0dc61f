//! A region as the NVDIMM of a virtual machine.
//!
//! A hypervisor that gives a machine a shared file as its NVDIMM gives it a region: what one side stores the other one sees.
//! The machine's kernel offers the memory as a device-DAX device if it finds an *info block* 4 KiB behind the start, in a gap
//! that every region has (`docs/format/region.md`). The device begins behind that block.

use super::call;
use crate::error::MediaError;
use crate::units::RUN_SIZE;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Offset in the region of the first byte of the machine's device.
pub const NVDIMM_BEGIN: u64 = 8 << 10;
/// Offset of the info block, and its length, bytes.
const BLOCK_AT: u64 = 4 << 10;
const BLOCK_BYTES: usize = 4 << 10;
/// The pages by which the kernel maps the device, bytes.
const PAGE_BYTES: u32 = 4 << 10;
/// What a kernel on x86-64 maps begins and ends at multiples of so many bytes.
const PART_BYTES: u64 = 2 << 20;
/// What the kernel calls a block that makes a device-DAX device of memory.
const SIGNATURE: [u8; 16] = *b"NVDIMM_DAX_INFO\0";
/// Names the device for the machine's tools. A machine has one region.
const NAME: [u8; 16] = *b"landfall region\0";
/// Version of the block.
const VERSION: (u16, u16) = (1, 4);
/// The kernel keeps what it knows of pages in its own memory, not in the device.
const MODE_RAM: u32 = 1;
/// Bytes of what it knows of a page.
const PAGE_INFO_BYTES: u16 = 64;

/// Writes the info block into a region's file of so many bytes, and sees to that all of the first run has space. It changes
/// nothing of the region.
///
/// # Errors
/// [`MediaError::Unsupported`] for a length that a kernel cannot map whole, [`MediaError::Io`].
pub fn write_nvdimm_info(file: &File, len: u64) -> Result<(), MediaError> {
    if len < 2 * RUN_SIZE || !len.is_multiple_of(PART_BYTES) {
        return Err(MediaError::Unsupported("the size of an NVDIMM is a multiple of 2 MiB"));
    }
    let written = call::allocate(file, 0, RUN_SIZE)
        .and_then(|()| file.write_all_at(&info_block(len), BLOCK_AT))
        .and_then(|()| file.sync_all());
    let action = "write the block by which a virtual machine finds the region";
    written.map_err(|source| MediaError::Io { path: "the region's file".into(), action, source })
}

/// The block: `struct nd_pfn_sb` of the kernel, in `drivers/nvdimm/pfn.h`.
fn info_block(len: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut set = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    set(0, &SIGNATURE);
    set(16, &NAME);
    set(52, &VERSION.0.to_le_bytes());
    set(54, &VERSION.1.to_le_bytes());
    set(56, &NVDIMM_BEGIN.to_le_bytes());
    set(64, &((len - NVDIMM_BEGIN) / u64::from(PAGE_BYTES)).to_le_bytes());
    set(72, &MODE_RAM.to_le_bytes());
    set(84, &PAGE_BYTES.to_le_bytes());
    set(88, &PAGE_BYTES.to_le_bytes());
    set(92, &PAGE_INFO_BYTES.to_le_bytes());
    let sum = checksum(&block);
    block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    block
}

/// The sum of Fletcher (1982) over words of 32 bits, as `nd_fletcher64` of the kernel has it.
fn checksum(block: &[u8; BLOCK_BYTES]) -> u64 {
    let words = block.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    let (low, high) = words.fold((0_u32, 0_u64), |(low, high), word| {
        let low = low.wrapping_add(word);
        (low, high.wrapping_add(u64::from(low)))
    });
    high << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of a block that Linux 6.1 has taken.
    #[test]
    fn block_is_one_that_a_kernel_takes() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(256 << 20).expect("a length");
        write_nvdimm_info(&file, 256 << 20).expect("a good length");
        let mut block = [0; BLOCK_BYTES];
        file.read_exact_at(&mut block, 4096).expect("it is there");
        assert_eq!(&block[..32], b"NVDIMM_DAX_INFO\0landfall region\0");
        assert_eq!(
            block[52..96],
            [
                1, 0, 4, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
                0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x10, 0, 0, 0x40, 0, 0, 0
            ]
        );
        assert_eq!(u64::from_le_bytes(*block.last_chunk().expect("eight bytes")), 0x2109_a83b_1006_26c5);
        let mut around = [1; 4096];
        for at in [0, 8192] {
            file.read_exact_at(&mut around, at).expect("it is there");
            assert_eq!(around, [0; 4096], "nothing else is written");
        }
    }

    #[test]
    fn length_that_no_kernel_maps_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        assert!(matches!(write_nvdimm_info(&file, 33 * RUN_SIZE), Err(MediaError::Unsupported(_))));
    }
}
