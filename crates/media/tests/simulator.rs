//! What the crash simulator promises, and that everything else may be lost.

use std::collections::BTreeSet;

use landfall_media::sim::{CrashState, SimMedia, SimOptions, VERSIONS_MAX};
use landfall_media::{
    BLOCK_SIZE, CHUNK_SIZE, ChunkSet, CommitMode, Dirty, Evict, Extent, LINE_SIZE, Media, MediaError,
    MediaKind, RUN_SIZE, Site, persist,
};

const LEN: u64 = 4096;
const SEEDS: u64 = 400;
const IMMEDIATE: SimOptions = SimOptions { deferred: false };

fn sim() -> std::sync::Arc<SimMedia> {
    SimMedia::new(LEN, IMMEDIATE)
}

fn save(media: &SimMedia, off: u64, bytes: &[u8]) {
    media.store(off, bytes).expect("in bounds");
    persist(media, Extent::new(off, bytes.len() as u32), Site::Data, Site::Commit).expect("durable");
}

/// Every value that 8 bytes at `off` have over many crash images.
fn outcomes(media: &SimMedia, off: usize) -> BTreeSet<[u8; 8]> {
    let word = |seed| media.crash_image_seeded(seed)[off..off + 8].try_into().expect("eight bytes");
    (0..SEEDS).map(word).collect()
}

#[test]
fn an_unfenced_store_may_vanish_and_may_survive() {
    let media = sim();
    media.store(0, b"unfenced").expect("in bounds");
    assert_eq!(media.bytes(Extent::new(0, 8)).expect("in bounds"), b"unfenced", "the image has it at once");
    assert_eq!(outcomes(&media, 0), BTreeSet::from([[0; 8], *b"unfenced"]));
}

#[test]
fn a_flush_without_a_fence_promises_nothing() {
    let media = sim();
    media.store(0, b"flushed!").expect("in bounds");
    media.flush(&mut Dirty::new(), Site::Data, Extent::new(0, 8));
    media.fence(&mut Dirty::new(), Site::Commit).expect("a fence of somebody else");
    assert_eq!(media.pending_count(), 1);
    assert!(outcomes(&media, 0).contains(&[0; 8]));
}

#[test]
fn a_fenced_byte_never_vanishes() {
    for options in [IMMEDIATE, SimOptions { deferred: true }] {
        let media = SimMedia::new(LEN, options);
        save(&media, 60, b"on both lines");
        assert_eq!(media.pending_count(), 0);
        assert!((0..SEEDS).all(|seed| &media.crash_image_seeded(seed)[60..73] == b"on both lines"));
    }
}

#[test]
fn a_fence_covers_flushed_lines_and_not_the_gap_between_them() {
    let media = sim();
    let mut dirty = Dirty::new();
    media.store(0, &[1; 192]).expect("in bounds");
    for off in [0, 128] {
        media.flush(&mut dirty, Site::Data, Extent::new(off, 64));
    }
    media.fence(&mut dirty, Site::Commit).expect("durable");
    assert!(dirty.is_empty());
    assert_eq!(media.pending_count(), 1, "the middle line was never flushed");
    assert_eq!(outcomes(&media, 0), BTreeSet::from([[1; 8]]));
    assert!(outcomes(&media, 64).contains(&[0; 8]));
}

#[test]
fn a_store_after_the_flush_is_pending_after_the_fence() {
    let media = sim();
    let mut dirty = Dirty::new();
    media.store(0, b"promised").expect("in bounds");
    media.flush(&mut dirty, Site::Record, Extent::new(0, 8));
    media.store(0, b"too late").expect("in bounds");
    media.fence(&mut dirty, Site::Commit).expect("durable");
    assert_eq!(media.pending_count(), 1);
    assert_eq!(outcomes(&media, 0), BTreeSet::from([*b"promised", *b"too late"]));
}

#[test]
fn a_late_fence_does_not_bring_back_older_bytes() {
    let media = sim();
    let mut slow = Dirty::new();
    media.store(0, b"older...").expect("in bounds");
    media.flush(&mut slow, Site::Data, Extent::new(0, 8));
    save(&media, 0, b"newer...");
    media.fence(&mut slow, Site::Commit).expect("durable");
    assert_eq!(outcomes(&media, 0), BTreeSet::from([*b"newer..."]));
}

#[test]
fn a_line_is_torn_at_words_and_never_within_one() {
    let media = sim();
    save(&media, 0, &[1; 64]);
    media.store(0, &[2; 64]).expect("in bounds");
    let mut torn = 0;
    for seed in 0..SEEDS {
        let image = media.crash_image_seeded(seed);
        let words: BTreeSet<&[u8]> = image[..64].chunks(8).collect();
        assert!(words.iter().all(|word| *word == [1; 8] || *word == [2; 8]), "seed {seed}: {words:?}");
        torn += usize::from(words.len() == 2);
    }
    assert!(torn > 0, "tearing must happen");
}

