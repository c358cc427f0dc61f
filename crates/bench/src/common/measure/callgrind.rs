//! Reads profiles of callgrind: instructions in total and by the part of the program that executed them.
//!
//! The format is that of the Valgrind manual, "Callgrind Format Specification".

use std::collections::{BTreeMap, HashMap};

/// Instructions by part: a crate of Landfall, `allocation`, `copying and comparing`, `checksums`, `other`.
pub(crate) type Parts = BTreeMap<String, f64>;

/// Returns the instructions of a profile in total.
pub(crate) fn total(profile: &str) -> Option<f64> {
    let line = profile
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")))?;
    line.trim().parse().ok()
}

/// Returns each part's own instructions, without those of functions that it calls.
pub(crate) fn parts(profile: &str) -> Parts {
    let mut reader = Reader::default();
    profile.lines().for_each(|line| reader.take(line));
    reader.parts
}

/// The function that a line of costs belongs to.
#[derive(Default)]
struct Reader {
    /// Names are written once, then referred to by their numbers.
    files: HashMap<String, String>,
    functions: HashMap<String, String>,
    file: String,
    function: String,
    /// Whether the next line is the cost of a call, which belongs to the called function.
    after_call: bool,
    parts: Parts,
}

impl Reader {
    fn take(&mut self, line: &str) {
        if let Some((key, value)) = line.split_once('=') {
            match key {
                "fl" | "fi" | "fe" => self.file = name(&mut self.files, value),
                "fn" => self.function = name(&mut self.functions, value),
                // Names of what is called are numbered here, too.
                "cfl" | "cfi" => drop(name(&mut self.files, value)),
                "cfn" => drop(name(&mut self.functions, value)),
                "calls" => self.after_call = true,
                _ => {}
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && !std::mem::take(&mut self.after_call)
            && let Some(cost) = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<f64>().ok())
        {
            *self.parts.entry(part(&self.file, &self.function)).or_default() += cost;
        }
    }
}

/// Returns the name of `(number) name`, or of `(number)` if an earlier line named it.
fn name(known: &mut HashMap<String, String>, value: &str) -> String {
    let Some((number, name)) = value.split_once(')') else { return value.to_owned() };
    match name.trim() {
        "" => known.get(number).cloned().unwrap_or_default(),
        name => {
            known.insert(number.to_owned(), name.to_owned());
            name.to_owned()
        }
    }
}

/// Returns the part that a line belongs to: by its file if that is Landfall's, otherwise by the function that the code
/// was inlined into.
fn part(file: &str, function: &str) -> String {
    // The compiler's own library has crates, too.
    let ours =
        Some(file).filter(|file| !file.contains("/rustc/")).and_then(|file| file.split_once("crates/"));
    if let Some((name, _)) = ours.and_then(|(_, rest)| rest.split_once("/src/")) {
        return name.into();
    }
    if file.contains("/crc") || function.contains("crc") {
        return "checksums".into();
    }
    if let Some((_, rest)) = function.split_once("landfall_") {
        return rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    }
    let is = |words: &[&str]| words.iter().any(|word| function.contains(word));
    if is(&["malloc", "free", "calloc", "alloc"]) {
        "allocation".into()
    } else if is(&["memcpy", "memmove", "memcmp", "memset", "memchr"]) {
        "copying and comparing".into()
    } else {
        "other".into()
    }
}

#[cfg(test)]
mod tests {
    use super::{Parts, parts, total};

    #[test]
    fn the_total_of_a_profile_is_found() {
        assert_eq!(total("events: Ir\nfn=(1) main\n1 5\ntotals: 12345\n"), Some(12345.0));
        assert_eq!(total("events: Ir\nsummary: 77\nfn=(1)\n"), Some(77.0));
        assert_eq!(total("nothing"), None);
    }

    #[test]
    fn instructions_belong_to_the_code_that_executes_them_and_calls_to_whom_they_call() {
        let profile = "events: Ir\n\
            fl=(1) /somewhere/crates/kv/src/engine.rs\nfn=(1) landfall_kv::engine::Engine::set\n10 100\n+2 20\n\
            fi=(2) /rustc/1/library/stdarch/crates/core_arch/src/x86/sse.rs\n5 7\n\
            fe=(1)\ncfi=(3) malloc.c\ncfn=(2) _int_malloc\ncalls=3 10\n* 5000\n* 1\n\
            fl=(3)\nfn=(2)\n10 900\n\
            fl=(4) ???\nfn=(3) <landfall_heap::Heap as core::fmt::Debug>::fmt\n0 3\n\
            fn=(4) __memcpy_avx\n0 50\nfn=(5) main\n0 8\n\
            totals: 6089\n";
        let wanted = [
            ("allocation", 900.0),
            ("copying and comparing", 50.0),
            ("heap", 3.0),
            ("kv", 128.0),
            ("other", 8.0),
        ];
        assert_eq!(
            parts(profile),
            wanted.map(|(part, cost)| (part.to_owned(), cost)).into_iter().collect::<Parts>()
        );
    }
}
