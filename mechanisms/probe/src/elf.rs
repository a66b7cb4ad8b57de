//! Finds a section in a 64-bit ELF file: a minimal parser, to avoid a dependency.
//!
//! Source: System V ABI, "ELF-64 Object File Format".

use crate::read::{ReadAt, read_full};
use std::io;

/// Position and size of a section in an ELF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ElfSection {
    pub offset: u64,
    pub bytes: u64,
    /// Distance from this section to the code: how much further the code's segment is mapped from
    /// its offset in the file than this section.
    pub code_shift: u64,
}

/// Size in bytes of a 64-bit ELF file's header.
const HEADER_BYTES: usize = 64;
/// Size in bytes of an entry of the section header table.
const SECTION_HEADER_BYTES: u64 = 64;
/// Size in bytes of an entry of the program header table.
const PROGRAM_HEADER_BYTES: u64 = 56;
/// Type of a segment that is mapped (`PT_LOAD`).
const SEGMENT_MAPPED: u32 = 1;
/// Flag of an executable segment (`PF_X`).
const SEGMENT_EXECUTABLE: u32 = 1;
/// Maximum length in bytes of the name that [`find_section`] can find.
const NAME_BYTES_MAX: usize = 64;

/// Returns the section called `name`; `None` if there is none, or the file is not 64-bit ELF.
pub(crate) fn find_section(file: &impl ReadAt, name: &str) -> io::Result<Option<ElfSection>> {
    let mut header = [0; HEADER_BYTES];
    if read_full(file, 0, &mut header)? < HEADER_BYTES || header[..6] != *b"\x7fELF\x02\x01" {
        return Ok(None);
    }
    let table = u64_at(&header, 40);
    let entry_bytes = u64::from(u16_at(&header, 58));
    let (count, names) = (u64::from(u16_at(&header, 60)), u64::from(u16_at(&header, 62)));
    if entry_bytes != SECTION_HEADER_BYTES {
        return Ok(None);
    }
    let entry = |index: u64| -> io::Result<Option<[u8; SECTION_HEADER_BYTES as usize]>> {
        let Some(offset) = table.checked_add(index * SECTION_HEADER_BYTES) else { return Ok(None) };
        let mut bytes = [0; SECTION_HEADER_BYTES as usize];
        let whole = read_full(file, offset, &mut bytes)? == bytes.len();
        Ok(whole.then_some(bytes))
    };
    let Some(names) = entry(names)? else { return Ok(None) };
    let names = u64_at(&names, 24);
    for index in 0..count {
        let Some(bytes) = entry(index)? else { return Ok(None) };
        let mut text = [0; NAME_BYTES_MAX];
        let Some(at) = names.checked_add(u64::from(u32_at(&bytes, 0))) else { continue };
        let length = read_full(file, at, &mut text)?;
        let end = text[..length].iter().position(|byte| *byte == 0).unwrap_or(length);
        if &text[..end] == name.as_bytes() {
            let Some(code_shift) = code_shift(file, &header)? else { return Ok(None) };
            let offset = u64_at(&bytes, 24);
            let shift = u64_at(&bytes, 16).wrapping_sub(offset);
            let code_shift = code_shift.wrapping_sub(shift);
            return Ok(Some(ElfSection { offset, bytes: u64_at(&bytes, 32), code_shift }));
        }
    }
    Ok(None)
}

/// Returns the difference between address and offset of the executable segment; `None` if there is
/// none.
fn code_shift(file: &impl ReadAt, header: &[u8; HEADER_BYTES]) -> io::Result<Option<u64>> {
    let (table, count) = (u64_at(header, 32), u64::from(u16_at(header, 56)));
    for index in 0..count {
        let mut bytes = [0; PROGRAM_HEADER_BYTES as usize];
        let Some(offset) = table.checked_add(index * PROGRAM_HEADER_BYTES) else { break };
        if read_full(file, offset, &mut bytes)? < bytes.len() {
            break;
        }
        let (kind, flags) = (u32_at(&bytes, 0), u32_at(&bytes, 4));
        if kind == SEGMENT_MAPPED && flags & SEGMENT_EXECUTABLE != 0 {
            return Ok(Some(u64_at(&bytes, 16).wrapping_sub(u64_at(&bytes, 8))));
        }
    }
    Ok(None)
}

/// Returns the little-endian number of 16 bits at index `at`.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the little-endian number of 32 bits at index `at`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// Returns the little-endian number of 64 bits at index `at`.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sections_of_the_running_program_are_found() {
        let program = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(find_section(&program, ".text").unwrap().is_some_and(|text| text.bytes > 1_000));
        assert_eq!(find_section(&program, "no such section").unwrap(), None);
    }

    proptest! {
        #[test]
        fn random_bytes_have_no_sections(rest in proptest::collection::vec(any::<u8>(), 0..500)) {
            let mut bytes = b"\x7fELF\x02\x01".to_vec();
            bytes.extend(rest);
            prop_assert_eq!(find_section(&bytes, "handover_probes").unwrap(), None);
        }
    }
}
