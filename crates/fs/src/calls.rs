//! Which calls of mounts on other machines were done, so that none is done twice: `docs/format/fs.md`, "Calls".
//!
//! It is the table of completed requests that remote procedure calls need to be executed once only (Birrell and Nelson,
//! 1984; slots of sessions in NFSv4.1, RFC 8881 §2.10.6), as a part of the replicated state: whoever has what a call has
//! done, knows that it was done.

use crate::fields::Fields;
use landfall_heap::Damage;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Mounts of which the table knows something, at most.
pub const CALLING_MOUNTS_MAX: usize = 32;

/// Names a mount: random bytes.
pub type CallerId = [u8; 16];

/// A call that was done. Its mount has sent no other one by the same queue since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The mount.
    pub mount: CallerId,
    /// The mount's queue: there is one call at a time in each.
    pub queue: u8,
    /// The request's id.
    pub id: u64,
    /// What it was about to change. The kind of the request defines the meaning.
    pub numbers: [u64; 2],
}

/// The last call of each queue of each mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Mounts that have made way for others.
    forgotten: u64,
    /// Who has called last is the last one.
    mounts: VecDeque<Caller>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Caller {
    id: CallerId,
    /// [`Calls::forgotten`] when it came.
    since: u64,
    /// The id and the numbers, by queue.
    last: BTreeMap<u8, (u64, [u64; 2])>,
}

impl Calls {
    /// A table that has lost something: it knows nothing of what was done before.
    #[must_use]
    pub fn lost() -> Self {
        Self { forgotten: 1 << 63, mounts: VecDeque::new() }
    }

    /// A call was done. Of too many mounts the one goes that has called least recently.
    pub fn note(&mut self, call: &Call) {
        let known = self.mounts.iter().position(|caller| caller.id == call.mount);
        if known.is_none() && self.mounts.len() >= CALLING_MOUNTS_MAX {
            self.mounts.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
        let new = Caller { id: call.mount, since: self.forgotten, last: BTreeMap::new() };
        let mut caller = known.and_then(|at| self.mounts.remove(at)).unwrap_or(new);
        caller.last.insert(call.queue, (call.id, call.numbers));
        self.mounts.push_back(caller);
    }

    /// A mount has ended: it does not ask.
    pub fn end(&mut self, mount: CallerId) {
        self.mounts.retain(|caller| caller.id != mount);
    }

    /// True if a call of this mount is known.
    #[must_use]
    pub fn has(&self, mount: CallerId) -> bool {
        self.mounts.iter().any(|caller| caller.id == mount)
    }

    /// The last call of a queue, if one was done.
    #[must_use]
    pub fn last(&self, mount: CallerId, queue: u8) -> Option<Call> {
        let caller = self.mounts.iter().find(|caller| caller.id == mount)?;
        caller.last.get(&queue).map(|(id, numbers)| Call { mount, queue, id: *id, numbers: *numbers })
    }

    /// How many mounts have made way for others so far. A mount that was told this may ask later whether it is among them.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// True if whatever a mount has called is known here: since it was told of [`Self::forgotten`], at `heard`, it has not
    /// made way for others.
    #[must_use]
    pub fn knows(&self, mount: CallerId, heard: u64) -> bool {
        let known = self.mounts.iter().find(|caller| caller.id == mount);
        known.map_or(self.forgotten == heard, |caller| caller.since <= heard)
    }

    /// The table's bytes: none if nothing was ever called.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        let mut bytes = self.forgotten.to_le_bytes().to_vec();
        for Caller { id, since, last } in &self.mounts {
            bytes.extend(id.iter().chain(&since.to_le_bytes()));
            bytes.push(u8::try_from(last.len() - 1).unwrap_or(u8::MAX));
            for (queue, (call, numbers)) in last {
                bytes.push(*queue);
                bytes.extend([*call, numbers[0], numbers[1]].iter().flat_map(|number| number.to_le_bytes()));
            }
        }
        bytes
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`Damage::RecordFields`]: whatever [`Self::encode`] does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut fields = Fields(bytes);
        let mut calls = Self { forgotten: fields.u64()?, mounts: VecDeque::new() };
        while !fields.is_empty() {
            calls.mounts.push_back(Caller::decode(&mut fields)?);
        }
        let ids: BTreeSet<CallerId> = calls.mounts.iter().map(|caller| caller.id).collect();
        let is_possible = ids.len() == calls.mounts.len() && ids.len() <= CALLING_MOUNTS_MAX;
        // Each table has one encoding.
        let is_whole = is_possible && calls.encode() == bytes;
        if is_whole { Ok(calls) } else { Err(Damage::RecordFields) }
    }
}

