//! Compiles the C side of `call/*`: objects, an archive, and two shared objects.
//!
//! Each way of calling is compiled at `-O0` and at `-O3`, because a loop of calls says different
//! things at each. What is linked into the program goes into two archives: `handover_calls` with
//! the loops (and one callee, in an object of its own), `handover_callee` with the callee that
//! stands in a static library. The shared objects, one with the loops and one with what they call,
//! are left in `OUT_DIR` for the crate to embed; and so is a program that is compiled with each
//! kind of function entry that can be traced.
//!
//! With the feature `peers`, queues and event loops of C++ and C libraries are compiled, too, from
//! one C++ file, if there is a C++ compiler; each library whose headers it finds sets a flag,
//! `handover_NAME`. Without them the crate builds, and says so when it is run. `HANDOVER_C_PEERS=0`
//! leaves them out.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Optimisation levels at which each C file is compiled: suffix of the function names, and
/// compiler option.
const LEVELS: [(&str, &str); 2] = [("o0", "-O0"), ("o3", "-O3")];

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=HANDOVER_OPT_LEVEL={}", env::var("OPT_LEVEL").unwrap_or_default());
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        panic!("OUT_DIR is not set: run the build script by cargo");
    };
    let (mut loops, mut callee) = (Vec::new(), Vec::new());
    let (mut shared_loops, mut shared_callee) = (Vec::new(), Vec::new());
    for (level, flag) in LEVELS {
        let one = |file: &str, way: &str, flags: &[&str]| {
            let defines = [("LOOP", format!("loop_{way}")), ("NEXT", format!("next_{way}"))];
            compile_object(&out, file, &format!("{way}_{level}"), &defines, level, flag, flags)
        };
        for way in ["alone", "inline", "same_file", "pointer", "two_extra", "empty"] {
            loops.push(one(way, way, &[]));
        }
        loops.push(one("probes", "one_probe", &[]));
        loops.push(one("probes", "two_probes", &["-DTWO_PROBES"]));
        loops.push(one("empty", "empty_probe", &["-DPROBE_INSIDE"]));
        loops.push(one("elsewhere", "other_object", &[]));
        loops.push(one("next", "other_object", &[]));
        loops.push(one("elsewhere", "static", &[]));
        callee.push(one("next", "static", &[]));
        shared_loops.push(one("elsewhere", "plt", &["-fplt"]));
        shared_callee.push(one("next", "plt", &[]));
        shared_loops.push(one("elsewhere", "no_plt", &["-fno-plt"]));
        shared_callee.push(one("next", "no_plt", &[]));
        shared_loops.push(one("empty_elsewhere", "empty_plt", &["-fplt"]));
        shared_callee.push(one("empty_next", "empty_plt", &[]));
    }
    // Order matters: a linker that reads each archive once looks for the callee after its callers.
    cc::Build::new().objects(&loops).compile("handover_calls");
    cc::Build::new().objects(&callee).compile("handover_callee");
    let callee = link_shared_object(&out, "libhandover_callee.so", &shared_callee, &[]);
    link_shared_object(&out, "libhandover_caller.so", &shared_loops, &[callee.into_os_string()]);
    build_program(&out, "program-plain", &[]);
    build_program(&out, "program-hooks", &["-finstrument-functions"]);
    // Five bytes: a jump.
    build_program(&out, "program-entries", &["-fpatchable-function-entry=5"]);
    compile_peers(&out);
}

/// Names of the libraries that `c/peers.cpp` wraps. `c/headers.cpp` prints the names whose headers
/// are installed.
const PEERS: [&str; 5] = ["moodycamel", "boost_lockfree", "boost_asio", "libuv", "openssl"];

/// Archives of OpenSSL, in the order in which they are linked: alone, and with the compression
/// libraries with which some distributions build it.
const OPENSSL_ARCHIVES: [&[&str]; 2] = [&["ssl", "crypto"], &["ssl", "crypto", "zstd", "z"]];

