//! A fence or a store fails, for every one of a trace: of the log's writer, of the publisher and of the compactor. A failed
//! fence closes the region: nothing is acknowledged after it. A failed store leaves it open: what was refused has no effect.
//! A restart finds a whole tree: what the operations up to some of them make, all that were acknowledged included.
#![allow(clippy::print_stdout, reason = "the result includes how many operations failed")]

mod common;

use common::{Content, Medium, ROOT, View, World, check};
use landfall_fs::{Attributes, FileType, FsError, InodeNumber, Mode, Name, Operation};
use landfall_heap::{CompactGoal, Until};
use landfall_media::Media;
use std::collections::BTreeMap;

/// Steps after which compaction must have nothing to do.
const STEPS_MAX: usize = 200;

/// One step of a trace. All files are in the root.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create(&'static str),
    /// Name, offset, length, seed.
    Write(&'static str, usize, usize, u8),
    SetSize(&'static str, usize),
    Rename(&'static str, &'static str),
    Unlink(&'static str),
    Sync,
    Publish,
    Compact(bool),
}

const TRACE: [Step; 24] = [
    Step::Create("a"),
    Step::Write("a", 0, 9000, 1),
    Step::Sync,
    Step::Create("b"),
    Step::Write("b", 4096, 20_000, 2),
    Step::Write("a", 100, 50, 3),
    Step::Publish,
    Step::Rename("a", "c"),
    Step::Write("c", 3000, 70_000, 4),
    Step::SetSize("b", 5000),
    Step::Sync,
    Step::Create("d"),
    Step::Unlink("b"),
    Step::Publish,
    Step::Write("c", 0, 4096, 5),
    Step::Write("d", 0, 30_000, 6),
    Step::Publish,
    Step::Compact(false),
    Step::Compact(true),
    Step::Create("e"),
    Step::Write("e", 10, 3, 7),
    Step::Sync,
    Step::Publish,
    Step::Unlink("c"),
];

/// The files of the root and their bytes.
type Model = BTreeMap<&'static str, Vec<u8>>;

fn bytes_of(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 13 % 241) as u8 ^ seed).collect()
}

impl Step {
    fn apply(self, model: &mut Model) {
        match self {
            Self::Create(name) => _ = model.insert(name, Vec::new()),
            Self::Write(name, offset, len, seed) => {
                let bytes = model.get_mut(name).expect("it is there");
                bytes.resize(bytes.len().max(offset + len), 0);
                bytes[offset..offset + len].copy_from_slice(&bytes_of(len, seed));
            }
            Self::SetSize(name, size) => model.get_mut(name).expect("it is there").resize(size, 0),
            Self::Rename(from, to) => {
                let bytes = model.remove(from).expect("it is there");
                model.insert(to, bytes);
            }
            Self::Unlink(name) => _ = model.remove(name),
            Self::Sync | Self::Publish | Self::Compact(_) => {}
        }
    }

    /// True if everything before it is durable when it has returned.
    fn makes_durable(self) -> bool {
        matches!(self, Self::Sync | Self::Publish)
    }

    /// True if it needs a file that is not there, since what would have made it was refused.
    fn lacks_file(self, model: &Model) -> bool {
        match self {
            Self::Write(name, ..) | Self::SetSize(name, _) | Self::Rename(name, _) | Self::Unlink(name) => {
                !model.contains_key(name)
            }
            _ => false,
        }
    }

    fn execute(self, world: &mut World) -> Result<(), FsError> {
        loop {
            match self.attempt(world) {
                Err(FsError::Wait(Until::Commit)) => world.files.sync_all()?,
                done => return done,
            }
        }
    }

    fn attempt(self, world: &mut World) -> Result<(), FsError> {
        world.now_ns += 1;
        match self {
            Self::Create(text) => {
                let (number, mode) = (world.files.take_number(), Mode::new(FileType::File, 0o644));
                let place = Some((ROOT, name(text)));
                let create = Operation::Create { place, number, mode, uid: 0, gid: 0, rdev: 0 };
                world.files.execute(world.now_ns, &create)
            }
            Self::Write(text, offset, len, seed) => {
                let number = find(world, text)?;
                world.try_write(number, offset as u64, &bytes_of(len, seed))
            }
            Self::SetSize(text, size) => {
                let number = find(world, text)?;
                let attributes = Attributes { size: Some(size as u64), ..Attributes::default() };
                world.files.execute(world.now_ns, &Operation::SetAttributes { number, attributes })
            }
            Self::Rename(from, to) => {
                let (name, new_name) = (name(from), name(to));
                let (parent, new_parent, no_replace, exchange) = (ROOT, ROOT, false, false);
                let rename = Operation::Rename { parent, name, new_parent, new_name, no_replace, exchange };
                world.files.execute(world.now_ns, &rename)
            }
            Self::Unlink(text) => {
                let unlink = Operation::Unlink { parent: ROOT, name: name(text), is_directory: false };
                world.files.execute(world.now_ns, &unlink)
            }
            Self::Sync => world.files.sync_all(),
            Self::Publish => world.publisher.step().map(drop),
            Self::Compact(slabs) => compact(world, slabs),
        }
    }
}

