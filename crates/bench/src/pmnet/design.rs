//! The designs that are compared.

use super::app::{App, On};
use super::course::{Beside, Place};
use crate::common::report::by_name;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How an update becomes durable, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Design {
    /// Client and server with nothing between them.
    Direct,
    /// Through a device that forwards in the kernel: the paper's Client-Server. Redis-protocol servers over TCP.
    ClientServer,
    /// Client and server over TCP, through a device that forwards in the kernel.
    Tcp,
    /// Through a device that logs nothing: all requests are bypasses. A device that busy-polls forwards them itself,
    /// otherwise the kernel does.
    Bypass,
    /// Logged by this many devices in a row. The server has as many copies.
    Pmnet { devices: u8, log: On, cache: bool },
    /// Logged by one device that is the server's network card, behind a switch that only forwards.
    Nic,
    /// Logged at the server, in a separate process, on this many hosts.
    ServerLog { copies: u8 },
    /// Logged at the client, in a separate process, on this many hosts.
    ClientLog { copies: u8 },
    /// The server has every update on two other servers before it answers.
    Replicated,
}

/// The largest number of copies of an update in any design.
const COPIES_MAX: u8 = 3;

/// One device with its log in memory.
pub(crate) const PMNET: Design = Design::Pmnet { devices: 1, log: On::Memory, cache: false };
/// Three devices with their logs in memory.
pub(crate) const PMNET_3: Design = Design::Pmnet { devices: 3, log: On::Memory, cache: false };
/// One device with its log on a file.
pub(crate) const PMNET_FILE: Design = Design::Pmnet { devices: 1, log: On::File, cache: false };
/// One device with a read cache.
pub(crate) const PMNET_CACHE: Design = Design::Pmnet { devices: 1, log: On::Memory, cache: true };

impl Design {
    /// Every design.
    fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Direct, Self::ClientServer, Self::Tcp, Self::Bypass, Self::Nic, Self::Replicated]
            .into_iter();
        others.chain((1..=COPIES_MAX).flat_map(|copies| {
            let logs = [On::Memory, On::File].into_iter();
            let logs = logs.flat_map(|log| [true, false].map(|cache| (log, cache)));
            let pmnet = logs.map(move |(log, cache)| Self::Pmnet { devices: copies, log, cache });
            pmnet.chain([Self::ServerLog { copies }, Self::ClientLog { copies }])
        }))
    }

    /// The name in reports.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Direct => "direct".into(),
            Self::ClientServer => "client-server".into(),
            Self::Tcp => "client-server, TCP".into(),
            Self::Bypass => "bypass".into(),
            Self::Pmnet { devices, log, cache } => {
                let copies = if devices == 1 { String::new() } else { format!(", {devices} devices") };
                let log = if log == On::File { ", log on a file" } else { "" };
                let cache = if cache { " with read cache" } else { "" };
                format!("PMNet{copies}{log}{cache}")
            }
            Self::Nic => "PMNet-NIC".into(),
            Self::ServerLog { copies } => logging("server-side", copies),
            Self::ClientLog { copies } => logging("client-side", copies),
            Self::Replicated => "client-server, 3-way".into(),
        }
    }

    /// Returns the number of devices between client and server. Only the direct design has none.
    pub(crate) fn devices(self) -> u8 {
        match self {
            Self::Direct => 0,
            Self::Pmnet { devices, .. } => devices,
            _ => 1,
        }
    }

    /// Returns where its devices are.
    pub(crate) fn place(self) -> Place {
        match self {
            Self::Nic => Place::AtServer,
            _ => Place::Between(self.devices()),
        }
    }

    /// Whether devices answer its updates.
    pub(crate) fn is_logged_on_the_way(self) -> bool {
        matches!(self, Self::Pmnet { .. } | Self::Nic)
    }

    /// Whether its requests are PMNet's.
    pub(crate) fn is_pmnet(self) -> bool {
        self.is_logged_on_the_way() || self == Self::Bypass
    }

    /// Returns which end has replicas.
    pub(crate) fn beside(self) -> Beside {
        match self {
            Self::Replicated | Self::Pmnet { devices: 2.., .. } | Self::ServerLog { copies: 2.. } => {
                Beside::Server
            }
            Self::ClientLog { copies: 2.. } => Beside::Client,
            _ => Beside::Nobody,
        }
    }
}

