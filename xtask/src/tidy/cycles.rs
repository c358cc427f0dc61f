//! Import cycles between the files of a crate. Without cycles, each file can be read after those that it uses.

use super::{Finding, RustFile};
use crate::source::{Source, is_ident, words};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Folders of a crate that may not use each other.
const APART: [(&str, [&str; 4]); 1] = [("crates/bench/src/", ["files", "keys", "paper", "pmnet"])];

/// A module's path below the crate's root; empty for the root.
type Module = Vec<String>;
/// What each module uses.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Checks every crate for cycles, and the folders of [`APART`] for uses of each other.
pub(crate) fn check(files: &[RustFile<'_>]) -> Vec<Finding> {
    let cycles = roots(files).into_iter().flat_map(|root| {
        let graph = graph(root, files);
        let in_cycle = graph.keys().filter_map(|module| Some((module.clone(), cycle(&graph, module)?)));
        in_cycle.map(|(module, way)| cycle_finding(root, &module, &way)).collect::<Vec<_>>()
    });
    let apart = APART.iter().flat_map(|(root, folders)| siblings(root, folders, &graph(root, files)));
    cycles.chain(apart).collect()
}

/// The folders with the crates' sources, each with a slash at its end.
fn roots<'a>(files: &[RustFile<'a>]) -> BTreeSet<&'a str> {
    const SOURCES: &str = "/src/";
    files.iter().filter_map(|file| Some(&file.path[..file.path.find(SOURCES)? + SOURCES.len()])).collect()
}

fn cycle_finding(root: &str, module: &Module, way: &[Module]) -> Finding {
    let way: Vec<String> = way.iter().map(named).collect();
    let what = format!(
        "import cycle: {} uses itself through {}: move the shared parts to a lower module",
        named(module),
        way.join(", ")
    );
    Finding::new(root.trim_end_matches('/'), 0, what)
}

fn siblings(root: &str, folders: &[&str], graph: &Graph) -> Vec<Finding> {
    let folder = |module: &Module| folders.iter().find(|folder| module.first().is_some_and(|m| m == *folder));
    let mut findings = Vec::new();
    for (from, uses) in graph {
        for to in uses {
            if let (Some(a), Some(b)) = (folder(from), folder(to))
                && a != b
            {
                let what = format!("{} may not use {}: {a} and {b} are siblings", named(from), named(to));
                findings.push(Finding::new(root.trim_end_matches('/'), 0, what));
            }
        }
    }
    findings
}

fn named(module: &Module) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("::") }
}

/// The shortest cycle through a module.
fn cycle(graph: &Graph, start: &Module) -> Option<Vec<Module>> {
    let mut ways = VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in way.last().and_then(|last| graph.get(last)).into_iter().flatten() {
            if next == start {
                return Some(way[1..].to_vec());
            }
            if seen.insert(next.clone()) {
                let mut longer = way.clone();
                longer.push(next.clone());
                ways.push_back(longer);
            }
        }
    }
    None
}

/// Which files of a crate use which, without tests. The declaration of a module is not a use.
fn graph(root: &str, files: &[RustFile<'_>]) -> Graph {
    let modules: BTreeMap<Module, &RustFile<'_>> =
        files.iter().filter_map(|file| Some((module_of(file.path.strip_prefix(root)?)?, file))).collect();
    let uses = |(module, file): (&Module, &&RustFile<'_>)| {
        let code = Source::new(file.text).without_tests().code;
        let resolve = |path: String| resolve(module, &path, &modules);
        let found = paths(&code).into_iter().filter_map(resolve).filter(|to| to != module).collect();
        (module.clone(), found)
    };
    modules.iter().map(uses).collect()
}

/// The module of a file; `None` for a program's root beside the library's.
fn module_of(path: &str) -> Option<Module> {
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" => Some(Vec::new()),
        "main" => None,
        path => Some(path.split('/').map(str::to_owned).collect()),
    }
}

