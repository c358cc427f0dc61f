//! The codec of Redis' protocol.

use std::ops::Range;

use landfall_media::{Chain, Segment};
use landfall_resp::{Arg, Command, Limits, Parser, Protocol, Reply, Writer};
use smallvec::{SmallVec, smallvec};

use super::commands::{self, Class};
use super::effect::{Effect, KeyCodec, KeyRanges, Query};

/// The codec of Redis' protocol. A request is one or several arrays of bulk strings. Any other request counts as
/// touching all keys.
///
/// A `HELLO` before a command selects the protocol of the reply. Side-cars put it there for clients that speak
/// RESP3. A value is a bulk string in both protocols, so a hit is one reply for all clients. Replies that differ,
/// such as that of a missing key, are never stored.
///
/// The codec requires that requests are independent: a database, a transaction or a protocol version that a request
/// chooses does not outlast the request. The server must not evict keys for lack of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct RespCodec {
    /// Whether responses to reads are stored. That is correct only where no key expires: a response does not say
    /// whether its key will expire, and the expiry changes the key without an update. Values that updates set are
    /// stored in any case: SET without options removes the key's expiry, and every request that gives the key one
    /// passes the cache and touches the key.
    pub keep_responses: bool,
}

/// The arguments of a command, as ranges of the request.
type Args = SmallVec<[Range<usize>; 8]>;

/// The effect of all commands of a request together.
enum Whole {
    One(Class),
    /// Several commands, which may change these keys.
    Touches(KeyRanges),
    All,
}

/// Parses a request of `total` bytes, of which the first ones are known. Only its last argument may extend beyond
/// them; its range then ends beyond them, too.
fn read(request: &[u8], total: usize) -> Whole {
    let mut at = 0;
    let mut classes: SmallVec<[Class; 1]> = SmallVec::new();
    while at < request.len() {
        let Some(args) = command(request, &mut at, total) else { return Whole::All };
        classes.push(commands::classify(request, &args));
    }
    if at != total {
        return Whole::All;
    }
    match classes.as_slice() {
        [] => return Whole::All,
        // Only selects the protocol of the next command's reply. A value is encoded equally in both protocols.
        [Class::SelectsProtocol, _] => drop(classes.remove(0)),
        _ => {}
    }
    match classes.len() {
        1 => classes.pop().map_or(Whole::All, Whole::One),
        _ => union(classes),
    }
}

/// Whether the request contains a transaction completely, or none. Otherwise requests outside it may name keys that
/// it changes.
fn is_whole(classes: &[Class]) -> bool {
    let begins = classes.iter().filter(|class| matches!(class, Class::Begins)).count();
    let ends = classes.iter().filter(|class| matches!(class, Class::Ends)).count();
    let commands = classes.iter().skip_while(|class| matches!(class, Class::SelectsProtocol));
    let is_outermost = matches!(commands.clone().next(), Some(Class::Begins))
        && matches!(commands.last(), Some(Class::Ends));
    begins + ends == 0 || (begins == 1 && ends == 1 && is_outermost)
}

fn union(classes: SmallVec<[Class; 1]>) -> Whole {
    if !is_whole(&classes) {
        return Whole::All;
    }
    let mut all = KeyRanges::new();
    for class in classes {
        match class {
            Class::Nothing | Class::Reads(_) | Class::SelectsProtocol | Class::Begins | Class::Ends => {}
            Class::Sets(key, _) => all.push(key),
            Class::Touches(keys) => all.extend(keys),
            Class::All => return Whole::All,
        }
    }
    Whole::Touches(all)
}

impl KeyCodec for RespCodec {
    fn update(&self, request: &[u8]) -> Effect {
        match read(request, request.len()) {
            Whole::One(Class::Sets(key, value)) => Effect::Sets { key, value },
            Whole::One(Class::Touches(keys)) | Whole::Touches(keys) if !keys.is_empty() => {
                Effect::Touches(keys)
            }
            Whole::One(Class::All | Class::Begins | Class::Ends) | Whole::All => Effect::TouchesAll,
            Whole::One(_) | Whole::Touches(_) => Effect::None,
        }
    }

    fn keys_of_start(&self, start: &[u8], total: usize) -> Option<KeyRanges> {
        let keys = match read(start, total) {
            Whole::One(Class::Sets(key, _)) => smallvec![key],
            Whole::One(Class::Touches(keys)) | Whole::Touches(keys) => keys,
            Whole::One(Class::All | Class::Begins | Class::Ends) | Whole::All => return None,
            Whole::One(Class::Nothing | Class::Reads(_) | Class::SelectsProtocol) => KeyRanges::new(),
        };
        keys.iter().all(|key| key.end <= start.len()).then_some(keys)
    }

    fn bypass(&self, request: &[u8]) -> Query {
        match read(request, request.len()) {
            Whole::One(Class::Reads(key)) => Query::Reads { key },
            Whole::One(Class::Sets(key, _)) => Query::Touches(smallvec![key]),
            Whole::One(Class::Touches(keys)) | Whole::Touches(keys) if !keys.is_empty() => {
                Query::Touches(keys)
            }
            Whole::One(Class::All | Class::Begins | Class::Ends) | Whole::All => Query::TouchesAll,
            Whole::One(_) | Whole::Touches(_) => Query::None,
        }
    }

