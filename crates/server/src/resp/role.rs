//! `ROLE`, and what `INFO replication` says in the words of Redis.
//!
//! Offsets are 0 everywhere: what is acknowledged is at every server that is in step, so that none is ahead of another.

use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use crate::shared::Shared;
use landfall_chain_io::{ClientAddress, Node, Role};

const FLAGS: Flags = Flags::SERVER.and(Flags::NO_SCRIPT).and(Flags::FAST);

pub(super) const SPECS: &[Spec] =
    &[Spec::new("role", 1, FLAGS, role, "server", "Returns the replication role.")];

/// The part of a server in replication, in the words of Redis.
pub(super) enum Part {
    /// It takes writes. These replicas have everything.
    Master { replicas: Vec<ClientAddress> },
    /// It takes none.
    Slave { master: Option<ClientAddress>, link: Link },
}

/// What a replica has of its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Everything.
    Connected,
    /// It is copied to, or waits for another node.
    Sync,
    /// It does not have its place in the chain for sure.
    Connect,
}

impl Link {
    fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Sync => "sync",
            Self::Connect => "connect",
        }
    }
}

impl Part {
    /// The part of this server at this moment.
    pub(super) fn of(shared: &Shared) -> Self {
        let Some(node) = &shared.chain else { return Self::Master { replicas: Vec::new() } };
        let link = match node.role() {
            Role::First => return Self::Master { replicas: replicas(node) },
            Role::Replica => Link::Connected,
            Role::Waiting => Link::Sync,
            Role::Removed | Role::Fenced => Link::Connect,
        };
        Self::Slave { master: node.directory().first().cloned().ok(), link }
    }

    /// `master` or `slave`, as in `ROLE` and `INFO`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Master { .. } => "master",
            Self::Slave { .. } => "slave",
        }
    }

    /// Fields of `INFO replication` with their values.
    pub(super) fn info(&self) -> Vec<(String, String)> {
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match self {
            Self::Master { replicas } => {
                let line = |(at, ClientAddress { host, port }): (usize, &ClientAddress)| {
                    (format!("slave{at}"), format!("ip={host},port={port},state=online,offset=0,lag=0"))
                };
                replicas.iter().enumerate().map(line).collect()
            }
            Self::Slave { master, link } => {
                let (host, port) = master.as_ref().map_or(("?", 0), |master| (&master.host, master.port));
                let status = if *link == Link::Connected { "up" } else { "down" };
                let is_copied_to = if *link == Link::Sync { "1" } else { "0" };
                vec![
                    line("master_host", host),
                    line("master_port", &port.to_string()),
                    line("master_link_status", status),
                    line("master_sync_in_progress", is_copied_to),
                    line("slave_read_repl_offset", "0"),
                    line("slave_repl_offset", "0"),
                    line("slave_priority", "100"),
                    line("slave_read_only", "1"),
                    line("replica_announced", "1"),
                ]
            }
        }
    }
}

/// Where clients reach the servers behind the first one that have everything, as far as that is known.
fn replicas(node: &Node) -> Vec<ClientAddress> {
    let behind = node.directory().members.into_iter().skip(1).take(node.copies_behind().into());
    behind.filter_map(|member| member.clients).collect()
}

fn role(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let part = Part::of(call.shared());
    let mut out = call.out();
    match &part {
        Part::Master { replicas } => {
            out.array(3);
            out.bulk(b"master");
            out.integer(0);
            out.array(replicas.len());
            for ClientAddress { host, port } in replicas {
                out.array(3);
                out.bulk(host.as_bytes());
                out.bulk(port.to_string().as_bytes());
                out.bulk(b"0");
            }
        }
        Part::Slave { master, link } => {
            let (host, port) = master.as_ref().map_or(("?", 0), |master| (&master.host, master.port));
            out.array(5);
            out.bulk(b"slave");
            out.bulk(host.as_bytes());
            out.integer(port.into());
            out.bulk(link.name().as_bytes());
            out.integer(0);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_read_of_a_replica_says_whether_it_has_everything() {
        let master: ClientAddress = "[::1]:6479".parse().unwrap();
        let info = |link| Part::Slave { master: Some(master.clone()), link }.info();
        let value = |link, name: &str| {
            info(link).into_iter().find(|(field, _)| field == name).map(|(_, value)| value).unwrap()
        };
        assert_eq!(value(Link::Connected, "master_host"), "::1");
        assert_eq!(value(Link::Connected, "master_link_status"), "up");
        assert_eq!(value(Link::Sync, "master_link_status"), "down");
        assert_eq!(value(Link::Sync, "master_sync_in_progress"), "1");
        assert_eq!(value(Link::Connect, "master_sync_in_progress"), "0");
    }

    #[test]
    fn a_master_lists_replicas_as_redis_does() {
        let replicas = vec!["10.0.0.2:6479".parse().unwrap()];
        let info = Part::Master { replicas }.info();
        assert_eq!(info, [("slave0".into(), "ip=10.0.0.2,port=6479,state=online,offset=0,lag=0".into())]);
    }
}
