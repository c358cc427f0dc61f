//! A node of a chain that comes back catches up: it has what the others have then, and is sent no more than it lacks.

mod common;

use common::chain::{Chain, LIMIT, REPLY_LIMIT, contents, same_everywhere};
use common::faults::Over;
use common::{Reply, Resp, Server, ok, pattern, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Clients that write.
const CLIENTS: usize = 4;

#[test]
fn a_node_that_comes_back_is_copied_to_while_clients_write() {
    let mut chain = Chain::new(3, &["--workers", "2", "--capacity", "128MiB"]);
    chain.start_all();
    let mut resp = chain.resp(0);
    for index in 0..20_000_u32 {
        let (key, value) = (format!("old:{index}"), pattern(u64::from(index), 200));
        resp.push(&[b"SET", key.as_bytes(), &value]);
        if index % 500 == 499 {
            resp.flush().unwrap();
            (0..500).for_each(|_| assert_eq!(resp.read().unwrap(), ok()));
        }
    }
    chain.kill(2);
    chain.remove(2);
    chain.wait_until_in_step();
    assert_eq!(chain.server(0).call(&["DEL", "old:1", "old:2"]), Reply::Int(2));
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for client in 0..CLIENTS as u32 {
            let (mut resp, over) = (chain.resp(0), &over);
            threads.spawn(move || {
                let mut count = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    count += 1;
                    // Every fourth of the old keys is written, deleted or both while it is copied.
                    let key =
                        format!("old:{}", count.wrapping_mul(2_654_435_761).wrapping_add(client) % 5000 * 4);
                    let word: &[&[u8]] = if count.is_multiple_of(3) {
                        &[b"DEL", key.as_bytes()]
                    } else {
                        &[b"SET", key.as_bytes(), b"new"]
                    };
                    resp.call(word).unwrap();
                }
            });
        }
        let _ends = Over(&over);
        chain.add(2);
        chain.start(2);
        chain.wait_until_in_step();
        std::thread::sleep(Duration::from_millis(200));
    });
    let all = same_everywhere(&chain, &[0, 1, 2]);
    assert!(!all.contains_key(&(0, b"old:1".to_vec())), "deleted while the node was away");
    assert!(all.len() > 14_000, "{}", all.len());
}

/// What a node has sent in copies: records that it has gone through, those that it has sent, and bytes of all messages.
fn copied(server: &Server) -> [f64; 3] {
    ["compared_records", "copied_keys", "copy_bytes"]
        .map(|name| server.metric(&format!("landfall_chain_{name}_total")))
}

/// Records that the last copy of a node has gone through. In its counters are those of a copy, too, that was lost with its
/// connections when the view changed, and began anew.
fn compared(chain: &Chain, from: usize) -> f64 {
    let last = || {
        let log = chain.nodes[from].place.log();
        let last = log.lines().rfind(|line| line.contains(" copying to ") || line.contains(" copied "))?;
        last.split_once("records=")?.1.split(' ').next()?.parse().ok()
    };
    wait_until(LIMIT, last).expect("it has copied")
}

/// Sets many keys of a database, 500 at once.
fn set_many(resp: &mut Resp, database: u8, keys: std::ops::Range<u32>, value: impl Fn(u32) -> Vec<u8>) {
    assert_eq!(resp.call(&[b"SELECT", database.to_string().as_bytes()]).unwrap(), ok());
    let keys: Vec<u32> = keys.collect();
    for some in keys.chunks(500) {
        some.iter().for_each(|key| resp.push(&[b"SET", format!("key:{key}").as_bytes(), &value(*key)]));
        resp.flush().unwrap();
        some.iter().for_each(|_| assert_eq!(resp.read().unwrap(), ok()));
    }
}

/// A node is away while a few percent of the keys change; returns what the node before it has sent then.
fn sent_after(
    chain: &mut Chain,
    from: usize,
    to: usize,
    change: impl FnOnce(&mut Chain, &mut Resp),
) -> [f64; 3] {
    assert!(chain.take(to).stop().success());
    chain.remove(to);
    let first = chain.wait_until_in_step();
    let mut resp = chain.resp(first);
    change(chain, &mut resp);
    let before = copied(chain.server(from));
    chain.add(to);
    chain.start(to);
    chain.wait_until_in_step();
    let after = copied(chain.server(from));
    [compared(chain, from), after[1] - before[1], after[2] - before[2]]
}

