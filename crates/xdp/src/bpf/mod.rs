//! The programs on interfaces, and the assembler that they are written with.

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
