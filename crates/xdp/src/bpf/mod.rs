//! The programs on interfaces: an assembler, and what is assembled.

mod asm;
mod bridge;
mod frame;
mod program;
#[cfg(test)]
mod tests;

pub(crate) use asm::Instruction;
pub(crate) use bridge::{BridgePlan, bridge};
pub(crate) use frame::{META_BYTES, STAMP_BYTES};
pub(crate) use program::{Plan, solicited_node, steering};
