//! Parses words of a command, written as in a shell.

/// Splits a line at blanks. `"..."` is one word, with `\n`, `\r`, `\t`, `\\`, `\"` and `\xHH`; a word `@N` is N bytes
/// of text that depends only on N.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let word;
        (word, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_word(quoted),
            None => {
                let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                (plain_word(word), rest)
            }
        };
        words.push(word);
        rest = rest.trim_start();
    }
    words
}

fn plain_word(word: &str) -> Vec<u8> {
    match word.strip_prefix('@').and_then(|count| count.parse::<usize>().ok()) {
        Some(count) => (0..count).map(|at| b'a' + ((at * 7 + count) % 26) as u8).collect(),
        None => word.into(),
    }
}

fn quoted_word(text: &str) -> (Vec<u8>, &str) {
    let mut word = Vec::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (word, &text[at + 1..]),
            '\\' => match chars.next().expect("an escape").1 {
                'n' => word.push(b'\n'),
                'r' => word.push(b'\r'),
                't' => word.push(b'\t'),
                'x' => {
                    let hex: String = chars.by_ref().take(2).map(|(_, digit)| digit).collect();
                    word.push(u8::from_str_radix(&hex, 16).unwrap());
                }
                other => word.extend_from_slice(other.to_string().as_bytes()),
            },
            other => word.extend_from_slice(other.to_string().as_bytes()),
        }
    }
    panic!("a quoted word has no end: {text}");
}
