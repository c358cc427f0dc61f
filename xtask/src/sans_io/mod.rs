//! Proof that the cores do no I/O, read no clock, start no thread and draw no entropy.
//!
//! Three checks for each core crate of [`crate::crates::LAYERS`]: its source names nothing that does I/O ([`rules`]),
//! its direct dependencies are on a short list, and its root forbids unsafe code, without which the first two checks
//! would prove nothing.

mod paths;
mod rules;

use crate::crates::{LAYERS, layer_of};
use crate::error::Error;
use crate::source::Source;
use crate::workspace::{DependencyKind, Package, TextFile, Workspace};

/// What a core may depend on besides other cores and `landfall-media`: computation only. `parking_lot` provides locks,
/// which block but do no I/O. `crc-fast` can read files, but is used only for checksums of bytes (`heap::crc`).
const DEPENDENCIES: &[&str] = &[
    "bitflags",
    "crc-fast",
    "hashbrown",
    "httparse",
    "httpdate",
    "itoa",
    "memchr",
    "parking_lot",
    "rust_decimal",
    "ryu",
    "siphasher",
    "smallvec",
    "smoltcp",
    "thiserror",
    "xxhash-rust",
    "zerocopy",
];
/// Not a core, but the cores' view of memory: they may use its types, but not open files with it ([`rules`]).
const SEAM: &str = "landfall-media";
const FORBID: &str = "#![forbid(unsafe_code)]";

/// `cargo xtask sans-io`.
///
/// # Errors
/// [`Error::Found`] where a core does I/O.
pub(crate) fn command(workspace: &Workspace, _line: &[String]) -> Result<(), Error> {
    let files = workspace.text_files()?;
    let mut found = Vec::new();
    for layer in LAYERS.iter().filter(|layer| layer.core) {
        match workspace.package_in(layer.name) {
            None => println!("  {:<8} is planned, not there yet", layer.name),
            Some(package) => {
                let of_this = check(package, layer.name, &files);
                println!("  {:<8} {}", layer.name, verdict(of_this.len()));
                found.extend(of_this);
            }
        }
    }
    for finding in &found {
        println!("  {finding}");
    }
    match found.len() {
        0 => Ok(()),
        n => Err(Error::Found(format!("{n} uses of I/O, clocks, threads or entropy in a core"))),
    }
}

fn verdict(found: usize) -> String {
    if found == 0 { "pure".to_owned() } else { format!("{found} findings") }
}

fn check(package: &Package, folder: &str, files: &[TextFile]) -> Vec<String> {
    let source = format!("crates/{folder}/src/");
    let root = format!("{source}lib.rs");
    let mut found = wrong_dependencies(package);
    found.extend(findings(&of_crate(files, &source)));
    let forbids = files.iter().any(|f| f.path == root && Source::new(&f.text).code.contains(FORBID));
    if !forbids {
        found.push(format!("{root}: `{FORBID}` is missing"));
    }
    found
}

fn wrong_dependencies(package: &Package) -> Vec<String> {
    let shipped = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
    let wrong = shipped.filter(|d| !may_depend_on(&d.name));
    wrong
        .map(|d| format!("{} depends on {}, which is not on the list of cores", package.name, d.name))
        .collect()
}

fn may_depend_on(name: &str) -> bool {
    let core = || name.starts_with("landfall-") && layer_of(name).is_some_and(|layer| layer.core);
    name == SEAM || DEPENDENCIES.contains(&name) || core()
}

/// The Rust files of a crate's `src`, as code and comments.
fn of_crate<'a>(files: &'a [TextFile], source: &str) -> Vec<(&'a str, Source)> {
    let rust = files.iter().filter(|f| f.path.starts_with(source) && f.path.ends_with(".rs"));
    rust.map(|f| (f.path.as_str(), Source::new(&f.text))).collect()
}

/// The forbidden names that the shipped part of these files uses.
fn findings(files: &[(&str, Source)]) -> Vec<String> {
    let tests: Vec<String> =
        files.iter().flat_map(|(path, source)| test_paths(path, &source.test_files())).collect();
    let shipped = files.iter().filter(|(path, _)| !tests.iter().any(|test| path.starts_with(test.as_str())));
    shipped.flat_map(|(path, source)| rules::findings(path, source)).collect()
}

/// Where the test-only modules declared in `path` may lie: `name.rs` and all of `name/`.
fn test_paths(path: &str, names: &[String]) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let base =
        if matches!(stem, "lib" | "main" | "mod") { folder.to_owned() } else { format!("{folder}/{stem}") };
    names.iter().flat_map(|name| [format!("{base}/{name}.rs"), format!("{base}/{name}/")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn findings_in(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, Source::new(text))).collect();
        findings(&files)
    }

    #[test]
    fn core_that_does_io_is_caught_in_every_way() {
        let bad = include_str!("bad_core.txt");
        let found = findings_in(&[("crates/kv/src/lib.rs", bad)]);
        let marked: Vec<usize> =
            bad.lines().enumerate().filter(|(_, l)| l.contains("// BAD")).map(|(n, _)| n + 1).collect();
        assert!(marked.len() > 15);
        for line in &marked {
            let prefix = format!("crates/kv/src/lib.rs:{line}: ");
            assert!(found.iter().any(|f| f.starts_with(&prefix)), "line {line} was not caught: {found:#?}");
        }
        let innocent = found
            .iter()
            .filter(|f| !marked.iter().any(|l| f.starts_with(&format!("crates/kv/src/lib.rs:{l}: "))));
        assert_eq!(innocent.collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn test_only_files_are_not_checked() {
        let bad = ("crates/kv/src/engine/oracle.rs", "use std::fs;");
        let engine = "#[cfg(test)]\nmod oracle;\n";
        assert!(findings_in(&[("crates/kv/src/engine.rs", engine), bad]).is_empty());
        assert!(findings_in(&[("crates/kv/src/engine/mod.rs", engine), bad]).is_empty());
        assert_eq!(findings_in(&[("crates/kv/src/engine.rs", "mod oracle;"), bad]).len(), 1);
    }

    #[test]
    fn dependency_off_the_list_is_caught_unless_for_tests() {
        let on = |name: &str, kind| {
            let dependencies = vec![Dependency { name: name.to_owned(), kind }];
            wrong_dependencies(&Package { dependencies, ..Package::default() }).len()
        };
        assert_eq!(on("tokio", DependencyKind::Normal), 1);
        assert_eq!(on("cc", DependencyKind::Build), 1);
        assert_eq!(on("landfall-sockets", DependencyKind::Normal), 1);
        assert_eq!(on("proptest", DependencyKind::Development), 0);
        assert_eq!(on("landfall-heap", DependencyKind::Normal), 0);
        assert_eq!(on("landfall-media", DependencyKind::Normal), 0);
    }

    #[test]
    fn core_that_does_not_forbid_unsafe_code_is_caught() {
        let file = |text: &str| TextFile { path: "crates/kv/src/lib.rs".to_owned(), text: text.to_owned() };
        let check = |text| check(&Package::default(), "kv", &[file(text)]).len();
        assert_eq!(check("//! Docs.\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(check("//! Docs.\n// #![forbid(unsafe_code)]\n"), 1);
    }
}
