//! The configuration of a guest: its medium and its network. Each has one row here and one fragment under `guest/`.

use crate::error::Error;

/// A kind of persistent memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Medium {
    /// The name in `--mode` and in the guest's fragment.
    pub(super) name: &'static str,
    /// The start of the medium's description in the server's first log line.
    pub(super) kind: &'static str,
    /// The end of that description: how stores are flushed.
    pub(super) flush: &'static str,
    /// What the platform drains on a power loss, as a value of QEMU's `nvdimm-persistence`.
    pub(super) domain: &'static str,
    /// Size of the NVDIMM, MiB, a multiple of 16 (the alignment of a region). It is small, so that the compactor is
    /// busy.
    pub(super) size_mib: u32,
    /// The script fragment.
    pub(super) script: &'static str,
}

/// A network between host and server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// The name in `--transport` and in the guest's fragment.
    pub(super) name: &'static str,
    /// The flag of `landfall serve` that a build with this network has.
    pub(super) flag: Option<&'static str>,
    /// The first Linux version that supports it.
    pub(super) linux: (u32, u32),
    /// Kernel modules that it needs.
    pub(super) modules: &'static [&'static str],
    /// The script fragment.
    pub(super) script: &'static str,
}

/// All media. A namespace on a medium is 2 MiB smaller, and ext4 needs some space for itself.
pub(super) const MEDIA: &[Medium] = &[
    Medium {
        name: "devdax",
        kind: "device-dax:",
        flush: "; flush clwb",
        domain: "mem-ctrl",
        size_mib: 80,
        script: include_str!("guest/devdax.sh"),
    },
    Medium {
        name: "fsdax",
        kind: "fs-dax:",
        flush: "; flush clwb",
        domain: "mem-ctrl",
        size_mib: 96,
        script: include_str!("guest/fsdax.sh"),
    },
    // A platform that drains its caches: the server must detect that, and flush nothing.
    Medium {
        name: "eadr",
        kind: "device-dax:",
        flush: "; flush none needed (eADR)",
        domain: "cpu",
        size_mib: 80,
        script: include_str!("guest/devdax.sh"),
    },
];

/// All networks. On fs-DAX, whose pages the kernel does not pin for long, AF_XDP receives packets outside the region.
pub(super) const NETWORKS: &[Network] = &[
    Network {
        name: "sockets",
        flag: None,
        linux: (5, 15),
        modules: &[],
        script: include_str!("guest/sockets.sh"),
    },
    Network {
        name: "xdp",
        flag: Some("--xdp"),
        // Scatter-gather for AF_XDP.
        linux: (6, 6),
        modules: &["veth", "bridge", "af_packet"],
        script: include_str!("guest/xdp.sh"),
    },
];

/// One guest to run.
pub(super) type Guest = (&'static Medium, &'static Network);

/// The guests that `--mode` and `--transport` select. Without them, or with `all`, all guests.
///
/// # Errors
/// [`Error::Usage`] for a name that does not exist.
pub(super) fn guests(mode: Option<&str>, transport: Option<&str>) -> Result<Vec<Guest>, Error> {
    let media = chosen(mode, "mode", MEDIA, |medium| medium.name)?;
    let networks = chosen(transport, "transport", NETWORKS, |network| network.name)?;
    Ok(networks.iter().flat_map(|network| media.iter().map(move |medium| (*medium, *network))).collect())
}

fn chosen<T>(
    asked: Option<&str>,
    flag: &str,
    all: &'static [T],
    name: fn(&T) -> &'static str,
) -> Result<Vec<&'static T>, Error> {
    let asked = asked.unwrap_or("all");
    let found: Vec<&T> = all.iter().filter(|one| asked == "all" || name(one) == asked).collect();
    if found.is_empty() {
        let names: Vec<&str> = all.iter().map(name).collect();
        return Err(Error::Usage(format!("`--{flag} {asked}`: one of {}, all", names.join(", "))));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(mode: Option<&str>, transport: Option<&str>) -> Vec<String> {
        let guests = guests(mode, transport).unwrap();
        guests.iter().map(|(medium, network)| format!("{}/{}", medium.name, network.name)).collect()
    }

    #[test]
    fn without_a_choice_every_pair_is_run() {
        let all = ["devdax/sockets", "fsdax/sockets", "eadr/sockets", "devdax/xdp", "fsdax/xdp", "eadr/xdp"];
        assert_eq!(names(None, None), all);
        assert_eq!(names(Some("all"), Some("xdp")), all[3..]);
        assert_eq!(names(Some("fsdax"), None), ["fsdax/sockets", "fsdax/xdp"]);
    }

    #[test]
    fn unknown_names_are_refused() {
        for (mode, transport) in [(Some("disk"), None), (None, Some("rdma"))] {
            assert!(matches!(guests(mode, transport), Err(Error::Usage(_))), "{mode:?} {transport:?}");
        }
    }
}
