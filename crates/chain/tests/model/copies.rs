//! Copies to a node that is behind.

use super::{Canary, Copier, KEYS, Message, Record, World};
use landfall_chain::COPY_STREAM;

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
            Some(Message::Welcome(_) | Message::Acknowledged(_)) => {
                let Some(copier) = self.nodes[node].live.as_mut().and_then(|live| live.copier.as_mut())
                else {
                    return;
                };
                copier.waits = false;
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
        let (copy, number, keys) = (None, 0, (0..KEYS).collect());
        let copier = Copier { wire, copy, number, keys, waits: true, has_begun: false, has_ended: false };
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
        let anyway = self.canary == Canary::EndAnyway;
        let Some(live) = &mut self.nodes[node].live else { return };
        let Some(mut copier) = live.copier.take() else { return };
        if !copier.has_begun {
            copier.copy = live.downstream.begin_copy();
        }
        let Some(copy) = copier.copy else { return self.let_go(copier.wire) };
        let pending = |key: u8| {
            let batches = live.links.iter().filter_map(|link| link.batch.as_ref());
            batches.flat_map(|batch| &batch.records).any(|record| match record {
                Record::Write(own, _) => *own == key,
                Record::Flush => true,
            })
        };
        copier.number += 1;
        let number = copier.number;
        let message = if !std::mem::replace(&mut copier.has_begun, true) {
            Some(Message::CopyBegins(number))
        } else if !live.downstream.is_copying(copy) && !anyway {
            None
        } else if let Some(key) = copier.keys.front().copied() {
            // Only what is complete is copied.
            if pending(key) {
                copier.number -= 1;
                live.copier = Some(copier);
                return;
            }
            copier.keys.pop_front();
            match live.index.get(&key) {
                Some((version, true)) => Some(Message::Copied(number, key, (*version, true))),
                _ => {
                    copier.number -= 1;
                    live.copier = Some(copier);
                    return;
                }
            }
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
}
