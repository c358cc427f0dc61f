//! `landfall wal`: the log service, and small clients for it over RESP.

use crate::client::{Client, ClientError, ServerArgs};
use crate::demo::wire::Reply;
use crate::output::{self, OutputError, print_line};
use crate::serve::{self, ServeArgs};
use clap::{Args, Subcommand};
use std::io::{self, BufRead};
use std::process::ExitCode;
use std::time::Duration;

/// Longest that one read of `tail` waits before the next request, milliseconds.
const TAIL_MS: u64 = 10_000;
/// Entries that one command reads or appends, at most.
const ENTRIES_AT_ONCE: usize = 512;
/// Bytes that one command appends, at most, unless one entry is longer.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Flags of `landfall wal`. Without a subcommand they are those of `landfall serve`, and the command serves.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct WalArgs {
    #[command(subcommand)]
    command: Option<WalCommand>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum WalCommand {
    /// Append entries: the values given, or each line of standard input
    Append {
        /// Name of the log
        log: String,
        /// Entries, appended as a group: after a crash all of them are there, or none
        values: Vec<String>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Print entries, one per line
    Read {
        /// Name of the log
        log: String,
        /// Offset of the first entry to print [default: the log's first]
        #[arg(long)]
        from: Option<u64>,
        /// Entries to print, at most
        #[arg(long)]
        count: Option<u64>,
        #[command(flatten)]
        show: ShowArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Print entries as they are appended, until interrupted
    Tail {
        /// Name of the log
        log: String,
        /// Offset to begin with [default: the end of the log]
        #[arg(long)]
        from: Option<u64>,
        /// End after this many entries
        #[arg(long)]
        count: Option<u64>,
        #[command(flatten)]
        show: ShowArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Delete the entries below an offset
    Trim {
        /// Name of the log
        log: String,
        /// First offset to keep
        before: u64,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List logs: name, first offset, next offset, bytes, consumers
    List {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Serve, with the flags of `landfall serve`
    Serve(Box<ServeArgs>),
}

#[derive(Clone, Copy, Debug, Args)]
struct ShowArgs {
    /// Print each entry's offset and a tab in front of it
    #[arg(long)]
    offsets: bool,
}

/// Why a client's command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WalCliError {
    /// The server cannot be reached, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Nothing more can be printed.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// An error of standard input.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// There is no such log.
    #[error("no such log: {0}; append to it first")]
    NoLog(String),
    /// The reply of the server has an unexpected form.
    #[error("unexpected reply of the server: {0:?}")]
    Reply(Reply),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> WalCliError {
    let what = what.into();
    |source| WalCliError::Io { what, source }
}

/// Serves, or sends commands to a server.
pub(crate) fn run(args: WalArgs) -> ExitCode {
    let command = match args.command {
        None => return serve::run(args.serve),
        Some(WalCommand::Serve(flags)) => return serve::run(*flags),
        Some(command) => command,
    };
    match talk(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(WalCliError::Output(error)) => output::ended(&error),
        Err(error) => output::fail(&error),
    }
}

fn talk(command: WalCommand) -> Result<(), WalCliError> {
    match command {
        WalCommand::Append { log, values, server } => append(&mut connect(&server)?, &log, values),
        WalCommand::Read { log, from, count, show, server } => {
            let mut printer = Printer { show, left: count.unwrap_or(u64::MAX) };
            read(&mut connect(&server)?, &log, from, &mut printer)
        }
        WalCommand::Tail { log, from, count, show, server } => {
            let mut printer = Printer { show, left: count.unwrap_or(u64::MAX) };
            tail(&mut connect(&server)?, &log, from, &mut printer)
        }
        WalCommand::Trim { log, before, server } => {
            let before = before.to_string();
            match connect(&server)?.call(&[b"LF.TRIM", log.as_bytes(), before.as_bytes()])? {
                Reply::Int(first) => Ok(print_line(first.to_string().as_bytes())?),
                other => Err(WalCliError::Reply(other)),
            }
        }
        WalCommand::List { server } => list(&mut connect(&server)?),
        WalCommand::Serve(_) => Ok(()),
    }
}

/// Connects. A reply may take as long as a read of `tail` waits.
fn connect(server: &ServerArgs) -> Result<Client, ClientError> {
    Client::connect(server, Duration::from_millis(TAIL_MS))
}

fn append(client: &mut Client, log: &str, values: Vec<String>) -> Result<(), WalCliError> {
    if !values.is_empty() {
        let values: Vec<Vec<u8>> = values.into_iter().map(String::into_bytes).collect();
        return append_group(client, log, &values);
    }
    let (mut group, mut bytes) = (Vec::new(), 0);
    for line in io::stdin().lock().split(b'\n') {
        let line = line.map_err(io_error("standard input"))?;
        bytes += line.len();
        group.push(line);
        if group.len() == ENTRIES_AT_ONCE || bytes >= BYTES_AT_ONCE {
            append_group(client, log, &std::mem::take(&mut group))?;
            bytes = 0;
        }
    }
    if group.is_empty() { Ok(()) } else { append_group(client, log, &group) }
}

/// Appends entries as one group and prints the offset of each.
fn append_group(client: &mut Client, log: &str, values: &[Vec<u8>]) -> Result<(), WalCliError> {
    let mut words: Vec<&[u8]> = vec![b"LF.APPEND", log.as_bytes()];
    words.extend(values.iter().map(Vec::as_slice));
    match client.call(&words)? {
        Reply::Int(first) => {
            let mut offsets = (first..).zip(values).map(|(offset, _)| offset.to_string());
            Ok(offsets.try_for_each(|offset| print_line(offset.as_bytes()))?)
        }
        other => Err(WalCliError::Reply(other)),
    }
}

/// Prints entries up to a limit.
struct Printer {
    show: ShowArgs,
    left: u64,
}

impl Printer {
    fn at_once(&self) -> String {
        self.left.min(ENTRIES_AT_ONCE as u64).to_string()
    }

    /// Prints the result of a read; returns the next offset, if there were entries.
    fn print(&mut self, reply: Reply) -> Result<Option<u64>, WalCliError> {
        let entries = match reply {
            Reply::Nil => return Ok(None),
            Reply::Array(entries) => entries,
            other => return Err(WalCliError::Reply(other)),
        };
        let mut next = None;
        for entry in entries {
            let Reply::Array(pair) = &entry else { return Err(WalCliError::Reply(entry)) };
            let [Reply::Int(offset), Reply::Bulk(value)] = pair.as_slice() else {
                return Err(WalCliError::Reply(entry));
            };
            let prefix = if self.show.offsets { format!("{offset}\t") } else { String::new() };
            print_line(&[prefix.as_bytes(), value].concat())?;
            self.left -= 1;
            next = Some(offset.unsigned_abs() + 1);
        }
        Ok(next)
    }
}

fn read(client: &mut Client, log: &str, from: Option<u64>, printer: &mut Printer) -> Result<(), WalCliError> {
    let mut from = from.map_or_else(|| "-".to_owned(), |from| from.to_string());
    while printer.left > 0 {
        let count = printer.at_once();
        let words = [b"LF.READ", log.as_bytes(), from.as_bytes(), b"COUNT", count.as_bytes()];
        match printer.print(client.call(&words)?)? {
            Some(next) => from = next.to_string(),
            None => return Ok(()),
        }
    }
    Ok(())
}

fn tail(client: &mut Client, log: &str, from: Option<u64>, printer: &mut Printer) -> Result<(), WalCliError> {
    let wait = TAIL_MS.to_string();
    // The end of the log is read once, so that no entry is missed between two reads.
    let mut from = match from {
        Some(from) => from.to_string(),
        None => end_of(client, log)?,
    };
    while printer.left > 0 {
        let count = printer.at_once();
        let (count, wait) = (count.as_bytes(), wait.as_bytes());
        let words = [b"LF.READ", log.as_bytes(), from.as_bytes(), b"COUNT", count, b"BLOCK", wait];
        if let Some(next) = printer.print(client.call(&words)?)? {
            from = next.to_string();
        }
    }
    Ok(())
}

fn end_of(client: &mut Client, log: &str) -> Result<String, WalCliError> {
    match logs(client)?.into_iter().find(|(name, _)| name == log) {
        Some((_, [_, next, ..])) => Ok(next.to_string()),
        None => Err(WalCliError::NoLog(log.to_owned())),
    }
}

/// Every log: its name, first and next offset, bytes, consumers.
fn logs(client: &mut Client) -> Result<Vec<(String, [i64; 4])>, WalCliError> {
    let mut all: Vec<(String, [i64; 4])> = Vec::new();
    loop {
        let reply = match all.last() {
            Some((after, _)) => client.call(&[b"LF.LOGS", after.as_bytes()])?,
            None => client.call(&[b"LF.LOGS"])?,
        };
        let Reply::Array(some) = reply else { return Err(WalCliError::Reply(reply)) };
        if some.is_empty() {
            return Ok(all);
        }
        for log in some {
            let numbers = |fields: &[Reply]| -> Option<[i64; 4]> {
                let number = |at: usize| match fields.get(at) {
                    Some(Reply::Int(number)) => Some(*number),
                    _ => None,
                };
                Some([number(3)?, number(5)?, number(7)?, number(9)?])
            };
            match &log {
                Reply::Array(fields) => match (fields.get(1), numbers(fields)) {
                    (Some(Reply::Bulk(name)), Some(numbers)) => {
                        all.push((String::from_utf8_lossy(name).into_owned(), numbers));
                    }
                    _ => return Err(WalCliError::Reply(log)),
                },
                _ => return Err(WalCliError::Reply(log)),
            }
        }
    }
}

fn list(client: &mut Client) -> Result<(), WalCliError> {
    for (name, [first, next, bytes, consumers]) in logs(client)? {
        print_line(format!("{name}\t{first}\t{next}\t{bytes}\t{consumers}").as_bytes())?;
    }
    Ok(())
}
