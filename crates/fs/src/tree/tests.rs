//! The tree against an oracle of its own: a list of names by directory, and the rules of POSIX written down once more.

use super::*;
use crate::data_map::{BLOCK_BYTES, Interval};
use crate::directory::NamesChange;
use crate::key::WritePlace;
use crate::name::ExtendedName;
use crate::names::Names;
use proptest::prelude::*;

const ROOT: InodeNumber = InodeNumber::ROOT;
const SEED: u64 = 7;
const NOW: Stamp = Stamp { lease: 1, time_ns: 5 };
const SLOT: SlotId = SlotId(1);

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a good name")
}

/// What the oracle knows of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    is_directory: bool,
    nlink: u32,
}

/// The oracle: names by directory, and inodes.
#[derive(Clone, Debug)]
struct Oracle {
    names: BTreeMap<(InodeNumber, String), InodeNumber>,
    inodes: BTreeMap<InodeNumber, Known>,
}

impl Oracle {
    fn new() -> Self {
        let root = Known { is_directory: true, nlink: 2 };
        Self { names: BTreeMap::new(), inodes: BTreeMap::from([(ROOT, root)]) }
    }

    fn get(&self, parent: InodeNumber, name: &str) -> Option<InodeNumber> {
        self.names.get(&(parent, name.to_owned())).copied()
    }

    fn is_directory(&self, number: InodeNumber) -> bool {
        self.inodes[&number].is_directory
    }

    fn is_empty(&self, number: InodeNumber) -> bool {
        self.names.keys().all(|(parent, _)| *parent != number)
    }

    /// Fails unless names can be made in a directory.
    fn check_directory(&self, number: InodeNumber) -> Result<(), TreeError> {
        match self.inodes.get(&number) {
            None => Err(TreeError::NotFound),
            Some(known) if !known.is_directory => Err(TreeError::NotADirectory),
            Some(known) if known.nlink == 0 => Err(TreeError::NotFound),
            Some(_) => Ok(()),
        }
    }

    fn is_below(&self, number: InodeNumber, above: InodeNumber) -> bool {
        let parent =
            || self.names.iter().find(|(_, child)| **child == number).map(|((parent, _), _)| *parent);
        number == above || number != ROOT && parent().is_some_and(|parent| self.is_below(parent, above))
    }

    /// Counts all links anew: two of each directory that can be reached, one of each directory in it, one of each name.
    fn recount(&mut self) {
        let named: Vec<InodeNumber> = self.names.values().copied().collect();
        for (number, known) in &mut self.inodes {
            let names = named.iter().filter(|child| *child == number).count() as u32;
            known.nlink = if known.is_directory { 2 * names.max(u32::from(*number == ROOT)) } else { names };
        }
        let directories: Vec<InodeNumber> = self
            .names
            .iter()
            .filter(|(_, child)| self.is_directory(**child))
            .map(|((parent, _), _)| *parent)
            .collect();
        for parent in directories {
            self.inodes.get_mut(&parent).expect("a directory").nlink += 1;
        }
    }

    fn create(
        &mut self,
        parent: InodeNumber,
        name: &str,
        number: InodeNumber,
        is_directory: bool,
    ) -> Result<(), TreeError> {
        self.check_directory(parent)?;
        if self.get(parent, name).is_some() {
            return Err(TreeError::Exists);
        }
        self.inodes.insert(number, Known { is_directory, nlink: 0 });
        self.names.insert((parent, name.to_owned()), number);
        Ok(())
    }

    fn link(&mut self, parent: InodeNumber, name: &str, number: InodeNumber) -> Result<(), TreeError> {
        let known = self.inodes.get(&number).ok_or(TreeError::NotFound)?;
        if known.is_directory {
            return Err(TreeError::NotPermitted);
        }
        self.check_directory(parent)?;
        if self.get(parent, name).is_some() {
            return Err(TreeError::Exists);
        }
        self.names.insert((parent, name.to_owned()), number);
        Ok(())
    }

