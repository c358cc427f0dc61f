//! An interface, opened once for all workers.

use crate::error::PacketsError;
use crate::flows::Flows;
use crate::landing::LandingMemory;
use crate::offload::Offload;
use crate::transport::PacketTransport;
use landfall_net::{Config, Stack};
use landfall_sockets::{Transport, TransportError};
use landfall_xdp::{AttachMode, Interface, Mode, Rules, Socket, Steering, Target, XdpError};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the AF_XDP transport.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Interface to receive from and send to.
    pub interface: String,
    /// An address that only this process uses. `None`: the interface's address, shared with the kernel; only packets to
    /// the served ports come to this process.
    pub address: Option<IpAddr>,
    /// Hardware address to use; `None`: the interface's.
    pub mac: Option<[u8; 6]>,
    /// Served ports.
    pub ports: Vec<u16>,
    /// How long to busy-poll for packets before blocking; `Duration::MAX`: never block.
    pub spin: Duration,
    /// Makes each poll drive the device for up to this long, instead of its interrupts (`SO_PREFER_BUSY_POLL`); zero:
    /// off.
    pub busy_poll: Duration,
    /// Who copies packets.
    pub mode: Mode,
    /// Sends sequences of segments as one long packet each, which the kernel or its device cuts. `None`: on unless the
    /// device reads the region itself.
    pub offload: Option<bool>,
    /// Lands packets beside the region and copies them into it, as for media that cannot be pinned.
    pub bounce: bool,
    /// Path to pin the steering program at, so that it stays attached from one start to the next.
    pub pin: Option<PathBuf>,
    /// Workers, one queue each.
    pub workers: usize,
}

/// An interface whose packets are steered to this process.
pub struct Network {
    settings: Settings,
    interface: Interface,
    address: IpAddr,
    memory: LandingMemory,
    steering: Arc<Steering>,
    flows: Arc<Flows>,
    secret: [u64; 2],
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("settings", &self.settings).field("address", &self.address).finish()
    }
}

