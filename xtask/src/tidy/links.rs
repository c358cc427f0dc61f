//! Links between files resolve: relative links in Markdown, and references to format documents in any file.

use super::Finding;
use crate::workspace::TextFile;
use std::collections::BTreeSet;

/// The folder of the format documents. Source refers to them by this path.
const FORMATS: &str = concat!("docs/", "format/");

/// Checks all links of all files.
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let known = known_paths(files);
    let mut findings = Vec::new();
    for file in files {
        findings.extend(formats(file, &known));
        if file.path.ends_with(".md") {
            findings.extend(markdown(file, files, &known));
        }
    }
    findings
}

/// Every file, and every folder that contains one.
fn known_paths(files: &[TextFile]) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for file in files {
        let mut path = file.path.as_str();
        known.insert(path.to_owned());
        while let Some((folder, _)) = path.rsplit_once('/') {
            known.insert(folder.to_owned());
            path = folder;
        }
    }
    known
}

fn formats(file: &TextFile, known: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (n, line) in file.text.lines().enumerate() {
        for (at, _) in line.match_indices(FORMATS) {
            let rest = &line[at + FORMATS.len()..];
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || "-_.".contains(*c)).collect();
            let path = format!("{FORMATS}{}", name.trim_end_matches('.'));
            if name.ends_with(".md") && !known.contains(&path) {
                findings.push(Finding::new(&file.path, n + 1, format!("`{path}` does not exist")));
            }
        }
    }
    findings
}

fn markdown(file: &TextFile, files: &[TextFile], known: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in links(&file.text) {
        if let Some(what) = broken(file, &target, files, known) {
            findings.push(Finding::new(&file.path, line, what));
        }
    }
    findings
}

fn broken(file: &TextFile, target: &str, files: &[TextFile], known: &BTreeSet<String>) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
    if !known.contains(&path) && !path.is_empty() {
        return Some(format!("link to `{target}`: `{path}` does not exist"));
    }
    let there = files.iter().find(|f| f.path == path && f.path.ends_with(".md"));
    let missing = !anchor.is_empty() && there.is_some_and(|f| !anchors(&f.text).contains(anchor));
    missing.then(|| format!("link to `{target}`: no such heading"))
}

/// `path` relative to the folder of `from`, as a path from the root.
fn resolve(from: &str, path: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Targets of inline links and reference definitions, with their 1-based lines, outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, prose) in prose_lines(text) {
        for (at, _) in prose.match_indices("](") {
            let target = prose[at + 2..].split([')', ' ']).next().unwrap_or_default();
            found.push((line, target.trim_matches(['<', '>']).to_owned()));
        }
        let definition = prose.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        if let Some((_, target)) = definition {
            found.push((line, target.split(' ').next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// Lines outside fenced blocks, with `code spans` blanked.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut prose = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose.push((n + 1, without_code(line)));
        }
    }
    prose
}

fn without_code(line: &str) -> String {
    if line.matches('`').count() % 2 == 1 {
        return line.to_owned();
    }
    line.split('`').step_by(2).collect()
}

/// The anchors that hosts generate for headings: lower case, without punctuation, spaces as hyphens.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && line.starts_with('#') {
            found.insert(anchor(line.trim_start_matches('#').trim()));
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    const MEDIA: &str = concat!("docs/", "format/media.md");

    fn found(text: &str) -> Vec<usize> {
        let files = fixture::files(&[
            ("docs/a.md", text),
            (MEDIA, "# What, then?\n```\n# no heading\n```\n"),
            ("README.md", "# R\n"),
        ]);
        check(&files).iter().map(|f| f.line).collect()
    }

    #[test]
    fn links_that_resolve_pass() {
        assert!(
            found("[a](format/media.md) [b](../README.md) [c](https://x.example/y) [d](..)\n").is_empty()
        );
        assert!(
            found("# Own `heading` here\n[a](#own-heading-here) [b](format/media.md#what-then)\n").is_empty()
        );
        assert!(found("`[a](gone.md)`\n```\n[b](gone.md)\n```\n").is_empty());
    }

    #[test]
    fn links_that_do_not_resolve_are_caught() {
        assert_eq!(found("[a](gone.md)\n\n[b](../media.md)\n[c]: gone.md\n"), [1, 3, 4]);
        assert_eq!(found("[a](#nowhere) [b](format/media.md#no-heading)\n"), [1, 1]);
    }

    #[test]
    fn mention_of_a_missing_format_document_is_caught_in_source() {
        let line = |name: &str| format!("//! See `{FORMATS}{name}`.\n");
        let text = [line("media.md"), line("gone.md")].concat();
        let files = fixture::files(&[("a.rs", &text), (MEDIA, "# M\n")]);
        assert_eq!(check(&files).iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
    }
}
