//! How far writers have come.

use crate::layout::RunId;

/// How far a writer has come in its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled(pub(crate) Option<(RunId, u32)>);
