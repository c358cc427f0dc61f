//! Splits Rust source into code, comments and literals, as far as the checks need it.

/// Two views of a source file. Each keeps the bytes and lines of its part in place and has blanks for everything else.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Code, without comments and without the contents of strings and characters.
    pub(crate) code: String,
    /// Comments only.
    pub(crate) comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Source {
    /// Splits `text`. Text that is not Rust gives meaningless views, but never a panic.
    pub(crate) fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut code = blank(bytes);
        let mut comments = code.clone();
        let mut at = 0;
        while at < bytes.len() {
            let (kind, end) = lexeme(bytes, at);
            let end = end.clamp(at + 1, bytes.len());
            match kind {
                Kind::Code => code[at..end].copy_from_slice(&bytes[at..end]),
                Kind::Comment => comments[at..end].copy_from_slice(&bytes[at..end]),
                Kind::Literal => {}
            }
            at = end;
        }
        let view = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: view(code), comments: view(comments) }
    }

    /// Blanks the modules that only tests compile: `#[cfg(test)] mod … { … }`.
    pub(crate) fn without_tests(mut self) -> Self {
        while let Some(range) = self.test_module() {
            self.code = blank_range(&self.code, range.clone());
            self.comments = blank_range(&self.comments, range);
        }
        self
    }

    /// Names of the test-only modules that are separate files: `#[cfg(test)] mod name;`.
    pub(crate) fn test_files(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (at, _) in self.code.match_indices(TEST_ATTRIBUTE) {
            if let Some(item) = self.module_after(at)
                && self.code[item.end..].starts_with(';')
            {
                names.push(self.code[item].to_owned());
            }
        }
        names
    }

    fn test_module(&self) -> Option<std::ops::Range<usize>> {
        self.code.match_indices(TEST_ATTRIBUTE).find_map(|(at, _)| {
            let name = self.module_after(at)?;
            let open = name.end + self.code[name.end..].find(|c: char| !c.is_whitespace())?;
            let inline = self.code.as_bytes()[open] == b'{';
            inline.then(|| at..block_end(&self.code, open))
        })
    }

    /// The range of the module's name behind the attribute at `at`, if a module follows.
    fn module_after(&self, at: usize) -> Option<std::ops::Range<usize>> {
        let mut next = past_attributes(&self.code, at + TEST_ATTRIBUTE.len());
        loop {
            let word = next_word(&self.code, next)?;
            let between = self.code[next..word.start].trim();
            match &self.code[word.clone()] {
                "mod" if between.is_empty() => return next_word(&self.code, word.end),
                "pub" | "crate" | "super" | "in" if matches!(between, "" | "(") => next = word.end,
                _ => return None,
            }
            if self.code[next..].starts_with(')') {
                next += 1;
            }
        }
    }
}

/// The offset behind the attributes that follow.
fn past_attributes(code: &str, mut at: usize) -> usize {
    loop {
        let rest = code[at..].trim_start();
        match rest.find(']').filter(|_| rest.starts_with("#[")) {
            Some(end) => at = code.len() - rest.len() + end + 1,
            None => return at,
        }
    }
}

const TEST_ATTRIBUTE: &str = "#[cfg(test)]";

/// 1-based line of a byte offset.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count()
}

/// Offsets at which `word` is a whole word, not a part of a longer identifier.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).map(|i| bytes[i]);
        let after = bytes.get(at + word.len()).copied();
        !before.is_some_and(is_ident) && !after.is_some_and(is_ident)
    })
}

/// The next identifier at or after `from`.
pub(crate) fn next_word(text: &str, from: usize) -> Option<std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let start = (from..bytes.len()).find(|i| is_ident(bytes[*i]))?;
    let end = (start..bytes.len()).find(|i| !is_ident(bytes[*i])).unwrap_or(bytes.len());
    Some(start..end)
}

/// One past the brace that closes the one at `open`, or the end of the text where no brace does.
pub(crate) fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Whether the byte can be part of an identifier. Bytes of non-ASCII letters can.
pub(crate) fn is_ident(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn blank(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }).collect()
}

