//! A message with records, as it leaves.

use crate::node::Node;
use crate::packer::{Packer, Sent};
use crate::pages::{CopiedPart, CopiedRecord, record_of};
use crate::spare_room::SpareRoom;
use landfall_chain::{Code, Record, RecordKind, message, packed_message};
use landfall_heap::{Heap, HeapError, Item, Kind, Pinned, RecordView, SlotId, spaces};
use std::io::{self, IoSlice, Write};

/// A message is complete when its payload has so many bytes, ...
const PAYLOAD_BYTES: u64 = 1 << 20;
/// ... or its head. A group is never divided.
const HEAD_BYTES: usize = 256 << 10;
/// A batch whose payload and head have at most so many bytes is sent by the writer itself, ...
const SHORT_BYTES: u64 = 64 << 10;
/// ... if it has at most so many records.
const SHORT_RECORDS: usize = 256;
/// A payload of so many bytes is not sent again before it is asked for: the node behind may have no room for it twice.
const CHECKED_FROM: u64 = 256 << 10;
/// Parts of a payload that are written at once.
const SLICES_MAX: usize = 64;

/// Records of one message.
#[derive(Debug, Default)]
pub struct Outgoing<'h> {
    head: Vec<u8>,
    values: Vec<Item<'h>>,
    payload_len: u64,
    /// Number of records.
    count: u64,
    /// The last record belongs to a group that goes on.
    is_open: bool,
    /// It deletes something.
    deletes: bool,
}

impl<'h> Outgoing<'h> {
    /// True if there is no record in it.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Number of records.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// True if it should be sent before another record is added.
    pub fn is_full(&self) -> bool {
        !self.is_open && (self.payload_len >= PAYLOAD_BYTES || self.head.len() >= HEAD_BYTES)
    }

    /// Adds a record of the node's region. `more`: the next one belongs to the same group.
    ///
    /// # Errors
    /// Damage; the medium's.
    fn add(&mut self, node: &'h Node, slot: SlotId, more: bool) -> Result<(), HeapError> {
        let heap = &*node.heap;
        let view = heap.record(slot)?;
        let kind = match view.kind() {
            Kind::Put => RecordKind::Put,
            Kind::Tombstone => RecordKind::Tombstone,
            Kind::Flush => RecordKind::Flush,
            Kind::Bound if spaces::LOGS.contains(&view.space()) => RecordKind::Bound,
            _ => return Ok(()),
        };
        let log_key = node.log_key(slot, &view)?;
        let in_region;
        let key: &[u8] = match &log_key {
            Some(key) => key,
            None => {
                in_region = heap.key(&view)?;
                &in_region
            }
        };
        let fields = view_fields(&view, more);
        if kind == RecordKind::Put {
            return self.add_item(&fields, key, Item::hold(heap, slot, &view)?, heap);
        }
        self.deletes = true;
        self.add_bare(&Record { kind, key, ..fields });
        Ok(())
    }

    /// Adds a record of a page of a copy.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn add_copied(&mut self, heap: &'h Heap, copied: CopiedRecord<'h>) -> Result<(), HeapError> {
        let CopiedRecord { space, key, aux, part } = copied;
        let (arrival_ns, mark) = match &part {
            CopiedPart::Value(item) | CopiedPart::Damaged(item) => (item.arrival_ns, item.expiry_ms),
            CopiedPart::Tombstone { mark } | CopiedPart::Bound { mark } => (0, *mark),
        };
        let (kind, more) = (RecordKind::Put, false);
        let fields =
            Record { kind, more, space, aux, arrival_ns, mark, key: &key, value_len: 0, value_crc: 0 };
        match part {
            CopiedPart::Value(item) => self.add_item(&fields, &key, item, heap)?,
            CopiedPart::Damaged(_) => {}
            CopiedPart::Tombstone { .. } => self.add_bare(&Record { kind: RecordKind::Tombstone, ..fields }),
            CopiedPart::Bound { .. } => self.add_bare(&Record { kind: RecordKind::Bound, ..fields }),
        }
        Ok(())
    }

    /// Adds a record without a value.
    fn add_bare(&mut self, record: &Record<'_>) {
        record.encode(&mut self.head);
        self.count += 1;
        self.is_open = record.more;
    }

    fn add_item(
        &mut self,
        fields: &Record<'_>,
        key: &[u8],
        item: Item<'h>,
        heap: &Heap,
    ) -> Result<(), HeapError> {
        let of_value = record_of(heap, fields.space, fields.aux, key, &item)?;
        let Record { value_len, value_crc, .. } = of_value;
        Record { key, value_len, value_crc, ..*fields }.encode(&mut self.head);
        self.count += 1;
        self.payload_len += u64::from(value_len);
        self.is_open = fields.more;
        self.values.push(item);
        Ok(())
    }

    /// True if the node behind is to be asked for the records before they are sent again. What is deleted is always sent: a
    /// copy must learn of it.
    pub(crate) fn is_worth_a_check(&self) -> bool {
        !self.deletes && self.payload_len >= CHECKED_FROM
    }

    /// A message that asks whether the records are there.
    pub(crate) fn check(&self, version: u64, number: u64) -> Vec<u8> {
        message(Code::Check, version, number, &self.head, 0)
    }

    /// Writes the message, packed if that is worth it; without a packer as it is.
    ///
    /// # Errors
    /// The connection's; the medium's.
    pub(crate) fn write(
        &self,
        heap: &Heap,
        to: &mut impl Write,
        (code, version, number): (Code, u64, u64),
        packing: Option<(&mut Packer, &mut SpareRoom<'_>)>,
    ) -> io::Result<Sent> {
        let mut pinned = Vec::new();
        for item in &self.values {
            for extent in item.extents() {
                pinned.push(heap.pinned(*extent).map_err(io::Error::other)?);
            }
        }
        let values = self.in_order(&pinned);
        let packed = match packing {
            Some((packer, spare)) => packer.pack(&values, self.payload_len, |bytes| spare.take(bytes))?,
            None => None,
        };
        let first = match &packed {
            Some(packed) => packed_message(code, version, number, &self.head, packed.len() as u64),
            None => message(code, version, number, &self.head, self.payload_len),
        };
        let packed_bytes = packed.as_ref().map(|packed| packed.len() as u64);
        let mut slices = vec![IoSlice::new(&first)];
        match &packed {
            Some(packed) => slices.push(IoSlice::new(packed)),
            None => slices.extend(values.iter().map(|bytes| IoSlice::new(bytes))),
        }
        slices.chunks_mut(SLICES_MAX).try_for_each(|some| write_all(to, some))?;
        let wire_bytes = first.len() as u64 + packed_bytes.unwrap_or(self.payload_len);
        Ok(Sent { value_bytes: self.payload_len, wire_bytes, packed_bytes })
    }

    /// The bytes of the values, of which `pinned` are those that lie in extents.
    fn in_order<'a>(&'a self, pinned: &'a [Pinned<'_>]) -> Vec<&'a [u8]> {
        let (mut held, mut values) = (pinned.iter(), Vec::new());
        for item in &self.values {
            match item.inline() {
                Some(bytes) => values.push(bytes),
                None => values.extend(held.by_ref().take(item.extents().len()).map(|bytes| &bytes[..])),
            }
        }
        values
    }
}

