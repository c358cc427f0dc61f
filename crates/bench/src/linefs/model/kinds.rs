//! The chains that are simulated.

use super::course::Way;
use crate::linefs::place::{ASSISE, CHAIN, NOT_PARALLEL};

/// What of a place is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Simulated {
    Chain,
    NotParallel,
    Assise,
}

impl Simulated {
    pub(super) const ALL: [Self; 3] = [Self::Chain, Self::NotParallel, Self::Assise];

    pub(super) fn place(self) -> &'static str {
        match self {
            Self::Chain => CHAIN,
            Self::NotParallel => NOT_PARALLEL,
            Self::Assise => ASSISE,
        }
    }

    pub(super) fn way(self) -> Way {
        match self {
            Self::Chain => Way::Pipelined,
            Self::NotParallel => Way::OneAtATime,
            Self::Assise => Way::AtFsync,
        }
    }
}