/// Compiles `c/peers.cpp` for the libraries whose headers are installed, and sets
/// `cfg(handover_NAME)` for each.
fn compile_peers(out: &Path) {
    for name in PEERS {
        println!("cargo::rustc-check-cfg=cfg(handover_{name})");
    }
    println!("cargo::rerun-if-env-changed=HANDOVER_C_PEERS");
    let is_disabled = env::var_os("HANDOVER_C_PEERS").is_some_and(|value| value == "0");
    if is_disabled || env::var_os("CARGO_FEATURE_PEERS").is_none() {
        return;
    }
    let mut build = cc::Build::new();
    // Linked by hand, below.
    build.cpp(true).cpp_link_stdlib(None).std("c++17").debug(false).warnings(true);
    for flag in ["-O3", "-fno-lto", "-fno-sanitize=all"] {
        build.flag(flag);
    }
    // A false alarm of GCC in moodycamel's `ConcurrentQueue` with a limit of its slots.
    build.flag_if_supported("-Wno-stringop-overflow");
    let Ok(headers) = build.clone().cargo_warnings(false).file("c/headers.cpp").try_expand() else {
        return; // no C++ compiler, or none that knows `__has_include`
    };
    let headers = String::from_utf8_lossy(&headers);
    let is_found = |name: &str| headers.lines().any(|line| line.trim() == format!("found {name}"));
    let uv =
        ["uv_a", "uv"].into_iter().find_map(|name| Some((name, archive_folder(&build, name)?)));
    let openssl = OPENSSL_ARCHIVES
        .into_iter()
        .filter(|_| is_found("openssl") && env::var_os("CARGO_FEATURE_TLS").is_some())
        .find_map(|names| openssl_archives(&build, names, out));
    let has_archives = |name: &str| match name {
        "libuv" => uv.is_some(),
        "openssl" => openssl.is_some(),
        _ => true,
    };
    let found: Vec<&str> =
        PEERS.into_iter().filter(|&name| is_found(name) && has_archives(name)).collect();
    for name in &found {
        build.define(&format!("HAVE_{}", name.to_uppercase()), None);
    }
    if found.is_empty() || build.file("c/peers.cpp").try_compile("handover_peers").is_err() {
        return; // the compiler has printed its errors
    }
    for name in &found {
        println!("cargo::rustc-cfg=handover_{name}");
    }
    // Archives where there are any, so that the program runs on machines without these libraries.
    let archives = uv.into_iter().chain(openssl.into_iter().flatten());
    let archives = archives.map(|(name, folder)| (name, Some(folder)));
    for (name, folder) in [("stdc++", archive_folder(&build, "stdc++"))].into_iter().chain(archives)
    {
        match folder {
            Some(folder) => {
                println!("cargo::rustc-link-search=native={}", folder.display());
                println!("cargo::rustc-link-lib=static:-bundle={name}");
            }
            None => println!("cargo::rustc-link-lib={name}"),
        }
    }
}

/// Returns the folder in which the compiler finds the archive `libNAME.a`; `None` if it has none.
fn archive_folder(build: &cc::Build, name: &str) -> Option<PathBuf> {
    let mut compiler = build.try_get_compiler().ok()?.to_command();
    let printed = compiler.arg(format!("-print-file-name=lib{name}.a")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(printed.stdout).ok()?.trim());
    path.is_absolute().then(|| path.parent().map(Path::to_path_buf))?
}

/// Returns the archives `names` of OpenSSL with their folders; `None` if one of them is missing, or
/// needs a library that is not among them, with which the program could not be linked.
fn openssl_archives<'a>(
    build: &cc::Build,
    names: &[&'a str],
    out: &Path,
) -> Option<Vec<(&'a str, PathBuf)>> {
    let archives: Vec<(&str, PathBuf)> = names
        .iter()
        .map(|&name| Some((name, archive_folder(build, name)?)))
        .collect::<Option<_>>()?;
    let mut link = dynamic_linker(build);
    link.args(["-shared", "-Wl,--no-undefined,--undefined=SSL_CTX_new", "-o"]);
    link.arg(out.join("openssl-archives.so"));
    link.args(archives.iter().map(|(name, folder)| folder.join(format!("lib{name}.a"))));
    link.output().ok()?.status.success().then_some(archives)
}

/// Compiles `c/FILE.c` with the macros and flags of one variant; returns the path of the object
/// file.
fn compile_object(
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
        objects => panic!(
            "compile c/{file}.c: the compiler made {} object files, expected 1",
            objects.len()
        ),
    }
}

/// Links a shared object without the C library; returns its path.
fn link_shared_object(out: &Path, name: &str, objects: &[PathBuf], needed: &[OsString]) -> PathBuf {
    let path = out.join(name);
    let mut link = dynamic_linker(&cc::Build::new());
    link.args(["-shared", "-nostdlib", "-fno-lto", "-fno-sanitize=all", "-Wl,--no-undefined"]);
    link.arg(format!("-Wl,-soname,{name}")).arg("-o").arg(&path).args(objects).args(needed);
    run_compiler(link, name);
    path
}

/// Returns the C compiler as a command that links shared objects, and programs into which a library
/// is preloaded: not with `-static`, which it has if the crate's program is static.
fn dynamic_linker(build: &cc::Build) -> Command {
    let compiler = build.get_compiler().to_command();
    let mut linker = Command::new(compiler.get_program());
    linker.args(compiler.get_args().filter(|argument| *argument != "-static"));
    linker
}

/// Compiles and links the program `name` from `c/program.c`.
fn build_program(out: &Path, name: &str, flags: &[&str]) {
    let mut link = dynamic_linker(&cc::Build::new());
    link.args(["-O3", "-g0", "-fno-lto", "-fno-sanitize=all", "-falign-functions=64"]);
    link.args(flags).arg("c/program.c").arg("-o").arg(out.join(name));
    run_compiler(link, name);
}

/// Runs a compiler command that produces `name`; panics if the command fails.
fn run_compiler(mut compiler: Command, name: &str) {
    match compiler.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("cannot build {name}: {status} of the command {compiler:?}"),
        Err(error) => panic!("cannot start the C compiler: {error}; the command is {compiler:?}"),
    }
}
