//! Unsafe code is confined to modules named `sys`, and every block has a comment that says why it is sound.

use super::{Finding, RustFile};
use crate::source::{line_of, next_word, words};

/// Maximum number of lines of a statement between a SAFETY comment and its block.
const STATEMENT_LINES_MAX: usize = 6;

/// Checks every use of `unsafe`.
pub(crate) fn check(files: &[RustFile<'_>]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &RustFile<'_>) -> Vec<Finding> {
    let code = file.source.code.as_str();
    let mut findings = Vec::new();
    for at in words(code, "unsafe") {
        let line = line_of(code, at);
        if !is_sys(file.path) {
            findings.push(Finding::new(file.path, line, "`unsafe` outside a module named `sys`"));
        }
        if is_block(code, at) && !is_explained(file, line) {
            findings.push(Finding::new(file.path, line, "unsafe block without a SAFETY comment above it"));
        }
    }
    findings
}

/// Whether the file is `sys.rs` or lies in a folder `sys`.
fn is_sys(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "sys" | "sys.rs"))
}

fn is_block(code: &str, at: usize) -> bool {
    let after = at + "unsafe".len();
    let end = next_word(code, after).map_or(code.len(), |word| word.start);
    code[after..end].trim_start().starts_with('{')
}

/// Whether the line, or the statement that contains it, has a SAFETY comment.
fn is_explained(file: &RustFile<'_>, line: usize) -> bool {
    let code: Vec<&str> = file.source.code.lines().collect();
    let comments: Vec<&str> = file.source.comments.lines().collect();
    if comments.get(line - 1).is_some_and(|c| c.contains("SAFETY")) {
        return true;
    }
    let mut statement = 0;
    for above in (0..line - 1).rev() {
        if comments[above].contains("SAFETY") {
            return true;
        }
        let code = code[above].trim();
        // Comment lines and attributes belong to the code that follows; a completed statement ends the search.
        if code.is_empty() && comments[above].trim().is_empty() || code.ends_with([';', '{', '}']) {
            return false;
        }
        statement += usize::from(!code.is_empty());
        if statement > STATEMENT_LINES_MAX {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, rust_files};
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&rust_files(&fixture::files(&[(path, text)]))).len()
    }

    #[test]
    fn unsafe_outside_sys_is_caught() {
        let text = "unsafe impl Send for T {}\n";
        assert_eq!(found("crates/a/src/sys.rs", text), 0);
        assert_eq!(found("crates/a/src/sys/ring.rs", text), 0);
        assert_eq!(found("crates/a/src/system.rs", text), 1);
        assert_eq!(found("crates/a/src/lib.rs", "#![forbid(unsafe_code)] // unsafe\n"), 0);
    }

    #[test]
    fn block_without_reason_is_caught() {
        let path = "crates/a/src/sys.rs";
        assert_eq!(found(path, "let a = 1;\nlet b = unsafe { f() };\n"), 1);
        assert_eq!(found(path, "// SAFETY: no.\nlet a = 1;\nlet b = unsafe { f() };\n"), 1);
        assert_eq!(found(path, "// SAFETY: f is pure,\n// and so on.\nlet b = unsafe { f() };\n"), 0);
        assert_eq!(found(path, "// SAFETY: f is pure.\nlet b =\n    g(1,\n    unsafe { f() });\n"), 0);
        assert_eq!(found(path, "let b = unsafe { /* SAFETY: pure */ f() };\n"), 0);
        assert_eq!(found(path, "unsafe fn f() {}\n"), 0);
    }
}
