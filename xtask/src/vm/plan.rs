//! What a guest is made of: which medium, which network. One row and one fragment under `guest/` each.

use crate::error::Error;

/// A kind of persistent memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Medium {
    /// As `--mode` and the guest's fragment name it.
    pub(super) name: &'static str,
    /// How the server's start line begins when it has found it.
    pub(super) kind: &'static str,
    /// How the start line ends: how stores are flushed there.
    pub(super) flush: &'static str,
    /// What the platform promises to drain on a power loss, as QEMU's `nvdimm-persistence` names it.
    pub(super) domain: &'static str,
    /// Size of the NVDIMM, MiB, a multiple of 16 (the alignment of a region): small, so that the compactor is busy.
    pub(super) size_mib: u32,
    /// The fragment.
    pub(super) script: &'static str,
}

/// A way to the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// As `--transport` and the guest's fragment name it.
    pub(super) name: &'static str,
    /// The flag of `landfall serve` without which a build does not have it.
    pub(super) flag: Option<&'static str>,
    /// The first Linux that it works with.
    pub(super) linux: (u32, u32),
    /// Kernel modules that it needs.
    pub(super) modules: &'static [&'static str],
    /// The fragment.
    pub(super) script: &'static str,
}

/// Every medium. A namespace on it is 2 MiB smaller, and ext4 needs some for itself.
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
    // A platform that drains its caches: the server must find out, and flush nothing.
    Medium {
        name: "eadr",
        kind: "device-dax:",
        flush: "; flush none needed (eADR)",
        domain: "cpu",
        size_mib: 80,
        script: include_str!("guest/devdax.sh"),
    },
];

/// Every network. On fs-DAX, whose pages the kernel does not pin for long, AF_XDP lands packets beside the region.
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

/// The guests that `--mode` and `--transport` ask for; without either, or with `all`, all of them.
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
