//! `liblandfall_files.so`: programs that load it by `LD_PRELOAD` read and write files of a mount without system calls
//! (`docs/fs.md`, "The library").
//!
//! `Library` answers for the files of all mounts. It finds the server of a mount by an extended attribute, connects to
//! it when a program first reads or writes one of its files, and asks a client (`landfall_fs_client`) from then on.
//! `landfall_fs_calls` replaces the functions of the C library. `sys` maps the memory; `start` is what the loader calls.

#![deny(unsafe_code)]

mod connection;
mod library;
mod start;
mod sys;
