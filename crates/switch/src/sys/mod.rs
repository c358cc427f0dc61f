//! System calls for which std has no functions: batched receives, packet sockets, TUN interfaces.

#![allow(unsafe_code)]

mod datagrams;
mod sniff;
mod tun;

pub(crate) use datagrams::Receiver;
pub(crate) use sniff::Sniffer;
pub(crate) use tun::Tun;
