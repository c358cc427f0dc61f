//! Settings of the server: one struct, filled from flags or from a TOML file with the same names.

use landfall_chain::{Compression, Replicate, Sending, UnknownCompression, UnknownReplicate, UnknownSending};
use landfall_chain_io::{BadClientAddress, ClientAddress, Views};
use landfall_fs::{NoPublishing, Publishing};
use landfall_heap::Integrity;
use landfall_media::{FlushInstruction, MediaRequest};
use landfall_sockets::TransportRequest;
use serde::{Deserialize, Deserializer};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A size in bytes, written as `64MiB`, `1GiB`, `512KB`, or plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl std::str::FromStr for Size {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bad = || ConfigError::Value {
            what: "size",
            text: text.into(),
            expected: "a number with B, KiB, MiB, GiB or TiB (KB, MB, GB and TB are powers of 1000)",
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..digits].parse().map_err(|_| bad())?;
        let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(bad()),
        };
        number.checked_mul(unit).map(Self).ok_or_else(bad)
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 != 0 && self.0.is_multiple_of(1 << shift)) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Largest sensible [`Config::max_output`], bytes.
pub const MAX_OUTPUT_MAX: u64 = 1 << 30;
/// A single reply may take this many times the limit of queued replies ...
const REPLY_FACTOR: u64 = 64;
/// ... but no more than this, bytes: together with queued replies it stays below 4 GiB.
const REPLY_MEMORY_MAX: u64 = 2 << 30;

