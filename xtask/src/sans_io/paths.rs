//! Paths in the code of a crate: `a::b`, and trees such as `a::{b, c::{d, e as f}}`, expanded.

use crate::source::{is_ident, words};

/// Maximum depth of trees that is followed; real ones have two levels.
const DEPTH_MAX: usize = 16;

/// Every path in `code` that begins with `root`, expanded, with the offset of its last segment. A path that ends at
/// `root`, or renames it, is returned as `root`.
pub(crate) fn paths_from(code: &str, root: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in words(code, root) {
        let mut walk = Walk { code, at: at + root.len(), found: &mut found };
        walk.after(at, root.to_owned(), 0);
    }
    found
}

struct Walk<'a, 'f> {
    code: &'a str,
    at: usize,
    found: &'f mut Vec<(usize, String)>,
}

impl Walk<'_, '_> {
    /// Continues at `at`, behind a segment that began at `start` and completes the path `path`.
    fn after(&mut self, start: usize, path: String, depth: usize) {
        if depth > DEPTH_MAX || !self.skip("::") {
            self.found.push((start, path));
        } else if self.skip("{") {
            self.group(&path, depth);
        } else {
            self.segment(&path, depth);
        }
    }

    fn segment(&mut self, path: &str, depth: usize) {
        self.space();
        let start = self.at;
        let len = self.rest().bytes().take_while(|b| is_ident(*b) || *b == b'*').count();
        self.at += len;
        let name = &self.code[start..self.at];
        let whole = if name == "self" { path.to_owned() } else { format!("{path}::{name}") };
        self.after(start, whole, depth + 1);
    }

    /// The members of a group, up to and including its closing brace.
    fn group(&mut self, path: &str, depth: usize) {
        while self.at < self.code.len() && !self.skip("}") {
            self.segment(path, depth);
            let renamed = self.rest().find([',', '}']).unwrap_or(self.rest().len());
            self.at += renamed;
            self.skip(",");
        }
    }

    fn skip(&mut self, token: &str) -> bool {
        self.space();
        let here = self.rest().starts_with(token);
        if here {
            self.at += token.len();
        }
        here
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn rest(&self) -> &str {
        &self.code[self.at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelt(code: &str) -> Vec<String> {
        paths_from(code, "std").into_iter().map(|(_, path)| path).collect()
    }

    #[test]
    fn plain_paths_end_where_they_end() {
        assert_eq!(spelt("let x = std::env::var(y)?; std :: fs"), ["std::env::var", "std::fs"]);
        assert_eq!(spelt("use std as s; stdx::fs"), ["std"]);
    }

    #[test]
    fn trees_are_expanded() {
        let tree = "use std::{self, io::{self, Read as R}, time::Duration, fs::*};";
        assert_eq!(spelt(tree), ["std", "std::io", "std::io::Read", "std::time::Duration", "std::fs::*"]);
    }

    #[test]
    fn broken_trees_end() {
        for code in ["std::{", "std::{,,}", "std::{{{{", "std::", "std::{a::{b"] {
            let _found = spelt(code);
        }
    }
}
