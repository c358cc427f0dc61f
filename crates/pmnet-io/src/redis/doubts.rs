//! Commands in doubt: acknowledged early and committed, their replies seen by nobody. What they have left behind tells of most that
//! they were executed.

use super::rejected::Rejection;
use super::resp;
use super::server::Link;
use super::upstream::UpstreamError;

/// What to ask about a command, and the reply that shows that it was executed.
struct Question {
    ask: Vec<Vec<u8>>,
    executed: Vec<u8>,
}

impl Question {
    /// `None` where nothing would tell.
    fn about(command: &[u8]) -> Option<Self> {
        let request = resp::request(command, command.len()).ok()??;
        let words: Vec<&[u8]> = request.words.iter().map(|word| &command[word.clone()]).collect();
        let [name, key, rest @ ..] = words.as_slice() else { return None };
        match name.to_ascii_lowercase().as_slice() {
            b"hmset" => Some(Self::about_fields(key, rest)),
            b"ltrim" => Some(Self::about_type(key, b"+list\r\n")),
            b"pfmerge" => Some(Self::about_type(key, b"+string\r\n")),
            _ => None,
        }
    }

    /// Its fields have its values. The last one of a field that is named twice counts.
    fn about_fields(key: &[u8], fields: &[&[u8]]) -> Self {
        let mut ask = vec![b"HMGET".to_vec(), key.to_vec()];
        let mut executed = Vec::new();
        resp::put_head(&mut executed, b'*', fields.len() / 2);
        for pair in fields.chunks_exact(2) {
            let last = fields.chunks_exact(2).rfind(|other| other[0] == pair[0]).unwrap_or(pair);
            ask.push(pair[0].to_vec());
            resp::put_bulk(&mut executed, last[1]);
        }
        Self { ask, executed }
    }

    /// The type is the only thing that it can fail for.
    fn about_type(key: &[u8], executed: &[u8]) -> Self {
        Self { ask: vec![b"TYPE".to_vec(), key.to_vec()], executed: executed.to_vec() }
    }
}

/// Leaves out what was executed.
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
    fn what_a_command_leaves_behind_is_asked_for() {
        let (ask, executed) = about(&["HMSET", "k", "f", "v", "g", "w", "f", "x"]).unwrap();
        assert_eq!(ask, ["HMGET", "k", "f", "g", "f"]);
        assert_eq!(executed, "*3\r\n$1\r\nx\r\n$1\r\nw\r\n$1\r\nx\r\n");
        assert_eq!(about(&["ltrim", "k", "0", "1"]).unwrap().1, "+list\r\n");
        assert_eq!(about(&["SET", "k", "v"]), None);
    }
}
