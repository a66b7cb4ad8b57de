//! Check that a program can be traced, before it runs.

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, elf};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Program that can be executed and traced.
#[derive(Debug)]
pub(super) struct TraceableProgram {
    /// Path of the program's file.
    pub path: PathBuf,
    /// `true` if the program, or a library that it links, has traceable function entries.
    pub has_functions: bool,
    /// `true` if the recording library can be loaded into the program.
    pub can_load_library: bool,
}

/// Error for a program that cannot be executed or traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// No program was given.
    #[error("no program given: add it after --")]
    NoCommand,
    /// The program was not found.
    #[error("{}: no such program", name.display())]
    NotFound {
        /// Name as the user wrote it.
        name: PathBuf,
    },
    /// The program's file is not executable, or its properties cannot be read.
    #[error("{}: {reason}", path.display())]
    NotRunnable {
        /// Path of the program's file.
        path: PathBuf,
        /// Cause of the failure.
        reason: String,
    },
    /// The recording library cannot be loaded into the program.
    #[error("{} cannot be traced: {reason}", path.display())]
    NotLoadable {
        /// Path of the program's file.
        path: PathBuf,
        /// Reason why the library cannot be loaded.
        reason: &'static str,
    },
    /// The program was compiled without traceable function entries.
    #[error(
        "{}: no function entries to trace: compile with -finstrument-functions or with \
         -fpatchable-function-entry=5 (--force runs it nevertheless, for the programs and libraries that it starts or loads)", path.display()
    )]
    NoEntries {
        /// Path of the program's file.
        path: PathBuf,
    },
}

const STATIC: &str = "the program is statically linked: no library can be loaded into it";
const NOT_X86_64: &str = "not a 64-bit x86-64 program";
const MUSL: &str = "the program uses another C library than the recording library";
/// Reason not to trace a program that runs with other rights than this process.
const PRIVILEGED: &str =
    "the program is set-user-ID, set-group-ID or has capabilities: the loader ignores LD_PRELOAD";
const UNSUPPORTED_PLATFORM: &str = "functions can be traced only on x86-64 Linux";

/// Finds the program that `command` names, and checks that it can be traced. Searches `PATH` as a
/// shell does. Fails if there is no such program, or it has nothing to trace; with `force`, only if
/// it cannot be traced.
pub(super) fn find_traceable_program(
    command: &[OsString],
    force: bool,
) -> Result<TraceableProgram, ProgramError> {
    let name = command.first().filter(|name| !name.is_empty()).ok_or(ProgramError::NoCommand)?;
    let path = find_in_path(name).ok_or_else(|| ProgramError::NotFound { name: name.into() })?;
    let not_runnable = |reason: String| ProgramError::NotRunnable { path: path.clone(), reason };
    let data = std::fs::metadata(&path).map_err(|error| not_runnable(error.to_string()))?;
    if !data.is_file() || data.permissions().mode() & 0o111 == 0 {
        return Err(not_runnable("not an executable file".to_owned()));
    }
    let mut found = TraceableProgram {
        path: path.clone(),
        has_functions: false,
        can_load_library: !super::RECORDING_LIBRARY_IMAGE.is_empty(),
    };
    // Executable but not readable: its contents are unknown until it runs.
    let Ok(bytes) = std::fs::read(&path) else { return Ok(found) };
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(found); // a script: its interpreter and the programs it starts are recorded
    }
    let elf_traits = elf_traits(&bytes);
    let reason = if !found.can_load_library {
        Some(UNSUPPORTED_PLATFORM)
    } else if !elf_traits.is_x86_64 {
        Some(NOT_X86_64)
    } else if elf_traits.interpreter.is_empty() {
        Some(STATIC)
    } else if elf_traits.interpreter.contains("musl") {
        Some(MUSL)
    } else if is_privileged(&path, &data) {
        Some(PRIVILEGED)
    } else {
        None
    };
    if let Some(reason) = reason {
        found.can_load_library = false;
        // Rust probes record themselves; but privileged programs ignore the environment.
        return match elf_traits.has_probes && reason != PRIVILEGED {
            true => Ok(found),
            false => Err(ProgramError::NotLoadable { path, reason }),
        };
    }
    found.has_functions =
        elf_traits.has_functions || libraries(&path).iter().any(|path| has_functions(path));
    if !(found.has_functions || elf_traits.has_probes || force) {
        return Err(ProgramError::NoEntries { path });
    }
    Ok(found)
}

