//! Which commands may be acknowledged before the server has executed them.
//!
//! A command is *early* if its success reply is known beforehand. It is acknowledged as soon as the network has it. All
//! other commands wait for the server. `docs/pmnet-commands.md` shows the table.

mod forms;
mod table;

pub use table::{ROWS, Row};

/// Longest name in the table, with its subcommand, bytes.
const NAME_BYTES_MAX: usize = 24;

/// How a command is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// An update that succeeds with this reply, whatever the server holds.
    Early(&'static [u8]),
    /// An update that succeeds with this reply unless a key holds another type. It is early only if the side-car is set
    /// so.
    Typed(&'static [u8]),
    /// The server answers the command.
    Bypass(Why),
    /// The side-car answers the command.
    Local(Answer),
    /// PMNet cannot carry the command: the client gets an error.
    Refused(Refusal),
}

/// Why a command waits for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The command changes nothing.
    Read,
    /// The reply carries data or a count, or depends on the state of the key.
    Reply,
    /// The command takes effect only on a condition: it is a lock.
    Lock,
    /// A script may have any effect and any reply.
    Script,
    /// The command waits until there is a result.
    Blocking,
    /// The command affects every key, and its effect is waited for.
    Keyspace,
    /// The command affects the server. It is executed again if its reply was lost.
    Admin,
    /// The server rejects the arguments, or may reject them.
    Arguments,
    /// The command is not in the table. It is handled as a change.
    Unknown,
}

/// How the side-car answers a command itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Checks the side-car's password.
    Auth,
    /// Sets the version of the protocol, and replies to `HELLO`.
    Hello,
    /// Replies `+PONG`.
    Ping,
    /// Replies with the argument.
    Echo,
    /// Accepts database 0 only.
    Select,
    /// Replies `+OK` and does nothing.
    Ok,
    /// Stores the name of the connection.
    SetName,
    /// Replies with the name of the connection.
    GetName,
    /// Replies with the number of the connection.
    Id,
    /// Replies with an empty documentation.
    Docs,
    /// Resets the connection to its initial state.
    Reset,
    /// Replies `+OK` and closes the connection.
    Quit,
    /// Queues the commands of a transaction; `EXEC` sends all of them as one bypass.
    Transaction,
}

/// Why a command cannot be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The server would have to send messages without a request.
    Push,
    /// Replication has a protocol of its own.
    Replication,
    /// The command is about the client's connection to the server, which a client of PMNet does not have.
    Connection,
    /// The command would watch keys for one connection.
    Watch,
    /// The command waits for the writes of one connection.
    Wait,
    /// The server might end before it answers, or change its role.
    Administration,
    /// Clients of a cluster choose among servers.
    Cluster,
    /// The command names another database, and database 0 is the only one.
    Database,
}

/// The rule of a row in the table.
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

    /// True if the command may change data. It is then executed once, in one transaction with its row.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Read | Self::Admin)
    }

    /// The reason as text, for the table in the documentation.
    pub fn words(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Reply => "its reply carries data or a count, or depends on the key's state",
            Self::Lock => "takes effect only on a condition: a lock",
            Self::Script => "a script may have any effect and any reply",
            Self::Blocking => "waits until there is a result",
            Self::Keyspace => "affects every key, and its effect is waited for",
            Self::Admin => "affects the server",
            Self::Arguments => "its arguments are not among the forms known to succeed",
            Self::Unknown => "not in the table",
        }
    }
}

impl Refusal {
    /// The text of the error that the client gets. It says what the client can do instead.
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
