//! What a change of files waits for: `docs/format/chain.md`, "Files in the background".

/// When all nodes of a chain have what a program does with its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replicate {
    /// Before the call that changes something returns.
    Sync,
    /// Before `fsync` returns.
    #[default]
    Fsync,
    /// A while after it was made: `fsync` waits for the first node only.
    Background,
}

impl std::str::FromStr for Replicate {
    type Err = UnknownReplicate;

    fn from_str(text: &str) -> Result<Self, UnknownReplicate> {
        match text {
            "sync" => Ok(Self::Sync),
            "fsync" => Ok(Self::Fsync),
            "background" => Ok(Self::Background),
            _ => Err(UnknownReplicate),
        }
    }
}

/// Nothing is replicated so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("files are replicated by sync, fsync or background")]
pub struct UnknownReplicate;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_one_of_three() {
        assert_eq!("sync".parse(), Ok(Replicate::Sync));
        assert_eq!("fsync".parse(), Ok(Replicate::default()));
        assert_eq!("background".parse(), Ok(Replicate::Background));
        assert_eq!("never".parse::<Replicate>(), Err(UnknownReplicate));
    }
}
