//! Keys with their values, revisions and leases.

use super::http::Endpoint;
use super::wire::{decoded, number};
use crate::error::MembersError;
use serde::Deserialize;

/// A revision of one etcd cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Revision {
    /// The cluster.
    #[serde(default, rename = "cluster_id", deserialize_with = "number")]
    pub cluster: u64,
    /// It grows with each change of any key.
    #[serde(default, rename = "revision", deserialize_with = "number")]
    pub number: u64,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision in which it was created.
    pub created: u64,
    /// The revision of its last change.
    pub modified: u64,
    /// How often it was written since it was created.
    pub version: u64,
    /// The lease that it ends with.
    pub lease: Option<Lease>,
}

/// The keys of a range at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The revision.
    pub revision: Revision,
    /// In the order of keys.
    pub entries: Vec<Entry>,
    /// Whether there are more keys than were requested.
    pub more: bool,
}

/// A lease that etcd has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease(u64);

impl Lease {
    /// The lease of this id; 0 is none.
    pub fn new(id: u64) -> Option<Self> {
        (id != 0).then_some(Self(id))
    }

    /// Its id.
    pub fn id(self) -> u64 {
        self.0
    }
}

/// The JSON of a key and its value.
#[derive(Deserialize)]
pub(super) struct KeyJson {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default, deserialize_with = "number")]
    create_revision: u64,
    #[serde(default, deserialize_with = "number")]
    mod_revision: u64,
    #[serde(default, deserialize_with = "number")]
    version: u64,
    #[serde(default, deserialize_with = "number")]
    lease: u64,
}

impl KeyJson {
    pub(super) fn entry(self, endpoint: &Endpoint) -> Result<Entry, MembersError> {
        let key = decoded(endpoint, &self.key)?;
        Ok(Entry {
            key: String::from_utf8(key).map_err(|_| endpoint.nonsense("a key that is no text"))?,
            value: decoded(endpoint, &self.value)?,
            created: self.create_revision,
            modified: self.mod_revision,
            version: self.version,
            lease: Lease::new(self.lease),
        })
    }
}

/// The JSON of a range within a transaction.
#[derive(Deserialize)]
pub(super) struct FoundJson {
    #[serde(default)]
    kvs: Vec<KeyJson>,
}

/// The JSON of a range.
#[derive(Deserialize)]
pub(super) struct RangeJson {
    header: Revision,
    #[serde(flatten)]
    found: FoundJson,
    #[serde(default)]
    more: bool,
}

impl FoundJson {
    pub(super) fn entries(self, endpoint: &Endpoint) -> Result<Vec<Entry>, MembersError> {
        self.kvs.into_iter().map(|key| key.entry(endpoint)).collect()
    }
}

impl RangeJson {
    pub(super) fn range(self, endpoint: &Endpoint) -> Result<Range, MembersError> {
        Ok(Range { revision: self.header, entries: self.found.entries(endpoint)?, more: self.more })
    }
}
