//! Compiles the recording library, C and a little assembly, into a shared object that the crate
//! embeds.
//!
//! It works on x86-64 Linux only; elsewhere an empty file takes its place, and recording is
//! refused.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: [&str; 8] =
    ["bus.c", "config.c", "lane.c", "thread.c", "hooks.c", "functions.c", "probes.c", "entry.S"];

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../mechanisms/probe/include");
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        panic!("cargo sets OUT_DIR");
    };
    let library = out.join("libhandover-trace.so");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
    if is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("CARGO_CFG_TARGET_OS", "linux") {
        build(&library);
    } else if let Err(error) = std::fs::write(&library, "") {
        panic!("{}: {error}", library.display());
    }
}

fn build(library: &Path) {
    let mut compile: Command = cc::Build::new().get_compiler().to_command();
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
    compile.arg("-o").arg(library);
    match compile.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("the recording library was not built ({status}) by {compile:?}"),
        Err(error) => panic!("the C compiler could not be started: {error}; by {compile:?}"),
    }
}
