//! `landfall check`: what it finds, what it does not change, and what it repairs.

mod common;

use common::{Place, Reply, ok, pattern};
use landfall_fs::{FileType, FilesRecovery, HEADER_KEY, Header, Inode, InodeNumber, Mode};
use landfall_heap::{Entry, FEATURE_FILES, Kind, Region, Source, Writer, spaces};
use landfall_media::OpenOptions;
use landfall_server::store;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Output;
use std::sync::Arc;

const LEN: usize = 4000;

/// A region with a hundred keys of 4000 bytes, some short ones, some overwritten, some deleted.
fn filled() -> Place {
    let place = Place::new();
    let server = place.start(&[]);
    let mut resp = server.resp();
    for round in 0..2 {
        for index in 0..100u64 {
            let value = pattern(index + round * 1000, LEN);
            assert_eq!(resp.call(&[b"SET", format!("key:{index}").as_bytes(), &value]).unwrap(), ok());
            assert_eq!(resp.call(&[b"SET", format!("short:{index}").as_bytes(), b"abc"]).unwrap(), ok());
        }
    }
    for index in 90..100 {
        assert_eq!(resp.call(&[b"DEL", format!("key:{index}").as_bytes()]).unwrap(), Reply::Int(1));
    }
    assert!(server.stop().success());
    place
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Offset of some bytes in the region.
fn find(place: &Place, needle: &[u8]) -> Option<u64> {
    let region = std::fs::read(place.region()).unwrap();
    region.windows(needle.len()).position(|window| window == needle).map(|at| at as u64)
}

/// Changes a byte of the region.
fn flip(place: &Place, at: u64, mask: u8) {
    let file = std::fs::File::options().read(true).write(true).open(place.region()).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ mask], at).unwrap();
}

/// Offset of the current record of a short key: the last record that contains key and value.
fn record_of(place: &Place, key: &str) -> u64 {
    let needle = format!("{key}abc\0");
    let region = std::fs::read(place.region()).unwrap();
    let at = region.windows(needle.len()).rposition(|window| window == needle.as_bytes()).expect("a record")
        as u64;
    at / 128 * 128
}

