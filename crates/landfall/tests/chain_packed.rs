//! Compression between the servers of a chain: what is sent packed, every server has as it was.

mod common;

use common::chain::{Chain, REPLY_LIMIT, codes_answered};
use common::faults::{Addresses, Numbers};
use common::{Reply, Server, ok, pattern, wait_until};
use landfall_chain::{Code, Hello, Record, RecordKind, packed_message};
use std::collections::BTreeMap;
use std::time::Duration;

const CLIENTS: usize = 3;
const FLAGS: [&str; 6] = ["--workers", "2", "--capacity", "256MiB", "--compression", "lz4"];

/// `len` bytes of which 60 % are zeros.
fn compressible(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = pattern(seed, len);
    bytes.chunks_mut(100).for_each(|part| part.iter_mut().skip(40).for_each(|byte| *byte = 0));
    bytes
}

/// All keys of a node, and the entries of its log `log`.
fn contents(server: &Server) -> (BTreeMap<Vec<u8>, Vec<u8>>, Reply) {
    let (mut resp, mut all) = (server.resp(), BTreeMap::new());
    let Reply::Array(keys) = resp.call(&[b"KEYS", b"*"]).unwrap() else { panic!("keys") };
    for key in keys {
        let Reply::Bulk(key) = key else { panic!("a key") };
        let Reply::Bulk(value) = resp.call(&[b"GET", &key]).unwrap() else { panic!("a value of {key:?}") };
        all.insert(key, value);
    }
    (all, resp.call(&[b"LF.READ", b"log", b"0", b"COUNT", b"1000"]).unwrap())
}

fn same_everywhere(chain: &Chain) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let first = contents(chain.server(0));
    for index in 1..chain.nodes.len() {
        assert!(contents(chain.server(index)) == first, "{} differs", chain.nodes[index].name);
    }
    first.0
}

fn counter(chain: &Chain, index: usize, name: &str) -> u64 {
    let value = chain.server(index).metric(&format!("landfall_chain_{name}_bytes_total"));
    value.to_string().parse().expect("a whole number")
}

