//! `landfall chain`: several servers with the same data.

use crate::chain_etcd::{Commands, CommandsError};
use crate::etcd::{EtcdArgs, EtcdArgsError};
use crate::output::fail;
use clap::{Args, Subcommand};
use landfall_chain::{Member, View, ViewError};
use landfall_chain_io::{NodeError, initialise, read_view, write_view};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `landfall chain`.
#[derive(Debug, Args)]
pub struct ChainArgs {
    #[command(subcommand)]
    command: ChainCommand,
}

/// T of a new chain, seconds.
const LEASE_TIME: u64 = 10;

#[derive(Debug, Subcommand)]
enum ChainCommand {
    /// Make a new chain: write its view.
    Create {
        #[command(flatten)]
        of: Which,
        /// The name of the chain, if its view is a file
        #[arg(long)]
        name: Option<String>,
        /// A node and the address on which it listens for the node before it, in the order of the chain; several times
        #[arg(long = "member", value_name = "NAME=ADDR:PORT", required = true, value_parser = parse_member)]
        members: Vec<(String, SocketAddr)>,
        /// T: a node that is silent for so many seconds is taken out; with --etcd [default: 10]
        #[arg(long, value_name = "SECONDS", requires = "etcd")]
        lease_time: Option<u64>,
    },
    /// Say that a region holds the data of a new chain: that of its first node, empty or not.
    Init {
        #[command(flatten)]
        of: Which,
        /// The first node
        #[arg(long)]
        node: String,
        /// Directory of its region
        #[arg(long)]
        dir: PathBuf,
    },
    /// Add a node at the end: with --etcd, as soon as it runs.
    Add {
        #[command(flatten)]
        of: Which,
        /// The node, and the address on which it listens for the node before it
        #[arg(value_name = "NAME=ADDR:PORT", value_parser = parse_member)]
        member: (String, SocketAddr),
    },
    /// Remove a node: the others go on without it.
    Remove {
        #[command(flatten)]
        of: Which,
        /// The node
        node: String,
    },
    /// Take a node out now, without waiting until it is silent. If it lives, it is added again at the end. With --etcd.
    Fail {
        #[command(flatten)]
        of: Which,
        /// The node
        node: String,
    },
    /// Make a node that is in step the first one: those before it are added again at the end. With --etcd.
    Promote {
        #[command(flatten)]
        of: Which,
        /// The node
        node: String,
    },
    /// Show the chain; with --etcd, also which nodes are registered and in step.
    Show {
        #[command(flatten)]
        of: Which,
    },
}

/// Which chain.
#[derive(Debug, Args)]
struct Which {
    /// The file of the view, or with --etcd the name of the chain
    #[arg(value_name = "FILE|NAME")]
    chain: PathBuf,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Where a chain is kept.
enum Kept {
    File(PathBuf),
    Etcd(Commands),
}

impl Which {
    fn kept(self) -> Result<Kept, EtcdArgsError> {
        Ok(match self.etcd.client()? {
            None => Kept::File(self.chain),
            Some(client) => Kept::Etcd(Commands::new(client, &self.chain.to_string_lossy())),
        })
    }
}

/// Why a chain was not changed.
#[derive(Debug, thiserror::Error)]
enum ChainError {
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("{0}")]
    View(#[from] ViewError),
    #[error("{0} is there already: `landfall chain add` and `remove` change it")]
    Exists(PathBuf),
    #[error(transparent)]
    Etcd(#[from] EtcdArgsError),
    #[error(transparent)]
    Commands(#[from] CommandsError),
    #[error("--name NAME is the name of a chain whose view is a file: give it, or --etcd URLS")]
    NoName,
    #[error("with --etcd, the name of the chain comes first: `landfall chain create NAME --etcd ...`")]
    TwoNames,
    #[error("no manager looks after a chain in a file: `landfall chain remove` and `add` change it")]
    NoManager,
}

fn parse_member(text: &str) -> Result<(String, SocketAddr), String> {
    let expected = || format!("{text:?} is no member: expected NAME=ADDR:PORT");
    let (name, address) = text.split_once('=').ok_or_else(expected)?;
    Ok((name.to_owned(), address.parse().map_err(|_| expected())?))
}

/// Runs `landfall chain`.
pub(crate) fn run(args: ChainArgs) -> ExitCode {
    match execute(args.command) {
        Ok(lines) => {
            crate::output::announce(&lines);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn execute(command: ChainCommand) -> Result<Vec<String>, ChainError> {
    match command {
        ChainCommand::Create { of, name, members, lease_time } => match (of.kept()?, name) {
            (Kept::File(path), Some(name)) => create(&path, name, members),
            (Kept::File(_), None) => Err(ChainError::NoName),
            (Kept::Etcd(_), Some(_)) => Err(ChainError::TwoNames),
            (Kept::Etcd(chain), None) => Ok(chain.create(members, lease_time.unwrap_or(LEASE_TIME))?),
        },
        ChainCommand::Init { of, node, dir } => {
            let view = match of.kept()? {
                Kept::File(path) => read_view(&path)?,
                Kept::Etcd(chain) => chain.view()?,
            };
            initialise(&dir, &view, &node)?;
            let chain = view.name;
            Ok(vec![format!("{} holds the data of the chain {chain} now, as its node {node}", dir.display())])
        }
        ChainCommand::Add { of, member: (name, address) } => match of.kept()? {
            Kept::File(path) => change(&path, |view| view.with(&name, &address.to_string())),
            Kept::Etcd(chain) => Ok(chain.add(&name, address)?),
        },
        ChainCommand::Remove { of, node } => match of.kept()? {
            Kept::File(path) => change(&path, |view| view.without(&node)),
            Kept::Etcd(chain) => Ok(chain.remove(&node)?),
        },
        ChainCommand::Fail { of, node } => Ok(managed(of)?.fail(&node)?),
        ChainCommand::Promote { of, node } => Ok(managed(of)?.promote(&node)?),
        ChainCommand::Show { of } => match of.kept()? {
            Kept::File(path) => Ok(describe(&read_view(&path)?)),
            Kept::Etcd(chain) => Ok(chain.show()?),
        },
    }
}

fn managed(of: Which) -> Result<Commands, ChainError> {
    match of.kept()? {
        Kept::File(_) => Err(ChainError::NoManager),
        Kept::Etcd(chain) => Ok(chain),
    }
}

fn create(path: &Path, name: String, members: Vec<(String, SocketAddr)>) -> Result<Vec<String>, ChainError> {
    if path.exists() {
        return Err(ChainError::Exists(path.into()));
    }
    let member =
        |(name, address): (String, SocketAddr)| Member { name, address: address.to_string(), since: 1 };
    let new = View { name, version: 1, members: members.into_iter().map(member).collect() };
    new.check()?;
    write_view(path, &new)?;
    Ok(describe(&new))
}

fn change(
    path: &Path,
    change: impl FnOnce(&View) -> Result<View, ViewError>,
) -> Result<Vec<String>, ChainError> {
    let next = change(&read_view(path)?)?;
    write_view(path, &next)?;
    Ok(describe(&next))
}

fn describe(view: &View) -> Vec<String> {
    let mut lines = vec![format!("chain {}, version {}", view.name, view.version)];
    lines.extend(view.members.iter().enumerate().map(|(place, member)| {
        let role = if place == 0 { "takes writes" } else { "replica" };
        format!("{} at {}, since version {}: {role}", member.name, member.address, member.since)
    }));
    lines
}
