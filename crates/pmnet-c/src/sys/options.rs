//! Reads the option structures of callers, which may know fewer or more fields, and checks their values.

use super::pointers::{bytes, text};
use crate::abi::{ClientOptions, NO_DEVICES, ROW_BYTES, SPIN_ALWAYS, ServerOptions};
use crate::client::address;
use crate::error::CallError;
use landfall_pmnet::auth::Key;
use landfall_pmnet::server::{FLOOR_MAX, Silence};
use landfall_pmnet::{SessionRow, wire};
use landfall_pmnet_io::runtime::{self, SessionOptions};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Duration;

/// Most bytes of a structure that are read.
const SIZE_MAX: usize = 4096;
/// Smallest and largest IP packet. RFC 791 requires every host to accept the smallest one.
const MTUS: [u32; 2] = [576, 65535];
/// Number of update packets that a server buffers ahead.
const WINDOW_MAX: u32 = 4096;
const REQUESTS_MAX: u32 = 65536;
/// Most requests in a batch, because the answers of a batch are tracked one by one.
const BATCH_MAX: u32 = 4096;
const BATCH: u32 = 64;
/// Shortest and longest silence in seconds. A lease is a quarter of it, in whole seconds of 16 bits.
const SILENCES: [u32; 2] = [4, 4 * 0xffff];

/// Option structures, whose first field is their size.
///
/// # Safety
/// `repr(C)` with a `usize` first, no padding, and every pattern of bits is a value.
unsafe trait Settings: Copy {}

// SAFETY: integers and pointers, which may have any value; padding is excluded below.
unsafe impl Settings for ClientOptions {}
// SAFETY: as above.
unsafe impl Settings for ServerOptions {}

const _: () = assert!(size_of::<ClientOptions>() == 3 * size_of::<usize>() + 6 * size_of::<u32>());
const _: () = assert!(size_of::<ServerOptions>() == size_of::<[usize; 4]>() + size_of::<[u32; 8]>());

/// The caller's options. Fields that the caller does not know are zero. `None` for a null pointer.
///
/// # Safety
/// The pointer is null or points to as many bytes as its first field says.
unsafe fn read<T: Settings>(from: *const T) -> Result<Option<T>, CallError> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees the size field, and `Settings` guarantees its place.
    let size = unsafe { from.cast::<usize>().read() };
    if !(size_of::<usize>()..=SIZE_MAX).contains(&size) {
        let range = "it is to be the size of the structure";
        return Err(CallError::Range { what: "options.size", value: size as u64, range });
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller guarantees `size` bytes, and without padding all of them are initialized.
    let unknown = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(CallError::UnknownOptions);
    }
    let mut options = MaybeUninit::<T>::zeroed();
    // SAFETY: both sides have `known` bytes. They do not overlap, because one of them is a local variable.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), options.as_mut_ptr().cast::<u8>(), known) };
    // SAFETY: all bytes are initialized, and every value of them is valid.
    Ok(Some(unsafe { options.assume_init() }))
}

/// The options of a client.
///
/// # Safety
/// As `pmnet.h` says of `PMNet_client_open`.
pub(super) unsafe fn client(
    server: SocketAddr,
    devices: u32,
    options: *const ClientOptions,
) -> Result<SessionOptions, CallError> {
    let mut to = SessionOptions::new(server);
    let most = u32::from(wire::DEVICES_MAX);
    to.client.devices = fitting("devices", devices, [0, most], "from 0 to 250")?;
    // SAFETY: promised by the caller.
    let Some(from) = (unsafe { read(options)? }) else { return Ok(to) };
    if from.reserved != 0 {
        return Err(CallError::UnknownOptions);
    }
    if !from.bind.is_null() {
        // SAFETY: promised by the caller.
        to.bind = Some(address(unsafe { text(from.bind, "options.bind")? })?);
    }
    set(&mut to.client.mtu, "options.mtu", from.mtu, MTUS, "from 576 to 65535")?;
    set(&mut to.client.window, "options.window", from.window, [1, WINDOW_MAX], "at most 4096")?;
    let requests = [1, REQUESTS_MAX];
    set(&mut to.client.requests_max, "options.requests_max", from.requests_max, requests, "at most 65536")?;
    if from.give_up_ms != 0 {
        to.client.give_up = Duration::from_millis(from.give_up_ms.into());
    }
    to.spin = spin(from.spin);
    // SAFETY: promised by the caller.
    to.key = unsafe { key(from.key_file)? };
    Ok(to)
}

