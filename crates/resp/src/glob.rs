//! Glob patterns as in `KEYS`, `SCAN MATCH` and `PSUBSCRIBE` (Redis: `stringmatchlen`).

/// True if `text` matches `pattern`.
///
/// `*` any bytes, `?` any byte, `[abc]`, `[a-z]`, `[^a]` one byte of a class, `\` takes the next byte as it is.
/// An unclosed class ends with the pattern. Takes at most `pattern.len() * text.len()` steps: only the last
/// `*` is ever tried again, which is enough, since an earlier one can always give way to it.
///
/// Unlike some versions of Redis, `*` also matches the empty string.
pub fn glob_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on when a match fails: after the last `*`, with one byte more of text taken by it.
    let mut retry = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        match text.get(t) {
            None if p == pattern.len() => return true,
            None => return false,
            Some(&byte) => {
                if let Some(len) = match_one(&pattern[p..], byte) {
                    (p, t) = (p + len, t + 1);
                    continue;
                }
            }
        }
        let Some((after_star, taken)) = retry else { return false };
        retry = Some((after_star, taken + 1));
        (p, t) = (after_star, taken + 1);
    }
}

/// Length of the pattern element at the front, if it matches `byte`. The element is not a `*`.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => match_class(class, byte).map(|len| 1 + len),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Length of the class at the front, from after its `[` to after its `]`, if it matches `byte`.
fn match_class(class: &[u8], byte: u8) -> Option<usize> {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut matched = false;
    loop {
        let (hit, len) = match &class[at..] {
            [] => break,
            [b'\\', literal, ..] => (*literal == byte, 2),
            [b']', ..] => {
                at += 1;
                break;
            }
            [a, b'-', b, ..] => ((*a.min(b)..=*a.max(b)).contains(&byte), 3),
            [literal, ..] => (*literal == byte, 1),
        };
        matched |= hit;
        at += len;
    }
    (matched != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn assert_match(pattern: &str, text: &str, want: bool) {
        assert_eq!(glob_match(pattern.as_bytes(), text.as_bytes()), want, "{pattern:?} on {text:?}");
    }

    #[test]
    fn literals_and_wildcards() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "x"),
            ("a*", "a"),
            ("a?c", "abc"),
            ("*b*", "abc"),
            ("h*llo", "heeeello"),
            ("**", ""),
        ] {
            assert_match(pattern, text, true);
        }
        for (pattern, text) in [("", "a"), ("a", ""), ("?", ""), ("a?c", "ac"), ("*b", "abc"), ("ab", "abc")]
        {
            assert_match(pattern, text, false);
        }
    }

    #[test]
    fn classes() {
        for (pattern, text) in [
            ("h[ae]llo", "hallo"),
            ("[a-c]", "b"),
            ("[c-a]", "b"),
            ("[^a]", "b"),
            ("[\\]]", "]"),
            ("[ab", "b"),
            ("[^", "x"),
        ] {
            assert_match(pattern, text, true);
        }
        for (pattern, text) in
            [("[ae]", "i"), ("[^a]", "a"), ("[]", "a"), ("[a-c]", "d"), ("[", "["), ("[^a]", "")]
        {
            assert_match(pattern, text, false);
        }
    }

    #[test]
    fn escapes() {
        assert_match("\\*", "*", true);
        assert_match("\\*", "x", false);
        assert_match("a\\", "a\\", true);
    }

    #[test]
    fn nested_stars_do_not_blow_up() {
        let pattern = "a*".repeat(200) + "b";
        assert_match(&pattern, &"a".repeat(20_000), false);
    }

    /// The algorithm of Redis, recursive, without its cuts: exponential, for short inputs only.
    fn oracle(mut p: &[u8], mut s: &[u8]) -> bool {
        loop {
            match p {
                [] => return s.is_empty(),
                [b'*', rest @ ..] => return (0..=s.len()).any(|skip| oracle(rest, &s[skip..])),
                _ if s.is_empty() => return false,
                [b'[', ..] => {
                    let (hit, rest) = oracle_class(&p[1..], s[0]);
                    if !hit {
                        return false;
                    }
                    p = rest;
                }
                [b'?', ..] => p = &p[1..],
                _ => {
                    let literal = if p[0] == b'\\' && p.len() >= 2 { 1 } else { 0 };
                    if p[literal] != s[0] {
                        return false;
                    }
                    p = &p[literal + 1..];
                }
            }
            s = &s[1..];
        }
    }

    fn oracle_class(mut p: &[u8], byte: u8) -> (bool, &[u8]) {
        let not = p.first() == Some(&b'^');
        if not {
            p = &p[1..];
        }
        let mut hit = false;
        while let Some(&first) = p.first() {
            if p.len() >= 2 && first == b'\\' {
                p = &p[1..];
                hit |= p[0] == byte;
            } else if first == b']' {
                return (hit != not, &p[1..]);
            } else if p.len() >= 3 && p[1] == b'-' {
                let (low, high) = if first < p[2] { (first, p[2]) } else { (p[2], first) };
                p = &p[2..];
                hit |= byte >= low && byte <= high;
            } else {
                hit |= first == byte;
            }
            p = &p[1..];
        }
        (hit != not, p)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn agrees_with_the_recursive_algorithm(p in "[ab*?\\[\\]^\\\\-]{0,10}", s in "[ab\\]^-]{0,8}") {
            prop_assert_eq!(glob_match(p.as_bytes(), s.as_bytes()), oracle(p.as_bytes(), s.as_bytes()));
        }
    }
}
