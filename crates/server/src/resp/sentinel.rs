//! `SENTINEL`: what Redis Sentinel answers, so that client libraries find the server that takes writes. Every server of a
//! chain answers it, whatever its role: `docs/format/chain.md`, "Clients".

use super::command::{Call, Run, Spec};
use super::documentation::help;
use super::fail::Fail;
use super::flags::Flags;
use landfall_chain_io::{ClientAddress, Directory, Listed, Node};
use landfall_resp::Writer;
use std::sync::Arc;
use std::time::Duration;

const PLAIN: Flags = Flags::SERVER.and(Flags::NO_SCRIPT);
const ADMIN: Flags = PLAIN.and(Flags::ADMIN);

const fn sub(name: &'static str, arity: i32, run: Run, summary: &'static str) -> Spec {
    Spec::new(name, arity, PLAIN, run, "sentinel", summary)
}

/// A subcommand that would change what only `landfall chain` changes.
const fn refused_sub(name: &'static str) -> Spec {
    Spec::new(name, -2, ADMIN, refused, "sentinel", "Refused: `landfall chain` changes a chain.")
}

pub(super) const SPECS: &[Spec] =
    &[Spec::new("sentinel", -2, Flags::NONE, help, "sentinel", "A container for Redis Sentinel commands.")
        .with(&[
            sub(
                "sentinel|get-master-addr-by-name",
                3,
                get_master_addr_by_name,
                "Returns the address of the first server of a chain.",
            ),
            sub("sentinel|masters", 2, masters, "Returns the first server of this server's chain."),
            sub("sentinel|master", 3, master, "Returns the first server of a chain."),
            sub("sentinel|replicas", 3, replicas, "Returns the other servers of a chain."),
            sub("sentinel|slaves", 3, replicas, "Returns the other servers of a chain."),
            sub("sentinel|sentinels", 3, sentinels, "Returns the servers of a chain but this one."),
            sub(
                "sentinel|ckquorum",
                3,
                ckquorum,
                "Says whether a first server that is lost would be replaced.",
            ),
            sub("sentinel|myid", 2, myid, "Returns the name of this server in its chain."),
            refused_sub("sentinel|config"),
            refused_sub("sentinel|debug"),
            refused_sub("sentinel|failover"),
            refused_sub("sentinel|flushconfig"),
            refused_sub("sentinel|info-cache"),
            refused_sub("sentinel|is-master-down-by-addr"),
            refused_sub("sentinel|monitor"),
            refused_sub("sentinel|pending-scripts"),
            refused_sub("sentinel|remove"),
            refused_sub("sentinel|reset"),
            refused_sub("sentinel|set"),
            refused_sub("sentinel|simulate-failure"),
            sub("sentinel|help", 2, help, "Returns helpful text about the different subcommands."),
        ])];

/// The host where no address is known. No client can take it for one.
const NO_HOST: &str = "?";

/// The node of the chain that this server is.
fn node(call: &Call<'_, '_, '_>) -> Result<Arc<Node>, Fail> {
    let alone = Fail::error("ERR this server is in no chain: the servers of a chain answer SENTINEL");
    call.shared().chain.clone().ok_or(alone)
}

/// The chain, if it has the name that the client gives.
fn named(call: &Call<'_, '_, '_>) -> Result<(Arc<Node>, Directory), Fail> {
    let node = node(call)?;
    let directory = node.directory();
    if *call.word(2) == *directory.chain.as_bytes() {
        return Ok((node, directory));
    }
    Err(Fail::error("ERR No such master with that name"))
}

fn get_master_addr_by_name(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let known = match named(call) {
        Ok((_, directory)) => directory.first().cloned().ok(),
        Err(_) if call.shared().chain.is_some() => None,
        Err(fail) => return Err(fail),
    };
    let mut out = call.out();
    match known {
        None => out.null_array(),
        Some(ClientAddress { host, port }) => {
            out.array(2);
            out.bulk(host.as_bytes());
            out.bulk(port.to_string().as_bytes());
        }
    }
    Ok(())
}

fn masters(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let node = node(call)?;
    let fields = of_master(&node.directory(), lease_time(&node));
    let mut out = call.out();
    out.array(1);
    write(&mut out, &fields);
    Ok(())
}

