//! Parses a line of a script.

use crate::support::wire::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};

/// The time of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Nanoseconds since the script's start.
    At(u64),
    /// Nanoseconds since the previous line.
    After(u64),
    /// At any time.
    Any,
}

/// A number to compare with; `None` matches any number.
pub type Wanted = Option<i64>;

/// An option in a script.
#[derive(Clone, Debug, PartialEq)]
pub enum Opt {
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    /// TSval and TSecr: an offset from the first one, `*`, or (for TSecr) `last`.
    Timestamps(Wanted, Echo),
    Sack(Vec<(u32, u32)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Echo {
    Any,
    Last,
    Of(i64),
}

/// A segment in a script.
#[derive(Clone, Debug)]
pub struct Written {
    pub flags: u8,
    /// `P` is compared only if the script has it.
    pub push: bool,
    pub seq: u32,
    pub len: u32,
    pub ack: Option<u32>,
    pub window: Option<u16>,
    pub options: Option<Vec<Opt>>,
    /// Other properties of the segment: `ce`, `ect0`, `badsum` and the like.
    pub words: Vec<String>,
}

pub fn when(text: &str) -> When {
    let nanos = |text: &str| (text.parse::<f64>().expect("a time") * 1e9).round() as u64;
    match text {
        "*" => When::Any,
        _ => text.strip_prefix('+').map_or_else(|| When::At(nanos(text)), |rest| When::After(nanos(rest))),
    }
}

fn flags(text: &str) -> u8 {
    text.chars()
        .map(|letter| match letter {
            'S' => SYN,
            'F' => FIN,
            'R' => RST,
            'P' => PSH,
            'U' => URG,
            'E' => ECE,
            'W' => CWR,
            '.' => ACK,
            '-' => 0,
            other => panic!("no flag {other}"),
        })
        .sum()
}

/// `FLAGS SEQ(LEN) [ack N] [win N] [<options>] [words]`.
pub fn segment(text: &str) -> Written {
    let (plain, listed) = split_options(text);
    let mut words = plain.split_whitespace();
    let flags = flags(words.next().expect("flags"));
    let (seq, len) = words.next().and_then(|w| w.split_once('(')).expect("SEQ(LEN)");
    let mut written = Written {
        flags: flags & !PSH,
        push: flags & PSH != 0,
        seq: seq.parse::<i64>().expect("SEQ") as u32,
        len: len.trim_end_matches(')').parse().expect("LEN"),
        ack: None,
        window: None,
        options: listed.map(|list| options(&format!("<{list}>"))),
        words: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word {
            "ack" => written.ack = Some(number(words.next()) as u32),
            "win" => written.window = Some(number(words.next()) as u16),
            _ => written.words.push(word.to_owned()),
        }
    }
    written
}

fn split_options(text: &str) -> (String, Option<String>) {
    match (text.find('<'), text.find('>')) {
        (Some(start), Some(end)) => {
            (format!("{}{}", &text[..start], &text[end + 1..]), Some(text[start + 1..end].to_owned()))
        }
        _ => (text.to_owned(), None),
    }
}

/// Parses the options between `<` and `>`.
pub fn options(text: &str) -> Vec<Opt> {
    let list = split_options(text).1.unwrap_or_default();
    list.split(',').map(str::trim).filter(|o| !o.is_empty()).map(option).collect()
}

fn option(text: &str) -> Opt {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["mss", size] => Opt::Mss(size.parse().expect("mss")),
        ["wscale", shift] => Opt::WindowScale(shift.parse().expect("wscale")),
        ["sackOK"] => Opt::SackPermitted,
        ["ts", value, echo] => {
            let wanted = |text: &str| if text == "*" { None } else { Some(number(Some(text))) };
            let echo = match echo {
                "*" => Echo::Any,
                "last" => Echo::Last,
                _ => Echo::Of(number(Some(echo))),
            };
            Opt::Timestamps(wanted(value), echo)
        }
        ["sack", ref blocks @ ..] => Opt::Sack(
            blocks
                .iter()
                .map(|block| block.split_once(':').expect("START:END"))
                .map(|(start, end)| (number(Some(start)) as u32, number(Some(end)) as u32))
                .collect(),
        ),
        _ => panic!("no option {text}"),
    }
}

pub fn number(text: Option<&str>) -> i64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{text:?} is no number"))
}
