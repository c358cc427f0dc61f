//! `SPECIFICATION.md`: every promise names an existing proof, or says `pending`.

use super::{Finding, RustFile};
use crate::commands::COMMANDS;
use crate::source::{next_word, words};
use crate::workspace::TextFile;

const DOCUMENT: &str = "SPECIFICATION.md";
/// The word for a promise that is not proved yet.
const PENDING: &str = "pending";
/// The column of the proofs, counted from 0: promise, number, proof.
const PROOF_COLUMN: usize = 2;

/// Checks every row of every table.
pub(crate) fn check(files: &[TextFile], rust: &[RustFile<'_>]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|f| f.path == DOCUMENT) else {
        return vec![Finding::new(DOCUMENT, 0, "is missing: promises are numbers with tests")];
    };
    let numbered = document.text.lines().enumerate();
    let rows = numbered.filter_map(|(n, line)| proof_cell(line).map(|cell| (n + 1, cell)));
    rows.flat_map(|(line, cell)| {
        check_cell(cell, files, rust).into_iter().map(move |what| Finding::new(DOCUMENT, line, what))
    })
    .collect()
}

/// The proof cell of a row; `None` for text, for headings and for the line below them.
fn proof_cell(line: &str) -> Option<&str> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cell = row.split('|').nth(PROOF_COLUMN)?.trim();
    let rule = cell.chars().all(|c| matches!(c, '-' | ':')) && !cell.is_empty();
    (!rule && cell != "proof").then_some(cell)
}

fn check_cell(cell: &str, files: &[TextFile], rust: &[RustFile<'_>]) -> Vec<String> {
    let proofs: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    let pending = words(cell, PENDING).next().is_some();
    if proofs.is_empty() && !pending {
        return vec![format!("no proof: name a test or a command, or say `{PENDING}`")];
    }
    proofs.into_iter().filter_map(|proof| wrong(proof, files, rust)).collect()
}

fn wrong(proof: &str, files: &[TextFile], rust: &[RustFile<'_>]) -> Option<String> {
    if let Some(command) = proof.strip_prefix("cargo xtask ") {
        return wrong_xtask(command);
    }
    if let Some(command) = proof.strip_prefix("landfall ") {
        return wrong_subcommand(command, rust);
    }
    if let Some((folder, test)) = proof.split_once("::") {
        return wrong_test(folder, test, rust);
    }
    let exists = files.iter().any(|f| f.path == proof);
    (!exists).then(|| format!("`{proof}` is neither a test, nor a command, nor a file"))
}

fn wrong_xtask(command: &str) -> Option<String> {
    let name = command.split(' ').next().unwrap_or_default();
    let exists = COMMANDS.iter().any(|c| c.name == name);
    (!exists).then(|| format!("there is no command `cargo xtask {name}`"))
}

/// A subcommand of the binary exists if the source has a variant, function or string of that name.
fn wrong_subcommand(command: &str, rust: &[RustFile<'_>]) -> Option<String> {
    let name = command.split(' ').next().unwrap_or_default();
    let mut variant = name.to_owned();
    if let Some(first) = variant.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let binary = rust.iter().filter(|f| f.path.starts_with("crates/landfall/src/"));
    let exists = binary
        .into_iter()
        .any(|f| words(&f.source.code, name).chain(words(&f.source.code, &variant)).next().is_some());
    (!exists).then(|| format!("there is no command `landfall {name}`"))
}

/// `crate::path::test_name`: the crate's folder must contain a function with the last name.
fn wrong_test(package: &str, test: &str, rust: &[RustFile<'_>]) -> Option<String> {
    let package = package.replace('_', "-");
    let folder = package.strip_prefix("landfall-").unwrap_or(&package);
    let name = test.rsplit("::").next().unwrap_or(test);
    let here = [format!("crates/{folder}/"), format!("{folder}/")];
    let mut files = rust.iter().filter(|f| here.iter().any(|h| f.path.starts_with(h.as_str())));
    let exists = files.any(|f| defines(&f.source.code, name));
    (!exists).then(|| format!("there is no `fn {name}` in crates/{folder}"))
}

fn defines(code: &str, name: &str) -> bool {
    words(code, "fn").any(|at| next_word(code, at + "fn".len()).is_some_and(|word| &code[word] == name))
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, rust_files};
    use super::*;

    fn found(cell: &str) -> usize {
        let table = format!("# S\n\n| promise | number | proof |\n|---|---|---|\n| p | 1 | {cell} |\n");
        let files = fixture::files(&[
            (DOCUMENT, &table),
            (
                "crates/heap/src/x.rs",
                "#[test]\nfn it_holds() {} // fn it_does_not\nfn uses() { it_is_called() }\n",
            ),
            ("crates/landfall/src/main.rs", "enum Command { Serve }\n"),
            ("dist/landfall.toml", ""),
        ]);
        check(&files, &rust_files(&files)).len()
    }

    #[test]
    fn proofs_that_exist_pass() {
        for cell in [
            "`heap::x::it_holds`",
            "`landfall_heap::it_holds`, `cargo xtask crash --cycles 1000`",
            "`landfall serve --dir x`",
            "`dist/landfall.toml`",
            "pending",
        ] {
            assert_eq!(found(cell), 0, "{cell}");
        }
    }

    #[test]
    fn proofs_that_do_not_exist_are_caught() {
        for cell in [
            "",
            "trust us",
            "`heap::x::it_does_not`",
            "`heap::x::it_is_called`",
            "`kv::x::it_holds`",
            "`cargo xtask pray`",
            "`landfall fly`",
            "`dist/gone.toml`",
            "pending `heap::x::gone`",
        ] {
            assert_eq!(found(cell), 1, "{cell}");
        }
    }

    #[test]
    fn document_must_exist() {
        assert_eq!(check(&[], &[]).len(), 1);
    }
}
