//! Transactions of many keys: after kill -9 in the middle all of one is there, or none of it; in a full region deletes
//! make room.

mod common;

use common::{Place, Reply, Server, ok};
use std::time::Duration;

/// Far more than a group of records holds.
const KEYS: usize = 60_000;
/// Keys that are asked for at once.
const ASKED: usize = 10_000;
const FLAGS: [&str; 4] = ["--capacity", "512MiB", "--workers", "2"];
/// When the server is killed, after the first byte of the transaction was sent.
const KILLED_AFTER_MS: [u64; 8] = [5, 20, 35, 50, 70, 100, 150, 400];
/// No transaction takes longer, however busy the machine is.
const LATEST_MS: u64 = 60_000;

fn key(number: usize) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

/// A command that writes version `version` of a range of keys.
fn mset(keys: std::ops::Range<usize>, version: usize) -> Vec<Vec<u8>> {
    let value = format!("version {version}").into_bytes();
    std::iter::once(b"MSET".to_vec()).chain(keys.flat_map(|number| [key(number), value.clone()])).collect()
}

fn int(number: usize) -> Reply {
    Reply::Int(i64::try_from(number).expect("a count"))
}

fn call(resp: &mut common::Resp, words: &[Vec<u8>]) -> Option<Reply> {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    resp.call(&words).ok()
}

/// One transaction of all keys, in one command or in several.
fn write_all(resp: &mut common::Resp, version: usize) -> Option<Reply> {
    if version.is_multiple_of(2) {
        return call(resp, &mset(0..KEYS, version));
    }
    call(resp, &[b"MULTI".to_vec()])?;
    for part in 0..3 {
        call(resp, &mset(part * KEYS / 3..(part + 1) * KEYS / 3, version))?;
    }
    call(resp, &[b"EXEC".to_vec()])
}

/// The version that all keys have.
fn version_of_all(server: &Server) -> usize {
    let mut resp = server.resp();
    let mut versions = Vec::new();
    for first in (0..KEYS).step_by(ASKED) {
        let words: Vec<Vec<u8>> =
            std::iter::once(b"MGET".to_vec()).chain((first..first + ASKED).map(key)).collect();
        let Some(Reply::Array(values)) = call(&mut resp, &words) else { panic!("no values") };
        for value in values {
            let Reply::Bulk(value) = value else { panic!("a key is missing: {value:?}") };
            versions.push(String::from_utf8(value).unwrap());
        }
    }
    assert!(versions.iter().all(|version| *version == versions[0]), "a part of a transaction is there");
    versions[0].strip_prefix("version ").unwrap().parse().unwrap()
}

#[test]
fn a_kill_in_the_middle_of_a_transaction_of_many_keys_leaves_all_or_nothing_of_it() {
    let place = Place::new();
    let mut server = place.start(&FLAGS);
    assert_eq!(write_all(&mut server.resp(), 0), Some(ok()));
    let (mut acknowledged, mut unfinished) = (0, 0);
    for (round, after_ms) in KILLED_AFTER_MS.into_iter().enumerate() {
        let version = round + 1;
        let mut resp = server.resp();
        let writer = std::thread::spawn(move || write_all(&mut resp, version).is_some());
        std::thread::sleep(Duration::from_millis(after_ms));
        server.kill();
        let is_acknowledged = writer.join().unwrap();
        unfinished += usize::from(!is_acknowledged);
        server = place.start(&FLAGS);
        let found = version_of_all(&server);
        assert!(found == version || !is_acknowledged && found == acknowledged, "{found} after {version}");
        acknowledged = found;
    }
    assert!(unfinished > 0, "no transaction was killed: choose other moments");
    // What the killed ones have left hides nothing and takes no space for ever.
    for version in 100..110 {
        write_all(&mut server.resp(), version).unwrap();
        assert_eq!(version_of_all(&server), version);
    }
    assert!(server.stop().success());
    assert!(place.check(&[]).status.success());
}