/// Rule 1 of `docs/format/media.md`: what is not flushed becomes durable at any time, in any order.
#[test]
fn each_word_of_a_torn_line_may_be_of_another_version() {
    let media = sim();
    save(&media, 0, &[1; 64]);
    for version in 2..=4 {
        media.store(0, &[version; 64]).expect("in bounds");
    }
    let mut mixtures = BTreeSet::new();
    for seed in 0..SEEDS {
        let image = media.crash_image_seeded(seed);
        let words: BTreeSet<[u8; 8]> =
            image[..64].chunks(8).map(|word| word.try_into().expect("eight bytes")).collect();
        assert!(
            words.iter().all(|word| (1..=4_u8).any(|version| *word == [version; 8])),
            "seed {seed}: {words:?}"
        );
        mixtures.insert(words.into_iter().map(|word| word[0]).collect::<Vec<u8>>());
    }
    let is_found = |mixture: &[u8]| mixtures.contains(mixture);
    assert!((1..=4_u8).all(|version| is_found(&[version])) && is_found(&[1, 2, 3, 4]), "{mixtures:?}");
}

#[test]
fn earlier_contents_of_a_line_may_be_found_within_the_stated_bound() {
    let media = sim();
    for value in 1..=VERSIONS_MAX as u8 + 1 {
        media.store(0, &[value; 8]).expect("in bounds");
    }
    let expected = (2..=VERSIONS_MAX as u8 + 1).map(|value| [value; 8]).chain([[0; 8]]);
    assert_eq!(outcomes(&media, 0), expected.collect());
}

#[test]
fn pending_lines_survive_independently() {
    let media = sim();
    for line in 0..3 {
        media.store(line * LINE_SIZE, &[1; 8]).expect("in bounds");
    }
    let seen: BTreeSet<[u8; 3]> = (0..SEEDS)
        .map(|seed| {
            let image = media.crash_image_seeded(seed);
            [image[0], image[64], image[128]]
        })
        .collect();
    assert_eq!(seen.len(), 8, "every subset of three lines: {seen:?}");
}

#[test]
fn equal_seeds_give_equal_images() {
    let media = sim();
    media.store(0, &[3; 1000]).expect("in bounds");
    assert_eq!(media.crash_image_seeded(7), media.crash_image_seeded(7));
}

#[test]
fn every_subset_of_pending_lines_is_enumerated_once() {
    let media = sim();
    save(&media, 0, b"base");
    for line in [1_u64, 5, 9, 11] {
        media.store(line * LINE_SIZE, b"older").expect("in bounds");
        media.store(line * LINE_SIZE, b"newer").expect("in bounds");
    }
    let images = media.crash_images_exhaustive(4).expect("four lines are few");
    let images: Vec<_> = images.map(|image| image.to_vec()).collect();
    assert_eq!(images.len(), 16);
    assert_eq!(images.iter().collect::<BTreeSet<_>>().len(), 16, "no image twice");
    assert!(images.iter().all(|image| &image[..4] == b"base"));
    assert!(images.iter().all(|image| [&b"newer"[..], &[0; 5]].contains(&&image[64..69])));
    assert!(media.crash_images_exhaustive(3).is_none(), "four lines are more than three");
}

#[test]
fn a_skipped_site_leaves_its_bytes_pending() {
    for (skipped, other) in [(Site::Data, Site::Commit), (Site::Commit, Site::Data)] {
        let media = sim();
        media.skip_site(skipped);
        save(&media, 0, b"promised");
        assert_eq!(media.pending_count(), 1, "{skipped:?} lied");
        assert!(outcomes(&media, 0).contains(&[0; 8]));
        let mut dirty = Dirty::new();
        media.flush(&mut dirty, Site::Record, Extent::new(0, 8));
        media.fence(&mut dirty, Site::MoveCommit).expect("an honest fence");
        assert_eq!(media.pending_count(), 0, "{other:?} is honest");
    }
}

#[test]
fn the_chosen_fence_fails_and_closes_the_region() {
    let media = sim();
    media.fail_at(2);
    save(&media, 0, b"first");
    media.store(64, b"second").expect("in bounds");
    let failed = persist(&*media, Extent::new(64, 6), Site::Data, Site::Commit).expect_err("as chosen");
    assert!(matches!(failed, MediaError::WriteBack { .. }), "{failed}");
    assert_eq!(media.pending_count(), 1, "nothing was promised");
    assert!(media.closed().is_some());
    let later = persist(&*media, Extent::new(0, 5), Site::Data, Site::Commit);
    assert!(matches!(later, Err(MediaError::Closed { .. })));
    assert!(matches!(media.finish_writes(Ok(())), Err(MediaError::Closed { .. })));
    media.store(64, b"goes on").expect("the image stays writable");
}