    fn unlink(&mut self, parent: InodeNumber, name: &str, rmdir: bool) -> Result<(), TreeError> {
        self.check_directory(parent)?;
        let number = self.get(parent, name).ok_or(TreeError::NotFound)?;
        match (self.is_directory(number), rmdir) {
            (true, false) => Err(TreeError::IsADirectory),
            (false, true) => Err(TreeError::NotADirectory),
            (true, true) if !self.is_empty(number) => Err(TreeError::NotEmpty),
            _ => {
                self.names.remove(&(parent, name.to_owned()));
                Ok(())
            }
        }
    }

    fn rename(
        &mut self,
        from: (InodeNumber, &str),
        to: (InodeNumber, &str),
        how: How,
    ) -> Result<(), TreeError> {
        self.check_directory(from.0)?;
        let source = self.get(from.0, from.1).ok_or(TreeError::NotFound)?;
        self.check_directory(to.0)?;
        let target = self.get(to.0, to.1);
        if self.is_directory(source) && self.is_below(to.0, source) {
            return Err(TreeError::Invalid);
        }
        match (target, how) {
            (Some(_), How::NoReplace) => return Err(TreeError::Exists),
            (None, How::Exchange) => return Err(TreeError::NotFound),
            (Some(target), _) if target == source => return Ok(()),
            (Some(target), How::Exchange) => {
                if self.is_directory(target) && self.is_below(from.0, target) {
                    return Err(TreeError::Invalid);
                }
                self.names.insert((from.0, from.1.to_owned()), target);
                self.names.insert((to.0, to.1.to_owned()), source);
                return Ok(());
            }
            (Some(target), _) => match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return Err(TreeError::NotADirectory),
                (false, true) => return Err(TreeError::IsADirectory),
                (true, true) if !self.is_empty(target) => return Err(TreeError::NotEmpty),
                _ => {}
            },
            (None, _) => {}
        }
        self.names.remove(&(from.0, from.1.to_owned()));
        self.names.insert((to.0, to.1.to_owned()), source);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum How {
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize, usize, bool),
    Link(usize, usize, usize),
    Unlink(usize, usize, bool),
    Rename((usize, usize), (usize, usize), How),
    Release(usize),
    Restart,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn step() -> impl Strategy<Value = Step> {
    let (inode, text) = (0..12_usize, 0..NAMES.len());
    let how = prop_oneof![3 => Just(How::Replace), 1 => Just(How::NoReplace), 2 => Just(How::Exchange)];
    let place = (inode.clone(), text.clone());
    prop_oneof![
        6 => (inode.clone(), text.clone(), any::<bool>()).prop_map(|(at, name, dir)| Step::Create(at, name, dir)),
        2 => (inode.clone(), text.clone(), inode.clone()).prop_map(|(at, name, to)| Step::Link(at, name, to)),
        3 => (inode.clone(), text, any::<bool>()).prop_map(|(at, name, dir)| Step::Unlink(at, name, dir)),
        6 => (place.clone(), place, how).prop_map(|(from, to, how)| Step::Rename(from, to, how)),
        1 => inode.prop_map(Step::Release),
        1 => Just(Step::Restart),
    ]
}

/// What publishing has put on the medium: inodes as their records hold them, and names by directory.
#[derive(Debug, Default)]
struct Medium {
    inodes: BTreeMap<InodeNumber, ([u8; crate::ATTRIBUTE_BYTES], i64, i64)>,
    names: BTreeMap<(InodeNumber, Position), Vec<u8>>,
}

impl Medium {
    fn publish(&mut self, tree: &mut Tree) {
        for number in tree.take_changed() {
            let Ok(node) = tree.node(number) else {
                self.inodes.remove(&number);
                self.names.retain(|(directory, _), _| *directory != number);
                continue;
            };
            self.inodes.insert(number, (node.inode.encode(), node.mtime_ns, node.ctime_ns));
            let Some(directory) = tree.directory_mut(number) else { continue };
            for (first, change) in directory.take_changes() {
                let slot = match change {
                    NamesChange::Put { value, .. } => {
                        self.names.insert((number, first), value);
                        Some(SLOT)
                    }
                    NamesChange::Tombstone => {
                        self.names.remove(&(number, first));
                        None
                    }
                };
                directory.published(first, slot);
            }
        }
    }

