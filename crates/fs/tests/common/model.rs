//! Random operations on files, and a model of them: a plain map of directories and bytes.

use super::{Content, ROOT, Seen, View, World, region};
use landfall_fs::{Call, Calls, FileType, InodeNumber, Name, Operation, Publishing};
use landfall_heap::CompactGoal;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub const NAMES: [&str; 5] = ["a", "b", "c", "a longer name that does not fit into a record's body", "e"];
/// Most bytes of a file.
pub const FILE_BYTES: u64 = 40_000;

#[derive(Clone, Debug)]
pub enum Step {
    Create(usize, usize, bool),
    Write(usize, u64, usize, u8),
    SetSize(usize, u64),
    /// Mode, offset, length.
    Allocate(usize, u32, u64, u64),
    Clone(usize, usize, u64, u64),
    Link(usize, usize, usize),
    Unlink(usize, usize),
    Rename((usize, usize), (usize, usize)),
    Exchange((usize, usize), (usize, usize)),
    Symlink(usize, usize),
    SetExtended(usize, u8),
    RemoveExtended(usize),
    Sync,
    Publish,
    /// From now on in this way.
    PublishBy(Publishing),
    Compact(bool),
    Mark,
    /// Data leave the memory of a paged region.
    Evict,
}

pub fn step() -> impl Strategy<Value = Step> {
    let place = || (any::<usize>(), 0..NAMES.len());
    let offset = || prop_oneof![(0..FILE_BYTES), (0..FILE_BYTES / 4096).prop_map(|block| block * 4096)];
    prop_oneof![
        4 => (any::<usize>(), 0..NAMES.len(), prop::bool::weighted(0.3))
            .prop_map(|(at, name, directory)| Step::Create(at, name, directory)),
        8 => (any::<usize>(), offset(), prop_oneof![1..200_usize, 1..9000_usize, Just(4096), Just(16_384)], any::<u8>())
            .prop_map(|(at, offset, len, seed)| Step::Write(at, offset, len, seed)),
        2 => (any::<usize>(), offset()).prop_map(|(at, size)| Step::SetSize(at, size)),
        2 => (any::<usize>(), prop::sample::select(vec![0, 1, 3, 16, 17, 8, 32]), offset(), offset())
            .prop_map(|(at, mode, offset, len)| Step::Allocate(at, mode, offset, len)),
        1 => (any::<usize>(), any::<usize>(), 0..4_u64, 0..4_u64)
            .prop_map(|(from, to, at, offset)| Step::Clone(from, to, at, offset)),
        1 => (any::<usize>(), 0..NAMES.len(), any::<usize>()).prop_map(|(at, name, to)| Step::Link(at, name, to)),
        3 => place().prop_map(|(at, name)| Step::Unlink(at, name)),
        2 => (place(), place()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (place(), place()).prop_map(|(from, to)| Step::Exchange(from, to)),
        1 => place().prop_map(|(at, name)| Step::Symlink(at, name)),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(at, value)| Step::SetExtended(at, value)),
        1 => any::<usize>().prop_map(Step::RemoveExtended),
        3 => Just(Step::Sync),
        3 => Just(Step::Publish),
        1 => prop::sample::select(vec![Publishing::Relink, Publishing::Copy, Publishing::CopyEach]).prop_map(Step::PublishBy),
        1 => any::<bool>().prop_map(Step::Compact),
        1 => Just(Step::Mark),
        2 => Just(Step::Evict),
    ]
}

#[derive(Clone, Debug)]
pub struct Inode {
    pub content: Content,
    pub names: BTreeMap<String, InodeNumber>,
    pub extended: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Inode {
    pub fn new(content: Content) -> Self {
        Self { content, names: BTreeMap::new(), extended: BTreeMap::new() }
    }
}

/// What files are: inodes, and names in directories.
#[derive(Clone, Debug)]
pub struct Model(pub BTreeMap<InodeNumber, Inode>);

impl Model {
    pub fn new() -> Self {
        Self(BTreeMap::from([(ROOT, Inode::new(Content::Directory))]))
    }

    pub fn of(&self, is_wanted: impl Fn(&Content) -> bool) -> Vec<InodeNumber> {
        self.0.iter().filter(|(_, inode)| is_wanted(&inode.content)).map(|(number, _)| *number).collect()
    }

