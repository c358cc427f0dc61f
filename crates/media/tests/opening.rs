//! Opening, creating and locking a region, and refusing what was not requested.

mod common;

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use common::{create, creating, disk, memory, places, region};
use landfall_media::{
    Extent, FlushInstruction, MediaError, MediaKind, MediaRequest, OpenOptions, RUN_SIZE, open,
};

fn asking(request: MediaRequest) -> OpenOptions {
    OpenOptions { request, ..creating(1) }
}

fn reading() -> OpenOptions {
    OpenOptions { read_only: true, ..OpenOptions::default() }
}

#[test]
fn a_new_region_is_private_allocated_zero_and_marked_as_created() {
    for dir in places() {
        let opened = create(&region(&dir), 2).expect("created");
        assert!(opened.created);
        assert_eq!(opened.media.len(), 2 * RUN_SIZE);
        assert_eq!(opened.media.kind(), opened.kind);
        let zeroes = opened.media.bytes(Extent::new(0, 2 * RUN_SIZE as u32)).expect("readable");
        assert!(zeroes.iter().all(|byte| *byte == 0));
        let meta = fs::metadata(region(&dir)).expect("it is there");
        assert_eq!(meta.mode() & 0o7777, 0o600);
        assert!(meta.blocks() * 512 >= 2 * RUN_SIZE, "a full disk must be found now");
        drop(opened);
        assert!(!create(&region(&dir), 5).expect("opened").created, "it exists: it is opened");
    }
}

#[test]
fn a_second_opener_is_locked_out_until_the_first_closes() {
    for dir in places() {
        let first = create(&region(&dir), 1).expect("created");
        for options in [OpenOptions::default(), creating(1), reading()] {
            let second = open(&region(&dir), &options).expect_err("the first has it");
            assert!(matches!(second, MediaError::Locked { .. }), "{second}");
        }
        drop(first);
        open(&region(&dir), &OpenOptions::default()).expect("free again");
    }
}

#[test]
fn readers_share_a_region_and_keep_writers_out() {
    for dir in places() {
        drop(create(&region(&dir), 1).expect("created"));
        let readers: Vec<_> = (0..2).map(|_| open(&region(&dir), &reading()).expect("shared")).collect();
        let writer = open(&region(&dir), &OpenOptions::default());
        assert!(matches!(writer, Err(MediaError::Locked { .. })));
        assert_eq!(readers[1].media.bytes(Extent::new(9, 3)).expect("readable"), [0; 3]);
    }
}

#[test]
fn a_region_opened_for_reading_refuses_every_change() {
    for dir in places() {
        drop(create(&region(&dir), 1).expect("created"));
        let media = open(&region(&dir), &reading()).expect("opened").media;
        assert!(media.store(0, b"x").is_err());
        assert!(media.store_u64(0, 1).is_err());
        assert!(media.zero(Extent::new(0, 1)).is_err());
        assert!(media.grow(2 * RUN_SIZE).is_err());
        assert!(media.closed().expect("a reason").contains("read-only"));
        assert!(media.describe().contains("read-only"));
        assert!(!media.load_some().expect("nothing to prepare"));
    }
}

#[test]
fn a_missing_file_is_not_found_and_nothing_is_left_behind() {
    for dir in places() {
        for options in [OpenOptions::default(), OpenOptions { read_only: true, ..creating(1) }] {
            let error = open(&region(&dir), &options).expect_err("nothing there");
            assert!(matches!(&error, MediaError::Io { source, .. } if source.kind() == ErrorKind::NotFound));
        }
        let left = fs::read_dir(dir.path())
            .expect("a directory")
            .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name() != "probe"));
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn a_file_shorter_than_one_run_is_truncated_and_odd_lengths_are_rounded_down() {
    for dir in places() {
        fs::write(region(&dir), vec![1; RUN_SIZE as usize - 1]).expect("a file");
        let error = open(&region(&dir), &OpenOptions::default()).expect_err("too short");
        assert!(matches!(error, MediaError::Truncated { actual, .. } if actual == RUN_SIZE - 1), "{error}");
        fs::write(region(&dir), vec![1; 2 * RUN_SIZE as usize + 5]).expect("a file");
        assert_eq!(open(&region(&dir), &OpenOptions::default()).expect("opened").media.len(), 2 * RUN_SIZE);
    }
}

