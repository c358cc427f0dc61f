//! Kill -9 in the middle of transactions of many keys: all of one is there, or none of it.

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

fn key(number: usize) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

/// A command that writes version `version` of a range of keys.
fn mset(keys: std::ops::Range<usize>, version: usize) -> Vec<Vec<u8>> {
    let value = format!("version {version}").into_bytes();
    std::iter::once(b"MSET".to_vec()).chain(keys.flat_map(|number| [key(number), value.clone()])).collect()
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
