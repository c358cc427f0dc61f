//! Redis' commands, and which of their arguments are keys that they may change. A command that is not listed here
//! may change any key.

use std::ops::Range;

use super::effect::KeyRanges;

/// What a command does.
pub(super) enum Class {
    Nothing,
    /// Reads the value of this key.
    Reads(Range<usize>),
    /// Sets a key to a value.
    Sets(Range<usize>, Range<usize>),
    Touches(KeyRanges),
    /// `HELLO`: chooses the protocol of replies.
    SelectsProtocol,
    /// `MULTI`: begins a transaction.
    Begins,
    /// `EXEC`: ends it.
    Ends,
    All,
}

/// Which arguments are keys that change: every `step`th argument from `first` on, without the last `tail` ones. Only
/// the argument `first` if `step` is 0.
struct Keys {
    first: usize,
    step: usize,
    tail: usize,
}

const FIRST: Keys = Keys { first: 1, step: 0, tail: 0 };
const SECOND: Keys = Keys { first: 2, step: 0, tail: 0 };
const EACH: Keys = Keys { first: 1, step: 1, tail: 0 };
const EACH_SECOND: Keys = Keys { first: 1, step: 2, tail: 0 };
const BUT_LAST: Keys = Keys { first: 1, step: 1, tail: 1 };

/// Commands that change nothing, whatever their arguments.
const READS: &[&str] = &[
    "BITCOUNT",
    "BITFIELD_RO",
    "BITPOS",
    "COMMAND",
    "DBSIZE",
    "DUMP",
    "ECHO",
    "EVALSHA_RO",
    "EVAL_RO",
    "EXISTS",
    "EXPIRETIME",
    "FCALL_RO",
    "GEODIST",
    "GEOHASH",
    "GEOPOS",
    "GEORADIUSBYMEMBER_RO",
    "GEORADIUS_RO",
    "GEOSEARCH",
    "GETBIT",
    "GETRANGE",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HKEYS",
    "HLEN",
    "HMGET",
    "HRANDFIELD",
    "HSCAN",
    "HSTRLEN",
    "HVALS",
    "INFO",
    "KEYS",
    "LASTSAVE",
    "LATENCY",
    "LCS",
    "LINDEX",
    "LLEN",
    "LOLWUT",
    "LPOS",
    "LRANGE",
    "MEMORY",
    "MGET",
    "OBJECT",
    "PEXPIRETIME",
    "PING",
    "PTTL",
    "PUBLISH",
    "PUBSUB",
    "RANDOMKEY",
    "ROLE",
    "SCAN",
    "SCARD",
    "SDIFF",
    "SINTER",
    "SINTERCARD",
    "SISMEMBER",
    "SLOWLOG",
    "SMEMBERS",
    "SMISMEMBER",
    "SORT_RO",
    "SPUBLISH",
    "SRANDMEMBER",
    "SSCAN",
    "STRLEN",
    "SUBSTR",
    "SUNION",
    "TIME",
    "TOUCH",
    "TTL",
    "TYPE",
    "XINFO",
    "XLEN",
    "XPENDING",
    "XRANGE",
    "XREAD",
    "XREVRANGE",
    "ZCARD",
    "ZCOUNT",
    "ZDIFF",
    "ZINTER",
    "ZINTERCARD",
    "ZLEXCOUNT",
    "ZMSCORE",
    "ZRANDMEMBER",
    "ZRANGE",
    "ZRANGEBYLEX",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZREVRANGE",
    "ZREVRANGEBYLEX",
    "ZREVRANGEBYSCORE",
    "ZREVRANK",
    "ZSCAN",
    "ZSCORE",
    "ZUNION",
];

/// Commands of which only these subcommands change nothing.
const SUBCOMMANDS_THAT_READ: &[(&str, &str)] = &[
    ("CLUSTER", "COUNTKEYSINSLOT"),
    ("CLUSTER", "GETKEYSINSLOT"),
    ("CLUSTER", "INFO"),
    ("CLUSTER", "KEYSLOT"),
    ("CLUSTER", "MYID"),
    ("CLUSTER", "NODES"),
    ("CLUSTER", "SHARDS"),
    ("CLUSTER", "SLOTS"),
    ("CONFIG", "GET"),
    ("FUNCTION", "DUMP"),
    ("FUNCTION", "HELP"),
    ("FUNCTION", "LIST"),
    ("FUNCTION", "STATS"),
    ("MODULE", "HELP"),
    ("MODULE", "LIST"),
    ("SCRIPT", "EXISTS"),
    ("SCRIPT", "HELP"),
    ("XGROUP", "HELP"),
];

