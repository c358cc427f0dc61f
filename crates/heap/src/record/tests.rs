use super::*;

const GROUP: Group = Group { first_seq: 70, count: 9, place: 7 };

fn seal() -> Seal {
    Seal::new(&[9; 16], 0)
}

fn sample(key: &[u8], extents: &[Extent]) -> [u8; RECORD_SIZE as usize] {
    let mut draft = Draft::new(&Fields {
        kind: Kind::Put,
        space: 3,
        seq: 77,
        rev: 2,
        hash: 0x1234_5678_9abc_def0,
        arrival_ns: 6,
        expiry_ms: 7,
        aux: 8,
    });
    draft.bond(Bond::Group(GROUP));
    draft.key_inline(key);
    draft.value_extents(extents, Check::Crc(5));
    draft.seal(SlotId(5), 4, seal())
}

/// Byte for byte as in `docs/format/records.md`: what earlier versions wrote must be read by later ones.
#[test]
fn the_bytes_of_a_record_are_frozen() {
    let bytes = sample(b"key", &[Extent::new(0xabcd_ef01_2345, 1000), Extent::new(4096, 24)]);
    let frozen = concat!(
        "2d32c010010302034d0000000000000002000000030000000004000005000000",
        "f0debc9a78563412060000000000000007000000000000000400000008000000",
        "460000000000000009000000070000006b6579452301efcdabe8030000000000",
        "1000000000180000000000000000000000000000000000000000000000000000",
    );
    assert_eq!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), frozen);
}

#[test]
fn the_bytes_of_a_transaction_are_frozen() {
    let fields =
        Fields { kind: Kind::Put, space: 3, seq: 78, rev: 0, hash: 9, arrival_ns: 6, expiry_ms: 7, aux: 8 };
    let id = TransactionId(0x1122_3344_5566_7788);
    let mut draft = Draft::new(&fields);
    draft.bond(Bond::Transaction(id));
    draft.key_inline(b"key");
    draft.value_inline(b"value", 5);
    let bytes = draft.seal(SlotId(5), 4, seal());
    assert_eq!(&bytes[4..8], [1, 1 | 2 | 4, 0, 3]);
    assert_eq!(&bytes[64..88], b"\x88\x77\x66\x55\x44\x33\x22\x11\0\0\0\0\0\0\0\0keyvalue");
    let Slot::Record(view) = RecordView::parse(&bytes, SlotId(5), seal(), 1 << 48) else { panic!("damaged") };
    assert_eq!((view.transaction(), view.group(), view.commits()), (Some(id), None, None));
    assert_eq!((view.key(), view.value()), (KeyPlace::Inline(b"key"), ValuePlace::Inline(b"value")));

    let mut draft = Draft::new(&Fields { kind: Kind::Commit, space: 253, ..fields });
    draft.key_inline(&id.key());
    draft.value_inline(b"", 0);
    let bytes = draft.seal(SlotId(5), 4, seal());
    assert_eq!((&bytes[4..8], &bytes[64..72]), (&[5, 2 | 4, 0, 253][..], &id.key()[..]));
    let Slot::Record(view) = RecordView::parse(&bytes, SlotId(5), seal(), 1 << 48) else { panic!("damaged") };
    assert_eq!((view.transaction(), view.group(), view.commits()), (None, None, Some(id)));
}

#[test]
fn the_checksum_covers_salt_slot_and_bytes() {
    let bytes = sample(b"key", &[Extent::new(4096, 24)]);
    let by_definition = [&[9; 16][..], &5u32.to_le_bytes(), &bytes[4..]].concat();
    assert_eq!(bytes[..4], crc32c::crc32c(&by_definition).to_le_bytes());
}

#[test]
fn the_checksum_covers_the_epoch_at_the_end_of_the_salt() {
    let by_definition = |epoch: u32| {
        let mut bytes = sample(b"key", &[Extent::new(4096, 24)]);
        let mut salt = [9; 16];
        salt[12..].iter_mut().zip(epoch.to_le_bytes()).for_each(|(byte, of_epoch)| *byte ^= of_epoch);
        let crc = crc32c::crc32c(&[&salt[..], &5u32.to_le_bytes(), &bytes[4..]].concat());
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    for epoch in [0, 1, 2, 3, 0x1234_5678, u32::MAX - 1] {
        for other in [0, 1, 2, 3, 0x1234_5678, u32::MAX - 1] {
            let holds = Seal::new(&[9; 16], other).holds(&by_definition(epoch), SlotId(5));
            assert_eq!(holds, epoch == other, "{epoch} read as {other}");
        }
    }
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let extents = [Extent::new(0xabcd_ef01_2345, 1000), Extent::new(4096, 24)];
    let bytes = sample(b"key", &extents);
    let parse = |slot, region_bytes| RecordView::parse(&bytes, SlotId(slot), seal(), region_bytes);
    let Slot::Record(view) = parse(5, 1 << 48) else { panic!("not read back") };
    assert_eq!((view.seq(), view.rev(), view.space(), view.kind()), (77, 2, 3, Kind::Put));
    assert_eq!((view.arrival_ns(), view.expiry_ms(), view.aux()), (6, 7, 8));
    assert_eq!((view.value_len(), view.check(), view.durable_before()), (1024, Check::Crc(5), 4));
    assert_eq!(view.group(), Some(GROUP));
    assert_eq!(view.key(), KeyPlace::Inline(b"key"));
    let ValuePlace::Extents(list) = view.value() else { panic!("the value lies in frames") };
    assert!(list.iter().eq(extents));
    assert!(matches!(parse(6, 1 << 48), Slot::Damaged(_)), "misplaced");
    assert!(matches!(parse(5, 1 << 20), Slot::Damaged(_)), "out of bounds");
}

#[test]
fn every_single_flipped_bit_is_noticed_and_corrected() {
    let bytes = sample(b"key", &[Extent::new(4096, 1024)]);
    for bit in 0..1024 {
        let mut bad = bytes;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(RecordView::parse(&bad, SlotId(5), seal(), 1 << 48), Slot::Damaged(_)), "bit {bit}");
        assert_eq!(correct_single_bit(&bad, SlotId(5), seal()), Some(bytes), "bit {bit}");
    }
}