/// Least [`Config::memory`], bytes.
pub const MEMORY_MIN: u64 = 64 << 20;
/// What the program itself takes of `--memory`: code, stacks, connections, bytes.
const PROGRAM_BYTES: u64 = 16 << 20;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// An invalid setting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Misuse: a value that cannot be parsed.
    #[error("{text:?} is not a {what}: expected {expected}")]
    Value {
        /// Kind of the value.
        what: &'static str,
        /// The given text.
        text: String,
        /// Valid values.
        expected: &'static str,
    },
    /// Environment: the file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Misuse: the file is invalid.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The position and the error.
        message: String,
    },
    /// Misuse: packet sums alone require that data are durable before their record.
    #[error(
        "--integrity tcp makes the data of each record durable before the record, which on this medium is a sync of its \
         own: it is for persistent memory; use crc32c here"
    )]
    SlowFences,
    /// Misuse: with AF_XDP all of the region is in memory.
    #[error(
        "--memory has no meaning with --xdp: the kernel keeps all of the region in memory, so that packets can land in it"
    )]
    MemoryOverXdp,
    /// Misuse: the kernel's sockets have no such thing.
    #[error("{0} is for --xdp INTERFACE: give that, too")]
    XdpAlone(&'static str),
    /// Misuse: a chain needs to know which of its nodes this is.
    #[error(
        "--chain FILE and --node NAME are given together: the file of the view, and which of its members this server is; \
         with --etcd, --chain is the name of the chain"
    )]
    ChainNode,
    /// Misuse: the files are mounted by this process, or by others.
    #[error(
        "{0} is for --files: with --files-offload, `landfall fs mount` mounts, and has -o for its options"
    )]
    Offloaded(&'static str),
    /// Misuse: clients make files of values only where no other process holds a mount.
    #[error(
        "--files-commands cannot be used with --files-offload, whose mounts are processes of their own: give --files MOUNTPOINT \
         instead, or copy through a mount"
    )]
    CommandsOffloaded,
    /// Misuse: there are no files.
    #[error("{0} is for the files of --files MOUNTPOINT: give that, too")]
    FilesAlone(&'static str),
    /// Misuse: mounts on other machines come to a server whose mounts are processes of their own.
    #[error(
        "--files-listen ADDR:PORT is for mounts that are processes of their own: give --files-offload SOCKET, too"
    )]
    ListenAlone,
    /// Misuse: what programs in a virtual machine ask comes as from another machine.
    #[error("--nvdimm is for a virtual machine that mounts: give --files-listen ADDR:PORT, too")]
    NvdimmAlone,
    /// Misuse: only the servers of a chain tell clients of each other.
    #[error("--announce HOST:PORT is for a server of a chain: give --chain and --node, too")]
    AnnounceAlone,
    /// Misuse: the server before could not connect.
    #[error(
        "the view has this server at {listens}, and over --xdp it is reached at {served} alone: give it that address in \
         the view, or another one by --ip"
    )]
    ViewElsewhere {
        /// By the view.
        listens: SocketAddr,
        /// That of the interface.
        served: IpAddr,
    },
    /// Misuse: only the servers of a chain send each other something.
    #[error("--compression MODE is for a server of a chain: give --chain and --node, too")]
    CompressionAlone,
    /// Misuse: only a server of a chain copies to another one.
    #[error("--copy-rate SIZE is for a server of a chain: give --chain and --node, too")]
    CopyRateAlone,
    /// Misuse: no way to compress.
    #[error("--compression: {0}")]
    Compression(#[from] UnknownCompression),
    /// Misuse: only files of a chain have replicas.
    #[error(
        "--replicate MODE is for the files of a server of a chain: give --chain, --node and --files, too"
    )]
    ReplicateAlone,
    /// Misuse: only the servers of a chain send each other something.
    #[error("--chain-send MODE is for a server of a chain: give --chain and --node, too")]
    SendingAlone,
    /// Misuse: no way to send.
    #[error("--chain-send: {0}")]
    Sending(#[from] UnknownSending),
    /// Misuse: no way to replicate.
    #[error("--replicate: {0}")]
    Replicate(#[from] UnknownReplicate),
    /// Misuse: no way to publish.
    #[error("--files-publish: {0}")]
    Publishing(#[from] NoPublishing),
    /// Misuse: there are no files.
    #[error("--files-publish MODE is for files: give --files or --files-offload, too")]
    PublishingAlone,
    /// Misuse: no address for clients.
    #[error("--announce: {0}")]
    Announce(#[from] BadClientAddress),
    /// Misuse: the server could be reached from other machines without a password.
    #[error(
        "{address} is reachable from other machines, and no password is set: give --password-file, or --insecure-no-password if that is really meant"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
}

/// Settings of AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The interface.
    pub interface: String,
    /// An address that only the server uses; `None`: the interface's, shared with the kernel.
    pub address: Option<IpAddr>,
    /// Hardware address to use; `None`: the interface's.
    pub mac: Option<[u8; 6]>,
    /// How long to busy-poll for packets before blocking; `Duration::MAX`: for ever.
    pub spin: Duration,
    /// Who copies packets.
    pub mode: landfall_packets::Mode,
    /// Makes each poll drive the device for up to this long; zero: off.
    pub busy_poll: Duration,
    /// Sends sequences of segments as one long packet each; `None`: on unless the device reads the region itself.
    pub offload: Option<bool>,
    /// Lands packets beside the region and copies them into it once, as for media that cannot be pinned.
    pub bounce: bool,
    /// Path to pin the steering program at.
    pub pin: Option<PathBuf>,
}

/// All settings of `landfall serve`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the region.
    pub dir: PathBuf,
    /// Size of the region; an existing smaller one grows, a larger one stays.
    pub capacity: Size,
    /// How much of a file's region is kept in memory; `None`: half of the machine's memory.
    pub memory: Option<Size>,
    /// RESP address; `None`: RESP is off.
    pub resp: Option<SocketAddr>,
    /// HTTP address; `None`: HTTP is off.
    pub http: Option<SocketAddr>,
    /// Worker threads.
    pub workers: usize,
    /// The medium that the region must be on.
    pub media: MediaRequest,
    /// Flush instruction on byte-addressable media; `None`: the best available.
    pub flush: Option<FlushInstruction>,
    /// The kind of sockets.
    pub transport: TransportRequest,
    /// How long to busy-poll sockets before blocking; `Duration::MAX`: for ever.
    pub spin: Duration,
    /// Serve over AF_XDP and Landfall's own TCP instead of sockets.
    pub xdp: Option<XdpConfig>,
    /// The password that clients must give.
    pub password: Option<String>,
    /// Serve other machines without a password.
    pub insecure_no_password: bool,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// What is logged: a level, or a filter in the syntax of `RUST_LOG`.
    pub log_level: String,
    /// Connections at once over all workers, at most.
    pub max_clients: usize,
    /// Connections that are idle for longer are closed; zero: never.
    pub idle_timeout: Duration,
    /// A connection is closed if its request arrives, or its reply is accepted, at less than 16 KiB a second for this
    /// long; zero: never.
    pub request_timeout: Duration,
    /// Longest value or body.
    pub max_request: Size,
    /// Commands of one connection that are executed before other connections have their turn.
    pub max_pipeline: usize,
    /// Bytes of replies queued for one connection at which its commands wait and the server stops reading from it. A
    /// single reply that takes more than 64 times as much memory is an error instead; long values are sent from their
    /// frames and take no memory.
    pub max_output: Size,
    /// Longest HTTP head.
    pub max_header: Size,
    /// Bytes per second that the background scrub checks; zero: none.
    pub scrub_rate: Size,
    /// Bytes per second of a copy to the next server of a chain; 0: no limit.
    pub copy_rate: Size,
    /// Checksum of values.
    pub integrity: Integrity,
    /// Empty directory on which the region's files are mounted; `None`: they are not.
    pub files: Option<PathBuf>,
    /// Socket at which mounts of other processes are served; `None`: there are none.
    pub files_offload: Option<PathBuf>,
    /// Address to which mounts on other machines connect; `None`: there are none.
    pub files_listen: Option<SocketAddr>,
    /// The region is the NVDIMM of a virtual machine, whose programs share it.
    pub nvdimm: bool,
    /// Options of the mount of this process, as those of `landfall fs mount -o`.
    pub files_options: Option<String>,
    /// How published records get the bytes of files; `None`: as [`Publishing::default`].
    pub files_publish: Option<Publishing>,
    /// Clients may make files of values, and values of files, whatever the permissions of these files say.
    pub files_commands: bool,
    /// The place of the server in a chain; `None`: it is in none.
    pub chain: Option<ChainConfig>,
}

/// A place in a chain.
#[derive(Clone, Debug)]
pub struct ChainConfig {
    /// Where the view comes from.
    pub views: Arc<dyn Views>,
    /// The name of the node.
    pub node: String,
    /// Where clients connect to it; `None`: to its RESP address, if that is one of this machine's.
    pub announce: Option<ClientAddress>,
    /// What it packs of what it sends to the next server.
    pub compression: Compression,
    /// What changes of files wait for while it is the first one.
    pub replicate: Replicate,
    /// How it sends to the next server.
    pub sending: Sending,
}

impl Default for Config {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            dir: "landfall-data".into(),
            capacity: Size(1 << 30),
            memory: None,
            resp: Some(SocketAddr::from(([127, 0, 0, 1], 6479))),
            http: Some(SocketAddr::from(([127, 0, 0, 1], 6480))),
            workers: (cores / 2).clamp(1, 64),
            media: MediaRequest::Auto,
            flush: None,
            transport: TransportRequest::Auto,
            spin: Duration::ZERO,
            xdp: None,
            password: None,
            insecure_no_password: false,
            log_format: LogFormat::Text,
            log_level: "info".into(),
            max_clients: 10_000,
            idle_timeout: Duration::ZERO,
            request_timeout: Duration::from_secs(60),
            max_request: Size(512 << 20),
            max_pipeline: 1024,
            max_output: Size(4 << 20),
            max_header: Size(64 << 10),
            scrub_rate: Size(16 << 20),
            copy_rate: Size(0),
            integrity: Integrity::Crc32c,
            files: None,
            files_offload: None,
            files_listen: None,
            nvdimm: false,
            files_options: None,
            files_publish: None,
            files_commands: false,
            chain: None,
        }
    }
}

