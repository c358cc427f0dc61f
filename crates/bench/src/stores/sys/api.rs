//! The functions of `leveldb/c.h` that are used.

use crate::stores::error::StoreError;
use std::ffi::{CStr, c_char, c_int, c_void};

/// A pointer to something of LevelDB's.
pub(super) type Pointer = *mut c_void;

/// Names under which the library is looked for.
const LIBRARIES: [&CStr; 3] = [c"libleveldb.so.1d", c"libleveldb.so.1", c"libleveldb.so"];
/// `leveldb::NewMemEnv(leveldb::Env*)`, which the C interface leaves out.
const NEW_MEMORY_ENVIRONMENT: &CStr = c"_ZN7leveldb9NewMemEnvEPNS_3EnvE";

macro_rules! api {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, as `leveldb/c.h` declares them.
        #[derive(Debug)]
        pub(super) struct Api {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            pub(super) new_memory_environment: Option<unsafe extern "C" fn(Pointer) -> Pointer>,
        }

        impl Api {
            fn find(library: Pointer) -> Result<Self, StoreError> {
                Ok(Self {
                    // SAFETY: the declared type is that of `leveldb/c.h`.
                    $($field: unsafe { symbol(library, $name) }
                        .ok_or(StoreError::NoSymbol { name: $name.to_str().unwrap_or_default() })?,)*
                    // SAFETY: the mangled name tells the type: a pointer to `Env`; helpers/memenv/memenv.h tells the
                    // result.
                    new_memory_environment: unsafe { symbol(library, NEW_MEMORY_ENVIRONMENT) },
                })
            }
        }
    };
}

api! {
    open = c"leveldb_open": fn(Pointer, *const c_char, *mut *mut c_char) -> Pointer;
    close = c"leveldb_close": fn(Pointer);
    write = c"leveldb_write": fn(Pointer, Pointer, Pointer, *mut *mut c_char);
    free = c"leveldb_free": fn(Pointer);
    options_create = c"leveldb_options_create": fn() -> Pointer;
    options_set_create_if_missing = c"leveldb_options_set_create_if_missing": fn(Pointer, u8);
    options_set_write_buffer_size = c"leveldb_options_set_write_buffer_size": fn(Pointer, usize);
    options_set_compression = c"leveldb_options_set_compression": fn(Pointer, c_int);
    options_set_env = c"leveldb_options_set_env": fn(Pointer, Pointer);
    create_default_env = c"leveldb_create_default_env": fn() -> Pointer;
    writeoptions_create = c"leveldb_writeoptions_create": fn() -> Pointer;
    writeoptions_set_sync = c"leveldb_writeoptions_set_sync": fn(Pointer, u8);
    readoptions_create = c"leveldb_readoptions_create": fn() -> Pointer;
    get = c"leveldb_get": fn(Pointer, Pointer, *const c_char, usize, *mut usize, *mut *mut c_char) -> *mut c_char;
    create_iterator = c"leveldb_create_iterator": fn(Pointer, Pointer) -> Pointer;
    iter_destroy = c"leveldb_iter_destroy": fn(Pointer);
    iter_valid = c"leveldb_iter_valid": fn(Pointer) -> u8;
    iter_seek_to_first = c"leveldb_iter_seek_to_first": fn(Pointer);
    iter_next = c"leveldb_iter_next": fn(Pointer);
    iter_value = c"leveldb_iter_value": fn(Pointer, *mut usize) -> *const c_char;
    iter_get_error = c"leveldb_iter_get_error": fn(Pointer, *mut *mut c_char);
    writebatch_create = c"leveldb_writebatch_create": fn() -> Pointer;
    writebatch_destroy = c"leveldb_writebatch_destroy": fn(Pointer);
    writebatch_clear = c"leveldb_writebatch_clear": fn(Pointer);
    writebatch_put = c"leveldb_writebatch_put": fn(Pointer, *const c_char, usize, *const c_char, usize);
    major_version = c"leveldb_major_version": fn() -> c_int;
    minor_version = c"leveldb_minor_version": fn() -> c_int;
}

impl Api {
    /// Loads the library; it is never unloaded.
    pub(super) fn load() -> Result<Self, StoreError> {
        // SAFETY: dlopen takes a string that ends with a zero byte; LevelDB's initialisers are plain C++.
        let mut loaded = LIBRARIES.iter().map(|name| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) });
        match loaded.find(|library| !library.is_null()) {
            Some(library) => Self::find(library),
            None => Err(StoreError::NoLibrary { message: loader_message() }),
        }
    }

    /// Major and minor version.
    pub(super) fn version(&self) -> (i32, i32) {
        // SAFETY: both take nothing and touch nothing.
        unsafe { ((self.major_version)(), (self.minor_version)()) }
    }
}

/// A function of a library, as `F`.
///
/// # Safety
/// `F` must be a pointer to a function of the type that the symbol has.
unsafe fn symbol<F: Copy>(library: Pointer, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<Pointer>()) };
    // SAFETY: a library that dlopen returned and a string that ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: not null, of the same size, and the caller vouches for the type.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy::<Pointer, F>(&found) })
}

fn loader_message() -> String {
    // SAFETY: dlerror returns null or a string that lives until the next call of this thread.
    let message = unsafe {
        let message = libc::dlerror();
        if message.is_null() { None } else { Some(CStr::from_ptr(message).to_string_lossy().into_owned()) }
    };
    message.unwrap_or_else(|| "no reason given".into())
}
