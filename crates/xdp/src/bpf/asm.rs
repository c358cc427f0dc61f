//! A small eBPF assembler: named instructions and labels, only as much as the programs of this crate need.
//!
//! Encodings are those of RFC 9669. Only little-endian hosts are supported: immediates that stand for packet bytes are
//! compared with words as the host loads them.

#[cfg(target_endian = "big")]
compile_error!("the steering program compares packet bytes as a little-endian host loads them");

/// One instruction as the kernel reads it (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// A register. `R0` holds results, `R1` to `R5` hold arguments and are clobbered by calls, `R6` to `R9` are preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R6 = 6,
    R7,
    R8,
    R9,
}

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

/// A position in the program, bound once. Jumps to it must come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

const CLASS_LD: u8 = 0x00;
const CLASS_LDX: u8 = 0x01;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_JMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;
const MODE_IMM: u8 = 0x00;
const MODE_MEM: u8 = 0x60;
const SOURCE_REGISTER: u8 = 0x08;
const OP_ADD: u8 = 0x00;
const OP_AND: u8 = 0x50;
const OP_SHIFT_LEFT: u8 = 0x60;
const OP_XOR: u8 = 0xa0;
const OP_MOVE: u8 = 0xb0;
/// `BPF_END` with `BPF_TO_BE`; the immediate is the width in bits.
const OP_TO_NETWORK: u8 = 0xd8;
const OP_JUMP: u8 = 0x00;
const OP_EQUAL: u8 = 0x10;
const OP_GREATER: u8 = 0x20;
const OP_NOT_EQUAL: u8 = 0x50;
const OP_LESS: u8 = 0xa0;
const OP_CALL: u8 = 0x80;
const OP_EXIT: u8 = 0x90;
/// `BPF_ATOMIC`; the immediate is the operation, 0 to add.
const MODE_ATOMIC: u8 = 0xc0;
/// `BPF_PSEUDO_MAP_FD`: the immediate is a map's descriptor.
const PSEUDO_MAP: u8 = 1;
/// `BPF_PSEUDO_MAP_VALUE`: the immediate is a map's descriptor, and the result is the address of the map's first entry.
const PSEUDO_MAP_VALUE: u8 = 2;