    pub fn directory(&self, at: usize) -> InodeNumber {
        let all = self.of(|content| *content == Content::Directory);
        all[at % all.len()]
    }

    pub fn file(&self, at: usize) -> Option<InodeNumber> {
        let all = self.of(|content| matches!(content, Content::File(_)));
        (!all.is_empty()).then(|| all[at % all.len()])
    }

    pub fn bytes(&mut self, number: InodeNumber) -> &mut Vec<u8> {
        match &mut self.0.get_mut(&number).expect("it is there").content {
            Content::File(bytes) => bytes,
            other => panic!("{other:?} is no file"),
        }
    }

    pub fn get(&self, (at, name): (usize, usize)) -> Option<InodeNumber> {
        self.0[&self.directory(at)].names.get(NAMES[name]).copied()
    }

    pub fn nlink(&self, number: InodeNumber) -> u32 {
        let all = self.0.values().flat_map(|inode| inode.names.values());
        let names = all.filter(|named| **named == number).count() as u32;
        let of = |number: &&InodeNumber| self.0[*number].content == Content::Directory;
        match self.0[&number].content {
            Content::Directory => 2 + self.0[&number].names.values().filter(of).count() as u32,
            _ => names,
        }
    }

    pub fn is_below(&self, number: InodeNumber, ancestor: InodeNumber) -> bool {
        number == ancestor
            || self.0[&ancestor]
                .names
                .values()
                .any(|child| self.0[child].content == Content::Directory && self.is_below(number, *child))
    }

    pub fn view(&self) -> View {
        let mut view = View::new();
        self.look(ROOT, "", &mut view);
        view
    }

    pub fn look(&self, number: InodeNumber, path: &str, view: &mut View) {
        let inode = &self.0[&number];
        let seen = Seen {
            number,
            nlink: self.nlink(number),
            content: inode.content.clone(),
            extended: inode.extended.clone(),
        };
        view.insert(path.to_owned(), seen);
        for (name, number) in &inode.names {
            self.look(*number, &format!("{path}/{name}"), view);
        }
    }
}

pub fn name(at: usize) -> Name<'static> {
    Name::new(NAMES[at].as_bytes()).expect("a good name")
}

/// Files and their model.
pub struct Pair {
    pub world: World,
    pub model: Model,
    /// Which calls were done: most steps are one.
    pub calls: Calls,
    /// What both were after each operation, and how many of these are known to be durable.
    pub states: Vec<(View, Calls)>,
    pub durable: usize,
}

impl Pair {
    pub fn new() -> Self {
        Self::of(World::open(region()))
    }

    pub fn of(world: World) -> Self {
        let (model, calls) = (Model::new(), Calls::default());
        Self { world, states: vec![(model.view(), calls.clone())], model, calls, durable: 1 }
    }

    pub fn run(&mut self, step: &Step) {
        let id = self.states.len() as u64;
        let mount = if id.is_multiple_of(2) { id % 3 } else { id };
        let call = Call { mount: [mount as u8; 16], queue: (id % 2) as u8, id, numbers: [id + 1, 7] };
        if id % 4 < 3 {
            self.world.caller.begin(call);
        }
        self.execute(step);
        if id % 4 < 3 && !self.world.caller.give_up() {
            self.calls.note(&call);
        }
        self.states.push((self.model.view(), self.calls.clone()));
        let is_durable = matches!(step, Step::Sync | Step::Publish) && self.world.media.frozen().is_none();
        if is_durable {
            self.durable = self.states.len();
        }
    }