#[test]
fn a_node_that_comes_back_gets_what_has_changed_and_nothing_else() {
    let mut chain = Chain::new(3, &["--workers", "2", "--capacity", "128MiB"]);
    chain.start_all();
    let mut resp = chain.resp(0);
    let kib = |key: u32| pattern(u64::from(key), 1024);
    set_many(&mut resp, 0, 0..6000, kib);
    set_many(&mut resp, 3, 0..300, |key| pattern(u64::from(key), 20));
    set_many(&mut resp, 5, 0..3000, |key| pattern(u64::from(key), 20));
    let [compared, sent, bytes] = sent_after(&mut chain, 1, 2, |_, resp| {
        assert_eq!(resp.call(&[b"FLUSHDB"]).unwrap(), ok());
        assert_eq!(resp.call(&[b"SELECT", b"5"]).unwrap(), ok());
        assert_eq!(resp.call(&[b"FLUSHDB"]).unwrap(), ok());
        set_many(resp, 0, 0..6000, kib);
        // The same values, but written later: they are other versions of the keys.
        set_many(resp, 3, 100..110, |key| pattern(u64::from(key), 20));
    });
    assert_eq!([compared, sent], [6300.0, 6010.0], "everything of one database was written");
    assert!(bytes < 1.1 * 6010.0 * 1024.0, "{bytes}");
    assert_eq!(same_everywhere(&chain, &[0, 1, 2]).len(), 6300);
    let [compared, sent, bytes] = sent_after(&mut chain, 1, 2, |_, resp| {
        // Spread over all pages: 150 are written, 100 deleted, 50 are new; some are deleted and written again.
        for at in 0..150 {
            let key = format!("key:{}", at * 37);
            assert_eq!(resp.call(&[b"DEL", key.as_bytes()]).unwrap(), Reply::Int(1));
            assert_eq!(resp.call(&[b"SET", key.as_bytes(), &kib(at + 7000)]).unwrap(), ok());
        }
        for at in 0..100 {
            let key = format!("key:{}", at * 41 + 1);
            let _ = resp.call(&[b"DEL", key.as_bytes()]).unwrap();
        }
        set_many(resp, 0, 9000..9050, kib);
    });
    let all = same_everywhere(&chain, &[0, 1, 2]);
    assert_eq!(compared, all.len() as f64);
    assert!((190.0..=200.0).contains(&sent), "{sent}");
    // The value and the key of each.
    assert!(bytes < 1.3 * sent * 1034.0, "{bytes} bytes for {sent} keys");
    let log = chain.nodes[1].place.log();
    assert!(log.lines().any(|line| line.contains("copied") && line.contains("sent=")), "{log}");
    let nothing = sent_after(&mut chain, 1, 2, |_, _| {});
    assert_eq!(nothing[1], 0.0, "nothing has changed: {nothing:?}");
    assert!(nothing[2] < 20_000.0, "{nothing:?}");
    assert_eq!(same_everywhere(&chain, &[0, 1, 2]), all);
}

/// What was compared is answered with the key up to which it was: the longest that there can be.
#[test]
fn a_node_that_comes_back_is_compared_with_however_long_its_keys_are() {
    let mut chain = Chain::new(2, &["--capacity", "256MiB"]);
    chain.start_all();
    let mut resp = chain.resp(0);
    let keys = [b'a', b'b', b'c', b'z'].map(|letter| vec![letter; 65_536]);
    // An answer ends behind 8 MiB of values.
    for (seed, key) in (0..).zip(&keys) {
        assert_eq!(resp.call(&[b"SET", key, &pattern(seed, 9 << 20)]).unwrap(), ok());
    }
    set_many(&mut resp, 0, 0..500, |key| pattern(u64::from(key), 20));
    let [_, sent, _] = sent_after(&mut chain, 0, 1, |_, resp| {
        assert_eq!(resp.call(&[b"DEL", &keys[0], &keys[1]]).unwrap(), Reply::Int(2));
        assert_eq!(resp.call(&[b"SET", &keys[2], b"short"]).unwrap(), ok());
        set_many(resp, 0, 100..110, |key| pattern(u64::from(key), 30));
    });
    assert_eq!(sent, 11.0, "the others are as they were");
    assert_eq!(same_everywhere(&chain, &[0, 1]).len(), 502);
}

#[test]
fn a_damaged_value_of_a_node_that_comes_back_is_copied_again() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    let mut resp = chain.resp(0);
    set_many(&mut resp, 0, 0..500, |key| pattern(u64::from(key), 2000));
    let [_, sent, _] = sent_after(&mut chain, 0, 1, |chain, _| damage(chain, 1, &pattern(77, 2000)));
    assert_eq!(sent, 1.0);
    assert_eq!(same_everywhere(&chain, &[0, 1]).len(), 500);
}

/// Flips a byte of a value in the region of a node that does not run.
fn damage(chain: &Chain, node: usize, value: &[u8]) {
    let region = chain.nodes[node].place.region();
    let bytes = std::fs::read(&region).unwrap();
    let at = bytes.windows(value.len()).position(|window| window == value).expect("the value");
    let file = std::fs::File::options().write(true).open(&region).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[!bytes[at + 1000]], at as u64 + 1000).unwrap();
}

