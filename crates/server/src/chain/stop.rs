//! Why a message of the node before is not executed.

use landfall_chain::{Reason, Refusal, WireError};
use landfall_chain_io::UnpackError;
use landfall_fs::FsError;
use landfall_heap::{Heap, HeapError, Until};
use landfall_kv::{DATABASES, KvError};
use landfall_wal::WalError;

/// Why a message was not executed.
pub(super) enum Stop {
    /// It is executed again later, from where it was.
    Wait(Until),
    /// There is no room.
    Full,
    Refused(Refusal),
}

impl Stop {
    /// Values are not unpacked.
    pub(super) fn of_unpacking(error: UnpackError, heap: &Heap) -> Self {
        match error {
            UnpackError::NoRoom if heap.may_wait_for_any() => Self::Wait(Until::Space),
            UnpackError::NoRoom => Self::Full,
            UnpackError::Wire(error) => error.into(),
            error => Self::Refused(Refusal::new(Reason::Message, error.to_string())),
        }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<KvError> for Stop {
    fn from(error: KvError) -> Self {
        match error {
            KvError::Wait(until) => Self::Wait(until),
            KvError::Heap(HeapError::Full) => Self::Full,
            error => Self::Refused(Refusal::new(Reason::Message, error.to_string())),
        }
    }
}

impl From<HeapError> for Stop {
    fn from(error: HeapError) -> Self {
        KvError::from(error).into()
    }
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Self {
        match error {
            FsError::Wait(until) => Self::Wait(until),
            FsError::Backlog => Self::Wait(Until::Space),
            FsError::Heap(error) => error.into(),
            error @ (FsError::Tree(_) | FsError::Header(_) | FsError::FloorLost) => {
                Self::Refused(Refusal::new(Reason::Message, error.to_string()))
            }
        }
    }
}

impl From<landfall_fs::ReceiveError> for Stop {
    fn from(error: landfall_fs::ReceiveError) -> Self {
        use landfall_fs::ReceiveError;
        let ends_copy = matches!(error, ReceiveError::NoCopy | ReceiveError::Returned { .. });
        let reason = if ends_copy { Reason::Copy } else { Reason::Message };
        match error {
            ReceiveError::Files(error) => error.into(),
            error => Self::Refused(Refusal::new(reason, error.to_string())),
        }
    }
}

impl From<WalError> for Stop {
    fn from(error: WalError) -> Self {
        match error {
            WalError::Wait(until) => Self::Wait(until),
            WalError::Heap(error) => error.into(),
            error => Self::Refused(Refusal::new(Reason::Message, error.to_string())),
        }
    }
}

impl From<landfall_wal::ReceiveError> for Stop {
    fn from(error: landfall_wal::ReceiveError) -> Self {
        use landfall_wal::ReceiveError;
        match error {
            ReceiveError::Wal(error) => error.into(),
            ReceiveError::NoCopy => Self::Refused(Refusal::new(Reason::Copy, error.to_string())),
            error => Self::Refused(Refusal::new(Reason::Message, error.to_string())),
        }
    }
}

/// Fails if a space is none of a database.
pub(super) fn check_space(space: u8) -> Result<(), Refusal> {
    if usize::from(space) < DATABASES {
        return Ok(());
    }
    Err(Refusal::new(Reason::Message, format!("space {space} is none of a database")))
}
