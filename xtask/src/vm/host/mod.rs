//! `cargo xtask vm host`: the host of a file system's mount is a virtual machine, whose kernel panics again and again.
//!
//! After LineFS, section 3.5: the side that has the data runs outside of the machine and goes on without it. A chain of
//! three servers and another mount ([`beside`]) are outside. The machine ([`guest`]) mounts over its network, and makes
//! files durable. Its kernel panics at moments that the seed chooses, and it is booted again within the same QEMU: nobody
//! closes the connections that it had. What must hold each time: the first server finds out by itself that the host does
//! not answer; the program at the other mount goes on; the machine mounts again, and sees what that program has made
//! durable meanwhile; what the machine had made durable is there. That server is killed, too, while the machine runs, and
//! started again. At the end it is killed for good, while the machine writes: the next one has all of it, too.
//!
//! With `--nvdimm` the machine shares memory with that server, as a host and its SmartNIC do in LineFS: the region of the
//! chain's first server is the machine's NVDIMM. Programs in the machine have the library, and write there themselves; what
//! goes over the network is what they ask. With `--nvdimm --alone` it is the region of `landfall fs serve` ([`alone`]), and
//! there is no chain. With `--nvdimm --replica` it is that of the chain's second server: programs in the machine use the mount
//! until that is the first one, at the end.

mod alone;
mod beside;
mod guest;
mod memory;
mod outside;
mod servers;

use super::kernel::Kernel;
use super::stop::Stop;
use super::{image, obtain};
use crate::args::{Args, Grammar};
use crate::error::Error;
use crate::seed::{Random, fresh_seed};
use crate::workspace::Workspace;
use beside::Beside;
use guest::{Host, Said};
use outside::{Division, Outside};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The default number of panics.
const CYCLES: u64 = 10;
/// Files that the host makes durable before its kernel panics.
const FILES_MIN: usize = 5;
/// The longest time that it goes on after them, ms.
const MORE_MS: usize = 3000;
/// Messages of servers that indicate a bug.
const COMPLAINTS: &[&str] = &["panicked at", "ERROR"];

/// How the host and its servers are divided.
const SWITCHES: [&str; 3] = ["nvdimm", "alone", "replica"];

const GRAMMAR: Grammar = Grammar {
    values: &["cycles", "seed", "kernel"],
    switches: &["keep", "nvdimm", "alone", "replica"],
    words_max: 0,
};

