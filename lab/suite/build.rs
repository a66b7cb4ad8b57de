//! Compiles the C side of `call/*`: objects, an archive, and two shared objects.
//!
//! Each way of calling is compiled at `-O0` and at `-O3`, because a loop of calls shows different
//! costs at each. The objects linked into the program form two archives: `handover_calls` with the
//! loops (and one callee, in its own object), and `handover_callee` with the callee of the static
//! library. The shared objects, one with the loops and one with their callees, are left in
//! `OUT_DIR` for the crate to embed.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Optimisation levels; every file is compiled at each. The name of the level ends the name of
/// every function.
const LEVELS: [(&str, &str); 2] = [("o0", "-O0"), ("o3", "-O3")];

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=build.rs");
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        panic!("cargo sets OUT_DIR");
    };
    let (mut loops, mut callee) = (Vec::new(), Vec::new());
    let (mut shared_loops, mut shared_callee) = (Vec::new(), Vec::new());
    for (level, flag) in LEVELS {
        let one = |file: &str, way: &str, flags: &[&str]| {
            let defines = [("LOOP", format!("loop_{way}")), ("NEXT", format!("next_{way}"))];
            object(&out, file, &format!("{way}_{level}"), &defines, level, flag, flags)
        };
        for way in ["alone", "inline", "same_file", "pointer", "two_extra"] {
            loops.push(one(way, way, &[]));
        }
        loops.push(one("elsewhere", "other_object", &[]));
        loops.push(one("next", "other_object", &[]));
        loops.push(one("elsewhere", "static", &[]));
        callee.push(one("next", "static", &[]));
        shared_loops.push(one("elsewhere", "plt", &["-fplt"]));
        shared_callee.push(one("next", "plt", &[]));
        shared_loops.push(one("elsewhere", "no_plt", &["-fno-plt"]));
        shared_callee.push(one("next", "no_plt", &[]));
    }
    // Order matters: a linker that reads each archive once looks for the callee after its callers.
    cc::Build::new().objects(&loops).compile("handover_calls");
    cc::Build::new().objects(&callee).compile("handover_callee");
    let callee = shared(&out, "libhandover_callee.so", &shared_callee, &[]);
    shared(&out, "libhandover_caller.so", &shared_loops, &[callee.into_os_string()]);
}

/// Compiles one file under its own names into its own folder.
fn object(
    out: &Path,
    file: &str,
    variant: &str,
    defines: &[(&str, String)],
    level: &str,
    optimise: &str,
    flags: &[&str],
) -> PathBuf {
    let mut build = cc::Build::new();
    build.file(format!("c/{file}.c")).pic(true).warnings(true).extra_warnings(true);
    // The C side's code depends on its level alone, not on the Rust side's profile.
    build.debug(false).force_frame_pointer(false);
    for (name, value) in defines {
        build.define(name, format!("handover_{value}_{level}").as_str());
    }
    // Last, so that CFLAGS or a sanitizer of the Rust side cannot change the level, and so that no
    // link-time optimiser sees caller and callee together. Functions begin on a cache line, so that
    // their placement by the linker matters little.
    let last = [optimise, "-fno-lto", "-fno-sanitize=all", "-falign-functions=64"];
    for flag in flags.iter().chain(&last) {
        build.flag(flag);
    }
    let folder = out.join(file).join(variant);
    match build.out_dir(folder).compile_intermediates().as_slice() {
        [object] => object.clone(),
        objects => panic!("c/{file}.c became {} objects", objects.len()),
    }
}

/// Links a shared object without the C library, which it does not use.
fn shared(out: &Path, name: &str, objects: &[PathBuf], needed: &[OsString]) -> PathBuf {
    let path = out.join(name);
    let mut link: Command = cc::Build::new().get_compiler().to_command();
    link.args(["-shared", "-nostdlib", "-fno-lto", "-fno-sanitize=all", "-Wl,--no-undefined"]);
    link.arg(format!("-Wl,-soname,{name}")).arg("-o").arg(&path).args(objects).args(needed);
    match link.status() {
        Ok(status) if status.success() => path,
        Ok(status) => panic!("{name} was not linked ({status}) by {link:?}"),
        Err(error) => panic!("the C compiler could not be started: {error}; by {link:?}"),
    }
}
