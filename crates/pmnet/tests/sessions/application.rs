//! The server's application: it remembers what was applied, in order. What is here is durable.

use landfall_pmnet::{SessionKey, SessionRow, Work};
use std::collections::BTreeMap;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// Appends this number.
    Append(u32),
    /// How many numbers have been appended, with some filling.
    Count(u32),
    /// Adds this number to the marks, and answers with the count.
    Mark(u32),
}

/// A request of some length, whose bytes follow from what it asks.
pub fn request(ask: Ask, len: usize) -> Vec<u8> {
    let (kind, number) = match ask {
        Ask::Append(number) => (0, number),
        Ask::Count(number) => (1, number),
        Ask::Mark(number) => (2, number),
    };
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend((0..len).map(|at| filler(number, at)));
    bytes
}

/// Filling of the response to a count: now and then several windows of packets.
pub fn count_bytes(number: u32) -> usize {
    if number.is_multiple_of(9) { 2000 + 37 * (number as usize % 100) } else { number as usize % 300 }
}

pub fn filler(number: u32, at: usize) -> u8 {
    (number as usize * 31 + at * 7) as u8
}

/// Panics unless every byte is as it was sent.
pub fn parse(bytes: &[u8]) -> Ask {
    let number = u32::from_le_bytes(bytes[1..5].try_into().unwrap());
    let filled = bytes[5..].iter().enumerate().all(|(at, byte)| *byte == filler(number, at));
    assert!(filled, "a request has arrived with other bytes");
    match bytes[0] {
        0 => Ask::Append(number),
        1 => Ask::Count(number),
        2 => Ask::Mark(number),
        kind => panic!("kind {kind}"),
    }
}

/// One session's share: its number is used by others later, its nonce is not.
pub type Name = (SessionKey, u64);

#[derive(Default)]
pub struct Application {
    pub rows: BTreeMap<SessionKey, SessionRow>,
    pub floor: u32,
    pub appended: BTreeMap<Name, Vec<u32>>,
    pub marks: BTreeMap<Name, Vec<u32>>,
}

impl Application {
    /// Applies a piece of work and commits it with its row: both or neither. For a bypass, response and whether anything
    /// changed.
    pub fn apply(&mut self, work: &Work) -> Option<(Vec<u8>, bool)> {
        match work {
            Work::Update { request, row, .. } => {
                let Ask::Append(number) = parse(request) else { panic!("a bypass came as an update") };
                self.check_row(row);
                self.appended.entry((row.key, row.nonce)).or_default().push(number);
                self.rows.insert(row.key, *row);
                None
            }
            Work::Row { row, evicted, floor, .. } => {
                assert!(*floor >= self.floor || evicted.is_empty());
                self.floor = self.floor.max(*floor);
                self.rows.retain(|key, _| !evicted.contains(key));
                self.rows.insert(row.key, *row);
                None
            }
            Work::Bypass { request, row, lost, .. } => Some(self.execute(parse(request), row, *lost)),
        }
    }

    fn execute(&mut self, ask: Ask, row: &SessionRow, lost: bool) -> (Vec<u8>, bool) {
        let name = (row.key, row.nonce);
        if lost {
            let Ask::Mark(number) = ask else { panic!("what only reads cannot be lost: {ask:?}") };
            assert_eq!(
                self.marks[&name].last(),
                Some(&number),
                "a bypass that was not executed is called lost"
            );
            return (b"lost".to_vec(), false);
        }
        self.check_row(row);
        let count = self.appended.get(&name).map_or(0, Vec::len) as u32;
        let mut response = count.to_le_bytes().to_vec();
        let changed = match ask {
            Ask::Mark(number) => {
                self.marks.entry(name).or_default().push(number);
                self.rows.insert(row.key, *row);
                true
            }
            Ask::Count(number) => {
                // Two executions of one bypass give different bytes.
                let salt = self.appended.values().map(Vec::len).sum::<usize>() as u32;
                response.extend((0..count_bytes(number)).map(|at| filler(salt, at)));
                false
            }
            Ask::Append(_) => panic!("an update came as a bypass"),
        };
        (response, changed)
    }

    /// Rows only ever grow.
    fn check_row(&self, row: &SessionRow) {
        let before = self.rows.get(&row.key).expect("the session's row is committed before its first work");
        assert_eq!(before.nonce, row.nonce);
        assert!(!before.ended && (row.update > before.update || row.bypass > before.bypass));
        assert!(row.update >= before.update && row.bypass >= before.bypass);
    }
}
