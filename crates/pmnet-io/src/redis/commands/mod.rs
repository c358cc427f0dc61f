//! Which commands may be acknowledged before the server has executed them.
//!
//! A command is *early* if its success reply is known beforehand. It is acknowledged as soon as the network has it. All
//! other commands wait for the server. `docs/pmnet-commands.md` shows the table.

mod class;
mod forms;
mod table;

pub use class::{Answer, Class, Refusal, Why};
pub use table::{ROWS, Row};

use class::Rule;

/// Longest name in the table, with its subcommand, bytes.
const NAME_BYTES_MAX: usize = 24;

/// The class of a command, from its name and arguments.
pub fn classify(args: &[&[u8]]) -> Class {
    match find(args).map(|row| row.rule) {
        None => Class::Bypass(Why::Unknown),
        Some(Rule::Bypass(why)) => Class::Bypass(why),
        Some(Rule::Local(answer)) => Class::Local(answer),
        Some(Rule::Refused(refusal)) => Class::Refused(refusal),
        Some(Rule::Form(form)) => form(args),
    }
}

/// The row of a command: that of its subcommand if there is one, otherwise its own.
pub fn find(args: &[&[u8]]) -> Option<&'static Row> {
    let name = args.first()?;
    let at = position(name, None)?;
    let has_own = ROWS.get(at + 1).is_some_and(|next| next.name.as_bytes().get(name.len()) == Some(&b'|'));
    let own = args.get(1).filter(|_| has_own).and_then(|sub| position(name, Some(sub)));
    Some(&ROWS[own.unwrap_or(at)])
}

fn position(name: &[u8], sub: Option<&[u8]>) -> Option<usize> {
    let mut whole = [0; NAME_BYTES_MAX];
    let len = name.len() + sub.map_or(0, |sub| sub.len() + 1);
    let whole = whole.get_mut(..len)?;
    whole[..name.len()].copy_from_slice(name);
    if let Some(sub) = sub {
        whole[name.len()] = b'|';
        whole[name.len() + 1..].copy_from_slice(sub);
    }
    whole.make_ascii_lowercase();
    ROWS.binary_search_by(|row| row.name.as_bytes().cmp(whole)).ok()
}

/// The table of `docs/pmnet-commands.md`, with one line for each command.
pub fn markdown() -> String {
    let lines = ROWS
        .iter()
        .map(|row| format!("| `{}` | {} |\n", row.name.replace('|', " ").to_uppercase(), rule_words(row)));
    format!("| command | how it is handled |\n|---|---|\n{}", lines.collect::<String>())
}

fn rule_words(row: &Row) -> String {
    match row.rule {
        Rule::Bypass(why) => format!("bypass: {}", why.words()),
        Rule::Local(_) => "answered by the side-car".to_owned(),
        Rule::Refused(refusal) => format!("refused: {}", refusal.words()),
        Rule::Form(_) => form_words(row.name).to_owned(),
    }
}

fn form_words(name: &str) -> &'static str {
    match name {
        "set" => {
            "**early** `+OK`, alone or with one of EX, PX, EXAT, PXAT, KEEPTTL; bypass with NX, XX (a lock) or GET (data)"
        }
        "setex" | "psetex" | "mset" => "**early** `+OK`",
        "hmset" | "ltrim" | "pfmerge" => {
            "typed: `+OK` unless the key holds another type; bypass, or early if the side-car is set so"
        }
        "xread" => "bypass: reads; with BLOCK waits until there is a result",
        _ => "bypass: its reply carries data; with BLOCK waits until there is a result",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_fit() {
        assert!(ROWS.is_sorted_by(|a, b| a.name < b.name));
        assert!(ROWS.iter().all(|row| row.name.len() <= NAME_BYTES_MAX));
    }

    #[test]
    fn every_row_is_found_by_its_name_in_any_case() {
        for row in ROWS {
            let name = row.name.to_uppercase();
            let args: Vec<&[u8]> = name.split('|').map(str::as_bytes).collect();
            assert_eq!(find(&args).map(|row| row.name), Some(row.name));
        }
    }

    #[test]
    fn subcommands_without_a_row_have_the_class_of_their_command() {
        assert_eq!(classify(&[b"CONFIG", b"SET", b"a", b"b"]), Class::Bypass(Why::Admin));
        assert_eq!(classify(&[b"config", b"Get", b"a"]), Class::Bypass(Why::Read));
        assert_eq!(classify(&[b"GET", b"docs"]), Class::Bypass(Why::Read));
    }

    #[test]
    fn unknown_commands_wait_for_the_server_and_count_as_changes() {
        let long = [b'x'; 100];
        for args in [&[b"NOVELTY".as_slice(), b"x"][..], &[&long], &[b""], &[]] {
            assert_eq!(classify(args), Class::Bypass(Why::Unknown));
        }
        assert!(Why::Unknown.changes());
    }

    #[test]
    fn the_document_shows_the_table_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pmnet-commands.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (head, shown) = text.split_once("<!-- table -->\n").expect("a mark before the table");
        if std::env::var_os("LANDFALL_WRITE_DOCS").is_some() {
            std::fs::write(path, format!("{head}<!-- table -->\n{}", markdown())).unwrap();
        } else if let Some((here, there)) = shown.lines().zip(markdown().lines()).find(|(a, b)| a != b) {
            panic!("the document says {here:?}, the code {there:?}: run with LANDFALL_WRITE_DOCS=1");
        } else {
            assert_eq!(shown.lines().count(), markdown().lines().count());
        }
    }
}
