//! A client and its connection to a server: the bytes that both send to each other, and how that ends.

use landfall_chain_io::ClientAddress;
use rustix::net::sockopt;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A peer that says nothing for so long is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Stack of the threads of a client, bytes.
const STACK_BYTES: usize = 256 << 10;

/// A client and its connection to a server. Both threads of the client use the same two descriptors.
pub(super) struct Pair {
    client: Arc<TcpStream>,
    server: TcpStream,
    pub(super) to: ClientAddress,
}

impl Pair {
    pub(super) fn new(client: &Arc<TcpStream>, server: TcpStream, to: &ClientAddress) -> io::Result<Self> {
        set_up(client)?;
        set_up(&server)?;
        Ok(Self { client: Arc::clone(client), server, to: to.clone() })
    }

    /// Passes bytes on in both directions until the server has ended its own.
    pub(super) fn carry(self: &Arc<Self>) -> io::Result<()> {
        let pair = Arc::clone(self);
        let back = move || {
            carry(&pair.server, &pair.client);
            // Nobody answers what the client still says, and nobody reads what the server does. A thread that waits until the
            // server takes more goes on by that.
            pair.cut();
        };
        let back = thread("replies").spawn(back)?;
        carry(&self.client, &self.server);
        // A panic of the thread has been printed already.
        let _ = back.join();
        Ok(())
    }

    /// Nothing more is read of the client.
    pub(super) fn end_requests(&self) {
        // A client that has gone is no error.
        let _ = self.client.shutdown(Shutdown::Read);
    }

    /// Ends both connections; the threads that pass bytes on end by that.
    pub(super) fn cut(&self) {
        // One that has ended already is no error.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// A thread of a client.
pub(super) fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES)
}

/// Packets leave at once, and a peer that has vanished is noticed.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// Passes bytes on until the sender has ended its direction, and ends that of the receiver.
fn carry(mut from: &TcpStream, mut to: &TcpStream) {
    // An error ends the direction as the end of the stream does.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
