//! A member: one process that has registered itself.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Most members of a chain that are read.
pub const MEMBERS_MAX: usize = 1024;

/// The function of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Logs updates on their way.
    Device,
    /// Applies updates.
    Server,
    /// Holds a copy of a server's state.
    Replica,
    /// Sends updates. Clients need not register.
    Client,
}

/// A member of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name; for a device, its name in the chain's document. In etcd it is a part of the key.
    #[serde(skip)]
    pub name: String,
    /// The function of the member.
    pub role: Role,
    /// The address at which others reach the member.
    pub address: SocketAddr,
    /// A random number that each start of the process draws, as in heartbeats. It distinguishes restarts.
    pub incarnation: u64,
    /// Time of the registration by the member's own clock, Unix seconds. For people.
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