fn logging(side: &str, copies: u8) -> String {
    let copies = if copies == 1 { String::new() } else { format!(", {copies}-way") };
    format!("{side} logging{copies}")
}

impl Serialize for Design {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for Design {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        by_name(from, Self::all(), |design| design.name(), "the name of a design")
    }
}

/// How the ends wait for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Waits {
    /// Every process waits in the kernel.
    Block,
    /// The device busy-polls, like a switch's pipeline. Clients and servers wait in the kernel, as in the paper.
    Polls,
    /// The client, and the process that answers it, busy-poll for packets and never wait.
    Spin,
}

impl Waits {
    /// Returns the words behind a design's name. Empty if every process waits in the kernel.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Block => "",
            Self::Polls => ", device polls",
            Self::Spin => ", spinning",
        }
    }
}

/// One contestant under one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) app: App,
    pub(crate) design: Design,
    pub(crate) waits: Waits,
    pub(crate) clients: usize,
    /// Bytes of a payload, or of a value.
    pub(crate) payload: usize,
    /// Share of updates, percent.
    pub(crate) updates: u32,
    /// Whether the client pauses after each request, so that work that it does not wait for does not delay the next
    /// request. In the paper, the server has a machine of its own. Only for a single client.
    pub(crate) rests: bool,
}

impl Spec {
    /// The ideal handler with updates only. Its one client pauses between them.
    pub(crate) fn ideal(design: Design, waits: Waits, payload: usize) -> Self {
        let spec = Self { app: App::Ideal, design, waits, clients: 1, payload, updates: 100, rests: true };
        spec.by_design(design)
    }

    /// Returns this load on another design. No device busy-polls if there is none, or if several share a core.
    pub(crate) fn by_design(self, design: Design) -> Self {
        let polls = design.is_logged_on_the_way() && design.devices() == 1;
        let waits = if self.waits == Waits::Polls && !polls { Waits::Block } else { self.waits };
        Self { design, waits, ..self }
    }

    /// Returns this load with `clients` clients that never pause.
    pub(crate) fn by(self, clients: usize) -> Self {
        Self { clients, rests: false, ..self }
    }

    /// Returns the factor by which its client's pause is longer, so that all servers finish within it: three servers on
    /// one core take three times as long.
    pub(crate) fn rest_factor(&self) -> u32 {
        self.app.rests() * if self.design.beside() == Beside::Server { 3 } else { 1 }
    }

    /// Describes it in one line.
    pub(crate) fn describe(&self) -> String {
        let waits = self.waits.words();
        let rests = if self.rests { " that rests" } else { "" };
        let clients = if self.clients == 1 { "1 client".into() } else { format!("{} clients", self.clients) };
        format!(
            "{}, {}{waits}, {clients}{rests}, {} B, {} % updates",
            self.app.name(),
            self.design.name(),
            self.payload,
            self.updates
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_has_a_name_of_its_own() {
        let all: Vec<Design> = Design::all().collect();
        assert_eq!(all.len(), 6 + 3 * 6);
        let names: std::collections::BTreeSet<String> = all.iter().map(|design| design.name()).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn the_network_card_is_at_the_server_and_may_poll_as_a_switch_does() {
        assert_eq!((Design::Nic.place(), PMNET.place()), (Place::AtServer, Place::Between(1)));
        let spec = Spec::ideal(PMNET, Waits::Polls, 100).by_design(Design::Nic);
        assert_eq!((spec.waits, spec.design.devices()), (Waits::Polls, 1));
    }

    #[test]
    fn copies_elsewhere_need_hosts_beside() {
        assert_eq!(PMNET.beside(), Beside::Nobody);
        assert_eq!(PMNET_3.beside(), Beside::Server);
        assert_eq!(Design::ClientLog { copies: 3 }.beside(), Beside::Client);
    }
}