/// `cargo xtask vm host`.
///
/// # Errors
/// [`Stop::Skip`] without a program or a kernel; [`Stop::Failed`] where a promise is broken.
pub(super) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Stop> {
    let args = GRAMMAR.parse(line)?;
    if !Path::new("/dev/fuse").exists() {
        return Err(Stop::Skip("this machine has no FUSE".to_owned()));
    }
    let given = args.list("kernel").last().map(PathBuf::from);
    let (kernel, binary) = obtain(workspace, given.as_deref(), &[])?;
    let folder = super::folder(workspace).join(format!("host-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|source| Error::file("create", &folder, source))?;
    let outcome = run(&args, &folder, &kernel, &binary);
    if args.has("keep") || outcome.is_err() {
        println!("  kept: {}", folder.display());
    } else {
        fs::remove_dir_all(&folder).map_err(|source| Error::file("remove", &folder, source))?;
    }
    outcome
}

fn run(args: &Args, folder: &Path, kernel: &Kernel, binary: &Path) -> Result<(), Stop> {
    let cycles = args.number("cycles")?.unwrap_or(CYCLES);
    let seed = args.number("seed")?.unwrap_or_else(fresh_seed);
    let [has_nvdimm, is_alone, is_replicas] = SWITCHES.map(|switch| args.has(switch));
    if (is_alone || is_replicas) && !has_nvdimm || is_alone && is_replicas {
        let why = "--alone, or --replica, is for a machine that shares a region: give --nvdimm, too";
        return Err(Error::Usage(why.to_owned()).into());
    }
    let division = Division { has_chain: !is_alone, has_nvdimm, is_replicas };
    let given = SWITCHES.iter().filter(|switch| args.has(switch));
    let how: String = given.map(|switch| format!(" --{switch}")).collect();
    println!(
        "  {cycles} panics of the host; again with: cargo xtask vm host{how} --cycles {cycles} --seed {seed}"
    );
    let initrd = folder.join("initrd");
    image::build(kernel, binary, folder, &initrd)?;
    let mut servers = Outside::start(binary, folder, division)?;
    let doors = servers.doors()?;
    let mut beside = Beside::start(binary, folder, &doors)?;
    let mut host = Host::start(kernel, &initrd, folder, (&doors, servers.nvdimm()))?;
    let mut random = Random::new(seed);
    for cycle in 1..=usize::try_from(cycles).unwrap_or(usize::MAX) {
        panic_once(cycle, &mut host, (&mut servers, binary, division), &beside, &mut random)?;
    }
    let wanted = host.said()?.durable.len() + FILES_MIN;
    servers.lose_first()?;
    let said = host.wait("files at the next server", |said| said.durable.len() >= wanted)?;
    if !is_alone {
        // That one has the second region.
        check_adopted(binary, &beside, is_replicas)?;
    }
    drop(host);
    beside.end_writes()?;
    beside.check_host(&said.durable)?;
    beside.check_own()?;
    println!("  the server was killed: {} files of the host are whole at the next one", said.durable.len());
    check_lost(&said, &beside, cycles + 1)?;
    beside.end()?;
    let complained = servers.logs()?;
    servers.end()?;
    Ok(quiet(&complained)?)
}

/// The host makes files durable, its kernel panics, that is noticed, it boots, and mounts again.
fn panic_once(
    cycle: usize,
    host: &mut Host,
    (servers, binary, division): (&mut Outside, &Path, Division),
    beside: &Beside,
    random: &mut Random,
) -> Result<(), Error> {
    let said = host.wait("its files", |said| said.mounts == cycle && said.new_files() >= FILES_MIN)?;
    let wanted = said.durable.len() + FILES_MIN;
    servers.restart()?;
    host.wait("files after its server was killed", |said| said.durable.len() >= wanted)?;
    std::thread::sleep(Duration::from_millis(random.below(MORE_MS) as u64));
    let said = host.said()?;
    check_adopted(binary, beside, division.has_nvdimm && !division.is_replicas)?;
    let (before, began, usual) = (beside.files(), Instant::now(), beside.take_gaps());
    let noticed = servers.count_silent_hosts()?;
    host.panic()?;
    servers.wait_for_silent_hosts(noticed + 1)?;
    host.reset()?;
    let again = host.wait("its next mount", |said| said.mounts > cycle && said.sights.len() > cycle)?;
    let (down, meanwhile, gaps) = (began.elapsed(), beside.files() - before, beside.take_gaps());
    println!(
        "  {cycle}: {} files durable, away for {:.1} s; beside it {meanwhile} files meanwhile, ms between two: p99 {:.1}, at \
         most {:.1}; before p99 {:.1}, at most {:.1}",
        said.durable.len(),
        down.as_secs_f64(),
        ms(gaps.p99),
        ms(gaps.longest),
        ms(usual.p99),
        ms(usual.longest),
    );
    if meanwhile == 0 {
        return Err(Error::Found("while the host was away, nobody else wrote anything".to_owned()));
    }
    if again.mounts != cycle + 1 {
        return Err(Error::Found(format!("the host has mounted {} times", again.mounts)));
    }
    let seen = again.sights[cycle];
    if seen < before {
        let why = format!("the host came back and saw {seen} files of {before} that were durable beside it");
        return Err(Error::Found(why));
    }
    beside.check_host(&said.durable)
}

/// Programs of the host share the region of the server that serves mounts, or use the mount.
fn check_adopted(binary: &Path, beside: &Beside, is_shared: bool) -> Result<(), Error> {
    let adopted = Outside::adopted(binary, beside.point())?;
    if (adopted > 0) == is_shared {
        return Ok(());
    }
    Err(Error::Found(format!("{adopted} operations are of programs that write to the NVDIMM")))
}

/// Each program has one file that is not durable at a time, and the other one its count, too: no more is lost with a server.
fn check_lost(said: &Said, beside: &Beside, kills: u64) -> Result<(), Error> {
    let (again, lost) = (said.again as u64, beside.lost());
    println!(
        "  {kills} kills of servers: {again} syncs of the host and {lost} beside it said that something was lost"
    );
    if again > kills || lost > 2 * kills {
        return Err(Error::Found("more is said to be lost than was under way".to_owned()));
    }
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Checks that no server has reported a bug, even if it had no visible effect.
fn quiet(logs: &str) -> Result<(), Error> {
    let complaints = logs.lines().filter(|line| COMPLAINTS.iter().any(|word| line.contains(word)));
    let count = complaints.inspect(|line| println!("  server: {line}")).count();
    if count == 0 { Ok(()) } else { Err(Error::Found(format!("{count} complaints of servers"))) }
}
