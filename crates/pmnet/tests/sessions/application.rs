//! The server's application. It stores the applied requests in order. All its state is durable.

use landfall_pmnet::{SessionKey, SessionRow, Work};
use std::collections::BTreeMap;

/// The content of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// Appends this number.
    Append(u32),
    /// Asks how many numbers have been appended. The response is padded.
    Count(u32),
    /// Adds this number to the marks, and responds with the count.
    Mark(u32),
}

/// A request of `len` bytes, which its content determines.
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

/// Length of the padding in the response to a count. Some responses need several windows.
pub fn count_bytes(number: u32) -> usize {
    if number.is_multiple_of(9) { 2000 + 37 * (number as usize % 100) } else { number as usize % 300 }
}

pub fn filler(number: u32, at: usize) -> u8 {
    (number as usize * 31 + at * 7) as u8
}

/// Parses a request. Panics unless every byte is that which was sent.
pub fn parse(bytes: &[u8]) -> Ask {
    let number = u32::from_le_bytes(bytes[1..5].try_into().unwrap());
    let filled = bytes[5..].iter().enumerate().all(|(at, byte)| *byte == filler(number, at));
    assert!(filled, "a request was changed on its way");
    match bytes[0] {
        0 => Ask::Append(number),
        1 => Ask::Count(number),
        2 => Ask::Mark(number),
        kind => panic!("kind {kind}"),
    }
}

/// Names a session. Its number may be reused by later sessions, its nonce is not.
pub type Name = (SessionKey, u64);

#[derive(Default)]
pub struct Application {
    pub rows: BTreeMap<SessionKey, SessionRow>,
    pub floor: u32,
    pub appended: BTreeMap<Name, Vec<u32>>,
    pub marks: BTreeMap<Name, Vec<u32>>,
}

impl Application {
    /// Applies a piece of work and commits it with its row. For a bypass, returns the response and whether it has
    /// changed anything.
    pub fn apply(&mut self, work: &Work) -> Option<(Vec<u8>, bool)> {
        match work {
            Work::Update { request, row, .. } => {
                let Ask::Append(number) = parse(request) else { panic!("a bypass arrived as an update") };
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
            let Ask::Mark(number) = ask else { panic!("a bypass that only reads cannot be lost: {ask:?}") };
            assert_eq!(
                self.marks[&name].last(),
                Some(&number),
                "a bypass is reported as lost that was not executed"
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
                // Two executions of one bypass return different bytes.
                let salt = self.appended.values().map(Vec::len).sum::<usize>() as u32;
                response.extend((0..count_bytes(number)).map(|at| filler(salt, at)));
                false
            }
            Ask::Append(_) => panic!("an update arrived as a bypass"),
        };
        (response, changed)
    }

    /// Checks that the numbers in a row never decrease.
    fn check_row(&self, row: &SessionRow) {
        let before = self.rows.get(&row.key).expect("the session's row is committed before its first work");
        assert_eq!(before.nonce, row.nonce);
        assert!(!before.ended && (row.update > before.update || row.bypass > before.bypass));
        assert!(row.update >= before.update && row.bypass >= before.bypass);
    }
}
