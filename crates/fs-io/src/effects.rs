//! What a request changes, as far as the request itself says so. The server recalls leases by this list, a mount elsewhere drops
//! by it what it keeps, and a holder finds by it what a server that goes may have lost: they have to agree.

use landfall_fuse::{Node, Op, Request};
use smallvec::{SmallVec, smallvec};
use std::ffi::OsStr;

/// What a request changes, if it is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effects<'r> {
    /// The inodes that it names.
    pub(crate) nodes: SmallVec<[Node; 2]>,
    /// Names that lead elsewhere afterwards, with their directories. What they have led to changes, too.
    pub(crate) names: SmallVec<[(Node, &'r OsStr); 2]>,
    pub(crate) makes: Makes<'r>,
}

/// Whether a request makes an inode. Its reply begins with the number, then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Makes<'r> {
    Nothing,
    WithoutName,
    /// In the request's directory.
    Named(&'r OsStr),
}

impl<'r> Effects<'r> {
    /// `None`: the request changes nothing that can be looked at.
    pub(crate) fn of(request: &Request<'r>) -> Option<Self> {
        let node = request.node;
        let plain = |nodes| Self { nodes, names: SmallVec::new(), makes: Makes::Nothing };
        Some(match &request.op {
            Op::Write(_)
            | Op::SetAttr(_)
            | Op::Fallocate { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. } => plain(smallvec![node]),
            Op::CopyFileRange(copy) => plain(smallvec![copy.node_out]),
            Op::Create { name, .. }
            | Op::MkNod { name, .. }
            | Op::MkDir { name, .. }
            | Op::Symlink { name, .. } => Self { makes: Makes::Named(name), ..plain(smallvec![node]) },
            Op::TmpFile { .. } => Self { makes: Makes::WithoutName, ..plain(SmallVec::new()) },
            Op::Link { target, .. } => plain(smallvec![node, *target]),
            Op::Unlink { name } | Op::RmDir { name } => {
                Self { names: smallvec![(node, *name)], ..plain(smallvec![node]) }
            }
            Op::Rename { name, new_parent, new_name, .. } => {
                let names = smallvec![(node, *name), (*new_parent, *new_name)];
                Self { names, ..plain(smallvec![node, *new_parent]) }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_fuse::Unique;

    fn effects<'r>(op: Op<'r>) -> Option<Effects<'r>> {
        let (unique, node) = (Unique(2), Node(7));
        let request =
            Request { unique, opcode: 0, node, uid: 0, gid: 0, pid: 0, supplementary_group: None, op };
        Effects::of(&request)
    }

    #[test]
    fn what_a_request_changes_is_what_it_names_what_its_names_lead_to_and_what_it_makes() {
        let [a, b] = ["a", "b"].map(OsStr::new);
        let of = |nodes: &[u64], names: &[(u64, &'static OsStr)], makes| Effects {
            nodes: nodes.iter().copied().map(Node).collect(),
            names: names.iter().map(|(node, name)| (Node(*node), *name)).collect(),
            makes,
        };
        let rename = Op::Rename { name: a, new_parent: Node(8), new_name: b, flags: 0 };
        assert_eq!(effects(rename), Some(of(&[7, 8], &[(7, a), (8, b)], Makes::Nothing)));
        assert_eq!(effects(Op::Unlink { name: a }), Some(of(&[7], &[(7, a)], Makes::Nothing)));
        let link = Op::Link { target: Node(9), name: a };
        assert_eq!(effects(link), Some(of(&[7, 9], &[], Makes::Nothing)), "what it makes is no inode");
        let make = Op::MkDir { name: a, mode: 0, umask: 0 };
        assert_eq!(effects(make), Some(of(&[7], &[], Makes::Named(a))));
        assert_eq!(effects(Op::Lookup { name: a }), None);
    }
}
