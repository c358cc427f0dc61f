//! The faults of a campaign: those of the parts of the system, and those that are built in on purpose.

use landfall_media::Site;
use std::time::Duration;

/// Faults that are built in on purpose (canaries). The oracle must catch each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Devices acknowledge without a fence.
    DeviceAcksEarly,
    /// Devices leave out flushes or fences.
    DeviceSkips(Site),
    /// The server confirms batches that its medium does not have.
    ServerConfirmsEarly,
    /// The application commits an update's effect without its row.
    RowForgotten,
    /// The application commits a bypass's effect without its row.
    BypassRowForgotten,
    /// Devices accept packets that only servers send from both sides.
    SidesConfused,
    /// Devices ignore that a server does not know a session.
    RefusalsUnheard,
    /// The server ends silent sessions without asking devices whether they hold updates.
    EndsUnasked,
    /// Clients accept acknowledgements after their lease has expired.
    LeaseIgnored,
    /// The server ignores which updates clients know to be confirmed.
    ConfirmedUnheard,
    /// Devices answer a server's recovery request as if their logs were empty.
    LogsDenied,
    /// Devices accept packets without a seal, though there is a key.
    SealsUnchecked,
    /// Devices hold no packets, though keys must be linearizable.
    NothingHeld,
    /// Read caches do not know that updates change registers.
    CacheMissesUpdates,
    /// Read caches do not know that additions change counters.
    CacheMissesAdditions,
    /// Read caches mix up all registers with each other, and all counters.
    CacheConfusesKeys,
}

impl Broken {
    /// True if the fault is in read caches, so that devices must have some.
    pub(crate) fn is_in_caches(self) -> bool {
        matches!(self, Self::CacheMissesUpdates | Self::CacheMissesAdditions | Self::CacheConfusesKeys)
    }
}

/// A fault of a part of the system. It ends after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A device crashes.
    DeviceCrash {
        /// Number of the device.
        device: usize,
        /// Time until it starts again.
        down: Duration,
        /// The crash is in the middle of the device's next operation, and not at once.
        inside: bool,
    },
    /// A fence fails, and the device logs no more updates.
    MediumFails {
        /// Number of the device.
        device: usize,
        /// Time until it is started again, on a medium that works.
        down: Duration,
    },
    /// A device is lost with its log.
    DeviceLoss {
        /// Number of the device.
        device: usize,
        /// Time until an empty device takes its place.
        down: Duration,
    },
    /// The server crashes.
    ServerCrash {
        /// Time until it starts again.
        down: Duration,
    },
    /// The server is lost with its medium.
    ServerLoss {
        /// Time until a replica takes its place.
        down: Duration,
    },
    /// A replica stops.
    ReplicaCrash {
        /// Number of the replica.
        replica: usize,
        /// Time until it starts again.
        down: Duration,
        /// It starts again without its batches.
        wiped: bool,
    },
    /// A client crashes, and another one starts in its place.
    ClientCrash {
        /// Number of the client.
        client: usize,
    },
    /// A stranger on the clients' side sends packets with the server's address.
    Forgery {
        /// The client that gets them, and whose session they are about.
        client: usize,
    },
    /// A stranger sends updates of a session that never began.
    Junk {
        /// The client whose address they have.
        client: usize,
    },
    /// A link is cut.
    Partition {
        /// Number of the hop; 0 is the clients' end.
        hop: usize,
        /// Cut towards the server.
        up: bool,
        /// Cut towards the clients.
        down: bool,
        /// Duration of the cut.
        lasts: Duration,
    },
}
