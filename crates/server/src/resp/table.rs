//! The table of commands, and how a command is found in it.

use super::command::{Spec, Table};
use super::fail::Fail;
use super::words::Words;

const FAMILIES: [&[Spec]; 20] = [
    super::strings::SPECS,
    super::numbers::SPECS,
    super::append::SPECS,
    super::pieces::SPECS,
    super::keys::SPECS,
    super::expiry::SPECS,
    super::scan::SPECS,
    super::range::SPECS,
    super::multi::SPECS,
    super::connection::SPECS,
    super::introspection::SPECS,
    super::server::SPECS,
    super::settings::SPECS,
    super::info::SPECS,
    super::inspect::SPECS,
    super::logs::SPECS,
    super::files::SPECS,
    super::role::SPECS,
    super::sentinel::SPECS,
    super::subscribe::SPECS,
];

const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

/// Every command.
pub(super) static SPECS: [Spec; COUNT] = {
    let mut all = [FAMILIES[0][0]; COUNT];
    let (mut at, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut index = 0;
        while index < FAMILIES[family].len() {
            all[at] = FAMILIES[family][index];
            at += 1;
            index += 1;
        }
        family += 1;
    }
    all
};

/// The table, for commands that show others.
pub(super) static TABLE: Table = Table { all: &SPECS, find };

/// Longest name of a command.
const NAME_LEN_MAX: usize = 16;
const INDEX_BITS: u32 = 10;
const INDEX_LEN: usize = 1 << INDEX_BITS;
const VACANT: u8 = u8::MAX;

/// A name as a number that does not depend on case: its bytes with the bit set that distinguishes lower from upper
/// case. Different names may have one number, because other bytes lose that bit, too.
#[inline]
const fn fold(name: &[u8]) -> u64 {
    let (mut folded, mut at) = (0, 0);
    while at < name.len() {
        folded = (folded << 5) ^ (name[at] | 0x20) as u64;
        at += 1;
    }
    folded
}

const fn home(folded: u64) -> usize {
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - INDEX_BITS)) as usize
}

const fn are_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Positions in [`SPECS`] by name: an open hash table, built at compile time.
static INDEX: [u8; INDEX_LEN] = {
    let mut index = [VACANT; INDEX_LEN];
    let mut at = 0;
    while at < COUNT {
        let name = SPECS[at].name.as_bytes();
        assert!(name.len() <= NAME_LEN_MAX && at < VACANT as usize);
        let mut place = home(fold(name));
        while index[place] != VACANT {
            assert!(
                !are_same(SPECS[index[place] as usize].name.as_bytes(), name),
                "two commands of one name"
            );
            place = (place + 1) % INDEX_LEN;
        }
        index[place] = at as u8;
        at += 1;
    }
    index
};

/// A command by its name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static Spec> {
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    let mut place = home(fold(name));
    loop {
        let spec = SPECS.get(usize::from(INDEX[place]))?;
        // Names are short: a loop over their bytes ends before a block comparison would have begun.
        let own = spec.name.as_bytes();
        if own.len() == name.len()
            && own.iter().zip(name).all(|(own, byte)| *own == byte.to_ascii_lowercase())
        {
            return Some(spec);
        }
        place = (place + 1) % INDEX_LEN;
    }
}

/// The command, or the subcommand, of `words`.
pub(super) fn resolve(words: Words<'_>) -> Result<&'static Spec, Fail> {
    let name = words.bytes(0);
    let Some(spec) = find(&name) else { return Err(unknown(words)) };
    let spec = match spec.subcommands {
        [] => spec,
        _ if words.len() == 1 => spec,
        subcommands => find_subcommand(spec, subcommands, &words.bytes(1))?,
    };
    if spec.takes(words.len()) { Ok(spec) } else { Err(Fail::arity(spec.name)) }
}

fn find_subcommand(spec: &Spec, subcommands: &'static [Spec], name: &[u8]) -> Result<&'static Spec, Fail> {
    let own_name = |sub: &Spec| sub.name.as_bytes().get(spec.name.len() + 1..).unwrap_or_default();
    subcommands.iter().find(|sub| own_name(sub).eq_ignore_ascii_case(name)).ok_or_else(|| {
        let text = excerpt(name, EXCERPT_MAX);
        let help = spec.name.to_ascii_uppercase();
        Fail::Error(format!("ERR unknown subcommand '{text}'. Try {help} HELP.").into())
    })
}

/// Bytes of a client's words that an error message repeats, at most, as in Redis.
const EXCERPT_MAX: usize = 128;

/// The error for an unknown command, which repeats the first words.
fn unknown(words: Words<'_>) -> Fail {
    let mut args = String::new();
    for word in words.rest(1) {
        if args.len() >= EXCERPT_MAX {
            break;
        }
        args.push_str(&format!("'{}' ", excerpt(&word, EXCERPT_MAX - args.len())));
    }
    let name = excerpt(&words.bytes(0), EXCERPT_MAX);
    Fail::Error(format!("ERR unknown command '{name}', with args beginning with: {args}").into())
}

/// The first bytes of a word, up to a NUL, as C prints strings.
fn excerpt(word: &[u8], len: usize) -> String {
    let end = word.iter().position(|byte| *byte == 0).unwrap_or(word.len()).min(len);
    String::from_utf8_lossy(&word[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for spec in &SPECS {
            assert_eq!(find(spec.name.as_bytes()).unwrap().name, spec.name);
            assert_eq!(find(spec.name.to_ascii_uppercase().as_bytes()).unwrap().name, spec.name);
        }
        for name in ["", "g", "gett", "get\0", "\0get", "a-name-longer-than-any", "client|id"] {
            assert!(find(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn subcommands_are_named_after_their_command() {
        for spec in &SPECS {
            for sub in spec.subcommands {
                assert!(sub.name.starts_with(&format!("{}|", spec.name)), "{}", sub.name);
            }
        }
    }

    #[test]
    fn keys_are_where_the_specification_says() {
        let positions =
            |name: &str, words| find(name.as_bytes()).unwrap().key_positions(words).collect::<Vec<_>>();
        assert_eq!(positions("get", 2), [1]);
        assert_eq!(positions("mset", 5), [1, 3]);
        assert_eq!(positions("del", 4), [1, 2, 3]);
        assert_eq!(positions("ping", 2), [0; 0]);
    }
}
