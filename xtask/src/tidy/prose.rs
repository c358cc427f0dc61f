//! Lines of prose in Markdown documents are short enough to read and to compare.

use super::Finding;
use crate::workspace::TextFile;
use std::collections::BTreeSet;

/// Maximum number of characters of a line of prose.
const LINE_CHARS_MAX: usize = 120;
/// It grows by one entry for each change, and older entries are history.
const CHANGELOG: &str = "CHANGELOG.md";

/// Checks all Markdown documents but the changelog and generated reports.
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let written = |file: &&TextFile| file.path != CHANGELOG && !is_report(&file.path, &paths);
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    documents.filter(written).flat_map(long_lines).collect()
}

/// A report lies beside the JSON file of that name that the benchmark wrote with it.
fn is_report(path: &str, paths: &BTreeSet<&str>) -> bool {
    path.strip_suffix(".md").is_some_and(|stem| paths.contains(format!("{stem}.json").as_str()))
}

fn long_lines(file: &TextFile) -> Vec<Finding> {
    let mut fenced = false;
    let mut findings = Vec::new();
    for (n, line) in file.text.lines().enumerate() {
        let text = line.trim_start();
        if text.starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !text.starts_with('|') && line.chars().count() > LINE_CHARS_MAX {
            let what = format!("{} characters, above {LINE_CHARS_MAX}: break the line", line.chars().count());
            findings.push(Finding::new(&file.path, n + 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<usize> {
        check(&fixture::files(files)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn long_line_of_prose_is_caught_at_its_line() {
        let (fits, long) = ("é".repeat(LINE_CHARS_MAX), "é".repeat(LINE_CHARS_MAX + 1));
        assert_eq!(found(&[("docs/a.md", &format!("{fits}\n{long}\n"))]), [2]);
        assert_eq!(found(&[("docs/a.md", &format!("```\n```\n  {fits}\n"))]), [3]);
    }

    #[test]
    fn tables_code_reports_and_the_changelog_may_be_longer() {
        let long = "x".repeat(LINE_CHARS_MAX + 1);
        let tables_and_code = format!("| {long} |\n- item\n  ```\n  {long}\n  ```\n");
        assert!(
            found(&[("docs/a.md", &tables_and_code), ("CHANGELOG.md", &long), ("a.rs", &long)]).is_empty()
        );
        assert!(found(&[("docs/kv.md", &long), ("docs/kv.json", "{}\n")]).is_empty());
        assert_eq!(found(&[("docs/kv.md", &long), ("docs/paper.json", "{}\n")]), [1]);
    }
}
