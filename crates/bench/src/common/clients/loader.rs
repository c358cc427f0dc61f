//! Writes given keys, pipelined, and checks every reply.

use super::conn::Conn;
use super::{encode, key_of};
use crate::common::error::BenchError;
use landfall_resp::Reply;
use std::net::SocketAddr;

/// Requests sent before their replies are read.
const BATCH_REQUESTS: usize = 256;
/// Bytes of requests sent before their replies are read.
const BATCH_BYTES: usize = 256 << 10;

/// Sets every key of `numbers` to `value`.
pub(crate) fn load(
    address: SocketAddr,
    peer: &str,
    numbers: impl IntoIterator<Item = u64>,
    value: &[u8],
) -> Result<(), BenchError> {
    set_keys(address, peer, numbers.into_iter().map(|number| (key_of(number), value)))
}

/// Sets the key of each number to its value.
pub(crate) fn load_each<'v>(
    address: SocketAddr,
    peer: &str,
    values: impl IntoIterator<Item = (u64, &'v [u8])>,
) -> Result<(), BenchError> {
    set_keys(address, peer, values.into_iter().map(|(number, value)| (key_of(number), value)))
}

/// Sets one key.
pub(crate) fn load_one(address: SocketAddr, peer: &str, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
    set_keys(address, peer, [(key, value)])
}

fn set_keys<'v>(
    address: SocketAddr,
    peer: &str,
    values: impl IntoIterator<Item = (impl AsRef<[u8]>, &'v [u8])>,
) -> Result<(), BenchError> {
    let mut conn = Conn::open(address, peer)?;
    let (mut batch, mut waiting) = (Vec::with_capacity(BATCH_BYTES), 0);
    for (key, value) in values {
        encode(&mut batch, &[b"SET", key.as_ref(), value]);
        waiting += 1;
        if waiting == BATCH_REQUESTS || batch.len() >= BATCH_BYTES {
            crate::common::progress::check_stop()?;
            exchange(&mut conn, peer, &mut batch, &mut waiting)?;
        }
    }
    exchange(&mut conn, peer, &mut batch, &mut waiting)
}

fn exchange(conn: &mut Conn, peer: &str, batch: &mut Vec<u8>, waiting: &mut usize) -> Result<(), BenchError> {
    conn.send(batch)?;
    batch.clear();
    for _ in 0..std::mem::take(waiting) {
        match conn.reply()? {
            Reply::Simple(b"OK") => {}
            other => return Err(BenchError::reply(peer, other, "+OK")),
        }
    }
    Ok(())
}
