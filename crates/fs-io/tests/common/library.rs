//! The least library: it links to a mount, and appends whole blocks.

use super::sys::Shared;
use landfall_fs::{InodeNumber, WritePlace};
use landfall_fs_link::{Control, Identity, Kind, LeaseFields, Refusal, Reply, Request, WriteRecord, lease};
use landfall_heap::{RunId, SlotId, crc};
use landfall_media::Extent;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, recvmsg, send, socket_with,
};
use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A lease that the library has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leased {
    pub(crate) place: u32,
    pub(crate) generation: u32,
    pub(crate) fields: LeaseFields,
    next_seq: u64,
}

pub(crate) struct Library {
    socket: OwnedFd,
    /// The next server finds the control memory here.
    _memory: File,
    region: Shared,
    control: Control<'static>,
    identity: Identity,
    appended: u64,
    used: u64,
}

/// Connects to the socket. It appears when the mount does.
fn connected(path: &Path) -> OwnedFd {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        match connect(&socket, &SocketAddrUnix::new(path).expect("a short path")) {
            Ok(()) => return socket,
            Err(error) => assert!(Instant::now() < until, "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ask(socket: &OwnedFd, request: &Request) -> (Reply, Vec<File>) {
    send(socket, &request.encode(), SendFlags::NOSIGNAL).expect("sends");
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut into, &mut ancillary, RecvFlags::empty()).expect("receives");
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights.map(File::from));
        }
    }
    (Reply::decode(&bytes[..received.bytes]).expect("an answer"), files)
}

impl Library {
    /// Links to a mount, or returns why not.
    pub(crate) fn link((socket, device): &(PathBuf, u64)) -> Result<Self, Refusal> {
        let socket = connected(socket);
        let (reply, files) = ask(&socket, &Request::hello(*device));
        let Reply::Welcome { .. } = reply else {
            let Reply::Refused(refusal) = reply else { panic!("{reply:?}") };
            return Err(refusal);
        };
        let Ok([region, file]) = <[File; 2]>::try_from(files) else { panic!("two files come with it") };
        let (region, memory) = (Shared::map(&region), Shared::map(&file));
        let control = Control::new(memory.words()).expect("its size");
        let identity = control.identity().expect("this version");
        let mut library = Self { socket, _memory: file, region, control, identity, appended: 0, used: 0 };
        assert_eq!(library.ask(&Request::Refill), Reply::Done);
        Ok(library)
    }

    /// Sends any bytes, and takes the answer.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        send(&self.socket, bytes, SendFlags::NOSIGNAL).expect("sends");
        let mut answer = [0; 4096];
        let (len, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty()).expect("receives");
        Reply::decode(&answer[..len]).expect("an answer");
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Reply {
        ask(&self.socket, request).0
    }

    /// A lease; it is asked for until there is one.
    pub(crate) fn acquire(&mut self, kind: Kind, inode: u64) -> Leased {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            match self.try_acquire(kind, inode) {
                Ok(leased) => return leased,
                Err(refusal) => {
                    assert!(Instant::now() < until, "{refusal:?}");
                    std::thread::sleep(Duration::from_millis(u64::from(refusal.wait_ms)));
                }
            }
        }
    }

    /// A lease, if there is one now.
    pub(crate) fn try_acquire(&mut self, kind: Kind, inode: u64) -> Result<Leased, Refusal> {
        match self.ask(&Request::Acquire { kind, inode: InodeNumber(inode) }) {
            Reply::Lease { place, generation } => {
                let fields = self.control.lease(place as usize);
                Ok(Leased { place, generation, fields, next_seq: fields.seq })
            }
            Reply::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// Number of operations that the server has adopted.
    pub(crate) fn adopted(&self) -> u64 {
        self.control.applied()
    }

    /// Begins to use a lease; false if it was taken back.
    pub(crate) fn enter(&self, leased: &Leased, kind: Kind) -> bool {
        lease::enter(self.control.lease_word(leased.place as usize), leased.generation, kind).is_ok()
    }

    pub(crate) fn leave(&self, leased: &Leased) {
        lease::leave(self.control.lease_word(leased.place as usize));
    }

    /// Appends whole blocks under a lease that it is in.
    pub(crate) fn append(&mut self, leased: &mut Leased, offset: u64, bytes: &[u8]) {
        let run: RunId = self.control.landing(self.used >> 20).expect("it was granted");
        let extent =
            Extent::new(run.off() + self.used % (1 << 20), u32::try_from(bytes.len()).expect("short"));
        self.used += u64::from(extent.len()).next_multiple_of(4096);
        self.region.store(extent.off, bytes);
        let slab = self.control.slab(0).expect("it was granted");
        let slot = SlotId::new(slab.run, u32::try_from(self.appended).expect("few"));
        let place = WritePlace { file: leased.fields.inode, offset, lease: leased.fields.number };
        let record = WriteRecord {
            client: self.identity.client,
            index: self.appended,
            place,
            seq: leased.next_seq,
            time_ns: 1_700_000_000_000_000_000,
            extents: &[extent],
            crc: crc::of(bytes),
        };
        self.region.store(slot.off(), &record.seal(self.identity.hash_seed, slot, slab.seal, 0));
        leased.next_seq += 1;
        self.appended += 1;
        self.control.set_appended(self.appended);
    }

    /// Writes under a lease; false if it was taken back.
    pub(crate) fn write(&mut self, leased: &mut Leased, offset: u64, bytes: &[u8]) -> bool {
        let is_in = self.enter(leased, Kind::Write);
        if is_in {
            self.append(leased, offset, bytes);
            self.leave(leased);
        }
        is_in
    }

    /// The bytes of a leased file, as the server maps them.
    pub(crate) fn read(&mut self, leased: &Leased, len: u64) -> Vec<u8> {
        let (place, generation) = (leased.place, leased.generation);
        let mut bytes = vec![0; usize::try_from(len).expect("it fits")];
        let mut offset = 0;
        while offset < len {
            let Reply::Parts { end, parts } = self.ask(&Request::Map { place, generation, offset, end: len })
            else {
                panic!("it has the lease")
            };
            assert!(end > offset, "it goes on");
            for part in parts {
                let at = usize::try_from(part.offset).expect("it fits");
                let here = self.region.load(part.at, part.len as usize);
                bytes[at..at + here.len()].copy_from_slice(&here);
            }
            offset = end;
        }
        bytes
    }

    /// The state that the server has set.
    pub(crate) fn state(&self) -> landfall_fs_link::LinkState {
        self.control.state()
    }
}
