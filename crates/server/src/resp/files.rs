//! Values and entries of logs as files, and files as values, by reference: `LF.PUBLISH`, `LF.PUBLISHENTRY`, `LF.ADOPT`.

use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use super::logs::offset;
use crate::files::FileValues;
use landfall_fs::{FilePart, FsError, Imported, TreeError};
use landfall_heap::{Damage, HeapError, Item, Ticket, Until, Writer};
use landfall_kv::{Txn, TxnKey};
use std::sync::Arc;

/// Not within `MULTI`: files are in no transaction of keys.
const FLAGS: Flags = Flags::WRITE.and(Flags::DENY_OOM).and(Flags::NO_MULTI);
const GROUP: &str = "files";

pub(super) const SPECS: &[Spec] = &[
    Spec::new(
        "lf.publish",
        -3,
        FLAGS,
        publish,
        GROUP,
        "Makes a file of the value of a key, which it shares; with NX only if there is none.",
    )
    .keys(1, 1, 1),
    Spec::new(
        "lf.publishentry",
        -4,
        FLAGS,
        publish_entry,
        GROUP,
        "Makes a file of an entry of a log, which it shares; with NX only if there is none.",
    ),
    Spec::new(
        "lf.adopt",
        -3,
        FLAGS,
        adopt,
        GROUP,
        "Makes a key's value of the bytes of a file, which it shares; with NX only if there is none.",
    )
    .keys(2, 2, 1),
];

/// A failure of the files, which is about `path`. No lock is held.
fn failure(mount: &dyn FileValues, path: &[u8], error: FsError) -> Fail {
    let error = match error {
        FsError::Wait(until) => mount.make_ready(until).err().unwrap_or(FsError::Wait(until)),
        error => error,
    };
    match error {
        // The files' own batch is durable now: it is the command's turn again.
        FsError::Wait(Until::Commit | Until::Ticket(_)) => Fail::Wait(Until::Commit),
        FsError::Wait(until) => Fail::Wait(until),
        // Only requests of the mount meet it, and publishing ends it.
        FsError::Backlog => Fail::Wait(Until::Space),
        FsError::Heap(error) => error.into(),
        // Files of which that is true are not mounted.
        error @ (FsError::Header(_) | FsError::FloorLost) => Fail::Error(format!("ERR {error}").into()),
        FsError::Tree(error) => Fail::Error(format!("ERR {}: {error}", String::from_utf8_lossy(path)).into()),
    }
}

/// The mount, if clients may use it. Files have owners and permissions, and clients are no users of the system: a client
/// that may send these commands can read and replace any of the files.
fn mount(call: &Call<'_, '_, '_>) -> Result<Arc<dyn FileValues>, Fail> {
    const NONE: Fail = Fail::error("ERR no files are mounted: start the server with --files MOUNTPOINT");
    const FORBIDDEN: Fail = Fail::error(
        "ERR clients may not use files: --files-commands lets them read and replace all, whatever the files' permissions say",
    );
    const APART: Fail = Fail::error(
        "ERR the files are served for mounts of other processes (--files-offload): only a server that mounts them itself \
         (--files MOUNTPOINT) makes files of values, and values of files",
    );
    let none = || if call.shared().config.files_offload.is_some() { APART } else { NONE };
    let mount = call.shared().files.mount().and_then(|mount| mount.values()).ok_or_else(none)?;
    if call.shared().config.files_commands { Ok(mount) } else { Err(FORBIDDEN) }
}

/// True with `NX`, behind the other `words`.
fn only_new(call: &Call<'_, '_, '_>, words: usize) -> Result<bool, Fail> {
    match call.words.len() - words {
        0 => Ok(false),
        1 if call.words.is(words, "nx") => Ok(true),
        _ => Err(Fail::syntax()),
    }
}

/// The reply to a command with `NX` that has done nothing.
fn nothing(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.out().null();
    Ok(())
}

