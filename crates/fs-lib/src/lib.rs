//! `liblandfall_files.so`: programs that load it by `LD_PRELOAD` read and write files of a mount without system calls
//! (`docs/fs.md`, "The library").
//!
//! `Library` answers for the files of all mounts. It finds the server of a mount by an extended attribute, connects to
//! it when a program has written a few times to one of its files, and asks a client (`landfall_fs_client`) from then on.
//! When that server has ended, it connects to the next one in the same way.
//! `landfall_fs_calls` replaces the functions of the C library. `sys` maps the memory; `start` is what the loader calls.

#![deny(unsafe_code)]

mod connection;
mod library;
mod mount;
mod start;
mod sys;