    fn execute(&mut self, step: &Step) {
        match *step {
            Step::Create(at, text, is_directory) if self.model.get((at, text)).is_none() => {
                let parent = self.model.directory(at);
                let file_type = if is_directory { FileType::Directory } else { FileType::File };
                let number = self.world.create(parent, NAMES[text], file_type);
                let content = if is_directory { Content::Directory } else { Content::File(Vec::new()) };
                self.add(parent, text, number, content);
            }
            Step::Symlink(at, text) if self.model.get((at, text)).is_none() => {
                let (parent, number) = (self.model.directory(at), self.world.files.take_number());
                let target = NAMES[text].as_bytes();
                self.world.run(&Operation::Symlink {
                    parent,
                    name: name(text),
                    number,
                    uid: 0,
                    gid: 0,
                    target,
                });
                self.add(parent, text, number, Content::Link(target.to_vec()));
            }
            Step::Link(at, text, to) if self.model.get((at, text)).is_none() => {
                let Some(number) = self.model.file(to) else { return };
                let parent = self.model.directory(at);
                self.world.run(&Operation::Link { parent, name: name(text), number, replaces: false });
                self.names(parent).insert(NAMES[text].to_owned(), number);
            }
            Step::Unlink(at, text) => self.unlink(at, text),
            Step::Rename(from, to) => self.rename(from, to),
            Step::Exchange(from, to) => self.exchange(from, to),
            Step::SetExtended(at, value) => {
                let number = self.model.directory(at);
                self.world.set_extended(number, "user.a/b", &[value; 100]);
                let inode = self.model.0.get_mut(&number).expect("it is there");
                inode.extended.insert(b"user.a/b".to_vec(), vec![value; 100]);
            }
            Step::RemoveExtended(at) => {
                let number = self.model.directory(at);
                let name = landfall_fs::ExtendedName::new(b"user.a/b").expect("a good name");
                if self.model.0.get_mut(&number).expect("it is there").extended.remove(name.bytes()).is_some()
                {
                    self.world.run(&Operation::RemoveExtended { number, name });
                }
            }
            Step::Sync => self.world.files.sync_all().expect("syncs"),
            Step::Publish => self.world.publish(),
            Step::PublishBy(publishing) => self.world.publisher.set_publishing(publishing),
            Step::Compact(slabs) => {
                self.world.compact(if slabs { CompactGoal::DENSE_SLABS } else { CompactGoal::DENSE_DATA });
            }
            Step::Evict => _ = self.world.evict(),
            Step::Mark => drop(self.world.files.heap().mark_slabs(1).expect("marks")),
            _ => self.change_bytes(step),
        }
    }

    pub fn names(&mut self, number: InodeNumber) -> &mut BTreeMap<String, InodeNumber> {
        &mut self.model.0.get_mut(&number).expect("it is there").names
    }

    pub fn add(&mut self, parent: InodeNumber, text: usize, number: InodeNumber, content: Content) {
        self.model.0.insert(number, Inode::new(content));
        self.names(parent).insert(NAMES[text].to_owned(), number);
    }

    pub fn unlink(&mut self, at: usize, text: usize) {
        let Some(number) = self.model.get((at, text)) else { return };
        let is_directory = self.model.0[&number].content == Content::Directory;
        if !self.model.0[&number].names.is_empty() {
            return;
        }
        let parent = self.model.directory(at);
        self.world.run(&Operation::Unlink { parent, name: name(text), is_directory });
        self.names(parent).remove(NAMES[text]);
        self.drop_unnamed(number);
    }

    /// Deletes an inode that has lost its last name.
    pub fn drop_unnamed(&mut self, number: InodeNumber) {
        let is_named = self.model.0.values().any(|inode| inode.names.values().any(|named| *named == number));
        if !is_named {
            self.world.run(&Operation::Release { number });
            self.model.0.remove(&number);
        }
    }

    pub fn rename(&mut self, from: (usize, usize), to: (usize, usize)) {
        let (parent, new_parent) = (self.model.directory(from.0), self.model.directory(to.0));
        let (Some(number), old) = (self.model.get(from), self.model.get(to)) else { return };
        let is_directory = |number: InodeNumber| self.model.0[&number].content == Content::Directory;
        let fits = old.is_none_or(|old| {
            old != number && is_directory(old) == is_directory(number) && self.model.0[&old].names.is_empty()
        });
        let is_cycle = is_directory(number) && self.model.is_below(new_parent, number);
        if !fits || is_cycle || (parent, from.1) == (new_parent, to.1) {
            return;
        }
        let (name, new_name) = (name(from.1), name(to.1));
        let (no_replace, exchange) = (false, false);
        self.world.run(&Operation::Rename { parent, name, new_parent, new_name, no_replace, exchange });
        self.names(parent).remove(NAMES[from.1]);
        self.names(new_parent).insert(NAMES[to.1].to_owned(), number);
        if let Some(old) = old {
            self.drop_unnamed(old);
        }
    }

