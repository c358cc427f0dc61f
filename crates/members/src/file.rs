//! A chain in a file, for deployments that stand still and want nothing else to run.

use crate::chain::{CHAIN_BYTES_MAX, Chain};
use crate::error::MembersError;
use crate::view::View;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that changed less than this ago is read each time: its next change may bear the same time.
const FRESH: Duration = Duration::from_secs(2);

/// The file of a static chain (TOML). It is changed with an editor, and read again when it has.
#[derive(Clone, Debug)]
pub struct StaticFile {
    path: PathBuf,
}

impl StaticFile {
    /// The chain in this file. The file is read later.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it.
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

    /// The text, and what the file was when it was opened.
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

/// What a watch remembers of the file.
#[derive(Debug)]
pub(crate) struct FileLook {
    file: StaticFile,
    /// When it had changed last and how long it was, once that was some time ago.
    stamp: Option<(SystemTime, u64)>,
}

impl FileLook {
    pub(crate) fn new(file: StaticFile) -> Self {
        Self { file, stamp: None }
    }

    /// What the file says now; `None` where it has not changed since the last look that succeeded.
    pub(crate) fn look(&mut self) -> Result<Option<View>, MembersError> {
        if self.stamp.is_some() && self.stamp == self.now()? {
            return Ok(None);
        }
        self.forget();
        let (text, metadata) = self.file.read()?;
        let chain = self.file.parse(&text)?;
        self.stamp = stamp(&metadata);
        Ok(Some(View { chain, members: BTreeMap::new() }))
    }

    /// The next look reads the file in any case.
    pub(crate) fn forget(&mut self) {
        self.stamp = None;
    }

    fn now(&self) -> Result<Option<(SystemTime, u64)>, MembersError> {
        let metadata = self.file.path.metadata().map_err(|source| self.file.failed(source))?;
        Ok(stamp(&metadata))
    }
}

/// `None` while the file may change once more without showing it.
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
    fn what_cannot_be_read_is_told_with_its_line() {
        let told = refused("epoch = 3", "epoch = three");
        assert!(told.contains("line 2") && told.contains("docs/pmnet-members.md"), "{told}");
        let told = refused("\"10.0.0.9:51000\"", "\"10.0.0.9\"");
        assert!(told.contains("line 3") && told.contains("socket address"), "{told}");
        let told = refused("failed = true", "broken = true");
        assert!(told.contains("line 14") && told.contains("broken"), "{told}");
        let told = refused("epoch = 3\n", "");
        assert!(told.contains("missing field `epoch`"), "{told}");
    }

    #[test]
    fn what_is_no_chain_is_told_with_the_device() {
        let told = refused("number = 1", "number = 0");
        assert!(told.contains("\"near\"") && told.contains("\"far\"") && told.contains("number 0"), "{told}");
        assert!(refused("epoch = 3", "epoch = 0").contains("the first epoch of a chain is 1"));
    }

    #[test]
    fn a_file_that_is_not_there_or_too_long_is_told() {
        let told = StaticFile::new("no/such/chain.toml").chain().unwrap_err();
        assert!(matches!(told, MembersError::File { .. }) && told.to_string().contains("no/such/chain.toml"));
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
        let mut look = FileLook::new(StaticFile::new(&path));
        write(EXAMPLE, 0);
        assert!(look.look().unwrap().is_some() && look.look().unwrap().is_some(), "it is fresh");
        write(EXAMPLE, 60);
        assert!(look.look().unwrap().is_some());
        assert!(look.look().unwrap().is_none());
        write(&EXAMPLE.replace("epoch = 3", "epoch = 4"), 30);
        assert_eq!(look.look().unwrap().unwrap().chain.epoch, 4);
        write("nonsense", 10);
        assert!(look.look().is_err() && look.look().is_err());
    }
}
