//! A file system in memory, just large enough for what the tests do with a mount.

mod store;

use landfall_fuse::{
    Decoder, Device, DirBuffer, DirEntry, Entry, Errno, HEAD_BYTES, Handle, Mount, MountError, MountOptions,
    Negotiated, Node, Notification, Op, OpenFlags, Opened, ReadDir, Ready, Received, Reply, Request, Sent,
    SetAttr, StatFs, Unique, Wanted, Write, handshake, mount,
};
use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use store::{Content, Store};

/// Reads of a file of this name are never answered.
pub const STUCK: &str = "stuck";
/// Threads, each with a device of its own.
const WORKERS: usize = 2;
/// Bytes of the first frame; data go on in the second.
const FIRST_FRAME: usize = 64 << 10;

/// The byte that the tests write at an offset of a file.
pub fn pattern(offset: usize) -> u8 {
    u8::try_from((offset.wrapping_mul(2_654_435_761) >> 13) % 251).expect("a byte")
}

/// What the workers have seen.
#[derive(Default)]
pub struct Seen {
    /// Offset and size of each WRITE.
    pub writes: Vec<(u64, u32)>,
    /// Offsets of WRITEs whose data did not begin at the first byte of the first frame.
    pub displaced: Vec<u64>,
    /// READs that stay unanswered.
    pub stuck: usize,
}

#[derive(Default)]
struct Shared {
    store: Mutex<Store>,
    seen: Mutex<Seen>,
}

/// How a worker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Unmounted,
    Stopped,
}

/// A mounted file system.
pub struct Tiny {
    pub mount: Mount,
    pub negotiated: Negotiated,
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    workers: Vec<JoinHandle<End>>,
    /// For notifications, which come from the tests' thread.
    notifier: Option<Device>,
}

impl Tiny {
    pub fn mount(point: &Path) -> Result<Self, MountError> {
        let (device, mount) = mount(point, &MountOptions::default())?;
        let stop =
            Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd"));
        let negotiated = handshake(&device, &Wanted::default(), stop.as_fd()).expect("a kernel of our time");
        let shared = Arc::<Shared>::default();
        let queues = (1..WORKERS).map(|_| device.clone_queue().expect("another queue")).collect::<Vec<_>>();
        let notifier = Some(device.clone_queue().expect("another queue"));
        let start = |device| {
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
            std::thread::spawn(move || Worker { device, shared, negotiated }.run(&stop))
        };
        let workers = queues.into_iter().chain([device]).map(start).collect();
        Ok(Self { mount, negotiated, shared, stop, workers, notifier })
    }

    pub fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.shared.seen.lock().expect("no worker has failed")
    }

    /// Removes a name of the root without the kernel's knowledge.
    pub fn remove_behind_the_kernel(&self, name: &str) {
        let mut store = self.shared.store.lock().expect("no worker has failed");
        store.remove(Node::ROOT, OsStr::new(name)).expect("it is there");
    }

    pub fn notify(&self, notification: &Notification) -> Sent {
        let notifier = self.notifier.as_ref().expect("the server has not been stopped");
        notifier.notify(notification).expect("a notification")
    }

    /// Stops the workers, as the end of the server's process does.
    pub fn stop(&mut self) -> Vec<End> {
        // The mount lives until its last device is closed.
        self.notifier = None;
        rustix::io::write(&*self.stop, &1_u64.to_le_bytes()).expect("a wake");
        self.join()
    }

    /// Waits until all workers have ended.
    pub fn join(&mut self) -> Vec<End> {
        self.workers.drain(..).map(|worker| worker.join().expect("no worker has failed")).collect()
    }
}

struct Worker {
    device: Device,
    shared: Arc<Shared>,
    negotiated: Negotiated,
}

impl Worker {
    fn run(&self, stop: &OwnedFd) -> End {
        let waiter = self.device.waiter(stop.as_fd()).expect("a waiter");
        let mut head = [0; HEAD_BYTES];
        let mut room = vec![0; FIRST_FRAME + self.negotiated.frame_bytes()];
        let (first, second) = room.split_at_mut(FIRST_FRAME);
        let mut frames = [IoSliceMut::new(first), IoSliceMut::new(second)];
        let (decoder, mut joined) = (self.negotiated.decoder(), Vec::new());
        loop {
            match self.device.receive(&mut head, &mut frames).expect("a request") {
                Received::Request { len } => self.handle(decoder, &head, &frames, len, &mut joined),
                Received::Ended => return End::Unmounted,
                Received::Retry => match waiter.wait().expect("a wait") {
                    Ready::Woken => return End::Stopped,
                    Ready::Device => {}
                },
            }
        }
    }