#[test]
fn a_node_that_comes_back_keeps_the_value_that_is_damaged_at_the_node_before() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    let mut resp = chain.resp(0);
    set_many(&mut resp, 0, 0..500, |key| pattern(u64::from(key), 2000));
    let all = same_everywhere(&chain, &[0, 1]);
    let [compared, sent, _] = sent_after(&mut chain, 0, 1, |chain, _| {
        assert!(chain.take(0).stop().success());
        damage(chain, 0, &pattern(77, 2000));
        chain.start(0);
        chain.wait_until_in_step();
    });
    assert_eq!([compared, sent], [500.0, 0.0]);
    assert_eq!(contents(chain.server(1)), all);
}

/// A repair drops what is damaged. The other servers of a chain have it still, and none of them loses it by that.
#[test]
fn a_node_that_was_repaired_is_copied_to_wherever_it_is_in_the_chain() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    let mut resp = chain.resp(0);
    set_many(&mut resp, 0, 0..200, |key| pattern(u64::from(key), 2000));
    let all = same_everywhere(&chain, &[0, 1]);
    for repaired in [1, 0] {
        chain.end(&[0, 1]);
        damage(&chain, repaired, &pattern(77, 2000));
        let output = chain.nodes[repaired].place.check(&["--repair"]);
        let words = String::from_utf8(output.stdout).unwrap();
        assert!(words.contains("key:77"), "{words}");
        let refused = if repaired == 0 { chain.try_start(0).err() } else { None };
        if let Some(refused) = refused {
            assert!(refused.to_string().contains("remove a from the view"), "{refused}");
            chain.remove(0);
            chain.start(1);
            chain.wait_until_in_step();
            chain.add(0);
            chain.start(0);
        } else {
            chain.start_all();
        }
        chain.wait_until_in_step();
        assert_eq!(same_everywhere(&chain, &[0, 1]), all);
        assert!(words.contains("is behind now"), "{words}");
    }
}

/// What a first node has written and nobody has acknowledged is gone when it comes back, and the rest is kept.
#[test]
fn a_node_that_comes_back_loses_what_was_never_acknowledged() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    let mut resp = chain.resp(0);
    set_many(&mut resp, 0, 0..1000, |key| pattern(u64::from(key), 100));
    chain.kill(1);
    let mut resp = chain.resp(0);
    let waiting = std::thread::spawn(move || {
        assert_eq!(resp.call(&[b"MULTI"]).unwrap(), ok());
        let words: [&[&[u8]]; 3] = [&[b"SET", b"own", b"1"], &[b"SET", b"key:5", b"1"], &[b"DEL", b"key:6"]];
        words.iter().for_each(|words| assert_eq!(resp.call(words).unwrap(), Reply::Simple("QUEUED".into())));
        assert!(resp.call(&[b"EXEC"]).is_err(), "nobody has acknowledged it");
    });
    std::thread::sleep(Duration::from_millis(700));
    chain.kill(0);
    waiting.join().unwrap();
    // Both nodes hold what was acknowledged.
    chain.remove(0);
    chain.start(1);
    chain.wait_until_in_step();
    chain.add(0);
    chain.start(0);
    chain.wait_until_in_step();
    let all = same_everywhere(&chain, &[1, 0]);
    assert_eq!(all.len(), 1000);
    assert_eq!(all[&(0, b"key:5".to_vec())], pattern(5, 100));
    let (compared, [_, sent, _]) = (compared(&chain, 1), copied(chain.server(1)));
    assert_eq!(
        [compared, sent],
        [1000.0, 2.0],
        "the key that it has written, and the one that it has deleted"
    );
}

#[test]
fn replicas_behind_one_that_has_lost_its_disk_show_no_part_of_the_data() {
    let mut chain = Chain::new(4, &["--capacity", "128MiB"]);
    chain.start_all();
    let mut resp = chain.resp(0);
    for index in 0..20_000_u32 {
        resp.push(&[b"SET", format!("key:{index}").as_bytes(), &pattern(u64::from(index), 200)]);
        if index % 500 == 499 {
            resp.flush().unwrap();
            (0..500).for_each(|_| assert_eq!(resp.read().unwrap(), ok()));
        }
    }
    chain.kill(1);
    chain.nodes[1].lose_disk();
    let replicas = [2, 3].map(|index| (index, chain.server(index).resp));
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for (node, address) in replicas {
            let over = &over;
            threads.spawn(move || {
                let mut resp = Resp::connect(address, REPLY_LIMIT).unwrap();
                let mut index = 0;
                while !over.load(Ordering::Relaxed) {
                    index = (index + 7919) % 20_000;
                    let answer = resp.call(&[b"GET", format!("key:{index}").as_bytes()]).unwrap();
                    assert_ne!(answer, Reply::Nil, "node {node} shows a part");
                }
            });
        }
        let _ends = Over(&over);
        chain.start(1);
        chain.wait_until_in_step();
    });
    assert_eq!(same_everywhere(&chain, &[0, 1, 2, 3]).len(), 20_000);
}
