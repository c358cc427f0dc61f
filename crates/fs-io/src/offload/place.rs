//! Where a server of mounts listens.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a server of mounts is.
#[derive(Clone, Copy, Debug)]
pub struct ServedAt<'a> {
    /// Where holders connect.
    pub socket: &'a Path,
    /// What is noted for the next server has this path, and endings of its own. It belongs to the files, wherever their
    /// servers listen: whoever changes them without these mounts calls [`crate::forget_offloaded`] with it.
    pub notes: &'a Path,
}

/// Where a server of mounts listens.
#[derive(Clone, Debug)]
pub enum ServerPlace {
    /// At a socket of this machine.
    Socket(PathBuf),
    /// At an address of a network.
    Network(Addresses),
}

/// Where a server listens on a network.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// HOST:PORT of each server that may have the files: they are asked in turn.
    pub addresses: Vec<String>,
    /// Their password.
    pub password: Option<Vec<u8>>,
}

impl fmt::Display for ServerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Network(network) => network.addresses.join(",").fmt(f),
        }
    }
}
