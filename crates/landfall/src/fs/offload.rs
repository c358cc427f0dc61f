//! `landfall fs serve`, which owns a region and serves a mount that another process holds, and that other process.

use super::{FsCliError, Opened, Sync, at_signal, config, open, workers};
use crate::nvdimm;
use crate::output::{self, fail};
use crate::password::read_password;
use crate::sockets;
use crate::sys;
use clap::Args;
use landfall_fs::{Orphans, Publishing};
use landfall_fs_io::{Door, Hold, HoldSettings, ServedAt, Server, Settings, check_socket};
use landfall_media::Media;
use landfall_server::config::{Config, Size};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Clone, Debug, Args)]
pub(super) struct ServeArgs {
    /// Directory of the region (created if absent), or a DAX device
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where mounts connect: only the server's own user may [default: offload.sock in the region's directory]
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// Let mounts on other machines (`landfall fs mount --server`) connect to this address: ADDR:PORT, or a port on
    /// loopback
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// File with the password that they must give, on its first line
    #[arg(long, value_name = "FILE", requires = "listen")]
    password_file: Option<PathBuf>,
    /// Serve other machines without a password
    #[arg(long, requires = "listen")]
    insecure_no_password: bool,
    /// The region, in memory, is the NVDIMM of a virtual machine: programs there share it (`landfall fs mount --nvdimm`). There
    /// is one such machine at a time
    #[arg(long, requires = "listen")]
    nvdimm: bool,
    /// Size of the region; an existing smaller one grows [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// How much of a file's region is kept in memory [default: half of the machine's memory]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Threads that answer requests [default: the cores, 2 to 4]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// When a change becomes durable: with the next fsync, or before each call returns
    #[arg(long, value_name = "WHEN", default_value = "fsync")]
    sync: Sync,
    /// How published files get their bytes, to compare: relink (they refer to them where they landed), copy, copy-each (piece
    /// by piece)
    #[arg(long, value_name = "MODE", default_value = "relink")]
    publish: Publishing,
    /// Serve counters at http://ADDR:PORT/metrics, for Prometheus
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// Processors that the server may use, such as 2,4-7 [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Niceness of the server: programs with a lower one get the processors first
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: Option<i32>,
    /// error, warn, info, debug, trace, or a filter such as landfall_fs_io=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = crate::log::parse_level)]
    log_level: String,
}

/// Serves mounts until it is told to stop.
pub(super) fn serve(args: &ServeArgs) -> ExitCode {
    crate::log::start(&args.log_level, false);
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn run(args: &ServeArgs) -> Result<(), FsCliError> {
    // Threads that are started later inherit all of this.
    sys::ignore_size_signal();
    sys::block_stop_signals().map_err(FsCliError::Signals)?;
    if let Some(list) = &args.cpus {
        let set = cpu_set(list).ok_or_else(|| FsCliError::Cpus { text: list.clone() })?;
        sched_setaffinity(None, &set).map_err(|errno| FsCliError::Affinity(errno.into()))?;
    }
    if let Some(nice) = args.nice {
        let set = rustix::process::setpriority_process(None, nice);
        set.map_err(|errno| FsCliError::Nice(errno.into()))?;
    }
    let libraries = sockets::of_libraries(&args.dir);
    let default = libraries.is_some().then(|| sockets::of_mounts(&args.dir));
    let listens = args.socket.clone().or(default).ok_or(FsCliError::NoSocket)?;
    let mut settings = Settings { sync: args.sync.into(), socket: libraries.clone(), ..Settings::default() };
    if let Some(count) = args.workers {
        settings.workers = workers(&count.to_string())?;
    }
    let password = args.password_file.as_deref().map(read_password).transpose()?;
    let insecure_no_password = args.insecure_no_password;
    let config = Config { password, insecure_no_password, ..config(&args.dir, args.size, args.memory) };
    config.check_address(args.listen)?;
    let opened =
        open(&config, settings.workers, Orphans::Keep, |media| check(args, &config, &listens, media))?;
    let Opened { files, mut publisher, path, found } = opened;
    publisher.set_publishing(args.publish);
    if args.nvdimm {
        nvdimm::offer(&files)?;
    }
    let medium = files.heap().media().describe();
    let notes = sockets::notes_of(&args.dir, &listens);
    let at = ServedAt { socket: &listens, notes: &notes };
    let server = Server::start(files, publisher, &found, at, settings)?;
    if args.listen.is_some() {
        server.admit_elsewhere();
    }
    let mut lines = vec![format!("serving: {} at {} ({medium})", path.display(), listens.display())];
    let password = config.password.map(String::into_bytes);
    let libraries = libraries.filter(|_| args.nvdimm);
    let door = args.listen.map(|address| Door::open(address, (listens, libraries), password)).transpose()?;
    lines.extend(door.as_ref().map(|door| format!("for mounts elsewhere: {}", door.address())));
    if let Some(address) = args.metrics {
        let current = server.current();
        let address = landfall_metrics::serve(address, move || current.metrics())?;
        lines.push(format!("metrics: http://{address}/metrics"));
    }
    output::announce(&lines);
    sys::notify_ready();
    let stopper = server.stopper();
    at_signal("stopping", move || stopper.stop())?;
    server.run()?;
    tracing::info!("stopped; everything is durable");
    Ok(())
}

/// Checks that the server can serve where its flags say so, before the region is created or changed.
fn check(
    args: &ServeArgs,
    config: &Config,
    listens: &Path,
    media: Option<&dyn Media>,
) -> Result<(), FsCliError> {
    check_socket(listens, &args.dir)?;
    if let Some(address) = args.listen {
        Door::check(address, config.password.as_ref().map(String::as_bytes))?;
    }
    if args.nvdimm {
        media.map_or(Ok(()), nvdimm::check)?;
    }
    Ok(args.metrics.map_or(Ok(()), landfall_metrics::check)?)
}

/// An address to listen at.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let parsed = landfall_server::config::parse_address(text).map_err(|error| error.to_string())?;
    parsed.ok_or_else(|| "without an address, leave --listen out".to_owned())
}

/// Mounts, and keeps the mount for the server.
pub(super) fn mount(point: &Path, settings: HoldSettings) -> Result<(), FsCliError> {
    let named = settings.server.to_string();
    let hold = Hold::start(point, settings)?;
    output::announce(&[format!("mounted: {named} on {}", hold.point().display())]);
    sys::notify_ready();
    let stopper = hold.stopper();
    at_signal("unmounting", move || stopper.stop())?;
    hold.run()?;
    tracing::info!("unmounted; everything is durable");
    Ok(())
}

/// The processors of a list of numbers and ranges.
fn cpu_set(list: &str) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CpuSet::MAX_CPU {
            return None;
        }
        (first..=last).for_each(|cpu| set.set(cpu));
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_numbers_and_ranges() {
        let of = |list: &str| {
            let set = cpu_set(list)?;
            Some((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>())
        };
        assert_eq!(of("2,4-6"), Some(vec![2, 4, 5, 6]));
        assert_eq!(of("0"), Some(vec![0]));
        for list in ["", "2,", "6-4", "a", "0-99999", "-1"] {
            assert_eq!(of(list), None, "{list}");
        }
    }
}