/// How many of the keys are there.
fn count(server: &Server) -> usize {
    let mut resp = server.resp();
    let mut count = 0;
    for first in (0..KEYS).step_by(ASKED) {
        let words =
            std::iter::once(b"EXISTS".to_vec()).chain((first..first + ASKED).map(key)).collect::<Vec<_>>();
        let Some(Reply::Int(there)) = call(&mut resp, &words) else { panic!("no count") };
        count += usize::try_from(there).expect("a count");
    }
    count
}

#[test]
fn a_kill_in_the_middle_of_a_delete_of_many_keys_leaves_all_or_none_of_them() {
    let place = Place::new();
    let mut server = place.start(&FLAGS);
    let (mut acknowledged, mut unfinished) = (0, 0);
    // Twice as late each time in the end, until one delete has been acknowledged.
    let later = std::iter::successors(Some(800), |ms| Some(2 * ms)).take_while(|ms| *ms <= LATEST_MS);
    for (round, after_ms) in KILLED_AFTER_MS.into_iter().chain(later).enumerate() {
        if round >= KILLED_AFTER_MS.len() && acknowledged > 0 {
            break;
        }
        assert_eq!(call(&mut server.resp(), &mset(0..KEYS, round)), Some(ok()));
        let mut resp = server.resp();
        let name = if round.is_multiple_of(2) { b"DEL".to_vec() } else { b"UNLINK".to_vec() };
        let delete = std::iter::once(name).chain((0..KEYS).map(key)).collect::<Vec<_>>();
        let deleter = std::thread::spawn(move || call(&mut resp, &delete));
        std::thread::sleep(Duration::from_millis(after_ms));
        server.kill();
        let reply = deleter.join().unwrap();
        assert!(matches!(reply, None | Some(Reply::Int(60_000))), "{reply:?}");
        acknowledged += usize::from(reply.is_some());
        unfinished += usize::from(reply.is_none());
        server = place.start(&FLAGS);
        let left = count(&server);
        assert!(left == 0 || reply.is_none() && left == KEYS, "{left} of {KEYS} keys are left");
    }
    assert!(unfinished > 0, "no delete was killed: choose other moments");
    assert!(acknowledged > 0, "no delete came to its end");
    assert!(server.stop().success());
    assert!(place.check(&[]).status.success());
}

/// The keys of one slab after the other, or some of every slab: then the compactor must make the room.
#[test]
fn a_delete_of_many_keys_makes_room_in_a_full_region() {
    for step in [1, 6] {
        let place = Place::new();
        let server = place.start(&["--capacity", "64MiB", "--workers", "2"]);
        let mut resp = server.resp();
        let mut written = 0;
        while call(&mut resp, &mset(written..written + 1000, 0)) == Some(ok()) {
            written += 1000;
        }
        assert!(written >= KEYS * step, "{written} keys fill the region");
        let keys = || (0..KEYS).map(|number| key(number * step));
        let delete = std::iter::once(b"DEL".to_vec()).chain(keys()).collect::<Vec<_>>();
        // What EXEC deletes is one transaction or an error: it does not wait for room that nobody makes.
        assert_eq!(resp.call(&[b"MULTI"]).unwrap(), ok());
        call(&mut resp, &delete);
        let outcome = resp.call(&[b"EXEC"]).unwrap();
        let is_refused = matches!(&outcome, Reply::Error(text) if text.starts_with("OOM"));
        assert!(is_refused || outcome == Reply::Array(vec![int(KEYS)]), "{outcome:?}");
        assert_eq!(call(&mut resp, &delete), Some(int(if is_refused { KEYS } else { 0 })));
        let exists = std::iter::once(b"EXISTS".to_vec()).chain(keys()).collect::<Vec<_>>();
        assert_eq!(call(&mut resp, &exists), Some(Reply::Int(0)));
        assert_eq!(resp.call(&[b"DBSIZE"]).unwrap(), int(written - KEYS));
        assert_eq!(call(&mut resp, &mset(0..1000, 1)), Some(ok()));
        assert!(server.stop().success());
    }
}
