//! The contents of a source of membership.

use crate::chain::Chain;
use crate::member::Member;
use std::collections::BTreeMap;

/// The contents of a source at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The chain.
    pub chain: Chain,
    /// The registered members, by name; empty for a static chain.
    pub members: BTreeMap<String, Member>,
}
