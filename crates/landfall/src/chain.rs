//! `landfall chain`: several servers with the same data.

use crate::output::fail;
use clap::{Args, Subcommand};
use landfall_chain::{Member, View, ViewError};
use landfall_chain_io::{NodeError, initialise, read_view, write_view};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `landfall chain`.
#[derive(Debug, Args)]
pub struct ChainArgs {
    #[command(subcommand)]
    command: ChainCommand,
}

#[derive(Debug, Subcommand)]
enum ChainCommand {
    /// Write the view of a new chain.
    Create {
        /// The file of the view
        view: PathBuf,
        /// The name of the chain
        #[arg(long)]
        name: String,
        /// A node and the address on which it listens for the node before it, in the order of the chain; several times
        #[arg(long = "member", value_name = "NAME=ADDR:PORT", required = true, value_parser = parse_member)]
        members: Vec<(String, SocketAddr)>,
    },
    /// Say that a region holds the data of a new chain: that of its first node, empty or not.
    Init {
        /// The file of the view
        view: PathBuf,
        /// The first node
        #[arg(long)]
        node: String,
        /// Directory of its region
        #[arg(long)]
        dir: PathBuf,
    },
    /// Add a node at the end.
    Add {
        /// The file of the view
        view: PathBuf,
        /// The node, and the address on which it listens for the node before it
        #[arg(value_name = "NAME=ADDR:PORT", value_parser = parse_member)]
        member: (String, SocketAddr),
    },
    /// Remove a node: the others go on without it.
    Remove {
        /// The file of the view
        view: PathBuf,
        /// The node
        node: String,
    },
    /// Show the view.
    Show {
        /// The file of the view
        view: PathBuf,
    },
}

/// Why a view was not changed.
#[derive(Debug, thiserror::Error)]
enum ChainError {
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("{0}")]
    View(#[from] ViewError),
    #[error("{0} is there already: `landfall chain add` and `remove` change it")]
    Exists(PathBuf),
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
        ChainCommand::Create { view, name, members } => {
            if view.exists() {
                return Err(ChainError::Exists(view));
            }
            let member = |(name, address): (String, SocketAddr)| Member {
                name,
                address: address.to_string(),
                since: 1,
            };
            let new = View { name, version: 1, members: members.into_iter().map(member).collect() };
            new.check()?;
            write_view(&view, &new)?;
            Ok(describe(&new))
        }
        ChainCommand::Init { view, node, dir } => {
            let of = read_view(&view)?;
            initialise(&dir, &of, &node)?;
            Ok(vec![format!(
                "{} holds the data of the chain {} now, as its node {node}",
                dir.display(),
                of.name
            )])
        }
        ChainCommand::Add { view, member: (name, address) } => {
            let next = read_view(&view)?.with(&name, &address.to_string())?;
            write_view(&view, &next)?;
            Ok(describe(&next))
        }
        ChainCommand::Remove { view, node } => {
            let next = read_view(&view)?.without(&node)?;
            write_view(&view, &next)?;
            Ok(describe(&next))
        }
        ChainCommand::Show { view } => Ok(describe(&read_view(&view)?)),
    }
}

fn describe(view: &View) -> Vec<String> {
    let mut lines = vec![format!("chain {}, version {}", view.name, view.version)];
    lines.extend(view.members.iter().enumerate().map(|(place, member)| {
        let role = if place == 0 { "takes writes" } else { "replica" };
        format!("{} at {}, since version {}: {role}", member.name, member.address, member.since)
    }));
    lines
}
