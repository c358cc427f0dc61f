//! Copies by reference on a server that is killed between them.
//!
//! Two clients send pipelines of random SET, COPY, DEL and GET and check every reply. The server is killed, and
//! `landfall check` checks its file. A server that starts on the file must hold, for every key, what the client's
//! [`Model`] allows: what was answered, or what was under way. Servers on io_uring and on epoll alternate on one file.

mod model;

use self::model::{Model, Operation, Value};
use super::client::{Resp, encode};
use super::server::{Server, data_of};
use crate::campaign::folder::Folder;
use crate::error::Error;
use crate::process::{self, Keep};
use crate::seed::Random;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The default number of kills.
pub(super) const CYCLES: u64 = 12;
/// Number of keys of all clients, and number of clients.
const KEYS: usize = 4000;
const CLIENTS: usize = 2;
/// Number of commands in a pipeline.
const PIPELINE: usize = 16;
/// Milliseconds from the start of a server to its kill.
const LOAD_MS: std::ops::Range<u64> = 300..2000;
/// Time limit for the check of the file.
const CHECK_LIMIT: Duration = Duration::from_secs(120);
/// No cycle starts after this time.
const CAMPAIGN_LIMIT: Duration = Duration::from_secs(600);

/// Runs `cycles` cycles on a region in `folder`.
///
/// # Errors
/// [`Error::Found`] where a reply or a key is wrong, [`Error::Program`] where `landfall check` finds damage.
pub(super) fn campaign(binary: &Path, folder: &Folder, cycles: u64, seed: u64) -> Result<(), Error> {
    println!("  {cycles} kills; again with: cargo xtask attack copies --cycles {cycles} --seed {seed}");
    let begun = Instant::now();
    let mut random = Random::new(seed);
    let mut models = vec![Model::new(KEYS / CLIENTS); CLIENTS];
    let mut server = start(binary, folder, 0)?;
    for cycle in 0..cycles {
        if begun.elapsed() > CAMPAIGN_LIMIT {
            println!("  stopped after {cycle} kills in {} s", begun.elapsed().as_secs());
            break;
        }
        let transport = server.transport.clone();
        let answered = load_and_kill(server, &mut models, &mut random)?;
        check(binary, folder)?;
        server = start(binary, folder, cycle + 1)?;
        let held = compare(server.resp, &mut models)?;
        println!(
            "  {transport:<10} {answered:>8} answered, killed, checked; {held:>5} of {KEYS} keys present, all correct"
        );
    }
    server.stop(Instant::now() + Duration::from_secs(20)).map_err(Error::Found)
}

fn start(binary: &Path, folder: &Folder, cycle: u64) -> Result<Server, Error> {
    let transport = if cycle.is_multiple_of(2) { "auto" } else { "epoll" };
    let flags = ["--capacity", "256MiB", "--workers", "2", "--media", "file", "--transport", transport];
    Server::start(binary, folder, &flags)
}

/// Kills the server under load. Returns how many commands were answered.
fn load_and_kill(server: Server, models: &mut [Model], random: &mut Random) -> Result<u64, Error> {
    let (address, killed) = (server.resp, AtomicBool::new(false));
    let load = LOAD_MS.start + random.number() % (LOAD_MS.end - LOAD_MS.start);
    let outcomes: Vec<Result<u64, String>> = std::thread::scope(|threads| {
        let killed = &killed;
        let clients: Vec<_> = models
            .iter_mut()
            .enumerate()
            .map(|(client, model)| {
                let mut random = Random::new(random.number());
                threads.spawn(move || operate(address, client, model, &mut random, killed))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(load));
        killed.store(true, Ordering::Release);
        server.kill();
        let ended = |client: std::thread::ScopedJoinHandle<'_, _>| {
            client.join().unwrap_or_else(|_| Err("a client panicked".to_owned()))
        };
        clients.into_iter().map(ended).collect()
    });
    outcomes.into_iter().sum::<Result<u64, String>>().map_err(Error::Found)
}

/// Sends pipelines until the server is gone. Returns how many commands were answered.
fn operate(
    address: SocketAddr,
    client: usize,
    model: &mut Model,
    random: &mut Random,
    killed: &AtomicBool,
) -> Result<u64, String> {
    let mut resp = Resp::connect(address).map_err(|error| format!("a client cannot connect: {error}"))?;
    let mut answered = 0;
    loop {
        let operations: Vec<Operation> = (0..PIPELINE).map(|_| model.draw(random)).collect();
        let (count, outcome) = pipeline(&mut resp, client, model, &operations);
        answered += count as u64;
        match outcome {
            Ok(()) => {}
            Err(Trouble::Wrong(what)) => return Err(what),
            Err(Trouble::Gone(_)) if killed.load(Ordering::Acquire) => {
                model.cut(&operations[count..]);
                return Ok(answered);
            }
            Err(Trouble::Gone(error)) => return Err(format!("the server does not answer: {error}")),
        }
    }
}