fn blank_range(text: &str, range: std::ops::Range<usize>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let blanks = blank(&bytes[range.clone()]);
    bytes[range].copy_from_slice(&blanks);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The kind of the token that starts at `at`, and one past its last byte.
fn lexeme(bytes: &[u8], at: usize) -> (Kind, usize) {
    match (bytes[at], bytes.get(at + 1)) {
        (b'/', Some(b'/')) => (Kind::Comment, find(bytes, at, b'\n')),
        (b'/', Some(b'*')) => (Kind::Comment, comment_end(bytes, at)),
        (b'"', _) => (Kind::Literal, string_end(bytes, at + 1)),
        (b'\'', _) => char_end(bytes, at).map_or((Kind::Code, at + 1), |end| (Kind::Literal, end)),
        (b'r', _) => raw_end(bytes, at).map_or((Kind::Code, at + 1), |end| (Kind::Literal, end)),
        _ => (Kind::Code, at + 1),
    }
}

fn find(bytes: &[u8], from: usize, wanted: u8) -> usize {
    bytes[from..].iter().position(|b| *b == wanted).map_or(bytes.len(), |n| from + n)
}

/// One past the end of a block comment, which may nest.
fn comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a character, or `None` where the quote begins a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        return Some(find(bytes, (at + 3).min(bytes.len()), b'\'') + 1);
    }
    let len = match bytes.get(at + 1)? {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
    };
    (bytes.get(at + 1 + len) == Some(&b'\'')).then_some(at + len + 2)
}

/// The end of a raw string whose `r` is at `at`, or `None` where the `r` is an ordinary letter.
fn raw_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut before = at.checked_sub(1).map(|i| bytes[i]);
    if matches!(before, Some(b'b' | b'c')) {
        before = at.checked_sub(2).map(|i| bytes[i]);
    }
    if before.is_some_and(is_ident) {
        return None;
    }
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &bytes[open + 1..];
    let len = body.windows(close.len()).position(|w| w == close);
    Some(len.map_or(bytes.len(), |n| open + 1 + n + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let source = Source::new("let a = \"fn x() {\"; // fn y\n/* a /* fn */ z */ let b = r#\"{\"fn\"#;");
        assert!(!source.code.contains("fn") && source.code.contains("let b"), "{}", source.code);
        assert!(source.comments.contains("fn y") && !source.comments.contains("let"), "{}", source.comments);
    }

    #[test]
    fn lifetimes_and_characters_are_distinguished() {
        let source = Source::new(r"fn f<'a>(x: &'a u8) { m('{', '\'', b'}', 'é', '\u{7d}') }");
        assert!(source.code.contains("<'a>") && source.code.contains("&'a u8"));
        assert_eq!(source.code.matches('{').count(), 1);
        assert_eq!(source.code.matches('}').count(), 1);
    }

    #[test]
    fn raw_strings_end_where_their_hashes_do() {
        let source = Source::new("let a = br##\"x\"# unsafe\"##; let r = for_r; unsafe_code");
        assert_eq!(words(&source.code, "unsafe").count(), 0, "{}", source.code);
        assert!(source.code.contains("for_r"));
    }

    #[test]
    fn views_keep_offsets_and_lines() {
        let text = "// één\nlet x = \"ß\nfn\"; fn g() {}\n";
        let source = Source::new(text);
        assert_eq!((source.code.len(), source.comments.len()), (text.len(), text.len()));
        let at = words(&source.code, "fn").next().unwrap();
        assert_eq!(line_of(text, at), 3);
    }

    #[test]
    fn test_modules_are_left_out() {
        let text = "use a;\n#[cfg(test)]\nmod tests { use std::fs; mod m { } }\n#[cfg(test)]\npub(crate) mod oracle;\nfn z() {}";
        let source = Source::new(text);
        assert_eq!(source.test_files(), ["oracle"]);
        let rest = source.without_tests();
        assert!(!rest.code.contains("std::fs") && rest.code.contains("fn z"), "{}", rest.code);
    }

    #[test]
    fn broken_source_does_not_panic() {
        for text in ["'", "r#", "\"\\", "/*", "'\\", "b'\\", "br\"", "é'", "#[cfg(test)] mod", "{{}"] {
            let _views = Source::new(text).without_tests();
        }
    }
}
