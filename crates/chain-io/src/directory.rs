//! The chain as clients need it: which server takes writes, and where each is reached.

use crate::clients::ClientAddress;

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
