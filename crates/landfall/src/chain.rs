//! `landfall chain`: several servers with the same data.

use crate::chain_etcd::{Commands, CommandsError};
use crate::etcd::{EtcdArgs, EtcdArgsError};
use crate::output::fail;
use clap::{Args, Subcommand};
use landfall_chain::{Member, View, ViewError};
use landfall_chain_io::{ClientAddress, NodeError, ViewDocument, initialise, read_document, write_document};
use landfall_server::shared::now_ns;
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

/// How a node is given.
const MEMBER: &str = "NAME=ADDR:PORT[,HOST:PORT]";

/// A node as people give it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NewMember {
    name: String,
    address: SocketAddr,
    clients: Option<ClientAddress>,
}

#[derive(Debug, Subcommand)]
enum ChainCommand {
    /// Make a new chain: write its view.
    Create {
        #[command(flatten)]
        of: Which,
        /// The name of the chain, if its view is a file
        #[arg(long)]
        name: Option<String>,
        /// A node and the address on which it listens for the node before it, in the order of the chain; several times. In a
        /// file, also where clients connect to it; with --etcd, servers say that themselves
        #[arg(long = "member", value_name = MEMBER, required = true, value_parser = parse_member)]
        members: Vec<NewMember>,
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
        /// The node, the address on which it listens for the node before it, and in a file where clients connect to it
        #[arg(value_name = MEMBER, value_parser = parse_member)]
        member: NewMember,
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
    #[error(
        "with --etcd, a server says itself where clients connect to it (`landfall serve --announce HOST:PORT`): leave {0} out"
    )]
    Clients(ClientAddress),
    #[error("no manager looks after a chain in a file: `landfall chain remove` and `add` change it")]
    NoManager,
}

fn parse_member(text: &str) -> Result<NewMember, String> {
    let expected = || format!("{text:?} is no member: expected {MEMBER}");
    let (name, addresses) = text.split_once('=').ok_or_else(expected)?;
    let (address, clients) = match addresses.split_once(',') {
        None => (addresses, None),
        Some((address, clients)) => (address, Some(clients.parse().map_err(|_| expected())?)),
    };
    let address: SocketAddr = address.parse().map_err(|_| expected())?;
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err(format!(
            "the other nodes cannot connect to {address}: give an address of the machine of {name}, and a port"
        ));
    }
    Ok(NewMember { name: name.to_owned(), address, clients })
}

/// A node of a chain in etcd, of which people say nothing about clients.
fn without_clients(member: NewMember) -> Result<(String, SocketAddr), ChainError> {
    match member.clients {
        Some(clients) => Err(ChainError::Clients(clients)),
        None => Ok((member.name, member.address)),
    }
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
            (Kept::Etcd(chain), None) => {
                let members = members.into_iter().map(without_clients).collect::<Result<_, _>>()?;
                Ok(chain.create(members, lease_time.unwrap_or(LEASE_TIME))?)
            }
        },
        ChainCommand::Init { of, node, dir } => {
            let view = match of.kept()? {
                Kept::File(path) => read_document(&path)?.view,
                Kept::Etcd(chain) => chain.view()?,
            };
            initialise(&dir, &view, &node)?;
            let chain = view.name;
            Ok(vec![format!("{} holds the data of the chain {chain} now, as its node {node}", dir.display())])
        }
        ChainCommand::Add { of, member } => match of.kept()? {
            Kept::File(path) => change(&path, |document| {
                document.view = document.view.with(&member.name, &member.address.to_string())?;
                document.clients.extend(member.clients.map(|clients| (member.name, clients)));
                Ok(())
            }),
            Kept::Etcd(chain) => {
                let (name, address) = without_clients(member)?;
                Ok(chain.add(&name, address)?)
            }
        },
        ChainCommand::Remove { of, node } => match of.kept()? {
            Kept::File(path) => change(&path, |document| {
                document.view = document.view.without(&node)?;
                Ok(())
            }),
            Kept::Etcd(chain) => Ok(chain.remove(&node)?),
        },
        ChainCommand::Fail { of, node } => Ok(managed(of)?.fail(&node)?),
        ChainCommand::Promote { of, node } => Ok(managed(of)?.promote(&node)?),
        ChainCommand::Show { of } => match of.kept()? {
            Kept::File(path) => Ok(describe(&read_document(&path)?)),
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

fn create(path: &Path, name: String, members: Vec<NewMember>) -> Result<Vec<String>, ChainError> {
    if path.exists() {
        return Err(ChainError::Exists(path.into()));
    }
    let member = |new: &NewMember| (new.name.clone(), new.address.to_string());
    let view = View::create(name, members.iter().map(member), now_ns() / 1_000_000_000)?;
    let clients = members.into_iter().filter_map(|new| Some((new.name, new.clients?))).collect();
    let document = ViewDocument { view, clients };
    write_document(path, &document)?;
    Ok(describe(&document))
}

fn change(
    path: &Path,
    change: impl FnOnce(&mut ViewDocument) -> Result<(), ViewError>,
) -> Result<Vec<String>, ChainError> {
    let mut document = read_document(path)?;
    change(&mut document)?;
    write_document(path, &document)?;
    Ok(describe(&document))
}

fn describe(ViewDocument { view, clients }: &ViewDocument) -> Vec<String> {
    let mut lines = vec![format!("chain {}, version {}", view.name, view.version)];
    lines.extend(view.members.iter().enumerate().map(|(place, Member { name, address, since })| {
        let role = if place == 0 { "takes writes" } else { "replica" };
        let clients = clients.get(name).map(|at| format!("; clients connect to {at}")).unwrap_or_default();
        format!("{name} at {address}, since version {since}: {role}{clients}")
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_an_address_for_nodes_and_perhaps_one_for_clients() {
        let plain = parse_member("a=127.0.0.1:7101").unwrap();
        assert_eq!((&*plain.name, plain.address.port(), plain.clients), ("a", 7101, None));
        let with = parse_member("b=127.0.0.1:7102,db-2.example.org:6479").unwrap();
        assert_eq!(with.clients.unwrap().to_string(), "db-2.example.org:6479");
        for text in ["a", "a=b", "a=127.0.0.1:7101,", "a=127.0.0.1:7101,host", "a=host:7101"] {
            assert!(parse_member(text).unwrap_err().contains(MEMBER), "{text}");
        }
    }

    #[test]
    fn a_member_has_an_address_to_which_others_connect() {
        for text in ["a=0.0.0.0:7101", "a=[::]:7101", "a=127.0.0.1:0", "a=0.0.0.0:7101,127.0.0.1:6479"] {
            let wrong = parse_member(text).err().unwrap_or_default();
            assert!(wrong.contains("an address of the machine of a, and a port"), "{text}: {wrong}");
        }
    }
}