/// Commands that may change only their first argument.
const FIRST_CHANGES: &[&str] = &[
    "APPEND",
    "BITFIELD",
    "DECR",
    "DECRBY",
    "EXPIRE",
    "EXPIREAT",
    "GEOADD",
    "GEOSEARCHSTORE",
    "GETDEL",
    "GETEX",
    "GETSET",
    "HDEL",
    "HEXPIRE",
    "HINCRBY",
    "HINCRBYFLOAT",
    "HMSET",
    "HPERSIST",
    "HPEXPIRE",
    "HSET",
    "HSETNX",
    "INCR",
    "INCRBY",
    "INCRBYFLOAT",
    "LINSERT",
    "LPOP",
    "LPUSH",
    "LPUSHX",
    "LREM",
    "LSET",
    "LTRIM",
    "PERSIST",
    "PEXPIRE",
    "PEXPIREAT",
    "PFADD",
    "PFMERGE",
    "PSETEX",
    "RESTORE",
    "RPOP",
    "RPUSH",
    "RPUSHX",
    "SADD",
    "SDIFFSTORE",
    "SET",
    "SETBIT",
    "SETEX",
    "SETNX",
    "SETRANGE",
    "SINTERSTORE",
    "SPOP",
    "SREM",
    "SUNIONSTORE",
    "XACK",
    "XADD",
    "XAUTOCLAIM",
    "XCLAIM",
    "XDEL",
    "XSETID",
    "XTRIM",
    "ZADD",
    "ZDIFFSTORE",
    "ZINCRBY",
    "ZINTERSTORE",
    "ZPOPMAX",
    "ZPOPMIN",
    "ZRANGESTORE",
    "ZREM",
    "ZREMRANGEBYLEX",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
    "ZUNIONSTORE",
];

/// Commands that may change several arguments, or another argument than the first.
const OTHERS: &[(&str, Keys)] = &[
    ("BITOP", SECOND),
    ("BLMOVE", Keys { first: 1, step: 1, tail: 3 }),
    ("BLPOP", BUT_LAST),
    ("BRPOP", BUT_LAST),
    ("BRPOPLPUSH", BUT_LAST),
    ("BZPOPMAX", BUT_LAST),
    ("BZPOPMIN", BUT_LAST),
    ("DEL", EACH),
    ("LMOVE", Keys { first: 1, step: 1, tail: 2 }),
    ("MSET", EACH_SECOND),
    ("MSETNX", EACH_SECOND),
    ("PFCOUNT", EACH),
    ("RENAME", EACH),
    ("RENAMENX", EACH),
    ("RPOPLPUSH", EACH),
    ("SMOVE", BUT_LAST),
    ("UNLINK", EACH),
    ("XGROUP", SECOND),
];

/// Upper limit of the length of the names above.
const NAME_BYTES_MAX: usize = 24;

/// Classifies a command. `args` are its arguments; the first one is its name.
pub(super) fn classify(request: &[u8], args: &[Range<usize>]) -> Class {
    let Some(name) = args.first().and_then(|range| request.get(range.clone())) else { return Class::All };
    let mut upper = [0; NAME_BYTES_MAX];
    let Some(upper) = upper.get_mut(..name.len()) else { return Class::All };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    let Ok(name) = std::str::from_utf8(upper) else { return Class::All };
    match (name, args) {
        ("GET", [_, key]) => Class::Reads(key.clone()),
        // The server refuses it, because its arguments are wrong.
        ("GET", _) => Class::Nothing,
        ("SET", [_, key, value]) => Class::Sets(key.clone(), value.clone()),
        ("HELLO", _) => Class::SelectsProtocol,
        ("MULTI", [_]) => Class::Begins,
        ("EXEC", [_]) => Class::Ends,
        // With options the destination may be in another database.
        ("COPY", [_, _, to]) => Class::Touches(KeyRanges::from_iter([to.clone()])),
        _ => by_table(name, (request, args)),
    }
}

fn by_table(name: &str, (request, args): (&[u8], &[Range<usize>])) -> Class {
    let sub = args.get(1).and_then(|range| request.get(range.clone())).unwrap_or_default();
    let reads = |(whole, part): &(&str, &str)| *whole == name && sub.eq_ignore_ascii_case(part.as_bytes());
    if READS.contains(&name) || SUBCOMMANDS_THAT_READ.iter().any(reads) {
        return Class::Nothing;
    }
    if FIRST_CHANGES.contains(&name) {
        return touches(args, &FIRST);
    }
    match OTHERS.iter().find(|(other, _)| *other == name) {
        Some((_, keys)) => touches(args, keys),
        None => Class::All,
    }
}

fn touches(args: &[Range<usize>], keys: &Keys) -> Class {
    let end = args.len().saturating_sub(keys.tail);
    let named = args.get(keys.first..end).unwrap_or_default();
    let keys: KeyRanges = match keys.step {
        0 => named.iter().take(1).cloned().collect(),
        step => named.iter().step_by(step).cloned().collect(),
    };
    if keys.is_empty() { Class::All } else { Class::Touches(keys) }
}
