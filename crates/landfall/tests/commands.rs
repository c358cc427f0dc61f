//! The server's table of commands, the side-cars' and the read cache's, held against each other.

mod common;

use common::{Place, Reply};
use landfall_pmnet::cache::{Effect, KeyCodec, Query, RespCodec};
use landfall_pmnet_io::redis::commands::{Class, ROWS, Why, classify};

/// A command of the server, as `COMMAND` tells of it.
struct Told {
    name: String,
    flags: Vec<String>,
}

impl Told {
    fn of(reply: &Reply) -> Self {
        let Reply::Array(fields) = reply else { panic!("{reply:?}") };
        let [Reply::Bulk(name), _, Reply::Array(flags), ..] = fields.as_slice() else { panic!("{fields:?}") };
        let flag = |flag: &Reply| match flag {
            Reply::Simple(flag) => flag.clone(),
            other => panic!("{other:?}"),
        };
        let name = String::from_utf8(name.clone()).unwrap();
        Self { name, flags: flags.iter().map(flag).collect() }
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Logs are commands of our own, which side-cars do not know; `SENTINEL` is one of Redis Sentinel, not of Redis.
    fn is_ours(&self) -> bool {
        self.name.starts_with("lf.") || self.name == "sentinel"
    }
}

fn told() -> Vec<Told> {
    let place = Place::new();
    let server = place.start(&[]);
    let Reply::Array(commands) = server.resp().call(&[b"COMMAND"]).unwrap() else { panic!("no commands") };
    server.stop();
    commands.iter().map(Told::of).collect()
}

/// The command with arguments that fit most commands.
fn words(name: &str) -> [&[u8]; 4] {
    [name.as_bytes(), b"k", b"v", b"w"]
}

/// Whether the read cache takes the command for one that changes a key.
fn costs_the_cache(name: &str) -> bool {
    let mut request = format!("*{}\r\n", words(name).len()).into_bytes();
    for word in words(name) {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    let codec = RespCodec::default();
    let passes = matches!(codec.bypass(&request), Query::None | Query::Reads { .. });
    assert_eq!(codec.update(&request) == Effect::None, passes, "{name}");
    !passes
}

#[test]
fn tables_agree_on_which_commands_change_keys() {
    let told = told();
    assert!(told.len() > 80, "{} commands", told.len());
    for command in &told {
        let (name, class) = (command.name.as_str(), classify(&words(&command.name)));
        if command.has("write") {
            let is_change = match class {
                Class::Early(_) | Class::Typed(_) => true,
                Class::Bypass(why) => why.changes(),
                _ => false,
            };
            assert!(is_change, "{name} writes, and side-cars take it for {class:?}");
            assert!(costs_the_cache(name), "{name} writes, and the read cache overlooks it");
        }
        if command.has("readonly") && !command.is_ours() {
            assert_eq!(class, Class::Bypass(Why::Read), "{name} reads");
            assert!(!costs_the_cache(name), "{name} reads, and costs the read cache an entry");
        }
    }
}

#[test]
fn side_cars_know_every_command_of_the_server_but_those_of_logs() {
    for command in told() {
        let known = ROWS.iter().any(|row| row.name == command.name);
        assert_eq!(known, !command.is_ours(), "{}", command.name);
    }
}
