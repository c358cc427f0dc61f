//! Values of other systems in the region as files, and files as values: `docs/format/fs.md`, "Values and files".

use crate::clock;
use crate::link::Entered;
use crate::service::Service;
use landfall_fs::{
    Access, FilePart, FileType, Files, FsError, Imported, InodeNumber, Mode, Name, NewFile, Stat, TreeError,
};
use landfall_fuse::{Device, Entries, Node, Notification};
use landfall_heap::{Item, Ticket, Until};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Permissions of a file that is made of a value.
const MODE: u32 = 0o644;

/// Makes files of values that are in the region, and passes the bytes of files on. It is for threads that answer no
/// requests of the kernel. A path begins at the root of the files; symbolic links are not followed.
#[derive(Clone)]
pub struct Values {
    service: Arc<Service>,
    /// The kernel, if it is on this machine.
    notifier: Option<Arc<Device>>,
}

impl Values {
    pub(crate) fn new(service: Arc<Service>, notifier: Option<Arc<Device>>) -> Self {
        Self { service, notifier }
    }

    /// Makes a file of a verified value: both refer to the same bytes. The caller keeps the value's record current
    /// meanwhile. The file belongs to the owner of its directory.
    ///
    /// # Errors
    /// As [`landfall_fs::Files::import`]. Nothing is made then.
    pub fn import(&self, path: &[u8], value: &Item<'_>, replaces: bool) -> Result<Imported, FsError> {
        let (directory, name) = self.place(path)?;
        let mode = Mode::new(FileType::File, MODE);
        let (uid, gid) = (directory.inode.uid, directory.inode.gid);
        let new = NewFile { parent: directory.number, name, mode, uid, gid, replaces };
        self.service.files.import(clock::now_ns(), &new, value)
    }

    /// Makes a new file durable, and tells the kernel of it.
    ///
    /// # Errors
    /// The medium's.
    pub fn settle(&self, new: &Imported) -> Result<(), FsError> {
        let Imported { parent, name, number, replaced } = new;
        // The kernel may know neither the name nor the inode, which is well.
        let tell = |notification: &Notification| {
            self.notifier.iter().for_each(|notifier| drop(notifier.notify(notification)));
        };
        tell(&Notification::inval_entry(Node(parent.0), OsStr::from_bytes(name), Entries::Forget));
        tell(&Notification::inval_inode(Node(parent.0), 0, 0));
        if let Some(replaced) = *replaced {
            tell(&Notification::inval_inode(Node(replaced.0), -1, 0));
            self.service.unlinked(replaced);
        }
        self.service.files.sync(*number)
    }

    /// Opens a file, to pass its bytes on. It blocks: libraries of programs give up what they have of it.
    ///
    /// # Errors
    /// [`TreeError`], [`FsError::Wait`].
    pub fn open(&self, path: &[u8]) -> Result<OpenValue<'_>, FsError> {
        let (directory, name) = self.place(path)?;
        let number = self.service.files.lookup(directory.number, name)?.number;
        let entered = self.service.enter(number, Access::Read);
        Ok(OpenValue { files: &self.service.files, number, _entered: entered })
    }

    /// Before what had to wait for a batch of the files is tried again, the batch is made durable: nobody else may do so. It
    /// blocks.
    ///
    /// # Errors
    /// The medium's.
    pub fn make_ready(&self, waits: Until) -> Result<(), FsError> {
        match waits {
            Until::Commit | Until::Ticket(_) => self.service.files.sync_all(),
            _ => Ok(()),
        }
    }

    /// The directory of a path, and the name in it.
    fn place<'p>(&self, path: &'p [u8]) -> Result<(Stat, Name<'p>), FsError> {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let last = names.next_back().ok_or(TreeError::IsADirectory)?;
        let name = |bytes| Name::new(bytes).map_err(|_| TreeError::Invalid);
        let mut directory = self.service.files.stat(InodeNumber::ROOT)?;
        for parent in names {
            directory = self.service.files.lookup(directory.number, name(parent)?)?;
        }
        Ok((directory, name(last)?))
    }
}

/// A file whose bytes are passed on. Meanwhile no library writes it in a program's process.
pub struct OpenValue<'v> {
    files: &'v Files,
    number: InodeNumber,
    _entered: Option<Entered<'v>>,
}

impl OpenValue<'_> {
    /// As [`landfall_fs::Files::export`].
    ///
    /// # Errors
    /// As there.
    pub fn pass(
        &self,
        bytes_max: u64,
        take: &mut dyn FnMut(&[FilePart<'_>], Option<Ticket>),
    ) -> Result<(), FsError> {
        self.files.export(self.number, bytes_max, take)
    }
}
