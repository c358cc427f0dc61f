//! Expiry of keys.

use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use super::options::Unit;

const READ: Flags = Flags::READ.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE.and(Flags::FAST);

pub(super) const SPECS: &[Spec] = &[
    Spec::new("expire", -3, WRITE, expire, "generic", "Sets the expiration time of a key in seconds.")
        .keys(1, 1, 1),
    Spec::new("pexpire", -3, WRITE, pexpire, "generic", "Sets the expiration time of a key in milliseconds.")
        .keys(1, 1, 1),
    Spec::new(
        "expireat",
        -3,
        WRITE,
        expireat,
        "generic",
        "Sets the expiration time of a key to a Unix timestamp.",
    )
    .keys(1, 1, 1),
    Spec::new(
        "pexpireat",
        -3,
        WRITE,
        pexpireat,
        "generic",
        "Sets the expiration to a Unix time in milliseconds.",
    )
    .keys(1, 1, 1),
    Spec::new("persist", 2, WRITE, persist, "generic", "Removes the expiration time of a key.").keys(1, 1, 1),
    Spec::new("ttl", 2, READ, ttl, "generic", "Returns the expiration time in seconds of a key.")
        .keys(1, 1, 1),
    Spec::new("pttl", 2, READ, pttl, "generic", "Returns the expiration time in milliseconds of a key.")
        .keys(1, 1, 1),
    Spec::new(
        "expiretime",
        2,
        READ,
        expiretime,
        "generic",
        "Returns the expiration time as a Unix timestamp.",
    )
    .keys(1, 1, 1),
    Spec::new("pexpiretime", 2, READ, pexpiretime, "generic", "Returns the expiration as Unix milliseconds.")
        .keys(1, 1, 1),
];

/// Conditions for setting a new expiry.
#[derive(Clone, Copy, Default)]
struct OnlyIf {
    none: bool,
    some: bool,
    greater: bool,
    less: bool,
}

impl OnlyIf {
    fn parse(call: &Call<'_, '_, '_>) -> Result<Self, Fail> {
        let mut only = Self::default();
        for (index, word) in call.words.rest(3).enumerate() {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => only.none = true,
                b"XX" => only.some = true,
                b"GT" => only.greater = true,
                b"LT" => only.less = true,
                _ => {
                    return Err(Fail::Error(
                        format!("ERR Unsupported option {}", call.text(3 + index)).into(),
                    ));
                }
            }
        }
        if only.none && (only.some || only.greater || only.less) {
            return Err(Fail::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if only.greater && only.less {
            return Err(Fail::error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(only)
    }

    /// True if `new` replaces `old`, which is 0 for a key that never expires.
    fn allows(self, old: u64, new: i64) -> bool {
        let old_at = if old == 0 { i64::MAX } else { i64::try_from(old).unwrap_or(i64::MAX) };
        !(self.none && old != 0
            || self.some && old == 0
            || self.greater && (old == 0 || new <= old_at)
            || self.less && old != 0 && new >= old_at)
    }
}

fn expire(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    set_expiry(call, Unit::SECONDS)
}

fn pexpire(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    set_expiry(call, Unit::MILLISECONDS)
}

fn expireat(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    set_expiry(call, Unit::UNIX_SECONDS)
}

fn pexpireat(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    set_expiry(call, Unit::UNIX_MILLISECONDS)
}

fn set_expiry(call: &mut Call<'_, '_, '_>, unit: Unit) -> Result<(), Fail> {
    let only = OnlyIf::parse(call)?;
    let at = signed_expiry(call, unit)?;
    let now_ms = i64::try_from(call.ctx.now_ms).unwrap_or(i64::MAX);
    let key = call.word(1);
    let done = call.update(&[&key], |txn, space| {
        let Some(item) = txn.peek(space, &key)? else { return Ok(false) };
        if !only.allows(item.expiry_ms, at) {
            return Ok(false);
        }
        if at <= now_ms {
            txn.delete(space, &key)?;
        } else {
            txn.put_item(space, &key, &item, at.unsigned_abs());
        }
        Ok(true)
    })?;
    call.reply_integer(done.into())
}

/// The time in word 2 as Unix milliseconds; it may be negative.
fn signed_expiry(call: &Call<'_, '_, '_>, unit: Unit) -> Result<i64, Fail> {
    let given = call.integer(2)?;
    let factor = if unit.seconds { 1000 } else { 1 };
    let base = if unit.absolute { 0 } else { i64::try_from(call.ctx.now_ms).unwrap_or(i64::MAX) };
    let at = given.checked_mul(factor).and_then(|given| given.checked_add(base));
    at.ok_or_else(|| call.invalid_expiry())
}

fn persist(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let key = call.word(1);
    let done = call.update(&[&key], |txn, space| {
        let Some(item) = txn.peek(space, &key)?.filter(|item| item.expiry_ms != 0) else { return Ok(false) };
        txn.put_item(space, &key, &item, 0);
        Ok(true)
    })?;
    call.reply_integer(done.into())
}

fn ttl(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    reply_expiry(call, Unit::SECONDS)
}

fn pttl(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    reply_expiry(call, Unit::MILLISECONDS)
}

fn expiretime(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    reply_expiry(call, Unit::UNIX_SECONDS)
}

fn pexpiretime(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    reply_expiry(call, Unit::UNIX_MILLISECONDS)
}

/// -2 without a key, -1 without an expiry; seconds are rounded to the nearest.
fn reply_expiry(call: &mut Call<'_, '_, '_>, unit: Unit) -> Result<(), Fail> {
    let key = call.word(1);
    let now_ms = call.ctx.now_ms;
    let expiry = match call.peek(&key)?.map(|item| item.expiry_ms) {
        None => -2,
        Some(0) => -1,
        Some(at) => {
            let ms = if unit.absolute { at } else { at.saturating_sub(now_ms) };
            i64::try_from(if unit.seconds { ms.saturating_add(500) / 1000 } else { ms }).unwrap_or(i64::MAX)
        }
    };
    call.reply_integer(expiry)
}