    fn response_value(&self, _key: &[u8], response: &[u8]) -> Option<Range<usize>> {
        // A verbatim string, whose first three bytes tell its format, is no value of a key.
        let value = match Reply::whole(response)? {
            Reply::Bulk(value) if response.first() == Some(&b'$') => value,
            _ => return None,
        };
        let end = response.len() - b"\r\n".len();
        self.keep_responses.then_some(end - value.len()..end)
    }

    fn render(&self, value: &[u8], into: &mut Vec<u8>) {
        Writer::new(into, Protocol::Resp2).bulk(value);
    }
}

/// Parses one command: a non-empty array of bulk strings. The last string may extend beyond the known bytes if it ends
/// where `total` bytes end.
fn command(request: &[u8], at: &mut usize, total: usize) -> Option<Args> {
    if request.get(*at) != Some(&b'*') {
        return None;
    }
    let segments = [Segment::new(0, request)];
    let chain = Chain::new(&segments);
    let mut parser = Parser::new(Limits::default());
    let mut command = Command::default();
    if parser.next_into(&chain, *at, &mut command).ok()? {
        // An empty array in front of a command is not part of a request.
        if command.start != *at {
            return None;
        }
        *at = command.end;
        return command.args.iter().map(Arg::range).collect();
    }
    if parser.take_skipped() > 0 {
        return None;
    }
    let awaited = parser.awaited().filter(|_| parser.args_left() == 1)?;
    let args = parser.taken().iter().chain([&awaited]);
    let args = args.map(|range| *at + range.start..*at + range.end).collect();
    *at += awaited.end + b"\r\n".len();
    (*at == total).then_some(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(commands: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for command in commands {
            let args: Vec<&str> = command.split(' ').collect();
            bytes.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
            args.iter().for_each(|arg| RespCodec::default().render(arg.as_bytes(), &mut bytes));
        }
        bytes
    }

    /// The keys that an update touches; `None` for all keys.
    fn touched(commands: &[&str]) -> Option<Vec<String>> {
        let request = request(commands);
        let text = |range: &Range<usize>| String::from_utf8(request[range.clone()].to_vec()).unwrap();
        match RespCodec::default().update(&request) {
            Effect::None => Some(Vec::new()),
            Effect::Sets { key, .. } => Some(vec![format!("={}", text(&key))]),
            Effect::Touches(keys) => Some(keys.iter().map(text).collect()),
            Effect::TouchesAll => None,
        }
    }

    #[test]
    fn commands_touch_the_keys_that_they_may_change() {
        for (command, keys) in [
            ("SET a v", "=a"),
            ("sEt a v", "=a"),
            ("SET a v NX", "a"),
            ("SET a v EX 10", "a"),
            ("SETEX a 10 v", "a"),
            ("GETSET a v", "a"),
            ("MSET a 1 b 2", "a b"),
            ("DEL a b c", "a b c"),
            ("RENAME a b", "a b"),
            ("COPY a b", "b"),
            ("BITOP AND d a b", "d"),
            ("SINTERSTORE d a b", "d"),
            ("LMOVE a b LEFT RIGHT", "a b"),
            ("BLPOP a b 0", "a b"),
            ("HSET h f v", "h"),
            ("SET a", "a"),
            ("GETEX a", "a"),
        ] {
            let expected: Vec<String> = keys.split(' ').map(str::to_owned).collect();
            assert_eq!(touched(&[command]), Some(expected), "{command}");
        }
    }

    #[test]
    fn unknown_requests_touch_all_keys() {
        for command in [
            "FLUSHALL",
            "SWAPDB 0 1",
            "EVAL x 0",
            "MULTI",
            "EXEC",
            "SELECT 0",
            "NOSUCH a",
            "SET",
            "MSET",
            "COPY a b DB 2",
            "SORT a STORE b",
            "DEL",
            "BLPOP a",
        ] {
            assert_eq!(touched(&[command]), None, "{command}");
        }
        for bytes in [
            "",
            "SET a v\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*1\r\n$-1\r\n",
            "*01\r\n$4\r\nPING\r\n",
            "*1\r\n$4\r\nPING\r\n*",
        ] {
            assert_eq!(RespCodec::default().update(bytes.as_bytes()), Effect::TouchesAll, "{bytes:?}");
        }
    }

    #[test]
    fn a_pipeline_has_the_effects_of_all_its_commands() {
        assert_eq!(
            touched(&["SET a 1", "GET b", "DEL c d"]),
            Some(["a", "c", "d"].map(String::from).to_vec())
        );
        assert_eq!(touched(&["SET a 1", "FLUSHDB"]), None);
        assert_eq!(touched(&["GET a", "GET b"]), Some(Vec::new()));
        assert_eq!(RespCodec::default().bypass(&request(&["GET a", "GET b"])), Query::None);
    }

    #[test]
    fn a_hello_before_a_command_does_not_change_its_effect() {
        let codec = RespCodec::default();
        let get = request(&["HELLO 3", "GET a"]);
        let Query::Reads { key } = codec.bypass(&get) else { panic!("{:?}", codec.bypass(&get)) };
        assert_eq!(&get[key], b"a");
        assert_eq!(codec.bypass(&request(&["HELLO 3", "MGET a b"])), Query::None);
        assert_eq!(codec.bypass(&request(&["HELLO 3"])), Query::None);
        assert_eq!(touched(&["HELLO 3", "INCR a"]), Some(vec!["a".to_owned()]));
        assert_eq!(touched(&["HELLO 3", "SET a v"]), Some(vec!["=a".to_owned()]));
        assert_eq!(touched(&["HELLO 3", "EVAL x 0"]), None);
    }

    #[test]
    fn a_transaction_touches_the_keys_of_its_commands_if_the_request_contains_it_completely() {
        let keys = |keys: &[&str]| Some(keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        assert_eq!(touched(&["MULTI", "SET a v", "GET b", "INCR c", "EXEC"]), keys(&["a", "c"]));
        assert_eq!(touched(&["HELLO 3", "MULTI", "SET a v", "EXEC"]), keys(&["a"]));
        assert_eq!(touched(&["MULTI", "GET a", "EXEC"]), keys(&[]));
        for part in [
            &["MULTI", "SET a v"][..],
            &["SET a v", "EXEC"],
            &["SET b v", "MULTI", "SET a v", "EXEC"],
            &["MULTI", "EXEC", "MULTI", "EXEC"],
            &["MULTI", "FLUSHALL", "EXEC"],
        ] {
            assert_eq!(touched(part), None, "{part:?}");
        }
    }

    /// The keys that an update touches according to its first bytes; `None` for all keys.
    fn touched_by_start(commands: &[&str], known: usize) -> Option<Vec<String>> {
        let request = request(commands);
        let keys = RespCodec::default().keys_of_start(&request[..known], request.len())?;
        Some(keys.iter().map(|key| String::from_utf8(request[key.clone()].to_vec()).unwrap()).collect())
    }

    #[test]
    fn the_start_of_a_request_tells_its_keys_if_only_its_last_argument_is_longer() {
        let long = "v".repeat(5000);
        let keys = |keys: &[&str]| Some(keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        let start = |command: &str| touched_by_start(&[&command.replace("LONG", &long)], 100);
        assert_eq!(start("SET a LONG"), keys(&["a"]));
        assert_eq!(start("HSET h f LONG"), keys(&["h"]));
        assert_eq!(start("MSET a 1 b LONG"), keys(&["a", "b"]));
        assert_eq!(start("ECHO LONG"), keys(&[]));
        assert_eq!(touched_by_start(&["HELLO 3", &format!("SET a {long}")], 100), keys(&["a"]));
        assert_eq!(touched_by_start(&["DEL b", &format!("SET a {long}")], 100), keys(&["b", "a"]));
        for other in ["SET a LONG NX", "SET LONG v", "DEL LONG", "DEL a LONG", "EVAL LONG", "LONG"] {
            assert_eq!(start(other), None, "{other}");
        }
        assert_eq!(touched_by_start(&["SET a 1", "MULTI", &format!("SET b {long}")], 100), None);
        assert_eq!(touched_by_start(&[&format!("SET a {long}"), "FLUSHALL"], 100), None);
        // A complete command that another one follows.
        assert_eq!(RespCodec::default().keys_of_start(&request(&["SET a v"]), 5000), None);
    }

    #[test]
    fn a_start_tells_keys_only_with_the_length_of_the_last_argument() {
        let command = format!("SET key {}", "v".repeat(5000));
        let head = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5000\r\n".len();
        for known in 0..head {
            assert_eq!(touched_by_start(&[&command], known), None, "{known} bytes");
        }
        for known in [head, head + 1, head + 5000, head + 5001] {
            assert_eq!(touched_by_start(&[&command], known), Some(vec!["key".to_owned()]), "{known} bytes");
        }
    }

    #[test]
    fn only_a_get_reads() {
        let codec = RespCodec::default();
        assert_eq!(codec.bypass(b"*2\r\n$3\r\nget\r\n$1\r\na\r\n"), Query::Reads { key: 17..18 });
        assert_eq!(codec.bypass(&request(&["MGET a"])), Query::None);
        assert_eq!(codec.bypass(&request(&["GETDEL a"])), Query::Touches(smallvec![20..21]));
    }

    #[test]
    fn responses_with_values_are_stored_if_keys_do_not_expire() {
        let codec = RespCodec { keep_responses: true };
        let mut response = Vec::new();
        codec.render(b"value", &mut response);
        assert_eq!(response, b"$5\r\nvalue\r\n");
        assert_eq!(codec.response_value(b"a", &response), Some(4..9));
        for other in ["$-1\r\n", "_\r\n", "-ERR\r\n", "$5\r\nvalue\r\n+OK\r\n", "$5\r\nval", ""] {
            assert_eq!(codec.response_value(b"a", other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(RespCodec::default().response_value(b"a", &response), None, "the key may expire");
    }
}
