//! Compares the table of commands with a real server.

mod common;

use common::{Client, Redis};
use landfall_pmnet_io::redis::commands::{Class, ROWS, Why, classify};
use std::collections::BTreeMap;

fn class(words: &[&str]) -> Class {
    classify(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
}

/// The bulk and simple strings of a reply.
fn strings(reply: &str) -> Vec<String> {
    let mut lines = reply.split("\r\n");
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        match line.chars().next() {
            Some('$') if line != "$-1" => found.extend(lines.next().map(str::to_owned)),
            Some('+') => found.push(line[1..].to_owned()),
            _ => {}
        }
    }
    found
}

/// The server's flags of each command and subcommand.
fn flags(client: &mut Client) -> BTreeMap<String, Vec<String>> {
    let names = strings(&client.call(&["COMMAND", "LIST"]));
    assert!(names.len() > 300, "{}", names.len());
    let flags = |name: &String, client: &mut Client| {
        let words = strings(&client.call(&["COMMAND", "INFO", name]));
        let own = words.into_iter().take_while(|word| !word.starts_with('@'));
        (name.clone(), own.skip(1).collect())
    };
    names.iter().map(|name| flags(name, client)).collect()
}

#[test]
fn every_command_of_the_server_has_a_class_that_agrees_with_its_flags() {
    let Some(redis) = Redis::start() else { return };
    for (name, flags) in flags(&mut redis.client()) {
        let words: Vec<&str> = name.split('|').collect();
        let class = class(&words);
        let has = |flag: &str| flags.iter().any(|own| own == flag);
        assert_ne!(class, Class::Bypass(Why::Unknown), "{name}");
        if class == Class::Bypass(Why::Read) {
            assert!(!has("write"), "{name} writes, but is executed as a read");
        }
        if has("blocking") && has("noscript") {
            assert_eq!(class, Class::Bypass(Why::Blocking), "{name}");
        }
        if has("no_multi") {
            assert!(
                !matches!(class, Class::Bypass(why) if why.changes()),
                "{name} cannot be in a transaction"
            );
        }
    }
}

