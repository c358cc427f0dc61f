//! Whether the kernel takes requests of a mount over io_uring: a setting of the machine, which root may change.

use std::path::Path;

const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel takes them. What the setting was is put back when this is dropped.
pub(super) struct Allowed {
    before: String,
}

impl Allowed {
    /// Allows them. `None` where the kernel has no such setting, or it cannot be changed.
    pub(super) fn begin() -> Option<Self> {
        let before = std::fs::read_to_string(Path::new(SETTING)).ok()?;
        std::fs::write(SETTING, "Y").ok()?;
        Some(Self { before })
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(SETTING, self.before.trim()) {
            println!("{SETTING} stays as it is: {error}");
        }
    }
}
