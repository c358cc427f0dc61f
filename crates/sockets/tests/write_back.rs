//! Write-back of ranges of the region to its file; errors are reported.

mod common;

use common::{Noise, PATIENCE, Rig};
use landfall_media::{BLOCK_SIZE, Batch, FileWrite, RUN_SIZE};
use landfall_sockets::{Event, TransportRequest, Wait};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

on_both_transports! {
    all_ranges_are_in_the_file_when_write_back_is_reported,
    all_ranges_are_in_the_file_when_write_back_now_returns,
    a_file_that_cannot_be_written_is_an_error,
    an_empty_write_back_completes_at_once,
    clients_are_served_while_writing,
}

/// Blocks at various places of a file-sized region, some of them adjacent, filled with noise.
fn ranges(rig: &mut Rig, count: u64) -> Vec<(FileWrite, Vec<u8>)> {
    let block = BLOCK_SIZE as u32;
    (0..count)
        .map(|i| {
            let (off, len) = (i * 3 * BLOCK_SIZE, block * (1 + u32::try_from(i % 2).unwrap()));
            let data = Noise(i + 1).bytes(len as usize);
            rig.frames.store(off, &data);
            (rig.frames.file_write(off, len), data)
        })
        .collect()
}

fn region_file() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4 * RUN_SIZE).unwrap();
    file
}

fn assert_written(file: &File, ranges: &[(FileWrite, Vec<u8>)]) {
    for (write, data) in ranges {
        let mut got = vec![0; data.len()];
        file.read_exact_at(&mut got, write.extent.off).unwrap();
        assert!(got == *data, "{:?} is in the file", write.extent);
    }
}

fn batch(file: &File, writes: &[FileWrite]) -> Batch {
    Batch::of_no_region(file.as_raw_fd(), writes)
}

fn write_back(rig: &mut Rig, id: u64, file: &File, writes: &[FileWrite]) -> io::Result<()> {
    rig.transport.write_back(id, batch(file, writes));
    let mut events = Vec::new();
    let wait = Wait { timeout: Some(PATIENCE), events_min: 1, linger: Duration::ZERO };
    rig.transport.poll(&mut rig.frames, wait, &mut events).unwrap();
    match events.pop() {
        Some(Event::WrittenBack { id: done, outcome }) if done == id && events.is_empty() => outcome,
        other => panic!("{other:?} instead of one WrittenBack of {id}"),
    }
}

fn all_ranges_are_in_the_file_when_write_back_is_reported(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let file = region_file();
    for count in [1, 2, 7, 300] {
        let ranges = ranges(&mut rig, count);
        let writes: Vec<_> = ranges.iter().map(|(write, _)| *write).collect();
        write_back(&mut rig, count, &file, &writes).unwrap();
        assert_written(&file, &ranges);
    }
    rig.finish();
}

fn all_ranges_are_in_the_file_when_write_back_now_returns(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let file = region_file();
    for count in [1, 2, 64, 65, 300] {
        let ranges = ranges(&mut rig, count);
        let writes: Vec<_> = ranges.iter().map(|(write, _)| *write).collect();
        rig.transport.write_back_now(&batch(&file, &writes)).unwrap();
        assert_written(&file, &ranges);
    }
    rig.finish();
}

fn a_file_that_cannot_be_written_is_an_error(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let named = tempfile::NamedTempFile::new().unwrap();
    let read_only = File::open(named.path()).unwrap();
    for count in [1, 3, 100] {
        let writes: Vec<_> = ranges(&mut rig, count).iter().map(|(write, _)| *write).collect();
        let refused = write_back(&mut rig, 9, &read_only, &writes).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
        let refused = rig.transport.write_back_now(&batch(&read_only, &writes)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    }
    // The transport still works with a file that can be written.
    let (file, ranges) = (region_file(), ranges(&mut rig, 3));
    let writes: Vec<_> = ranges.iter().map(|(write, _)| *write).collect();
    rig.transport.write_back_now(&batch(&file, &writes)).unwrap();
    assert_written(&file, &ranges);
    rig.finish();
}

fn an_empty_write_back_completes_at_once(request: TransportRequest) {
    let mut rig = Rig::new(request, 1);
    let file = region_file();
    write_back(&mut rig, 3, &file, &[]).unwrap();
    rig.transport.write_back_now(&batch(&file, &[])).unwrap();
    rig.finish();
}

fn clients_are_served_while_writing(request: TransportRequest) {
    use std::io::Write;
    let mut rig = Rig::new(request, 8);
    let (mut client, conn) = rig.connect();
    let file = region_file();
    let mut finished = 0;
    for round in 0..20u8 {
        let write = rig.frames.file_write(u64::from(round) * BLOCK_SIZE, BLOCK_SIZE as u32);
        rig.transport.write_back(u64::from(round), batch(&file, &[write, write]));
        client.write_all(&[round; 64]).unwrap();
        let (mut got, mut written) = (Vec::new(), false);
        while got.len() < 64 || !written {
            let events = rig.poll_for(PATIENCE);
            assert!(!events.is_empty(), "something stands still");
            for event in &events {
                match event {
                    Event::Received { extent, conn: from, .. } if *from == conn => {
                        got.extend(rig.frames.bytes(*extent));
                    }
                    Event::WrittenBack { outcome: Ok(()), .. } => written = true,
                    other => panic!("{other:?}"),
                }
            }
            rig.release_received(&events);
        }
        assert_eq!(got, [round; 64]);
        finished += 1;
    }
    assert_eq!(finished, 20);
    rig.finish();
}
