//! Rejected commands: they were acknowledged early, and the server rejected them. They are kept for inspection.

use super::resp;
use landfall_pmnet::SessionKey;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// An acknowledged command that was not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Time of the rejection, Unix milliseconds.
    pub millis: u64,
    /// Session of the command: `address:port/session`.
    pub session: String,
    /// The number of the update in its session.
    pub number: u32,
    /// The server's error, without its `-`.
    pub error: String,
    /// The command, as RESP.
    pub request: Vec<u8>,
    /// Bytes of the command that are kept in the server, at most. The file has all.
    stored_max: usize,
}

/// Bytes that are kept in the server of a command that it does not take.
const STORED_OF_POISON: usize = 64 << 10;

impl Rejection {
    pub(super) fn new(session: SessionKey, number: u32, error: &[u8], request: &[u8]) -> Self {
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let error =
            String::from_utf8_lossy(error).trim_start_matches('-').trim_end().replace(['\r', '\n'], " ");
        Self {
            millis: u64::try_from(millis).unwrap_or(u64::MAX),
            session: format!("{}/{}", session.client, session.session),
            number,
            error,
            request: request.to_vec(),
            stored_max: usize::MAX,
        }
    }

    /// The server may not take the command even as a value.
    pub(super) fn of_poison(self) -> Self {
        Self { stored_max: STORED_OF_POISON, ..self }
    }

    /// Commands that may have been rejected: the side-car or its connection ended before the replies arrived.
    pub(super) fn in_doubt(mut noted: &[u8]) -> Vec<Self> {
        let unknown = SessionKey { client: ([0_u8; 4], 0).into(), session: 0 };
        let mut found = Vec::new();
        while let Ok(Some(request)) = resp::request(noted) {
            let (command, tail) = noted.split_at(request.bytes);
            found.push(Self::new(unknown, 0, b"in doubt: no side-car has seen the reply", command));
            noted = tail;
        }
        found
    }

    /// The value that is stored in the server: a line of text, then the command.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { millis, session, number, error, request, stored_max } = self;
        let mut bytes = format!("{millis} {session} {number} {error}\n").into_bytes();
        bytes.extend_from_slice(&request[..request.len().min(*stored_max)]);
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (line, request) = (std::str::from_utf8(&bytes[..end]).ok()?, bytes[end + 1..].to_vec());
        let mut words = line.splitn(4, ' ');
        Some(Self {
            millis: words.next()?.parse().ok()?,
            session: words.next()?.to_owned(),
            number: words.next()?.parse().ok()?,
            error: words.next()?.to_owned(),
            request,
            stored_max: usize::MAX,
        })
    }

    /// The words of the command as text: escaped, long words shortened.
    pub fn command(&self) -> String {
        const SHOWN: usize = 64;
        let Ok(Some(request)) = resp::request(&self.request) else {
            return self.request.escape_ascii().to_string();
        };
        let words = request.args().into_iter().map(|word| {
            let more = if word.len() > SHOWN { "..." } else { "" };
            format!("{}{more}", word[..word.len().min(SHOWN)].escape_ascii())
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The file to which rejections are appended. Each is one line, with the whole command escaped.
#[derive(Debug)]
pub(super) struct RejectedFile {
    file: File,
}

impl RejectedFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(|file| Self { file })
    }

    pub(super) fn append(&mut self, rejection: &Rejection) -> io::Result<()> {
        let Rejection { millis, session, number, error, request, .. } = rejection;
        let line = format!("{millis} {session} {number} {error}\t{}\n", request.escape_ascii());
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_decoded_from_their_bytes_and_shown_as_text() {
        let session = SessionKey { client: "10.0.0.1:40000".parse().unwrap(), session: 9 };
        let mut request = Vec::new();
        resp::put_command(&mut request, &[b"SET", b"k\n", &[b'v'; 100]]);
        let rejection = Rejection::new(session, 7, b"-OOM no room\r\n", &request);
        assert_eq!(Rejection::from_bytes(&rejection.to_bytes()), Some(rejection.clone()));
        assert_eq!(
            (rejection.error.as_str(), rejection.session.as_str()),
            ("OOM no room", "10.0.0.1:40000/9")
        );
        assert!(rejection.command().starts_with(r"SET k\n vvv"), "{}", rejection.command());
        assert!(rejection.command().ends_with("v..."));
        assert_eq!(Rejection::from_bytes(b"no"), None);
    }
}
