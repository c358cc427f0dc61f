//! Mounts on other machines, and the network between.

use super::chain::LIMIT;
use super::mounts::{Process, Site};
use super::{Place, REPLY_LIMIT, binary, can_mount, own_address, wait_until};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// A mount elsewhere. What is mounted is unmounted at the end.
pub(crate) struct Far {
    pub(crate) process: Option<Process>,
    pub(crate) point: tempfile::TempDir,
    log: PathBuf,
    place: Place,
}

impl Far {
    /// Mounts, as soon as a server serves it.
    pub(crate) fn mount(servers: &[SocketAddr], flags: &[&str]) -> Self {
        let mut far = Self::unmounted();
        far.process = wait_until(LIMIT, || far.try_mount(servers, flags));
        assert!(far.process.is_some(), "{}", far.log());
        far
    }

    pub(crate) fn unmounted() -> Self {
        let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
        let log = place.path().join("log");
        Self { process: None, point, log, place }
    }

    pub(crate) fn try_mount(&self, servers: &[SocketAddr], flags: &[&str]) -> Option<Process> {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let mut command = Command::new(binary());
        command.args(["fs", "mount", "--server", &servers.join(",")]).arg(self.point.path()).args(flags);
        Some(Process::start(&mut command, &self.log))
            .filter(|process| process.announced.starts_with("mounted: "))
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    pub(crate) fn stop(mut self) {
        let process = self.process.take().expect("it runs");
        process.signal("TERM");
        assert!(process.wait().success(), "{}", self.log());
        assert!(fs::read_dir(self.point.path()).unwrap().next().is_none(), "it is unmounted");
    }

    pub(crate) fn kill(mut self) {
        self.process.take().expect("it runs").kill();
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.process.iter().for_each(|process| process.signal("CONT"));
        drop(self.process.take());
        let _ = landfall_fuse::unmount(self.point.path(), landfall_fuse::Unmount::Lazily);
        let _ = &self.place;
    }
}

/// Files served by `landfall fs serve`, and its address. `None` where FUSE mounts are not possible.
pub(crate) fn served() -> Option<(Site, SocketAddr)> {
    served_by(&[])
}

/// As [`served`], by a server with more flags.
pub(crate) fn served_by(flags: &[&'static str]) -> Option<(Site, SocketAddr)> {
    let address = own_address();
    let flags = [&["--listen", leaked(address.to_string())], flags].concat();
    can_mount().then(|| (Site::new(Place::new(), &flags), address))
}

/// The server's ends of connections that the holder takes for lost, with what was on its way.
type Delayed = Arc<Mutex<Vec<(TcpStream, Vec<u8>)>>>;

/// A network between a holder and its server, which can be slow and lose connections.
pub(crate) struct Network {
    pub(crate) address: SocketAddr,
    is_slow: Arc<AtomicBool>,
    /// The server does not learn that a connection has ended.
    is_silent: Arc<AtomicBool>,
    /// Nobody gets through.
    is_cut: Arc<AtomicBool>,
    /// What the server sends is on its way.
    is_deaf: Arc<AtomicBool>,
    /// The holder's ends of the connections so far.
    ends: Arc<Mutex<Vec<TcpStream>>>,
    delayed: Delayed,
    /// Bytes that are on their way.
    kept: Arc<AtomicUsize>,
}

impl Network {
    pub(crate) fn before(server: SocketAddr) -> Self {
        let address = own_address();
        let listener = TcpListener::bind(address).unwrap();
        let [is_slow, is_silent, is_cut, is_deaf] = std::array::from_fn(|_| Arc::<AtomicBool>::default());
        let (ends, delayed) = (Arc::<Mutex<Vec<TcpStream>>>::default(), Delayed::default());
        let kept = Arc::<AtomicUsize>::default();
        let network = Self { address, is_slow, is_silent, is_cut, is_deaf, ends, delayed, kept };
        let (ends, delayed) = (Arc::clone(&network.ends), Arc::clone(&network.delayed));
        let troubles = [&network.is_slow, &network.is_silent].map(Arc::clone);
        let (is_cut, kept) = (Arc::clone(&network.is_cut), Arc::clone(&network.kept));
        let is_deaf = Arc::clone(&network.is_deaf);
        // The thread ends with the process.
        std::thread::spawn(move || {
            for holder in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(server) else { continue };
                let mut ends = ends.lock().unwrap();
                if is_cut.load(Ordering::Acquire) {
                    continue;
                }
                ends.push(holder.try_clone().unwrap());
                drop(ends);
                let (from_server, to_holder) = (to.try_clone().unwrap(), holder.try_clone().unwrap());
                let is_deaf = Arc::clone(&is_deaf);
                std::thread::spawn(move || {
                    let _ = pass_when_it_hears(from_server, &to_holder, &is_deaf);
                    let _ = to_holder.shutdown(Shutdown::Both);
                });
                let (troubles, delayed, kept) = (troubles.clone(), Arc::clone(&delayed), Arc::clone(&kept));
                std::thread::spawn(move || pass_or_keep(&holder, to, &troubles, (&delayed, &kept)));
            }
        });
        network
    }

    /// What is sent from now on is on its way until [`Self::deliver`].
    pub(crate) fn slow_down(&self) {
        self.is_slow.store(true, Ordering::Release);
    }

    /// Waits until so many bytes are on their way.
    pub(crate) fn keeps(&self, bytes: usize) {
        let kept = || (self.kept.load(Ordering::Acquire) >= bytes).then_some(());
        wait_until(REPLY_LIMIT, kept).expect("something is on its way");
    }

    /// The holder hears nothing of the server until [`Self::hear`], and all of it then.
    pub(crate) fn deafen(&self) {
        self.is_deaf.store(true, Ordering::Release);
    }

    pub(crate) fn hear(&self) {
        self.is_deaf.store(false, Ordering::Release);
    }

    /// Both ends lose all connections, and get no new ones until [`Self::mend`].
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.end_all();
    }

    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::Release);
    }

    /// The holder loses all connections. Those that it makes now are not slow.
    pub(crate) fn lose(&self) {
        self.is_slow.store(false, Ordering::Release);
        self.is_silent.store(true, Ordering::Release);
        self.end_all();
    }

    fn end_all(&self) {
        for end in std::mem::take(&mut *self.ends.lock().unwrap()) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// What was on its way arrives. Returns how many bytes that was.
    pub(crate) fn deliver(&self) -> usize {
        let mut bytes = 0;
        self.is_silent.store(false, Ordering::Release);
        for (mut server, late) in std::mem::take(&mut *self.delayed.lock().unwrap()) {
            // It has closed the connection, if all is well.
            let _ = server.write_all(&late);
            bytes += late.len();
        }
        bytes
    }
}

