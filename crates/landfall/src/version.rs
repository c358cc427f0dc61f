//! What `landfall --version` says.

use std::sync::LazyLock;

/// The release, and the versions of what it shares with programs of other releases: regions, and messages to processes that
/// may have been started before an upgrade.
pub fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let versions = [
            ("format of regions", landfall_heap::VERSION),
            ("messages of chains", landfall_chain::MESSAGES_VERSION.into()),
            ("messages of mounts whose server is apart", landfall_fs_io::OFFLOAD_VERSION.into()),
            ("link of libraries to mounts", landfall_fs_io::LINK_VERSION.into()),
        ];
        let lines = versions.map(|(what, version): (&str, u32)| format!("{what}: version {version}"));
        format!("{}\n{}", env!("CARGO_PKG_VERSION"), lines.join("\n"))
    });
    &TEXT
}
