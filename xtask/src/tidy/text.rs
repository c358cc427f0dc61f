//! White space, unfinished work, and words that do not belong in a public repository.

use super::{Finding, RustFile};
use crate::source::words;
use crate::workspace::TextFile;

/// Files whose white space is checked.
const SPACED: &[&str] = &[".rs", ".md", ".toml", ".service", ".ci/run"];
/// Paths of a particular machine. They are split, so that this list does not find itself.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/home", "/")];
/// Hosts of package registries: they are configuration of a machine, not of the project.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("deb.debian", ".org"),
    concat!("pypi", ".org"),
    concat!("registry.npmjs", ".org"),
];
/// The only allowed source of dependencies in the lock file.
const REGISTRY_SOURCE: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");
/// Macros that mark unfinished work.
const UNFINISHED_MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
/// Comments that mark unfinished work.
const UNFINISHED_WORDS: &[&str] = &[concat!("FIX", "ME"), concat!("X", "XX"), concat!("TO", "DO")];

/// Checks any text file.
pub(crate) fn check(file: &TextFile) -> Vec<Finding> {
    if file.path.ends_with("Cargo.lock") {
        return lines(file, foreign_source);
    }
    let mut findings = lines(file, private_word);
    if SPACED.iter().any(|end| file.path.ends_with(end)) {
        findings.extend(lines(file, white_space));
        findings.extend(unfinished_line(file));
    }
    findings
}

fn unfinished_line(file: &TextFile) -> Option<Finding> {
    let finished = file.text.is_empty() || file.text.ends_with('\n');
    (!finished).then(|| Finding::new(&file.path, 0, "no newline at the end"))
}

fn lines(file: &TextFile, wrong: fn(&str) -> Option<String>) -> Vec<Finding> {
    let numbered = file.text.split('\n').enumerate();
    numbered.filter_map(|(n, line)| wrong(line).map(|what| Finding::new(&file.path, n + 1, what))).collect()
}

fn white_space(line: &str) -> Option<String> {
    if line.contains('\t') {
        return Some("tab".to_owned());
    }
    line.ends_with([' ', '\r']).then(|| "white space at the end".to_owned())
}

fn private_word(line: &str) -> Option<String> {
    if let Some(path) = MACHINE_PATHS.iter().find(|path| names_path(line, path)) {
        return Some(format!("`{path}` is a path of a particular machine"));
    }
    let host = REGISTRY_HOSTS.iter().find(|host| line.contains(*host))?;
    Some(format!("`{host}`: registries belong to a machine's configuration"))
}

/// Whether an absolute path begins there: `a/root/b` is a relative path.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '~' | '>'))
    })
}

fn foreign_source(line: &str) -> Option<String> {
    let source = line.strip_prefix("source = ")?.trim_matches('"');
    (source != REGISTRY_SOURCE).then(|| format!("dependency from `{source}`, not the public registry"))
}

/// Checks a Rust file for unfinished work.
pub(crate) fn check_rust(file: &RustFile<'_>) -> Vec<Finding> {
    let code = file.source.code.as_str();
    let mut findings = Vec::new();
    for name in UNFINISHED_MACROS {
        let calls = words(code, name).filter(|at| code[at + name.len()..].starts_with('!'));
        findings.extend(calls.map(|at| at_offset(file, at, format!("`{name}!` marks unfinished work"))));
    }
    for word in UNFINISHED_WORDS {
        let marks = words(&file.source.comments, word);
        findings.extend(marks.map(|at| at_offset(file, at, format!("`{word}`: finish it or open an issue"))));
    }
    findings
}

fn at_offset(file: &RustFile<'_>, at: usize, what: String) -> Finding {
    Finding::new(file.path, crate::source::line_of(file.text, at), what)
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, rust_files};
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&fixture::files(&[(path, text)])[0]).len()
    }

    #[test]
    fn tabs_and_trailing_space_are_caught() {
        assert_eq!(found("a.rs", "fn f() {}\n"), 0);
        assert_eq!(found("a.rs", "fn f() {} \n\tx\n"), 2);
        assert_eq!(found("a.md", "a\r\n"), 1);
        assert_eq!(found("Makefile", "\tx\n"), 0);
        assert_eq!(found("a.rs", "fn f() {}"), 1);
    }

    #[test]
    fn machine_paths_and_registry_hosts_are_caught() {
        for line in [MACHINE_PATHS[0], REGISTRY_HOSTS[0], "see file://", "ok"] {
            let expected = usize::from(line.len() > 3 && !line.starts_with("see"));
            assert_eq!(found("a.toml", &format!("x = \"{line}\"\n")), expected, "{line}");
        }
        assert_eq!(found("a.md", &format!("a{}b\n", MACHINE_PATHS[1])), 0);
    }

    #[test]
    fn lock_file_may_name_only_the_public_registry() {
        assert_eq!(found("Cargo.lock", &format!("source = \"{REGISTRY_SOURCE}\"\n")), 0);
        assert_eq!(found("Cargo.lock", "source = \"registry+https://mirror.example/index\"\n"), 1);
    }

    #[test]
    fn unfinished_work_is_caught_in_code_and_comments_only() {
        let word = UNFINISHED_WORDS[0];
        let text = format!("fn f() {{ dbg!(1); todo!() }} // {word}: later\nlet s = \"todo!() {word}\";\n");
        let files = fixture::files(&[("a.rs", &text)]);
        assert_eq!(check_rust(&rust_files(&files)[0]).len(), 3);
    }
}
