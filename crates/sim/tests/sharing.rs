//! What tells that bytes are shared: left out, the checks must fail.

mod common;

use common::{create, medium, reopen, set};
use landfall_heap::Writer;
use landfall_kv::TxnKey;
use landfall_media::sim::SimOptions;
use std::sync::Arc;

/// Two keys with the same bytes, and the counts after a restart. Without `says_so` the second record is written as if the
/// key had been renamed.
fn copied(says_so: bool) -> Result<(), landfall_sim::Violation> {
    let (media, engine) = create(32, SimOptions::default());
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    set(&engine, &mut writer, b"original", &[7; 5000]);
    let keys = [&b"original"[..], b"copy"].map(|key| TxnKey { space: 0, key });
    let mut txn = engine.transaction(keys, 1);
    let item = txn.read(0, b"original")?.ungated().expect("is there");
    match says_so {
        true => txn.copy_item(0, b"copy", &item, 0)?,
        false => txn.put_item(0, b"copy", &item, 0),
    }
    drop(item);
    txn.commit(&mut writer, 1)?.ungated();
    writer.commit_now()?;
    landfall_sim::recount(&engine, 1)?;
    landfall_sim::recount(&reopen(&medium(media.crash_state().durable_image())), 0)
}

#[test]
fn a_copy_that_does_not_say_that_it_shares_is_caught() {
    copied(true).expect("every count adds up");
    let caught = copied(false).expect_err("bytes are counted twice after the restart");
    assert!(caught.to_string().contains("live bytes"), "{caught}");
}
