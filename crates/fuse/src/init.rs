//! INIT: what both sides can do.

use crate::abi;
use crate::reply::Reply;
use crate::request::{Decoder, Init};
use crate::types::Unique;
use std::fmt;

/// The earliest minor version that is served: Linux 5.4.
pub const MINOR_MIN: u32 = 31;
/// The first minor version with [`crate::Notification::expire_names`]: Linux 6.16.
pub const EPOCH_MINOR: u32 = 44;
/// Bytes that the kernel wants a receiver to have room for, at least (`FUSE_MIN_READ_BUFFER`).
const RECEIVE_BYTES_MIN: usize = 8192;
/// Pages of a request where their number cannot be negotiated.
const PAGES_DEFAULT: u32 = 32;
/// Bytes of a page in the protocol's counts.
const PAGE_BYTES: u32 = 4096;

/// Declares the features with their bits.
macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $bit:literal),* $(,)?) => {
        /// What the kernel can do for, or leave to, the file system (`FUSE_*` flags of INIT). Security contexts, DAX
        /// and passthrough are not among them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Feature { $($(#[$doc])* $name = $bit),* }

        impl Feature {
            /// Every feature.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

features! {
    /// Reads of one file may be in flight together.
    AsyncRead = 0,
    /// The file system keeps POSIX locks.
    PosixLocks = 1,
    /// The file system truncates at an open with `O_TRUNC`.
    AtomicOTrunc = 3,
    /// The file system answers LOOKUP of `.` and `..`, for NFS.
    ExportSupport = 4,
    /// WRITE may have more than 4 KiB. Kernels that offer `MaxPages` always do so.
    BigWrites = 5,
    /// The file system applies the umask.
    DontMask = 6,
    /// The file system keeps locks of `flock`.
    FlockLocks = 10,
    /// The kernel sends IOCTL for directories.
    HasIoctlDir = 11,
    /// The kernel drops cached data when size or mtime have changed.
    AutoInvalData = 12,
    /// READDIRPLUS is answered.
    DoReaddirplus = 13,
    /// The kernel chooses between READDIR and READDIRPLUS; needs `DoReaddirplus`.
    ReaddirplusAuto = 14,
    /// Direct reads and writes of one file may be in flight together.
    AsyncDio = 15,
    /// The kernel keeps written data, and size and mtime with them, until it writes them back.
    WritebackCache = 16,
    /// An `ENOSYS` to OPEN means: no OPEN and RELEASE at all.
    NoOpenSupport = 17,
    /// Lookups and reads of one directory may be in flight together.
    ParallelDirops = 18,
    /// The kernel checks POSIX ACLs, which the file system keeps as extended attributes. It implies `default_permissions`.
    PosixAcl = 20,
    /// A receiver learns that the connection was aborted by hand, by `ECONNABORTED`.
    AbortError = 21,
    /// The number of pages of a request is negotiated.
    MaxPages = 22,
    /// Targets of symbolic links are cached.
    CacheSymlinks = 23,
    /// An `ENOSYS` to OPENDIR means: no OPENDIR and RELEASEDIR at all.
    NoOpendirSupport = 24,
    /// The kernel drops cached data only when told; excludes `AutoInvalData`.
    ExplicitInvalData = 25,
    /// The file system clears the set-user-ID and set-group-ID bits and capabilities when told by flags of requests.
    HandleKillprivV2 = 28,
    /// SETXATTR has its extended form.
    SetxattrExt = 29,
    /// Names can be expired ([`crate::Entries::Expire`]).
    HasExpireOnly = 35,
    /// Creating requests say which supplementary group owns the parent.
    CreateSuppGroup = 34,
    /// Files opened with `DIRECT_IO` can be mapped shared.
    DirectIoAllowMmap = 36,
    /// The kernel delivers unanswered requests again when told ([`crate::Notification::resend`]): Linux 6.9.
    HasResend = 39,
    /// Requests come over io_uring ([`crate::Ring`]): Linux 6.14, where root has allowed it. None comes until each queue has
    /// an entry. FORGET, INTERRUPT and notifications stay on the device.
    OverIoUring = 41,
}

impl Feature {
    const fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// `FUSE_INIT_EXT`: the second word of flags counts.
const INIT_EXT: u64 = 1 << 30;

/// A set of features.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// These features.
    pub fn of(features: &[Feature]) -> Self {
        Self(features.iter().fold(0, |bits, feature| bits | feature.bit()))
    }

    /// The set as a word of bits: those of INIT.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The set of a word of bits. Unknown ones are left out.
    pub fn of_bits(bits: u64) -> Self {
        Self(bits & Self::of(Feature::ALL).0)
    }

    /// True if the feature is in the set.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }

    /// The set without these features.
    #[must_use]
    pub fn without(self, features: &[Feature]) -> Self {
        Self(self.0 & !Self::of(features).0)
    }

    /// The set with these features.
    #[must_use]
    pub fn with(self, features: &[Feature]) -> Self {
        Self(self.0 | Self::of(features).0)
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Feature::ALL.iter().filter(|feature| self.has(**feature))).finish()
    }
}

/// What the file system wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Features, each of which is used where the kernel offers it.
    pub features: Features,
    /// Bytes of the largest WRITE; a multiple of 4,096. The kernel cuts it to `fs.fuse.max_pages_limit` (1 MiB unless raised).
    pub max_write: u32,
    /// Bytes that the kernel may read ahead.
    pub max_readahead: u32,
    /// Requests without a waiting caller (read-ahead, write-back, asynchronous direct ones) that are in flight at most.
    pub max_background: u16,
    /// Number of these above which the kernel calls the file system congested.
    pub congestion_threshold: u16,
    /// Nanoseconds of the finest difference of two times: a power of ten up to 1,000,000,000.
    pub time_gran: u32,
}

