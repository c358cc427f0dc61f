//! What a program does beside serving mounts that other processes hold, and what came before.

use crate::keeping::Keeper;

/// What there is beside the mounts in the server's process.
pub struct Beside {
    /// Who keeps the heap.
    pub keeper: Keeper,
    /// Workers of the program, for which landing runs are reserved, too.
    pub workers: usize,
    /// Who has served the files before.
    pub before: Before,
}

/// Who has served the files before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nobody, or a server with the same notes.
    ThisMachine,
    /// Perhaps a server on another machine. Whichever mounts have locks is not known here.
    Another,
}
