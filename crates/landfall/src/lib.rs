//! The commands of `landfall`, for the two programs that have them: `landfall` itself, and `landfall-bench`, which adds
//! the measurements.
//!
//! Read [`Command`] first: it lists the commands. [`run`] runs one.

mod chain;
mod chain_etcd;
mod check;
mod client;
mod demo;
mod etcd;
mod fs;
pub mod log;
mod nvdimm;
mod output;
mod password;
mod pmnet;
mod proxy;
mod serve;
mod sockets;
mod stats;
mod sys;
mod top;
mod version;
mod wal;

use clap::Subcommand;
use std::process::ExitCode;

pub use chain::ChainArgs;
pub use check::CheckArgs;
pub use demo::DemoArgs;
pub use demo::wire::{Http, Response};
pub use fs::FsArgs;
pub use output::fail;
pub use pmnet::PmnetArgs;
pub use proxy::ProxyArgs;
pub use serve::{ServeArgs, run_over as serve_over};
pub use stats::StatsArgs;
pub use version::long_version;
pub use wal::WalArgs;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a store over RESP (Redis's protocol) and HTTP.
    Serve(Box<ServeArgs>),
    /// Write-ahead logs: serve them, append, read, tail, trim, list.
    Wal(Box<WalArgs>),
    /// The in-network log: devices, and the side-cars that connect clients and servers to them.
    Pmnet(Box<PmnetArgs>),
    /// Files: mount a directory whose files are in a region.
    Fs(Box<FsArgs>),
    /// Several servers with the same data: make a chain, add and remove its nodes.
    Chain(Box<ChainArgs>),
    /// Connect clients that do not know Sentinel to the first server of a chain.
    Proxy(Box<ProxyArgs>),
    /// Verify every record and value of a region that no server has open.
    Check(CheckArgs),
    /// Show the counters of a running server: the sections of INFO, with the dropped packets.
    Stats(StatsArgs),
    /// Write data while the server is killed again and again; show that nothing acknowledged is lost.
    Demo(DemoArgs),
}

/// Runs as what the program is called by, where it is not `landfall`: as the helper of `mount(8)`.
pub fn run_by_name() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    let is_helper = std::path::Path::new(&name).file_name()? == fs::helper::HELPER_NAME;
    is_helper.then(fs::helper::help_mount)
}

/// Runs a command; errors go to standard error.
pub fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(args) => serve::run(*args),
        Command::Wal(args) => wal::run(*args),
        Command::Pmnet(args) => pmnet::run(*args),
        Command::Fs(args) => fs::run(*args),
        Command::Chain(args) => chain::run(*args),
        Command::Proxy(args) => proxy::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Demo(args) => demo::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    use clap::{Arg, Error};
    use std::collections::BTreeSet;

    /// One of these suits each flag that takes a value, and has no list of those possible, and no default.
    const VALUES: [&str; 8] = ["1", "100", "4KiB", "a", "127.0.0.1:1", "a,b", "a=127.0.0.1:1", "both"];

    fn parse(command: &clap::Command, args: &[String]) -> Result<(), Error> {
        let name = std::iter::once("landfall".to_owned());
        command.clone().try_get_matches_from(name.chain(args.iter().cloned())).map(drop)
    }

    fn is_refused_as(outcome: &Result<(), Error>, kind: ErrorKind) -> bool {
        outcome.as_ref().is_err_and(|error| error.kind() == kind)
    }

    /// The flag, with a value that it takes.
    fn given(command: &clap::Command, flag: &Arg) -> Option<String> {
        let long = flag.get_long()?;
        if !flag.get_action().takes_values() {
            return Some(format!("--{long}"));
        }
        let listed = flag.get_possible_values();
        let known = listed.iter().map(|value| value.get_name());
        let values =
            known.chain(flag.get_default_values().iter().filter_map(|value| value.to_str())).chain(VALUES);
        let mut given = values.map(|value| format!("--{long}={value}"));
        let wrong = [ErrorKind::ValueValidation, ErrorKind::InvalidValue];
        let suits = |given: &String| {
            let outcome = parse(command, std::slice::from_ref(given));
            !wrong.iter().any(|kind| is_refused_as(&outcome, *kind))
        };
        let found = given.find(suits);
        assert!(found.is_some(), "no value suits {}: --{long}", command.get_name());
        found
    }

    /// What is said to be missing, as it is written.
    fn missing(outcome: &Result<(), Error>) -> BTreeSet<String> {
        let Err(error) = outcome else { return BTreeSet::new() };
        match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(names)) if error.kind() == ErrorKind::MissingRequiredArgument => {
                names.iter().cloned().collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Flags that need another one and are taken beside a third one, which excludes that: they would be ignored.
    fn ignored(command: &clap::Command) -> Vec<String> {
        let flags: Vec<(&Arg, String)> =
            command.get_arguments().filter_map(|flag| Some((flag, given(command, flag)?))).collect();
        let excludes = |one: &Arg, other: &Arg| {
            command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
                || command.get_arg_conflicts_with(other).iter().any(|arg| arg.get_id() == one.get_id())
        };
        let always = missing(&parse(command, &[]));
        let needs = |text: &String| -> Vec<&(&Arg, String)> {
            let named = missing(&parse(command, std::slice::from_ref(text)));
            let is_needed = |name: &String| named.contains(name) && !always.contains(name);
            flags.iter().filter(|(flag, _)| is_needed(&flag.to_string())).collect()
        };
        let mut found = Vec::new();
        for (flag, text) in &flags {
            for (needed, _) in needs(text) {
                let others = flags.iter().filter(|(other, _)| excludes(other, needed));
                for (_, other) in others.filter(|(other, _)| other.get_id() != flag.get_id()) {
                    let mut args = vec![text.clone(), other.clone()];
                    args.extend(needs(other).into_iter().map(|(_, text)| text.clone()));
                    let outcome = parse(command, &args);
                    let is_refused = is_refused_as(&outcome, ErrorKind::ArgumentConflict)
                        || missing(&outcome).contains(&needed.to_string());
                    if !is_refused {
                        found.push(format!("{}: {}", command.get_name(), args.join(" ")));
                    }
                }
            }
        }
        found
    }

    #[test]
    fn the_readme_names_every_flag_of_serve() {
        let readme = include_str!("../../../README.md");
        let mut commands = Command::augment_subcommands(clap::Command::new("landfall"));
        let serve = commands.find_subcommand_mut("serve").expect("it is there");
        let flags = serve.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(Arg::get_long);
        let unnamed: Vec<&str> = flags.filter(|flag| !readme.contains(&format!("`--{flag}"))).collect();
        assert!(unnamed.is_empty(), "{unnamed:?}");
    }

    #[test]
    fn no_flag_is_ignored() {
        let mut open = vec![Command::augment_subcommands(clap::Command::new("landfall"))];
        let (mut found, mut commands) = (Vec::new(), 0);
        while let Some(mut command) = open.pop() {
            command.build();
            open.extend(command.get_subcommands().filter(|command| command.get_name() != "help").cloned());
            found.extend(ignored(&command));
            commands += 1;
        }
        assert!(commands > 30, "{commands}");
        assert!(found.is_empty(), "{found:#?}");
    }
}
