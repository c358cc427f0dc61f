//! A static chain: watched while an editor changes it.

use landfall_members::{Event, Member, MembersError, Membership, Role, StaticFile};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const WAIT: Duration = Duration::from_secs(20);

fn write(path: &Path, epoch: u64, server: u16, age: u64) {
    let new = path.with_extension("new");
    let text = format!("name = \"lab\"\nepoch = {epoch}\nserver = \"10.0.0.9:{server}\"\n");
    std::fs::write(&new, text).unwrap();
    let modified = SystemTime::now() - Duration::from_secs(age);
    File::options().write(true).open(&new).unwrap().set_modified(modified).unwrap();
    std::fs::rename(&new, path).unwrap();
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chain.toml");
    (folder, path)
}

#[test]
fn a_watch_follows_the_file_and_says_when_it_cannot() {
    let (_folder, path) = folder();
    write(&path, 1, 51000, 90);
    let watch = Membership::Static(StaticFile::new(&path)).watch_every(Duration::from_millis(10)).unwrap();
    let next = || watch.event(WAIT).expect("an event");
    assert!(matches!(next(), Event::ChainChanged(chain) if chain.epoch == 1));

    write(&path, 2, 51000, 80);
    assert!(matches!(next(), Event::ChainChanged(chain) if chain.epoch == 2));

    std::fs::remove_file(&path).unwrap();
    assert!(matches!(next(), Event::SourceLost(MembersError::File { .. })));
    write(&path, 2, 51000, 70);
    assert!(matches!(next(), Event::SourceBack));
    assert!(watch.event(Duration::from_millis(200)).is_none(), "the chain was reported before");
}

#[test]
fn a_change_without_a_higher_epoch_is_not_followed_until_it_has_one() {
    let (_folder, path) = folder();
    write(&path, 1, 51000, 90);
    let watch = Membership::Static(StaticFile::new(&path)).watch_every(Duration::from_millis(10)).unwrap();
    let next = || watch.event(WAIT).expect("an event");
    assert!(matches!(next(), Event::ChainChanged(_)));
    write(&path, 1, 51001, 80);
    let lost = next();
    assert!(
        matches!(lost, Event::SourceLost(MembersError::EpochNotRaised { seen: 1, found: 1 })),
        "{lost:?}"
    );
    assert!(watch.event(Duration::from_millis(500)).is_none(), "it stays wrong");
    write(&path, 2, 51001, 70);
    assert!(matches!(next(), Event::SourceBack));
    assert!(matches!(next(), Event::ChainChanged(chain) if chain.server.port() == 51001));
}

#[test]
fn a_file_is_changed_by_its_editor_only_and_registers_nobody() {
    let (_folder, path) = folder();
    write(&path, 1, 51000, 0);
    let file = Membership::Static(StaticFile::new(&path));
    let refused = file.fail_device("a").unwrap_err();
    assert!(
        matches!(refused, MembersError::ReadOnly { .. }) && refused.to_string().contains("edit the file")
    );
    assert!(matches!(file.init(&file.show().unwrap().chain), Err(MembersError::ReadOnly { .. })));
    let address = "127.0.0.1:1".parse().unwrap();
    let member = Member { name: "a".into(), role: Role::Device, address, incarnation: 1, since: 0 };
    assert!(matches!(file.register(member, Duration::from_secs(2)), Err(MembersError::NoRegister { .. })));
}
