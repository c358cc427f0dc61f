//! Properties of commands.

/// Properties of a command that are needed before it runs. Those that `COMMAND` shows are as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flags(u32);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    /// Changes keys.
    pub(super) const WRITE: Self = Self(1);
    /// Reads keys.
    pub(super) const READ: Self = Self(1 << 1);
    /// May need room in the region.
    pub(super) const DENY_OOM: Self = Self(1 << 2);
    pub(super) const ADMIN: Self = Self(1 << 3);
    pub(super) const NO_SCRIPT: Self = Self(1 << 4);
    pub(super) const LOADING: Self = Self(1 << 5);
    pub(super) const STALE: Self = Self(1 << 6);
    /// Takes constant or logarithmic time.
    pub(super) const FAST: Self = Self(1 << 7);
    /// Allowed before the client is authenticated.
    pub(super) const NO_AUTH: Self = Self(1 << 8);
    /// Not allowed within `MULTI`.
    pub(super) const NO_MULTI: Self = Self(1 << 9);
    pub(super) const BLOCKING: Self = Self(1 << 10);
    /// Executed at once even within `MULTI`. Not shown.
    pub(super) const IMMEDIATE: Self = Self(1 << 11);
    /// Reads every key: within `EXEC`, the transaction covers all keys. Not shown.
    pub(super) const ALL_KEYS: Self = Self(1 << 12);
    /// Needs the engine's statistics. Not shown.
    pub(super) const STATS: Self = Self(1 << 13);
    /// Changes nothing if it has no more words than it needs. Not shown.
    pub(super) const SHOWS: Self = Self(1 << 14);
    /// About messages for subscribers.
    pub(super) const PUBSUB: Self = Self(1 << 15);
    /// Allowed to a client that listens for messages. Not shown.
    pub(super) const SUBSCRIBED: Self = Self(1 << 16);
    /// Flags of most commands about the server.
    pub(super) const SERVER: Self = Self::LOADING.and(Self::STALE);

    /// The flags that `COMMAND` shows, by name.
    pub(super) const SHOWN: [(Self, &'static str); 12] = [
        (Self::WRITE, "write"),
        (Self::READ, "readonly"),
        (Self::DENY_OOM, "denyoom"),
        (Self::ADMIN, "admin"),
        (Self::PUBSUB, "pubsub"),
        (Self::NO_SCRIPT, "noscript"),
        (Self::BLOCKING, "blocking"),
        (Self::LOADING, "loading"),
        (Self::STALE, "stale"),
        (Self::FAST, "fast"),
        (Self::NO_AUTH, "no_auth"),
        (Self::NO_MULTI, "no_multi"),
    ];

    /// Union of two sets of flags.
    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