/// Passes on what the server sends, when the holder is to hear it.
fn pass_when_it_hears(mut server: TcpStream, mut holder: &TcpStream, is_deaf: &AtomicBool) -> io::Result<()> {
    let mut block = vec![0; 64 << 10];
    loop {
        let bytes = server.read(&mut block)?;
        if bytes == 0 {
            return Ok(());
        }
        while is_deaf.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(2));
        }
        holder.write_all(&block[..bytes])?;
    }
}

/// Passes on what the holder sends. What comes while the network is slow is kept, with the connection.
fn pass_or_keep(
    mut holder: &TcpStream,
    mut server: TcpStream,
    [is_slow, is_silent]: &[Arc<AtomicBool>; 2],
    (delayed, kept): (&Delayed, &AtomicUsize),
) {
    let (mut block, mut late) = (vec![0; 64 << 10], Vec::new());
    while let Ok(bytes @ 1..) = holder.read(&mut block) {
        if is_slow.load(Ordering::Acquire) || !late.is_empty() {
            late.extend_from_slice(&block[..bytes]);
            kept.fetch_add(bytes, Ordering::AcqRel);
        } else if server.write_all(&block[..bytes]).is_err() {
            return;
        }
    }
    if late.is_empty() && !is_silent.load(Ordering::Acquire) {
        let _ = server.shutdown(Shutdown::Write);
    } else {
        delayed.lock().unwrap().push((server, late));
    }
}
