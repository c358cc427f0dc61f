//! Where functions begin, and how long they are.

use crate::source::{block_end, line_of, next_word, words};

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// 1-based line of `fn`.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace, both included.
    pub(crate) lines: usize,
}

/// Every function with a body in `code`, including nested ones, in order.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    words(code, "fn").filter_map(|at| function_at(code, at)).collect()
}

fn function_at(code: &str, at: usize) -> Option<Function> {
    let after = at + "fn".len();
    let name = next_word(code, after)?;
    // `fn(u8)` is a type: its parenthesis comes before any word.
    if !code[after..name.start].trim().is_empty() {
        return None;
    }
    let open = body_start(code, name.end)?;
    let line = line_of(code, at);
    let last = line_of(code, block_end(code, open).saturating_sub(1));
    Some(Function { name: code[name].to_owned(), line, lines: last + 1 - line })
}

/// The brace that opens the body; `None` where a semicolon ends the declaration first.
fn body_start(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn functions_are_measured_from_signature_to_brace() {
        let text = "trait T { fn no(&self) -> [u8; 4]; }\nfn one() {}\nfn four(\n    f: fn(u8) -> [u8; 2],\n) {\n    g(\"}\") }\n";
        let found = functions(&Source::new(text).code);
        let shape: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(shape, [("one", 2, 1), ("four", 3, 4)]);
    }

    #[test]
    fn nested_functions_count_on_their_own_and_in_their_parent() {
        let found = functions("fn a() {\n fn b() {\n }\n}\n");
        assert_eq!(found.iter().map(|f| f.lines).collect::<Vec<_>>(), [4, 2]);
    }
}
