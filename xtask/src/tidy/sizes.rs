//! Files and functions stay small enough to read.

use super::{Finding, RustFile};
use crate::functions::{Function, functions};

/// Number of lines of a file above which the check fails, and above which it warns.
const FILE_LINES_MAX: usize = 800;
const FILE_LINES_WARN: usize = 500;
/// Number of lines of a function above which the check fails.
const FUNCTION_LINES_MAX: usize = 80;
/// Number of lines below which nine in ten functions should stay.
const FUNCTION_LINES_USUAL: usize = 40;
/// The required share of functions below [`FUNCTION_LINES_USUAL`], in percent.
const USUAL_PERCENT: usize = 90;

/// Functions that may be longer, each with its file, its name and the reason why splitting it would not help.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

/// Checks every file and function; prints the distribution of function lengths.
pub(crate) fn check(files: &[RustFile<'_>]) -> Vec<Finding> {
    let measured: Vec<(&str, Function)> = files
        .iter()
        .flat_map(|f| functions(&f.source.code).into_iter().map(|function| (f.path, function)))
        .collect();
    print!("{}", distribution(&measured));
    let mut findings: Vec<Finding> = files.iter().filter_map(file_size).collect();
    findings.extend(measured.iter().filter_map(|(path, f)| function_size(path, f, LONG_FUNCTIONS)));
    findings.extend(stale(&measured, LONG_FUNCTIONS));
    findings
}

fn file_size(file: &RustFile<'_>) -> Option<Finding> {
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        return Some(Finding::new(file.path, 0, format!("{lines} lines, above {FILE_LINES_MAX}: split it")));
    }
    let longish = lines > FILE_LINES_WARN;
    longish.then(|| Finding::warning(file.path, 0, format!("{lines} lines, 200 to 400 read best")))
}

fn function_size(path: &str, function: &Function, allowed: &[(&str, &str, &str)]) -> Option<Finding> {
    let Function { name, line, lines } = function;
    if *lines <= FUNCTION_LINES_MAX {
        return None;
    }
    match allowed.iter().find(|(p, n, _)| p == &path && n == name) {
        Some((_, _, why)) => {
            Some(Finding::warning(path, *line, format!("`{name}` has {lines} lines: {why}")))
        }
        None => {
            Some(Finding::new(path, *line, format!("`{name}` has {lines} lines, above {FUNCTION_LINES_MAX}")))
        }
    }
}

/// Allowances that are no longer needed.
fn stale(measured: &[(&str, Function)], allowed: &[(&str, &str, &str)]) -> Vec<Finding> {
    let needed = |path: &str, name: &str| {
        measured.iter().any(|(p, f)| *p == path && f.name == name && f.lines > FUNCTION_LINES_MAX)
    };
    let stale = allowed.iter().filter(|(path, name, _)| !needed(path, name));
    stale.map(|(path, name, _)| Finding::new(path, 0, format!("allowance for `{name}` is stale"))).collect()
}

fn distribution(measured: &[(&str, Function)]) -> String {
    let count = |range: std::ops::RangeInclusive<usize>| {
        measured.iter().filter(|(_, f)| range.contains(&f.lines)).count()
    };
    let usual = count(0..=FUNCTION_LINES_USUAL - 1);
    let percent = (usual * 100).checked_div(measured.len()).unwrap_or(100);
    let verdict = if percent >= USUAL_PERCENT { "within the limit" } else { "MORE THAN ONE IN TEN IS LONG" };
    format!(
        "  {} functions: {} up to 8 lines, {} to 20, {} to 39, {} to 80, {} above\n  {percent} % under {FUNCTION_LINES_USUAL} lines: {verdict}\n",
        measured.len(),
        count(0..=8),
        count(9..=20),
        count(21..=39),
        count(40..=80),
        count(81..=usize::MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, rust_files};
    use super::*;

    fn function(lines: usize) -> Function {
        Function { name: "f".to_owned(), line: 1, lines }
    }

    #[test]
    fn long_file_fails_and_longish_file_warns() {
        let sized = |lines: usize| {
            let files = fixture::files(&[("a.rs", &"// x\n".repeat(lines))]);
            check(&rust_files(&files)).iter().map(|f| f.warning).collect::<Vec<_>>()
        };
        assert_eq!((sized(500), sized(800), sized(801)), (vec![], vec![true], vec![false]));
    }

    #[test]
    fn long_function_fails_unless_allowed() {
        let allowed = [("a.rs", "f", "a table")];
        assert_eq!(function_size("a.rs", &function(80), &[]), None);
        assert!(!function_size("a.rs", &function(81), &[]).unwrap().warning);
        assert!(function_size("a.rs", &function(81), &allowed).unwrap().warning);
        assert!(!function_size("b.rs", &function(81), &allowed).unwrap().warning);
    }

    #[test]
    fn unneeded_allowance_is_caught() {
        let allowed = [("a.rs", "f", "a table")];
        assert!(stale(&[("a.rs", function(81))], &allowed).is_empty());
        assert_eq!(stale(&[("a.rs", function(80))], &allowed).len(), 1);
    }

    #[test]
    fn distribution_says_when_too_many_are_long() {
        let short: Vec<_> = (0..9).map(|_| ("a.rs", function(5))).collect();
        assert!(distribution(&short).contains("100 % under 40 lines: within the limit"));
        let long = [short, vec![("a.rs", function(50)); 2]].concat();
        assert!(distribution(&long).contains("81 % under 40 lines: MORE"), "{}", distribution(&long));
    }
}
