//! The applications that are measured.

use landfall_handlers::Structure;
use serde::{Serialize, Serializer};

/// What serves requests, and what its clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum App {
    /// Acknowledges on reception, and forgets.
    Ideal,
    /// A durable map on persistent memory.
    Map(Structure),
    /// redis-server, `appendfsync always` on a file.
    Redis,
    /// `landfall serve` on persistent memory.
    Landfall,
    /// The Twitter clone of Redis' tutorial.
    Twitter,
    /// New-order and payment.
    Tpcc,
}

impl App {
    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ideal => "ideal",
            Self::Map(structure) => structure.name(),
            Self::Redis => "redis",
            Self::Landfall => "landfall serve",
            Self::Twitter => "twitter",
            Self::Tpcc => "tpcc",
        }
    }

    /// Whether its server is a process that speaks RESP.
    pub(crate) fn speaks_resp(self) -> bool {
        matches!(self, Self::Redis | Self::Landfall | Self::Twitter | Self::Tpcc)
    }

    /// Whether it is one of the key-value workloads: all but those whose requests depend on each other.
    pub(crate) fn is_key_value(self) -> bool {
        matches!(self, Self::Map(_) | Self::Redis | Self::Landfall)
    }
}

impl Serialize for App {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}
