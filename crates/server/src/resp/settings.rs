//! `CONFIG`: the settings, under the names of Redis.

use super::command::{Call, Run, Spec};
use super::documentation::help;
use super::fail::Fail;
use super::flags::Flags;
use crate::config::{Config, Size};
use crate::counters::Counters;
use crate::shared::Shared;
use landfall_resp::glob_match;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

const ADMIN: Flags = Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::SERVER);

const fn sub(name: &'static str, arity: i32, run: Run, summary: &'static str) -> Spec {
    Spec::new(name, arity, ADMIN, run, "server", summary)
}

pub(super) const SPECS: &[Spec] =
    &[Spec::new("config", -2, Flags::NONE, help, "server", "A container for server configuration commands.")
        .with(&[
            sub("config|get", -3, get, "Returns the effective values of configuration parameters."),
            sub("config|set", -4, set, "Refused: settings are flags of the server."),
            sub("config|resetstat", 2, resetstat, "Resets the server's statistics."),
            sub("config|rewrite", 2, rewrite, "Refused: there is no file to rewrite."),
            Spec::new(
                "config|help",
                2,
                Flags::SERVER,
                help,
                "server",
                "Returns helpful text about the subcommands.",
            ),
        ])];

/// A setting: its name in Redis, the flag that sets it here, and its value.
struct Setting {
    name: &'static str,
    flag: Option<&'static str>,
    value: fn(&Shared) -> String,
}

const fn fixed(name: &'static str, value: fn(&Shared) -> String) -> Setting {
    Setting { name, flag: None, value }
}

const fn flag(name: &'static str, flag: &'static str, value: fn(&Shared) -> String) -> Setting {
    Setting { name, flag: Some(flag), value }
}

static SETTINGS: [Setting; 24] = [
    fixed("save", |_| String::new()),
    fixed("appendonly", |_| "yes".into()),
    fixed("appendfsync", |_| "always".into()),
    fixed("no-appendfsync-on-rewrite", |_| "no".into()),
    fixed("databases", |_| landfall_kv::DATABASES.to_string()),
    fixed("maxmemory-policy", |_| "noeviction".into()),
    fixed("cluster-enabled", |_| "no".into()),
    fixed("notify-keyspace-events", |_| String::new()),
    fixed("replicaof", |_| String::new()),
    fixed("slowlog-log-slower-than", |_| "-1".into()),
    fixed("slowlog-max-len", |_| "0".into()),
    fixed("latency-monitor-threshold", |_| "0".into()),
    fixed("active-defrag", |_| "yes".into()),
    flag("maxmemory", "--capacity", |shared| shared.engine.heap().geometry().bytes().to_string()),
    flag("proto-max-bulk-len", "--max-request", |shared| bytes(shared.config.max_request)),
    flag("timeout", "--idle-timeout", |shared| shared.config.idle_timeout.as_secs().to_string()),
    flag("bind", "--resp", |shared| {
        address(shared).map_or(String::new(), |address| address.ip().to_string())
    }),
    flag("port", "--resp", |shared| address(shared).map_or(0, |address| address.port()).to_string()),
    flag("maxclients", "--max-clients", |shared| shared.config.max_clients.to_string()),
    flag("dir", "--dir", |shared| shared.config.dir.display().to_string()),
    flag("io-threads", "--workers", |shared| shared.config.workers.to_string()),
    flag("loglevel", "--log-level", |shared| shared.config.log_level.clone()),
    flag("client-output-buffer-limit", "--max-output", |shared| output_limit(&shared.config)),
    flag("protected-mode", "--insecure-no-password", |shared| yes_or_no(!shared.config.insecure_no_password)),
];

fn bytes(size: Size) -> String {
    size.0.to_string()
}

fn address(shared: &Shared) -> Option<SocketAddr> {
    shared.bound_resp.or(shared.config.resp)
}

/// A single reply that takes more memory than this is refused.
fn output_limit(config: &Config) -> String {
    format!("normal {} 0 0", config.reply_memory_max())
}

fn yes_or_no(value: bool) -> String {
    if value { "yes".into() } else { "no".into() }
}

fn get(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let words: Vec<Cow<'_, [u8]>> = call.words.rest(2).collect();
    let found: Vec<(&[u8], &Setting)> =
        SETTINGS.iter().filter_map(|setting| Some((requested_name(&words, setting)?, setting))).collect();
    let shared = call.shared();
    let mut out = call.out();
    out.map(found.len());
    for (name, setting) in found {
        out.bulk(name);
        out.bulk((setting.value)(shared).as_bytes());
    }
    Ok(())
}

/// The name to show a setting under, if it was requested: a request without wildcards keeps its spelling.
fn requested_name<'a>(words: &'a [Cow<'_, [u8]>], setting: &Setting) -> Option<&'a [u8]> {
    let name = setting.name.as_bytes();
    let word = words.iter().find(|word| glob_match(&word.to_ascii_lowercase(), name))?;
    Some(if word.eq_ignore_ascii_case(name) { word } else { name })
}

fn set(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let name = call.text(2);
    let advice = match SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(&name)) {
        None => {
            let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
            return Err(Fail::Error(text.into()));
        }
        Some(Setting { flag: Some(flag), .. }) => format!("restart the server with {flag}"),
        Some(_) => "it is always as CONFIG GET says".into(),
    };
    let text = format!(
        "ERR CONFIG SET failed (possibly related to argument '{name}') - can't set while running: {advice}"
    );
    Err(Fail::Error(text.into()))
}

fn resetstat(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let Counters { connections, rejected_connections, commands, http_requests, hits, misses, errors, .. } =
        &call.shared().counters;
    let Counters { input_bytes, output_bytes, timeouts, overflows, .. } = &call.shared().counters;
    let counted = [connections, rejected_connections, commands, http_requests, hits, misses, errors];
    for counter in counted.into_iter().chain([input_bytes, output_bytes, timeouts, overflows]) {
        counter.store(0, Ordering::Relaxed);
    }
    call.ok()
}

fn rewrite(_: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    Err(Fail::error("ERR The server is running without a config file"))
}
