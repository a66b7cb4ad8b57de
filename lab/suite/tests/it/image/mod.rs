//! The machine code of a program or a shared object, as far as calls and loops are concerned.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget};
use std::fmt;

/// A parsed ELF file.
pub struct Image {
    file: object::File<'static>,
}

/// A call instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// To an address that the instruction names.
    Direct { target: u64 },
    /// To where a register or a place in memory points.
    Indirect,
}

/// The instructions of one function.
pub struct Function(Vec<Instruction>);

/// What a stub of the procedure linkage table has at most.
const STUB_BYTES: u64 = 16;

impl Image {
    /// The program that is running.
    pub fn of_this_program() -> Image {
        Image::of_bytes(std::fs::read("/proc/self/exe").unwrap().leak())
    }

    /// A file that is in memory.
    pub fn of_bytes(bytes: &'static [u8]) -> Image {
        Image { file: object::File::parse(bytes).unwrap() }
    }

    fn symbols(&self) -> impl Iterator<Item = object::Symbol<'static, '_>> {
        self.file.symbols().chain(self.file.dynamic_symbols())
    }

    /// The function whose symbol contains `part`.
    #[track_caller]
    pub fn function(&self, part: &str) -> Function {
        let named = |it: &object::Symbol<'_, '_>| {
            it.is_definition() && it.name().is_ok_and(|name| name.contains(part))
        };
        let Some(symbol) = self.symbols().find(named) else { panic!("no symbol with {part}") };
        let function = self.decode(symbol.address(), symbol.size());
        assert!(!function.0.is_empty(), "{part} has no instructions");
        function
    }

    /// The function that is called.
    #[track_caller]
    pub fn function_at(&self, call: &Call) -> Function {
        let Call::Direct { target } = *call else { panic!("{call:?} names no address") };
        let at = |it: &object::Symbol<'_, '_>| it.address() == target && it.size() > 0;
        let Some(symbol) = self.symbols().find(at) else { panic!("nothing at {target:#x}") };
        self.decode(target, symbol.size())
    }

    /// Every name of the function that is called.
    pub fn names_at(&self, call: &Call) -> Vec<String> {
        let Call::Direct { target } = *call else { return Vec::new() };
        self.symbols()
            .filter(|it| it.address() == target)
            .filter_map(|it| it.name().ok().map(str::to_string))
            .collect()
    }

    /// Where the stub that is called finds what it jumps to.
    #[track_caller]
    pub fn slot_of_stub(&self, call: &Call) -> u64 {
        let Call::Direct { target } = *call else { panic!("{call:?} names no address") };
        let stub = self.decode(target, STUB_BYTES);
        let jump = stub.0.iter().find(|it| it.mnemonic() == Mnemonic::Jmp);
        match jump {
            Some(jump) if jump.is_ip_rel_memory_operand() => jump.ip_rel_memory_address(),
            _ => panic!("no stub:\n{stub}"),
        }
    }

    /// The symbol whose address the loader writes into the slot at `address`.
    pub fn symbol_in_slot(&self, address: u64) -> Option<String> {
        let (_, relocation) =
            self.file.dynamic_relocations()?.find(|(offset, _)| *offset == address)?;
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let symbol = self.file.dynamic_symbol_table()?.symbol_by_index(index).ok()?;
        symbol.name().ok().map(str::to_string)
    }

    /// Whether the symbol stands in this file, for others to use.
    pub fn defines(&self, name: &str) -> bool {
        self.file.dynamic_symbols().any(|it| it.name() == Ok(name) && it.is_definition())
    }

    #[track_caller]
    fn decode(&self, address: u64, size: u64) -> Function {
        let holds = |it: &object::Section<'_, '_>| {
            (it.address()..it.address() + it.size()).contains(&address)
        };
        let Some(section) = self.file.sections().find(holds) else {
            panic!("no section has {address:#x}")
        };
        let size = size.min(section.address() + section.size() - address);
        let bytes = section.data_range(address, size).unwrap().unwrap();
        Function(Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).iter().collect())
    }
}

impl Function {
    /// Every call.
    pub fn calls(&self) -> Vec<Call> {
        self.0.iter().filter_map(call).collect()
    }

    /// Every call that a later jump leads back to.
    pub fn calls_in_loops(&self) -> Vec<Call> {
        self.looped().filter_map(call).collect()
    }

    /// Number of one-byte no-ops, as a probe has.
    pub fn nops_count(&self) -> usize {
        self.0.iter().filter(|it| it.mnemonic() == Mnemonic::Nop && it.len() == 1).count()
    }

    /// How many jumps lead back.
    pub fn loops_count(&self) -> usize {
        self.0.iter().filter(|it| jumps_back(it)).count()
    }

    /// Where the one call in the loop finds its target: in memory, or in a register that was loaded
    /// from there.
    #[track_caller]
    pub fn slot_of_loop_call(&self) -> u64 {
        let calls: Vec<_> = self.looped().filter(|it| call(it).is_some()).collect();
        let [one] = calls.as_slice() else { panic!("{} calls in the loop:\n{self}", calls.len()) };
        if one.is_ip_rel_memory_operand() {
            return one.ip_rel_memory_address();
        }
        let loads = |it: &&Instruction| {
            it.mnemonic() == Mnemonic::Mov
                && it.is_ip_rel_memory_operand()
                && it.op0_kind() == OpKind::Register
                && it.op0_register() == one.op0_register()
        };
        match self.0.iter().find(loads) {
            Some(load) => load.ip_rel_memory_address(),
            None => panic!("no slot:\n{self}"),
        }
    }

    fn looped(&self) -> impl Iterator<Item = &Instruction> {
        self.0.iter().filter(|it| {
            self.0.iter().any(|jump| {
                jumps_back(jump) && (jump.near_branch_target()..jump.ip()).contains(&it.ip())
            })
        })
    }
}

fn jumps_back(it: &Instruction) -> bool {
    (it.is_jcc_short_or_near() || it.is_jmp_short_or_near()) && it.near_branch_target() < it.ip()
}

fn call(it: &Instruction) -> Option<Call> {
    match it.flow_control() {
        FlowControl::Call => Some(Call::Direct { target: it.near_branch_target() }),
        FlowControl::IndirectCall => Some(Call::Indirect),
        _ => None,
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|it| writeln!(f, "{:#x} {:?}", it.ip(), it.code()))
    }
}
