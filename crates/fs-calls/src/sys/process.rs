//! What the process has: its table, its engine, and whether the library answers at all.

use super::owner;
use super::quiet::{Kernels, Quiet, is_child};
use super::raw::Raw;
use crate::calls::{Answered, Calls, Counts};
use crate::engine::Engine;
use crate::table::{Place, Table};
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Descriptors from this number on are the kernel's. Pages of the table that nobody uses take no memory.
const DESCRIPTORS_MAX: usize = 1 << 16;

static PLACES: [Place; DESCRIPTORS_MAX] = [const { Place::new() }; DESCRIPTORS_MAX];
static TABLE: Table<'static> = Table::new(&PLACES);
static ENGINE: OnceLock<&'static dyn Engine> = OnceLock::new();
static COUNTS: Counts = Counts::new();
static STATE: AtomicU8 = AtomicU8::new(WAITING);

/// There is no engine yet.
const WAITING: u8 = 0;
/// The engine answers.
const ANSWERING: u8 = 1;
/// The kernel answers everything, for good.
const OFF: u8 = 2;

/// Answers with an engine from now on. The first one stays.
pub fn install(engine: &'static dyn Engine) {
    if ENGINE.set(engine).is_ok() {
        owner::begin();
        // What has turned the library off before stays in force.
        let _ = STATE.compare_exchange(WAITING, ANSWERING, Ordering::AcqRel, Ordering::Acquire);
    }
}

fn calls() -> Option<Calls<'static>> {
    if STATE.load(Ordering::Acquire) != ANSWERING {
        return None;
    }
    let engine = *ENGINE.get()?;
    Some(Calls { table: &TABLE, engine, kernel: &Raw, counts: &COUNTS })
}

unsafe extern "C-unwind" {
    safe fn pthread_testcancel();
}

/// Ends the thread here if it was cancelled, as the function of the C library does that the call stands for. Nothing is
/// locked yet.
#[inline]
pub(super) fn cancellation_point(fd: i32) {
    if TABLE.has(fd) {
        pthread_testcancel();
    }
}

/// Answers a call on a descriptor. `None`: the kernel is to answer it.
#[inline]
pub(super) fn answer<T>(fd: i32, call: impl FnOnce(&Calls<'static>) -> Answered<T>) -> Answered<T> {
    if !TABLE.has(fd) {
        return None;
    }
    let calls = calls()?;
    match Quiet::begin() {
        Ok(_quiet) => call(&calls),
        Err(Kernels::Interrupts) => {
            calls.interrupts(fd);
            None
        }
        Err(Kernels::Child) => None,
    }
}

/// Prepares the table for a call that is passed on. For a child that shares the memory, and not the descriptors, its parent
/// has prepared everything.
pub(super) fn prepare(change: impl FnOnce(&Calls<'static>)) {
    if let Some(calls) = calls()
        && let Ok(_quiet) = Quiet::begin()
    {
        change(&calls);
    }
}

/// The program makes these descriptors others. No lock is taken: it may hold some of its own.
pub(super) fn lose(descriptors: RangeInclusive<u32>) {
    if let Some(calls) = calls().filter(|_| !is_child()) {
        calls.engine.loses(descriptors);
    }
}

/// A child that shares the memory changes the flags of an open file, which it has in common with its parent.
pub(super) fn child_changes_flags(fd: i32) {
    if let Some(calls) = calls().filter(|_| is_child()) {
        calls.leaves_open_file(fd);
    }
}

/// As [`prepare`], for a call on one descriptor: on others there is nothing to prepare.
pub(super) fn prepare_for(fd: i32, change: impl FnOnce(&Calls<'static>, i32)) {
    if TABLE.has(fd) {
        prepare(|calls| change(calls, fd));
    }
}

/// The process is a child that has the memory of its parent.
pub(super) fn become_child() {
    turn_off();
    if let Some(engine) = ENGINE.get() {
        engine.forked();
    }
}

/// Answers for nothing from now on. What the table has, a caller who goes on has prepared before.
pub(super) fn turn_off() {
    STATE.store(OFF, Ordering::Release);
}

/// How many calls were answered here, and how many were passed on.
pub(super) fn counts() -> [u64; 2] {
    [&COUNTS.answered, &COUNTS.passed_on].map(|count| count.load(Ordering::Relaxed))
}