/// `LF.PUBLISH key path [NX]`: the key keeps its value.
fn publish(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (mount, only_new) = (mount(call)?, only_new(call, 3)?);
    let (key, path) = (call.word(1), call.word(2));
    let made = call.update(&[&key], |txn, space| {
        let value = txn.read(space, &key)?.ok_or(Fail::error("ERR no such key"))?;
        Ok(mount.import(&path, &value, !only_new))
    })?;
    settle(call, &*mount, &path, made, only_new)
}

/// `LF.PUBLISHENTRY log offset path [NX]`: the log keeps the entry.
fn publish_entry(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (mount, only_new) = (mount(call)?, only_new(call, 4)?);
    let (log, offset, path) = (call.word(1), offset(call, 2)?, call.word(3));
    let made = call.ctx.logs.with_entry(&log, offset, |entry| mount.import(&path, entry, !only_new))?;
    let made = call.open(made);
    settle(call, &*mount, &path, made, only_new)
}

/// Makes a new file durable, and replies.
fn settle(
    call: &mut Call<'_, '_, '_>,
    mount: &dyn FileValues,
    path: &[u8],
    made: Result<Imported, FsError>,
    only_new: bool,
) -> Result<(), Fail> {
    let new = match made {
        Err(FsError::Tree(TreeError::Exists)) if only_new => return nothing(call),
        made => made.map_err(|error| failure(mount, path, error))?,
    };
    mount.settle(&new).map_err(|error| failure(mount, path, error))?;
    call.ok()
}

/// `LF.ADOPT path key [NX]`: the file keeps its bytes.
fn adopt(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (mount, only_new) = (mount(call)?, only_new(call, 3)?);
    let (path, key, bytes_max) = (call.word(1), call.word(2), call.value_len_max());
    let (space, now_ms, arrival_ns) = (call.database(), call.ctx.now_ms, call.ctx.arrival_ns);
    let opened = mount.open(&path);
    let (engine, writer) = (call.ctx.engine, &mut *call.ctx.writer);
    let txn = engine.transaction([TxnKey { space, key: &key }], now_ms);
    txn.check_writable(writer, space, &key)?;
    if only_new {
        let there = txn.peek(space, &key)?.open(call.reply);
        if there.is_some() {
            return nothing(call);
        }
    }
    let mut txn = Some(txn);
    let mut outcome = None;
    let mut take = |parts: &[FilePart<'_>], pending: Option<Ticket>| {
        let Some(mut txn) = txn.take() else { return };
        let staged = stage_file(&mut txn, (space, &key), (parts, pending), writer);
        outcome = Some(staged.and_then(|()| Ok(txn.commit(writer, arrival_ns)?)));
    };
    let passed = opened.and_then(|file| file.pass(bytes_max as u64, &mut take));
    // Nothing is locked any more.
    drop(txn);
    passed.map_err(|error| failure(&*mount, &path, error))?;
    let committed = outcome.expect("the bytes of a file that is there are passed on");
    committed?.open(call.reply);
    call.ok()
}

/// Stages the bytes of a file as the value of a key.
fn stage_file(
    txn: &mut Txn<'_>,
    (space, key): (u8, &[u8]),
    (parts, pending): (&[FilePart<'_>], Option<Ticket>),
    writer: &mut Writer,
) -> Result<(), Fail> {
    let mut stored = Vec::with_capacity(parts.len());
    for part in parts {
        let FilePart::Stored(part) = part else {
            return Err(Fail::error(
                "ERR the file has holes: a value has none (cp --sparse=never fills them)",
            ));
        };
        stored.push(part);
    }
    Item::fetch_all(stored.iter().map(|part| part.item()))?;
    for part in &stored {
        if !part.item().verify()? {
            let (slot, what) = (part.item().slot, Damage::ValueChecksum);
            return Err(HeapError::Damaged { slot, what }.into());
        }
    }
    Ok(txn.put_parts(writer, space, key, &stored, pending)?)
}
