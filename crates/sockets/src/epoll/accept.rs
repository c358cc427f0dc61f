//! Accepts connections, a limited number per turn, so that many new connections do not delay the others.

use super::state::{Conn, EpollTransport, Listener};
use super::token::Token;
use crate::event::Event;
use crate::options::keep_alive;
use crate::policy::{only_this_accept_failed, pause_accepting, report_full};
use crate::sending::Sending;
use crate::sys::Interest;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Connections accepted from one listener in one turn.
const ACCEPTS_PER_TURN: usize = 64;

impl EpollTransport {
    pub(super) fn add_listener(&mut self, socket: TcpListener, tag: u32) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        keep_alive(&socket);
        self.listeners.push(Listener { socket, tag, interest: Interest::default(), retry_at: None });
        self.watch_listener(self.listeners.len() - 1, true)
    }

    fn watch_listener(&mut self, index: usize, read: bool) -> io::Result<()> {
        let listener = &mut self.listeners[index];
        let (fd, to) = (listener.socket.as_raw_fd(), Interest { read, write: false });
        self.epoll.change(fd, Token::of_listener(index).0, listener.interest, to)?;
        listener.interest = to;
        Ok(())
    }

    pub(super) fn restart_accepting(&mut self) {
        if self.listeners.iter().all(|listener| listener.retry_at.is_none()) {
            return;
        }
        let now = Instant::now();
        for index in 0..self.listeners.len() {
            if self.listeners[index].retry_at.is_some_and(|at| at <= now) {
                let watched = self.watch_listener(index, true);
                let tag = self.listeners[index].tag;
                self.listeners[index].retry_at = watched.err().map(|error| pause_accepting(tag, &error));
            }
        }
    }

    pub(super) fn accept_some(&mut self, index: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listeners[index].socket.accept() {
                Ok((socket, peer)) => self.accept_one(index, socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if only_this_accept_failed(&error) => {}
                Err(error) => return self.stop_accepting(index, &error),
            }
        }
    }

    fn stop_accepting(&mut self, index: usize, error: &io::Error) {
        self.listeners[index].retry_at = Some(pause_accepting(self.listeners[index].tag, error));
        if let Err(error) = self.watch_listener(index, false) {
            tracing::warn!(%error, "a listener cannot be taken out of epoll's set");
        }
    }

    fn accept_one(&mut self, index: usize, socket: TcpStream, peer: SocketAddr) {
        let tag = self.listeners[index].tag;
        if self.conns.is_full() {
            return report_full(tag);
        }
        // Replies are written whole, so Nagle's algorithm would only delay them. An error is ignored: a connection that
        // has already ended reports that when it is read, and each call that must not block passes its own flag.
        let _ = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
        let conn = self.conns.insert(Conn {
            socket,
            interest: Interest::default(),
            trusted: false,
            paused: false,
            eof: false,
            stalled: false,
            sending: Sending::new(),
            closing: None,
        });
        self.ready.push(Event::Accepted { conn, listener: tag, peer: Some(peer) });
        self.watch(conn);
    }
}