    /// Reads what an operation needs, until it is executed or refused.
    fn with<T>(
        &self,
        tree: &mut Tree,
        mut call: impl FnMut(&mut Tree) -> Result<T, TreeError>,
    ) -> Result<T, TreeError> {
        loop {
            match call(tree) {
                Err(TreeError::Unread(Unread::Inode(number))) => tree.load(number, self.node(number)),
                Err(TreeError::Unread(Unread::Names(number, first))) => {
                    let covers = tree.node(number).unwrap().directory().unwrap().covers(first);
                    let names = Names::decode(&self.names[&(number, first)], &covers).unwrap();
                    tree.load_names(number, first, names);
                }
                done => return done,
            }
        }
    }

    fn node(&self, number: InodeNumber) -> Node {
        let (attributes, mtime_ns, ctime_ns) = &self.inodes[&number];
        let inode = crate::Inode::decode(attributes, attributes.len() as u64).unwrap();
        let firsts = self.names.keys().filter(|(directory, _)| *directory == number);
        let body = match inode.mode.file_type() {
            FileType::Directory => {
                Body::Directory(Directory::of_records(firsts.map(|(_, first)| (*first, SLOT))))
            }
            _ => Body::File(crate::DataMap::default()),
        };
        let extended = crate::Extended::new();
        Node { inode, mtime_ns: *mtime_ns, ctime_ns: *ctime_ns, body, extended, extended_changed: false }
    }
}

fn create_of<'a>(
    parent: InodeNumber,
    text: &'a str,
    number: InodeNumber,
    is_directory: bool,
) -> Operation<'a> {
    let file_type = if is_directory { FileType::Directory } else { FileType::File };
    let mode = Mode::new(file_type, 0o755);
    Operation::Create { place: Some((parent, name(text))), number, mode, uid: 0, gid: 0, rdev: 0 }
}

fn operation<'a>(step: &Step, inodes: &[InodeNumber], new: InodeNumber) -> Option<Operation<'a>> {
    let inode = |at: usize| inodes[at % inodes.len()];
    Some(match *step {
        Step::Create(at, text, is_directory) => create_of(inode(at), NAMES[text], new, is_directory),
        Step::Link(at, text, to) => {
            Operation::Link { parent: inode(at), name: name(NAMES[text]), number: inode(to), replaces: false }
        }
        Step::Unlink(at, text, is_directory) => {
            Operation::Unlink { parent: inode(at), name: name(NAMES[text]), is_directory }
        }
        Step::Rename((from, old), (to, new), how) => Operation::Rename {
            parent: inode(from),
            name: name(NAMES[old]),
            new_parent: inode(to),
            new_name: name(NAMES[new]),
            no_replace: matches!(how, How::NoReplace),
            exchange: matches!(how, How::Exchange),
        },
        Step::Release(at) => Operation::Release { number: inode(at) },
        Step::Restart => return None,
    })
}

fn asked(
    oracle: &mut Oracle,
    step: &Step,
    inodes: &[InodeNumber],
    new: InodeNumber,
) -> Result<(), TreeError> {
    let inode = |at: usize| inodes[at % inodes.len()];
    let done = match *step {
        Step::Create(at, text, is_directory) => oracle.create(inode(at), NAMES[text], new, is_directory),
        Step::Link(at, text, to) => oracle.link(inode(at), NAMES[text], inode(to)),
        Step::Unlink(at, text, is_directory) => oracle.unlink(inode(at), NAMES[text], is_directory),
        Step::Rename((from, old), (to, new), how) => {
            oracle.rename((inode(from), NAMES[old]), (inode(to), NAMES[new]), how)
        }
        Step::Release(at) if oracle.inodes[&inode(at)].nlink > 0 => Err(TreeError::Invalid),
        Step::Release(at) => {
            oracle.inodes.remove(&inode(at));
            Ok(())
        }
        Step::Restart => Ok(()),
    };
    oracle.recount();
    done
}

