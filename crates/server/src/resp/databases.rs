//! Databases that the words of a command name.

use super::fail::Fail;
use super::words::Words;
use landfall_resp::parse_i64;

/// Parses the number of an existing database.
pub(super) fn selected(word: &[u8]) -> Option<u8> {
    parse_i64(word)
        .and_then(|number| u8::try_from(number).ok())
        .filter(|number| usize::from(*number) < landfall_kv::DATABASES)
}

/// The options of `COPY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CopyOptions {
    pub(super) database: Option<u8>,
    pub(super) replaces: bool,
}

/// Parses the options of `COPY`.
pub(super) fn copy_options(words: Words<'_>) -> Result<CopyOptions, Fail> {
    let mut options = CopyOptions::default();
    let mut rest = words.rest(3);
    while let Some(word) = rest.next() {
        if word.eq_ignore_ascii_case(b"REPLACE") {
            options.replaces = true;
        } else if word.eq_ignore_ascii_case(b"DB") {
            let number = rest.next().ok_or(Fail::syntax())?;
            parse_i64(&number).ok_or(Fail::not_an_integer())?;
            options.database = Some(selected(&number).ok_or(Fail::error("ERR DB index is out of range"))?);
        } else {
            return Err(Fail::syntax());
        }
    }
    Ok(options)
}

/// The target database of a queued `COPY`, if it names one.
pub(super) fn copy_target(words: Words<'_>) -> Option<u8> {
    copy_options(words).ok()?.database
}