fn master(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (node, directory) = named(call)?;
    write(&mut call.out(), &of_master(&directory, lease_time(&node)));
    Ok(())
}

fn replicas(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (_, directory) = named(call)?;
    let known: Vec<Fields> = directory
        .members
        .iter()
        .skip(1)
        .filter(|member| member.clients.is_some())
        .map(|member| of_replica(&directory, member))
        .collect();
    write_all(call, &known)
}

fn sentinels(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (node, directory) = named(call)?;
    let others = directory.members.iter().filter(|member| member.name != node.name());
    let known: Vec<Fields> = others.filter(|member| member.clients.is_some()).map(of_sentinel).collect();
    write_all(call, &known)
}

fn ckquorum(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (node, directory) = named(call)?;
    let text = quorum(&node, &directory).map_err(|why| Fail::Error(format!("NOQUORUM {why}").into()))?;
    call.out().simple(&text);
    Ok(())
}

/// That a first server that is lost is replaced, or why not.
fn quorum(node: &Node, directory: &Directory) -> Result<String, String> {
    directory.first().map_err(|why| why.to_string())?;
    let chain = &directory.chain;
    if node.views().lease().is_none() {
        return Err(format!("nobody replaces a first server but people, as the view of {chain} is a file"));
    }
    if node.views().manager().is_none_or(|manager| manager.is_empty()) {
        return Err(format!("{chain} has no manager: no server that reaches etcd has been elected"));
    }
    let sound = directory.members.iter().filter(|member| member.is_sound).count();
    if sound < 2 {
        return Err(format!("{sound} server of {chain} is registered and in step: nobody can replace it"));
    }
    Ok(format!("OK {sound} usable Sentinels. Quorum and failover authorization can be reached"))
}

fn myid(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let node = node(call)?;
    call.out().bulk(node.name().as_bytes());
    Ok(())
}

fn refused(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    node(call)?;
    let command = call.spec.name.replace('|', " ").to_ascii_uppercase();
    let text = format!(
        "ERR {command} is refused: a chain is changed by `landfall chain promote`, `fail`, `remove` and `add`"
    );
    Err(Fail::Error(text.into()))
}

/// How long a server is silent before it is taken out; zero if nobody does that.
fn lease_time(node: &Node) -> Duration {
    node.views().lease().map_or(Duration::ZERO, |lease| lease.limit() * 2)
}