impl Config {
    /// Longest reply in memory, bytes, without the values that are sent from their frames.
    pub(crate) fn reply_memory_max(&self) -> usize {
        let limit = self.max_output.0.saturating_mul(REPLY_FACTOR).min(REPLY_MEMORY_MAX);
        usize::try_from(limit).unwrap_or(usize::MAX)
    }

    /// How many bytes of the region are to be in memory at most; `None` where all of it is. A part of `--memory` is for the
    /// program.
    pub(crate) fn memory_limit(&self) -> Option<u64> {
        let memory = match (self.memory, &self.xdp) {
            (_, Some(_)) => None,
            (Some(memory), None) => Some(memory.0),
            (None, None) => crate::process::memory_bytes().map(|bytes| bytes / 2),
        };
        memory.map(|bytes| bytes - PROGRAM_BYTES.min(bytes / 4))
    }

    /// Refuses a limit of memory that makes no sense.
    ///
    /// # Errors
    /// [`ConfigError::MemoryOverXdp`]; one that is too small to work with.
    pub fn check_memory(&self) -> Result<(), ConfigError> {
        match self.memory {
            Some(_) if self.xdp.is_some() => Err(ConfigError::MemoryOverXdp),
            Some(memory) if memory.0 < MEMORY_MIN => Err(ConfigError::Value {
                what: "--memory",
                text: memory.to_string(),
                expected: "64MiB at least: what is being received, written and sent is always in memory",
            }),
            _ => Ok(()),
        }
    }

