//! Names of files: what POSIX allows in a directory entry.

use thiserror::Error;

/// Longest name of a directory entry, bytes (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, bytes, with the zero byte that ends it in C (`PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest target of a symbolic link, bytes: the longest path without its zero byte.
pub const TARGET_BYTES_MAX: usize = PATH_BYTES_MAX - 1;

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// `ENAMETOOLONG`.
    #[error("a name has at most {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// `EINVAL`: empty, `.`, `..`, or a name with `/` or a zero byte.
    #[error("a name is neither empty nor `.` nor `..`, and has neither `/` nor a zero byte")]
    Invalid,
}

/// The name of an extended attribute, with its namespace: 1 to [`NAME_BYTES_MAX`] bytes, none of them zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtendedName<'a>(&'a [u8]);

impl<'a> ExtendedName<'a> {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, NameError> {
        match bytes.len() {
            0 => Err(NameError::Invalid),
            1..=NAME_BYTES_MAX if !bytes.contains(&0) => Ok(Self(bytes)),
            1..=NAME_BYTES_MAX => Err(NameError::Invalid),
            _ => Err(NameError::TooLong),
        }
    }

    /// The name's bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// A name that a directory entry may have. It need not be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, NameError> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        let is_special = matches!(bytes, b"" | b"." | b"..");
        if is_special || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(NameError::Invalid);
        }
        Ok(Self(bytes))
    }

    /// The name's bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_posix_allows() {
        for good in [&b"a"[..], b"...", b"..a", b" ", b"\xff\x01\n", &[b'x'; NAME_BYTES_MAX]] {
            assert_eq!(Name::new(good).map(Name::bytes), Ok(good));
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(Name::new(bad), Err(NameError::Invalid), "{bad:?}");
        }
        assert_eq!(Name::new(&[b'x'; NAME_BYTES_MAX + 1]), Err(NameError::TooLong));
    }

    #[test]
    fn names_of_extended_attributes_may_be_what_names_of_files_may_not() {
        for good in [&b"user.a/b"[..], b".", b"..", &[b'x'; NAME_BYTES_MAX]] {
            assert_eq!(ExtendedName::new(good).map(ExtendedName::bytes), Ok(good));
        }
        for bad in [&b""[..], b"user.a\0"] {
            assert_eq!(ExtendedName::new(bad), Err(NameError::Invalid), "{bad:?}");
        }
        assert_eq!(ExtendedName::new(&[b'x'; NAME_BYTES_MAX + 1]), Err(NameError::TooLong));
    }
}
