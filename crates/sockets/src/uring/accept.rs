//! Accepts connections, with one multishot operation for each listener.

use super::state::{Conn, Listener, Receiving, Uring};
use super::token::{Operation, Token};
use crate::event::Event;
use crate::options::keep_alive;
use crate::policy::{only_this_accept_failed, pause_accepting, report_full};
use crate::sending::Sending;
use crate::sys::{Completion, adopt};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

impl Uring {
    pub(super) fn add_listener(&mut self, socket: TcpListener, tag: u32) {
        keep_alive(&socket);
        self.listeners.push(Listener { socket, tag, retry_at: None });
        self.start_accepting(self.listeners.len() - 1);
    }

    fn start_accepting(&mut self, index: usize) {
        if self.stopping {
            return;
        }
        let listener = &mut self.listeners[index];
        listener.retry_at = None;
        self.ring.accept(listener.socket.as_raw_fd(), Token::of_index(Operation::Accept, index).0);
    }

    pub(super) fn restart_accepting(&mut self) {
        if self.listeners.iter().all(|listener| listener.retry_at.is_none()) {
            return;
        }
        let now = Instant::now();
        for index in 0..self.listeners.len() {
            if self.listeners[index].retry_at.is_some_and(|at| at <= now) {
                self.start_accepting(index);
            }
        }
    }

    pub(super) fn accepted(&mut self, index: usize, completion: &Completion) {
        match completion.outcome() {
            Ok(_) => self.accept_one(index, adopt(completion.result)),
            Err(error) if !completion.more && !self.stopping && !only_this_accept_failed(&error) => {
                self.listeners[index].retry_at = Some(pause_accepting(self.listeners[index].tag, &error));
                return;
            }
            Err(_) => {}
        }
        if !completion.more {
            self.start_accepting(index);
        }
    }

    fn accept_one(&mut self, index: usize, socket: TcpStream) {
        let tag = self.listeners[index].tag;
        if self.stopping {
            return;
        }
        if self.conns.is_full() {
            return report_full(tag);
        }
        // Replies are written whole, so Nagle's algorithm would only delay them. A connection that has already ended
        // reports that when it is read.
        let _ = socket.set_nodelay(true);
        let peer = socket.peer_addr().ok();
        let conn = self.conns.insert(Conn {
            socket,
            receiving: Receiving::Idle,
            trusted: false,
            paused: false,
            eof: false,
            sending: Sending::new(),
            closing: None,
        });
        self.ready.push(Event::Accepted { conn, listener: tag, peer });
        self.landings.want();
        self.start_receiving(conn);
    }
}
