//! A member: one process that is alive, as it says itself.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Most members of a chain that are looked at.
pub const MEMBERS_MAX: usize = 1024;

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Logs updates on their way.
    Device,
    /// Applies them.
    Server,
    /// Holds a copy of a server's state.
    Replica,
    /// Sends them; clients need not register.
    Client,
}

/// A member of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name: for a device that of the chain's document. In etcd it stands in the key.
    #[serde(skip)]
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Where it is reached.
    pub address: SocketAddr,
    /// Drawn at random by each start of the process, as in heartbeats: another one is another life.
    pub incarnation: u64,
    /// When it registered, seconds since 1970 by its own clock. For people.
    pub since: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_survives_its_json() {
        let member = Member {
            name: "a".into(),
            role: Role::Device,
            address: "[fe80::1]:51000".parse().unwrap(),
            incarnation: u64::MAX,
            since: 1,
        };
        let json = serde_json::to_string(&member).unwrap();
        assert_eq!(
            json,
            r#"{"role":"device","address":"[fe80::1]:51000","incarnation":18446744073709551615,"since":1}"#
        );
        let back: Member = serde_json::from_str(&json).unwrap();
        assert_eq!(back, Member { name: String::new(), ..member });
    }
}
