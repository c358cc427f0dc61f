//! Every crate describes itself, every public crate has an example, every change is in the changelog, and the example
//! configuration shows exactly the settings that exist.

use super::Finding;
use crate::crates::layer_of;
use crate::source::{Source, next_word, words};
use crate::workspace::{Package, TextFile, Workspace};

const CHANGELOG: &str = "CHANGELOG.md";
const EXAMPLE: &str = "dist/landfall.toml";
/// The file that defines the settings, and the type whose public fields they are.
const SETTINGS: (&str, &str) = ("crates/server/src/config.rs", "FileConfig");

/// Checks the documentation of all packages and the changelog.
pub(crate) fn check(workspace: &Workspace, files: &[TextFile]) -> Vec<Finding> {
    let relative = |path: &std::path::Path| {
        path.strip_prefix(&workspace.root).unwrap_or(path).to_string_lossy().into_owned()
    };
    let mut findings: Vec<Finding> = changelog(files).into_iter().chain(settings(files)).collect();
    for package in &workspace.packages {
        let Some(root) = package.target("lib").or_else(|| package.target("bin")) else { continue };
        let folder = format!("{}/", relative(package.folder()));
        findings.extend(check_package(package, &folder, &relative(root), files));
    }
    findings
}

fn check_package(package: &Package, folder: &str, root: &str, files: &[TextFile]) -> Vec<Finding> {
    let text = files.iter().find(|f| f.path == root).map_or("", |f| f.text.as_str());
    let docs = crate_docs(text);
    let mut findings = Vec::new();
    if docs.trim().is_empty() {
        findings.push(Finding::new(root, 0, "no crate-level docs: name the first type to read"));
    }
    let public = layer_of(&package.name).is_some_and(|layer| layer.public);
    let examples = format!("{folder}examples/");
    let shown = files.iter().any(|f| f.path.starts_with(&examples) && f.path.ends_with(".rs"));
    if public && !shown && !has_example(&docs) {
        findings.push(Finding::new(folder, 0, "public crate without a runnable example"));
    }
    findings
}

/// The text of the `//!` lines.
fn crate_docs(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.strip_prefix("//!"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Whether the docs contain a Rust block that doc tests compile.
fn has_example(docs: &str) -> bool {
    let fences = docs.lines().filter_map(|line| line.trim().strip_prefix("```"));
    fences.step_by(2).any(|language| matches!(language, "" | "rust" | "no_run" | "should_panic"))
}

fn changelog(files: &[TextFile]) -> Option<Finding> {
    let file = files.iter().find(|f| f.path == CHANGELOG);
    let ok =
        file.is_some_and(|f| f.text.lines().any(|l| matches!(l.trim(), "## [Unreleased]" | "## Unreleased")));
    (!ok).then(|| Finding::new(CHANGELOG, 0, "no section `## [Unreleased]`"))
}

/// Differences between the keys of the example, commented out or not, and the fields of the settings.
fn settings(files: &[TextFile]) -> Vec<Finding> {
    let text = |path: &str| files.iter().find(|f| f.path == path).map(|f| f.text.as_str());
    let (Some(example), Some(source)) = (text(EXAMPLE), text(SETTINGS.0)) else { return Vec::new() };
    let keys: Vec<&str> = example.lines().filter_map(key).collect();
    let code = Source::new(source).code;
    let fields = fields(&code, SETTINGS.1);
    let missing = fields.iter().filter(|field| !keys.contains(field));
    let unknown = keys.iter().filter(|key| !fields.contains(key));
    let missing = missing.map(|f| Finding::new(EXAMPLE, 0, format!("setting `{f}` is not shown")));
    missing.chain(unknown.map(|k| Finding::new(EXAMPLE, 0, format!("there is no setting `{k}`")))).collect()
}

fn key(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix("# ").unwrap_or(line).split_once(" = ")?;
    key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then_some(key)
}

/// The public fields of a struct.
fn fields<'c>(code: &'c str, name: &str) -> Vec<&'c str> {
    let defined = format!("struct {name}");
    let Some(open) = words(code, &defined).next().and_then(|at| Some(at + code[at..].find('{')?)) else {
        return Vec::new();
    };
    let body = &code[open..crate::source::block_end(code, open)];
    words(body, "pub").filter_map(|at| next_word(body, at + "pub".len()).map(|word| &body[word])).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn found(name: &str, files: &[(&str, &str)]) -> usize {
        let package = Package { name: name.to_owned(), ..Package::default() };
        check_package(&package, "crates/x/", "crates/x/src/lib.rs", &fixture::files(files)).len()
    }

    #[test]
    fn crate_without_docs_is_caught() {
        assert_eq!(found("landfall-server", &[("crates/x/src/lib.rs", "// Not docs.\n")]), 1);
        assert_eq!(found("landfall-server", &[("crates/x/src/lib.rs", "//! Docs.\n")]), 0);
    }

    #[test]
    fn public_crate_without_example_is_caught() {
        let bare = ("crates/x/src/lib.rs", "//! Docs.\n//! ```text\n//! ```\n");
        assert_eq!(found("landfall-heap", &[bare]), 1);
        assert_eq!(found("landfall-heap", &[bare, ("crates/x/examples/a.rs", "fn main() {}\n")]), 0);
        assert_eq!(
            found("landfall-heap", &[("crates/x/src/lib.rs", "//! Docs.\n//! ```\n//! f();\n//! ```\n")]),
            0
        );
    }

    #[test]
    fn changelog_without_unreleased_section_is_caught() {
        assert!(changelog(&fixture::files(&[(CHANGELOG, "# Changelog\n")])).is_some());
        assert!(changelog(&fixture::files(&[(CHANGELOG, "## [Unreleased]\n")])).is_none());
        assert!(changelog(&[]).is_some());
    }

    #[test]
    fn example_that_differs_from_the_settings_is_caught() {
        let source = "pub struct Config { pub x: u8 }\npub struct FileConfig { /// pub not\n pub dir: D, pub max_clients: M }";
        let found = |example| settings(&fixture::files(&[(EXAMPLE, example), (SETTINGS.0, source)])).len();
        assert_eq!(found("# A sentence.\ndir = \"x\"\n# max_clients = 1\n"), 0);
        assert_eq!(found("dir = \"x\"\n"), 1);
        assert_eq!(found("dir = \"x\"\nmax_clients = 1\nmax_klients = 1\n"), 1);
    }
}
