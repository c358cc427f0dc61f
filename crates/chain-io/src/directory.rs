//! The chain as clients need it: which server takes writes, and where each is reached.

use crate::clients::ClientAddress;
use crate::node::{Node, Role};
use landfall_chain::View;

/// A member of the view, for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where clients connect to it, if that is known.
    pub clients: Option<ClientAddress>,
    /// False if it is known to be silent, or behind.
    pub is_sound: bool,
}

/// What a node knows of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The name of the chain.
    pub chain: String,
    /// The version of the view.
    pub version: u64,
    /// The members, in order.
    pub members: Vec<Listed>,
    /// Why there may be a newer view.
    pub doubt: Option<String>,
}

/// Why a node does not say which server takes writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoFirst {
    /// Environment: there may be a newer view.
    #[error("the view may be out of date: {0}")]
    Doubt(String),
    /// Misuse: nobody has said where clients connect to the first server.
    #[error(
        "it is not known where clients connect to {node}, the first server: with etcd, start it with --announce HOST:PORT; \
         with a view in a file, write {node} = \"HOST:PORT\" under [clients] there"
    )]
    NoAddress {
        /// The first server.
        node: String,
    },
}

impl Directory {
    /// Where clients connect to the server that takes writes.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn first(&self) -> Result<&ClientAddress, NoFirst> {
        if let Some(doubt) = &self.doubt {
            return Err(NoFirst::Doubt(doubt.clone()));
        }
        let first = self.members.first();
        let no_address =
            || NoFirst::NoAddress { node: first.map_or(String::new(), |first| first.name.clone()) };
        first.and_then(|first| first.clients.as_ref()).ok_or_else(no_address)
    }
}

impl Node {
    /// The chain, for clients.
    pub fn directory(&self) -> Directory {
        let (view, views) = (self.view(), self.views());
        let own = |name: &str| self.own_clients().filter(|_| name == self.name()).cloned().flatten();
        let listed = |name: &String| Listed {
            name: name.clone(),
            clients: views.clients_of(name).or_else(|| own(name)),
            is_sound: views.is_sound(name),
        };
        Directory {
            chain: view.name.clone(),
            version: view.version,
            members: view.members.iter().map(|member| listed(&member.name)).collect(),
            doubt: self.doubt(&view),
        }
    }

    /// Logs which server clients are told to write to, when that changes.
    pub(crate) fn tell_of_first(&self, told: &mut Option<Result<ClientAddress, NoFirst>>) {
        let first = self.own_clients().map(|_| self.directory().first().cloned());
        if first == *told {
            return;
        }
        match &first {
            Some(Ok(address)) => tracing::info!(%address, "clients that ask are told to write there"),
            Some(Err(why)) => tracing::warn!("clients that ask are not told where to write: {why}"),
            None => {}
        }
        *told = first;
    }

    /// Why another node than the view says may be the first one. Nobody else takes writes while this node may do so.
    fn doubt(&self, view: &View) -> Option<String> {
        if self.role() == Role::First {
            return None;
        }
        // With etcd, whoever reads it knows who is first.
        let is_unproved = self.views().lease().is_none() && view.is_first(self.name());
        let unproved = is_unproved.then(|| "this server may not take writes yet".to_owned());
        self.views().doubt().or(unproved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_server_is_named_unless_there_is_a_doubt_or_no_address() {
        let address: ClientAddress = "10.0.0.1:6479".parse().unwrap();
        let first = Listed { name: "a".into(), clients: Some(address.clone()), is_sound: true };
        let known = Directory { chain: "orders".into(), version: 3, members: vec![first], doubt: None };
        assert_eq!(known.first(), Ok(&address));
        let doubted = Directory { doubt: Some("etcd is away".into()), ..known.clone() };
        assert_eq!(doubted.first(), Err(NoFirst::Doubt("etcd is away".into())));
        let mut without = known;
        without.members[0].clients = None;
        assert_eq!(without.first(), Err(NoFirst::NoAddress { node: "a".into() }));
    }
}
