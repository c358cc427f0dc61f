//! System calls that need raw memory.

#![allow(unsafe_code)]

mod datagrams;

pub(crate) use datagrams::Receiver;
