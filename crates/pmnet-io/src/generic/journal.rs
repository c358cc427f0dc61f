//! The file of a durable service: a journal of blocks that begins with a snapshot. Format:
//! `docs/format/pmnet-service.md`.

use super::error::GenericError;
use crc_fast::{CrcAlgorithm, Digest};
use landfall_pmnet::{SessionKey, SessionRow};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 4] = b"LFPJ";
const VERSION: u8 = 1;
const SNAPSHOT: u8 = 1;
const BATCH: u8 = 2;
const HEAD_BYTES: usize = 16;
const KEY_BYTES: usize = 20;

/// The content of a block: a snapshot if `state` is set, otherwise a batch of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) floor: u32,
    pub(super) rows: Vec<SessionRow>,
    pub(super) evicted: Vec<SessionKey>,
    pub(super) requests: Vec<Vec<u8>>,
    pub(super) state: Option<Vec<u8>>,
}

impl Block {
    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.floor.to_le_bytes());
        put_count(&mut body, self.rows.len())?;
        self.rows.iter().for_each(|row| body.extend_from_slice(&row.to_bytes()));
        if let Some(state) = &self.state {
            body.extend_from_slice(state);
        } else {
            put_count(&mut body, self.evicted.len())?;
            self.evicted.iter().for_each(|key| put_key(&mut body, key));
            for request in &self.requests {
                put_count(&mut body, request.len())?;
                body.extend_from_slice(request);
            }
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[VERSION, if self.state.is_some() { SNAPSHOT } else { BATCH }, 0, 0]);
        put_count(&mut bytes, body.len())?;
        let crc = crc(&bytes, &body);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    /// The block at the start of `bytes`, and its length. `None` if no whole and valid block begins there.
    fn from_bytes(bytes: &[u8]) -> Option<(Self, usize)> {
        let (head, tail) = bytes.split_at_checked(HEAD_BYTES)?;
        let known = head[..5] == [b'L', b'F', b'P', b'J', VERSION] && head[6..8] == [0, 0];
        let len = u32::from_le_bytes(*head[8..].first_chunk()?) as usize;
        let body = tail.get(..len).filter(|_| known)?;
        let is_valid = u32::from_le_bytes(*head[12..].first_chunk()?) == crc(&head[..12], body);
        let block = is_valid.then(|| Self::from_body(head[5], body)).flatten()?;
        Some((block, HEAD_BYTES + len))
    }

    fn from_body(kind: u8, mut body: &[u8]) -> Option<Self> {
        let mut block = Self { floor: take_u32(&mut body)?, ..Self::default() };
        for _ in 0..take_u32(&mut body)? {
            block.rows.push(SessionRow::from_bytes(take(&mut body, SessionRow::BYTES)?)?);
        }
        if kind == SNAPSHOT {
            block.state = Some(body.to_vec());
            return Some(block);
        }
        for _ in 0..take_u32(&mut body)? {
            block.evicted.push(key(take(&mut body, KEY_BYTES)?)?);
        }
        while !body.is_empty() {
            let len = take_u32(&mut body)? as usize;
            block.requests.push(take(&mut body, len)?.to_vec());
        }
        (kind == BATCH).then_some(block)
    }
}

/// True if a whole block begins anywhere in `bytes`.
fn holds_a_block(bytes: &[u8]) -> bool {
    let starts = bytes.windows(MAGIC.len()).enumerate().filter(|(_, window)| *window == MAGIC);
    starts.into_iter().any(|(at, _)| Block::from_bytes(&bytes[at..]).is_some())
}

fn crc(head: &[u8], body: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(body);
    digest.finalize() as u32
}

fn put_count(into: &mut Vec<u8>, count: usize) -> io::Result<()> {
    let count = u32::try_from(count).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    into.extend_from_slice(&count.to_le_bytes());
    Ok(())
}

fn put_key(into: &mut Vec<u8>, key: &SessionKey) {
    let octets = match key.client.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    into.extend_from_slice(&octets);
    into.extend_from_slice(&key.client.port().to_le_bytes());
    into.extend_from_slice(&key.session.to_le_bytes());
}

fn key(bytes: &[u8]) -> Option<SessionKey> {
    let address = Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_canonical();
    let port = u16::from_le_bytes(*bytes.get(16..18)?.first_chunk()?);
    let session = u16::from_le_bytes(*bytes.get(18..20)?.first_chunk()?);
    Some(SessionKey { client: SocketAddr::new(address, port), session })
}

fn take<'b>(from: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (head, tail) = from.split_at_checked(len)?;
    *from = tail;
    Some(head)
}

fn take_u32(from: &mut &[u8]) -> Option<u32> {
    take(from, 4)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}

/// The file, open for appending blocks.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    bytes: u64,
    snapshot_bytes: u64,
}

