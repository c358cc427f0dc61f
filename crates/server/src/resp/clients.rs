//! `CLIENT`: properties of connections, and ending them.

use super::command::{Call, Run, Session, Spec};
use super::documentation::help;
use super::fail::Fail;
use super::flags::Flags;
use crate::shared::ClientInfo;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Longest name of a client or of its library, bytes.
const NAME_BYTES_MAX: usize = 1024;

const PLAIN: Flags = Flags::NO_SCRIPT.and(Flags::SERVER);
const ADMIN: Flags = PLAIN.and(Flags::ADMIN);

const fn sub(name: &'static str, arity: i32, flags: Flags, run: Run, summary: &'static str) -> Spec {
    Spec::new(name, arity, flags, run, "connection", summary)
}

pub(super) const SPEC: Spec =
    Spec::new("client", -2, Flags::NONE, help, "connection", "A container for client connection commands.")
        .with(&[
            sub("client|id", 2, PLAIN, id, "Returns the unique client ID of the connection."),
            sub("client|getname", 2, PLAIN, getname, "Returns the name of the connection."),
            sub("client|setname", 3, PLAIN, setname, "Sets the connection name."),
            sub("client|setinfo", 4, PLAIN, setinfo, "Sets information specific to the client library."),
            sub("client|info", 2, PLAIN, info, "Returns information about the connection."),
            sub("client|list", -2, ADMIN, list, "Lists open connections."),
            sub("client|kill", -3, ADMIN, kill, "Terminates open connections."),
            sub("client|no-evict", 3, ADMIN, on_or_off, "Sets the client eviction mode of the connection."),
            sub("client|no-touch", 3, PLAIN, on_or_off, "Controls whether commands alter the LRU of keys."),
            sub("client|reply", 3, PLAIN, reply, "Instructs the server whether to reply to commands."),
            sub("client|tracking", -3, PLAIN, tracking, "Controls server-assisted client-side caching."),
            sub(
                "client|help",
                2,
                Flags::SERVER,
                help,
                "Returns helpful text about the different subcommands.",
            ),
        ]);

fn id(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let id = i64::try_from(call.session.id).unwrap_or(i64::MAX);
    call.reply_integer(id)
}

fn getname(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let name = call.session.state.name.clone();
    if name.is_empty() {
        call.out().null()
    } else {
        call.out().bulk(name.as_bytes())
    }
    Ok(())
}

/// Checks a name for `CLIENT LIST`: printable ASCII without blanks.
pub(super) fn valid_name(word: &[u8]) -> Result<String, Fail> {
    printable(word, "Client names")
}

fn printable(word: &[u8], what: &str) -> Result<String, Fail> {
    let refused = |why: String| Err(Fail::Error(format!("ERR {what} {why}.").into()));
    if word.len() > NAME_BYTES_MAX {
        return refused(format!("cannot be longer than {NAME_BYTES_MAX} bytes"));
    }
    if !word.iter().all(u8::is_ascii_graphic) {
        return refused("cannot contain spaces, newlines or special characters".into());
    }
    Ok(String::from_utf8_lossy(word).into_owned())
}

fn setname(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.session.state.name = valid_name(&call.word(2))?;
    call.session.publish(call.ctx.shared);
    call.ok()
}

fn setinfo(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (option, value) = (call.text(2), call.word(3));
    let library = &mut call.session.state.library;
    let field = match option.to_ascii_lowercase().as_str() {
        "lib-name" => &mut library.0,
        "lib-ver" => &mut library.1,
        _ => return Err(Fail::Error(format!("ERR Unrecognized option '{option}'").into())),
    };
    *field = printable(&value, &option)?;
    call.session.publish(call.ctx.shared);
    call.ok()
}

fn info(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let own = call.session.id;
    let line = call
        .shared()
        .clients
        .lock()
        .get(&own)
        .map(|client| describe(own, client, call.session, call.spec.name));
    call.out().verbatim(*b"txt", line.unwrap_or_default().as_bytes());
    Ok(())
}

/// `CLIENT LIST [TYPE normal|master|replica|pubsub] [ID id ...]`
fn list(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let wanted = Listed::parse(call)?;
    let mut text = String::new();
    for (id, client) in call.shared().clients.lock().iter().filter(|(id, _)| wanted.has(**id)) {
        text.push_str(&describe(*id, client, call.session, call.spec.name));
    }
    call.out().verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// Which clients are listed.
enum Listed {
    All,
    /// A type that no client has here.
    None,
    Ids(HashSet<u64>),
}

impl Listed {
    fn parse(call: &Call<'_, '_, '_>) -> Result<Self, Fail> {
        let words = call.words;
        match words.len() {
            2 => Ok(Self::All),
            4 if words.is(2, "TYPE") => {
                is_normal(call, 3).map(|normal| if normal { Self::All } else { Self::None })
            }
            4.. if words.is(2, "ID") => {
                (3..words.len()).map(|at| listed_id(call, at)).collect::<Result<_, _>>().map(Self::Ids)
            }
            _ => Err(Fail::syntax()),
        }
    }

    fn has(&self, id: u64) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Ids(ids) => ids.contains(&id),
        }
    }
}

fn listed_id(call: &Call<'_, '_, '_>, index: usize) -> Result<u64, Fail> {
    landfall_resp::parse_u64(&call.word(index)).ok_or(Fail::error("ERR Invalid client ID"))
}

