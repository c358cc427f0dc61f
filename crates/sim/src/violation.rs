//! The error type of all checkers.

/// A state or an answer that the rules do not allow, described as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl Violation {
    /// Puts in front of the text where the violation was found.
    #[must_use]
    pub fn during(self, what: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {}", self.0))
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

impl From<landfall_kv::KvError> for Violation {
    fn from(error: landfall_kv::KvError) -> Self {
        Self(format!("an unexpected error: {error:?}"))
    }
}

impl From<landfall_wal::WalError> for Violation {
    fn from(error: landfall_wal::WalError) -> Self {
        Self(format!("an unexpected error: {error:?}"))
    }
}

impl From<landfall_heap::HeapError> for Violation {
    fn from(error: landfall_heap::HeapError) -> Self {
        Self(format!("an unexpected error: {error:?}"))
    }
}

impl From<landfall_media::MediaError> for Violation {
    fn from(error: landfall_media::MediaError) -> Self {
        Self(format!("an unexpected error: {error:?}"))
    }
}

impl From<landfall_pmnet::LogError> for Violation {
    fn from(error: landfall_pmnet::LogError) -> Self {
        Self(format!("an unexpected error: {error:?}"))
    }
}

/// Fails with a text unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::violation::Violation(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;
