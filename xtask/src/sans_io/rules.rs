//! What a core's source may not name, with the reasons.

use super::paths::paths_from;
use crate::source::{Source, line_of, words};

/// The parts of `std` that do I/O, and what they access.
const STD: &[(&str, &str)] = &[
    ("std::collections::HashMap", "its hasher draws entropy: use hashbrown with a named hash"),
    ("std::collections::HashSet", "its hasher draws entropy: use hashbrown with a named hash"),
    ("std::env", "the environment"),
    ("std::fs", "files"),
    ("std::io", "I/O"),
    ("std::net", "sockets"),
    ("std::os", "the operating system"),
    ("std::process", "processes"),
    ("std::thread", "threads"),
    ("std::time", "clocks: take `now` as an argument"),
    ("std::*", "everything, unseen"),
];
/// Paths below [`STD`] that are allowed. A time span and the epoch are not clocks (`elapsed`, which reads one, is in
/// [`CALLS`]), and `Write` puts text into byte buffers. The types that write elsewhere through it (files, sockets, the
/// terminal) are themselves forbidden.
const HARMLESS: &[&str] = &["std::time::Duration", "std::time::UNIX_EPOCH", "std::io::Write"];
/// The functions of the persistence seam that do I/O.
const SEAM: &[(&str, &str)] = &[
    ("landfall_media::open", "opening media is the server's part"),
    ("landfall_media::OpenOptions", "opening media is the server's part"),
    ("landfall_media::sim", "simulated media are for tests"),
];
/// Names that are forbidden whatever they are imported from.
const NAMES: &[(&str, &str)] = &[
    ("Instant::now", "a clock: take `now` as an argument"),
    ("SystemTime", "a clock: take `now` as an argument"),
    ("RandomState", "entropy"),
    ("thread_rng", "entropy"),
    ("rand", "entropy"),
    ("getrandom", "entropy"),
    ("libc", "the operating system"),
    ("rustix", "the operating system"),
];
/// Forbidden calls and macros, with the character that follows their name.
const CALLS: &[(&str, char, &str)] = &[
    ("elapsed", '(', "a clock: take `now` as an argument"),
    ("print", '!', "the terminal"),
    ("println", '!', "the terminal"),
    ("eprint", '!', "the terminal"),
    ("eprintln", '!', "the terminal"),
];

/// The forbidden names that the shipped part of a file uses, as `path:line: what`.
pub(crate) fn findings(path: &str, source: &Source) -> Vec<String> {
    let shipped = Source { code: source.code.clone(), comments: source.comments.clone() }.without_tests();
    let code = shipped.code.as_str();
    let mut found = outside_paths(code, "std", STD);
    found.extend(outside_paths(code, "landfall_media", SEAM));
    found.extend(renamed_std(code));
    found.extend(NAMES.iter().flat_map(|(name, why)| {
        words(code, name)
            .filter(|at| is_reached(code, *at, name))
            .map(move |at| (at, format!("`{name}`: {why}")))
    }));
    found.extend(CALLS.iter().flat_map(|(name, sign, why)| {
        let calls = words(code, name).filter(|at| code[at + name.len()..].starts_with(*sign));
        calls.map(move |at| (at, format!("`{name}{sign}`: {why}")))
    }));
    found.sort();
    found.into_iter().map(|(at, what)| format!("{path}:{}: {what}", line_of(code, at))).collect()
}

fn outside_paths(code: &str, root: &str, rules: &[(&str, &str)]) -> Vec<(usize, String)> {
    let forbidden = |path: &str| {
        let below =
            |prefix: &str| path.strip_prefix(prefix).is_some_and(|r| r.is_empty() || r.starts_with("::"));
        if HARMLESS.iter().any(|prefix| below(prefix)) {
            return None;
        }
        rules.iter().find(|(prefix, _)| below(prefix)).map(|(_, why)| *why)
    };
    let paths = paths_from(code, root);
    paths
        .into_iter()
        .filter_map(|(at, path)| forbidden(&path).map(|why| (at, format!("`{path}`: {why}"))))
        .collect()
}

/// `std as s` would hide all other uses from these rules.
fn renamed_std(code: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    let renamed = words(code, "std").filter(|at| {
        let mut rest = code[at + "std".len()..].split_whitespace();
        rest.next() == Some("as")
    });
    renamed.map(|at| (at, "`std` under another name".to_owned()))
}

/// Crate names count only where a path or an import begins with them: `rand` may be a variable.
fn is_reached(code: &str, at: usize, name: &str) -> bool {
    let is_type = name.starts_with(|c: char| c.is_uppercase());
    is_type || name == "thread_rng" || code[at + name.len()..].trim_start().starts_with("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(code: &str) -> usize {
        findings("x.rs", &Source::new(code)).len()
    }

    #[test]
    fn duration_is_not_a_clock() {
        assert_eq!(count("use std::time::Duration; fn f(d: std::time::Duration) {}"), 0);
        assert_eq!(count("use std::time::{Duration, UNIX_EPOCH}; let t = UNIX_EPOCH + d;"), 0);
        assert_eq!(count("use std::time::{Duration, SystemTime};"), 2);
        assert_eq!(count("let now = UNIX_EPOCH.elapsed();"), 1);
        assert_eq!(count("use std::time;"), 1);
    }

    #[test]
    fn variables_named_like_crates_are_harmless() {
        assert_eq!(count("let rand = 1; f(rand)"), 0);
        assert_eq!(count("let x = rand::random();"), 1);
    }
}