#[test]
fn clean_region_is_counted_and_not_touched() {
    let place = filled();
    let before = std::fs::read(place.region()).unwrap();
    let output = place.check(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    assert_eq!(report["clean"], true);
    assert_eq!(report["keys"], 190);
    assert_eq!(report["damaged"], 0);
    assert!(report["live_bytes"].as_u64().unwrap() > 90 * LEN as u64);
    assert_eq!(std::fs::read(place.region()).unwrap(), before, "not a byte is changed");
    let text = String::from_utf8(place.check(&[]).stdout).unwrap();
    assert!(text.ends_with("clean\n") && text.contains("keys"), "{text}");
}

#[test]
fn region_of_a_killed_server_is_clean_and_read_only_checks_do_not_change_it() {
    let place = Place::new();
    let server = place.start(&[]);
    let mut resp = server.resp();
    for index in 0..2000u64 {
        resp.push(&[b"SET", format!("k{}", index % 50).as_bytes(), &pattern(index, 3000)]);
    }
    resp.flush().unwrap();
    assert_eq!(resp.read().unwrap(), ok());
    server.kill();
    // The kernel finishes writes in progress, and keeps the lock until then.
    std::fs::File::open(place.region()).unwrap().lock_shared().unwrap();
    let before = std::fs::read(place.region()).unwrap();
    let output = place.check(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(std::fs::read(place.region()).unwrap() == before, "not a byte is changed");
    let server = place.start(&[]);
    let Reply::Int(keys) = server.call(&["DBSIZE"]) else { panic!("an integer") };
    assert_eq!(json(&output)["keys"], keys, "the check counts the keys that recovery adopts");
}

#[test]
fn damaged_value_is_named_and_repair_drops_only_that_key() {
    let place = filled();
    let at = find(&place, &pattern(1007, LEN)).expect("the value of key:7");
    flip(&place, at + 2000, 0x18);
    let report = json(&place.check(&["--json"]));
    assert_eq!((&report["damaged"], report["damage"][0]["key"].as_str()), (&1.into(), Some("key:7")));
    assert_eq!(report["damage"][0]["offset"], at);
    let server = place.start(&[]);
    assert!(common::error_text(&server.call(&["GET", "key:7"])).starts_with("DAMAGED"), "never served");
    assert_eq!(server.http().call("GET", "/kv/key:7", "", b"").unwrap().status, 500);
    assert_eq!(server.call(&["GET", "key:8"]), Reply::Bulk(pattern(1008, LEN)));
    assert!(server.stop().success());
    repaired(&place, "key:7");
    let server = place.start(&[]);
    assert_eq!(server.call(&["GET", "key:7"]), Reply::Nil, "deleted, not an older version");
    assert_eq!(server.call(&["DBSIZE"]), Reply::Int(189));
}

/// Repairs the region; the next check finds no damage.
fn repaired(place: &Place, named: &str) {
    let output = place.check(&["--repair"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("repaired") && text.contains(named), "{text}");
    let after = place.check(&[]);
    assert_eq!(after.status.code(), Some(0), "{}", String::from_utf8_lossy(&after.stdout));
}

#[test]
fn one_flipped_bit_in_a_record_is_corrected_and_nothing_is_lost() {
    let place = filled();
    flip(&place, record_of(&place, "short:5") + 100, 1);
    let report = json(&place.check(&["--json"]));
    assert_eq!(
        (&report["correctable"], &report["damaged"], &report["clean"]),
        (&1.into(), &0.into(), &false.into())
    );
    assert_eq!(place.check(&[]).status.code(), Some(1), "checking did not correct it");
    repaired(&place, "flipped bit");
    assert_eq!(place.start(&[]).call(&["GET", "short:5"]), common::bulk("abc"));
}

#[test]
fn unreadable_record_is_named_by_what_is_left_and_no_older_version_comes_back() {
    let place = filled();
    let record = record_of(&place, "short:6");
    // The version field is damaged: key and hash are still readable.
    [8u64, 12, 40].iter().for_each(|at| flip(&place, record + at, 0xff));
    let report = json(&place.check(&["--json"]));
    assert_eq!((&report["damaged"], report["damage"][0]["key"].as_str()), (&1.into(), Some("short:6")));
    assert_eq!(report["damage"][0]["offset"], record);
    repaired(&place, "short:6");
    let server = place.start(&[]);
    assert_eq!(server.call(&["GET", "short:6"]), Reply::Nil);
    assert_eq!(server.call(&["GET", "short:7"]), common::bulk("abc"));
}

#[test]
fn record_that_the_medium_lost_is_detected() {
    let place = filled();
    let record = record_of(&place, "short:9");
    let file = std::fs::File::options().write(true).open(place.region()).unwrap();
    file.write_all_at(&[0; 128], record).unwrap();
    let report = json(&place.check(&["--json"]));
    assert_eq!((&report["damaged"], report["damage"][0]["what"].as_str()), (&1.into(), Some("record gone")));
    repaired(&place, "cleared");
}

#[test]
fn damaged_copies_are_detected_and_repaired() {
    let place = filled();
    flip(&place, 40, 0x55);
    // The first byte of the first table copy that is not zero.
    let region = std::fs::read(place.region()).unwrap();
    let table = &region[64 << 10..(64 << 10) + 8192];
    let word = table.iter().position(|byte| *byte != 0).expect("a slab") as u64;
    flip(&place, (64 << 10) + word, 0x42);
    let report = json(&place.check(&["--json"]));
    assert_eq!((&report["damaged_superblocks"], &report["damaged_table_words"]), (&1.into(), &1.into()));
    assert_eq!((&report["damaged"], &report["keys"]), (&0.into(), &190.into()), "nothing is lost");
    repaired(&place, "rewritten");
}

#[test]
fn a_slab_of_which_both_table_words_are_damaged_is_named_and_given_up() {
    let place = filled();
    let slab = record_of(&place, "short:5") >> 20;
    [64, 128].iter().for_each(|table| flip(&place, (table << 10) + slab * 8 + 5, 16));
    let report = json(&place.check(&["--json"]));
    assert_eq!((&report["damaged_runs"], &report["clean"]), (&1.into(), &false.into()));
    let text = String::from_utf8(place.check(&[]).stdout).unwrap();
    assert!(text.contains(&format!("run {slab}: both table words are damaged")), "{text}");
    repaired(&place, &format!("run {slab}: marked as no slab"));
}

#[test]
fn files_that_are_not_regions_cannot_be_checked() {
    let place = Place::new();
    let gone = place.check(&[]);
    assert_eq!(gone.status.code(), Some(2));
    std::fs::create_dir(place.dir()).unwrap();
    let cases: [(&[u8], &str); 2] = [(b"hello", "bytes"), (&[7; 2 << 20], "not a Landfall region")];
    for (bytes, word) in cases {
        std::fs::write(place.region(), bytes).unwrap();
        let output = place.check(&["--repair"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(word) && text.contains("region.lf"), "{text}");
        assert_eq!(std::fs::read(place.region()).unwrap(), bytes, "nothing is changed");
    }
}

#[test]
fn truncated_region_cannot_be_checked_and_is_not_changed() {
    let place = filled();
    let file = std::fs::File::options().write(true).open(place.region()).unwrap();
    file.set_len(30 << 20).unwrap();
    let before = std::fs::read(place.region()).unwrap();
    for flags in [&[][..], &["--repair"]] {
        let output = place.check(flags);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("truncated"));
    }
    assert_eq!(std::fs::read(place.region()).unwrap(), before);
}

#[test]
fn read_only_file_can_be_checked_and_not_repaired() {
    let place = filled();
    std::fs::set_permissions(place.region(), std::fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(place.check(&[]).status.code(), Some(0));
}

/// Offset of the only commit record of a transaction.
fn commit_record(place: &Place) -> u64 {
    let region = std::fs::read(place.region()).unwrap();
    let is_one = |record: &&[u8]| record[4] == 5 && record[7] == 253;
    let at = region.chunks(128).position(|record| is_one(&record)).expect("a commit record");
    at as u64 * 128
}

#[test]
fn keys_of_a_transaction_whose_commit_record_is_lost_are_named_and_no_older_version_of_them_passes() {
    const KEYS: usize = 9000;
    let place = Place::new();
    let server = place.start(&[]);
    let mut resp = server.resp();
    assert_eq!(resp.call(&[b"MSET", b"key:7", b"old", b"other", b"1"]).unwrap(), ok());
    let words: Vec<Vec<u8>> =
        (0..KEYS).flat_map(|n| [format!("key:{n}").into_bytes(), b"new".to_vec()]).collect();
    let words: Vec<&[u8]> = [&b"MSET"[..]].into_iter().chain(words.iter().map(Vec::as_slice)).collect();
    assert_eq!(resp.call(&words).unwrap(), ok());
    assert_eq!(resp.call(&[b"SET", b"key:8", b"newer"]).unwrap(), ok());
    assert!(server.stop().success());
    assert_eq!(place.check(&[]).status.code(), Some(0));
    let file = std::fs::File::options().write(true).open(place.region()).unwrap();
    file.write_all_at(&[0; 128], commit_record(&place)).unwrap();
    let output = place.check(&["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!(report["damaged"], KEYS, "the commit record, and all keys but the one that was written again");
    let named: std::collections::BTreeSet<&str> =
        report["damage"].as_array().unwrap().iter().filter_map(|item| item["key"].as_str()).collect();
    assert!(named.len() == KEYS - 1 && named.contains("key:7") && !named.contains("key:8"));
    let text = String::from_utf8(place.check(&[]).stdout).unwrap();
    assert!(text.contains("the commit record of its transaction may be lost"), "{text}");
    assert!(text.contains(&format!("and {} more", KEYS - 1000)) && text.lines().count() < 1100, "{text}");
    let server = place.start(&[]);
    assert!(common::error_text(&server.call(&["GET", "key:7"])).starts_with("DAMAGED"), "never served");
    assert!(server.stop().success());
    assert_eq!(place.check(&["--repair"]).status.code(), Some(1));
    assert_eq!(place.check(&[]).status.code(), Some(0));
    let server = place.start(&[]);
    assert_eq!(server.call(&["GET", "key:7"]), Reply::Nil, "no older version comes back");
    assert_eq!(server.call(&["GET", "key:8"]), Reply::Bulk(b"newer".to_vec()));
    assert_eq!(server.call(&["DBSIZE"]), Reply::Int(2));
}

/// A value of aux: the inode has no name.
const ORPHAN: u32 = 1;

/// Writes a tree with nothing but its root, whose number of links is `nlink`, and a file without a name.
fn write_files(place: &Place, nlink: u32) {
    let header = Header { identity: [1; 16], next_client: 1, seed: None, floor: 0, under_repair: false };
    write_files_with(place, nlink, &header.encode());
}

/// As [`write_files`], with these bytes in the place of the tree's header.
fn write_files_with(place: &Place, nlink: u32, header: &[u8]) {
    let (media, _) = store::open_region(&place.dir(), 64 << 20, OpenOptions::default()).unwrap();
    let files = Arc::new(FilesRecovery::default());
    let (heap, _) = Region::run(media, vec![Arc::clone(&files) as _]).unwrap();
    heap.require_features(FEATURE_FILES).unwrap();
    let root = Inode {
        mode: Mode::new(FileType::Directory, 0o755),
        uid: 0,
        gid: 0,
        nlink,
        size: 0,
        atime_ns: 0,
        btime_ns: 0,
        extra: InodeNumber::ROOT.0,
        has_content: false,
        has_extended: false,
    };
    let open = Inode { mode: Mode::new(FileType::File, 0o644), nlink: 0, extra: 0, ..root };
    let records = [
        (spaces::FILES_HEADER, &HEADER_KEY[..], header, 0),
        (spaces::FILES_INODE, &InodeNumber::ROOT.key(), &root.encode(), 0),
        (spaces::FILES_INODE, &InodeNumber(2).key(), &open.encode(), ORPHAN),
    ];
    let mut writer = Writer::new(Arc::clone(&heap), 0);
    let mut transaction = writer.begin_transaction(0).unwrap();
    for (space, key, value, aux) in records {
        let (hash, value) = (heap.hash(space, key), Source::Bytes(value));
        let kind = Kind::Put;
        let entry = Entry { kind, space, hash, key, key_at: None, value, arrival_ns: 0, expiry_ms: 0, aux };
        writer.append_to(&mut transaction, &entry).unwrap();
    }
    writer.commit(transaction).unwrap();
}

#[test]
fn a_tree_of_files_is_checked_and_what_is_wrong_with_it_is_named() {
    let place = Place::new();
    write_files(&place, 2);
    let report = json(&place.check(&["--json"]));
    assert_eq!(
        (&report["clean"], &report["inodes"], &report["file_records"]),
        (&true.into(), &2.into(), &3.into())
    );
    assert_eq!(report["keys"], 0);
    let place = Place::new();
    write_files(&place, 5);
    let output = place.check(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("! inode 1: its nlink is 5, and it has 0 directories"), "{text}");
}

/// A repair would take what it does not know for damage.
#[test]
fn a_region_with_something_of_a_newer_release_is_neither_checked_nor_repaired() {
    let place = Place::new();
    let header = Header { identity: [1; 16], next_client: 1, seed: None, floor: 0, under_repair: false };
    let mut header = header.encode();
    header[0] = 9;
    // The tree has damage, too.
    write_files_with(&place, 5, &header);
    let before = std::fs::read(place.region()).unwrap();
    for flags in [&[][..], &["--repair"]] {
        let output = place.check(flags);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("the header of the files was written by a newer release"), "{text}");
    }
    assert!(std::fs::read(place.region()).unwrap() == before, "nothing is changed");
}

/// Somebody may have a file without a name open, and go on with it when the server is there again.
#[test]
fn a_repair_that_drops_nothing_leaves_files_and_their_mounts_as_they_are() {
    let place = Place::new();
    write_files(&place, 2);
    let note = place.dir().join("offload.sock.mount");
    std::fs::write(&note, "0123456789abcdef").unwrap();
    flip(&place, 40, 0x55);
    let report = json(&place.check(&["--repair", "--json"]));
    assert_eq!(report["clean_after_repair"], true, "{report}");
    let after = json(&place.check(&["--json"]));
    assert_eq!((&after["inodes"], note.exists()), (&2.into(), true), "{after}");
}

#[test]
fn a_tree_of_files_is_repaired_if_anything_is_wrong_with_it() {
    let place = Place::new();
    write_files(&place, 5);
    // Mounts that wait for a server would go on with other files.
    let names = ["offload.sock.mount", "offload.sock.locks"].map(|name| place.dir().join(name));
    names.iter().for_each(|name| std::fs::write(name, "0123456789abcdef").unwrap());
    let output = place.check(&["--repair", "--json"]);
    assert!(names.iter().all(|name| !name.exists()), "none of them may");
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!((&report["clean_after_repair"], &report["left"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(report["repaired"], serde_json::json!(["inode 1 (/): its nlink was 5, and is 2 now"]));
    let before = std::fs::read(place.region()).unwrap();
    let output = place.check(&["--repair"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.ends_with("clean\n") && !text.contains("repaired"), "{text}");
    assert!(std::fs::read(place.region()).unwrap() == before, "a whole tree is not touched");
}