/// Fields and values of one instance, as Sentinel names them. All values are texts.
type Fields = Vec<(&'static str, String)>;

/// The fields that all instances have. Those without a meaning here are zero.
fn fields(name: String, address: Option<&ClientAddress>, run_id: &str, flags: &str) -> Fields {
    let (host, port) = address.map_or((NO_HOST, 0), |address| (&address.host, address.port));
    let mut fields = vec![
        ("name", name),
        ("ip", host.to_owned()),
        ("port", port.to_string()),
        ("runid", run_id.to_owned()),
        ("flags", flags.to_owned()),
    ];
    let zero = ["link-pending-commands", "last-ping-sent", "last-ok-ping-reply", "last-ping-reply"];
    fields.extend(zero.map(|field| (field, "0".to_owned())));
    fields.push(("link-refcount", "1".to_owned()));
    fields
}

fn of_master(directory: &Directory, lease_time: Duration) -> Fields {
    let flags = if directory.first().is_ok() { "master" } else { "s_down,master,disconnected" };
    let first = directory.members.first();
    let address = first.and_then(|first| first.clients.as_ref());
    let run_id = first.map_or("", |first| &first.name);
    let others = directory.members.len().saturating_sub(1).to_string();
    let mut fields = fields(directory.chain.clone(), address, run_id, flags);
    fields.extend([
        ("down-after-milliseconds", lease_time.as_millis().to_string()),
        ("info-refresh", "0".to_owned()),
        ("role-reported", "master".to_owned()),
        ("role-reported-time", "0".to_owned()),
        ("config-epoch", directory.version.to_string()),
        ("num-slaves", others.clone()),
        ("num-other-sentinels", others),
        ("quorum", "1".to_owned()),
        ("failover-timeout", lease_time.as_millis().to_string()),
        ("parallel-syncs", "1".to_owned()),
    ]);
    fields
}

fn of_replica(directory: &Directory, member: &Listed) -> Fields {
    let master = directory.members.first().and_then(|first| first.clients.as_ref());
    let (host, port) = master.map_or((NO_HOST, 0), |master| (&master.host, master.port));
    let (flags, link) = if member.is_sound { ("slave", "ok") } else { ("s_down,slave,disconnected", "err") };
    let name = member.clients.as_ref().map_or_else(|| NO_HOST.to_owned(), ToString::to_string);
    let mut fields = fields(name, member.clients.as_ref(), &member.name, flags);
    fields.extend([
        ("info-refresh", "0".to_owned()),
        ("role-reported", "slave".to_owned()),
        ("role-reported-time", "0".to_owned()),
        ("master-link-down-time", "0".to_owned()),
        ("master-link-status", link.to_owned()),
        ("master-host", host.to_owned()),
        ("master-port", port.to_string()),
        ("slave-priority", "100".to_owned()),
        ("slave-repl-offset", "0".to_owned()),
        ("replica-announced", "1".to_owned()),
    ]);
    fields
}

fn of_sentinel(member: &Listed) -> Fields {
    let mut fields = fields(member.name.clone(), member.clients.as_ref(), &member.name, "sentinel");
    fields.extend([
        ("last-hello-message", "0".to_owned()),
        ("voted-leader", NO_HOST.to_owned()),
        ("voted-leader-epoch", "0".to_owned()),
    ]);
    fields
}

fn write(out: &mut Writer<'_>, fields: &Fields) {
    out.map(fields.len());
    for (field, value) in fields {
        out.bulk(field.as_bytes());
        out.bulk(value.as_bytes());
    }
}

fn write_all(call: &mut Call<'_, '_, '_>, all: &[Fields]) -> Result<(), Fail> {
    let mut out = call.out();
    out.array(all.len());
    all.iter().for_each(|fields| write(&mut out, fields));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Directory {
        let listed = |name: &str, port: u16, is_sound| Listed {
            name: name.into(),
            clients: (port > 0).then(|| ClientAddress { host: "10.0.0.1".into(), port }),
            is_sound,
        };
        let members = vec![listed("a", 1, true), listed("b", 2, false), listed("c", 3, true)];
        Directory { chain: "orders".into(), version: 7, members, doubt: None }
    }

    fn value(fields: &Fields, name: &str) -> String {
        fields.iter().find(|(field, _)| *field == name).expect(name).1.clone()
    }

    #[test]
    fn a_master_has_the_fields_that_clients_read() {
        let fields = of_master(&directory(), Duration::from_secs(10));
        let expected = [
            ("name", "orders"),
            ("ip", "10.0.0.1"),
            ("port", "1"),
            ("flags", "master"),
            ("config-epoch", "7"),
            ("num-slaves", "2"),
            ("num-other-sentinels", "2"),
            ("down-after-milliseconds", "10000"),
        ];
        for (name, expected) in expected {
            assert_eq!(value(&fields, name), expected, "{name}");
        }
    }

    #[test]
    fn clients_pass_over_a_server_that_does_not_know_the_first_one() {
        let doubted = Directory { doubt: Some("etcd is away".into()), ..directory() };
        assert!(value(&of_master(&doubted, Duration::ZERO), "flags").starts_with("s_down,"));
        let mut unknown = directory();
        unknown.members[0].clients = None;
        let fields = of_master(&unknown, Duration::ZERO);
        assert_eq!((value(&fields, "ip"), value(&fields, "port")), ("?".into(), "0".into()));
        assert!(value(&fields, "flags").starts_with("s_down,"));
    }

    #[test]
    fn clients_pass_over_replicas_that_are_silent_or_behind() {
        let directory = directory();
        let [behind, in_step] = [1, 2].map(|at| of_replica(&directory, &directory.members[at]));
        assert!(value(&behind, "flags").contains("s_down"));
        assert_eq!(value(&in_step, "flags"), "slave");
        assert_eq!(
            (value(&in_step, "name"), value(&in_step, "master-port")),
            ("10.0.0.1:3".into(), "1".into())
        );
    }
}
