//! The steering program: an assembler, and what is assembled.

mod asm;
mod program;
#[cfg(test)]
mod tests;

pub(crate) use asm::Instruction;
pub(crate) use program::{META_BYTES, Plan, STAMP_BYTES, solicited_node, steering};