#[test]
fn the_chosen_store_fails_changes_nothing_and_leaves_the_region_open() {
    let media = sim();
    media.fail_store_at(2);
    save(&media, 0, b"first");
    let failed = media.store(0, b"again").expect_err("as chosen");
    assert!(matches!(failed, MediaError::Io { .. }), "{failed}");
    assert_eq!(media.bytes(Extent::new(0, 5)).expect("in bounds"), b"first");
    assert_eq!((media.pending_count(), media.ops().stores, media.closed()), (0, 2, None));
    save(&media, 0, b"third");
    for (store, fails) in [(1, true), (2, false)] {
        let media = sim();
        media.fail_store_at(store);
        assert_eq!(media.store_u64(8, 1).is_err(), fails);
        let media = sim();
        media.fail_store_at(store);
        assert_eq!(media.zero(Extent::new(8, 8)).is_err(), fails);
    }
}

#[test]
fn a_run_that_cannot_be_read_cannot_be_stored_to_until_it_is_claimed() {
    let media = SimMedia::new(3 * RUN_SIZE, IMMEDIATE);
    media.fail_reads(Extent::new(RUN_SIZE, 2 * RUN_SIZE as u32));
    media.store(0, b"beside").expect("another run");
    assert!(media.store(RUN_SIZE + 8, b"x").is_err() && media.store_u64(RUN_SIZE + 8, 1).is_err());
    assert!(media.zero(Extent::new(RUN_SIZE, 8)).is_err(), "a part of it");
    assert_eq!((media.ops().stores, media.pending_count()), (1, 1));
    media.claim_run(RUN_SIZE).expect("there is space");
    media.store(RUN_SIZE + 8, b"x").expect("it is not read");
    assert!(media.store(2 * RUN_SIZE, b"x").is_err(), "another run");
    media.zero(Extent::new(2 * RUN_SIZE, RUN_SIZE as u32)).expect("it is not read");
    media.store(2 * RUN_SIZE, b"x").expect("it is in memory");
}

#[test]
fn later_operations_do_not_change_a_frozen_state() {
    let workload = |media: &SimMedia| {
        save(media, 0, b"one");
        save(media, 64, b"two");
    };
    let measured = sim();
    workload(&measured);
    let (counts, total) = (measured.ops(), measured.ops().total());
    assert_eq!((counts.stores, counts.flushes, counts.fences, total), (2, 2, 2, 6));
    for op in 0..=total {
        let media = sim();
        media.freeze_at(op);
        workload(&media);
        let state = media.frozen().expect("reached");
        assert_eq!(state.pending_count(), usize::from(![0, 3, 6].contains(&op)), "after operation {op}");
        let durable = state.durable_image();
        assert_eq!(&durable[..3] == b"one", op >= 3, "after operation {op}");
        assert_eq!(&durable[64..67] == b"two", op >= 6, "after operation {op}");
        assert!(state.crash_images_exhaustive(1).is_some_and(|images| images.len() <= 2));
    }
    let media = sim();
    media.freeze_at(total + 1);
    workload(&media);
    assert!(media.frozen().is_none(), "not reached");
    let media = sim();
    media.freeze_at_each([0, 2, 3, 6, total + 1]);
    workload(&media);
    let kept = media.frozen_each();
    assert_eq!(kept.iter().map(CrashState::pending_count).collect::<Vec<_>>(), [0, 1, 0, 0]);
    assert!(kept[3].durable_image() == media.crash_state().durable_image(), "the last one was not reached");
}

#[test]
fn a_crash_image_is_a_region_to_restart_from() {
    let media = sim();
    save(&media, 10, b"kept");
    let again = SimMedia::from_image(media.crash_image_seeded(1), SimOptions { deferred: true });
    assert_eq!(again.bytes(Extent::new(10, 4)).expect("in bounds"), b"kept");
    assert_eq!(again.kind(), MediaKind::Simulated);
    assert_eq!(again.commit_mode(), CommitMode::Deferred);
    assert!(again.file_writes(&Dirty::new()).is_empty() && again.image().is_none());
}