impl Default for Wanted {
    /// Caches of the kernel on, its checks of permissions, and requests of 1 MiB.
    fn default() -> Self {
        use Feature as F;
        Self {
            features: Features::of(&[
                F::AsyncRead,
                F::AtomicOTrunc,
                F::BigWrites,
                F::AutoInvalData,
                F::DoReaddirplus,
                F::ReaddirplusAuto,
                F::AsyncDio,
                F::ParallelDirops,
                F::MaxPages,
                F::CacheSymlinks,
                F::SetxattrExt,
                F::HasExpireOnly,
                F::CreateSuppGroup,
                F::DirectIoAllowMmap,
            ]),
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            time_gran: 1,
        }
    }
}

/// Why a kernel is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// Its protocol is too old or of another major version.
    #[error(
        "the kernel speaks FUSE {major}.{minor}; {} to 7.x is served: use Linux 5.4 or newer",
        format_args!("7.{MINOR_MIN}")
    )]
    Version {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
    },
}

/// What both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The minor version in use.
    pub minor: u32,
    /// The features in use.
    pub features: Features,
    /// Bytes of the largest WRITE.
    pub max_write: u32,
    /// Bytes that the kernel reads ahead at most.
    pub max_readahead: u32,
    max_background: u16,
    congestion_threshold: u16,
    time_gran: u32,
}

impl Negotiated {
    /// Agrees on what the file system wants and the kernel offers.
    ///
    /// # Errors
    /// The kernel's protocol is not served; answer its INIT with [`crate::Errno::PROTO`], so that the mount fails.
    pub fn new(kernel: &Init, wanted: &Wanted) -> Result<Self, InitError> {
        if kernel.major != abi::MAJOR || kernel.minor < MINOR_MIN {
            return Err(InitError::Version { major: kernel.major, minor: kernel.minor });
        }
        let features = agreed(Features(kernel.flags & wanted.features.0));
        let pages_max = if features.has(Feature::MaxPages) { u32::from(u16::MAX) } else { PAGES_DEFAULT };
        let pages = (wanted.max_write / PAGE_BYTES).clamp(1, pages_max);
        Ok(Self {
            minor: kernel.minor.min(abi::MINOR),
            features,
            max_write: pages * PAGE_BYTES,
            max_readahead: wanted.max_readahead.min(kernel.max_readahead),
            max_background: wanted.max_background,
            congestion_threshold: wanted.congestion_threshold,
            time_gran: wanted.time_gran,
        })
    }

