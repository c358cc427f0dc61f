//! A hand-written command line parser: a parser crate would be built on every fresh clone.

use crate::error::Error;

/// Which flags a command takes, without their dashes.
pub(crate) struct Grammar {
    /// Flags followed by a value: `--seed 7` or `--seed=7`.
    pub(crate) values: &'static [&'static str],
    /// Flags without a value.
    pub(crate) switches: &'static [&'static str],
    /// Maximum number of words that are not flags.
    pub(crate) words_max: usize,
}

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Args {
    values: Vec<(String, String)>,
    switches: Vec<String>,
    words: Vec<String>,
}

impl Grammar {
    /// Parses `line` against this grammar.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown flag, a missing value or too many words.
    pub(crate) fn parse(&self, line: &[String]) -> Result<Args, Error> {
        let mut args = Args::default();
        let mut rest = line.iter();
        while let Some(word) = rest.next() {
            match word.strip_prefix("--") {
                Some(flag) => self.flag(flag, &mut rest, &mut args)?,
                None => args.words.push(word.clone()),
            }
        }
        match args.words.get(self.words_max) {
            Some(extra) => Err(Error::Usage(format!("too many words: `{extra}`"))),
            None => Ok(args),
        }
    }

    fn flag<'a>(
        &self,
        flag: &str,
        rest: &mut impl Iterator<Item = &'a String>,
        args: &mut Args,
    ) -> Result<(), Error> {
        let (name, inline) = flag.split_once('=').map_or((flag, None), |(n, v)| (n, Some(v.to_owned())));
        if self.switches.contains(&name) && inline.is_none() {
            args.switches.push(name.to_owned());
            return Ok(());
        }
        if !self.values.contains(&name) {
            return Err(Error::Usage(format!("no flag `--{flag}` here; `cargo xtask help` lists them")));
        }
        let value = inline.or_else(|| rest.next().cloned());
        let value = value.ok_or_else(|| Error::Usage(format!("`--{name}` needs a value")))?;
        args.values.push((name.to_owned(), value));
        Ok(())
    }
}

impl Args {
    /// Whether the switch was given.
    pub(crate) fn has(&self, switch: &str) -> bool {
        self.switches.iter().any(|s| s == switch)
    }

    /// The number given with `--flag`, the last one where it was repeated.
    ///
    /// # Errors
    /// [`Error::Usage`] where the value is not an unsigned number.
    pub(crate) fn number(&self, flag: &str) -> Result<Option<u64>, Error> {
        let Some((_, value)) = self.values.iter().rev().find(|(name, _)| name == flag) else {
            return Ok(None);
        };
        let wrong = |_| Error::Usage(format!("`--{flag} {value}`: a number is needed"));
        value.parse().map(Some).map_err(wrong)
    }

    /// All values given with `--flag`, split at commas.
    pub(crate) fn list(&self, flag: &str) -> Vec<&str> {
        let given = self.values.iter().filter(|(name, _)| name == flag);
        given.flat_map(|(_, value)| value.split(',')).filter(|item| !item.is_empty()).collect()
    }

    /// The first word that is not a flag.
    pub(crate) fn word(&self) -> Option<&str> {
        self.words.first().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAMMAR: Grammar = Grammar { values: &["seed", "only"], switches: &["verbose"], words_max: 1 };

    fn parse(line: &str) -> Result<Args, Error> {
        GRAMMAR.parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn values_switches_and_words_are_distinguished() {
        let args = parse("--seed 7 target --verbose --only=a,b --only c").unwrap();
        assert_eq!(args.number("seed").unwrap(), Some(7));
        assert_eq!(args.list("only"), ["a", "b", "c"]);
        assert!(args.has("verbose"));
        assert_eq!(args.word(), Some("target"));
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for line in ["--sed 7", "--seed", "a b", "--verbose=1"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--seed x").unwrap().number("seed").is_err());
    }
}