impl Network {
    /// Checks that there is such an interface, which can be served on, without changing anything. Whether its driver takes
    /// the memory is known only when it is opened.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn check(settings: &Settings) -> Result<(), PacketsError> {
        find(settings).map(drop)
    }

    /// Registers the frames of the region image at `image` (address, bytes) with `settings.interface` and attaches the
    /// steering program.
    ///
    /// # Errors
    /// [`PacketsError`] says what is wrong and what to do.
    pub fn open(settings: Settings, image: (usize, u64)) -> Result<Arc<Self>, PacketsError> {
        let (interface, address) = find(&settings)?;
        note_other_queues(&settings, &interface);
        let memory = LandingMemory::register(image, &[&interface], settings.workers, settings.bounce)?;
        let target = match settings.address {
            Some(own) => Target::Own(own),
            None => Target::Ports { address, ports: settings.ports.clone() },
        };
        let rules = Rules { targets: vec![target], stamp: true };
        let queues = settings.workers as u32;
        let steering =
            Steering::attach(&interface, &rules, queues, AttachMode::Auto, settings.pin.as_deref())?;
        let random = |salt: u64| RandomState::new().hash_one(salt);
        Ok(Arc::new(Self {
            flows: Arc::new(Flows::new(settings.workers)),
            settings,
            interface,
            address,
            memory,
            steering: Arc::new(steering),
            secret: [random(1), random(2)],
        }))
    }

    /// The served address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// One line for the log: the transport and its mode here.
    pub fn reason(&self) -> String {
        let own = if self.settings.address.is_some() { "its own" } else { "shared with the kernel" };
        let where_to =
            if self.steering.is_native() { "in the driver" } else { "in the kernel's receive path" };
        let lands = if self.memory.is_in_region() {
            "in the region"
        } else {
            "beside the region, whose memory cannot be pinned, and are copied into it once"
        };
        format!(
            "{}, address {} ({own}), steered {where_to}; packets land {lands}, in chunks of {} bytes",
            self.interface.name,
            self.address,
            self.memory.chunk()
        )
    }

    /// Opens a worker's transport; the worker's thread calls this. `listeners` are ports and their tags.
    ///
    /// # Errors
    /// The queue cannot be opened.
    pub fn transport(
        self: &Arc<Self>,
        worker: usize,
        listeners: &[(u16, u32)],
    ) -> Result<Box<dyn Transport>, TransportError> {
        let mut socket = self.open_queue(worker).map_err(|error| TransportError::System {
            what: "opening an AF_XDP queue",
            source: std::io::Error::other(error.to_string()),
        })?;
        let offload = self.open_offload(socket.is_zero_copy())?;
        let config = Config { long_packets: offload.is_some(), ..self.stack_config(worker) };
        let mut stack = Stack::new(config, self.secret);
        listeners.iter().for_each(|(port, tag)| stack.listen(*port, *tag));
        if self.flows.is_shared() {
            stack.share_flows();
        }
        let busy_poll = self.settings.busy_poll;
        let polls = !busy_poll.is_zero()
            && socket.prefer_busy_poll(u32::try_from(busy_poll.as_micros()).unwrap_or(u32::MAX));
        if !busy_poll.is_zero() && !polls {
            tracing::warn!("busy polling is refused (it needs CAP_NET_ADMIN): packets come with interrupts");
        }
        let parts = (socket, stack, Arc::clone(&self.flows), Arc::clone(&self.steering));
        let ways = (self.memory.landing(worker), self.memory.departures(worker, 0), offload);
        PacketTransport::new(worker, parts, ways, (self.settings.spin, polls))
            .map(|transport| Box::new(transport) as Box<dyn Transport>)
    }

    fn open_queue(&self, worker: usize) -> Result<Socket, XdpError> {
        let queue = worker as u32;
        let socket = self.memory.open(&self.interface, queue, self.settings.mode)?;
        self.steering.set_socket(queue, &socket)?;
        Ok(socket)
    }

    fn open_offload(&self, zero_copy: bool) -> Result<Option<Offload>, TransportError> {
        if !self.settings.offload.unwrap_or(!zero_copy) {
            return Ok(None);
        }
        match Offload::open(self.interface.index) {
            Ok(offload) => Ok(Some(offload)),
            Err(source) if self.settings.offload == Some(true) => {
                Err(TransportError::System { what: "opening a packet socket for long packets", source })
            }
            Err(error) => {
                tracing::info!(%error, "no packet socket for long packets: every segment is sent alone");
                Ok(None)
            }
        }
    }

    fn stack_config(&self, worker: usize) -> Config {
        let mac = self.settings.mac.unwrap_or(self.interface.mac);
        let mut config = Config::new(mac, vec![self.address]);
        config.owns_addresses = self.settings.address.is_some();
        config.mtu = u16::try_from(self.interface.mtu).unwrap_or(u16::MAX);
        config.stack_id = u8::try_from(worker).expect("at most 64 workers");
        config
    }
}

/// The interface, and the address to serve.
fn find(settings: &Settings) -> Result<(Interface, IpAddr), PacketsError> {
    let interface = Interface::find(&settings.interface)?;
    let (queues, workers) = (interface.queues(), settings.workers);
    if workers > queues as usize {
        return Err(PacketsError::TooFewQueues { interface: interface.name.clone(), queues, workers });
    }
    let address = choose_address(settings, &interface)?;
    Ok((interface, address))
}

fn note_other_queues(settings: &Settings, interface: &Interface) {
    let (queues, workers) = (interface.queues(), settings.workers);
    // Not an error: the network card may be configured to keep the served flows on the first queues.
    if workers < queues as usize {
        tracing::warn!(
            interface = interface.name,
            queues,
            workers,
            "packets that arrive on the other queues of the interface are not served: start as many --workers as it has \
             queues, or give it fewer (ethtool -L), or have it keep our flows on the first ones (ethtool -X or -N)"
        );
    }
}

fn choose_address(settings: &Settings, interface: &Interface) -> Result<IpAddr, PacketsError> {
    let Some(own) = settings.address else {
        // A link-local address, which every interface has, is not one that clients use.
        let usable = |address: &&IpAddr| match address {
            IpAddr::V4(v4) => !v4.is_link_local(),
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        };
        let mut ours = interface.addresses.iter().filter(usable);
        let first = ours.clone().find(|address| address.is_ipv4()).or(ours.next());
        return first.copied().ok_or_else(|| PacketsError::NoAddress { interface: interface.name.clone() });
    };
    if interface.addresses.contains(&own) {
        return Err(PacketsError::AddressTaken { address: own, interface: interface.name.clone() });
    }
    Ok(own)
}
