//! The host of the replica.

use crate::common::error::BenchError;
use crate::linefs::hosts::Standby;
use crate::linefs::machine::Machine;
use std::net::SocketAddr;
use std::path::Path;

/// Where the host of the replica is, and what it is made of.
pub(super) enum ReplicaHost {
    /// A process, while it runs.
    Process(Option<Standby>),
    /// A virtual machine, whose NVDIMM is the replica's region.
    Machine(Machine),
}

impl ReplicaHost {
    /// A process that mounts as soon as the server at `socket` is the first one.
    pub(super) fn process(socket: &Path, point: &Path) -> Result<Self, BenchError> {
        Ok(Self::Process(Some(Standby::start(socket, point)?)))
    }

    /// A machine that boots what is in `image`, and mounts at the first of these servers.
    pub(super) fn machine(
        image: &Path,
        region: (&Path, u64),
        servers: &[SocketAddr],
        place: &Path,
    ) -> Result<Self, BenchError> {
        Ok(Self::Machine(Machine::start(image, region, servers, place)?))
    }

    /// It fails.
    pub(super) fn fail(&mut self) -> Result<(), BenchError> {
        match self {
            Self::Process(standby) => standby.take().into_iter().for_each(Standby::kill),
            Self::Machine(machine) => machine.fail()?,
        }
        Ok(())
    }

    /// It is back: the same machine, or another process.
    pub(super) fn come_back(&mut self, socket: &Path, point: &Path) -> Result<(), BenchError> {
        match self {
            Self::Process(standby) => *standby = Some(Standby::start(socket, point)?),
            Self::Machine(machine) => machine.boot()?,
        }
        Ok(())
    }
}
