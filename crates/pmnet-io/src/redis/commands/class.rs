//! The classes of commands, with their reasons.

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
    /// The line is of a request of HTTP: the server would end the connection, which all sessions share.
    AnotherProtocol,
}

/// The rule of a row in the table.
#[derive(Clone, Copy)]
pub(super) enum Rule {
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
            Self::AnotherProtocol => "this port speaks RESP, not HTTP",
        }
    }
}
