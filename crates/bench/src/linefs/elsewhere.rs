//! Files on a mount on another machine that nobody changes: what they cost when they are looked at again.

use crate::common::clients::http::metric;
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::Programs;
use crate::common::progress::check_stop;
use crate::common::sys;
use crate::common::tables::{Page, spread, spread_of};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::hosts::{From, Host};
use crate::linefs::place::{Used, scratch_in};
use crate::linefs::servers::{Served, Servers, Setting, socket_of};
use landfall_testbed::own_loopback_address;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the server listens for mounts on other machines.
const PORT: u16 = 7121;
/// Bytes of each file.
const FILE_BYTES: usize = 4096;
/// Files of a directory. Each of these is four directories below the root.
const FILES_OF_DIRECTORY: u32 = 50;
/// Most files.
const FILES_MAX: u32 = 1000;
/// How long before a run nobody has changed anything: the server gives leases to all again.
const QUIET: Duration = Duration::from_millis(1200);

/// How the files are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mounted {
    /// By a shared mount of the server's machine.
    Here,
    /// As on another machine, with the memory that it has by itself.
    Elsewhere,
    /// The same, and it keeps nothing.
    KeepsNothing,
}

/// What is done with each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Stat,
    Read,
    /// It is written, by the same mount.
    Write,
}

/// One work at one kind of mount.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ElsewhereRow {
    pub(super) mounted: String,
    pub(super) work: String,
    /// Time of a file, µs.
    pub(super) us: Summary,
    /// Requests that the server has answered for a file.
    pub(super) requests: Summary,
    /// CPU time of the server and of the process that mounts, µs a file.
    pub(super) cpu_us: Summary,
}

/// What one run has found of one work.
pub(super) struct ElsewhereSample {
    us: f64,
    requests: f64,
    cpu_us: f64,
}

impl Mounted {
    pub(super) const ALL: [Self; 3] = [Self::Here, Self::Elsewhere, Self::KeepsNothing];

    /// The name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Here => "a shared mount of the server's machine",
            Self::Elsewhere => "a mount elsewhere",
            Self::KeepsNothing => "a mount elsewhere, --cache 0",
        }
    }
}

impl Work {
    const ALL: [Self; 3] = [Self::Stat, Self::Read, Self::Write];

    fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Read => "open, read, close",
            Self::Write => "open, write, close",
        }
    }

    fn run(self, file: &Path) -> io::Result<()> {
        match self {
            Self::Stat => fs::metadata(file).map(drop),
            Self::Read => fs::read(file).map(drop),
            Self::Write => {
                use std::os::unix::fs::FileExt;
                fs::File::options().write(true).open(file)?.write_all_at(&[7; FILE_BYTES], 0)
            }
        }
    }
}

impl ElsewhereRow {
    /// A row for each work, of all rounds.
    pub(super) fn all(mounted: Mounted, rounds: &[Vec<ElsewhereSample>]) -> Vec<Self> {
        let row = |(at, work): (usize, Work)| {
            let summary = |of: fn(&ElsewhereSample) -> f64| {
                Summary::of(rounds.iter().filter_map(|samples| samples.get(at)).map(of))
            };
            Some(Self {
                mounted: mounted.name().into(),
                work: work.name().into(),
                us: summary(|sample| sample.us)?,
                requests: summary(|sample| sample.requests)?,
                cpu_us: summary(|sample| sample.cpu_us)?,
            })
        };
        Work::ALL.into_iter().enumerate().filter_map(row).collect()
    }
}

