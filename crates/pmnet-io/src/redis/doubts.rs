//! Commands in doubt: they were acknowledged early and committed, and no side-car has seen their replies. For most of
//! them, their effects in the real server show that they were executed.

use super::rejected::Rejection;
use super::resp;
use super::state::Link;
use super::upstream::UpstreamError;

/// A query about the effect of a command, and the reply that shows that the command was executed.
struct Question {
    ask: Vec<Vec<u8>>,
    executed: Vec<u8>,
}

impl Question {
    /// The query about a command; `None` if no query shows whether it was executed.
    fn about(command: &[u8]) -> Option<Self> {
        let request = resp::request(command).ok()??;
        let words = request.args();
        let [name, key, args @ ..] = words.as_slice() else { return None };
        match name.to_ascii_lowercase().as_slice() {
            b"hmset" => Some(Self::about_fields(key, args)),
            b"ltrim" => Some(Self::about_type(key, b"+list\r\n")),
            b"pfmerge" => Some(Self::about_type(key, b"+string\r\n")),
            _ => None,
        }
    }

    /// The command was executed if its fields have its values. If it names a field twice, the last value counts.
    fn about_fields(key: &[u8], fields: &[&[u8]]) -> Self {
        let mut ask = vec![b"HMGET".to_vec(), key.to_vec()];
        let mut executed = Vec::new();
        resp::put_array(&mut executed, fields.len() / 2);
        for pair in fields.chunks_exact(2) {
            let last = fields.chunks_exact(2).rfind(|other| other[0] == pair[0]).unwrap_or(pair);
            ask.push(pair[0].to_vec());
            resp::put_bulk(&mut executed, last[1]);
        }
        Self { ask, executed }
    }

    /// The command was executed if the key has the right type, because it can fail for no other reason.
    fn about_type(key: &[u8], executed: &[u8]) -> Self {
        Self { ask: vec![b"TYPE".to_vec(), key.to_vec()], executed: executed.to_vec() }
    }
}

/// Removes the commands that were executed from the list.
pub(super) fn settle(doubts: Vec<Rejection>, link: &mut Link) -> Result<Vec<Rejection>, UpstreamError> {
    let mut left = Vec::new();
    for doubt in doubts {
        let executed = match Question::about(&doubt.request) {
            Some(question) => {
                link.upstream.push(&question.ask.iter().map(Vec::as_slice).collect::<Vec<_>>());
                link.upstream.call(None)? == question.executed
            }
            None => false,
        };
        if !executed {
            left.push(doubt);
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(words: &[&str]) -> Option<(Vec<String>, String)> {
        let mut command = Vec::new();
        resp::put_command(&mut command, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Question::about(&command)
            .map(|question| (question.ask.into_iter().map(text).collect(), text(question.executed)))
    }

    #[test]
    fn the_effect_of_a_command_is_queried() {
        let (ask, executed) = about(&["HMSET", "k", "f", "v", "g", "w", "f", "x"]).unwrap();
        assert_eq!(ask, ["HMGET", "k", "f", "g", "f"]);
        assert_eq!(executed, "*3\r\n$1\r\nx\r\n$1\r\nw\r\n$1\r\nx\r\n");
        assert_eq!(about(&["ltrim", "k", "0", "1"]).unwrap().1, "+list\r\n");
        assert_eq!(about(&["SET", "k", "v"]), None);
    }
}
