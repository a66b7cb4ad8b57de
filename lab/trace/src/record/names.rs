//! Names and source locations of functions, from the symbols and debug information of the executed
//! files.

use super::rings::RingFile;
use crate::text::is_unnamed_function;
use addr2line::Context;
use gimli::{DwarfSections, EndianSlice, LittleEndian};
use handover_probe::format::{Module, encode_sites, encode_sites_segment, function_site};
use handover_probe::read::Trace;
use handover_probe::{ReadError, Site, trace_file};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Adds the names of functions to a trace that lacks them, and returns their number. Such a trace
/// was recorded with [`Policy::Last`](handover_probe::Policy), or its recorder was killed.
/// Functions without events get no names. Appends messages for the user to `notes`, such as the
/// reason why functions have no names.
///
/// # Errors
/// If the trace cannot be read, is not a trace, or cannot be written.
pub fn add_function_names(path: &Path, notes: &mut Vec<String>) -> Result<usize, ReadError> {
    let trace = Trace::open(path)?;
    let seen: HashSet<u32> = trace.merged_events().map(|event| event.site).collect();
    let rings = trace.rings_path().unwrap_or(path).to_owned();
    let Some(mut rings) = RingFile::open(&rings)? else { return Ok(0) };
    rings.read_new_segments()?;
    let (modules, mut functions) = rings.read_functions()?;
    functions.retain(|(number, ..)| {
        seen.contains(number) && trace.site(*number).is_none_or(is_unnamed_function)
    });
    let mut sites = resolve_sites(&modules, &functions, notes);
    sites.retain(|site| !is_unnamed_function(site));
    if sites.is_empty() {
        return Ok(0);
    }
    let file = File::options().write(true).open(path)?;
    let end = file.metadata()?.len().next_multiple_of(8);
    let segment = encode_sites_segment(&encode_sites(&sites));
    if let Err(error) = file.write_all_at(&segment, end) {
        // If this fails too, readers detect the rest by its checksum.
        let _ = file.set_len(end);
        return Err(error.into());
    }
    Ok(sites.len())
}

/// Looks up the names and source lines of functions, and returns them as sites. A function is given
/// as site number, module and address.
pub(super) fn resolve_sites(
    modules: &HashMap<u64, Module>,
    functions: &[(u32, u64, u64)],
    notes: &mut Vec<String>,
) -> Vec<Site> {
    let mut sites = Vec::new();
    let wanted: HashSet<u64> = functions.iter().map(|(_, module, _)| *module).collect();
    for index in wanted {
        let Some(module) = modules.get(&index) else { continue };
        let of_it = functions.iter().filter(|(_, module, _)| *module == index);
        let bytes = read_program_file(Path::new(&module.path));
        let unreadable = |error| format!("the file cannot be read: {error}");
        let file = bytes.as_deref().map_err(unreadable).and_then(|bytes| {
            let file = object::File::parse(bytes).ok().filter(|it| is_executed_file(it, module));
            file.ok_or_else(|| "the file has changed since it was executed".to_owned())
        });
        let file = match file {
            Ok(file) => file,
            Err(why) => {
                notes.push(format!("{}: {why}: its functions have no names", module.path));
                let unnamed =
                    of_it.map(|(number, _, address)| unnamed_site(*number, module, *address));
                sites.extend(unnamed);
                continue;
            }
        };
        let symbols = Symbols::read(&file);
        let sections = dwarf_sections(&file);
        let lines = sections.as_ref().and_then(|sections| {
            let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
            Context::from_dwarf(dwarf).ok()
        });
        let mut unnamed_count = 0;
        for (number, _, address) in of_it {
            let Some(name) = symbols.name(*address) else {
                unnamed_count += 1;
                sites.push(unnamed_site(*number, module, *address));
                continue;
            };
            let place =
                lines.as_ref().and_then(|lines| lines.find_location(*address).ok().flatten());
            let (source, line) = match place {
                Some(place) => (place.file.unwrap_or_default(), place.line.unwrap_or(0)),
                None => (module.path.as_str(), 0),
            };
            sites.push(function_site(*number, demangled(name), source.to_owned(), line));
        }
        if unnamed_count > 0 {
            notes.push(format!(
                "{}: {unnamed_count} functions have no symbol (was it stripped?) and are called by \
                 their address",
                module.path
            ));
        }
    }
    sites.sort_unstable_by_key(|site| site.number);
    sites
}

