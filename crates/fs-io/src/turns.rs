//! When a request's turn is among those of all mounts, and what its mount's holder may keep of the answer.

use crate::effects::{Effects, Makes};
use crate::inspect;
use crate::leases::{Changing, Inodes};
use crate::service::{Service, name_of, number_of};
use landfall_fuse::{Op, Request, Unique};
use parking_lot::MutexGuard;

/// The turn of a request among those of all mounts, as long as this lives.
#[derive(Default)]
pub(crate) struct Turn<'s> {
    // It ends first.
    _turn: Option<MutexGuard<'s, ()>>,
    changing: Option<Changing<'s>>,
}

impl Turn<'_> {
    /// Whether the reply to the request is marked: the holder of its mount had leases of inodes that have changed, and cannot
    /// know by the request which these are.
    pub(crate) fn is_marked(&self) -> bool {
        self.changing.as_ref().is_some_and(|changing| changing.had_unnamed())
    }
}

/// Waits for a request's turn. One kernel alone lets nothing happen at the same time that must not. Leases of what the
/// request changes are recalled before.
pub(crate) fn take<'s>(service: &'s Service, request: &Request<'_>) -> Turn<'s> {
    if !service.is_shared() {
        return Turn::default();
    }
    let common = &service.common;
    let mut changed = Changed::of(service, request);
    loop {
        let change =
            |changed: &Changed| common.leases.change(service.mount(), &changed.named, &changed.found);
        let changing = changed.as_ref().map(change);
        let turn = common.turns.take(&request.op, number_of(request.node));
        // Names may lead elsewhere by now.
        let now = Changed::of(service, request);
        if now == changed {
            return Turn { _turn: turn, changing: changing.map(Changing::execute) };
        }
        changed = now;
    }
}

/// The id to which a request that reads is answered: marked, if the holder of a mount on another machine may keep what is
/// found of the request's inode from now on.
pub(crate) fn lease(service: &Service, request: &Request<'_>) -> Unique {
    let may_keep = is_kept(&request.op) && service.lease_of(number_of(request.node));
    if may_keep { request.unique.marked() } else { request.unique }
}

/// Whether the holder of a mount on another machine may keep what a request finds of the request's inode.
fn is_kept(op: &Op<'_>) -> bool {
    match op {
        Op::GetAttr { .. }
        | Op::Statx { .. }
        | Op::Read(_)
        | Op::ReadLink
        | Op::ListXattr { .. }
        | Op::ReadDir(_) => true,
        // Others are computed.
        Op::GetXattr { name, .. } => !inspect::is_computed(name),
        _ => false,
    }
}

/// The inodes that a request changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Changed {
    /// Those that it names.
    named: Inodes,
    /// Those to which its names lead.
    found: Inodes,
}

impl Changed {
    /// `None`: it changes none.
    fn of(service: &Service, request: &Request<'_>) -> Option<Self> {
        let Effects { nodes, mut names, makes } = Effects::of(request)?;
        // What a server before this one has made gets its ACLs still.
        if let Makes::Named(name) = makes
            && request.unique.is_resent()
        {
            names.push((request.node, name));
        }
        let find = |(parent, name)| {
            let found = name_of(name).and_then(|name| service.lookup(number_of(parent), name));
            found.ok().map(|stat| stat.number)
        };
        let named = nodes.into_iter().map(number_of).collect();
        Some(Self { named, found: names.into_iter().filter_map(find).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Sharing;
    use crate::lives::MountNumber;
    use crate::service::tests::service_of;
    use crate::service::{Held, Which};
    use landfall_fs::{FileType, InodeNumber, Mode, Name, Operation};
    use landfall_fuse::Node;
    use std::ffi::OsStr;

    #[test]
    fn a_request_that_is_sent_again_may_change_what_it_has_made() {
        let which = Which { mount: MountNumber(1), sharing: Sharing::Shared };
        let (service, _) = service_of(Some(Held::Elsewhere([3; 16])), which);
        let (number, mode) = (InodeNumber(7), Mode::new(FileType::Directory, 0o755));
        let place = Some((InodeNumber::ROOT, Name::new(b"a").expect("a good name")));
        let create = Operation::Create { place, number, mode, uid: 0, gid: 0, rdev: 0 };
        service.execute_now(&create).expect("there is room");
        let found = |unique| {
            let op = Op::MkDir { name: OsStr::new("a"), mode: 0, umask: 0 };
            let node = Node(InodeNumber::ROOT.0);
            let request =
                Request { unique, opcode: 0, node, uid: 0, gid: 0, pid: 0, supplementary_group: None, op };
            Changed::of(&service, &request).expect("it changes something").found.to_vec()
        };
        assert_eq!(found(Unique(2)), []);
        assert_eq!(found(Unique(2).resent()), [number]);
    }
}