    /// What another process has agreed on with the kernel: minor version, features, bytes of the largest WRITE and of
    /// read-ahead.
    pub fn elsewhere(minor: u32, features: Features, max_write: u32, max_readahead: u32) -> Self {
        let Wanted { max_background, congestion_threshold, time_gran, .. } = Wanted::default();
        Self { minor, features, max_write, max_readahead, max_background, congestion_threshold, time_gran }
    }

    /// The answer to INIT.
    pub fn reply(&self, unique: Unique) -> Reply {
        let (low, high) = words(self.features.0 | INIT_EXT);
        let pages = u16::try_from(self.max_write / PAGE_BYTES).unwrap_or(u16::MAX);
        let raw = abi::InitOut {
            major: abi::MAJOR,
            minor: self.minor,
            max_readahead: self.max_readahead,
            flags: low,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold,
            max_write: self.max_write,
            time_gran: self.time_gran,
            max_pages: pages,
            flags2: high,
            ..abi::InitOut::default()
        };
        Reply::init(unique, &raw)
    }

    /// Decodes the requests that follow.
    pub fn decoder(&self) -> Decoder {
        Decoder::with_setxattr_ext(self.features.has(Feature::SetxattrExt))
    }

    /// Bytes that the frames of [`crate::Device::receive`] must have together.
    pub fn frame_bytes(&self) -> usize {
        frame_bytes(self.max_write)
    }

    /// Bytes that the kernel wants an entry of a [`crate::Ring`] to have for its payload.
    pub(crate) fn payload_bytes(&self) -> usize {
        usize::try_from(self.max_write).unwrap_or(usize::MAX).max(RECEIVE_BYTES_MIN)
    }
}

/// Bytes that frames must have together to receive INIT and, later, WRITEs of up to `max_write` bytes.
pub fn frame_bytes(max_write: u32) -> usize {
    let data = usize::try_from(max_write).unwrap_or(usize::MAX);
    data.max(RECEIVE_BYTES_MIN - crate::request::HEAD_BYTES)
}

/// Features that need, or exclude, each other.
fn agreed(features: Features) -> Features {
    let features = match features.has(Feature::DoReaddirplus) {
        true => features,
        false => features.without(&[Feature::ReaddirplusAuto]),
    };
    match features.has(Feature::ExplicitInvalData) {
        true => features.without(&[Feature::AutoInvalData]),
        false => features,
    }
}