/// Maximum size in bytes of a program's or shared object's file whose symbols are read.
const PROGRAM_BYTES_MAX: u64 = 1 << 32;

/// Reads the file of a program or shared object. The path comes from a trace, so that it may lead
/// to anything.
fn read_program_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = trace_file::open_regular_file(path)?;
    if file.metadata()?.len() > PROGRAM_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unnamed_site(number: u32, module: &Module, address: u64) -> Site {
    function_site(number, module.unnamed_function(address), module.path.clone(), 0)
}

/// Returns `true` if the file has the same build ID as the executed module. Also returns `true` if
/// none was recorded for the module.
fn is_executed_file(file: &object::File<'_>, module: &Module) -> bool {
    match file.build_id() {
        Ok(Some(id)) => module.build_id.is_empty() || module.build_id == id,
        _ => module.build_id.is_empty(),
    }
}

/// Loads the DWARF sections of a file; `None` if it has no source lines.
fn dwarf_sections<'a>(file: &object::File<'a>) -> Option<DwarfSections<Cow<'a, [u8]>>> {
    let load = |id: gimli::SectionId| -> Result<Cow<'a, [u8]>, object::Error> {
        match file.section_by_name(id.name()) {
            Some(section) => section.uncompressed_data(),
            None => Ok(Cow::Borrowed(&[])),
        }
    };
    file.section_by_name(".debug_line")?;
    DwarfSections::load(load).ok()
}

/// Function symbols, sorted by address: address, size, name.
#[derive(Debug)]
struct Symbols<'a>(Vec<(u64, u64, &'a str)>);

impl<'a> Symbols<'a> {
    /// Reads the function symbols of a file.
    fn read(file: &object::File<'a>) -> Self {
        let mut all: Vec<(u64, u64, &'a str)> = Vec::new();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Text
                && !symbol.is_undefined()
                && let Ok(name) = symbol.name()
                && !name.is_empty()
            {
                all.push((symbol.address(), symbol.size(), name));
            }
        }
        // At one address, the largest symbol is kept, then the one with the shortest name.
        all.sort_by_key(|(address, size, name)| {
            (*address, std::cmp::Reverse(*size), name.len(), *name)
        });
        all.dedup_by_key(|(address, ..)| *address);
        Self(all)
    }

    /// Returns the name of the function that contains `address`; `None` if there is no such symbol.
    fn name(&self, address: u64) -> Option<&'a str> {
        let behind = self.0.partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = *self.0.get(behind.checked_sub(1)?)?;
        // Symbols from assembly have no size.
        (size == 0 || address - start < size).then_some(name)
    }
}

/// Demangles the name of a Rust or C++ function.
fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    let symbol = cpp_demangle::Symbol::new(name.as_bytes());
    symbol.ok().and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_not_read_as_a_program() {
        assert!(read_program_file(Path::new("/dev/zero")).is_err());
        assert!(!read_program_file(Path::new("/proc/self/exe")).unwrap().is_empty());
    }

    #[test]
    fn symbols_are_demangled_to_source_names() {
        for (name, shown) in [
            ("main", "main"),
            ("_ZN1a1b3runEi", "a::b::run(int)"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_Zwhatever", "_Zwhatever"),
        ] {
            assert_eq!(demangled(name), shown);
        }
    }

    #[test]
    fn address_resolves_to_its_enclosing_function() {
        let symbols = Symbols(vec![(16, 8, "a"), (32, 0, "b"), (64, 4, "c")]);
        let named = [15, 16, 23, 24, 40, 67, 68].map(|address| symbols.name(address));
        assert_eq!(named, [None, Some("a"), Some("a"), None, Some("b"), Some("c"), None]);
        let last = Symbols(vec![(u64::MAX - 1, 8, "last")]);
        assert_eq!(last.name(u64::MAX), Some("last"));
    }
}