/// All names, and all inodes, of the tree.
fn listed(
    tree: &mut Tree,
    medium: &Medium,
    oracle: &Oracle,
) -> (BTreeMap<(InodeNumber, String), InodeNumber>, BTreeMap<InodeNumber, Known>) {
    let (mut names, mut inodes) = (BTreeMap::new(), BTreeMap::new());
    for number in oracle.inodes.keys() {
        let node = medium.with(tree, |tree| tree.node(*number).cloned()).expect("the oracle has it");
        inodes.insert(*number, Known { is_directory: node.is_directory(), nlink: node.inode.nlink });
        let mut from = Position(0);
        let mut count = 0;
        while node.is_directory()
            && node.inode.nlink > 0
            && let Some(entry) =
                medium.with(tree, |t| t.next_entry(*number, from).map(|e| e.cloned())).unwrap()
        {
            from = Position(entry.position.0 + 1);
            count += 1;
            names.insert((*number, String::from_utf8(entry.name().to_vec()).unwrap()), entry.number);
        }
        assert!(!node.is_directory() || node.inode.size == count, "the size is the number of entries");
    }
    (names, inodes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every operation succeeds, or fails with the same error, and has the same effect as in the oracle; also where the
    /// tree has to be read again from what was published.
    #[test]
    fn a_tree_does_what_posix_says(steps in prop::collection::vec(step(), 1..80)) {
        let (mut tree, mut medium, mut oracle) = (Tree::new(SEED, 0o755, 0, 0, 0), Medium::default(), Oracle::new());
        for (number, step) in (2..).zip(steps) {
            let inodes: Vec<InodeNumber> = oracle.inodes.keys().copied().collect();
            match operation(&step, &inodes, InodeNumber(number)) {
                Some(operation) => {
                    let before = (oracle.names.clone(), oracle.inodes.clone());
                    let expected = asked(&mut oracle, &step, &inodes, InodeNumber(number));
                    let done = medium.with(&mut tree, |tree| tree.execute(NOW, &operation));
                    prop_assert_eq!(done, expected, "{:?}", operation);
                    if expected.is_err() {
                        prop_assert_eq!((oracle.names.clone(), oracle.inodes.clone()), before);
                    }
                }
                None => {
                    medium.publish(&mut tree);
                    tree = Tree::of_stored(SEED, medium.inodes.keys().map(|number| (*number, SLOT)).collect());
                }
            }
        }
        let (names, inodes) = listed(&mut tree, &medium, &oracle);
        prop_assert_eq!(names, oracle.names.clone());
        prop_assert_eq!(inodes, oracle.inodes);
    }
}

fn file(tree: &mut Tree) -> InodeNumber {
    let number = InodeNumber(2);
    tree.execute(NOW, &create_of(ROOT, "f", number, false)).unwrap();
    number
}

fn blocks_of(tree: &Tree, number: InodeNumber) -> Vec<(u32, u16, u32, Option<u16>)> {
    let Body::File(data) = &tree.node(number).unwrap().body else { panic!("a file") };
    data.parts(0..1 << 32).map(|part: Interval| (part.first, part.blocks, part.slot.0, part.skip())).collect()
}

fn write(tree: &mut Tree, file: InodeNumber, block: u64, len: u64, slot: u32) -> Result<(), TreeError> {
    let place = WritePlace { file, offset: block * BLOCK_BYTES, lease: 1 };
    tree.write(&place, len, SlotId(slot), 9)
}

fn size(tree: &Tree, number: InodeNumber) -> u64 {
    tree.node(number).unwrap().inode.size
}

#[test]
fn writes_overlay_and_cuts_end_in_holes() {
    let mut tree = Tree::new(SEED, 0o755, 0, 0, 0);
    let number = file(&mut tree);
    write(&mut tree, number, 0, 8 * BLOCK_BYTES, 10).unwrap();
    write(&mut tree, number, 2, BLOCK_BYTES, 11).unwrap();
    assert_eq!(blocks_of(&tree, number), [(0, 2, 10, Some(0)), (2, 1, 11, Some(0)), (3, 5, 10, Some(3))]);
    write(&mut tree, number, 8, 5, 12).unwrap();
    assert_eq!(size(&tree, number), 8 * BLOCK_BYTES + 5);
    assert_eq!(write(&mut tree, number, 7, 5, 13), Err(TreeError::Invalid), "the block would lose its end");
    let cut = Attributes { size: Some(2 * BLOCK_BYTES), ..Attributes::default() };
    tree.execute(NOW, &Operation::SetAttributes { number, attributes: cut }).unwrap();
    let longer = Attributes { size: Some(9 * BLOCK_BYTES), ..Attributes::default() };
    tree.execute(NOW, &Operation::SetAttributes { number, attributes: longer }).unwrap();
    assert_eq!(blocks_of(&tree, number), [(0, 2, 10, Some(0))]);
    assert_eq!(size(&tree, number), 9 * BLOCK_BYTES);
}

fn allocate(
    tree: &mut Tree,
    number: InodeNumber,
    mode: u32,
    blocks: std::ops::Range<u64>,
) -> Result<(), TreeError> {
    let (offset, len) = (blocks.start * BLOCK_BYTES, (blocks.end - blocks.start) * BLOCK_BYTES);
    tree.execute(NOW, &Operation::Allocate { number, mode, offset, len })
}

#[test]
fn fallocate_reserves_punches_and_shifts() {
    let mut tree = Tree::new(SEED, 0o755, 0, 0, 0);
    let number = file(&mut tree);
    write(&mut tree, number, 2, 2 * BLOCK_BYTES, 10).unwrap();
    allocate(&mut tree, number, 0, 0..6).unwrap();
    let reserved = [(0, 2, 0, None), (2, 2, 10, Some(0)), (4, 2, 0, None)];
    assert_eq!((blocks_of(&tree, number), size(&tree, number)), (reserved.to_vec(), 6 * BLOCK_BYTES));
    allocate(&mut tree, number, 3, 0..3).unwrap();
    assert_eq!(blocks_of(&tree, number), [(3, 1, 10, Some(1)), (4, 2, 0, None)]);
    allocate(&mut tree, number, 32, 3..5).unwrap();
    assert_eq!(blocks_of(&tree, number), [(5, 1, 10, Some(1)), (6, 2, 0, None)]);
    assert_eq!(size(&tree, number), 8 * BLOCK_BYTES);
    allocate(&mut tree, number, 8, 1..5).unwrap();
    assert_eq!(blocks_of(&tree, number), [(1, 1, 10, Some(1)), (2, 2, 0, None)]);
    assert_eq!(size(&tree, number), 4 * BLOCK_BYTES);
    allocate(&mut tree, number, 1, 0..9).unwrap();
    assert_eq!(size(&tree, number), 4 * BLOCK_BYTES, "the size is kept");
    for (mode, range) in [(2, 0..1), (8, 0..4), (32, 4..5), (9, 0..1), (33, 0..1), (64, 0..1), (0, 1..1)] {
        assert_eq!(allocate(&mut tree, number, mode, range), Err(TreeError::Invalid), "mode {mode}");
    }
    assert_eq!(allocate(&mut tree, number, 0, 0..(1 << 32) + 1), Err(TreeError::TooLarge));
}

#[test]
fn a_clone_refers_to_the_same_records_and_not_to_what_is_reserved() {
    let mut tree = Tree::new(SEED, 0o755, 0, 0, 0);
    let source = file(&mut tree);
    write(&mut tree, source, 0, 3 * BLOCK_BYTES, 10).unwrap();
    allocate(&mut tree, source, 0, 3..4).unwrap();
    let number = InodeNumber(3);
    tree.execute(NOW, &create_of(ROOT, "g", number, false)).unwrap();
    write(&mut tree, number, 1, 4 * BLOCK_BYTES, 20).unwrap();
    let clone = |source_offset, offset, blocks: u64| {
        let len = blocks * BLOCK_BYTES;
        Operation::Clone { number, offset, source, source_offset, len }
    };
    tree.execute(NOW, &clone(BLOCK_BYTES, 2 * BLOCK_BYTES, 3)).unwrap();
    assert_eq!(blocks_of(&tree, number), [(1, 1, 20, Some(0)), (2, 2, 10, Some(1))]);
    assert_eq!(size(&tree, number), 5 * BLOCK_BYTES);
    let beyond = tree.execute(NOW, &clone(0, 0, 5));
    assert_eq!(beyond, Err(TreeError::Invalid), "behind the end of the source");
    let unaligned = Operation::Clone { number, offset: 0, source, source_offset: 0, len: 1 };
    assert_eq!(tree.execute(NOW, &unaligned), Err(TreeError::Invalid));
}

/// They are one value of the medium, and what publishing could not write would stop it for good.
#[test]
fn extended_attributes_of_an_inode_have_a_limit_and_can_always_become_shorter() {
    let mut tree = Tree::new(SEED, 0o755, 0, 0, 0);
    let number = file(&mut tree);
    let mut set = |index: u32, len: usize| {
        let (name, value) = (format!("user.{index:04}"), vec![7; len]);
        let name = ExtendedName::new(name.as_bytes()).unwrap();
        tree.execute(NOW, &Operation::SetExtended { number, name, value: &value })
    };
    assert_eq!(set(0, (64 << 10) + 1), Err(TreeError::NoSpace), "no operation can have it");
    let taken = (0..20).take_while(|index| set(*index, 64 << 10).is_ok()).count();
    assert_eq!(taken, 15, "and 14 bytes each for their names");
    assert_eq!(set(3, 64 << 10), Ok(()), "the same length");
    assert_eq!(set(3, 10), Ok(()));
    assert_eq!(set(taken as u32, 64 << 10), Ok(()), "in its place");
}

#[test]
fn attributes_links_and_extended_attributes_change_as_asked() {
    let mut tree = Tree::new(SEED, 0o755, 0, 0, 0);
    let number = file(&mut tree);
    let attributes =
        Attributes { permissions: Some(0o600), uid: Some(5), mtime_ns: Some(-3), ..Attributes::default() };
    tree.execute(NOW, &Operation::SetAttributes { number, attributes }).unwrap();
    let node = tree.node(number).unwrap();
    assert_eq!((node.inode.mode.permissions(), node.inode.uid, node.inode.gid), (0o600, 5, 0));
    assert_eq!((node.mtime_ns, node.ctime_ns), (-3, NOW.time_ns));
    let (set, remove) = (
        Operation::SetExtended { number, name: ExtendedName::new(b"user.a").unwrap(), value: b"1" },
        Operation::RemoveExtended { number, name: ExtendedName::new(b"user.a").unwrap() },
    );
    tree.execute(NOW, &set).unwrap();
    assert!(tree.node(number).unwrap().inode.has_extended);
    tree.execute(NOW, &remove).unwrap();
    assert!(!tree.node(number).unwrap().inode.has_extended);
    assert_eq!(tree.execute(NOW, &remove), Err(TreeError::NoAttribute));
    let link = InodeNumber(3);
    let symlink =
        Operation::Symlink { parent: ROOT, name: name("l"), number: link, uid: 0, gid: 0, target: b"f" };
    tree.execute(NOW, &symlink).unwrap();
    assert_eq!((tree.node(link).unwrap().file_type(), size(&tree, link)), (FileType::Link, 1));
    let cut = Attributes { size: Some(0), ..Attributes::default() };
    for (number, refused) in [(ROOT, TreeError::IsADirectory), (link, TreeError::Invalid)] {
        let operation = Operation::SetAttributes { number, attributes: cut };
        assert_eq!(tree.execute(NOW, &operation), Err(refused));
    }
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let mut tree = Tree::new(SEED, 0o755, 0, 0, 0);
    let number = InodeNumber(2);
    let mode = Mode::new(FileType::File, 0o600);
    let create = Operation::Create { place: None, number, mode, uid: 0, gid: 0, rdev: 0 };
    tree.execute(NOW, &create).unwrap();
    assert_eq!(tree.node(number).unwrap().inode.nlink, 0);
    tree.execute(NOW, &Operation::Link { parent: ROOT, name: name("n"), number, replaces: false }).unwrap();
    assert_eq!(tree.node(number).unwrap().inode.nlink, 1);
    assert_eq!(tree.execute(NOW, &Operation::Release { number }), Err(TreeError::Invalid));
}