#[test]
fn a_capacity_that_is_no_positive_multiple_of_a_run_is_refused() {
    for dir in places() {
        for len in [0, 1, RUN_SIZE + 4096] {
            let options = OpenOptions { create: Some(len), ..OpenOptions::default() };
            assert!(matches!(open(&region(&dir), &options), Err(MediaError::Unsupported(_))));
        }
        assert!(!region(&dir).exists());
    }
}

#[test]
fn an_ordinary_file_is_never_opened_as_memory() {
    let Some(dir) = disk() else { return };
    for request in [MediaRequest::Dax, MediaRequest::Volatile] {
        let error = open(&region(&dir), &asking(request)).expect_err("it is a file");
        assert!(matches!(error, MediaError::WrongKind { found: "file", .. }), "{error}");
        assert!(!region(&dir).exists(), "a refused region is not created");
    }
    let opened = open(&region(&dir), &asking(MediaRequest::File)).expect("as asked");
    assert_eq!(opened.kind, MediaKind::File);
}

#[test]
fn volatile_memory_is_never_opened_as_a_file() {
    let Some(dir) = memory() else { return };
    for request in [MediaRequest::Dax, MediaRequest::File] {
        let error = open(&region(&dir), &asking(request)).expect_err("it is volatile");
        assert!(matches!(error, MediaError::WrongKind { found: "volatile", .. }), "{error}");
        assert!(error.to_string().contains("--media"), "the advice names the flag: {error}");
    }
    let opened = open(&region(&dir), &asking(MediaRequest::Volatile)).expect("as asked");
    assert_eq!(opened.kind, MediaKind::Volatile);
    let text = opened.media.describe();
    assert!(text.starts_with("volatile (tmpfs): survives a crash of the process, not of the machine; flush"));
}

#[test]
fn the_flush_instruction_can_be_chosen_and_is_reported() {
    let Some(dir) = memory() else { return };
    for flush in [FlushInstruction::Clflush, FlushInstruction::None, FlushInstruction::detect()] {
        let options = OpenOptions { flush: Some(flush), ..creating(1) };
        let media = open(&region(&dir), &options).expect("opened").media;
        assert!(media.describe().ends_with(&format!("flush {flush}")), "{}", media.describe());
    }
}

#[test]
fn a_directory_that_takes_no_files_is_an_error_with_advice() {
    let error = create(Path::new("/sys/kernel/region"), 1).expect_err("sysfs takes no files");
    assert!(
        matches!(&error, MediaError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied),
        "{error}"
    );
    assert!(error.to_string().contains("check the owner and mode"), "{error}");
    let error = create(Path::new("/no such directory/region"), 1).expect_err("no directory");
    assert!(error.to_string().contains("check that the directory exists"), "{error}");
}

#[test]
fn a_directory_or_a_device_is_not_a_region() {
    for dir in places() {
        assert!(matches!(create(dir.path(), 1), Err(MediaError::Io { .. })));
    }
    assert!(matches!(create(Path::new("/dev/null"), 1), Err(MediaError::Unsupported(_))));
}

#[test]
fn a_file_without_write_permission_opens_for_reading_only() {
    for dir in places() {
        drop(create(&region(&dir), 1).expect("created"));
        fs::set_permissions(region(&dir), Permissions::from_mode(0o400)).expect("our file");
        let may_write_anything = fs::OpenOptions::new().write(true).open(region(&dir)).is_ok();
        let writing = open(&region(&dir), &OpenOptions::default());
        assert_eq!(writing.is_ok(), may_write_anything, "root may, others may not");
        drop(writing);
        open(&region(&dir), &reading()).expect("readable");
    }
}

#[test]
fn names_of_requests_parse_back() {
    for request in [MediaRequest::Auto, MediaRequest::Dax, MediaRequest::File, MediaRequest::Volatile] {
        assert_eq!(request.to_string().parse::<MediaRequest>().ok(), Some(request));
    }
    assert!("ssd".parse::<MediaRequest>().is_err());
}