/// A program being assembled.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// Position of each label, once it is bound.
    labels: Vec<Option<usize>>,
    /// Jumps whose offsets are not filled in yet.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction.
    ///
    /// # Panics
    /// If the label was bound before.
    pub(crate) fn bind(&mut self, label: Label) {
        let place = self.labels[label.0].replace(self.code.len());
        assert_eq!(place, None, "a label is bound once");
    }

    fn emit(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers: to | from << 4, offset, immediate });
    }

    fn alu(&mut self, op: u8, to: Register, immediate: i32) {
        self.emit(CLASS_ALU64 | op, to as u8, 0, 0, immediate);
    }

    fn alu_register(&mut self, op: u8, to: Register, from: Register) {
        self.emit(CLASS_ALU64 | op | SOURCE_REGISTER, to as u8, from as u8, 0, 0);
    }

    /// `to = immediate`.
    pub(crate) fn set(&mut self, to: Register, immediate: i32) {
        self.alu(OP_MOVE, to, immediate);
    }

    /// `to = from`.
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.alu_register(OP_MOVE, to, from);
    }

    /// `to += immediate`.
    pub(crate) fn add(&mut self, to: Register, immediate: i32) {
        self.alu(OP_ADD, to, immediate);
    }

    /// `to += from`.
    pub(crate) fn add_register(&mut self, to: Register, from: Register) {
        self.alu_register(OP_ADD, to, from);
    }

    /// `to &= immediate`.
    pub(crate) fn and(&mut self, to: Register, immediate: i32) {
        self.alu(OP_AND, to, immediate);
    }

    /// `to <<= bits`.
    pub(crate) fn shift_left(&mut self, to: Register, bits: i32) {
        self.alu(OP_SHIFT_LEFT, to, bits);
    }

    /// `to ^= from`.
    pub(crate) fn xor_register(&mut self, to: Register, from: Register) {
        self.alu_register(OP_XOR, to, from);
    }

    /// Swaps the low two bytes between host order and network order; the other bytes become zero.
    pub(crate) fn network_half(&mut self, to: Register) {
        self.emit(CLASS_ALU | OP_TO_NETWORK, to as u8, 0, 0, 16);
    }

    /// `to = *(from + offset)`, zero-extended.
    pub(crate) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.emit(CLASS_LDX | MODE_MEM | width as u8, to as u8, from as u8, offset, 0);
    }

    /// `*(to + offset) = from`.
    pub(crate) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.emit(CLASS_STX | MODE_MEM | width as u8, to as u8, from as u8, offset, 0);
    }

    /// `to = value`: an instruction of two slots.
    pub(crate) fn set_double(&mut self, to: Register, value: u64) {
        let half = |shift: u32| ((value >> shift) as u32).cast_signed();
        self.emit(CLASS_LD | MODE_IMM | Width::Double as u8, to as u8, 0, 0, half(0));
        self.emit(0, 0, 0, 0, half(32));
    }

    /// `to = map`: an instruction of two slots; the kernel replaces the descriptor.
    pub(crate) fn set_map(&mut self, to: Register, descriptor: i32) {
        self.emit(CLASS_LD | MODE_IMM | Width::Double as u8, to as u8, PSEUDO_MAP, 0, descriptor);
        self.emit(0, 0, 0, 0, 0);
    }

    /// `to = address of the first entry of map`, an array: an instruction of two slots.
    pub(crate) fn set_first_entry(&mut self, to: Register, descriptor: i32) {
        self.emit(CLASS_LD | MODE_IMM | Width::Double as u8, to as u8, PSEUDO_MAP_VALUE, 0, descriptor);
        self.emit(0, 0, 0, 0, 0);
    }

    /// `*to += from`, 64 bits, atomic.
    pub(crate) fn atomic_add(&mut self, to: Register, from: Register) {
        self.emit(CLASS_STX | MODE_ATOMIC | Width::Double as u8, to as u8, from as u8, 0, 0);
    }

    fn branch(&mut self, code: u8, to: u8, from: u8, immediate: u32, target: Label) {
        self.jumps.push((self.code.len(), target));
        self.emit(code, to, from, 0, immediate.cast_signed());
    }

    /// Jumps to `target`.
    pub(crate) fn jump(&mut self, target: Label) {
        self.branch(CLASS_JMP | OP_JUMP, 0, 0, 0, target);
    }

    /// Jumps to `target` if the low 32 bits of `left` are `right`.
    pub(crate) fn jump_if_equal(&mut self, left: Register, right: u32, target: Label) {
        self.branch(CLASS_JMP32 | OP_EQUAL, left as u8, 0, right, target);
    }

    /// Jumps to `target` unless the low 32 bits of `left` are `right`.
    pub(crate) fn jump_if_not(&mut self, left: Register, right: u32, target: Label) {
        self.branch(CLASS_JMP32 | OP_NOT_EQUAL, left as u8, 0, right, target);
    }

    /// Jumps to `target` if the low 32 bits of `left` are less than `right`, unsigned.
    pub(crate) fn jump_if_less(&mut self, left: Register, right: u32, target: Label) {
        self.branch(CLASS_JMP32 | OP_LESS, left as u8, 0, right, target);
    }

    /// Jumps to `target` if `left > right`, as 64-bit numbers; this is for bounds checks.
    pub(crate) fn jump_if_beyond(&mut self, left: Register, right: Register, target: Label) {
        self.branch(CLASS_JMP | OP_GREATER | SOURCE_REGISTER, left as u8, right as u8, 0, target);
    }

    /// Calls a helper of the kernel (`enum bpf_func_id`).
    pub(crate) fn call(&mut self, helper: i32) {
        self.emit(CLASS_JMP | OP_CALL, 0, 0, 0, helper);
    }

    /// Returns `R0`.
    pub(crate) fn exit(&mut self) {
        self.emit(CLASS_JMP | OP_EXIT, 0, 0, 0, 0);
    }

    /// The program, with every jump resolved.
    ///
    /// # Panics
    /// If a label that is jumped to was never bound, or is too far away: both are defects of the code that writes the
    /// program, which the tests of the largest program find.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].expect("a label that is jumped to is bound");
            let distance = target.cast_signed() - at.cast_signed() - 1;
            self.code[at].offset = i16::try_from(distance).expect("the program is short");
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::Register::{R0, R1, R2, R7};
    use super::*;

    fn bytes(code: &[Instruction]) -> Vec<[u8; 8]> {
        let encode = |i: &Instruction| {
            let mut bytes = [i.code, i.registers, 0, 0, 0, 0, 0, 0];
            bytes[2..4].copy_from_slice(&i.offset.to_le_bytes());
            bytes[4..].copy_from_slice(&i.immediate.to_le_bytes());
            bytes
        };
        code.iter().map(encode).collect()
    }

    fn assembled(write: impl FnOnce(&mut Assembler)) -> Vec<[u8; 8]> {
        let mut asm = Assembler::default();
        write(&mut asm);
        bytes(&asm.finish())
    }

    /// Encodings as LLVM's assembler prints them.
    #[test]
    fn instructions_encode_as_the_standard_says() {
        assert_eq!(assembled(|a| a.set(R0, 2)), [[0xb7, 0, 0, 0, 2, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.copy(R7, R1)), [[0xbf, 0x17, 0, 0, 0, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.add(R1, 14)), [[0x07, 0x01, 0, 0, 14, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.add_register(R1, R2)), [[0x0f, 0x21, 0, 0, 0, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.and(R2, 15)), [[0x57, 0x02, 0, 0, 15, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.shift_left(R2, 2)), [[0x67, 0x02, 0, 0, 2, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.xor_register(R2, R1)), [[0xaf, 0x12, 0, 0, 0, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.network_half(R2)), [[0xdc, 0x02, 0, 0, 16, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.load(Width::Half, R2, R7, 12)), [[0x69, 0x72, 12, 0, 0, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.load(Width::Word, R2, R7, -4)), [[0x61, 0x72, 0xfc, 0xff, 0, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.store(Width::Double, R1, 8, R2)), [[0x7b, 0x21, 8, 0, 0, 0, 0, 0]]);
        assert_eq!(assembled(|a| a.call(51)), [[0x85, 0, 0, 0, 51, 0, 0, 0]]);
        assert_eq!(assembled(Assembler::exit), [[0x95, 0, 0, 0, 0, 0, 0, 0]]);
        let wide = [[0x18, 0x01, 0, 0, 2, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0, 0]];
        assert_eq!(assembled(|a| a.set_double(R1, 0x1_0000_0002)), wide);
        assert_eq!(assembled(|a| a.set_map(R1, 7))[0], [0x18, 0x11, 0, 0, 7, 0, 0, 0]);
        assert_eq!(assembled(|a| a.set_first_entry(R1, 7))[0], [0x18, 0x21, 0, 0, 7, 0, 0, 0]);
        assert_eq!(assembled(|a| a.atomic_add(R1, R2)), [[0xdb, 0x21, 0, 0, 0, 0, 0, 0]]);
    }

    #[test]
    fn jumps_reach_their_labels_from_before() {
        let code = assembled(|a| {
            let (end, near) = (a.label(), a.label());
            a.jump_if_equal(R2, 0xdead_beef, end);
            a.jump_if_beyond(R1, R7, near);
            a.set(R0, 1);
            a.bind(near);
            a.jump(end);
            a.set(R0, 2);
            a.bind(end);
            a.exit();
        });
        assert_eq!(code[0], [0x16, 0x02, 4, 0, 0xef, 0xbe, 0xad, 0xde]);
        assert_eq!(code[1], [0x2d, 0x71, 1, 0, 0, 0, 0, 0]);
        assert_eq!(code[3], [0x05, 0, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "is bound")]
    fn a_jump_to_nowhere_is_refused() {
        assembled(|a| {
            let nowhere = a.label();
            a.jump(nowhere);
        });
    }
}