#[test]
fn packed_values_come_as_they_were_whatever_they_are_part_of() {
    let mut chain = Chain::new(3, &FLAGS);
    chain.start_all();
    let mut resp = chain.resp(0);
    let sizes = [0, 1, 4095, 4096, 5000, 70_000, 1 << 20, (5 << 20) + 7];
    let value = |at: usize| compressible(at as u64, sizes[at]);
    for (at, size) in sizes.into_iter().enumerate() {
        assert_eq!(resp.call(&[b"SET", format!("key:{at}").as_bytes(), &value(at)]).unwrap(), ok());
        resp.call(&[b"LF.APPEND", b"log", &compressible(at as u64, size.min(100_000))]).unwrap();
    }
    let parts: Vec<Vec<u8>> = (0..300).map(|at| compressible(at, 900)).collect();
    let names: Vec<String> = (0..300).map(|at| format!("part:{at}")).collect();
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    names.iter().zip(&parts).for_each(|(name, part)| words.extend([name.as_bytes(), part]));
    assert_eq!(resp.call(&words).unwrap(), ok());
    assert_eq!(resp.call(&[b"WAIT", b"2", b"0"]).unwrap(), Reply::Int(2));
    let all = same_everywhere(&chain);
    assert_eq!(all.len(), sizes.len() + 300);
    (0..sizes.len()).for_each(|at| assert!(all[format!("key:{at}").as_bytes()] == value(at), "{at}"));

    // What a node had not when it was killed comes again; what was lost with a disk is copied.
    chain.kill(1);
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| resp.call(&[b"SET", b"during", &compressible(9, 200_000)]));
        std::thread::sleep(Duration::from_millis(200));
        chain.start(1);
        assert_eq!(waits.join().unwrap().unwrap(), ok());
    });
    chain.kill(2);
    chain.remove(2);
    chain.nodes[2].lose_disk();
    chain.wait_until_in_step();
    chain.add(2);
    let before = counter(&chain, 1, "saved");
    chain.start(2);
    chain.wait_until_in_step();
    assert!(counter(&chain, 1, "saved") > before + (2 << 20), "the copy was packed");
    assert_eq!(same_everywhere(&chain).len(), sizes.len() + 301);
    for index in (0..3).rev() {
        assert!(chain.take(index).stop().success());
        let checked = chain.nodes[index].place.check(&[]);
        assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn what_is_saved_is_counted_and_noise_saves_nothing() {
    let mut chain = Chain::new(3, &FLAGS);
    chain.start_all();
    let mut resp = chain.resp(0);
    for seed in 0..20 {
        assert_eq!(resp.call(&[b"SET", b"noise", &pattern(seed, 100_000)]).unwrap(), ok());
    }
    assert_eq!([0, 1].map(|index| counter(&chain, index, "saved")), [0, 0]);
    assert!(counter(&chain, 0, "wire") > counter(&chain, 0, "value"));
    let before = counter(&chain, 0, "wire");
    // After so many misses samples are rare.
    for seed in 0..200 {
        assert_eq!(resp.call(&[b"SET", b"zeros", &compressible(seed, 100_000)]).unwrap(), ok());
    }
    for index in [0, 1] {
        let [packed, saved] = ["packed", "saved"].map(|name| counter(&chain, index, name));
        assert_eq!(packed % 100_000, 0);
        assert!(packed >= 100 * 100_000 && saved * 10 > packed * 5, "{index}: {saved} of {packed}");
        assert_eq!(counter(&chain, index + 1, "unpacked"), packed);
    }
    let wire = counter(&chain, 0, "wire") - before;
    assert!(wire < 200 * 100_000 * 8 / 10, "{wire}");
    let sent = chain.info(0, "chain_sent").unwrap();
    assert!(sent.contains(&format!("saved={}", counter(&chain, 0, "saved"))), "{sent}");
    same_everywhere(&chain);
}

#[test]
fn packed_values_land_at_every_node_without_a_copy() {
    let mut chain = Chain::new(3, &[&FLAGS[..], &["--scrub-rate", "0"]].concat());
    chain.start_all();
    let copied = |server: &Server| {
        let of = |path: &str| server.metric(&format!("landfall_copied_bytes_total{{path=\"{path}\"}}"));
        ["placed", "reply", "stalled", "consolidated", "inline"].map(of)
    };
    let before = [0, 1, 2].map(|index| copied(chain.server(index)));
    let mut resp = chain.resp(0);
    for seed in 0..50_u64 {
        let key = format!("key:{seed}");
        assert_eq!(resp.call(&[b"SET", key.as_bytes(), &compressible(seed, 8192)]).unwrap(), ok());
    }
    assert_eq!([1, 2].map(|index| counter(&chain, index, "unpacked")), [50 * 8192; 2]);
    assert_eq!([0, 1, 2].map(|index| copied(chain.server(index))), before);
    assert_eq!(same_everywhere(&chain).len(), 50);
}

/// A message to node `b` that would be the first of its stream, with a value of so many bytes.
fn message(version: u64, incarnation: u64, value_len: u32, payload: &[u8]) -> Vec<u8> {
    let (chain, from, to) = ("orders".into(), "a".into(), "b".into());
    let hello = Hello { stream: 0, incarnation, is_in_step: true, chain, from, to, password: Vec::new() };
    let (kind, more, space, aux, arrival_ns, mark) = (RecordKind::Put, false, 0, 0, 1, 0);
    let (mut head, key, value_crc) = (Vec::new(), b"key", 0);
    Record { kind, more, space, aux, arrival_ns, mark, key, value_len, value_crc }.encode(&mut head);
    let header = packed_message(Code::Chunk, version, 1, &head, payload.len() as u64);
    [&hello.encode(version)[..], &header, payload].concat()
}

#[test]
fn what_does_not_unpack_to_what_the_head_says_is_refused() {
    let mut chain = Chain::new(2, &[]);
    chain.start(1);
    let zeros = |len: usize| {
        let packed = [&[0x1f, 0, 1, 0][..], &vec![255; len / 255], &[200], &[0x50], &[0; 5]].concat();
        [&(packed.len() as u32).to_le_bytes()[..], &packed].concat()
    };
    let hostile: [(u32, Vec<u8>); 6] = [
        // Far more than the head says, and far more than may be packed.
        (5000, zeros(4 << 20)),
        (u32::MAX, zeros(60_000)),
        // Less, nothing, and what is no block.
        (60_000, zeros(5000)),
        (5000, Vec::new()),
        (5000, vec![7; 300]),
        // Blocks of the right length whose value has another checksum.
        (4096, [&[8, 0, 0, 0][..], &[0; 8]].concat()),
    ];
    for (at, (value_len, payload)) in (1..).zip(&hostile) {
        let message = message(chain.version(), 1000 + at, *value_len, payload);
        let codes = wait_until(REPLY_LIMIT, || {
            let codes = codes_answered(chain.nodes[1].address, &message);
            (codes.first() == Some(&(Code::Welcome as u8))).then_some(codes)
        });
        assert_eq!(codes, Some(vec![Code::Welcome as u8, Code::Refused as u8]), "{at}");
    }
    assert!(chain.info(1, "chain_role").is_some(), "it lives");
}

#[test]
fn compression_is_for_servers_of_a_chain_and_must_be_known() {
    let words = |flags: &[&str]| {
        let output = common::landfall(&[&["serve"], flags].concat());
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(words(&["--compression", "auto"]).contains("--chain and --node"));
    let unknown = words(&["--chain", "x", "--node", "a", "--compression", "zip"]);
    assert!(unknown.contains("compression is off, auto or lz4"), "{unknown}");
}

fn value_of(number: u64) -> Vec<u8> {
    [format!("{number}:").into_bytes(), compressible(number, number as usize * 977 % 60_000)].concat()
}

#[test]
fn whatever_is_killed_removed_or_added_nothing_packed_is_lost() {
    let mut chain = Chain::new(3, &FLAGS);
    chain.start_all();
    let addresses = Addresses::of_all(&chain);
    let numbers = Numbers::new(CLIENTS, value_of);
    numbers.hunt(&mut chain, &addresses);
    numbers.check(&same_everywhere(&chain), &chain.words());
    assert!((0..3).any(|index| counter(&chain, index, "unpacked") > 0), "it was packed");
}