    /// True if the region is to have files.
    pub(crate) fn wants_files(&self) -> bool {
        self.files.is_some() || self.files_offload.is_some()
    }

    /// Refuses settings of a mount of this process where others mount.
    ///
    /// # Errors
    /// [`ConfigError::Offloaded`], [`ConfigError::CommandsOffloaded`], [`ConfigError::ListenAlone`],
    /// [`ConfigError::NvdimmAlone`], [`ConfigError::FilesAlone`], [`ConfigError::PublishingAlone`].
    pub fn check_files(&self) -> Result<(), ConfigError> {
        if self.files_listen.is_some() && self.files_offload.is_none() {
            return Err(ConfigError::ListenAlone);
        }
        if self.nvdimm && self.files_listen.is_none() {
            return Err(ConfigError::NvdimmAlone);
        }
        if self.files_commands && self.files_offload.is_some() {
            return Err(ConfigError::CommandsOffloaded);
        }
        if self.files_publish.is_some() && !self.wants_files() {
            return Err(ConfigError::PublishingAlone);
        }
        let given = [
            ("--files-options", self.files_options.is_some()),
            ("--files-commands", self.files_commands),
            ("a mountpoint", self.files.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((what, _)) if self.files_offload.is_some() => Err(ConfigError::Offloaded(what)),
            Some((what, _)) if self.files.is_none() => Err(ConfigError::FilesAlone(what)),
            _ => Ok(()),
        }
    }

    /// Checks that the server is not reachable without a password by accident.
    ///
    /// # Errors
    /// [`ConfigError::Exposed`].
    pub fn check_exposure(&self) -> Result<(), ConfigError> {
        self.check_address(self.files_listen)?;
        let guarded = self.password.is_some() || self.insecure_no_password;
        if let Some(xdp) = &self.xdp {
            let any = xdp.address.unwrap_or(IpAddr::from([0, 0, 0, 0]));
            let port = self.resp.or(self.http).map_or(0, |address| address.port());
            return if guarded {
                Ok(())
            } else {
                Err(ConfigError::Exposed { address: SocketAddr::new(any, port) })
            };
        }
        self.resp.iter().chain(&self.http).try_for_each(|address| self.check_address(Some(*address)))
    }

    /// Checks that an address is not reachable without a password by accident.
    ///
    /// # Errors
    /// [`ConfigError::Exposed`].
    pub fn check_address(&self, address: Option<SocketAddr>) -> Result<(), ConfigError> {
        let guarded = self.password.is_some() || self.insecure_no_password;
        match address.filter(|address| !address.ip().is_loopback()) {
            Some(address) if !guarded => Err(ConfigError::Exposed { address }),
            _ => Ok(()),
        }
    }
}

/// The settings of a TOML file: all optional, named like the flags with underscores.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileConfig {
    /// `--dir`
    pub dir: Option<PathBuf>,
    /// `--capacity`
    #[serde(deserialize_with = "parsed")]
    pub capacity: Option<Size>,
    /// `--files`
    pub files: Option<PathBuf>,
    /// `--files-offload`
    pub files_offload: Option<PathBuf>,
    /// `--files-listen`
    pub files_listen: Option<String>,
    /// `--nvdimm`
    pub nvdimm: Option<bool>,
    /// `--files-options`
    pub files_options: Option<String>,
    /// `--files-publish`
    pub files_publish: Option<String>,
    /// `--files-commands`
    pub files_commands: Option<bool>,
    /// `--chain`
    pub chain: Option<PathBuf>,
    /// `--node`
    pub node: Option<String>,
    /// `--announce`
    pub announce: Option<String>,
    /// `--compression`
    pub compression: Option<String>,
    /// `--replicate`
    pub replicate: Option<String>,
    /// `--chain-send`
    pub chain_send: Option<String>,
    /// `--etcd`
    pub etcd: Vec<String>,
    /// `--etcd-ca`
    pub etcd_ca: Option<PathBuf>,
    /// `--etcd-cert`
    pub etcd_cert: Option<PathBuf>,
    /// `--etcd-key`
    pub etcd_key: Option<PathBuf>,
    /// `--etcd-user`
    pub etcd_user: Option<String>,
    /// `--etcd-password-file`
    pub etcd_password_file: Option<PathBuf>,
    /// `--memory`
    #[serde(deserialize_with = "parsed")]
    pub memory: Option<Size>,
    /// `--resp`, or `"off"`
    pub resp: Option<String>,
    /// `--http`, or `"off"`
    pub http: Option<String>,
    /// `--workers`
    pub workers: Option<usize>,
    /// `--media`
    pub media: Option<String>,
    /// `--flush`
    pub flush: Option<String>,
    /// `--transport`
    pub transport: Option<String>,
    /// `--xdp`
    pub xdp: Option<String>,
    /// `--ip`
    pub ip: Option<String>,
    /// `--mac`
    pub mac: Option<String>,
    /// `--spin`
    pub spin: Option<String>,
    /// `--xdp-mode`
    pub xdp_mode: Option<String>,
    /// `--xdp-busy-poll`, microseconds
    pub xdp_busy_poll: Option<u64>,
    /// `--xdp-offload`
    pub xdp_offload: Option<String>,
    /// `--xdp-pin`
    pub xdp_pin: Option<PathBuf>,
    /// `--password-file`
    pub password_file: Option<PathBuf>,
    /// `--insecure-no-password`
    pub insecure_no_password: Option<bool>,
    /// `--log-format`
    pub log_format: Option<String>,
    /// `--log-level`
    pub log_level: Option<String>,
    /// `--max-clients`
    pub max_clients: Option<usize>,
    /// `--idle-timeout`, seconds
    pub idle_timeout: Option<u64>,
    /// `--request-timeout`, seconds
    pub request_timeout: Option<u64>,
    /// `--max-request`
    #[serde(deserialize_with = "parsed")]
    pub max_request: Option<Size>,
    /// `--max-pipeline`
    pub max_pipeline: Option<usize>,
    /// `--max-output`
    #[serde(deserialize_with = "parsed")]
    pub max_output: Option<Size>,
    /// `--max-header`
    #[serde(deserialize_with = "parsed")]
    pub max_header: Option<Size>,
    /// `--integrity`
    pub integrity: Option<String>,
    /// `--scrub-rate`
    #[serde(deserialize_with = "parsed")]
    pub scrub_rate: Option<Size>,
    /// `--copy-rate`
    #[serde(deserialize_with = "parsed")]
    pub copy_rate: Option<Size>,
}

