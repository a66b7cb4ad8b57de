//! Compiles the recording library, C and a little assembly, into a shared object that the crate
//! embeds.
//!
//! The library supports x86-64 Linux only; elsewhere an empty file takes its place, and recording
//! fails with an error.

#[allow(dead_code, missing_docs, reason = "shared with handover-probe, which uses all of it")]
mod layout;

use layout::{functions, header, thread};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Source files of the recording library.
const SOURCES: [&str; 8] =
    ["bus.c", "config.c", "lane.c", "thread.c", "hooks.c", "functions.c", "probes.c", "entry.S"];

/// Constants of the trace format, each with its name in C.
const NUMBERS: [(&str, u64); 54] = [
    ("MAGIC", layout::MAGIC),
    ("PAGE", layout::PAGE_BYTES),
    ("MIX", layout::CHECKSUM_MULTIPLIER),
    ("FILE_RINGS", layout::FILE_RINGS),
    ("STATE_RECORDING", layout::STATE_RECORDING),
    ("STATE_FINISHED", layout::STATE_FINISHED),
    ("STATE_FAILED", layout::STATE_FAILED),
    ("SEGMENT_MAGIC", layout::SEGMENT_MAGIC as u64),
    ("SEGMENT_WORDS", layout::SEGMENT_WORDS as u64),
    ("SEGMENT_BYTES", layout::SEGMENT_BYTES),
    ("SEGMENT_SITES", layout::SEGMENT_SITES as u64),
    ("SEGMENT_LANE", layout::SEGMENT_LANE as u64),
    ("SEGMENT_MODULES", layout::SEGMENT_MODULES as u64),
    ("SEGMENT_FUNCTIONS", layout::SEGMENT_FUNCTIONS as u64),
    ("H_MAGIC", header::MAGIC_FIELD as u64),
    ("H_KIND", header::KIND_FIELD as u64),
    ("H_SESSION", header::SESSION_FIELD as u64),
    ("H_PIDS", header::PIDS_FIELD as u64),
    ("H_IS_TSC", header::IS_TSC_FIELD as u64),
    ("H_TICKS_HZ", header::TICKS_HZ_FIELD as u64),
    ("H_BEGIN", header::BEGIN_FIELD as u64),
    ("H_BOOT", header::BOOT_FIELD as u64),
    ("H_RING_WORDS", header::RING_WORDS_FIELD as u64),
    ("H_PROCESS_START", header::PROCESS_START_FIELD as u64),
    ("H_CHECKSUM", header::CHECKSUM_FIELD as u64),
    ("H_END", header::END_FIELD as u64),
    ("H_STATE", header::STATE_FIELD as u64),
    ("H_ERRNO", header::ERRNO_FIELD as u64),
    ("H_LOST", header::LOST_FIELD as u64),
    ("H_REFUSED", header::REFUSED_FIELD as u64),
    ("H_OVERWRITTEN", header::OVERWRITTEN_FIELD as u64),
    ("H_CLOSED", header::CLOSED_FIELD as u64),
    ("H_PROGRAM", header::PROGRAM_PATH_OFFSET_BYTES as u64),
    ("H_RINGS", header::RINGS_PATH_OFFSET_BYTES as u64),
    ("L_LANE", thread::LANE_FIELD as u64),
    ("L_TID", thread::TID_FIELD as u64),
    ("L_BEGIN", thread::BEGIN_FIELD as u64),
    ("L_NAME_BYTES", thread::NAME_BYTES_FIELD as u64),
    ("L_OVERWRITES", thread::OVERWRITES_FIELD as u64),
    ("P_RECORDED", thread::PAGE_RECORDED_FIELD as u64),
    ("P_LOST", thread::PAGE_LOST_FIELD as u64),
    ("P_END", thread::PAGE_END_FIELD as u64),
    ("P_DRAINED", thread::PAGE_DRAINED_FIELD as u64),
    ("P_FREE", thread::PAGE_FREE_FIELD as u64),
    ("P_WAITED_NS", thread::PAGE_WAITED_NS_FIELD as u64),
    ("P_UNTRACED", thread::PAGE_UNTRACED_CALLS_FIELD as u64),
    ("P_NAME", thread::PAGE_NAME_OFFSET_BYTES as u64),
    ("FUNCTION_IS_SET", functions::PRESENT_FLAG),
    ("MODULE_SHIFT", functions::MODULE_SHIFT as u64),
    ("CODE_BITS", layout::CODE_BITS as u64),
    ("DELTA_BITS", 64 - layout::CODE_BITS as u64),
    ("FORM_LEAVE", layout::FORM_LEAVE),
    ("BLOCK_BYTES", layout::BLOCK_BYTES),
    ("BLOCK_HEADER_BYTES", 8 * layout::BLOCK_HEADER_WORDS),
];

/// Returns the text of a C header that defines the constants of [`NUMBERS`]. The assembler reads it
/// too, so only values above 31 bits have a suffix.
fn c_header() -> String {
    let suffix = |value| if value > i32::MAX as u64 { "ull" } else { "" };
    let line = |(name, value): (&str, u64)| {
        format!("#define {name} {value}{suffix}\n", suffix = suffix(value))
    };
    NUMBERS.map(line).concat()
}

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=layout.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        panic!("OUT_DIR is not set: run the build script by cargo");
    };
    let library = out.join("libhandover-trace.so");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
    if is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("CARGO_CFG_TARGET_OS", "linux") {
        let header = out.join("format.h");
        if let Err(error) = std::fs::write(&header, c_header()) {
            panic!("cannot write {header}: {error}", header = header.display());
        }
        compile_c_library(&out, &library);
    } else if let Err(error) = std::fs::write(&library, "") {
        panic!("cannot write {library}: {error}", library = library.display());
    }
}

/// Compiles the C recording library to the file `library`. `include_folder` contains the generated
/// header.
fn compile_c_library(include_folder: &Path, library: &Path) {
    let compiler = cc::Build::new().get_compiler().to_command();
    let mut compile = Command::new(compiler.get_program());
    // The library is not static, even if the crate's program is.
    compile.args(compiler.get_args().filter(|argument| *argument != "-static"));
    // These flags override CFLAGS: the library must not trace itself, and may use only registers
    // that entry.S saves.
    compile.args(["-O2", "-g0", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden"]);
    compile.args(["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-format-truncation"]);
    compile.args([
        "-fno-lto",
        "-fno-sanitize=all",
        "-fno-instrument-functions",
        "-fno-stack-protector",
    ]);
    compile.args([
        "-Wl,-z,now",
        "-Wl,-z,noexecstack",
        "-Wl,-soname,libhandover-trace.so",
        "-Wl,--build-id",
    ]);
    compile.args(SOURCES.map(|file| Path::new("c").join(file)));
    compile.arg("-I").arg(include_folder).arg("-o").arg(library);
    match compile.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("cannot compile the recording library: {status} from {compile:?}"),
        Err(error) => panic!("cannot start the C compiler: {error}; the command is {compile:?}"),
    }
}
