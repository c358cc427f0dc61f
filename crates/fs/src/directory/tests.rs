use super::*;
use crate::names::{NAMES_BYTES_MAX, POSITIONS_OF_A_NAME};
use proptest::prelude::*;

/// What is on the medium: the value of each record.
#[derive(Debug, Default)]
struct Medium {
    records: BTreeMap<Position, (SlotId, Vec<u8>)>,
    next: u32,
}

impl Medium {
    fn publish(&mut self, directory: &mut Directory) {
        for (first, change) in directory.take_changes() {
            let old = self.records.get(&first).map(|(slot, _)| *slot);
            assert_eq!(directory.slot(first), old, "what the new version supersedes");
            let slot = match change {
                NamesChange::Put { value, count } => {
                    assert!(value.len() <= NAMES_BYTES_MAX && count > 0);
                    self.next += 1;
                    self.records.insert(first, (SlotId(self.next), value));
                    Some(SlotId(self.next))
                }
                NamesChange::Tombstone => {
                    self.records.remove(&first).expect("a tombstone ends a record");
                    None
                }
            };
            directory.published(first, slot);
        }
    }

    fn directory(&self) -> Directory {
        Directory::of_records(self.records.iter().map(|(first, (slot, _))| (*first, *slot)))
    }

    /// Tries again and again, and loads what is not read.
    fn with<T>(
        &self,
        directory: &mut Directory,
        mut call: impl FnMut(&mut Directory) -> Result<T, DirectoryError>,
    ) -> Result<T, DirectoryError> {
        loop {
            match call(directory) {
                Err(DirectoryError::Unread(first)) => {
                    let (slot, value) = &self.records[&first];
                    assert_eq!(directory.slot(first), Some(*slot));
                    let names = Names::decode(value, &directory.covers(first)).unwrap();
                    directory.load(first, names);
                }
                done => return done,
            }
        }
    }
}

/// The hash of a name in these tests: it collides and clusters, so that names of one hash lie in several records.
fn hash(name: &str) -> u64 {
    let number: u64 = name.trim_start_matches('x').parse().unwrap();
    (number % 7 * 100) << 2
}

fn list(medium: &Medium, directory: &mut Directory) -> Vec<(Position, String, InodeNumber)> {
    let (mut all, mut from) = (Vec::new(), Position(0));
    while let Some(entry) =
        medium.with(directory, |directory| directory.next(from).map(|e| e.cloned())).unwrap()
    {
        from = Position(entry.position.0 + 1);
        all.push((entry.position, String::from_utf8(entry.name().to_vec()).unwrap(), entry.number));
    }
    all
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32),
    Remove(u32),
    Replace(u32),
    Publish,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..90_u32;
    let step = prop_oneof![
        8 => name.clone().prop_map(Step::Add),
        6 => name.clone().prop_map(Step::Remove),
        1 => name.prop_map(Step::Replace),
        1 => Just(Step::Publish),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..400)
}

/// Long names, so that few fill a record.
fn name_of(number: u32) -> String {
    format!("{}{number}", "x".repeat(150))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Entries stay at their positions, whatever is added, removed, published or read anew; and the directory agrees with
    /// a map of names.
    #[test]
    fn a_directory_is_a_map_of_names_with_stable_positions(steps in steps()) {
        let (mut medium, mut directory) = (Medium::default(), Directory::default());
        let mut model: BTreeMap<String, (Position, InodeNumber)> = BTreeMap::new();
        for (at, step) in (2..).zip(steps) {
            let number = InodeNumber(at);
            match step {
                Step::Add(name) => {
                    let name = name_of(name);
                    let (parsed, hash) = (Name::new(name.as_bytes()).unwrap(), hash(&name));
                    let found = medium.with(&mut directory, |d| d.find(parsed, hash).map(|e| e.cloned())).unwrap();
                    let known = model.get(&name).copied();
                    prop_assert_eq!(found.map(|entry| (entry.position, entry.number)), known);
                    if known.is_none() {
                        let add = |d: &mut Directory| d.insert(parsed, hash, number, FileType::File);
                        let position = medium.with(&mut directory, add).unwrap();
                        prop_assert!(Position::candidates(hash).contains(&position));
                        model.insert(name, (position, number));
                    }
                }
                Step::Remove(name) => {
                    if let Some((position, number)) = model.remove(&name_of(name)) {
                        let gone = medium.with(&mut directory, |d| d.remove(position)).unwrap();
                        prop_assert_eq!(gone.map(|entry| entry.number), Some(number));
                    }
                }
                Step::Replace(name) => {
                    if let Some((position, known)) = model.get_mut(&name_of(name)) {
                        let replace = |d: &mut Directory| d.replace(*position, number, FileType::Fifo);
                        let old = medium.with(&mut directory, replace).unwrap();
                        prop_assert_eq!(old.map(|entry| entry.number), Some(*known));
                        *known = number;
                    }
                }
                Step::Publish => medium.publish(&mut directory),
                Step::Restart => {
                    medium.publish(&mut directory);
                    directory = medium.directory();
                }
            }
        }
        let mut expected: Vec<_> = model.into_iter().map(|(name, (at, number))| (at, name, number)).collect();
        expected.sort();
        prop_assert_eq!(list(&medium, &mut directory), &expected[..]);
        medium.publish(&mut directory);
        prop_assert_eq!(list(&medium, &mut medium.directory()), &expected[..], "after a restart");
        let lens: Vec<_> = medium.records.values().map(|(_, value)| value.len()).collect();
        prop_assert!(medium.records.is_empty() || medium.records.contains_key(&START), "{:?}", lens);
    }
}

#[test]
fn a_name_whose_positions_are_all_taken_is_refused() {
    let mut directory = Directory::default();
    for number in 0..POSITIONS_OF_A_NAME {
        let name = format!("n{number}");
        directory.insert(Name::new(name.as_bytes()).unwrap(), 400, InodeNumber(9), FileType::File).unwrap();
    }
    let refused = directory.insert(Name::new(b"more").unwrap(), 400, InodeNumber(9), FileType::File);
    assert_eq!(refused, Err(DirectoryError::Full));
    assert!(directory.insert(Name::new(b"more").unwrap(), 4000, InodeNumber(9), FileType::File).is_ok());
}

#[test]
fn what_came_and_went_is_not_written() {
    let (mut medium, mut directory) = (Medium::default(), Directory::default());
    let position = directory.insert(Name::new(b"a").unwrap(), 80, InodeNumber(2), FileType::File).unwrap();
    directory.remove(position).unwrap();
    assert_eq!(directory.take_changes(), []);
    let position = directory.insert(Name::new(b"a").unwrap(), 80, InodeNumber(2), FileType::File).unwrap();
    medium.publish(&mut directory);
    directory.remove(position).unwrap();
    assert_eq!(directory.take_changes(), [(START, NamesChange::Tombstone)]);
}
