//! The programs.

use crate::peers::Peer;
use std::ops::Range;

/// What scripts share.
pub(super) const COMMON: &str = include_str!("scripts/common.sh");
/// A program that a script uses: its name in the folder beside the mount, and its text.
pub(super) const STORE: (&str, &str) = ("store.py", include_str!("scripts/store.py"));

/// A program.
pub(super) struct Program {
    /// The name in `--only`, which the script is told.
    pub(super) name: &'static str,
    /// What it needs. If something is missing and cannot be installed, the program is skipped.
    pub(super) needs: &'static [Peer],
    /// Milliseconds of load until a kill.
    pub(super) load_ms: Range<u64>,
    /// Functions `prepare`, `load` and `verify` of a shell.
    pub(super) script: &'static str,
}

/// All programs.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "git",
        needs: &[needed("git", "git", &["git", "--version"])],
        load_ms: 200..5000,
        script: include_str!("scripts/git.sh"),
    },
    Program {
        name: "cargo",
        needs: &[needed("cc", "gcc", &["cc", "--version"])],
        load_ms: 200..5000,
        script: include_str!("scripts/cargo.sh"),
    },
    Program {
        name: "postgres",
        needs: &[needed("postgres", "postgresql", &["sh", "-c", "ls /usr/lib/postgresql/*/bin/postgres"])],
        load_ms: 300..6000,
        script: include_str!("scripts/postgres.sh"),
    },
    Program {
        name: "sqlite-wal",
        needs: SQLITE,
        load_ms: 100..2500,
        script: include_str!("scripts/sqlite.sh"),
    },
    Program {
        name: "sqlite-delete",
        needs: SQLITE,
        load_ms: 100..2500,
        script: include_str!("scripts/sqlite.sh"),
    },
    Program {
        name: "leveldb",
        needs: &[PYTHON, needed("LevelDB", "libleveldb1d", &["sh", "-c", "ls /usr/lib/*/libleveldb.so*"])],
        load_ms: 200..3000,
        script: include_str!("scripts/store.sh"),
    },
    Program {
        name: "rocksdb",
        needs: &[PYTHON, ROCKSDB],
        load_ms: 200..3000,
        script: include_str!("scripts/store.sh"),
    },
    Program {
        name: "db_bench",
        needs: &[ROCKSDB],
        load_ms: 200..3000,
        script: include_str!("scripts/db_bench.sh"),
    },
    Program {
        name: "trees",
        needs: &[
            needed("rsync", "rsync", &["rsync", "--version"]),
            needed("setfattr", "attr", &["setfattr", "--version"]),
            needed("setfacl", "acl", &["setfacl", "--version"]),
        ],
        load_ms: 200..6000,
        script: include_str!("scripts/trees.sh"),
    },
];

const SQLITE: &[Peer] = &[needed("sqlite3", "sqlite3", &["sqlite3", "--version"])];
const PYTHON: Peer = needed("python3", "python3", &["/usr/bin/python3", "--version"]);
const ROCKSDB: Peer =
    needed("RocksDB", "rocksdb-tools", &["sh", "-c", "command -v ldb && command -v db_bench"]);

const fn needed(name: &'static str, package: &'static str, probe: &'static [&'static str]) -> Peer {
    Peer { name, package, skipped: "campaign with it", probe }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_scripts_have_their_functions() {
        for (index, program) in PROGRAMS.iter().enumerate() {
            assert!(PROGRAMS[..index].iter().all(|earlier| earlier.name != program.name), "{}", program.name);
            for function in ["prepare()", "load()", "verify()"] {
                let is_there = program.script.lines().any(|line| line.starts_with(function));
                assert!(is_there, "{}: {function}", program.name);
            }
            assert!(!program.load_ms.is_empty(), "{}", program.name);
        }
    }
}