/// The options of a server, its rows and its floor.
///
/// # Safety
/// As `pmnet.h` says of `PMNet_server_open`.
pub(super) unsafe fn server(
    listen: SocketAddr,
    options: *const ServerOptions,
) -> Result<(runtime::ServerOptions, Vec<SessionRow>, u32), CallError> {
    let mut to = runtime::ServerOptions::new(listen);
    to.batch_max = BATCH as usize;
    // SAFETY: promised by the caller.
    let Some(from) = (unsafe { read(options)? }) else { return Ok((to, Vec::new(), 0)) };
    set(&mut to.server.mtu, "options.mtu", from.mtu, MTUS, "from 576 to 65535")?;
    let any = [1, u32::MAX];
    set(&mut to.server.sessions_max, "options.sessions_max", from.sessions_max, any, "any number")?;
    set(&mut to.batch_max, "options.batch_max", from.batch_max, [1, BATCH_MAX], "at most 4096")?;
    to.server.foreign = from.foreign != 0;
    to.server.silence = silence(from.silence_seconds, from.silence_devices)?;
    to.spin = spin(from.spin);
    // SAFETY: promised by the caller.
    to.key = unsafe { key(from.key_file)? };
    // SAFETY: promised by the caller.
    let rows = unsafe { rows(from.rows, from.rows_count)? };
    if from.floor > FLOOR_MAX {
        let (what, value) = ("options.floor", u64::from(from.floor));
        return Err(CallError::Range { what, value, range: "one that the server has given, at most 2^30" });
    }
    Ok((to, rows, from.floor))
}

/// # Safety
/// The pointer is null or points to `count` rows.
unsafe fn rows(from: *const u8, count: usize) -> Result<Vec<SessionRow>, CallError> {
    let range = "too many rows for the address space";
    let error = CallError::Range { what: "options.rows_count", value: count as u64, range };
    let len = count.checked_mul(ROW_BYTES).ok_or(error)?;
    // SAFETY: promised by the caller.
    let bytes = unsafe { bytes(from.cast(), len, "options.rows")? };
    let row = |(index, row): (usize, &[u8])| SessionRow::from_bytes(row).ok_or(CallError::Row { index });
    bytes.chunks_exact(ROW_BYTES).enumerate().map(row).collect()
}

/// # Safety
/// The pointer is null or points to a string.
unsafe fn key(file: *const c_char) -> Result<Option<Key>, CallError> {
    if file.is_null() {
        return Ok(None);
    }
    // SAFETY: promised by the caller.
    let file = unsafe { text(file, "options.key_file")? };
    Ok(Some(runtime::read_key(file.as_ref())?))
}

/// When silent sessions end. The number of devices has no default: with one that is too low, updates that were reported
/// as durable are lost.
fn silence(seconds: u32, devices: u32) -> Result<Option<Silence>, CallError> {
    if (seconds, devices) == (0, 0) {
        return Ok(None);
    }
    let seconds: u32 = fitting("options.silence_seconds", seconds, SILENCES, "from 4 to 262140")?;
    let most = u32::from(wire::DEVICES_MAX);
    let range = "from 1 to 250, or PMNET_NO_DEVICES";
    let devices = match devices {
        NO_DEVICES => 0,
        devices => fitting("options.silence_devices", devices, [1, most], range)?,
    };
    Ok(Some(Silence { devices, after: Duration::from_secs(seconds.into()) }))
}

fn spin(micros: u32) -> Duration {
    if micros == SPIN_ALWAYS { Duration::MAX } else { Duration::from_micros(micros.into()) }
}

/// Sets a field, unless the value is zero.
fn set<T: TryFrom<u32>>(
    to: &mut T,
    what: &'static str,
    value: u32,
    within: [u32; 2],
    range: &'static str,
) -> Result<(), CallError> {
    if value != 0 {
        *to = fitting(what, value, within, range)?;
    }
    Ok(())
}