/// Every path that the code names: after `use`, and those that begin with `crate` or `super`.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for at in words(code, "use") {
        let tree: String = code[at + 3..].split(';').next().unwrap_or_default().split_whitespace().collect();
        expand("", &tree, &mut found);
    }
    for at in words(code, "crate").chain(words(code, "super")) {
        let is_part = |c: char| c == ':' || u8::try_from(c).is_ok_and(is_ident);
        let path: String = code[at..].chars().take_while(|c| is_part(*c)).collect();
        let path = path.trim_end_matches(':');
        // `pub(crate)` is not a path. A prefix before a tree has been expanded.
        let last = path.rsplit("::").next().unwrap_or_default();
        found.extend((!matches!(last, "crate" | "super")).then(|| path.to_owned()));
    }
    found
}

/// Expands a tree of uses into single paths.
fn expand(before: &str, tree: &str, found: &mut Vec<String>) {
    let Some(open) = tree.find('{') else {
        found.push(format!("{before}{tree}"));
        return;
    };
    let before = format!("{before}{}", &tree[..open]);
    let inner = tree[open + 1..].strip_suffix('}').unwrap_or(&tree[open + 1..]);
    let (mut depth, mut start) = (0, 0);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                expand(&before, &inner[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < inner.len() {
        expand(&before, &inner[start..], found);
    }
}

/// The module that a path refers to, seen from `from`; `None` outside the crate.
fn resolve(from: &Module, path: &str, modules: &BTreeMap<Module, &RustFile<'_>>) -> Option<Module> {
    let mut parts = path.split("::").peekable();
    let mut at = match *parts.peek()? {
        "crate" => Vec::new(),
        _ => from.clone(),
    };
    let is_named = matches!(*parts.peek()?, "crate" | "self" | "super");
    while let Some(part) = parts.next_if(|part| matches!(*part, "crate" | "self" | "super")) {
        if part == "super" {
            at.pop();
        }
    }
    let start = at.len();
    for part in parts {
        at.push(part.to_owned());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
    }
    (is_named || at.len() > start).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, rust_files};
    use super::*;

    fn found(pairs: &[(&str, &str)]) -> Vec<String> {
        let files = fixture::files(pairs);
        check(&rust_files(&files)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn import_cycles_are_caught_in_every_notation() {
        for (a, b) in [
            ("use crate::b::B;", "use super::a::A;"),
            ("use crate::{b::{self, B}, c};", "fn f() { crate::a::g() }"),
            ("use super::{b, c};", "use crate::c::C;"),
        ] {
            let found = found(&[
                ("crates/any/src/lib.rs", "mod a; mod b; mod c;"),
                ("crates/any/src/a.rs", a),
                ("crates/any/src/b.rs", b),
                ("crates/any/src/c.rs", "use crate::a;"),
            ]);
            assert!(
                found.iter().any(|what| what.starts_with("import cycle: a uses itself")),
                "{a} {b}: {found:?}"
            );
        }
    }

    #[test]
    fn layers_tests_and_declared_children_pass() {
        let found = found(&[
            ("crates/kv/src/lib.rs", "mod a; mod b; pub use a::A;"),
            ("crates/kv/src/a.rs", "use crate::b::B; pub(crate) fn f() {} pub(super) fn g() {}"),
            (
                "crates/kv/src/b/mod.rs",
                "mod c; use c::C; #[cfg(test)] #[allow(x)] mod tests { use crate::a::A; }",
            ),
            ("crates/kv/src/b/c.rs", "use super::{d, d::D}; // use super::B;"),
            ("crates/kv/src/b/d.rs", "use std::fmt;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn siblings_that_use_each_other_are_caught() {
        let found = found(&[
            ("crates/bench/src/paper/mod.rs", "use crate::pmnet::run;"),
            ("crates/bench/src/pmnet/mod.rs", "use crate::common::say;"),
            ("crates/bench/src/common/mod.rs", ""),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("paper may not use pmnet"));
    }
}
