//! Sites in other kinds of program: with several linkers, with and without fat LTO,
//! position-independent or not, inlined from another crate, in a shared object, stripped, and a
//! program without any site. Each is a small workspace that is built, which takes half a minute,
//! and run: with `HANDOVER_LONG` only. A linker that is not installed is reported as skipped.
#![cfg(not(any(handover_loom, miri, feature = "flags")))]

use handover_probe::read::{RecordingState, Trace, find_traces};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

const HELPER: &str = r#"
    #[inline(always)]
    pub fn inlined(x: u64) { handover_probe::probe!("program.inlined", x); }
    pub fn generic<T: Copy + handover_probe::Value>(x: T) { handover_probe::probe!("program.generic", x); }
"#;

const PLUGIN: &str = r#"
    // Its own sites, and its own copy of the recorder.
    #[unsafe(no_mangle)]
    pub extern "C" fn plugin(path: *const std::ffi::c_char) -> u64 {
        let path = unsafe { std::ffi::CStr::from_ptr(path) }.to_str().unwrap();
        let names: Vec<String> = handover_probe::sites().into_iter().map(|site| site.name).collect();
        assert_eq!(names, ["plugin.span"], "the program's sites are its own");
        let recording = handover_probe::Recording::start(handover_probe::Config::stream(path)).unwrap();
        pass();
        assert_eq!(handover_probe::enable("*").unwrap(), 1);
        pass();
        handover_probe::disable("*").unwrap();
        recording.finish().recorded
    }
    #[unsafe(no_mangle)]
    pub extern "C" fn passes(_: *const std::ffi::c_char) -> u64 {
        pass();
        2
    }
    fn pass() { let _span = handover_probe::span!("plugin.span"); }
"#;

const PROGRAM: &str = r#"
    use handover_probe::{Config, Recording, probed, probe, span};
    unsafe extern "C" {
        fn dlopen(path: *const std::ffi::c_char, flags: i32) -> *mut std::ffi::c_void;
        fn dlsym(object: *mut std::ffi::c_void, name: *const std::ffi::c_char) -> *mut std::ffi::c_void;
    }
    #[probed]
    fn function(x: u64) -> u64 { x + 1 }
    fn pass() {
        probe!("program.plain");
        helper::inlined(1);
        helper::inlined(2);
        helper::generic(1u8);
        helper::generic(1u64);
        let _span = span!("program.span", 1, 2);
        function(1);
    }
    fn call(plugin: String, name: &std::ffi::CStr, path: &str) -> u64 {
        let [plugin, path] = [plugin.as_str(), path].map(|text| std::ffi::CString::new(text).unwrap());
        unsafe {
            let object = dlopen(plugin.as_ptr(), 2);
            assert!(!object.is_null());
            let entry = dlsym(object, name.as_ptr());
            assert!(!entry.is_null());
            let entry: extern "C" fn(*const std::ffi::c_char) -> u64 = std::mem::transmute(entry);
            entry(path.as_ptr())
        }
    }
    fn main() {
        let mut arguments = std::env::args().skip(1);
        let folder = arguments.next().unwrap();
        if std::env::var_os("HANDOVER_TRACE").is_some() {
            pass();
            call(arguments.next().unwrap(), c"passes", "");
            return pass();
        }
        let recording = Recording::start(Config::last(format!("{folder}/program"))).unwrap();
        pass();
        let sites = handover_probe::enable("*").unwrap();
        pass();
        handover_probe::disable("*").unwrap();
        pass();
        let recorded = recording.finish().recorded;
        let plugged = arguments.next().map(|plugin| call(plugin, c"plugin", &format!("{folder}/plugin")));
        let plugged = plugged.unwrap_or(0);
        println!("{} {sites} sites {recorded} events {plugged} plugged", handover_probe::backend());
    }
"#;

const BARE: &str = r#"
    fn main() {
        assert_eq!(handover_probe::enable("*").unwrap(), 0);
        println!("{} sites", handover_probe::sites().len());
    }
"#;

fn write(path: PathBuf, text: &str) {
    if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
        return; // the build products stay up to date
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Writes the small workspace, with this workspace's versions of all dependencies.
fn workspace(root: &Path) {
    let house = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = |name: &str, rest: &str| {
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n{rest}\n\
             [dependencies]\nhandover-probe = {{ path = {house:?} }}\n"
        )
    };
    let members = "[workspace]\nresolver = \"3\"\nmembers = [\"helper\", \"plugin\", \"program\", \"bare\"]\n\
                   [profile.dev]\ndebug = false\n[profile.release]\ndebug = false\n\
                   [profile.fat]\ninherits = \"release\"\nlto = \"fat\"\ncodegen-units = 1\nstrip = true\n";
    write(root.join("Cargo.toml"), members);
    write(root.join("helper/Cargo.toml"), &manifest("helper", ""));
    write(root.join("helper/src/lib.rs"), HELPER);
    write(root.join("plugin/Cargo.toml"), &manifest("plugin", "[lib]\ncrate-type = [\"cdylib\"]"));
    write(root.join("plugin/src/lib.rs"), PLUGIN);
    let program = manifest("program", "") + "helper = { path = \"../helper\" }\n";
    write(root.join("program/Cargo.toml"), &program);
    write(root.join("program/src/main.rs"), PROGRAM);
    write(root.join("bare/Cargo.toml"), &manifest("bare", ""));
    write(root.join("bare/src/main.rs"), BARE);
    // If this workspace has a lock file, it keeps cargo from looking for newer versions.
    let lock = house.join("../../Cargo.lock");
    if lock.exists() {
        fs::copy(lock, root.join("Cargo.lock")).unwrap();
    }
}

fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Builds one package, with `flags` for its own compilation and linking only.
fn build(root: &Path, profile: &str, package: &str, flags: &[&str]) -> PathBuf {
    let target = root.join("target");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["rustc", "--offline", "--quiet", "--profile", profile, "-p", package, "--"])
        .args(flags)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{package} {flags:?}: {}", output_text(&output));
    target.join(if profile == "dev" { "debug" } else { profile })
}

fn run(program: &Path, arguments: &[&Path]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}: {}", program.display(), output_text(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Builds and runs all programs.
fn builds_and_runs(profile: &str, flags: &[&str], has_plugin: bool) {
    if std::env::var_os("HANDOVER_LONG").is_none() {
        println!("skipped: sites in a {profile} build with {flags:?}: HANDOVER_LONG is not set");
        return;
    }
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe-linkers");
    workspace(&root);
    assert_eq!(run(&build(&root, profile, "bare", flags).join("bare"), &[]), "0 sites");
    let built = build(&root, profile, "program", flags);
    let folder = tempfile::tempdir().unwrap();
    let plugin = built.join("libplugin.so");
    if has_plugin {
        build(&root, profile, "plugin", flags);
    }
    let arguments: [&Path; 2] = [folder.path(), &plugin];
    let count = if has_plugin { 2 } else { 1 };
    let output_text = run(&built.join("program"), &arguments[..count]);
    let expected = format!("5 sites 9 events {} plugged", if has_plugin { 2 } else { 0 });
    assert!(
        output_text.starts_with("code, by ") && output_text.ends_with(&expected),
        "{flags:?}: {output_text}"
    );
    if has_plugin {
        assert_program_and_plugin_keep_traces(&built.join("program"), folder.path(), &plugin);
    }
}

/// Runs a program and its plugin, each with a copy of the recorder, with one file from the
/// environment.
fn assert_program_and_plugin_keep_traces(program: &Path, folder: &Path, plugin: &Path) {
    let path = folder.join("both");
    let mut command = Command::new(program);
    command.args([folder, plugin]).env("HANDOVER_TRACE", "*").env("HANDOVER_TRACE_FILE", &path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    let paths = find_traces(&path).unwrap();
    let traces: Vec<Trace> = paths.iter().map(|path| Trace::open(path).unwrap()).collect();
    let counts: Vec<usize> = traces.iter().map(|trace| trace.merged_events().count()).collect();
    assert_eq!(counts, [2 * 9, 2], "{paths:?}");
    assert!(traces.iter().all(|trace| trace.state() == RecordingState::Finished));
    assert_eq!(traces[0].pid(), traces[1].pid());
}

fn is_installed(linker: &str) -> bool {
    Command::new(linker).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Flag that selects the system's linker rather than the compiler's own, which is lld on this
/// platform.
const SYSTEM_LINKER: &str = "-Clinker-features=-lld";

#[test]
fn sites_work_with_the_default_linker() {
    builds_and_runs("dev", &[], true);
}

#[test]
fn sites_work_with_fat_lto_and_stripped() {
    builds_and_runs("fat", &[], true);
}

#[test]
fn sites_work_with_gnu_ld() {
    if !is_installed("ld.bfd") {
        println!("skipped: sites with GNU ld: there is no ld.bfd");
        return;
    }
    let flags = [SYSTEM_LINKER, "-Clink-arg=-fuse-ld=bfd"];
    builds_and_runs("dev", &flags, true);
    builds_and_runs("fat", &flags, true);
}

#[test]
fn sites_work_with_gold() {
    if !is_installed("ld.gold") {
        println!("skipped: sites with gold: there is no ld.gold");
        return;
    }
    builds_and_runs("dev", &[SYSTEM_LINKER, "-Clink-arg=-fuse-ld=gold"], true);
}

#[test]
fn sites_work_at_fixed_addresses_and_in_a_static_program() {
    builds_and_runs("dev", &["-Crelocation-model=static"], false);
    builds_and_runs("dev", &["-Ctarget-feature=+crt-static"], false);
}