/// Runs every work on files of a server that has just been started.
pub(super) fn once(
    mounted: Mounted,
    programs: &Programs,
    args: &LinefsArgs,
) -> Result<Vec<ElsewhereSample>, BenchError> {
    let scratch = scratch_in(&args.of_loads())?;
    let address = SocketAddr::from((own_loopback_address(), PORT));
    let bytes = args.region_bytes(LinefsLoad::Elsewhere);
    let files = Served::Elsewhere(address);
    let servers =
        Servers::alone(Setting { programs, scratch: scratch.path(), bytes, files, etcd: None, flags: &[] })?;
    let socket = socket_of(scratch.path(), 0);
    let from = match mounted {
        Mounted::Here => From::Socket(&socket),
        Mounted::Elsewhere => From::Address(address, "64MiB"),
        Mounted::KeepsNothing => From::Address(address, "0"),
    };
    let host = Host::mount(from, &scratch.path().join("files"))?;
    let files = make_files(host.point(), args.files.min(FILES_MAX))?;
    let pids = [servers.pids(), vec![host.pid()]].concat();
    Work::ALL.into_iter().map(|work| measure(work, &files, (host.point(), &pids), args.seconds)).collect()
}

/// Makes files in directories of directories.
fn make_files(root: &Path, count: u32) -> Result<Vec<PathBuf>, BenchError> {
    let mut files = Vec::new();
    for number in 0..count {
        let directory = root.join("a/b/c").join(format!("d{}", number / FILES_OF_DIRECTORY));
        fs::create_dir_all(&directory).map_err(BenchError::file(&directory))?;
        let file = directory.join(format!("file-{number}"));
        fs::write(&file, [7; FILE_BYTES]).map_err(BenchError::file(&file))?;
        files.push(file);
    }
    Ok(files)
}

/// Does a work with all files again and again, the first time unmeasured.
fn measure(
    work: Work,
    files: &[PathBuf],
    (point, pids): (&Path, &[u32]),
    seconds: f64,
) -> Result<ElsewhereSample, BenchError> {
    let all = || files.iter().try_for_each(|file| work.run(file).map_err(BenchError::file(file)));
    std::thread::sleep(QUIET);
    all()?;
    let (used, before, began) = (Used::by(pids.to_vec()), requests(point)?, Instant::now());
    let mut done = 0;
    while done == 0 || began.elapsed().as_secs_f64() < seconds {
        check_stop()?;
        all()?;
        done += files.len();
    }
    let (us, cpu_ns, done) = (began.elapsed().as_secs_f64() * 1e6, used.ns_since(), done as f64);
    let requests = requests(point)? - before;
    Ok(ElsewhereSample { us: us / done, requests: requests / done, cpu_us: cpu_ns as f64 / 1000.0 / done })
}

/// Requests that the server has answered so far, as a mount says.
fn requests(point: &Path) -> Result<f64, BenchError> {
    let page = sys::extended_attribute(point, "landfall.metrics").map_err(BenchError::file(point))?;
    Ok(metric(&page, "landfall_fs_requests_total").unwrap_or(0.0))
}

/// The table of a report.
pub(super) fn show(rows: &[ElsewhereRow], page: &mut Page) {
    if rows.is_empty() {
        return;
    }
    page.paragraph("## Mounts on other machines");
    page.paragraph(&format!(
        "Files of {FILE_BYTES} bytes, {FILES_OF_DIRECTORY} in each directory, four directories below the root, one after the \
         other, again and again, by one program. Server and mounts are on this machine and talk over loopback: between \
         machines, each request takes the time of a round trip more. The last column is the time on the other mounts over that \
         on a mount elsewhere. CPU is that of the server and of the process that mounts.",
    ));
    let row = |row: &ElsewhereRow| {
        let ours =
            rows.iter().find(|ours| ours.mounted == Mounted::Elsewhere.name() && ours.work == row.work);
        let over = ours.filter(|ours| ours.mounted != row.mounted).and_then(|ours| row.us.over(&ours.us));
        vec![
            row.work.clone(),
            row.mounted.clone(),
            spread(&row.us),
            spread(&row.requests),
            spread(&row.cpu_us),
            spread_of(over.as_ref()),
        ]
    };
    let head = ["work", "mount", "µs a file", "requests a file", "CPU µs a file", "time over elsewhere"];
    page.table(&head, rows.iter().map(row));
}
