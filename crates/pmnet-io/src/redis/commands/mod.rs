//! Which commands may be acknowledged before the server has executed them.
//!
//! A command is *early* when the reply to its success is known beforehand: it is then acknowledged as soon as the
//! network has it. Everything else waits for the server. The table in words: `docs/pmnet-commands.md`.

mod forms;
mod table;

pub use table::{ROWS, Row};

/// Longest name in the table, with its subcommand.
const NAME_BYTES_MAX: usize = 24;

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// An update whose success has this reply, whatever the server holds.
    Early(&'static [u8]),
    /// The same, unless a key holds another type. Treated as early only where that was asked for.
    Typed(&'static [u8]),
    /// The server answers.
    Bypass(Why),
    /// The side-car answers.
    Local(Answer),
    /// Nobody does: it cannot be carried.
    Refused(Refusal),
}

/// Why a command waits for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Changes nothing.
    Read,
    /// Its reply carries data or a count, or says whether something was there.
    Reply,
    /// Takes effect only on a condition: a lock.
    Lock,
    /// A script may do and reply anything.
    Script,
    /// Waits until there is something.
    Blocking,
    /// Concerns every key: others wait for its effect.
    Keyspace,
    /// Concerns the server. Executed again if its reply was lost.
    Admin,
    /// The server would reject its arguments, or might.
    Arguments,
    /// In no table: treated as a change.
    Unknown,
}

/// What the side-car answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Checks the side-car's password.
    Auth,
    /// The protocol's version, then what `HELLO` tells.
    Hello,
    /// `+PONG`.
    Ping,
    /// Its argument.
    Echo,
    /// Database 0 only.
    Select,
    /// `+OK`, and nothing else.
    Ok,
    /// Keeps the name.
    SetName,
    /// Tells it.
    GetName,
    /// The connection's number.
    Id,
    /// No documentation.
    Docs,
    /// The connection as it was at its beginning.
    Reset,
    /// `+OK`, and closes.
    Quit,
    /// Queued here; `EXEC` sends all of it as one bypass.
    Transaction,
}

/// Why a command cannot be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The server would have to speak unasked.
    Push,
    /// Replication speaks a protocol of its own.
    Replication,
    /// Concerns the client's own connection to the server, which it does not have.
    Connection,
    /// Would watch keys on behalf of a connection.
    Watch,
    /// Waits for what one connection wrote.
    Wait,
    /// The server might not live to answer, or change its role.
    Administration,
    /// Cluster clients choose among servers.
    Cluster,
    /// Database 0 is the only one.
    Database,
}

/// A row's content.
#[derive(Clone, Copy)]
enum Rule {
    Bypass(Why),
    Local(Answer),
    Refused(Refusal),
    Form(fn(&[&[u8]]) -> Class),
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bypass(why) => write!(f, "Bypass({why:?})"),
            Self::Local(answer) => write!(f, "Local({answer:?})"),
            Self::Refused(refusal) => write!(f, "Refused({refusal:?})"),
            Self::Form(_) => f.write_str("Form"),
        }
    }
}

/// The class of a command: its name and arguments.
pub fn classify(args: &[&[u8]]) -> Class {
    match find(args).map(|row| row.rule) {
        None => Class::Bypass(Why::Unknown),
        Some(Rule::Bypass(why)) => Class::Bypass(why),
        Some(Rule::Local(answer)) => Class::Local(answer),
        Some(Rule::Refused(refusal)) => Class::Refused(refusal),
        Some(Rule::Form(form)) => form(args),
    }
}

/// The row of a command: its subcommand's own, or its own.
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

impl Why {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Reply,
        Self::Lock,
        Self::Script,
        Self::Blocking,
        Self::Keyspace,
        Self::Admin,
        Self::Arguments,
        Self::Unknown,
    ];

    /// Whether the command may change what is stored: it is then executed once, in one transaction with its number.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Read | Self::Admin)
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Reply => "its reply carries data or a count, or depends on what is there",
            Self::Lock => "takes effect on a condition: a lock",
            Self::Script => "a script may do and reply anything",
            Self::Blocking => "waits until there is something",
            Self::Keyspace => "concerns every key, and others wait for its effect",
            Self::Admin => "concerns the server",
            Self::Arguments => "its arguments are not among the forms known to succeed",
            Self::Unknown => "not in the table",
        }
    }
}

impl Refusal {
    /// The error that the client gets, and what to do instead.
    pub fn words(self) -> &'static str {
        match self {
            Self::Push => {
                "PMNet carries requests and replies only: subscribe and monitor at the server directly"
            }
            Self::Replication => "PMNet does not carry replication: connect replicas to the server directly",
            Self::Connection => {
                "clients of PMNet have no connection of their own to the server: connect to it directly"
            }
            Self::Watch => "PMNet carries no WATCH: use a script, or connect to the server directly",
            Self::Wait => {
                "PMNet carries no WAIT: start `landfall pmnet server` with the number of replicas to wait for"
            }
            Self::Administration => "PMNet does not administrate servers: connect to the server directly",
            Self::Cluster => "PMNet serves one server, not a cluster: connect to the cluster directly",
            Self::Database => "PMNet serves database 0 only",
        }
    }
}

/// The table of `docs/pmnet-commands.md`: a line for each command.
pub fn markdown() -> String {
    let lines = ROWS
        .iter()
        .map(|row| format!("| `{}` | {} |\n", row.name.replace('|', " ").to_uppercase(), told(row)));
    format!("| command | what becomes of it |\n|---|---|\n{}", lines.collect::<String>())
}

fn told(row: &Row) -> String {
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
            "typed: `+OK` unless the key holds another type; bypass, or early where asked for"
        }
        "xread" => "bypass: reads; with BLOCK waits until there is something",
        _ => "bypass: its reply carries data; with BLOCK waits until there is something",
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
    fn subcommands_without_a_row_share_their_commands() {
        assert_eq!(classify(&[b"CONFIG", b"SET", b"a", b"b"]), Class::Bypass(Why::Admin));
        assert_eq!(classify(&[b"config", b"Get", b"a"]), Class::Bypass(Why::Read));
        assert_eq!(classify(&[b"GET", b"docs"]), Class::Bypass(Why::Read));
    }

    #[test]
    fn what_nobody_knows_waits_for_the_server_and_counts_as_a_change() {
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