/// A size as a string or as a plain number of bytes.
fn parsed<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Size>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }
    match Either::deserialize(from)? {
        Either::Number(bytes) => Ok(Some(Size(bytes))),
        Either::Text(text) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

impl FileConfig {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError`], naming file, line and field.
    pub fn read(path: &std::path::Path) -> Result<Self, ConfigError> {
        let file = |source| ConfigError::File { path: path.into(), source };
        let text = std::fs::read_to_string(path).map_err(file)?;
        toml::from_str(&text).map_err(|e| ConfigError::Syntax { path: path.into(), message: e.to_string() })
    }
}

/// Parses a `MediaRequest` from the value of its flag.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse_media(text: &str) -> Result<MediaRequest, ConfigError> {
    match text {
        "auto" => Ok(MediaRequest::Auto),
        "dax" => Ok(MediaRequest::Dax),
        "file" => Ok(MediaRequest::File),
        "volatile" => Ok(MediaRequest::Volatile),
        _ => Err(ConfigError::Value {
            what: "medium",
            text: text.into(),
            expected: "auto, dax, file or volatile",
        }),
    }
}

/// Parses a `TransportRequest` from the value of its flag.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse_transport(text: &str) -> Result<TransportRequest, ConfigError> {
    match text {
        "auto" => Ok(TransportRequest::Auto),
        "uring" => Ok(TransportRequest::Uring),
        "epoll" => Ok(TransportRequest::Epoll),
        _ => {
            Err(ConfigError::Value { what: "transport", text: text.into(), expected: "auto, uring or epoll" })
        }
    }
}

/// Parses the checksum mode of values.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse_integrity(text: &str) -> Result<Integrity, ConfigError> {
    match text {
        "crc32c" => Ok(Integrity::Crc32c),
        "tcp" => Ok(Integrity::Tcp),
        _ => Err(ConfigError::Value { what: "integrity mode", text: text.into(), expected: "crc32c or tcp" }),
    }
}

/// Parses `ADDRESS` or `ADDRESS/PREFIX`. The prefix is ignored: replies go back the way requests came.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse_own_address(text: &str) -> Result<IpAddr, ConfigError> {
    let (address, prefix) = text.split_once('/').unwrap_or((text, "0"));
    let bad = || ConfigError::Value {
        what: "own address",
        text: text.into(),
        expected: "ADDRESS/PREFIX, such as 10.0.0.2/24",
    };
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    prefix.parse().ok().filter(|prefix: &u8| *prefix <= bits).map(|_| address).ok_or_else(bad)
}

/// Parses a hardware address; `auto` means the interface's.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse_mac(text: &str) -> Result<Option<[u8; 6]>, ConfigError> {
    if text == "auto" {
        return Ok(None);
    }
    let bad = || ConfigError::Value {
        what: "hardware address",
        text: text.into(),
        expected: "auto, or six numbers such as 02:00:00:00:00:01 (the first one even)",
    };
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() <= 2 && !part.starts_with('+'));
        *byte = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or_else(bad)?;
    }
    // The lowest bit of the first byte marks a group address; the zero address is invalid.
    if parts.next().is_some() || mac[0] & 1 == 1 || mac == [0; 6] { Err(bad()) } else { Ok(Some(mac)) }
}

/// Parses the busy-poll time: microseconds, or `always`.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse_spin(text: &str) -> Result<Duration, ConfigError> {
    if text == "always" {
        return Ok(Duration::MAX);
    }
    text.parse().map(Duration::from_micros).map_err(|_| ConfigError::Value {
        what: "busy-poll time",
        text: text.into(),
        expected: "microseconds, or always",
    })
}

/// Parses who copies packets.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse_xdp_mode(text: &str) -> Result<landfall_packets::Mode, ConfigError> {
    use landfall_packets::Mode;
    match text {
        "auto" => Ok(Mode::Auto),
        "copy" => Ok(Mode::Copy),
        "zero-copy" => Ok(Mode::ZeroCopy),
        _ => Err(ConfigError::Value {
            what: "AF_XDP mode",
            text: text.into(),
            expected: "auto, copy or zero-copy",
        }),
    }
}

/// Parses whether long packets are sent for the kernel or device to cut; `None` for `auto`.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse_xdp_offload(text: &str) -> Result<Option<bool>, ConfigError> {
    match text {
        "auto" => Ok(None),
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        _ => Err(ConfigError::Value {
            what: "segmentation offload",
            text: text.into(),
            expected: "auto, on or off",
        }),
    }
}

/// Parses a listening address; `off` means none.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse_address(text: &str) -> Result<Option<SocketAddr>, ConfigError> {
    if text == "off" {
        return Ok(None);
    }
    let text_full = if text.contains(':') { text.to_owned() } else { format!("127.0.0.1:{text}") };
    text_full.parse().map(Some).map_err(|_| ConfigError::Value {
        what: "listening address",
        text: text.into(),
        expected: "ADDR:PORT, a port on loopback, or off",
    })
}
