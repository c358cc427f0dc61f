//! The loads: plain system calls on a folder, the same for every place.

use crate::common::error::BenchError;
use crate::common::progress::check_stop;
use crate::files::args::{FsArgs, LoadChoice};
use crate::files::databases;
use crate::files::ran::{Failed, Ran, timed};
use crate::files::random::Random;
use crate::files::trees;
use crate::stores::Durability;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes that one write of a load writes.
const WRITE_BYTES: usize = 16 << 10;
/// Bytes of a whole file of the file server.
const SERVED_BYTES: usize = 128 << 10;
/// Bytes of a small file that is there when a mount starts.
const SMALL_BYTES: usize = 1000;
/// Bytes of one read of a sequence.
const READ_BYTES: usize = 128 << 10;
/// Bytes of one read at random.
const BLOCK_BYTES: usize = 4096;
/// Threads of varmail and of the file server.
const MANY_THREADS: u32 = 16;
/// Files of one folder.
const FOLDER_FILES: u32 = 1000;

/// One thread of a load.
struct Worker<'a> {
    at: u32,
    /// The folder of all files.
    files: &'a Path,
    args: &'a FsArgs,
    random: Random,
    next: u64,
    buffer: Vec<u8>,
    own: Option<File>,
}

/// Prepares a load's files, which is not measured.
pub(crate) fn prepare(load: LoadChoice, files: &Path, args: &FsArgs) -> Result<(), BenchError> {
    let large = || write_whole(&large(files), args.file_mib << 20)?.sync_all();
    let prepared = match load {
        LoadChoice::Varmail => fill(files, args.files, WRITE_BYTES).map_err(Failed::from),
        LoadChoice::Fileserver => fill(files, args.files, SERVED_BYTES).map_err(Failed::from),
        LoadChoice::ReadSequential | LoadChoice::ReadRandom => {
            large().and_then(|()| read_whole(&self::large(files)).map(drop)).map_err(Failed::from)
        }
        LoadChoice::ReadSequentialCold | LoadChoice::ReadRandomCold => large().map_err(Failed::from),
        LoadChoice::LeveldbRead | LoadChoice::LeveldbReadSequential | LoadChoice::LeveldbReadHot => {
            databases::prepare(files, args)
        }
        LoadChoice::Untar => trees::prepare_archive(files, args),
        LoadChoice::GitStatus => trees::prepare_repository(files, args),
        LoadChoice::Build => trees::prepare_crate(files),
        _ => Ok(()),
    };
    prepared.map_err(failed_as(BenchError::file(files)))
}

/// Runs a load once.
pub(crate) fn run(load: LoadChoice, threads: u32, files: &Path, args: &FsArgs) -> Result<Ran, BenchError> {
    let failed = BenchError::file(files);
    match load {
        LoadChoice::Write => write_and_sync(&large(files), args.file_mib),
        LoadChoice::ReadSequential => {
            let began = Instant::now();
            let mut mib = 0.0;
            while began.elapsed().as_secs_f64() < args.seconds {
                mib +=
                    read_whole(&large(files)).map_err(BenchError::file(files))? as f64 / f64::from(1 << 20);
            }
            Ok(Ran { count: mib, seconds: began.elapsed().as_secs_f64(), ..Ran::default() })
        }
        LoadChoice::ReadSequentialCold => timed(args.file_mib as f64, || read_whole(&large(files)).map(drop)),
        LoadChoice::Small => timed(f64::from(args.small_files) * 3.0, || small(files, args.small_files)),
        LoadChoice::LeveldbSync => databases::fill(files, args, Durability::Synced),
        LoadChoice::LeveldbFill => databases::fill(files, args, Durability::Unsynced),
        LoadChoice::LeveldbFillRandom => databases::fill_randomly(files, args),
        LoadChoice::LeveldbRead => databases::read(files, args),
        LoadChoice::LeveldbReadSequential => databases::read_in_order(files, args),
        LoadChoice::LeveldbReadHot => databases::read_hot(files, args),
        LoadChoice::Untar => trees::untar(files, args),
        LoadChoice::GitStatus => trees::git_status(files, args),
        LoadChoice::Build => trees::build(files),
        _ => repeated(load, threads, files, args),
    }
    .map_err(failed_as(failed))
}

fn failed_as(as_file: impl FnOnce(io::Error) -> BenchError) -> impl FnOnce(Failed) -> BenchError {
    move |failed| match failed {
        Failed::Io(error) => as_file(error),
        Failed::Bench(error) => error,
    }
}

/// Threads that repeat an operation for some time.
fn repeated(load: LoadChoice, threads: u32, files: &Path, args: &FsArgs) -> Result<Ran, Failed> {
    let sleep = |_| std::thread::sleep(Duration::from_secs_f64(args.seconds));
    let repeated = repeat(load, threads, files, args, sleep)?;
    let latencies_us = repeated.operations.into_iter().map(|operation| operation.us).collect();
    Ok(Ran::of_operations(repeated.seconds, latencies_us))
}