    pub fn exchange(&mut self, from: (usize, usize), to: (usize, usize)) {
        let (parent, new_parent) = (self.model.directory(from.0), self.model.directory(to.0));
        let (Some(one), Some(other)) = (self.model.get(from), self.model.get(to)) else { return };
        let is_directory = |number: InodeNumber| self.model.0[&number].content == Content::Directory;
        let is_cycle = is_directory(one) && self.model.is_below(new_parent, one)
            || is_directory(other) && self.model.is_below(parent, other);
        if is_cycle || one == other {
            return;
        }
        let (name, new_name) = (name(from.1), name(to.1));
        let (no_replace, exchange) = (false, true);
        self.world.run(&Operation::Rename { parent, name, new_parent, new_name, no_replace, exchange });
        self.names(parent).insert(NAMES[from.1].to_owned(), other);
        self.names(new_parent).insert(NAMES[to.1].to_owned(), one);
    }

    pub fn change_bytes(&mut self, step: &Step) {
        match *step {
            Step::Write(at, offset, len, seed) => {
                let Some(file) = self.model.file(at) else { return };
                let bytes: Vec<u8> = (0..len).map(|at| (at * 13 % 241) as u8 ^ seed).collect();
                self.world.write(file, offset, &bytes);
                let (model, offset) = (self.model.bytes(file), offset as usize);
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].copy_from_slice(&bytes);
            }
            Step::SetSize(at, size) => {
                let Some(file) = self.model.file(at) else { return };
                self.world.set_size(file, size);
                self.model.bytes(file).resize(size as usize, 0);
            }
            Step::Allocate(at, mode, offset, len) => self.allocate(at, mode, offset, len),
            Step::Clone(from, to, at, offset) => {
                let (Some(source), Some(file)) = (self.model.file(from), self.model.file(to)) else { return };
                let (source_offset, offset, len) = (at * 4096, offset * 4096, 8192);
                let from = self.model.bytes(source).clone();
                if source == file || from.len() < (source_offset + len) as usize {
                    return;
                }
                self.world.run(&Operation::Clone { number: file, offset, source, source_offset, len });
                let (model, offset) = (self.model.bytes(file), offset as usize);
                model.resize(model.len().max(offset + len as usize), 0);
                let part = &from[source_offset as usize..(source_offset + len) as usize];
                model[offset..offset + len as usize].copy_from_slice(part);
            }
            _ => {}
        }
    }

    pub fn allocate(&mut self, at: usize, mode: u32, offset: u64, len: u64) {
        let Some(number) = self.model.file(at) else { return };
        let model = self.model.bytes(number);
        let size = model.len() as u64;
        let (shifts, aligned) =
            (mode == 8 || mode == 32, offset.is_multiple_of(4096) && len.is_multiple_of(4096));
        let fits = match mode {
            8 => offset + len < size,
            32 => offset < size,
            _ => true,
        };
        if len == 0 || shifts && !aligned || !fits {
            return;
        }
        self.world.run(&Operation::Allocate { number, mode, offset, len });
        let (from, to) = (offset as usize, (offset + len) as usize);
        match mode {
            8 => drop(model.drain(from..to)),
            32 => drop(model.splice(from..from, std::iter::repeat_n(0, to - from))),
            _ => {
                if mode & 1 == 0 {
                    model.resize(model.len().max(to), 0);
                }
                if mode > 1 {
                    let end = to.min(model.len());
                    model[from.min(end)..end].fill(0);
                }
            }
        }
    }
}

/// Prints the first differing path, which is all that a person can read.
pub fn assert_same(seen: &View, expected: &View, when: &str) {
    for (path, inode) in expected {
        assert!(seen.get(path) == Some(inode), "{when}: {path} differs");
    }
    assert_eq!(seen.len(), expected.len(), "{when}: {:?}", seen.keys());
}

/// As many cases as `PROPTEST_CASES` says.
pub fn config() -> ProptestConfig {
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 40 };
    ProptestConfig { cases, max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() }
}
