//! Parses the options of `SET`, `GETEX` and the `EXPIRE` family as Redis does.

use super::command::Call;
use super::fail::Fail;

/// The change of a key's expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ExpiryChange {
    /// No option was given.
    #[default]
    Unsaid,
    /// The expiry stays (`KEEPTTL`).
    Keep,
    /// The expiry is removed (`PERSIST`).
    Clear,
    /// The expiry is set to this time, Unix milliseconds.
    At(u64),
}

/// Whether the key must exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Condition {
    #[default]
    None,
    Absent,
    Present,
}

/// The options of `SET` and `GETEX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ValueOptions {
    pub(super) condition: Condition,
    pub(super) get: bool,
    pub(super) expiry: ExpiryChange,
}

/// The parsed options: the unit, and the position of its number.
#[derive(Clone, Copy, Default)]
struct ParsedOptions {
    options: ValueOptions,
    unit: Option<(Unit, usize)>,
}

/// The unit and base of an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) seconds: bool,
    /// Unix time instead of a time from now.
    pub(super) absolute: bool,
}

impl Unit {
    pub(super) const SECONDS: Self = Self { seconds: true, absolute: false };
    pub(super) const MILLISECONDS: Self = Self { seconds: false, absolute: false };
    pub(super) const UNIX_SECONDS: Self = Self { seconds: true, absolute: true };
    pub(super) const UNIX_MILLISECONDS: Self = Self { seconds: false, absolute: true };

    fn of(word: &[u8]) -> Option<Self> {
        let units: [(&[u8], Self); 4] = [
            (b"EX", Self::SECONDS),
            (b"PX", Self::MILLISECONDS),
            (b"EXAT", Self::UNIX_SECONDS),
            (b"PXAT", Self::UNIX_MILLISECONDS),
        ];
        units.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, unit)| *unit)
    }
}

impl Call<'_, '_, '_> {
    /// Parses the options of `SET` from word `first` on.
    pub(super) fn set_options(&self, first: usize) -> Result<ValueOptions, Fail> {
        let said = self.parse(first, |said, word| {
            let condition = said.options.condition;
            match word {
                b"NX" if condition != Condition::Present => said.options.condition = Condition::Absent,
                b"XX" if condition != Condition::Absent => said.options.condition = Condition::Present,
                b"GET" => said.options.get = true,
                b"KEEPTTL" if said.unit.is_none() => said.options.expiry = ExpiryChange::Keep,
                _ => return false,
            }
            true
        })?;
        self.resolve(said)
    }

    /// Parses the options of `GETEX` from word `first` on; the expiry is parsed once the key is known to exist.
    pub(super) fn getex_options(&self, first: usize) -> Result<GetexOptions, Fail> {
        let said = self.parse(first, |said, word| {
            let persists = word == b"PERSIST" && said.unit.is_none();
            if persists {
                said.options.expiry = ExpiryChange::Clear;
            }
            persists
        })?;
        Ok(GetexOptions(said))
    }

    /// Parses the words: units here, other options by `other`, which gets them in upper case.
    fn parse(
        &self,
        first: usize,
        other: impl Fn(&mut ParsedOptions, &[u8]) -> bool,
    ) -> Result<ParsedOptions, Fail> {
        let mut said = ParsedOptions::default();
        let mut at = first;
        while at < self.words.len() {
            let word = self.word(at);
            let known = match Unit::of(&word) {
                Some(unit) => {
                    at += 1;
                    at < self.words.len() && said.take_unit(unit, at)
                }
                None => other(&mut said, &word.to_ascii_uppercase()),
            };
            if !known {
                return Err(Fail::syntax());
            }
            at += 1;
        }
        Ok(said)
    }

    fn resolve(&self, said: ParsedOptions) -> Result<ValueOptions, Fail> {
        let mut options = said.options;
        if let Some((unit, at)) = said.unit {
            options.expiry = ExpiryChange::At(self.expiry(at, unit)?);
        }
        Ok(options)
    }

    /// A word as an expiry above zero, in Unix milliseconds.
    pub(super) fn expiry(&self, index: usize, unit: Unit) -> Result<u64, Fail> {
        let given = self.integer(index)?;
        let factor = if unit.seconds { 1000 } else { 1 };
        let base = if unit.absolute { 0 } else { i64::try_from(self.ctx.now_ms).unwrap_or(i64::MAX) };
        let expiry = Some(given)
            .filter(|given| *given > 0)
            .and_then(|given| given.checked_mul(factor)?.checked_add(base));
        expiry.and_then(|expiry| u64::try_from(expiry).ok()).ok_or_else(|| self.invalid_expiry())
    }

    pub(super) fn invalid_expiry(&self) -> Fail {
        Fail::Error(format!("ERR invalid expire time in '{}' command", self.spec.name).into())
    }
}

impl ParsedOptions {
    /// Sets the unit, unless another unit or an option that excludes it was given before.
    fn take_unit(&mut self, unit: Unit, at: usize) -> bool {
        let agrees = self.unit.is_none_or(|(known, _)| known == unit);
        if !agrees || self.options.expiry != ExpiryChange::Unsaid {
            return false;
        }
        self.unit = Some((unit, at));
        true
    }
}

/// Options of `GETEX`.
#[derive(Clone, Copy)]
pub(super) struct GetexOptions(ParsedOptions);

impl GetexOptions {
    /// The change of the expiry.
    pub(super) fn expiry(self, call: &Call<'_, '_, '_>) -> Result<ExpiryChange, Fail> {
        Ok(call.resolve(self.0)?.expiry)
    }

    /// True if nothing changes.
    pub(super) fn is_plain(self) -> bool {
        self.0.unit.is_none() && self.0.options.expiry == ExpiryChange::Unsaid
    }
}