/// An operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Operation {
    /// When it ended, seconds after the load's begin.
    pub(crate) ended: f64,
    /// How long it took, microseconds.
    pub(crate) us: f64,
}

/// What threads have done during some work.
#[derive(Debug)]
pub(crate) struct Repeated<T> {
    /// What the work has found.
    pub(crate) found: T,
    /// How long all of it took, seconds.
    pub(crate) seconds: f64,
    /// In the order of their ends within each thread.
    pub(crate) operations: Vec<Operation>,
}

/// Threads that repeat an operation while this one works. The work is told when they began.
///
/// # Errors
/// The first one of a thread, which has ended then: the others go on until the work is done.
pub(crate) fn repeat_during<T>(
    load: LoadChoice,
    threads: u32,
    files: &Path,
    args: &FsArgs,
    work: impl FnOnce(Instant) -> T,
) -> Result<Repeated<T>, BenchError> {
    repeat(load, threads, files, args, work).map_err(failed_as(BenchError::file(files)))
}

fn repeat<T>(
    load: LoadChoice,
    threads: u32,
    files: &Path,
    args: &FsArgs,
    work: impl FnOnce(Instant) -> T,
) -> Result<Repeated<T>, Failed> {
    check_stop()?;
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let (found, outcomes) = std::thread::scope(|scope| {
        let start = |at| {
            let stop = &stop;
            scope.spawn(move || Worker::new(at, files, args)?.repeat(load, began, stop))
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        let found = work(began);
        stop.store(true, Ordering::Relaxed);
        let ended = |worker: std::thread::ScopedJoinHandle<'_, io::Result<Vec<Operation>>>| {
            worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the load has failed")))
        };
        (found, workers.into_iter().map(ended).collect::<Vec<_>>())
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut operations = Vec::new();
    for outcome in outcomes {
        operations.append(&mut outcome?);
    }
    Ok(Repeated { found, seconds, operations })
}

impl<'a> Worker<'a> {
    fn new(at: u32, files: &'a Path, args: &'a FsArgs) -> io::Result<Self> {
        fs::create_dir_all(files.join(format!("thread-{at}")))?;
        let buffer = (0..SERVED_BYTES).map(|byte| (byte * 31 % 251) as u8).collect();
        let random = Random::new(u64::from(at));
        Ok(Self { at, files, args, random, next: 0, buffer, own: None })
    }

    fn repeat(&mut self, load: LoadChoice, origin: Instant, stop: &AtomicBool) -> io::Result<Vec<Operation>> {
        let mut operations = Vec::new();
        // Once at least: on a busy machine a thread may begin when the time is over.
        loop {
            let began = Instant::now();
            match load {
                LoadChoice::Create => self.create()?,
                LoadChoice::Append => self.append()?,
                LoadChoice::Varmail => self.varmail()?,
                LoadChoice::Fileserver => self.serve()?,
                _ => self.read_random()?,
            }
            let ended = Instant::now();
            let us = (ended - began).as_secs_f64() * 1e6;
            operations.push(Operation { ended: (ended - origin).as_secs_f64(), us });
            if stop.load(Ordering::Relaxed) {
                return Ok(operations);
            }
        }
    }

    fn create(&mut self) -> io::Result<()> {
        let path = self.files.join(format!("thread-{}/new-{}", self.at, self.next));
        self.next += 1;
        let mut file = File::create_new(path)?;
        file.write_all(&self.buffer[..WRITE_BYTES])?;
        file.sync_all()
    }

    fn append(&mut self) -> io::Result<()> {
        let path = self.files.join(format!("thread-{}/log", self.at));
        let file = match &mut self.own {
            Some(file) => file,
            none => none.insert(OpenOptions::new().append(true).create(true).open(path)?),
        };
        file.write_all(&self.buffer[..WRITE_BYTES])?;
        file.sync_all()
    }

    /// A file of the set that no other thread changes.
    fn mine(&mut self) -> PathBuf {
        let share = u64::from(self.args.files / MANY_THREADS);
        let number = self.random.below(share) * u64::from(MANY_THREADS) + u64::from(self.at % MANY_THREADS);
        path_of(self.files, number as u32)
    }

    /// Filebench's varmail, one flow: delete; create, append, fsync; open, read, append, fsync; open, read.
    fn varmail(&mut self) -> io::Result<()> {
        let gone = self.mine();
        remove(&gone)?;
        let mut file = File::create(&gone)?;
        file.write_all(&self.buffer[..WRITE_BYTES])?;
        file.sync_all()?;
        drop(file);
        let path = self.mine();
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        file.read_to_end(&mut Vec::new())?;
        file.write_all(&self.buffer[..WRITE_BYTES])?;
        file.sync_all()?;
        drop(file);
        read_if_there(&self.mine())
    }

    /// Filebench's file server, one flow: create and write; append; read whole; delete; stat.
    fn serve(&mut self) -> io::Result<()> {
        let new = self.mine();
        File::create(&new)?.write_all(&self.buffer)?;
        let path = self.mine();
        OpenOptions::new().append(true).create(true).open(path)?.write_all(&self.buffer[..WRITE_BYTES])?;
        read_if_there(&self.mine())?;
        let gone = self.mine();
        remove(&gone)?;
        match fs::metadata(self.mine()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn read_random(&mut self) -> io::Result<()> {
        let blocks = (self.args.file_mib << 20) / BLOCK_BYTES as u64;
        let offset = self.random.below(blocks) * BLOCK_BYTES as u64;
        let file = match &self.own {
            Some(file) => file,
            None => self.own.insert(File::open(large(self.files))?),
        };
        file.read_exact_at(&mut self.buffer[..BLOCK_BYTES], offset)
    }
}

fn large(files: &Path) -> PathBuf {
    files.join("large")
}

fn path_of(files: &Path, number: u32) -> PathBuf {
    files.join(format!("set-{}/{number}", number / FOLDER_FILES))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read_if_there(path: &Path) -> io::Result<()> {
    match fs::read(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the small files that are there when a mount starts.
pub(super) fn fill_small(files: &Path, count: u32) -> Result<(), BenchError> {
    fill(files, count, SMALL_BYTES).map_err(BenchError::file(files))
}

/// Makes a set of files, and makes it durable.
fn fill(files: &Path, count: u32, bytes: usize) -> io::Result<()> {
    let buffer = vec![7; bytes];
    for number in 0..count {
        let path = path_of(files, number);
        if number.is_multiple_of(FOLDER_FILES)
            && let Some(folder) = path.parent()
        {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, &buffer)?;
    }
    File::open(files)?.sync_all()
}

/// Writes a file in sequence by 16 KiB, then syncs it.
pub(crate) fn write_file(path: &Path, mib: u64) -> Result<(), BenchError> {
    write_and_sync(path, mib).map(drop).map_err(failed_as(BenchError::file(path)))
}

/// Writes a file in sequence, then syncs it.
fn write_and_sync(path: &Path, mib: u64) -> Result<Ran, Failed> {
    let mut final_sync_seconds = None;
    let ran = timed(mib as f64, || {
        let file = write_whole(path, mib << 20)?;
        let began = Instant::now();
        file.sync_all()?;
        final_sync_seconds = Some(began.elapsed().as_secs_f64());
        Ok::<_, io::Error>(())
    })?;
    Ok(Ran { final_sync_seconds, ..ran })
}

/// Writes a file in sequence. It is not synced.
fn write_whole(path: &Path, bytes: u64) -> io::Result<File> {
    let buffer: Vec<u8> = (0..WRITE_BYTES).map(|byte| (byte * 31 % 251) as u8).collect();
    let mut file = File::create(path)?;
    for _ in 0..bytes / WRITE_BYTES as u64 {
        file.write_all(&buffer)?;
    }
    Ok(file)
}

fn read_whole(path: &Path) -> io::Result<u64> {
    let (mut file, mut buffer, mut bytes) = (File::open(path)?, vec![0; READ_BYTES], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}

/// Makes, looks at and removes small files.
fn small(files: &Path, count: u32) -> io::Result<()> {
    let folders = count.div_ceil(FOLDER_FILES);
    for folder in 0..folders {
        fs::create_dir_all(files.join(format!("set-{folder}")))?;
    }
    for number in 0..count {
        fs::write(path_of(files, number), b"a small file")?;
    }
    for number in 0..count {
        fs::metadata(path_of(files, number))?;
    }
    for number in 0..count {
        fs::remove_file(path_of(files, number))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, ValueEnum};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: FsArgs,
    }

    fn skip(what: &str) {
        eprintln!("SKIP: {what}");
    }

    #[test]
    fn every_load_runs_on_an_ordinary_folder() {
        let args = Cli::try_parse_from(["fs", "--quick", "--seconds", "0.05"]).unwrap().settings.bounded();
        for load in LoadChoice::value_variants() {
            let dir = tempfile::tempdir().unwrap();
            // The archive of a tree lies beside the files.
            let files = dir.path().join("files");
            fs::create_dir(&files).unwrap();
            if *load == LoadChoice::Restart {
                continue;
            }
            let ran = prepare(*load, &files, &args).and_then(|()| run(*load, 2, &files, &args));
            match ran {
                Ok(ran) => assert!(ran.count > 0.0 && ran.seconds > 0.0, "{load:?}: {ran:?}"),
                Err(BenchError::Missing(what)) => skip(&what),
                Err(error) => panic!("{load:?}: {error}"),
            }
        }
    }
}
