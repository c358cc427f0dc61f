//! A chain in a file, for deployments that rarely change and run no etcd.

use crate::chain::{CHAIN_BYTES_MAX, Chain};
use crate::error::MembersError;
use crate::view::View;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that changed less than this ago is read at each poll, because its next change may have the same time.
const FRESH: Duration = Duration::from_secs(2);

/// The file of a static chain (TOML). People edit it, and it is read again when it has changed.
#[derive(Clone, Debug)]
pub struct StaticFile {
    path: PathBuf,
}

impl StaticFile {
    /// The chain in this file. The file is read later.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and checks the chain.
    ///
    /// # Errors
    /// [`MembersError::Parse`] names line and column, [`MembersError::FileChain`] the device; others where it cannot be read.
    pub fn chain(&self) -> Result<Chain, MembersError> {
        self.parse(&self.read()?.0)
    }

    fn parse(&self, text: &str) -> Result<Chain, MembersError> {
        let path = || self.path.clone();
        let chain: Chain = toml::from_str(text)
            .map_err(|source| MembersError::Parse { path: path(), source: Box::new(source) })?;
        chain.check().map_err(|source| MembersError::FileChain { path: path(), source })?;
        Ok(chain)
    }

    /// The text, and the metadata of the file when it was opened.
    fn read(&self) -> Result<(String, Metadata), MembersError> {
        let max = CHAIN_BYTES_MAX as u64;
        let mut text = String::new();
        let read = || -> io::Result<(usize, Metadata)> {
            let file = File::open(&self.path)?;
            let metadata = file.metadata()?;
            Ok((file.take(max + 1).read_to_string(&mut text)?, metadata))
        };
        let (bytes, metadata) = { read }().map_err(|source| self.failed(source))?;
        if bytes as u64 > max {
            return Err(MembersError::LongFile { path: self.path.clone(), max });
        }
        Ok((text, metadata))
    }

    fn failed(&self, source: io::Error) -> MembersError {
        MembersError::File { path: self.path.clone(), source }
    }
}

/// Polls the file, and remembers the version that it has read.
#[derive(Debug)]
pub(crate) struct FilePoller {
    file: StaticFile,
    /// Modification time and length of the version that was read, if that time is long enough ago.
    stamp: Option<(SystemTime, u64)>,
}

impl FilePoller {
    pub(crate) fn new(file: StaticFile) -> Self {
        Self { file, stamp: None }
    }

    /// The contents of the file; `None` if the file has not changed since the last successful poll.
    ///
    /// # Errors
    /// The file cannot be read, or is no chain.
    pub(crate) fn poll(&mut self) -> Result<Option<View>, MembersError> {
        if self.stamp.is_some() && self.stamp == self.now()? {
            return Ok(None);
        }
        self.forget();
        let (text, metadata) = self.file.read()?;
        let chain = self.file.parse(&text)?;
        self.stamp = stamp(&metadata);
        Ok(Some(View { chain, members: BTreeMap::new() }))
    }

    /// Makes the next poll read the file in any case.
    pub(crate) fn forget(&mut self) {
        self.stamp = None;
    }

    fn now(&self) -> Result<Option<(SystemTime, u64)>, MembersError> {
        let metadata = self.file.path.metadata().map_err(|source| self.file.failed(source))?;
        Ok(stamp(&metadata))
    }
}

/// Modification time and length; `None` while the file may change once more with the same time.
fn stamp(metadata: &Metadata) -> Option<(SystemTime, u64)> {
    let modified = metadata.modified().ok()?;
    (modified.elapsed().ok()? >= FRESH).then_some((modified, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "\
name = \"lab\"
epoch = 3
server = \"10.0.0.9:51000\"
replicas = [\"10.0.0.10:51000\"]

[[devices]]
number = 0
name = \"near\"
control = \"10.0.0.2:9000\"

[[devices]]
number = 1
name = \"far\"
failed = true
";

    fn read(text: &str) -> Result<Chain, MembersError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.toml");
        std::fs::write(&path, text).unwrap();
        StaticFile::new(path).chain()
    }

    fn refused(from: &str, to: &str) -> String {
        assert!(EXAMPLE.contains(from));
        read(&EXAMPLE.replace(from, to)).unwrap_err().to_string()
    }

    #[test]
    fn the_file_holds_a_chain() {
        let chain = read(EXAMPLE).unwrap();
        assert_eq!((chain.name.as_str(), chain.epoch, chain.devices.len()), ("lab", 3, 2));
        assert_eq!(chain.required().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["near"]);
    }

    #[test]
    fn the_documented_example_is_a_chain() {
        let text = include_str!("../../../docs/pmnet-members.md");
        let toml = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        assert_eq!(read(toml).unwrap().devices.len(), 2);
    }

    #[test]
    fn errors_of_parsing_name_the_line() {
        let message = refused("epoch = 3", "epoch = three");
        assert!(message.contains("line 2") && message.contains("docs/pmnet-members.md"), "{message}");
        let message = refused("\"10.0.0.9:51000\"", "\"10.0.0.9\"");
        assert!(message.contains("line 3") && message.contains("socket address"), "{message}");
        let message = refused("failed = true", "broken = true");
        assert!(message.contains("line 14") && message.contains("broken"), "{message}");
        let message = refused("epoch = 3\n", "");
        assert!(message.contains("missing field `epoch`"), "{message}");
    }

    #[test]
    fn errors_of_a_chain_name_the_device() {
        let message = refused("number = 1", "number = 0");
        assert!(
            message.contains("\"near\"") && message.contains("\"far\"") && message.contains("number 0"),
            "{message}"
        );
        assert!(refused("epoch = 3", "epoch = 0").contains("the first epoch of a chain is 1"));
    }

    #[test]
    fn a_file_that_is_missing_or_too_long_is_an_error() {
        let message = StaticFile::new("no/such/chain.toml").chain().unwrap_err();
        assert!(
            matches!(message, MembersError::File { .. })
                && message.to_string().contains("no/such/chain.toml")
        );
        assert!(matches!(read(&"#".repeat(CHAIN_BYTES_MAX + 1)), Err(MembersError::LongFile { .. })));
    }

    #[test]
    fn a_file_that_rests_is_not_read_again_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.toml");
        let write = |text: &str, age: u64| {
            std::fs::write(&path, text).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        };
        let mut poller = FilePoller::new(StaticFile::new(&path));
        write(EXAMPLE, 0);
        assert!(poller.poll().unwrap().is_some() && poller.poll().unwrap().is_some(), "it is fresh");
        write(EXAMPLE, 60);
        assert!(poller.poll().unwrap().is_some());
        assert!(poller.poll().unwrap().is_none());
        write(&EXAMPLE.replace("epoch = 3", "epoch = 4"), 30);
        assert_eq!(poller.poll().unwrap().unwrap().chain.epoch, 4);
        write("nonsense", 10);
        assert!(poller.poll().is_err() && poller.poll().is_err());
    }
}
