//! `landfall pmnet chain`: shows or changes the members of a chain and their order.

use super::members::{ChainArgs, ChainError};
use crate::output::{fail, report};
use clap::{Args, Subcommand};
use landfall_members::{Chain, Membership, View};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;

/// Flags of `landfall pmnet chain`.
#[derive(Debug, Args)]
pub(crate) struct ChainCommandArgs {
    #[command(subcommand)]
    command: ChainCommand,
}

#[derive(Debug, Subcommand)]
enum ChainCommand {
    /// Show the chain, and which members are alive
    Show {
        #[command(flatten)]
        source: ChainArgs,
    },
    /// Make a chain in etcd: the server, and the devices in order from the clients to the server
    Init {
        /// Address that clients send to
        #[arg(long, value_name = "ADDR:PORT")]
        server: SocketAddr,
        /// Names of the devices
        devices: Vec<String>,
        #[command(flatten)]
        source: ChainArgs,
    },
    /// Mark a device as lost for good: clients do not wait for it any more
    Fail {
        /// Name of the device
        device: String,
        #[command(flatten)]
        source: ChainArgs,
    },
    /// Add a device
    Add {
        /// Name of the device
        device: String,
        /// Position of the device, 0 next to the clients [default: next to the server]
        #[arg(long, value_name = "N")]
        position: Option<usize>,
        #[command(flatten)]
        source: ChainArgs,
    },
    /// Remove a device
    Remove {
        /// Name of the device
        device: String,
        #[command(flatten)]
        source: ChainArgs,
    },
    /// Replace a device by a new one
    Replace {
        /// Name of the old device
        device: String,
        /// Name of the new device
        by: String,
        #[command(flatten)]
        source: ChainArgs,
    },
}

/// Carries out the command and prints the chain.
pub(crate) fn run(args: &ChainCommandArgs) -> ExitCode {
    match carry_out(&args.command) {
        Ok(text) => report(&text, ExitCode::SUCCESS),
        Err(error) => fail(&error),
    }
}

fn carry_out(command: &ChainCommand) -> Result<String, ChainError> {
    let changed = |chain: Result<Chain, _>| Ok(show(&View { chain: chain?, members: BTreeMap::new() }));
    match command {
        ChainCommand::Show { source } => Ok(show(&source.must_source()?.show()?)),
        ChainCommand::Init { server, devices, source } => {
            let source = source.must_source()?;
            let name = match &source {
                Membership::Etcd(etcd) => etcd.name().to_owned(),
                _ => String::from("chain"),
            };
            let devices: Vec<(&str, Option<SocketAddr>)> =
                devices.iter().map(|name| (name.as_str(), None)).collect();
            let chain = Chain::new(&name, *server, &devices).map_err(landfall_members::MembersError::from)?;
            source.init(&chain)?;
            Ok(show(&source.show()?))
        }
        ChainCommand::Fail { device, source } => changed(source.must_source()?.fail_device(device)),
        ChainCommand::Add { device, position, source } => {
            changed(source.must_source()?.add_device(device, None, *position))
        }
        ChainCommand::Remove { device, source } => changed(source.must_source()?.remove_device(device)),
        ChainCommand::Replace { device, by, source } => {
            changed(source.must_source()?.replace_device(device, by, None))
        }
    }
}

fn show(View { chain, members }: &View) -> String {
    let mut text = format!("chain {}, epoch {}\n", chain.name, chain.epoch);
    for device in &chain.devices {
        let alive = members.contains_key(&device.name);
        let state = match (device.failed, alive) {
            (true, _) => "failed for good",
            (false, true) => "alive",
            (false, false) => "not registered",
        };
        text += &format!("  device {:<3} {:<20} {state}\n", device.number, device.name);
    }
    text += &format!("  server     {}\n", chain.server);
    chain.replicas.iter().for_each(|replica| text += &format!("  replica    {replica}\n"));
    for member in members.values().filter(|member| chain.device(&member.name).is_none()) {
        text += &format!("  member     {:<20} {:?} at {}\n", member.name, member.role, member.address);
    }
    text
}
