//! Mounts the files of a region until the mount ends, or until standard input ends:
//!
//! ```sh
//! cargo run -p landfall-fs-io --example mount -- MOUNTPOINT REGION 64 < /dev/null
//! ```
//!
//! The third argument is the size of a new region, MiB. Words behind it are `always` (every change is durable before its
//! call returns) and `writeback` (the kernel keeps written data), `socket`
//! (libraries connect to `files.sock` beside the region), and `uring` (requests come over io_uring).

use landfall_fs::{FilesRecovery, OpenFiles};
use landfall_fs_io::{Session, Settings, SyncMode, TransportKind, end_earlier_libraries};
use landfall_heap::{NewRegion, Region, Tenant};
use landfall_media::{Extent, OpenOptions, RUN_SIZE};
use std::error::Error;
use std::io::{Read, Write, stderr, stdin, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell where standard error is closed.
            let _ = writeln!(stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [point, region, mib, words @ ..] = &args[..] else {
        return Err("usage: mount MOUNTPOINT REGION MIB [always] [writeback] [socket] [uring]".into());
    };
    let capacity = mib.parse::<u64>()? * RUN_SIZE;
    let options = OpenOptions { create: Some(capacity), ..OpenOptions::default() };
    let media = landfall_media::open(Path::new(region), &options)?.media;
    let socket = Path::new(region).with_file_name("files.sock");
    let earlier = end_earlier_libraries(&socket, Path::new(region));
    let head = media.bytes(Extent::new(0, 4096))?;
    if head.iter().all(|byte| *byte == 0) {
        // A real program draws the salt and the seed.
        let new = NewRegion { salt: [7; 16], hash_seed: 7, created_ms: 0 };
        landfall_heap::create(&*media, &new)?;
    }
    let recovery = Arc::new(FilesRecovery::default());
    recovery.execute_left(earlier.logs());
    let (heap, _) = Region::run(media, vec![Arc::clone(&recovery) as Arc<dyn Tenant>])?;
    let options = OpenFiles {
        now_ns: 0,
        identity: [7; 16],
        mode: 0o755,
        uid: 0,
        gid: 0,
        log_writer: 0,
        publish_writer: 1,
    };
    let (files, publisher, _) = recovery.open(&heap, &options)?;
    let has = |word: &str| words.iter().any(|given| given == word);
    let settings = Settings {
        sync: if has("always") { SyncMode::Always } else { SyncMode::Fsync },
        writeback: has("writeback"),
        socket: has("socket").then_some(socket),
        transport: if has("uring") { TransportKind::Uring } else { TransportKind::Device },
        ..Settings::default()
    };
    let session = Session::start(files, publisher, Path::new(point), &settings)?;
    writeln!(stdout(), "mounted")?;
    let stopper = session.stopper();
    std::thread::spawn(move || {
        // Whatever comes is not read: its end is what counts.
        let _ = stdin().read_to_end(&mut Vec::new());
        stopper.stop();
    });
    session.join()?;
    Ok(())
}
