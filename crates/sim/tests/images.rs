//! Tests that regions of earlier versions are read. Each is kept as `images/VERSION.txt`; the example `keep_image`
//! prints such a file.

use landfall_kv::{Engine, Recovery};
use landfall_media::sim::{SimMedia, SimOptions};
use std::fs;
use std::path::Path;

const NOW_MS: u64 = 1_800_000_000_000;

/// Parses a kept image: the length of the region, then the lines that are not zero, with their offsets.
fn region(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let mut bytes = vec![0; lines.next().and_then(|len| len.parse().ok()).expect("the region's length")];
    for line in lines {
        let (off, hex) = line.split_once(' ').expect("an offset and a line");
        let off: usize = off.parse().expect("an offset");
        for (at, pair) in hex.as_bytes().chunks(2).enumerate() {
            let pair = std::str::from_utf8(pair).expect("hexadecimal digits");
            bytes[off + at] = u8::from_str_radix(pair, 16).expect("hexadecimal digits");
        }
    }
    bytes
}

fn read(engine: &Engine, space: u8, key: &[u8]) -> Option<(Vec<u8>, u64)> {
    let item = engine.get(space, key, NOW_MS).expect("nothing is damaged").ungated()?;
    Some((item.bytes().expect("its bytes").into_owned(), item.expiry_ms))
}

#[test]
fn every_kept_image_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("images");
    let mut seen = 0;
    for entry in fs::read_dir(folder).expect("the kept images") {
        let path = entry.expect("an image").path();
        let media =
            SimMedia::from_image(region(&fs::read_to_string(&path).expect("text")), SimOptions::default());
        let (engine, recovered) = Recovery::run(media, 4).expect("recovers");
        let name = path.display();
        assert!(recovered.damaged.is_empty() && recovered.corrected.is_empty(), "{name}: {recovered:?}");
        let expect = |space, key: &[u8], value: &[u8], expiry_ms| {
            assert_eq!(read(&engine, space, key), Some((value.to_vec(), expiry_ms)), "{name}: {key:?}");
        };
        expect(0, b"inline", b"short", 0);
        expect(0, b"framed", &[b'f'; 1024], 0);
        expect(0, &[b'k'; 300], b"a long key", 0);
        expect(0, b"overwritten", b"new", 0);
        expect(0, b"expiring", b"later", NOW_MS * 2);
        expect(0, b"group/a", b"together", 0);
        expect(0, b"group/b", b"together", 0);
        expect(3, b"inline", b"of another database", 0);
        let is_of = |version: &str| path.file_stem().is_some_and(|stem| stem == version);
        // Since values are kept in pieces.
        if is_of("0.1.0-pieces") || is_of("0.1.0-transactions") {
            let mut long = vec![0; 200_000];
            long.iter_mut().step_by(50_000).for_each(|byte| *byte = b'p');
            expect(5, b"pieces", &long, 0);
        }
        // Since transactions: one counts, and one is open.
        if is_of("0.1.0-transactions") {
            (0..40).for_each(|number| expect(6, format!("transaction/{number}").as_bytes(), b"counts", 0));
            let mut patched = vec![0; 200_000];
            patched[100_000..100_007].copy_from_slice(b"changed");
            expect(6, b"patched", &patched, 0);
            assert_eq!(engine.count(6).ungated(), 41, "{name}");
            assert_eq!(recovered.resolved.undecided, 20, "{name}");
        }
        assert_eq!([engine.count(0).ungated(), engine.count(3).ungated()], [7, 1], "{name}");
        assert_eq!([read(&engine, 0, b"flushed"), read(&engine, 0, b"deleted")], [None, None], "{name}");
        seen += 1;
    }
    assert!(seen > 0, "no image is kept");
}
