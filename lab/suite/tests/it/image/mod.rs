//! Calls and loops in the machine code of a program or a shared object.

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
    /// To an address in the instruction.
    Direct { target: u64 },
    /// To the address in a register or in memory.
    Indirect,
}

/// The instructions of one function.
pub struct Function(Vec<Instruction>);

/// Maximum size of a stub in the procedure linkage table.
const STUB_BYTES: u64 = 16;

impl Image {
    /// Parses the running program.
    pub fn of_this_program() -> Image {
        Image::of_bytes(std::fs::read("/proc/self/exe").unwrap().leak())
    }

    /// Parses a file in memory.
    pub fn of_bytes(bytes: &'static [u8]) -> Image {
        Image { file: object::File::parse(bytes).unwrap() }
    }

    fn symbols(&self) -> impl Iterator<Item = object::Symbol<'static, '_>> {
        self.file.symbols().chain(self.file.dynamic_symbols())
    }

    /// Returns the function whose symbol contains `part`.
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

    /// Returns the called function.
    #[track_caller]
    pub fn function_at(&self, call: &Call) -> Function {
        let Call::Direct { target } = *call else { panic!("{call:?} names no address") };
        let at = |it: &object::Symbol<'_, '_>| it.address() == target && it.size() > 0;
        let Some(symbol) = self.symbols().find(at) else { panic!("nothing at {target:#x}") };
        self.decode(target, symbol.size())
    }

    /// Returns all names of the called function.
    pub fn names_at(&self, call: &Call) -> Vec<String> {
        let Call::Direct { target } = *call else { return Vec::new() };
        self.symbols()
            .filter(|it| it.address() == target)
            .filter_map(|it| it.name().ok().map(str::to_string))
            .collect()
    }

    /// Returns the address of the slot from which the called stub loads its target.
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

    /// Returns the symbol whose address the loader writes into the slot at `address`.
    pub fn symbol_in_slot(&self, address: u64) -> Option<String> {
        let (_, relocation) =
            self.file.dynamic_relocations()?.find(|(offset, _)| *offset == address)?;
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let symbol = self.file.dynamic_symbol_table()?.symbol_by_index(index).ok()?;
        symbol.name().ok().map(str::to_string)
    }

    /// Returns `true` if this file defines the symbol for other files.
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
    /// Returns all calls.
    pub fn calls(&self) -> Vec<Call> {
        self.0.iter().filter_map(call).collect()
    }

    /// Returns all calls within a loop: a later jump leads back before them.
    pub fn calls_in_loops(&self) -> Vec<Call> {
        self.looped().filter_map(call).collect()
    }

    /// Number of one-byte no-ops, as a probe has.
    pub fn nops_count(&self) -> usize {
        self.0.iter().filter(|it| it.mnemonic() == Mnemonic::Nop && it.len() == 1).count()
    }

    /// Returns the number of jumps that lead back.
    pub fn loops_count(&self) -> usize {
        self.0.iter().filter(|it| jumps_back(it)).count()
    }

    /// Returns the address of the slot with the target of the only call in the loop: in memory, or
    /// loaded from there into a register.
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
