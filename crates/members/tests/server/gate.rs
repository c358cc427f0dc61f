//! A port that leads to an etcd until it is closed.

use super::Server;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Forwards connections. The thread ends with the test's process, as connections need it until then.
pub struct Gate {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    /// Where it leads to; `None` while it is closed.
    to: Option<SocketAddr>,
    last: SocketAddr,
    connections: Vec<TcpStream>,
}

impl Gate {
    /// An open gate to a server.
    pub fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let last = server.address();
        let state = Arc::new(Mutex::new(State { to: Some(last), last, connections: Vec::new() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                shared.lock().unwrap().connect(client);
            }
        });
        Self { address, state }
    }

    pub fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts all connections, and closes new ones.
    pub fn close(&self) {
        let mut state = self.state.lock().unwrap();
        state.to = None;
        for connection in state.connections.drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub fn open(&self) {
        let mut state = self.state.lock().unwrap();
        state.to = Some(state.last);
    }

    /// Cuts all connections, and leads new ones to another server.
    pub fn lead_to(&self, server: &Server) {
        self.close();
        self.state.lock().unwrap().last = server.address();
        self.open();
    }
}

impl State {
    fn connect(&mut self, client: TcpStream) {
        let Some(server) = self.to.and_then(|to| TcpStream::connect(to).ok()) else { return };
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
        self.connections.extend([client, server]);
    }
}