fn fitting<T: TryFrom<u32>>(
    what: &'static str,
    value: u32,
    within: [u32; 2],
    range: &'static str,
) -> Result<T, CallError> {
    let fits = (within[0]..=within[1]).contains(&value);
    let value_or = T::try_from(value).ok().filter(|_| fits);
    value_or.ok_or(CallError::Range { what, value: value.into(), range })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;

    fn zeroed() -> ClientOptions {
        let size = size_of::<ClientOptions>();
        ClientOptions {
            size,
            bind: null(),
            mtu: 0,
            window: 0,
            requests_max: 0,
            give_up_ms: 0,
            spin: 0,
            reserved: 0,
            key_file: null(),
        }
    }

    fn open(options: &ClientOptions) -> Result<SessionOptions, CallError> {
        // SAFETY: the size field is at most the size of the structure.
        unsafe { client("127.0.0.1:1".parse().unwrap(), 1, options) }
    }

    #[test]
    fn zeros_stand_for_the_defaults() {
        let defaults = SessionOptions::new("127.0.0.1:1".parse().unwrap());
        let set = open(&zeroed()).unwrap();
        assert_eq!(set.client, landfall_pmnet::ClientConfig { devices: 1, ..defaults.client });
        assert_eq!(set.spin, defaults.spin);
    }

    #[test]
    fn a_floor_that_no_server_has_given_is_refused() {
        // SAFETY: integers and null pointers.
        let zeroed: ServerOptions = unsafe { std::mem::zeroed() };
        for (floor, is_accepted) in [(FLOOR_MAX, true), (FLOOR_MAX + 1, false), (u32::MAX, false)] {
            let options = ServerOptions { size: size_of::<ServerOptions>(), floor, ..zeroed };
            // SAFETY: the size field is that of the structure.
            let read = unsafe { server("127.0.0.1:1".parse().unwrap(), &raw const options) };
            assert_eq!(read.is_ok(), is_accepted, "{floor}");
        }
    }

    #[test]
    fn silent_sessions_end_only_if_their_time_and_the_devices_are_given() {
        // SAFETY: integers and null pointers.
        let zeroed: ServerOptions = unsafe { std::mem::zeroed() };
        let silence_of = |silence_seconds, silence_devices| {
            let size = size_of::<ServerOptions>();
            let options = ServerOptions { size, silence_seconds, silence_devices, ..zeroed };
            // SAFETY: the size field is that of the structure.
            let read = unsafe { server("127.0.0.1:1".parse().unwrap(), &raw const options) };
            read.map(|(options, _, _)| options.server.silence)
        };
        assert_eq!(silence_of(0, 0).unwrap(), None);
        for (seconds, given, devices) in [(4_u32, 1, 1), (64_800, 250, 250), (262_140, NO_DEVICES, 0)] {
            let after = Duration::from_secs(seconds.into());
            assert_eq!(silence_of(seconds, given).unwrap(), Some(Silence { devices, after }));
        }
        for (seconds, devices) in [(3, 1), (262_141, 1), (0, 1), (0, NO_DEVICES), (4, 0), (4, 251)] {
            assert!(silence_of(seconds, devices).is_err(), "{seconds} s, {devices} devices");
        }
    }

    #[test]
    fn the_time_to_busy_poll_is_in_microseconds_or_unlimited() {
        let spin_time = |spin| open(&ClientOptions { spin, ..zeroed() }).unwrap().spin;
        assert_eq!(spin_time(SPIN_ALWAYS), Duration::MAX);
        assert_eq!(spin_time(70), Duration::from_micros(70));
    }

    #[test]
    fn fields_behind_the_size_of_an_older_caller_are_not_read() {
        let options = ClientOptions { size: 2 * size_of::<usize>() + 4, mtu: 9000, window: 7, ..zeroed() };
        let client = open(&options).unwrap().client;
        assert_eq!((client.mtu, client.window), (9000, 256));
    }

    #[test]
    fn a_newer_callers_structure_is_accepted_if_its_unknown_fields_are_zero() {
        #[repr(C)]
        struct Newer(ClientOptions, u64);
        let size = size_of::<Newer>();
        for (value, is_accepted) in [(0, true), (1, false)] {
            let newer = Newer(ClientOptions { size, ..zeroed() }, value);
            // SAFETY: the structure has as many bytes as its size field says.
            let read = unsafe { read((&raw const newer).cast::<ClientOptions>()) };
            assert_eq!(read.is_ok(), is_accepted);
        }
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let good = zeroed();
        for bad in [
            ClientOptions { size: 0, ..good },
            ClientOptions { size: SIZE_MAX + 1, ..good },
            ClientOptions { mtu: 575, ..good },
            ClientOptions { mtu: 65536, ..good },
            ClientOptions { window: 4097, ..good },
            ClientOptions { requests_max: 65537, ..good },
            ClientOptions { reserved: 1, ..good },
            ClientOptions { bind: c"nowhere".as_ptr(), ..good },
            ClientOptions { key_file: c"/nowhere".as_ptr(), ..good },
        ] {
            assert!(open(&bad).is_err(), "{bad:?}");
        }
    }
}
