//! The crate graph: which crate may depend on which, which is a core, which is public. One ordered list.

use crate::workspace::{DependencyKind, Package};

/// The rules for one folder under `crates/`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    /// Folder under `crates/`.
    pub(crate) name: &'static str,
    /// Cores do no I/O, read no clock, start no thread and draw no entropy.
    pub(crate) core: bool,
    /// Useful on its own outside the project, so that it needs a runnable example.
    pub(crate) public: bool,
}

const fn layer(name: &'static str, core: bool, public: bool) -> Layer {
    Layer { name, core, public }
}

/// The layers from the bottom up: a crate may depend only on crates above it in this list. Some are planned and do not
/// exist yet.
pub(crate) const LAYERS: &[Layer] = &[
    layer("media", false, true),
    layer("heap", true, true),
    layer("spin", false, false),
    layer("net", true, true),
    layer("xdp", false, true),
    layer("sockets", false, true),
    layer("fuse", false, false),
    layer("packets", false, false),
    layer("kv", true, true),
    layer("wal", true, true),
    layer("resp", true, true),
    layer("http", true, true),
    layer("pmnet", true, true),
    layer("fs", true, true),
    layer("chain", true, false),
    layer("fs-link", true, false),
    layer("fs-client", true, false),
    layer("metrics", false, false),
    layer("chain-io", false, false),
    layer("server", false, false),
    layer("fs-io", false, false),
    layer("fs-calls", false, false),
    layer("fs-lib", false, false),
    layer("members", false, false),
    layer("switch", false, false),
    layer("pmnet-io", false, false),
    layer("pmnet-c", false, false),
    layer("testbed", false, false),
    layer("landfall", false, false),
    // A server is built without the crates below this line.
    layer("sim", false, false),
    layer("bench-handlers", true, false),
    layer("bench", false, false),
];

/// The only crates that a protocol codec may use: codecs know bytes, not engines.
const CODECS: &[&str] = &["resp", "http"];
const CODEC_MAY_USE: &[&str] = &["media"];
/// The simulator drives the cores, so that their tests may use it although it lies below them.
const TEST_ONLY: &str = "sim";

/// The layer of a package: by its name, `landfall` or `landfall-<folder>`.
pub(crate) fn layer_of(package: &str) -> Option<&'static Layer> {
    let folder = package.strip_prefix("landfall-").unwrap_or(package);
    LAYERS.iter().find(|layer| layer.name == folder)
}

/// Every edge of the crate graph that points in the wrong direction, as text.
pub(crate) fn wrong_edges(packages: &[Package]) -> Vec<String> {
    packages.iter().filter(|p| p.name != "xtask").flat_map(wrong_edges_of).collect()
}

fn wrong_edges_of(package: &Package) -> Vec<String> {
    let Some(from) = layer_of(&package.name) else {
        return vec![format!("{} is not in the list of layers (xtask/src/crates.rs)", package.name)];
    };
    let ours = package.dependencies.iter().filter(|d| d.name.starts_with("landfall"));
    ours.filter_map(|d| wrong_edge(from, &d.name, d.kind)).collect()
}

fn wrong_edge(from: &Layer, to: &str, kind: DependencyKind) -> Option<String> {
    let Some(to) = layer_of(to) else {
        return Some(format!("{} depends on {to}, which is not in the list of layers", from.name));
    };
    let test = kind == DependencyKind::Development;
    if test && to.name == TEST_ONLY {
        return None;
    }
    if !test && CODECS.contains(&from.name) && !CODEC_MAY_USE.contains(&to.name) {
        return Some(format!("{} is a codec and may use only media, not {}", from.name, to.name));
    }
    let upwards = position(to.name) < position(from.name);
    (!upwards).then(|| format!("{} may not depend on {}: it is not above it", from.name, to.name))
}

fn position(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.name == folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, on: &str, kind: DependencyKind) -> Package {
        let dependency = Dependency { name: on.to_owned(), kind };
        Package { name: name.to_owned(), dependencies: vec![dependency], ..Package::default() }
    }

    fn edge(name: &str, on: &str, kind: DependencyKind) -> Vec<String> {
        wrong_edges(&[package(name, on, kind)])
    }

    #[test]
    fn edges_upwards_pass() {
        assert!(edge("landfall-kv", "landfall-heap", DependencyKind::Normal).is_empty());
        assert!(edge("landfall-bench", "landfall", DependencyKind::Normal).is_empty());
        assert!(edge("landfall-kv", "serde", DependencyKind::Normal).is_empty());
    }

    #[test]
    fn edges_downwards_and_sideways_are_caught() {
        for (from, to) in [
            ("landfall-heap", "landfall-kv"),
            ("landfall-heap", "landfall-heap"),
            ("landfall-http", "landfall-resp"),
            ("landfall-resp", "landfall-heap"),
            ("landfall-kv", "landfall-novelty"),
        ] {
            assert_eq!(edge(from, to, DependencyKind::Normal).len(), 1, "{from} -> {to}");
        }
        assert_eq!(edge("landfall-novelty", "serde", DependencyKind::Normal).len(), 1);
    }

    #[test]
    fn server_is_built_without_simulator_and_measurements() {
        for to in ["landfall-sim", "landfall-bench-handlers", "landfall-bench"] {
            assert_eq!(edge("landfall", to, DependencyKind::Normal).len(), 1, "{to}");
            assert_eq!(edge("landfall-server", to, DependencyKind::Normal).len(), 1, "{to}");
        }
    }

    #[test]
    fn simulator_is_for_tests_only() {
        assert!(edge("landfall-heap", "landfall-sim", DependencyKind::Development).is_empty());
        assert_eq!(edge("landfall-heap", "landfall-sim", DependencyKind::Normal).len(), 1);
    }
}