/// The fields of a record but for its key and value.
fn view_fields<'a>(view: &RecordView<'_>, more: bool) -> Record<'a> {
    let is_of_log = spaces::LOGS.contains(&view.space());
    Record {
        kind: RecordKind::Put,
        more,
        space: view.space(),
        // The number of a log means nothing to others.
        aux: if is_of_log { 0 } else { view.aux() },
        arrival_ns: view.arrival_ns(),
        mark: view.expiry_ms(),
        key: &[],
        value_len: 0,
        value_crc: 0,
    }
}

fn write_all(to: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Empty slices at the front would make a write of nothing look like the end.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match to.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Passes the records of a batch or a transaction to `send`, message by message: groups stay together.
///
/// # Errors
/// Those of `send`; damage; the medium's.
pub(crate) fn each_message<'h, E: From<io::Error>>(
    node: &'h Node,
    records: &[SlotId],
    mut send: impl FnMut(Outgoing<'h>) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = Outgoing::default();
    for (at, slot) in records.iter().enumerate() {
        if next.is_full() {
            send(std::mem::take(&mut next))?;
        }
        let more = belongs_with(&node.heap, *slot, records.get(at + 1).copied());
        more.and_then(|more| next.add(node, *slot, more)).map_err(io::Error::other)?;
    }
    if next.is_empty() { Ok(()) } else { send(next) }
}

/// All records of a short batch in one message; `None` if it is not short, if it is not all in memory, or has nothing to send.
///
/// # Errors
/// Damage; the medium's.
pub(crate) fn short_message<'h>(
    node: &'h Node,
    records: &[SlotId],
) -> Result<Option<Outgoing<'h>>, HeapError> {
    if records.len() > SHORT_RECORDS {
        return Ok(None);
    }
    let heap = &*node.heap;
    let mut message = Outgoing::default();
    for (at, slot) in records.iter().enumerate() {
        let len = message.payload_len + message.head.len() as u64;
        let view = heap.record(*slot)?;
        if len + (view.value_len() + view.key_len()) as u64 > SHORT_BYTES {
            return Ok(None);
        }
        let more = belongs_with(heap, *slot, records.get(at + 1).copied())?;
        message.add(node, *slot, more)?;
    }
    let mut extents = message.values.iter().flat_map(Item::extents);
    let is_resident = extents.all(|extent| heap.is_resident(*extent));
    Ok(Some(message).filter(|message| is_resident && !message.is_empty()))
}

/// True if a record and the next one are of one group or transaction.
fn belongs_with(heap: &Heap, slot: SlotId, next: Option<SlotId>) -> Result<bool, HeapError> {
    let Some(next) = next else { return Ok(false) };
    let (view, next) = (heap.record(slot)?, heap.record(next)?);
    let in_group = view
        .group()
        .is_some_and(|group| next.group().is_some_and(|other| other.first_seq == group.first_seq));
    let in_transaction = view.transaction().is_some() && view.transaction() == next.transaction();
    Ok(in_group || in_transaction)
}
