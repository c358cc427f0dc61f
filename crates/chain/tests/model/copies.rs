//! Copies to a node that is behind.

use super::{Canary, Copier, KEYS, Live, Message, Origin, Record, Version, World};
use landfall_chain::{COPY_STREAM, Refusal};
use std::collections::VecDeque;
use std::ops::Range;

impl World {
    /// The thread that copies does something.
    pub(super) fn copy_step(&mut self, node: usize) {
        let Some(live) = &self.nodes[node].live else { return };
        let Some(copier) = live.copier.clone() else {
            if live.is_ready && live.upstream.is_in_step() && live.downstream.wants_copy() {
                self.begin_copier(node);
            }
            return;
        };
        let is_held = self.wires.get(&copier.wire).is_some_and(|wire| wire.is_held);
        let message = self.wires.get_mut(&copier.wire).and_then(|wire| wire.back.pop_front());
        match message {
            _ if !is_held => self.end_copier(node),
            Some(answer @ (Message::Welcome(_) | Message::Acknowledged(_) | Message::Lacking(_))) => {
                let Some(copier) = self.nodes[node].live.as_mut().and_then(|live| live.copier.as_mut())
                else {
                    return;
                };
                copier.waits = false;
                if let Message::Lacking(keys) = answer {
                    copier.page.retain(|(key, _)| keys.contains(key));
                }
                let (has_ended, wire) = (copier.has_ended, copier.wire);
                if has_ended {
                    self.nodes[node].live.iter_mut().for_each(|live| live.copier = None);
                    self.let_go(wire);
                }
            }
            Some(_) => self.end_copier(node),
            None if !copier.waits => self.copy_more(node),
            None => {}
        }
    }

    fn begin_copier(&mut self, node: usize) {
        let Some(wire) = self.open(node, COPY_STREAM) else { return };
        let (copy, number, next, page) = (None, 0, 0, VecDeque::new());
        let (keeps, has_begun, has_ended) = (self.below(4) > 0, false, false);
        let copier = Copier { wire, copy, number, keeps, next, page, waits: true, has_begun, has_ended };
        self.nodes[node].live.iter_mut().for_each(|live| live.copier = Some(copier.clone()));
    }

    /// The copy has failed. If its end was said, only the node behind can tell whether it is in step.
    fn end_copier(&mut self, node: usize) {
        let Some(live) = &mut self.nodes[node].live else { return };
        let Some(copier) = live.copier.take() else { return };
        copier.copy.into_iter().for_each(|copy| live.downstream.give_copy_up(copy));
        self.let_go(copier.wire);
        if copier.has_ended {
            self.reconnect(node);
        }
    }

    fn copy_more(&mut self, node: usize) {
        let (canary, count) = (self.canary, self.below(3) as u8 + 1);
        let anyway = canary == Canary::EndAnyway;
        let Some(live) = &mut self.nodes[node].live else { return };
        let Some(mut copier) = live.copier.take() else { return };
        if !copier.has_begun {
            copier.copy = live.downstream.begin_copy();
        }
        let Some(copy) = copier.copy else { return self.let_go(copier.wire) };
        copier.number += 1;
        let number = copier.number;
        let message = if !std::mem::replace(&mut copier.has_begun, true) {
            Some(Message::CopyBegins(number, copier.keeps))
        } else if !live.downstream.is_copying(copy) && !anyway {
            None
        } else if let Some((key, version)) = copier.page.pop_front() {
            Some(Message::Copied(number, key, version))
        } else if copier.next < KEYS {
            let mut keys = copier.next..KEYS.min(copier.next + count);
            let Some(page) = read(live, keys.clone()) else {
                copier.number -= 1;
                live.copier = Some(copier);
                return;
            };
            copier.next = keys.end;
            copier.page = page;
            if !copier.keeps {
                copier.number -= 1;
                live.copier = Some(copier);
                return;
            }
            if canary == Canary::OpenEnd {
                keys.end = copier.page.back().map_or(keys.start, |(key, _)| key + 1);
            }
            Some(Message::Compare(number, keys, copier.page.iter().copied().collect()))
        } else if live.downstream.end_copy(copy) || anyway {
            copier.has_ended = true;
            let since = live.downstream.node().map_or(0, |node| node.since);
            Some(Message::CopyEnds(number, since))
        } else {
            None
        };
        copier.waits = true;
        let wire = copier.wire;
        live.copier = Some(copier);
        match message {
            Some(message) => {
                self.wires.get_mut(&wire).into_iter().for_each(|wire| wire.forth.push_back(message.clone()))
            }
            None => self.end_copier(node),
        }
    }

    /// Deletes old records that the node before does not have, and says what of its records is not here. False if it has to
    /// wait.
    pub(super) fn compare(
        &mut self,
        node: usize,
        (wire, worker, number): (u64, usize, u64),
        keys: Range<u8>,
        page: &[(u8, Version)],
    ) -> Result<bool, Refusal> {
        let canary = self.canary;
        let Some(live) = &mut self.nodes[node].live else { return Ok(true) };
        let below = live.upstream.old_below()?;
        if read(live, keys.clone()).is_none() {
            return Ok(false);
        }
        let is_here =
            |(key, version): &(u8, Version)| live.index.get(key).is_some_and(|(own, _)| own == version);
        let lacking = page.iter().filter(|record| !is_here(record)).map(|(key, _)| *key).collect();
        let goes = |(key, (version, seq)): (&u8, &(Version, u64))| {
            let is_old = *seq < below || canary == Canary::DeleteNew;
            let is_stranger = version.1 && !page.contains(&(*key, *version));
            (is_old && is_stranger && canary != Canary::KeepAll).then_some(Record::Write(*key, (0, false)))
        };
        let deleted: Vec<Record> = live.index.range(keys).filter_map(goes).collect();
        if deleted.is_empty() {
            self.answer(wire, Message::Lacking(lacking));
            return Ok(true);
        }
        let is_appended = self.append(node, worker, deleted, Origin::Wire(wire, number));
        if let Some(wire) = self.wires.get_mut(&wire).filter(|_| is_appended) {
            wire.lacking = Some(lacking);
        }
        Ok(is_appended)
    }
}

/// What a node has of some keys, if all of that is complete.
fn read(live: &Live, keys: Range<u8>) -> Option<VecDeque<(u8, Version)>> {
    let batches = live.links.iter().filter_map(|link| link.batch.as_ref());
    let is_pending = batches.flat_map(|batch| &batch.records).any(|record| match record {
        Record::Write(key, _) => keys.contains(key),
        Record::Flush => true,
    });
    let present = live.index.range(keys).filter(|(_, ((_, is_there), _))| *is_there);
    (!is_pending).then(|| present.map(|(key, (version, _))| (*key, *version)).collect())
}
