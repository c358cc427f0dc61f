//! Several writes of one batch at once, through an io_uring: the device has all of them before the first one is done.
//! One after the other, each would wait for the device alone.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;

use crate::file_write::FileWrite;

/// Writes in the device at once.
const ENTRIES: u32 = 64;

/// Rings that no thread uses now, of all media: as many as threads have written at the same time. They stay until the
/// process ends, because closing one interrupts the system calls of every thread that has used it.
static IDLE: Mutex<Vec<IoUring>> = Mutex::new(Vec::new());

/// Writes all of them, and waits until the device has them. `None` where the kernel offers no ring: nothing is written
/// then.
///
/// # Safety
/// The memory of every write is readable until this returns.
pub(super) unsafe fn write_together(file: RawFd, writes: &[FileWrite]) -> Option<io::Result<()>> {
    let idle = IDLE.lock().pop();
    let mut ring = match idle {
        Some(ring) => ring,
        None => IoUring::builder().setup_coop_taskrun().dontfork().build(ENTRIES).ok()?,
    };
    let mut outcome = Ok(());
    for some in writes.chunks(ENTRIES as usize) {
        // SAFETY: the caller's contract.
        outcome = unsafe { write_some(&mut ring, file, some) };
        if outcome.is_err() {
            break;
        }
    }
    IDLE.lock().push(ring);
    Some(outcome)
}

/// Writes as many as the ring has entries for, at most. When it returns, none is under way.
///
/// # Safety
/// As for [`write_together`].
unsafe fn write_some(ring: &mut IoUring, file: RawFd, writes: &[FileWrite]) -> io::Result<()> {
    for (at, write) in writes.iter().enumerate() {
        let from = write.addr as *const u8;
        let entry = opcode::Write::new(types::Fd(file), from, write.extent.len()).offset(write.extent.off);
        let entry = entry.build().user_data(at as u64);
        // SAFETY: the caller's contract: the memory is readable until the write has ended, which is waited for below.
        unsafe { ring.submission().push(&entry) }.expect("there is an entry for each write");
    }
    let (mut left, mut outcome) = (writes.len(), Ok(()));
    while left > 0 {
        if ring.submit_and_wait(left).is_err() {
            // A signal, or the kernel is short of memory: what is queued stays queued.
            std::thread::yield_now();
        }
        for done in ring.completion() {
            left -= 1;
            let len = writes[done.user_data() as usize].extent.len();
            if let Err(error) = whole(done.result(), len) {
                outcome = Err(error);
            }
        }
    }
    outcome
}

fn whole(result: i32, len: u32) -> io::Result<()> {
    match u32::try_from(result) {
        Ok(written) if written == len => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::WriteZero, "the file took only a part of a write")),
        Err(_) => Err(io::Error::from_raw_os_error(result.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Extent;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    fn writes(bytes: &[u8], count: usize) -> Vec<FileWrite> {
        let len = bytes.len() / count;
        let write = |at: usize| FileWrite {
            extent: Extent::new(2 * (at * len) as u64, len as u32),
            addr: bytes[at * len..].as_ptr() as usize,
        };
        (0..count).map(write).collect()
    }

    #[test]
    fn all_are_written_also_when_there_are_more_than_entries() {
        let file = tempfile::tempfile().expect("a file");
        let bytes: Vec<u8> = (0..200_u32 * 64).map(|at| (at % 251) as u8).collect();
        let writes = writes(&bytes, 200);
        // SAFETY: `bytes` lives until the end.
        let Some(written) = (unsafe { write_together(file.as_raw_fd(), &writes) }) else { return };
        written.expect("written");
        let mut found = [0; 64];
        for (write, expected) in writes.iter().zip(bytes.chunks(64)) {
            file.read_exact_at(&mut found, write.extent.off).expect("it is there");
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn an_error_of_one_is_the_error_of_all() {
        let bytes = [1; 128];
        let (reading, _writing) = io::pipe().expect("a pipe");
        // SAFETY: `bytes` lives until the end.
        let written = unsafe { write_together(reading.as_raw_fd(), &writes(&bytes, 2)) };
        assert!(written.is_none_or(|written| written.is_err()), "the end for reading");
    }
}
