//! The chain at one version.

/// Most nodes of a chain.
pub const MEMBERS_MAX: usize = 16;
/// Longest name of a chain or a node, bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Why a document is no view, or a view is of no use here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// Misuse: a name is empty, too long, or has other characters.
    #[error("{0:?} is no name: expected 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`")]
    Name(String),
    /// Misuse: the version is 0.
    #[error("a view has a version of at least 1")]
    Version,
    /// Misuse: no members, or too many.
    #[error("a chain has 1 to {MEMBERS_MAX} members, not {0}")]
    Count(usize),
    /// Misuse: two members with one name or address.
    #[error("{0} is there twice")]
    Twice(String),
    /// Misuse: `since` is 0, above the version, or falls along the chain.
    #[error(
        "`since` of {0} must be at least 1 and that of the member before it, and at most the version of the view"
    )]
    Since(String),
    /// Misuse: a view says that a node has been there since a version at which it was not.
    #[error(
        "{node} was no member all the time since version {since}: a node that returns is added anew, at the end"
    )]
    Missed {
        /// The node.
        node: String,
        /// What the view says.
        since: u64,
    },
    /// Misuse: nodes have changed places.
    #[error("{0} was behind the member that it is before now: nodes keep their order, and join at the end")]
    Order(String),
    /// Misuse: the node is no member.
    #[error("{node} is no member of the chain {chain} in version {version}")]
    NoMember {
        /// The node.
        node: String,
        /// The chain.
        chain: String,
        /// The version of the view.
        version: u64,
    },
}

/// A node of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it listens for the node before it: a host and a port.
    pub address: String,
    /// The version with which it was added.
    pub since: u64,
}

/// A chain at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The name of the chain.
    pub name: String,
    /// Grows with each change. The first one of a chain is its time of creation, so that no chain of its name had it before.
    pub version: u64,
    /// The nodes. The first one takes writes.
    pub members: Vec<Member>,
}

impl View {
    /// Checks names, versions and order.
    ///
    /// # Errors
    /// [`ViewError`] says what is wrong.
    pub fn check(&self) -> Result<(), ViewError> {
        check_name(&self.name)?;
        if self.version == 0 {
            return Err(ViewError::Version);
        }
        if self.members.is_empty() || self.members.len() > MEMBERS_MAX {
            return Err(ViewError::Count(self.members.len()));
        }
        let mut before = 1;
        for (at, member) in self.members.iter().enumerate() {
            check_name(&member.name)?;
            if !(before..=self.version).contains(&member.since) {
                return Err(ViewError::Since(member.name.clone()));
            }
            before = member.since;
            let earlier = &self.members[..at];
            if earlier.iter().any(|other| other.name == member.name) {
                return Err(ViewError::Twice(member.name.clone()));
            }
            if earlier.iter().any(|other| other.address == member.address) {
                return Err(ViewError::Twice(member.address.clone()));
            }
        }
        Ok(())
    }

    /// A node's place in the chain, from 0 on, and its entry.
    ///
    /// # Errors
    /// [`ViewError::NoMember`].
    pub fn find(&self, node: &str) -> Result<(usize, &Member), ViewError> {
        let (chain, version) = (self.name.clone(), self.version);
        let mut members = self.members.iter().enumerate();
        let missing = || ViewError::NoMember { node: node.into(), chain, version };
        members.find(|(_, member)| member.name == node).ok_or_else(missing)
    }

    /// The node behind another one.
    pub fn behind(&self, node: &str) -> Option<&Member> {
        self.find(node).ok().and_then(|(at, _)| self.members.get(at + 1))
    }

    /// The node before another one.
    pub fn before(&self, node: &str) -> Option<&Member> {
        self.find(node).ok().and_then(|(at, _)| self.members.get(at.checked_sub(1)?))
    }

    /// True if the node takes writes.
    pub fn is_first(&self, node: &str) -> bool {
        self.members.first().is_some_and(|member| member.name == node)
    }

    /// The first view of a chain that is created at `now`, Unix seconds, with these nodes and their addresses.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn create(
        name: String,
        members: impl IntoIterator<Item = (String, String)>,
        now: u64,
    ) -> Result<Self, ViewError> {
        let version = now.max(1);
        let member = |(name, address)| Member { name, address, since: version };
        let view = Self { name, version, members: members.into_iter().map(member).collect() };
        view.check()?;
        Ok(view)
    }

    /// True if this is the first view of its chain: no node was added later.
    pub fn is_first_one(&self) -> bool {
        self.members.first().is_some_and(|member| member.since == self.version)
    }

    /// Checks that this view can follow an earlier one, whatever came between: who was not removed is where it was, and who is
    /// new, or was removed, is added anew. Otherwise a node would count as having what it has missed.
    ///
    /// # Errors
    /// [`ViewError::Missed`], [`ViewError::Order`].
    pub fn follows(&self, earlier: &Self) -> Result<(), ViewError> {
        let mut before = None;
        for member in self.members.iter().filter(|member| member.since <= earlier.version) {
            let known = earlier.members.iter().position(|other| other.name == member.name);
            let at = known.filter(|at| earlier.members[*at].since == member.since);
            let at =
                at.ok_or_else(|| ViewError::Missed { node: member.name.clone(), since: member.since })?;
            if before.is_some_and(|before| at < before) {
                return Err(ViewError::Order(member.name.clone()));
            }
            before = Some(at);
        }
        Ok(())
    }

    /// The next view, with one more node at the end.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn with(&self, name: &str, address: &str) -> Result<Self, ViewError> {
        let mut next = self.clone();
        next.version += 1;
        next.members.push(Member { name: name.into(), address: address.into(), since: next.version });
        next.check()?;
        Ok(next)
    }

    /// The next view, without a node.
    ///
    /// # Errors
    /// [`ViewError::NoMember`]; [`ViewError::Count`] for the last one.
    pub fn without(&self, name: &str) -> Result<Self, ViewError> {
        let at = self.find(name)?.0;
        let mut next = self.clone();
        next.version += 1;
        next.members.remove(at);
        next.check()?;
        Ok(next)
    }
}

