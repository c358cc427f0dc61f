//! `COMMAND`: the table of commands as clients see it.

use super::command::{Call, Run, Spec, Table};
use super::documentation::{help, write_docs, write_info};
use super::fail::Fail;
use super::flags::Flags;
use landfall_resp::glob_match;

const PLAIN: Flags = Flags::SERVER;

const fn sub(name: &'static str, arity: i32, run: Run, summary: &'static str) -> Spec {
    Spec::new(name, arity, PLAIN, run, "server", summary)
}

const SUBCOMMANDS: &[Spec] = &[
    sub("command|count", 2, command_count, "Returns a count of commands."),
    sub("command|info", -2, command_info, "Returns information about one, multiple or all commands."),
    sub("command|docs", -2, command_docs, "Returns documentary information about commands."),
    sub("command|list", -2, command_list, "Returns a list of command names."),
    sub("command|getkeys", -4, command_getkeys, "Extracts the key names from an arbitrary command."),
    sub("command|help", 2, help, "Returns helpful text about the different subcommands."),
];

/// The family of `COMMAND`.
pub(super) const SPECS: &[Spec] =
    &[Spec::new("command", -1, PLAIN, command, "server", "Returns information about all commands.")
        .with(SUBCOMMANDS)];

fn command(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let all = call.session.table.all;
    let mut out = call.out();
    out.array(all.len());
    all.iter().for_each(|spec| write_info(&mut out, spec));
    Ok(())
}

fn command_count(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.reply_integer(i64::try_from(call.session.table.all.len()).unwrap_or(i64::MAX))
}

/// A command or, written with a vertical bar, a subcommand.
fn find_any(table: &Table, name: &[u8]) -> Option<&'static Spec> {
    let Some(bar) = name.iter().position(|byte| *byte == b'|') else { return (table.find)(name) };
    (table.find)(&name[..bar])?.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name))
}

fn command_info(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if call.words.len() == 2 {
        return command(call);
    }
    let (words, table) = (call.words, call.session.table);
    let mut out = call.out();
    out.array(words.len() - 2);
    for name in words.rest(2) {
        match find_any(table, &name) {
            Some(spec) => write_info(&mut out, spec),
            None => out.null(),
        }
    }
    Ok(())
}

fn command_docs(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let table = call.session.table;
    let specs: Vec<&Spec> = match call.words.len() {
        2 => table.all.iter().collect(),
        _ => call.words.rest(2).filter_map(|name| find_any(table, &name)).collect(),
    };
    let mut out = call.out();
    out.map(specs.len());
    specs.iter().for_each(|spec| write_docs(&mut out, spec));
    Ok(())
}

/// `COMMAND LIST [FILTERBY PATTERN glob | ACLCAT category | MODULE name]`
fn command_list(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (words, all) = (call.words, call.session.table.all);
    let names: Vec<&str> = match words.len() {
        2 => all.iter().map(|spec| spec.name).collect(),
        5 if words.is(2, "FILTERBY") && words.is(3, "PATTERN") => {
            let pattern = words.bytes(4).to_ascii_lowercase();
            all.iter().map(|spec| spec.name).filter(|name| glob_match(&pattern, name.as_bytes())).collect()
        }
        5 if words.is(2, "FILTERBY") && (words.is(3, "MODULE") || words.is(3, "ACLCAT")) => Vec::new(),
        _ => return Err(Fail::syntax()),
    };
    let mut out = call.out();
    out.array(names.len());
    names.iter().for_each(|name| out.bulk(name.as_bytes()));
    Ok(())
}

fn command_getkeys(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let words = call.words;
    let spec =
        (call.session.table.find)(&words.bytes(2)).ok_or(Fail::error("ERR Invalid command specified"))?;
    let count = words.len() - 2;
    if spec.keys.first == 0 {
        return Err(Fail::error("ERR The command has no key arguments"));
    }
    if !spec.takes(count) {
        return Err(Fail::error("ERR Invalid number of arguments specified for command"));
    }
    let positions: Vec<usize> = spec.key_positions(count).collect();
    let mut out = call.out();
    out.array(positions.len());
    positions.iter().for_each(|at| out.bulk(&words.bytes(2 + at)));
    Ok(())
}
