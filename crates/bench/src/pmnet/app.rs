//! The applications that are measured.

use crate::common::report::by_name;
use landfall_bench_handlers::Structure;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// The medium of a device's log or of an application's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum On {
    /// tmpfs, with the stores, flushes and fences of persistent memory.
    Memory,
    /// A file.
    File,
}

/// The application that serves requests, which decides what its clients request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum App {
    /// The ideal handler: it acknowledges a request and does nothing else.
    Ideal,
    /// A durable map on persistent memory.
    Map(Structure),
    /// A durable map on a file: each commit ends with `fdatasync`.
    Filed(Structure),
    /// redis-server, `appendfsync always`.
    Redis(On),
    /// `landfall serve` on persistent memory.
    Landfall,
    /// The Twitter clone of Redis' tutorial, on redis-server.
    Twitter(On),
    /// New-order and payment, on redis-server.
    Tpcc(On),
}

impl App {
    /// Every application.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let maps =
            Structure::ALL.into_iter().flat_map(|structure| [Self::Map(structure), Self::Filed(structure)]);
        let on_redis = [On::Memory, On::File].into_iter();
        let on_redis = on_redis.flat_map(|on| [Self::Redis(on), Self::Twitter(on), Self::Tpcc(on)]);
        [Self::Ideal, Self::Landfall].into_iter().chain(maps).chain(on_redis)
    }

    /// The name in reports.
    pub(crate) fn name(self) -> Cow<'static, str> {
        let name = match self {
            Self::Ideal => "ideal",
            Self::Map(structure) => structure.name(),
            Self::Filed(structure) => return format!("{} on a file", structure.name()).into(),
            Self::Redis(On::File) => "redis",
            Self::Redis(On::Memory) => "redis on tmpfs",
            Self::Landfall => "landfall serve",
            Self::Twitter(On::File) => "twitter",
            Self::Twitter(On::Memory) => "twitter on tmpfs",
            Self::Tpcc(On::File) => "tpcc",
            Self::Tpcc(On::Memory) => "tpcc on tmpfs",
        };
        name.into()
    }

    /// Returns its structure, if it is one of the maps.
    pub(crate) fn structure(self) -> Option<Structure> {
        match self {
            Self::Map(structure) | Self::Filed(structure) => Some(structure),
            _ => None,
        }
    }

    /// Returns whether its data lie on an ordinary file system.
    pub(crate) fn is_on_file(self) -> bool {
        matches!(
            self,
            Self::Filed(_) | Self::Redis(On::File) | Self::Twitter(On::File) | Self::Tpcc(On::File)
        )
    }

    /// Whether its server is redis-server.
    pub(crate) fn is_on_redis(self) -> bool {
        matches!(self, Self::Redis(_) | Self::Twitter(_) | Self::Tpcc(_))
    }

    /// Returns the factor by which its client's pause is longer, so that the server finishes within it. It is above 1
    /// where commits wait for a file or a side-car passes requests on.
    pub(crate) fn rests(self) -> u32 {
        if self.is_on_file() || self.speaks_resp() { 4 } else { 1 }
    }

    /// Whether its server is a process that speaks RESP.
    pub(crate) fn speaks_resp(self) -> bool {
        self.is_on_redis() || self == Self::Landfall
    }

    /// Returns whether it is a key-value workload: its requests do not depend on each other.
    pub(crate) fn is_key_value(self) -> bool {
        matches!(self, Self::Map(_) | Self::Filed(_) | Self::Redis(_) | Self::Landfall)
    }
}

impl Serialize for App {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for App {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        by_name(from, Self::all(), |app| app.name(), "the name of an application")
    }
}