/// A request for a row: its name, and arguments that most commands accept.
fn request_of(name: &str) -> Vec<u8> {
    let words = name.split('|').chain(["k", "v", "w"]);
    let words: Vec<&str> = words.collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Commands that the table classes as reads and the read cache does not, and why.
const CAUTIOUS: &[(&str, &str)] = &[("pfcount", "it may write the count that it has computed into its key")];
/// Commands that the table classes as changes and the read cache does not, and why.
const HARMLESS: &[(&str, &str)] = &[("publish", "it changes no key"), ("spublish", "it changes no key")];

#[test]
fn the_read_cache_and_the_table_agree_on_which_commands_change_keys() {
    use landfall_pmnet::cache::{Effect, KeyCodec, Query, RespCodec};
    let codec = RespCodec::default();
    let is_in = |list: &[(&str, &str)], name: &str| list.iter().any(|(known, _)| *known == name);
    for row in ROWS {
        let words: Vec<&str> = row.name.split('|').chain(["k", "v", "w"]).collect();
        let request = request_of(row.name);
        let (effect, query) = (codec.update(&request), codec.bypass(&request));
        let changes_nothing = matches!(query, Query::None | Query::Reads { .. });
        assert_eq!(effect == Effect::None, changes_nothing, "{}", row.name);
        match class(&words) {
            Class::Bypass(Why::Read) if !is_in(CAUTIOUS, row.name) => {
                assert!(changes_nothing, "{} is a read, and the cache handles it as {query:?}", row.name);
            }
            Class::Bypass(why) if why.changes() && !is_in(HARMLESS, row.name) => {
                assert!(!changes_nothing, "{} may change keys, and the cache ignores it", row.name);
            }
            Class::Early(_) | Class::Typed(_) => {
                assert!(!changes_nothing, "{} changes keys, and the cache ignores it", row.name);
            }
            _ => {}
        }
    }
    assert_eq!(codec.bypass(&request_of("hello")), Query::None, "side-cars put it in front of reads");
}

/// Every early form, with the key `k`.
const EARLY: &[&[&str]] = &[
    &["SET", "k", "v"],
    &["SET", "k", ""],
    &["SET", "k", "v", "EX", "100"],
    &["SET", "k", "v", "PX", "100000"],
    &["SET", "k", "v", "EXAT", "99999999999"],
    &["SET", "k", "v", "EXAT", "1"],
    &["SET", "k", "v", "PXAT", "1"],
    &["SET", "k", "v", "KEEPTTL"],
    &["SET", "k", "v", "EX", "1125899906842"],
    &["SET", "k", "v", "PX", "1125899906842624"],
    &["SET", "k", "v", "EXAT", "1125899906842"],
    &["SETEX", "k", "1", "v"],
    &["SETEX", "k", "1125899906842", "v"],
    &["PSETEX", "k", "1", "v"],
    &["PSETEX", "k", "1125899906842624", "v"],
    &["MSET", "k", "v"],
    &["MSET", "k", "v", "other", "w", "k", "x"],
];

const TYPED: &[&[&str]] = &[
    &["HMSET", "k", "f", "v"],
    &["HMSET", "k", "f", "v", "g", "w"],
    &["LTRIM", "k", "0", "-1"],
    &["LTRIM", "k", "9", "-9223372036854775808"],
    &["PFMERGE", "k"],
    &["PFMERGE", "k", "missing"],
];

/// States that the key may be in.
const STATES: &[&[&str]] = &[
    &["DEL", "k"],
    &["SET", "k", "old"],
    &["SET", "k", "old", "EX", "100"],
    &["SET", "k", "7"],
    &["HSET", "k", "f", "old"],
    &["RPUSH", "k", "a", "b"],
    &["SADD", "k", "a"],
    &["ZADD", "k", "1", "a"],
    &["XADD", "k", "*", "f", "v"],
    &["PFADD", "k", "a"],
];

fn replies(client: &mut Client, form: &[&str]) -> Vec<String> {
    let ask = |state: &&[&str]| {
        client.call(&["DEL", "k"]);
        client.call(state);
        client.call(form)
    };
    STATES.iter().map(ask).collect()
}

#[test]
fn early_commands_reply_their_constant_whatever_the_key_holds() {
    let Some(redis) = Redis::start() else { return };
    let mut client = redis.client();
    for form in EARLY {
        let Class::Early(constant) = class(form) else { panic!("{form:?} is not early") };
        for (reply, state) in replies(&mut client, form).iter().zip(STATES) {
            assert_eq!(reply.as_bytes(), constant, "{form:?} after {state:?}");
        }
    }
}

#[test]
fn typed_commands_reply_their_constant_unless_the_key_holds_another_type() {
    let Some(redis) = Redis::start() else { return };
    let mut client = redis.client();
    for form in TYPED {
        let Class::Typed(constant) = class(form) else { panic!("{form:?} is not typed") };
        let replies = replies(&mut client, form);
        assert!(replies.iter().any(|reply| reply.as_bytes() == constant), "{form:?}");
        for (reply, state) in replies.iter().zip(STATES) {
            let fits = reply.as_bytes() == constant || reply.starts_with("-WRONGTYPE");
            assert!(fits, "{form:?} after {state:?}: {reply}");
        }
    }
}

#[test]
fn commands_of_a_constant_reply_are_early_or_there_is_a_reason() {
    let Some(redis) = Redis::start() else { return };
    let mut client = redis.client();
    // Each of these replies +OK to success and is not early: it is rare and waited for, or depends on the key's state.
    for form in [&["FLUSHALL"][..], &["RENAME", "k", "l"], &["LSET", "k", "0", "v"], &["XSETID", "k", "1-1"]]
    {
        assert!(matches!(class(form), Class::Bypass(_)), "{form:?}");
        let replies = replies(&mut client, form);
        let failed = replies.iter().any(|reply| reply.starts_with('-'));
        assert!(failed || form[0] == "FLUSHALL", "{form:?} never fails: it could be early");
    }
}
