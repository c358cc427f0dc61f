//! The workspace on disk: its root, its packages, its files.

use crate::error::Error;
use crate::json::{self, Json, Members};
use crate::process::{self, Keep};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time limit for listing packages or files, which reads manifests only. A longer time means that something hangs.
const LIST_LIMIT: Duration = Duration::from_secs(60);
/// Larger files are data, not text written by people.
const TEXT_BYTES_MAX: u64 = 2 << 20;

/// The root of the checkout, and what cargo reports about it.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Absolute path of the root.
    pub(crate) root: PathBuf,
    /// Absolute path of cargo's target folder.
    pub(crate) target: PathBuf,
    /// Packages, in cargo's order.
    pub(crate) packages: Vec<Package>,
}

/// One package of the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    /// Name in its manifest.
    pub(crate) name: String,
    /// Absolute path of its manifest.
    pub(crate) manifest: PathBuf,
    /// Direct dependencies of every kind and platform.
    pub(crate) dependencies: Vec<Dependency>,
    /// Kinds and root files of its targets.
    pub(crate) targets: Vec<(String, PathBuf)>,
}

/// One direct dependency.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// The package's real name, even if the dependency is renamed.
    pub(crate) name: String,
    /// What it is used for.
    pub(crate) kind: DependencyKind,
}

/// What a dependency is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    /// The crate itself.
    Normal,
    /// The build script.
    Build,
    /// Tests, examples and benchmarks.
    Development,
}

/// A text file: its path from the root, and its contents.
#[derive(Clone, Debug)]
pub(crate) struct TextFile {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// Contents.
    pub(crate) text: String,
}

impl Workspace {
    /// The workspace that this program belongs to.
    ///
    /// # Errors
    /// [`Error::Program`] where cargo cannot read a manifest.
    pub(crate) fn find() -> Result<Self, Error> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).parent().unwrap_or(Path::new(".")).to_path_buf();
        let mut metadata = process::cargo();
        metadata.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(&root);
        let printed = process::must(&mut metadata, Keep::Both, LIST_LIMIT)?.stdout;
        let metadata = json::parse(&printed)?;
        let target = PathBuf::from(metadata.text("target_directory").unwrap_or("target"));
        let packages = metadata.list("packages").iter().map(Package::read).collect();
        Ok(Self { root, target, packages })
    }

    /// The package in `crates/<folder>`.
    pub(crate) fn package_in(&self, folder: &str) -> Option<&Package> {
        let manifest = self.root.join("crates").join(folder).join("Cargo.toml");
        self.packages.iter().find(|package| package.manifest == manifest)
    }

    /// Every text file that is tracked, or neither tracked nor ignored, sorted by path.
    ///
    /// # Errors
    /// [`Error::Program`] without a git checkout, [`Error::Environment`] for a file that cannot be read.
    pub(crate) fn text_files(&self) -> Result<Vec<TextFile>, Error> {
        let mut list = Command::new("git");
        // A checkout that another user owns may be listed: git executes nothing in it.
        list.args(["-c", "safe.directory=*"]);
        list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(&self.root);
        let printed = process::must(&mut list, Keep::Both, LIST_LIMIT)?.stdout;
        let mut paths: Vec<&str> = printed.split('\0').filter(|path| !path.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths.into_iter().filter_map(|path| self.text_file(path).transpose()).collect()
    }

    /// The file; `None` where it does not exist on disk, is too large, or is not text.
    fn text_file(&self, path: &str) -> Result<Option<TextFile>, Error> {
        let full = self.root.join(path);
        let Ok(metadata) = std::fs::metadata(&full) else { return Ok(None) };
        if !metadata.is_file() || metadata.len() > TEXT_BYTES_MAX {
            return Ok(None);
        }
        let bytes = std::fs::read(&full).map_err(|e| Error::file("read", &full, e))?;
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        Ok(text.map(|text| TextFile { path: path.to_owned(), text }))
    }
}

impl Package {
    fn read(json: &Json) -> Self {
        let text = |name: &str| json.text(name).unwrap_or_default();
        Self {
            name: text("name").to_owned(),
            manifest: PathBuf::from(text("manifest_path")),
            dependencies: json.list("dependencies").iter().map(Dependency::read).collect(),
            targets: json.list("targets").iter().map(read_target).collect(),
        }
    }

    /// The folder that contains its manifest.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest.parent().unwrap_or(Path::new("."))
    }

    /// The root file of the first target of the kind: `lib`, `bin`, `example`, `test`, `bench`.
    pub(crate) fn target(&self, kind: &str) -> Option<&Path> {
        self.targets.iter().find(|(k, _)| k == kind).map(|(_, path)| path.as_path())
    }
}

fn read_target(json: &Json) -> (String, PathBuf) {
    let kind = match json.list("kind").first() {
        Some(Json::String(kind)) => kind.clone(),
        _ => String::new(),
    };
    (kind, PathBuf::from(json.text("src_path").unwrap_or_default()))
}

impl Dependency {
    fn read(json: &Json) -> Self {
        let kind = match json.text("kind") {
            Some("dev") => DependencyKind::Development,
            Some("build") => DependencyKind::Build,
            _ => DependencyKind::Normal,
        };
        Self { name: json.text("name").unwrap_or_default().to_owned(), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_is_read_from_cargo_metadata() {
        let json = json::parse(
            r#"{"name":"landfall-kv","manifest_path":"/x/crates/kv/Cargo.toml",
            "dependencies":[{"name":"landfall-heap","kind":null,"rename":"h"},{"name":"proptest","kind":"dev"}],
            "targets":[{"kind":["lib"],"src_path":"/x/crates/kv/src/lib.rs"}]}"#,
        );
        let package = Package::read(&json.unwrap());
        assert_eq!(package.folder(), Path::new("/x/crates/kv"));
        assert_eq!(package.target("lib"), Some(Path::new("/x/crates/kv/src/lib.rs")));
        assert_eq!(package.target("bin"), None);
        let kinds: Vec<_> = package.dependencies.iter().map(|d| (d.name.as_str(), d.kind)).collect();
        assert_eq!(
            kinds,
            [("landfall-heap", DependencyKind::Normal), ("proptest", DependencyKind::Development)]
        );
    }
}