/// Checks the name of a chain or a node.
///
/// # Errors
/// [`ViewError::Name`].
pub fn check_name(name: &str) -> Result<(), ViewError> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fine);
    if is_name { Ok(()) } else { Err(ViewError::Name(name.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(members: &[(&str, u16, u64)]) -> View {
        let member = |(name, port, since): &(&str, u16, u64)| Member {
            name: (*name).into(),
            address: format!("127.0.0.1:{port}"),
            since: *since,
        };
        View { name: "orders".into(), version: 3, members: members.iter().map(member).collect() }
    }

    #[test]
    fn neighbours_are_by_order() {
        let view = view(&[("a", 1, 1), ("b", 2, 1), ("c", 3, 3)]);
        assert_eq!(view.behind("a").map(|member| &*member.name), Some("b"));
        assert_eq!(view.behind("c"), None);
        assert_eq!(view.before("c").map(|member| &*member.name), Some("b"));
        assert_eq!(view.before("a"), None);
        assert!(view.is_first("a") && !view.is_first("b"));
    }

    #[test]
    fn changes_make_a_higher_version() -> Result<(), ViewError> {
        let first = view(&[("a", 1, 1), ("b", 2, 1)]);
        let without = first.without("a")?;
        assert_eq!((without.version, without.is_first("b")), (4, true));
        let again = without.with("a", "127.0.0.1:1")?;
        assert_eq!((again.version, again.members[1].since), (5, 5));
        assert_eq!(first.with("a", "127.0.0.1:9"), Err(ViewError::Twice("a".into())));
        let alone = view(&[("a", 1, 1)]);
        assert_eq!(alone.without("a"), Err(ViewError::Count(0)));
        Ok(())
    }

    #[test]
    fn a_view_follows_if_nobody_counts_as_having_what_it_has_missed() -> Result<(), ViewError> {
        let first = view(&[("a", 1, 1), ("b", 2, 1), ("c", 3, 2)]);
        let without = first.without("b")?;
        let again = without.with("b", "127.0.0.1:2")?;
        for (next, earlier) in [(&without, &first), (&again, &first), (&again, &without), (&first, &first)] {
            assert_eq!(next.follows(earlier), Ok(()));
        }
        let old = View { version: 9, ..first.clone() };
        assert_eq!(old.follows(&without), Err(ViewError::Missed { node: "b".into(), since: 1 }));
        assert_eq!(old.follows(&again), Err(ViewError::Missed { node: "b".into(), since: 1 }));
        let swapped = View { version: 9, ..view(&[("b", 2, 1), ("a", 1, 1), ("c", 3, 2)]) };
        assert_eq!(swapped.follows(&first), Err(ViewError::Order("a".into())));
        Ok(())
    }

    #[test]
    fn the_first_view_of_a_chain_is_known() -> Result<(), ViewError> {
        let members = ["a", "b"].map(|name| (name.to_owned(), format!("{name}:1")));
        let created = View::create("orders".into(), members, 1_700_000_000)?;
        assert!(created.is_first_one() && created.members[1].since == 1_700_000_000);
        let next = created.without("a")?;
        assert!(!next.is_first_one() && !next.with("a", "a:1")?.is_first_one());
        Ok(())
    }

    #[test]
    fn nonsense_is_named() {
        let wrong = |members: &[(&str, u16, u64)]| view(members).check().unwrap_err();
        assert_eq!(wrong(&[]), ViewError::Count(0));
        assert_eq!(wrong(&[("a", 1, 1), ("a", 2, 1)]), ViewError::Twice("a".into()));
        assert_eq!(wrong(&[("a", 1, 1), ("b", 1, 1)]), ViewError::Twice("127.0.0.1:1".into()));
        assert_eq!(wrong(&[("a", 1, 2), ("b", 2, 1)]), ViewError::Since("b".into()));
        assert_eq!(wrong(&[("a", 1, 4)]), ViewError::Since("a".into()));
        assert_eq!(wrong(&[("a/b", 1, 1)]), ViewError::Name("a/b".into()));
    }
}