#[test]
fn the_medium_shows_durable_bytes_and_damage() {
    let media = sim();
    save(&media, 0, &[8; 4]);
    media.store(0, &[9; 4]).expect("in bounds");
    media.damage(1, 0x80);
    let mut medium = [0; 4];
    media.read_medium(Extent::new(0, 4), &mut medium).expect("in bounds");
    assert_eq!(medium, [8, 0x88, 8, 8]);
    assert_eq!(media.bytes(Extent::new(0, 4)).expect("in bounds"), [9, 0x89, 9, 9]);
}

#[test]
fn a_simulated_region_grows_with_durable_zeroes() {
    let media = SimMedia::new(1 << 20, IMMEDIATE);
    media.grow(2 << 20).expect("grown");
    save(&media, (2 << 20) - 3, b"end");
    let image = media.crash_image_seeded(3);
    assert_eq!((image.len(), &image[(2 << 20) - 4..]), (2 << 20, &b"\0end"[..]));
}

/// Two writers' bytes in one block: the second writer stores, and both commit. The second commit ends within the first
/// one or after it. True if a fenced byte may be lost.
fn loses_shared_block(media: &SimMedia, block: u64, first_ends_first: bool) -> bool {
    let (mut first, mut second) = (Dirty::new(), Dirty::new());
    let at = |writer: u64| Extent::new(block * BLOCK_SIZE + writer * 1024, 8);
    media.store(at(0).off, b"acked 1!").expect("in bounds");
    media.flush(&mut first, Site::Data, at(0));
    media.submit(&mut first);
    media.store(at(1).off, b"acked 2!").expect("in bounds");
    media.flush(&mut second, Site::Data, at(1));
    media.submit(&mut second);
    let (earlier, later) =
        if first_ends_first { (&mut first, &mut second) } else { (&mut second, &mut first) };
    media.fence(earlier, Site::Commit).expect("durable");
    media.fence(later, Site::Commit).expect("durable");
    let image = media.crash_state().durable_image();
    (0..2).any(|writer| !image[at(writer).off as usize..].starts_with(b"acked"))
}

const BLOCKS: u64 = 16;

#[test]
fn batches_that_share_a_block_wait_for_each_other_and_lose_nothing() {
    let media = SimMedia::new(BLOCKS * BLOCK_SIZE, SimOptions { deferred: true });
    for block in 0..BLOCKS {
        assert!(!loses_shared_block(&media, block, block % 2 == 0));
    }
    assert_eq!(media.pending_count(), 0);
}

#[test]
fn batches_that_share_a_block_lose_what_was_fenced_where_they_do_not_wait() {
    let media = SimMedia::new(BLOCKS * BLOCK_SIZE, SimOptions { deferred: true });
    media.overlap_blocks();
    let lost = (0..BLOCKS).filter(|block| loses_shared_block(&media, *block, block % 2 == 0)).count() as u64;
    assert!(0 < lost && lost < BLOCKS, "either may be written last, and {lost} of {BLOCKS} were lost");
}

#[test]
fn what_leaves_memory_is_read_again_if_it_was_durable_and_is_lost_if_not() {
    let media = SimMedia::new(2 * RUN_SIZE, IMMEDIATE);
    media.page(CHUNK_SIZE);
    let pages = std::sync::Arc::clone(&media).pages().expect("a paged region");
    let (kept, pinned) = (Extent::new(RUN_SIZE + 100, 7), Extent::new(RUN_SIZE + CHUNK_SIZE, 7));
    save(&media, kept.off, b"durable");
    media.store(kept.off + LINE_SIZE, b"pending").expect("in bounds");
    media.store(pinned.off, b"pending").expect("in bounds");
    pages.pin(pinned);
    assert_eq!(pages.evict(RUN_SIZE, Evict::Any, ChunkSet::ALL), RUN_SIZE - CHUNK_SIZE);
    assert!(!pages.is_resident(kept) && pages.is_resident(pinned));
    assert_eq!(pages.resident_bytes(), RUN_SIZE + CHUNK_SIZE);
    assert_eq!(media.bytes(kept).expect("in bounds"), b"durable");
    assert_eq!(media.bytes(Extent::new(kept.off + LINE_SIZE, 7)).expect("in bounds"), &[0; 7]);
    assert_eq!(media.bytes(pinned).expect("in bounds"), b"pending");
    assert!(pages.is_resident(kept));
    pages.unpin(pinned);
    assert_eq!(
        pages.evict(RUN_SIZE, Evict::Unused, ChunkSet::ALL),
        CHUNK_SIZE,
        "one was used, the others are gone"
    );
    assert_eq!(pages.cold_bytes(RUN_SIZE), 0);
    assert_eq!(pages.evict(RUN_SIZE, Evict::Unused, ChunkSet::ALL), CHUNK_SIZE);
}