impl Journal {
    /// Reads the blocks of a journal. `None` if there is no file. What was read is not known to be durable, and nothing may
    /// be appended to this file: after a sync that has failed, the kernel says that pages are clean which the medium does
    /// not have. [`Self::replace`] follows.
    pub(super) fn read(path: &Path) -> Result<Option<Vec<Block>>, GenericError> {
        let all = match std::fs::read(path) {
            Ok(all) => all,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(refused("read", path)(source)),
        };
        let (mut at, mut blocks) = (0, Vec::new());
        while let Some((block, len)) = Block::from_bytes(&all[at..]) {
            at += len;
            blocks.push(block);
        }
        if blocks.first().is_none_or(|block| block.state.is_none()) {
            return Err(GenericError::Damaged { path: path.to_owned() });
        }
        // A crash can tear the last block only. A whole block behind a damaged one had been synced, so that the damage
        // is not from a crash.
        if holds_a_block(&all[at..]) {
            return Err(GenericError::DamagedInside { path: path.to_owned(), at: at as u64 });
        }
        Ok(Some(blocks))
    }

    /// Replaces the file by a new one that holds only a snapshot.
    pub(super) fn replace(path: &Path, snapshot: &Block) -> Result<Self, GenericError> {
        let new = path.with_added_extension("new");
        let write = || -> io::Result<(File, u64)> {
            let bytes = snapshot.to_bytes()?;
            let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&new, path)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok((OpenOptions::new().append(true).open(path)?, bytes.len() as u64))
        };
        let (file, bytes) = write().map_err(refused("replace", path))?;
        Ok(Self { file, path: path.to_owned(), bytes, snapshot_bytes: bytes })
    }

    /// Appends a block and syncs the file. After an error, the caller must read the journal again.
    pub(super) fn append(&mut self, block: &Block) -> Result<(), GenericError> {
        let bytes = block.to_bytes().map_err(refused("append to", &self.path))?;
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        written.map_err(refused("append to", &self.path))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn wants_compaction(&self, most: u64) -> bool {
        self.bytes > most.max(2 * self.snapshot_bytes)
    }
}

fn refused(what: &'static str, path: &Path) -> impl Fn(io::Error) -> GenericError {
    move |source| GenericError::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: u32) -> Block {
        let key = SessionKey { client: "10.0.0.1:40000".parse().unwrap(), session: 9 };
        let row =
            SessionRow { key, nonce: 1, update: n, bypass: 1 << 31, ended: false, touched: 0, lease: 0 };
        Block {
            floor: n,
            rows: vec![row],
            evicted: vec![key],
            requests: vec![vec![7; 5], Vec::new()],
            state: None,
        }
    }

    fn snapshot() -> Block {
        Block { evicted: Vec::new(), requests: Vec::new(), state: Some(b"state".to_vec()), ..block(0) }
    }

    #[test]
    fn blocks_are_read_back_and_a_torn_last_block_is_cut_off_at_every_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::replace(&path, &snapshot()).unwrap();
        journal.append(&block(1)).unwrap();
        let whole = journal.bytes as usize;
        journal.append(&block(2)).unwrap();
        let all = std::fs::read(&path).unwrap();
        assert_eq!(Journal::read(&path).unwrap().unwrap(), [snapshot(), block(1), block(2)]);
        for len in whole..all.len() {
            std::fs::write(&path, &all[..len]).unwrap();
            assert_eq!(Journal::read(&path).unwrap().unwrap(), [snapshot(), block(1)]);
        }
    }

    #[test]
    fn damage_in_front_of_whole_blocks_is_refused_and_the_file_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::replace(&path, &snapshot()).unwrap();
        let begins = journal.bytes as usize;
        journal.append(&block(1)).unwrap();
        let ends = journal.bytes as usize;
        journal.append(&block(2)).unwrap();
        let all = std::fs::read(&path).unwrap();
        for byte in begins..ends {
            let mut damaged = all.clone();
            damaged[byte] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            match Journal::read(&path) {
                Err(error @ GenericError::DamagedInside { at, .. }) => {
                    assert_eq!(at, begins as u64, "byte {byte}");
                    assert!(error.to_string().contains(&format!("truncate --size {begins}")), "{error}");
                }
                other => panic!("byte {byte}: {other:?}"),
            }
            assert_eq!(std::fs::read(&path).unwrap(), damaged, "byte {byte}");
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let bytes = block(1).to_bytes().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Block::from_bytes(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn a_file_that_is_no_journal_is_refused_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        assert!(Journal::read(&path).unwrap().is_none());
        std::fs::write(&path, "something else").unwrap();
        assert!(matches!(Journal::read(&path), Err(GenericError::Damaged { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"something else");
    }

    #[test]
    fn the_bytes_of_a_block_are_those_of_the_document() {
        let bytes = Block { floor: 7, state: Some(b"s".to_vec()), ..Block::default() }.to_bytes().unwrap();
        assert_eq!(bytes[..12], [b'L', b'F', b'P', b'J', 1, 1, 0, 0, 9, 0, 0, 0]);
        assert_eq!(bytes[16..], [7, 0, 0, 0, 0, 0, 0, 0, b's']);
    }
}
