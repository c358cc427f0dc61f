//! Descriptions of commands: `HELP` subcommands and the entries of `COMMAND`.

use super::command::{Call, KeySpec, Spec};
use super::fail::Fail;
use super::flags::Flags;
use landfall_resp::Writer;

/// The help of a command with subcommands.
pub(super) fn help(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let name = call.spec.name.split('|').next().unwrap_or_default();
    let mut all = call.session.table.all.iter();
    let subcommands = all.find(|spec| spec.name == name).map_or(&[][..], |spec| spec.subcommands);
    let upper = name.to_ascii_uppercase();
    let mut out = call.out();
    out.array(1 + 2 * subcommands.len());
    out.simple(&format!("{upper} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for sub in subcommands {
        out.simple(&sub.name[name.len() + 1..].to_ascii_uppercase());
        out.simple(&format!("    {}", sub.summary));
    }
    Ok(())
}

/// A command as in `COMMAND INFO`: ten fields, as in Redis 7.
pub(super) fn write_info(out: &mut Writer<'_>, spec: &Spec) {
    out.array(10);
    out.bulk(spec.name.as_bytes());
    out.integer(spec.arity.into());
    let flags: Vec<_> = Flags::SHOWN.iter().filter(|(flag, _)| spec.has(*flag)).collect();
    out.set(flags.len());
    flags.iter().for_each(|(_, name)| out.simple(name));
    out.integer(spec.keys.first.into());
    out.integer(spec.keys.last.into());
    out.integer(spec.keys.step.into());
    let categories = categories(spec);
    out.set(categories.len());
    categories.iter().for_each(|category| out.simple(category));
    out.array(0);
    write_key_specs(out, spec);
    out.array(spec.subcommands.len());
    spec.subcommands.iter().for_each(|sub| write_info(out, sub));
}

/// The access categories that Redis would derive.
fn categories(spec: &Spec) -> Vec<&'static str> {
    let group = match spec.group {
        "string" => Some("@string"),
        "generic" => Some("@keyspace"),
        "connection" => Some("@connection"),
        "transactions" => Some("@transaction"),
        _ => None,
    };
    let of_flags = [
        (Flags::WRITE, "@write"),
        (Flags::READ, "@read"),
        (Flags::ADMIN, "@admin"),
        (Flags::ADMIN, "@dangerous"),
    ];
    let speed = if spec.has(Flags::FAST) { "@fast" } else { "@slow" };
    let flagged = of_flags.into_iter().filter(|(flag, _)| spec.has(*flag)).map(|(_, name)| name);
    flagged.chain(group).chain([speed]).collect()
}

fn write_key_specs(out: &mut Writer<'_>, spec: &Spec) {
    let KeySpec { first, last, step } = spec.keys;
    if first == 0 {
        return out.array(0);
    }
    out.array(1);
    out.map(3);
    out.bulk(b"flags");
    let access = if spec.has(Flags::WRITE) { ["RW", "UPDATE"] } else { ["RO", "ACCESS"] };
    out.set(access.len());
    access.iter().for_each(|flag| out.simple(flag));
    out.bulk(b"begin_search");
    write_search(out, "index", &[("index", first)]);
    out.bulk(b"find_keys");
    let last = if last < 0 { last } else { last - first };
    write_search(out, "range", &[("lastkey", last), ("keystep", step), ("limit", 0)]);
}

fn write_search(out: &mut Writer<'_>, kind: &str, fields: &[(&str, i32)]) {
    out.map(2);
    out.bulk(b"type");
    out.bulk(kind.as_bytes());
    out.bulk(b"spec");
    out.map(fields.len());
    for (name, value) in fields {
        out.bulk(name.as_bytes());
        out.integer((*value).into());
    }
}

/// A command as in `COMMAND DOCS`, its name first.
pub(super) fn write_docs(out: &mut Writer<'_>, spec: &Spec) {
    out.bulk(spec.name.as_bytes());
    out.map(if spec.subcommands.is_empty() { 3 } else { 4 });
    for (field, value) in [("summary", spec.summary), ("since", "1.0.0"), ("group", spec.group)] {
        out.bulk(field.as_bytes());
        out.bulk(value.as_bytes());
    }
    if !spec.subcommands.is_empty() {
        out.bulk(b"subcommands");
        out.map(spec.subcommands.len());
        spec.subcommands.iter().for_each(|sub| write_docs(out, sub));
    }
}
