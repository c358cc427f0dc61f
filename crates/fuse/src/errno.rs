//! Error numbers of replies.

/// An error number that the kernel accepts in a reply: 1 to 511.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// `EIO`: the data are damaged or cannot be read.
    pub const IO: Self = Self(libc::EIO);
    /// `ENOSYS`: the operation is not known; the kernel does not ask again.
    pub const NOSYS: Self = Self(libc::ENOSYS);
    /// `ENOENT`: there is no such name.
    pub const NOENT: Self = Self(libc::ENOENT);
    /// `EINTR`: the caller was interrupted.
    pub const INTR: Self = Self(libc::EINTR);
    /// `EPROTO`: the two sides have no version of the protocol in common.
    pub const PROTO: Self = Self(libc::EPROTO);

    /// An error number of Linux (`libc::E*`). One that the kernel would refuse becomes `EIO`.
    pub const fn from_raw(raw: i32) -> Self {
        if raw >= 1 && raw <= 511 { Self(raw) } else { Self::IO }
    }

    /// The number, positive.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl From<std::io::Error> for Errno {
    /// The error's number; `EIO` where it has none.
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Self::IO, Self::from_raw)
    }
}
