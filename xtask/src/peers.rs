//! External programs: those that tests compare against or drive clients with, and those that other commands list. None
//! is needed for a build.

use crate::error::Error;
use crate::process::{self, Keep};
use crate::workspace::Workspace;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Time limit for fetching a package index and a few packages, the largest of 8 MB. A longer time means that the mirror
/// hangs.
const INSTALL_LIMIT: Duration = Duration::from_secs(240);
const PROBE_LIMIT: Duration = Duration::from_secs(20);

/// A program, its Debian package, and what cannot be tested without it.
pub(crate) struct Peer {
    /// The program's name in messages.
    pub(crate) name: &'static str,
    /// The Debian package.
    pub(crate) package: &'static str,
    /// What cannot be tested without it.
    pub(crate) skipped: &'static str,
    /// A command that exits with 0 if the program is installed.
    pub(crate) probe: &'static [&'static str],
}

/// The programs that the tests of `ci` use.
pub(crate) const PEERS: &[Peer] = &[
    Peer {
        name: "redis-server",
        package: "redis-server",
        skipped: "comparisons with redis",
        probe: &["redis-server", "--version"],
    },
    Peer {
        name: "redis-cli",
        package: "redis-tools",
        skipped: "tests with redis-cli",
        probe: &["redis-cli", "--version"],
    },
    Peer {
        name: "redis-benchmark",
        package: "redis-tools",
        skipped: "tests with redis-benchmark",
        probe: &["redis-benchmark", "--version"],
    },
    // wrk prints its version and exits with 1.
    Peer {
        name: "wrk",
        package: "wrk",
        skipped: "HTTP load tests",
        probe: &["sh", "-c", "wrk --version | grep -q wrk"],
    },
    Peer { name: "curl", package: "curl", skipped: "tests with curl", probe: &["curl", "--version"] },
    Peer {
        name: "redis-py",
        package: "python3-redis",
        skipped: "tests with redis-py",
        probe: &["sh", "-c", "python3 -c 'import redis' || /usr/bin/python3 -c 'import redis'"],
    },
    Peer {
        name: "LevelDB",
        package: "libleveldb1d",
        skipped: "the comparison of data management with LevelDB",
        probe: &[
            "sh",
            "-c",
            "ldconfig -p 2>/dev/null | grep -q libleveldb || /sbin/ldconfig -p | grep -q libleveldb",
        ],
    },
    Peer {
        name: "ethtool",
        package: "ethtool",
        skipped: "tests of flows that change queues",
        probe: &["sh", "-c", "PATH=$PATH:/usr/sbin:/sbin ethtool --version"],
    },
    // A chain's order and its members' leases are tested against the real etcd. A substitute would not show what its
    // gateway answers and when a lease ends.
    Peer {
        name: "etcd",
        package: "etcd-server",
        skipped: "tests of PMNet's membership in etcd",
        probe: &["etcd", "--version"],
    },
];

/// `cargo xtask peers`.
///
/// # Errors
/// [`Error::Found`] where a peer is missing and cannot be installed.
pub(crate) fn command(_workspace: &Workspace, _line: &[String]) -> Result<(), Error> {
    match ensure(PEERS) {
        None => Ok(()),
        Some(missing) => Err(Error::Found(missing)),
    }
}

/// Installs the missing programs where that is allowed. Returns a message about those still missing and what cannot be
/// tested without them.
pub(crate) fn ensure(peers: &'static [Peer]) -> Option<String> {
    let mut missing = absent(peers);
    if !missing.is_empty() {
        match may_install() {
            Ok(()) => install(&missing),
            Err(why) => println!("  not installing: {why}"),
        }
        missing = absent(peers);
    }
    for peer in peers {
        let here = !missing.iter().any(|m| m.name == peer.name);
        println!("  {:<16} {}", peer.name, if here { "present" } else { "MISSING" });
    }
    (!missing.is_empty()).then(|| describe(&missing))
}

fn describe(missing: &[&Peer]) -> String {
    let each = missing.iter().map(|p| format!("{} (Debian package {}): no {}", p.name, p.package, p.skipped));
    format!("missing {}", each.collect::<Vec<_>>().join("; "))
}

fn absent(peers: &'static [Peer]) -> Vec<&'static Peer> {
    peers.iter().filter(|peer| !present(peer)).collect()
}

fn present(peer: &Peer) -> bool {
    let [program, arguments @ ..] = peer.probe else { return false };
    let probed = process::run(Command::new(program).args(arguments), Keep::Both, PROBE_LIMIT);
    probed.is_ok_and(|finished| finished.success)
}

fn may_install() -> Result<(), &'static str> {
    let user = process::run(Command::new("id").arg("-u"), Keep::Both, PROBE_LIMIT);
    if !user.is_ok_and(|finished| finished.stdout.trim() == "0") {
        return Err("it needs root");
    }
    let apt = ["/usr/bin/apt-get", "/bin/apt-get"].iter().any(|path| Path::new(path).exists());
    if apt { Ok(()) } else { Err("there is no apt-get on this machine") }
}

/// Errors are only printed: the probes that follow detect a failed installation.
fn install(missing: &[&Peer]) {
    let mut packages: Vec<&str> = missing.iter().map(|peer| peer.package).collect();
    packages.dedup();
    println!("  installing {}", packages.join(" "));
    let install = ["install", "--yes", "--no-install-recommends", "-qq"];
    for arguments in [vec!["update", "-qq"], [install.to_vec(), packages].concat()] {
        let mut apt = Command::new("apt-get");
        // A freshly installed redis-server or etcd must not start as a service: RUNLEVEL=1 is for their scripts in
        // init.d, SYSTEMD_OFFLINE=1 makes systemctl leave services alone where systemd runs.
        apt.args(&arguments).env("DEBIAN_FRONTEND", "noninteractive");
        apt.env("RUNLEVEL", "1").env("SYSTEMD_OFFLINE", "1");
        match process::run(&mut apt, Keep::Both, INSTALL_LIMIT) {
            Ok(finished) if finished.success => {}
            Ok(finished) => println!("  apt-get {} {}\n{}", arguments[0], finished.ending, finished.stderr),
            Err(error) => println!("  {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_peers_are_reported_with_what_is_not_tested() {
        let told = describe(&[&PEERS[3], &PEERS[4]]);
        assert_eq!(
            told,
            "missing wrk (Debian package wrk): no HTTP load tests; curl (Debian package curl): no tests with curl"
        );
    }

    #[test]
    fn program_that_does_not_exist_is_absent() {
        let peer = Peer { name: "x", package: "x", skipped: "x", probe: &["no-such-program"] };
        assert!(!present(&peer));
    }
}
