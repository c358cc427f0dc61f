//! What a source of membership says.

use crate::chain::Chain;
use crate::member::Member;
use std::collections::BTreeMap;

/// What a source knows at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The chain.
    pub chain: Chain,
    /// Who is registered, by name; nobody in a static chain.
    pub members: BTreeMap<String, Member>,
}
