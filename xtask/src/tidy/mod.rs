//! The house rules that can be checked automatically: `cargo xtask tidy`.
//!
//! Each check takes files and returns findings; this module collects, prints and judges them.

mod cycles;
mod docs;
mod gates;
mod links;
mod promises;
mod prose;
mod sizes;
mod text;
mod unsafety;

use crate::crates;
use crate::error::Error;
use crate::source::Source;
use crate::workspace::{TextFile, Workspace};
use std::fmt;

/// A violation of a house rule, or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Path from the root.
    pub(crate) path: String,
    /// 1-based line; 0 for the whole file.
    pub(crate) line: usize,
    /// What is wrong, and how to fix it.
    pub(crate) what: String,
    /// A warning, which does not fail the check.
    pub(crate) warning: bool,
}

impl Finding {
    /// A finding that fails the check.
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), warning: false }
    }

    /// A finding that is only a warning.
    pub(crate) fn warning(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { warning: true, ..Self::new(path, line, what) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.warning { "warning" } else { "failure" };
        match self.line {
            0 => write!(f, "{level}: {}: {}", self.path, self.what),
            line => write!(f, "{level}: {}:{line}: {}", self.path, self.what),
        }
    }
}

/// A Rust file and its views.
pub(crate) struct RustFile<'a> {
    /// Path from the root.
    pub(crate) path: &'a str,
    /// Contents, unchanged.
    pub(crate) text: &'a str,
    /// Contents, split into code and comments.
    pub(crate) source: Source,
}

/// `cargo xtask tidy`.
///
/// # Errors
/// [`Error::Found`] where a house rule is broken.
pub(crate) fn command(workspace: &Workspace, _line: &[String]) -> Result<(), Error> {
    let files = workspace.text_files()?;
    let mut findings = check(workspace, &files);
    findings.sort_by(|a, b| (!a.warning, &a.path, a.line).cmp(&(!b.warning, &b.path, b.line)));
    for finding in &findings {
        println!("  {finding}");
    }
    let warnings = findings.iter().filter(|f| f.warning).count();
    let failures = findings.len() - warnings;
    println!("  {} files, {failures} failures, {warnings} warnings", files.len());
    if failures > 0 { Err(Error::Found(format!("{failures} house rules broken"))) } else { Ok(()) }
}

fn check(workspace: &Workspace, files: &[TextFile]) -> Vec<Finding> {
    let rust = rust_files(files);
    let mut findings = Vec::new();
    findings.extend(sizes::check(&rust));
    findings.extend(unsafety::check(&rust));
    findings.extend(gates::check(&rust));
    findings.extend(cycles::check(&rust));
    findings.extend(files.iter().flat_map(text::check));
    findings.extend(rust.iter().flat_map(text::check_rust));
    findings.extend(links::check(files));
    findings.extend(promises::check(files, &rust));
    findings.extend(prose::check(files));
    findings.extend(docs::check(workspace, files));
    let edges = crates::wrong_edges(&workspace.packages);
    findings.extend(edges.into_iter().map(|edge| Finding::new("Cargo.toml", 0, edge)));
    findings
}

/// The Rust files among `files`, split into code and comments.
pub(crate) fn rust_files(files: &[TextFile]) -> Vec<RustFile<'_>> {
    let rust = files.iter().filter(|f| f.path.ends_with(".rs"));
    rust.map(|f| RustFile { path: &f.path, text: &f.text, source: Source::new(&f.text) }).collect()
}

/// Helpers that the tests of the checks share.
#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// Files from pairs of path and contents.
    pub(crate) fn files(pairs: &[(&str, &str)]) -> Vec<TextFile> {
        pairs.iter().map(|(path, text)| TextFile { path: (*path).into(), text: (*text).into() }).collect()
    }
}