/// Finds the program `name`, in `PATH` if the name is not a path.
fn find_in_path(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 || path.is_absolute() {
        return path.exists().then(|| path.to_owned());
    }
    let all = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let is_executable = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&all).map(|folder| folder.join(name)).find(is_executable)
}

/// Returns `true` if the program runs with other rights than this process. The loader then ignores
/// `LD_PRELOAD`.
fn is_privileged(path: &Path, data: &std::fs::Metadata) -> bool {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mode = data.permissions().mode();
    let changes_user = mode & 0o4000 != 0 && data.uid() != uid;
    let changes_group = mode & 0o2010 == 0o2010 && data.gid() != gid;
    let mut value = [0u8; 64];
    let has_capabilities = uid != 0
        && rustix::fs::getxattr(path, "security.capability", &mut value[..])
            .is_ok_and(|bytes| bytes > 0);
    changes_user || changes_group || has_capabilities
}

/// Properties of an ELF file on which tracing depends.
#[derive(Debug, Default)]
struct ElfTraits {
    is_x86_64: bool,
    /// Path of the dynamic loader; empty if the program is statically linked.
    interpreter: String,
    /// `true` if the file has traceable function entries.
    has_functions: bool,
    has_probes: bool,
}

fn elf_traits(bytes: &[u8]) -> ElfTraits {
    let mut elf_traits = ElfTraits::default();
    let Ok(file) = object::File::parse(bytes) else { return elf_traits };
    elf_traits.is_x86_64 = file.is_64() && file.architecture() == object::Architecture::X86_64;
    elf_traits.has_functions = has_entries(&file);
    elf_traits.has_probes = file.section_by_name("handover_probes").is_some();
    elf_traits.interpreter = interpreter(bytes).unwrap_or_default();
    elf_traits
}

/// Returns the path of the program's dynamic loader; `None` if the program is statically linked.
fn interpreter(bytes: &[u8]) -> Option<String> {
    let header = elf::FileHeader64::<object::Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let parts = header.program_headers(endian, bytes).ok()?;
    let path = parts.iter().find_map(|part| part.interpreter(endian, bytes).ok().flatten())?;
    Some(String::from_utf8_lossy(path).into_owned())
}

/// Returns `true` if the file has function entries that the recording library can trace.
fn has_entries(file: &object::File<'_>) -> bool {
    let has_room = || {
        let section = file.section_by_name("__patchable_function_entries");
        section.is_some_and(|section| section.size() > 0)
    };
    // A program that defines the hook itself calls its own.
    let mut symbols = file.dynamic_symbols();
    has_room() || symbols.any(|it| it.is_undefined() && it.name() == Ok("__cyg_profile_func_enter"))
}

/// Returns `true` if the shared object at `path` has traceable function entries.
fn has_functions(path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    object::File::parse(&*bytes).is_ok_and(|file| has_entries(&file))
}

/// Returns the paths of the shared objects that the dynamic loader would load for a program.
fn libraries(path: &Path) -> Vec<PathBuf> {
    let listing = Command::new(path)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut text = String::new();
    if let Ok(mut listing) = listing {
        if let Some(output) = &mut listing.stdout {
            // Without the list the program is handled as one without libraries.
            let _ = output.take(1 << 20).read_to_string(&mut text);
        }
        let _ = listing.wait();
    }
    let path_of = |line: &str| {
        let path = line.split_once("=> ").map_or(line, |(_, path)| path).trim();
        let path = path.rsplit_once(" (").map_or(path, |(path, _)| path);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path_of).collect()
}