impl Caller {
    fn decode(fields: &mut Fields<'_>) -> Result<Self, Damage> {
        let id = fields.array()?;
        let (since, count) = (fields.u64()?, u16::from(fields.u8()?) + 1);
        let mut last = BTreeMap::new();
        for _ in 0..count {
            let (queue, call) = (fields.u8()?, fields.u64()?);
            last.insert(queue, (call, [fields.u64()?, fields.u64()?]));
        }
        Ok(Self { id, since, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(mount: u8, queue: u8, id: u64) -> Call {
        Call { mount: [mount; 16], queue, id, numbers: [id + 1, 9] }
    }

    #[test]
    fn the_last_call_of_each_queue_is_known_until_the_mount_ends() {
        let mut calls = Calls::default();
        [call(1, 0, 10), call(1, 1, 11), call(2, 0, 10), call(1, 0, 12)]
            .iter()
            .for_each(|call| calls.note(call));
        let last = |calls: &Calls, mount: u8, queue| calls.last([mount; 16], queue);
        assert_eq!(last(&calls, 1, 0), Some(call(1, 0, 12)));
        assert_eq!(last(&calls, 1, 1), Some(call(1, 1, 11)));
        assert_eq!(last(&calls, 2, 0), Some(call(2, 0, 10)));
        assert_eq!((last(&calls, 2, 1), last(&calls, 3, 0)), (None, None));
        calls.end([1; 16]);
        assert_eq!((last(&calls, 1, 0), last(&calls, 2, 0)), (None, Some(call(2, 0, 10))));
    }

    #[test]
    fn a_mount_that_may_have_made_way_for_others_is_not_known() {
        let mut calls = Calls::default();
        assert!(calls.knows([1; 16], 0), "it has called nothing");
        calls.note(&call(1, 0, 1));
        (2..=CALLING_MOUNTS_MAX as u8).for_each(|mount| calls.note(&call(mount, 0, 1)));
        calls.note(&call(1, 0, 2));
        calls.note(&call(100, 0, 1));
        assert_eq!((calls.forgotten(), calls.last([2; 16], 0)), (1, None), "it has called least recently");
        assert!(calls.knows([1; 16], 0) && calls.knows([100; 16], 1));
        assert!(!calls.knows([2; 16], 0) && !calls.knows([50; 16], 0));
        assert!(calls.knows([50; 16], 1), "it was told, and has called nothing since");
        calls.note(&call(2, 1, 3));
        assert!(!calls.knows([2; 16], 0) && !calls.knows([2; 16], 1), "it has made way, and has come again");
        assert!(calls.knows([2; 16], calls.forgotten()));
    }

    #[test]
    fn a_table_that_is_lost_knows_nobody_who_was_told_before() {
        let mut calls = Calls::lost();
        assert!(!calls.knows([1; 16], 0) && !calls.knows([1; 16], 1000));
        calls.note(&call(1, 0, 1));
        assert!(!calls.knows([1; 16], 1000) && calls.knows([1; 16], calls.forgotten()));
        assert_eq!(Calls::decode(&calls.encode()), Ok(calls));
    }

    /// The bytes are those of `docs/format/fs.md`: later versions must read what earlier versions wrote.
    #[test]
    fn the_table_is_frozen() {
        let mut calls = Calls { forgotten: 3, mounts: VecDeque::new() };
        calls.note(&Call { mount: *b"0123456789abcdef", queue: 2, id: 0x0405, numbers: [6, 7] });
        let bytes = [
            &[3, 0, 0, 0, 0, 0, 0, 0][..],
            b"0123456789abcdef",
            &[3, 0, 0, 0, 0, 0, 0, 0, 0, 2, 5, 4, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7],
            &[0; 7],
        ];
        assert_eq!(calls.encode(), bytes.concat());
        assert_eq!(Calls::decode(&bytes.concat()), Ok(calls));
        assert_eq!((Calls::default().encode(), Calls::decode(&[])), (Vec::new(), Ok(Calls::default())));
        assert_eq!(Calls::decode(&[0; 8]), Err(Damage::RecordFields), "an empty table has no bytes");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_table_or_damage(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(calls) = Calls::decode(&bytes) {
                prop_assert_eq!(calls.encode(), bytes);
            }
        }

        #[test]
        fn a_table_is_what_was_encoded(all in prop::collection::vec((0..40_u8, 0..3_u8, 0..9_u64), 0..200)) {
            let mut calls = Calls::default();
            all.iter().for_each(|(mount, queue, id)| calls.note(&call(*mount, *queue, *id)));
            prop_assert_eq!(Calls::decode(&calls.encode()), Ok(calls));
        }
    }
}