fn words(flags: u64) -> (u32, u32) {
    let word = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
    (word(flags), word(flags >> 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(minor: u32, flags: u64) -> Init {
        Init { major: 7, minor, max_readahead: 131_072, flags }
    }

    fn words_of(reply: &Reply) -> Vec<u32> {
        reply.as_bytes().chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn what_both_can_do_is_agreed_on() {
        let negotiated = Negotiated::new(&kernel(45, u64::MAX), &Wanted::default()).unwrap();
        assert_eq!(negotiated.features, Wanted::default().features);
        let words = words_of(&negotiated.reply(Unique(1)));
        assert_eq!(words.len(), 20, "header and 64 bytes");
        assert_eq!(words[4..7], [7, 45, 131_072]);
        // ASYNC_READ, ATOMIC_O_TRUNC, BIG_WRITES, AUTO_INVAL_DATA, DO_READDIRPLUS, READDIRPLUS_AUTO, ASYNC_DIO,
        // PARALLEL_DIROPS, MAX_PAGES, CACHE_SYMLINKS, SETXATTR_EXT, INIT_EXT.
        assert_eq!(words[7], 0x60C4_F029);
        assert_eq!(words[8..11], [64 | 48 << 16, 1 << 20, 1]);
        // 256 pages; HAS_EXPIRE_ONLY, CREATE_SUPP_GROUP, DIRECT_IO_ALLOW_MMAP.
        assert_eq!(words[11..13], [256, 0b1_1100]);
        assert!(words[13..].iter().all(|word| *word == 0));
        assert_eq!(negotiated.frame_bytes(), 1 << 20);
    }

    #[test]
    fn an_old_kernel_works_with_what_it_has() {
        let offered = Features::of(&[Feature::AsyncRead, Feature::ReaddirplusAuto]);
        let negotiated = Negotiated::new(&kernel(31, offered.0), &Wanted::default()).unwrap();
        assert_eq!(negotiated.features, Features::of(&[Feature::AsyncRead]), "AUTO needs READDIRPLUS");
        assert_eq!((negotiated.minor, negotiated.max_write), (31, 128 << 10));
        assert_eq!(words_of(&negotiated.reply(Unique(1)))[5], 31);
    }

    #[test]
    fn small_writes_still_have_the_room_that_the_kernel_wants() {
        let wanted = Wanted { max_write: 1, ..Wanted::default() };
        let negotiated = Negotiated::new(&kernel(45, u64::MAX), &wanted).unwrap();
        assert_eq!((negotiated.max_write, negotiated.frame_bytes()), (4096, 8112));
    }

    #[test]
    fn io_uring_is_used_only_where_it_is_wanted_and_offered() {
        let ring = [Feature::OverIoUring];
        let wanted = Wanted { features: Wanted::default().features.with(&ring), ..Wanted::default() };
        let has = |flags, wanted: &Wanted| {
            Negotiated::new(&kernel(45, flags), wanted).unwrap().features.has(Feature::OverIoUring)
        };
        assert!(has(u64::MAX, &wanted) && !has(u64::MAX, &Wanted::default()) && !has(!(1 << 41), &wanted));
        let negotiated = Negotiated::new(&kernel(45, u64::MAX), &wanted).unwrap();
        assert_eq!(words_of(&negotiated.reply(Unique(1)))[12], 0b10_0001_1100, "bit 9 of the second word");
        assert_eq!(negotiated.payload_bytes(), 1 << 20);
        let small = Wanted { max_write: 4096, ..wanted };
        assert_eq!(Negotiated::new(&kernel(45, u64::MAX), &small).unwrap().payload_bytes(), 8192);
    }

    #[test]
    fn explicit_invalidation_excludes_the_automatic_one() {
        let both = Features::of(&[Feature::ExplicitInvalData, Feature::AutoInvalData]);
        let wanted = Wanted { features: both, ..Wanted::default() };
        let negotiated = Negotiated::new(&kernel(45, u64::MAX), &wanted).unwrap();
        assert_eq!(format!("{:?}", negotiated.features), "{ExplicitInvalData}");
    }

    #[test]
    fn other_versions_are_refused_with_what_to_do() {
        for (major, minor) in [(7, 30), (6, 45), (8, 0)] {
            let error =
                Negotiated::new(&Init { major, minor, ..kernel(0, 0) }, &Wanted::default()).unwrap_err();
            assert_eq!(error, InitError::Version { major, minor });
            assert!(error.to_string().ends_with("7.31 to 7.x is served: use Linux 5.4 or newer"), "{error}");
        }
    }

    #[test]
    fn features_have_the_bits_of_the_header() {
        assert_eq!(Feature::WritebackCache.bit(), 1 << 16);
        assert_eq!(Feature::HandleKillprivV2.bit(), 1 << 28);
        let all = Features::of(Feature::ALL);
        assert!(Feature::ALL.iter().all(|feature| all.has(*feature)));
        assert_eq!(all.0.count_ones() as usize, Feature::ALL.len(), "no two share a bit");
        assert!(!all.has(Feature::PosixAcl) || !all.without(&[Feature::PosixAcl]).has(Feature::PosixAcl));
    }
}
