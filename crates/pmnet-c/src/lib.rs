//! PMNet for C: the calls that `include/pmnet.h` declares, as a shared and a static library.
//!
//! Programs in C read the header and `docs/pmnet-c.md`. Programs in Rust use `landfall_pmnet_io::runtime`, on which
//! this crate is built. [`abi`] contains the types that C sees. Only `sys` converts pointers to references and back,
//! and it catches every panic.

#![deny(unsafe_code)]

pub mod abi;
mod client;
mod error;
mod server;
mod sys;

pub use sys::{
    PMNet_ack, PMNet_bypass, PMNet_client_close, PMNet_client_open, PMNet_end_session, PMNet_fail,
    PMNet_last_error, PMNet_queue_update, PMNet_recv, PMNet_respond, PMNet_result_name, PMNet_send_update,
    PMNet_server_address, PMNet_server_close, PMNet_server_open, PMNet_start_session, PMNet_version,
    PMNet_wait,
};
