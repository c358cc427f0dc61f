//! Commands about the connection: handshake, database, end.

use super::auth::auth;
use super::clients;
use super::command::{Call, Spec, State};
use super::databases::selected;
use super::fail::Fail;
use super::flags::Flags;
use super::role::Part;
use landfall_resp::Protocol;

/// The version of Redis with these commands and replies: clients select features by it.
pub(super) const REDIS_VERSION: &str = "7.2.0";

const QUICK: Flags = Flags::NO_SCRIPT.and(Flags::SERVER).and(Flags::FAST);
const OPEN: Flags = QUICK.and(Flags::NO_AUTH);
const LEAVES: Flags = OPEN.and(Flags::IMMEDIATE).and(Flags::SUBSCRIBED);

pub(super) const SPECS: &[Spec] = &[
    Spec::new(
        "ping",
        -1,
        Flags::FAST.and(Flags::SUBSCRIBED),
        ping,
        "connection",
        "Returns the server's liveliness response.",
    ),
    Spec::new("echo", 2, Flags::SERVER.and(Flags::FAST), echo, "connection", "Returns the given string."),
    Spec::new(
        "select",
        2,
        Flags::SERVER.and(Flags::FAST),
        select,
        "connection",
        "Changes the selected database.",
    ),
    Spec::new("hello", -1, OPEN, hello, "connection", "Handshakes with the server."),
    Spec::new("auth", -2, OPEN, auth, "connection", "Authenticates the connection."),
    Spec::new("quit", -1, LEAVES, quit, "connection", "Closes the connection."),
    Spec::new("reset", 1, LEAVES, reset, "connection", "Resets the connection."),
    clients::SPEC,
];

fn ping(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    match call.words.len() {
        // A message, as the client takes nothing else.
        1 | 2 if call.session.state.takes_only_messages() => {
            let text = call.words.rest(1).next().unwrap_or_default();
            let mut out = call.out();
            out.array(2);
            out.bulk(b"pong");
            out.bulk(&text);
        }
        1 => call.out().simple("PONG"),
        2 => {
            let word = call.word(1);
            call.out().bulk(&word);
        }
        _ => return Err(Fail::arity("ping")),
    }
    Ok(())
}

fn echo(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let word = call.word(1);
    call.out().bulk(&word);
    Ok(())
}

fn select(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.integer(1)?;
    let database = selected(&call.word(1)).ok_or(Fail::error("ERR DB index is out of range"))?;
    call.session.state.database = database;
    call.session.publish(call.ctx.shared);
    call.ok()
}

fn quit(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.session.state.closing = true;
    call.ok()
}

fn reset(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.session.drop_transaction(call.ctx.engine.heap());
    let library = std::mem::take(&mut call.session.state.library);
    call.session.state = State { library, ..State::new(call.ctx.shared) };
    call.session.publish(call.ctx.shared);
    call.out().simple("RESET");
    Ok(())
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
fn hello(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let protocol = match call.words.len() {
        1 => None,
        _ => Some(wanted_protocol(&call.word(1))?),
    };
    let name = hello_options(call)?;
    if !call.session.state.authenticated {
        return Err(Fail::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
             the same time",
        ));
    }
    if let Some(name) = name {
        call.session.state.name = name;
    }
    call.session.state.protocol = protocol.unwrap_or(call.session.state.protocol);
    call.session.publish(call.ctx.shared);
    greet(call);
    Ok(())
}

fn wanted_protocol(word: &[u8]) -> Result<Protocol, Fail> {
    match landfall_resp::parse_i64(word) {
        None => Err(Fail::error("ERR Protocol version is not an integer or out of range")),
        Some(2) => Ok(Protocol::Resp2),
        Some(3) => Ok(Protocol::Resp3),
        Some(_) => Err(Fail::error("NOPROTO unsupported protocol version")),
    }
}

/// Authenticates as the options say; returns the name that the client sets.
fn hello_options(call: &mut Call<'_, '_, '_>) -> Result<Option<String>, Fail> {
    let (words, mut at) = (call.words, 2);
    let (mut credentials, mut name) = (None, None);
    while at < words.len() {
        let more = words.len() - at - 1;
        if words.is(at, "AUTH") && more >= 2 {
            credentials = Some((words.bytes(at + 1), words.bytes(at + 2)));
            at += 3;
        } else if words.is(at, "SETNAME") && more >= 1 {
            name = Some(clients::valid_name(&words.bytes(at + 1))?);
            at += 2;
        } else {
            return Err(Fail::Error(format!("ERR Syntax error in HELLO option '{}'", call.text(at)).into()));
        }
    }
    if let Some((user, password)) = credentials {
        call.session.authenticate(call.ctx.shared, &user, &password)?;
    }
    Ok(name)
}

fn greet(call: &mut Call<'_, '_, '_>) {
    let id = i64::try_from(call.session.id).unwrap_or(i64::MAX);
    let protocol = if call.session.state.protocol == Protocol::Resp3 { 3 } else { 2 };
    let role = match Part::of(call.shared()) {
        Part::Master { .. } => "master",
        Part::Slave { .. } => "replica",
    };
    let mut out = call.out();
    out.map(7);
    out.bulk(b"server");
    out.bulk(b"redis");
    out.bulk(b"version");
    out.bulk(REDIS_VERSION.as_bytes());
    out.bulk(b"proto");
    out.integer(protocol);
    out.bulk(b"id");
    out.integer(id);
    out.bulk(b"mode");
    out.bulk(b"standalone");
    out.bulk(b"role");
    out.bulk(role.as_bytes());
    out.bulk(b"modules");
    out.array(0);
}