    fn handle(
        &self,
        decoder: Decoder,
        head: &[u8; HEAD_BYTES],
        frames: &[IoSliceMut<'_>],
        len: usize,
        joined: &mut Vec<u8>,
    ) {
        let request =
            decoder.decode(head, frames, len, joined).expect("the kernel's requests are well-formed");
        let mut store = self.shared.store.lock().expect("no worker has failed");
        let answer = match request.op {
            Op::Read(read) => {
                return self.read(&store, &request, usize::try_from(read.offset).expect("small"), read.size);
            }
            Op::ReadDir(dir) => return self.read_dir(&mut store, &request, dir, false),
            Op::ReadDirPlus(dir) => return self.read_dir(&mut store, &request, dir, true),
            Op::Write(write) => self.write(&mut store, &request, &write, frames),
            op if op.wants_reply() => answer(&mut store, &request),
            _ => return,
        };
        let reply = answer.unwrap_or_else(|errno| Reply::error(request.unique, errno));
        self.device.reply(&reply).expect("a reply");
    }

    fn read(&self, store: &Store, request: &Request<'_>, offset: usize, size: u32) {
        let slices = store.slices(request.node, offset, usize::try_from(size).expect("small"));
        if slices.first().is_some_and(|slice| slice.starts_with(STUCK.as_bytes())) {
            self.shared.seen.lock().expect("no worker has failed").stuck += 1;
            return;
        }
        let slices: Vec<IoSlice<'_>> = slices.into_iter().map(IoSlice::new).collect();
        self.device.reply_data(request.unique, &slices).expect("a reply");
    }

    fn write(
        &self,
        store: &mut Store,
        request: &Request<'_>,
        write: &Write,
        frames: &[IoSliceMut<'_>],
    ) -> Result<Reply, Errno> {
        let (offset, size) = (usize::try_from(write.offset).expect("small"), write.size as usize);
        let data = || frames.iter().flat_map(|frame| frame.iter().copied()).take(size);
        let in_place = (offset..).map(pattern).zip(data()).all(|(expected, found)| expected == found);
        let mut seen = self.shared.seen.lock().expect("no worker has failed");
        seen.writes.push((write.offset, write.size));
        seen.displaced.extend((!in_place).then_some(write.offset));
        store.write(request.node, offset, &mut data())?;
        Ok(Reply::written(request.unique, write.size))
    }

    fn read_dir(&self, store: &mut Store, request: &Request<'_>, dir: ReadDir, plus: bool) {
        let names: Vec<_> = store.dir(request.node).expect("a directory").clone().into_iter().collect();
        let mut buffer = DirBuffer::new(dir.size);
        for (index, (name, node)) in (1..).zip(&names).skip(usize::try_from(dir.offset).expect("small")) {
            let entry = entry(store, Node(*node)).expect("a node");
            let dirent = DirEntry { ino: *node, next_offset: index, mode: entry.attr.mode, name };
            let added = if plus { buffer.push_plus(&dirent, Some(&entry)) } else { buffer.push(&dirent) };
            if !added {
                break;
            }
        }
        self.device.reply_data(request.unique, &[IoSlice::new(buffer.as_bytes())]).expect("a reply");
    }
}

fn entry(store: &Store, node: Node) -> Result<Entry, Errno> {
    let valid = Duration::from_secs(3600);
    Ok(Entry { node, generation: 0, entry_valid: valid, attr_valid: valid, attr: store.attr(node)? })
}

/// Reads and writes reach the workers with the sizes that programs use.
fn opened() -> Opened {
    Opened { fh: Handle(1), flags: OpenFlags::DIRECT_IO }
}

/// Answers what needs no data.
fn answer(store: &mut Store, request: &Request<'_>) -> Result<Reply, Errno> {
    let (unique, node) = (request.unique, request.node);
    let found = |store: &Store, node| Ok(Reply::entry(unique, &entry(store, node)?));
    let done = |()| Reply::ok(unique);
    match request.op {
        Op::Lookup { name } => {
            let node = store.lookup(node, name)?;
            found(store, node)
        }
        Op::MkDir { name, .. } => {
            let node = store.make(node, name, Content::Dir(Default::default()))?;
            found(store, node)
        }
        Op::Create { name, .. } => create(store, unique, node, name),
        Op::SetAttr(SetAttr { size: Some(size), .. }) => {
            store.resize(node, usize::try_from(size).expect("small"))?;
            Ok(Reply::attr(unique, &store.attr(node)?, Duration::ZERO))
        }
        Op::GetAttr { .. } | Op::SetAttr(_) => Ok(Reply::attr(unique, &store.attr(node)?, Duration::ZERO)),
        Op::Unlink { name } | Op::RmDir { name } => store.remove(node, name).map(done),
        Op::Rename { name, new_parent, new_name, flags: 0 } => {
            store.rename((node, name), (new_parent, new_name)).map(done)
        }
        Op::Open(_) | Op::OpenDir(_) => Ok(Reply::opened(unique, opened())),
        Op::StatFs => Ok(Reply::statfs(unique, &statfs())),
        Op::Release(_) | Op::ReleaseDir(_) | Op::Flush { .. } | Op::Fsync { .. } | Op::Destroy => {
            Ok(done(()))
        }
        _ => Err(Errno::NOSYS),
    }
}

fn create(store: &mut Store, unique: Unique, parent: Node, name: &OsStr) -> Result<Reply, Errno> {
    let node = store.make(parent, name, Content::File { size: 0, pieces: Vec::new() })?;
    Ok(Reply::created(unique, &entry(store, node)?, opened()))
}

fn statfs() -> StatFs {
    StatFs {
        block_size: 4096,
        blocks: 1000,
        blocks_free: 600,
        blocks_available: 500,
        files: 100,
        files_free: 60,
        name_len: 255,
    }
}