/// Why a pipeline was aborted.
enum Trouble {
    /// The connection failed.
    Gone(io::Error),
    /// The reply was wrong.
    Wrong(String),
}

/// Sends operations in one pipeline. Returns how many were answered.
fn pipeline(
    resp: &mut Resp,
    client: usize,
    model: &mut Model,
    operations: &[Operation],
) -> (usize, Result<(), Trouble>) {
    let bytes: Vec<u8> = operations.iter().flat_map(|operation| command(client, *operation)).collect();
    if let Err(error) = resp.send(&bytes) {
        return (0, Err(Trouble::Gone(error)));
    }
    for (index, operation) in operations.iter().enumerate() {
        match resp.read() {
            Ok(reply) if reply == model.reply(*operation) => model.executed(*operation),
            Ok(reply) => {
                let start = reply[..reply.len().min(40)].escape_ascii();
                let what =
                    format!("{operation:?} of client {client} was answered {start}, {} bytes", reply.len());
                return (index, Err(Trouble::Wrong(what)));
            }
            // A full region may refuse only operations that allocate space.
            Err(error) if is_refusal(&error, *operation) => {}
            Err(error) if error.kind() == io::ErrorKind::Other => {
                return (index, Err(Trouble::Wrong(format!("{operation:?} of client {client}: {error}"))));
            }
            Err(error) => return (index, Err(Trouble::Gone(error))),
        }
    }
    (operations.len(), Ok(()))
}

fn is_refusal(error: &io::Error, operation: Operation) -> bool {
    let needs_room = matches!(operation, Operation::Set(..) | Operation::Copy { .. });
    needs_room && error.kind() == io::ErrorKind::Other && error.to_string().starts_with("OOM")
}

fn command(client: usize, operation: Operation) -> Vec<u8> {
    let name = |key: usize| name(client, key);
    match operation {
        Operation::Set(key, value) => encode(&[b"SET", &name(key), &value.bytes()]),
        Operation::Copy { from, to } => encode(&[b"COPY", &name(from), &name(to), b"REPLACE"]),
        Operation::Delete(key) => encode(&[b"DEL", &name(key)]),
        Operation::Get(key) => encode(&[b"GET", &name(key)]),
    }
}

fn name(client: usize, key: usize) -> Vec<u8> {
    format!("copies:{client}:{key}").into_bytes()
}

fn check(binary: &Path, folder: &Folder) -> Result<(), Error> {
    let mut check = Command::new(binary);
    check.arg("check").arg(data_of(folder));
    let finished = process::run(&mut check, Keep::Both, CHECK_LIMIT)?;
    if finished.success {
        return Ok(());
    }
    print!("{}{}", finished.stdout, finished.stderr);
    Err(Error::Program { line: process::line(&check), ending: finished.ending })
}

/// Reads every key. Returns how many exist.
fn compare(address: SocketAddr, models: &mut [Model]) -> Result<usize, Error> {
    let mut held = 0;
    for (client, model) in models.iter_mut().enumerate() {
        let keys = read_all(address, client, &model.possible()).map_err(Error::Found)?;
        held += keys.iter().flatten().count();
        model.seen(keys);
    }
    Ok(held)
}

fn read_all(
    address: SocketAddr,
    client: usize,
    possible: &[BTreeSet<Option<Value>>],
) -> Result<Vec<Option<Value>>, String> {
    let failed = |error: io::Error| format!("after the restart: {error}");
    let mut resp = Resp::connect(address).map_err(failed)?;
    let mut keys = Vec::with_capacity(possible.len());
    for (key, possible) in possible.iter().enumerate() {
        let reply = resp.call(&encode(&[b"GET", &name(client, key)])).map_err(failed)?;
        // No value is empty: an empty reply means that the key does not exist.
        let found = possible.iter().find(|value| value.map(Value::bytes).unwrap_or_default() == reply);
        let wrong = || {
            let start = reply[..reply.len().min(40)].escape_ascii().to_string();
            format!(
                "key {key} of client {client} holds {} bytes, {start}, and may hold {possible:?}",
                reply.len()
            )
        };
        keys.push(*found.ok_or_else(wrong)?);
    }
    Ok(keys)
}
