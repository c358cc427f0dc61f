//! All system calls, and all accesses to mapped memory.
//!
//! Start at [`open()`]. The files: `open` and `create` find or create the region's file; `kind` asks the kernel what it
//! is; `image` owns the address range; `mapped` is the medium for byte-addressable kinds, `file` the one for ordinary
//! files; `attached` is a region of another process; `nvdimm` makes one the NVDIMM of a virtual machine; `bare` and `holes` find runs without memory or blocks; `lock` is the lock; `flush` and `prefetch` are the
//! cache-line instructions; `words` sums words in wide registers; `call` wraps the system calls.

// Mapped memory, system calls and cache-line instructions have no safe form; they are confined to this module.
#![allow(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("landfall-media knows the durability rules of Linux on x86-64 only");

mod attached;
mod bare;
mod call;
mod create;
mod file;
mod flush;
mod grow;
mod holes;
mod image;
mod kind;
mod lock;
mod mapped;
mod nvdimm;
mod open;
mod prefetch;
mod region;
mod request;
pub(crate) mod words;

pub use attached::Attached;
pub use flush::FlushInstruction;
pub(crate) use grow::grows;
pub(crate) use image::Image;
pub use nvdimm::{NVDIMM_BEGIN, write_nvdimm_info};
pub use open::{OpenOptions, Opened, open};
pub use prefetch::{prefetch, prefetch_at, prefetch_line};
pub use request::MediaRequest;
