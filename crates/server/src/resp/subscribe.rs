//! `SUBSCRIBE` and the like. The only messages are those of Redis Sentinel: the servers of a chain send `+switch-master`
//! when another one takes writes.

use super::command::{Call, Session, Spec, State};
use super::fail::Fail;
use super::flags::Flags;
use super::subscriptions::By;
use landfall_resp::{Protocol, Writer};

/// Channels and patterns of one client, at most.
const SUBSCRIPTIONS_MAX: usize = 64;
/// Longest name of a channel, or pattern, bytes.
const NAME_BYTES_MAX: usize = 256;

const FLAGS: Flags =
    Flags::SERVER.and(Flags::NO_SCRIPT).and(Flags::PUBSUB).and(Flags::NO_MULTI).and(Flags::SUBSCRIBED);

const fn spec(name: &'static str, arity: i32, run: super::command::Run, summary: &'static str) -> Spec {
    Spec::new(name, arity, FLAGS, run, "pubsub", summary)
}

pub(super) const SPECS: &[Spec] = &[
    spec("subscribe", -2, subscribe, "Listens for messages of a chain: +switch-master."),
    spec("psubscribe", -2, psubscribe, "Listens for messages of a chain whose names match patterns."),
    spec("unsubscribe", -1, unsubscribe, "Stops listening for messages."),
    spec("punsubscribe", -1, punsubscribe, "Stops listening for messages whose names match patterns."),
];

impl State {
    /// True if the client has no use for replies: RESP2 cannot tell them from messages.
    pub(super) fn takes_only_messages(&self) -> bool {
        self.subscriptions.len() > 0 && self.protocol == Protocol::Resp2
    }
}

impl Session {
    /// True if the client listens for messages.
    pub fn is_subscribed(&self) -> bool {
        self.state.subscriptions.len() > 0
    }

    /// Appends a message, if the client listens for it.
    pub fn write_message(&self, channel: &str, text: &str, out: &mut Vec<u8>) {
        self.state.subscriptions.write(channel, text, &mut Writer::new(out, self.state.protocol));
    }

    /// Refuses what a client that takes only messages may not ask.
    pub(super) fn check_subscribed(&self, spec: &Spec) -> Result<(), Fail> {
        if !self.state.takes_only_messages() || spec.has(Flags::SUBSCRIBED) {
            return Ok(());
        }
        let text = format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
             context",
            spec.name
        );
        Err(Fail::Error(text.into()))
    }
}

fn subscribe(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    add(call, By::Name)
}

fn psubscribe(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    add(call, By::Pattern)
}

fn unsubscribe(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    remove(call, By::Name)
}

fn punsubscribe(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    remove(call, By::Pattern)
}

fn add(call: &mut Call<'_, '_, '_>, by: By) -> Result<(), Fail> {
    if call.shared().chain.is_none() {
        return Err(Fail::error("ERR this server is in no chain: only the servers of a chain send messages"));
    }
    let names: Vec<Box<[u8]>> = call.words.rest(1).map(|word| word.as_ref().into()).collect();
    let mut next = call.session.state.subscriptions.clone();
    for name in &names {
        next.of(by).insert(name.clone());
        if next.len() > SUBSCRIPTIONS_MAX || name.len() > NAME_BYTES_MAX {
            let limits = format!("{SUBSCRIPTIONS_MAX} channels and patterns of {NAME_BYTES_MAX} bytes");
            return Err(Fail::Error(format!("ERR a client can listen for at most {limits}").into()));
        }
    }
    for name in names {
        call.session.state.subscriptions.of(by).insert(name.clone());
        confirm(call, by, ["subscribe", "psubscribe"], Some(&name));
    }
    Ok(())
}

/// Without names: all.
fn remove(call: &mut Call<'_, '_, '_>, by: By) -> Result<(), Fail> {
    let named: Vec<Box<[u8]>> = match call.words.len() {
        1 => call.session.state.subscriptions.of(by).iter().cloned().collect(),
        _ => call.words.rest(1).map(|word| word.as_ref().into()).collect(),
    };
    let kinds = ["unsubscribe", "punsubscribe"];
    if named.is_empty() {
        confirm(call, by, kinds, None);
    }
    for name in named {
        call.session.state.subscriptions.of(by).remove(&name);
        confirm(call, by, kinds, Some(&name));
    }
    Ok(())
}

/// Says what was done, and how many subscriptions there are.
fn confirm(call: &mut Call<'_, '_, '_>, by: By, kinds: [&str; 2], name: Option<&[u8]>) {
    let count = i64::try_from(call.session.state.subscriptions.len()).unwrap_or(i64::MAX);
    let mut out = call.out();
    out.push(3);
    out.bulk(kinds[by as usize].as_bytes());
    match name {
        Some(name) => out.bulk(name),
        None => out.null(),
    }
    out.integer(count);
}