fn name(text: &'static str) -> Name<'static> {
    Name::new(text.as_bytes()).expect("a good name")
}

fn find(world: &World, text: &'static str) -> Result<InodeNumber, FsError> {
    Ok(world.files.lookup(ROOT, name(text))?.number)
}

fn compact(world: &mut World, slabs: bool) -> Result<(), FsError> {
    let goal = if slabs { CompactGoal::DENSE_SLABS } else { CompactGoal::DENSE_DATA };
    for _ in 0..STEPS_MAX {
        if world.compactor.step(&*world.files, goal, 1 << 20)?.is_idle {
            return Ok(());
        }
    }
    panic!("compaction finds no end");
}

/// The files that are found, without the root.
fn found_in(view: &View) -> Vec<(&str, &[u8])> {
    let mut found = Vec::new();
    for (path, seen) in view {
        if let Content::File(bytes) = &seen.content {
            found.push((path.trim_start_matches('/'), bytes.as_slice()));
        }
    }
    found
}

fn is_found(model: &Model, view: &View) -> bool {
    model.iter().map(|(name, bytes)| (*name, bytes.as_slice())).eq(found_in(view))
}

/// Each of several crashes at this moment leaves one of these.
fn judge(world: &World, kind: Medium, possible: &[Model], context: &str, number: u64) {
    // What panics below belongs to this.
    println!("{context}");
    let state = world.media.crash_state();
    let images = std::iter::once(state.durable()).chain((0..2).map(|seed| state.draw(seed * 1000 + number)));
    for image in images {
        check(kind.restart(&image));
        let view = World::open(kind.restart(&image)).view();
        let is_possible = possible.iter().any(|model| is_found(model, &view));
        assert!(is_possible, "{context}: {:?} is no state that a crash may leave", view.keys());
    }
}

/// Runs the trace until a fence fails. False if the trace has fewer.
fn fail_fence(kind: Medium, fence: u64) -> bool {
    let mut world = World::open(kind.region());
    world.media.fail_at(world.media.ops().fences + fence);
    let (mut states, mut durable) = (vec![Model::new()], 0);
    for step in TRACE {
        let mut next = states[states.len() - 1].clone();
        step.apply(&mut next);
        states.push(next);
        let context = format!("fence {fence}, {kind:?}, at {step:?}");
        let Err(error) = step.execute(&mut world) else {
            assert_eq!(world.media.closed(), None, "{context}: the failure was not reported");
            durable = if step.makes_durable() { states.len() - 1 } else { durable };
            continue;
        };
        assert!(world.media.closed().is_some(), "{context}: {error}");
        judge(&world, kind, &states[durable..], &context, fence);
        let late = Step::Create("late").execute(&mut world).and_then(|()| world.files.sync_all());
        assert!(late.is_err(), "{context}: a closed region has acknowledged an operation");
        return true;
    }
    false
}

/// Runs the trace with one store that fails. True if a step was refused for it; `None` if the trace has fewer stores.
fn fail_store(kind: Medium, store: u64) -> Option<bool> {
    let mut world = World::open(kind.region());
    let chosen = world.media.ops().stores + store;
    world.media.fail_store_at(chosen);
    let (mut states, mut durable, mut was_refused) = (vec![Model::new()], 0, false);
    for step in TRACE {
        let mut next = states[states.len() - 1].clone();
        if step.lacks_file(&next) {
            continue;
        }
        let context = format!("store {store}, {kind:?}, at {step:?}");
        let is_due = world.media.ops().stores < chosen;
        let done = step.execute(&mut world);
        let has_failed = is_due && world.media.ops().stores >= chosen;
        match done {
            Ok(()) => {
                step.apply(&mut next);
                states.push(next);
                durable = if step.makes_durable() { states.len() - 1 } else { durable };
            }
            Err(error) => {
                assert!(has_failed, "{context}: {error}");
                was_refused = true;
            }
        }
        if has_failed {
            assert!(is_found(&states[states.len() - 1], &world.view()), "{context}: something else is shown");
            judge(&world, kind, &states[durable..], &context, store);
        }
    }
    if world.media.ops().stores < chosen {
        return None;
    }
    let context = format!("store {store}, {kind:?}, at the end");
    assert_eq!(world.media.closed(), None, "{context}: nothing was to become durable with it");
    Step::Sync.execute(&mut world).unwrap_or_else(|error| panic!("{context}: {error}"));
    Step::Publish.execute(&mut world).unwrap_or_else(|error| panic!("{context}: {error}"));
    let last = &states[states.len() - 1..];
    assert!(is_found(&last[0], &world.view()), "{context}: something else is shown");
    judge(&world, kind, last, &context, store);
    Some(was_refused)
}

/// Without and with deferred commits and paging.
const KINDS: [Medium; 2] = [Medium::ALL[0], Medium::ALL[3]];

#[test]
fn a_fence_that_fails_closes_the_region_and_nothing_acknowledged_is_lost() {
    for kind in KINDS {
        let failed = (1..).take_while(|fence| fail_fence(kind, *fence)).count();
        println!("{kind:?}: {failed} fences failed in turn");
        assert!(failed > 8, "the trace has more fences than {failed}");
    }
}

#[test]
fn a_store_that_fails_is_reported_and_what_was_refused_has_no_effect() {
    for kind in KINDS {
        let (mut tried, mut refused) = (0, 0);
        while let Some(was_refused) = fail_store(kind, tried + 1) {
            (tried, refused) = (tried + 1, refused + u64::from(was_refused));
        }
        println!("{kind:?}: {tried} stores failed in turn, {refused} steps were refused");
        assert!(tried > 30 && refused > 10, "the trace has more stores than {tried}, {refused}");
    }
}
