//! Commands that inspect keys and the server: `OBJECT`, `MEMORY`, `SLOWLOG`, `LATENCY`, and commands that are refused.

use super::command::{Call, Run, Spec};
use super::documentation::help;
use super::fail::Fail;
use super::flags::Flags;
use landfall_heap::RECORD_SIZE;
use landfall_resp::parse_i64;

const READ: Flags = Flags::READ;
const ADMIN: Flags = Flags::ADMIN.and(Flags::SERVER);

const fn object(name: &'static str, run: Run, summary: &'static str) -> Spec {
    Spec::new(name, 3, READ, run, "generic", summary).keys(2, 2, 1)
}

const fn server(name: &'static str, arity: i32, flags: Flags, run: Run, summary: &'static str) -> Spec {
    Spec::new(name, arity, flags, run, "server", summary)
}

pub(super) const SPECS: &[Spec] = &[
    Spec::new("object", -2, Flags::NONE, help, "generic", "A container for object introspection commands.")
        .with(&[
            object("object|encoding", encoding, "Returns the internal encoding of an object."),
            object("object|refcount", refcount, "Returns the reference count of a value of a key."),
            object("object|idletime", idletime, "Returns the time since the last access; always 0."),
            object("object|freq", freq, "Returns the logarithmic access frequency counter."),
            Spec::new(
                "object|help",
                2,
                Flags::SERVER,
                help,
                "generic",
                "Returns helpful text about the subcommands.",
            ),
        ]),
    server("memory", -2, Flags::NONE, help, "A container for memory diagnostics commands.").with(&[
        server("memory|usage", -3, READ, memory_usage, "Estimates the memory usage of a key.").keys(2, 2, 1),
        server("memory|doctor", 2, Flags::NONE, memory_doctor, "Outputs a memory problems report."),
        server("memory|help", 2, Flags::SERVER, help, "Returns helpful text about the subcommands."),
    ]),
    server("slowlog", -2, Flags::NONE, help, "A container for slow log commands.").with(&[
        server("slowlog|get", -2, ADMIN, empty_array, "Returns the slow log's entries; there are none."),
        server("slowlog|len", 2, ADMIN, zero, "Returns the number of entries in the slow log."),
        server("slowlog|reset", 2, ADMIN, done, "Clears all entries from the slow log."),
        server("slowlog|help", 2, Flags::SERVER, help, "Shows helpful text about the different subcommands."),
    ]),
    server("latency", -2, Flags::NONE, help, "A container for latency diagnostics commands.").with(&[
        server(
            "latency|latest",
            2,
            ADMIN,
            empty_array,
            "Returns the latest latency samples; there are none.",
        ),
        server(
            "latency|history",
            3,
            ADMIN,
            empty_array,
            "Returns timestamp-latency samples; there are none.",
        ),
        server("latency|reset", -2, ADMIN, zero, "Resets the latency data."),
        server("latency|doctor", 2, ADMIN, latency_doctor, "Returns a latency analysis report."),
        server(
            "latency|help",
            2,
            Flags::SERVER,
            help,
            "Returns helpful text about the different subcommands.",
        ),
    ]),
    server(
        "cluster",
        -2,
        Flags::SERVER,
        cluster,
        "A container for cluster commands; cluster mode is not supported.",
    ),
    server(
        "debug",
        -2,
        ADMIN.and(Flags::NO_SCRIPT),
        debug,
        "A container for debugging commands; not allowed.",
    ),
];

/// Longest text that Redis would store as an integer, or in one allocation with its object.
const INTEGER_LEN_MAX: usize = 20;
const EMBEDDED_LEN_MAX: usize = 44;

fn encoding(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let key = call.word(2);
    let Some(item) = call.read(&key)? else { return call.reply_value(None) };
    let encoding = match item.len {
        1..=INTEGER_LEN_MAX if parse_i64(&item.bytes()?).is_some() => "int",
        0..=EMBEDDED_LEN_MAX => "embstr",
        _ => "raw",
    };
    call.out().bulk(encoding.as_bytes());
    Ok(())
}

/// Replies with one number for every existing key.
fn constant(call: &mut Call<'_, '_, '_>, number: i64) -> Result<(), Fail> {
    let key = call.word(2);
    match call.peek(&key)? {
        Some(_) => call.reply_integer(number),
        None => call.reply_value(None),
    }
}

fn refcount(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    constant(call, 1)
}

fn idletime(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    constant(call, 0)
}

fn freq(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let key = call.word(2);
    if call.peek(&key)?.is_none() {
        return call.reply_value(None);
    }
    Err(Fail::error(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
         between policies at runtime LRU and LFU data will take some time to adjust.",
    ))
}

/// `MEMORY USAGE key [SAMPLES n]`: the record, and the data that it refers to.
fn memory_usage(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    match call.words.len() {
        3 => {}
        5 if call.words.is(3, "SAMPLES") => drop(call.integer(4)?),
        _ => return Err(Fail::syntax()),
    }
    let key = call.word(2);
    let Some(item) = call.peek(&key)? else { return call.reply_value(None) };
    let value: u64 = item.extents().iter().map(|extent| u64::from(extent.len())).sum();
    call.reply_integer(i64::try_from(RECORD_SIZE + value).unwrap_or(i64::MAX))
}

fn memory_doctor(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let heap = call.ctx.engine.heap();
    let text = if heap.room_bytes() > 0 {
        "Landfall sees no problem with memory: the region has room. See INFO landfall for its use.\n"
    } else {
        "The region is full: writes are refused. Delete keys, or restart with a larger --capacity.\n"
    };
    call.out().verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn latency_doctor(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let text =
        "Latencies are not sampled by event here: see the commit latencies in INFO landfall and /metrics.\n";
    call.out().verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn empty_array(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.out().array(0);
    Ok(())
}

fn zero(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.reply_integer(0)
}

fn done(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.ok()
}

fn cluster(_: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    Err(Fail::error("ERR This instance has cluster support disabled"))
}

fn debug(_: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    Err(Fail::error(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
         local connection, otherwise you need to set this option in the configuration file, and then restart the \
         server.",
    ))
}