/// True for the type of all clients here.
fn is_normal(call: &Call<'_, '_, '_>, index: usize) -> Result<bool, Fail> {
    let kind = call.text(index);
    match kind.to_ascii_lowercase().as_str() {
        "normal" => Ok(true),
        "master" | "replica" | "slave" | "pubsub" => Ok(false),
        _ => Err(Fail::Error(format!("ERR Unknown client type '{kind}'").into())),
    }
}

fn client_id(call: &Call<'_, '_, '_>, index: usize) -> Result<u64, Fail> {
    let id = landfall_resp::parse_u64(&call.word(index)).filter(|id| *id > 0);
    id.ok_or(Fail::error("ERR client-id should be greater than 0"))
}

/// A client with the fields of Redis; those without a meaning here are zero.
fn describe(id: u64, client: &ClientInfo, session: &Session, own_command: &str) -> String {
    let own = id == session.id;
    let peer = client.peer.map_or_else(|| "?:0".to_owned(), |peer| peer.to_string());
    let age = Instant::now().duration_since(client.since).as_secs();
    let queued =
        session.queue.as_ref().filter(|_| own).map_or(-1, |queue| i64::try_from(queue.len()).unwrap_or(0));
    let command = if own { own_command } else { "NULL" };
    let mut line = format!("id={id} addr={peer} laddr=?:0 fd={id} name={} age={age} idle=0 ", client.name);
    // Writing to a string cannot fail.
    let _ = writeln!(
        line,
        "flags=N db={} sub=0 psub=0 ssub=0 multi={queued} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 \
         oll=0 omem=0 tot-mem=0 events=r cmd={command} user=default redir=-1 resp={} lib-name={} lib-ver={} io-thread={}",
        client.database, client.protocol, client.library.0, client.library.1, client.worker,
    );
    line
}

/// `CLIENT KILL addr`, or `CLIENT KILL` with filters that must all match.
fn kill(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let mut filter = KillFilter { skip_me: true, ..KillFilter::default() };
    if call.words.len() == 3 {
        filter = KillFilter { address: Some(call.text(2)), ..KillFilter::default() };
        return match end_clients(call, &filter) {
            0 => Err(Fail::error("ERR No such client")),
            _ => call.ok(),
        };
    }
    for at in (2..call.words.len()).step_by(2) {
        if at + 1 == call.words.len() {
            return Err(Fail::syntax());
        }
        filter.parse(call, at)?;
    }
    let ended = end_clients(call, &filter);
    call.reply_integer(ended)
}

/// The clients to end.
#[derive(Default)]
struct KillFilter {
    id: Option<u64>,
    address: Option<String>,
    older_than_s: Option<u64>,
    matches_none: bool,
    skip_me: bool,
}

impl KillFilter {
    fn parse(&mut self, call: &Call<'_, '_, '_>, at: usize) -> Result<(), Fail> {
        let value = call.text(at + 1);
        match call.word(at).to_ascii_uppercase().as_slice() {
            b"ID" => self.id = Some(client_id(call, at + 1)?),
            b"ADDR" => self.address = Some(value),
            b"LADDR" => self.matches_none = true,
            b"TYPE" => self.matches_none |= !is_normal(call, at + 1)?,
            b"USER" if value == "default" => {}
            b"USER" => return Err(Fail::Error(format!("ERR No such user '{value}'").into())),
            b"MAXAGE" => self.older_than_s = Some(call.positive(at + 1)? as u64),
            b"SKIPME" if value.eq_ignore_ascii_case("yes") => self.skip_me = true,
            b"SKIPME" if value.eq_ignore_ascii_case("no") => self.skip_me = false,
            _ => return Err(Fail::syntax()),
        }
        Ok(())
    }

    fn matches(&self, id: u64, client: &ClientInfo, own: u64) -> bool {
        let age_s = Instant::now().duration_since(client.since).as_secs();
        let spared = self.matches_none || self.skip_me && id == own;
        !spared
            && self.id.is_none_or(|wanted| wanted == id)
            && self.older_than_s.is_none_or(|least| age_s >= least)
            && self
                .address
                .as_ref()
                .is_none_or(|wanted| client.peer.is_some_and(|peer| peer.to_string() == *wanted))
    }
}

/// Requests the end of clients; returns their number.
fn end_clients(call: &mut Call<'_, '_, '_>, filter: &KillFilter) -> i64 {
    let (shared, own) = (call.shared(), call.session.id);
    let mut ended = 0;
    for (id, client) in shared.clients.lock().iter().filter(|(id, client)| filter.matches(**id, client, own))
    {
        ended += 1;
        if *id == own {
            call.session.state.closing = true;
        } else {
            client.killed.store(true, Ordering::Release);
        }
    }
    shared.wake_all();
    ended
}

/// `CLIENT NO-EVICT` and `CLIENT NO-TOUCH`: nothing is ever evicted, and no key has an access time.
fn on_or_off(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if !call.words.is(2, "ON") && !call.words.is(2, "OFF") {
        return Err(Fail::syntax());
    }
    call.ok()
}

fn reply(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if call.words.is(2, "ON") {
        return call.ok();
    }
    if call.words.is(2, "OFF") || call.words.is(2, "SKIP") {
        return Err(Fail::error(
            "ERR CLIENT REPLY OFF and SKIP are not supported: every command is replied to",
        ));
    }
    Err(Fail::syntax())
}

fn tracking(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if call.words.is(2, "OFF") {
        return call.ok();
    }
    if call.words.is(2, "ON") {
        return Err(Fail::error("ERR client tracking is not supported"));
    }
    Err(Fail::syntax())
}
