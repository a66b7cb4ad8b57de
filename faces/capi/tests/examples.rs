//! The examples and the misuse test, compiled as a user would: installed by `install.sh`, found by
//! pkg-config or CMake, with GCC and Clang, and run alone, under Valgrind, and with
//! AddressSanitizer and UndefinedBehaviorSanitizer.

use handover_probe::read::Trace;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Maximum time for a program, in seconds: ten times what the slowest takes, under Valgrind.
const PROGRAM_SECONDS_MAX: &str = "400";

const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread", "-g"];

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the folder in which the library is installed.
///
/// Cargo builds the archive as an example, with the tests.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<tempfile::TempDir> = OnceLock::new();
    let prefix = PREFIX.get_or_init(|| {
        let program = std::env::current_exe().expect("the path of this program");
        let archive = program.with_file_name("../examples/libhandover.a");
        assert!(archive.exists(), "no {}: build it with --examples", archive.display());
        let prefix = tempfile::tempdir().expect("make a temporary folder");
        run(Command::new("sh").arg(source("install.sh")).arg(archive).arg(prefix.path()));
        prefix
    });
    prefix.path()
}

/// Runs a command and returns its standard output.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}

/// Returns `true` if a tool can be started; otherwise says what is skipped. `cargo xtask test`
/// lists missing tools too.
fn has(tool: &str, what: &str) -> bool {
    let is_there = Command::new(tool).arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: {what}: {tool} is not installed");
    }
    is_there
}

/// Returns the flags with which pkg-config says that programs are compiled.
fn flags(options: &[&str]) -> Vec<String> {
    let folder = prefix().join("lib/pkgconfig");
    if !has("pkg-config", "flags by pkg-config") {
        let folder = |name: &str| prefix().join(name).display().to_string();
        let mut flags = vec![format!("-I{}", folder("include")), format!("-L{}", folder("lib"))];
        flags.extend(["-lhandover", "-lgcc_s", "-lm", "-ldl"].map(String::from));
        return flags;
    }
    let mut command = Command::new("pkg-config");
    command
        .env("PKG_CONFIG_PATH", folder)
        .args(["--cflags", "--libs"])
        .args(options)
        .arg("handover");
    run(&mut command).split_whitespace().map(String::from).collect()
}

/// Compiles a program into a folder; returns its path.
#[track_caller]
fn compile(compiler: &str, path: &str, folder: &Path, options: &[&str]) -> PathBuf {
    let standard = if path.ends_with(".cpp") { "-std=c++17" } else { "-std=c11" };
    let source = source(path);
    let program = folder.join(source.file_stem().expect("a source file"));
    let mut command = Command::new(compiler);
    command.args(WARNINGS).args([standard, "-o"]).arg(&program).arg(source).args(options);
    run(command.args(flags(&[])));
    program
}

/// Makes a command that runs a program with the installed shared library, and ends it if it hangs.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg(PROGRAM_SECONDS_MAX).arg(program);
    command.env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
}

/// Makes a command that runs a program like [`command`], under Valgrind, and fails if Valgrind
/// finds errors.
fn valgrind(program: &Path) -> Command {
    let mut valgrind = command("valgrind");
    valgrind.args([
        "-q",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
        "--show-leak-kinds=definite",
    ]);
    if program.ends_with("traced") {
        // The library changes the code of this program's probes.
        valgrind.arg("--smc-check=all");
    }
    valgrind.arg(program);
    valgrind
}

/// Runs client and server; returns the client's output.
fn call(server: &mut Command, client: &mut Command) -> String {
    let mut serving =
        server.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{server:?}: {error}"));
    let mut address = String::new();
    let stdout = serving.stdout.take().expect("the output is piped");
    BufReader::new(stdout).read_line(&mut address).expect("read the address");
    let output = run(client.arg(address.trim()));
    let status = serving.wait().expect("wait for the server");
    assert!(status.success(), "{server:?}: {status}");
    output
}

const SUM: &str = "the sum of 1048576 bytes is 68419584\n\
    22: the peer's handler failed: send the handle of at most 1 MiB (22)\n";

/// Addresses at which the RPC server listens, one for each transport without encryption.
const ADDRESSES: &[&str] = &["sm://", "tcp://127.0.0.1:0", "uds://"];

/// Compiles and runs all examples, those of RPC at each of `addresses`; `wrap` makes the command
/// that runs a program.
fn check_examples(
    compiler: &str,
    options: &[&str],
    addresses: &[&str],
    wrap: fn(&Path) -> Command,
) {
    let folder = tempfile::tempdir().expect("make a temporary folder");
    let compile = |name: &str| compile(compiler, name, folder.path(), options);
    let output = |name: &str| run(&mut wrap(&compile(name)));
    assert_eq!(output("examples/ring.c"), "samples: 25000 25000 25000 25000\n");
    let events = output("examples/event.c");
    assert!(events.ends_with("ticks, and \"from a pipe\"\n"), "{events}");
    let (server, client) = (compile("examples/rpc_server.c"), compile("examples/rpc_client.c"));
    for address in addresses {
        let sum = call(wrap(&server).arg(address), &mut wrap(&client));
        assert_eq!(sum, SUM, "over {address}");
    }
    let trace = folder.path().join("a.trace");
    let traced = run(wrap(&compile("examples/traced.c")).arg(&trace));
    let expected = "27 takes 111 steps, unrecorded\n\
        6 takes 8 steps, of which 10 events of 2 sites were recorded\n";
    assert_eq!(traced, expected);
    assert_eq!(events_count(&trace), 10);
}

/// Returns the number of events in a trace.
fn events_count(trace: &Path) -> usize {
    let trace = Trace::open(trace).unwrap_or_else(|error| panic!("{}: {error}", trace.display()));
    trace.merged_events().count()
}

#[test]
fn examples_compiled_by_gcc_print_what_they_should() {
    if has("gcc", "the examples with GCC") {
        check_examples("gcc", &["-O2"], ADDRESSES, |program| command(program));
    }
}

#[test]
fn examples_compiled_by_clang_print_what_they_should() {
    if has("clang", "the examples with Clang") {
        check_examples("clang", &["-O1"], ADDRESSES, |program| command(program));
    }
}

#[test]
fn cpp_example_prints_what_it_should() {
    for compiler in ["g++", "clang++"] {
        if !has(compiler, "the C++ example") {
            continue;
        }
        let folder = tempfile::tempdir().expect("make a temporary folder");
        let output = run(&mut command(compile(compiler, "examples/tour.cpp", folder.path(), &[])));
        let expected = "sum 22.5\n3 messages\n49 is the square\n\
            1 packet of the removed flow\nthe answer is 42\nhalf is 42\n\
            the peer's handler returned an error: the peer's handler failed: not a number (-1)\n\
            invalid argument: slots_count=0: must lie in 1..=2147483648\n";
        assert_eq!(output, expected, "by {compiler}");
    }
}

#[test]
fn cpp_object_destroyed_within_its_own_handler_terminates_the_program() {
    if !has("g++", "destruction within a handler") {
        return;
    }
    let folder = tempfile::tempdir().expect("make a temporary folder");
    let program = compile("g++", "tests/c/destroy.cpp", folder.path(), &[]);
    for kind in ["machine", "endpoint"] {
        assert_eq!(run(command(&program).arg(kind)), "terminated\n", "{kind}");
    }
}

#[test]
fn cpp_wrapper_does_what_it_adds_to_the_c_interface() {
    for compiler in ["g++", "clang++"] {
        if has(compiler, "the C++ wrapper") {
            let folder = tempfile::tempdir().expect("make a temporary folder");
            let program = compile(compiler, "tests/c/wrapper.cpp", folder.path(), &[]);
            assert_eq!(run(&mut command(program)), "done\n", "by {compiler}");
        }
    }
}

const REFUSED: &str = "every misuse was refused\n";

#[test]
fn misuse_is_refused_with_a_status() {
    for compiler in ["gcc", "clang"] {
        if has(compiler, "misuse") {
            let folder = tempfile::tempdir().expect("make a temporary folder");
            let program = compile(compiler, "tests/c/misuse.c", folder.path(), &[]);
            assert_eq!(run(&mut command(program)), REFUSED, "by {compiler}");
        }
    }
}

#[test]
fn misuse_is_refused_with_the_static_library() {
    if !has("gcc", "the static library") {
        return;
    }
    let folder = tempfile::tempdir().expect("make a temporary folder");
    let program = folder.path().join("misuse");
    let archive = prefix().join("lib/libhandover.a");
    let include = prefix().join("include");
    let mut link = Command::new("gcc");
    link.args(WARNINGS).arg("-std=c11").arg("-o").arg(&program).arg(source("tests/c/misuse.c"));
    link.arg("-I").arg(include).arg(archive).args(["-lgcc_s", "-lm", "-ldl"]);
    run(&mut link);
    assert_eq!(run(Command::new("timeout").arg(PROGRAM_SECONDS_MAX).arg(program)), REFUSED);
}

#[test]
fn probes_of_a_statically_linked_program_are_recorded() {
    if !has("gcc", "the static library") {
        return;
    }
    let folder = tempfile::tempdir().expect("make a temporary folder");
    let program = folder.path().join("traced");
    let mut link = Command::new("gcc");
    link.args(WARNINGS).arg("-std=c11").arg("-o").arg(&program).arg(source("examples/traced.c"));
    link.arg("-I").arg(prefix().join("include")).arg(prefix().join("lib/libhandover.a"));
    run(link.args(["-lgcc_s", "-lm", "-ldl"]));
    let output = run(Command::new("timeout")
        .arg(PROGRAM_SECONDS_MAX)
        .arg(program)
        .arg(folder.path().join("a.trace")));
    assert!(output.ends_with("10 events of 2 sites were recorded\n"), "{output}");
}

#[test]
fn probes_of_c_are_switched_by_the_environment() {
    if !has("gcc", "probes") {
        return;
    }
    let folder = tempfile::tempdir().expect("make a temporary folder");
    let program = compile("gcc", "examples/traced.c", folder.path(), &[]);
    let trace = folder.path().join("environment.trace");
    let mut traced = command(program);
    traced.env("HANDOVER_TRACE", "collatz*").env("HANDOVER_TRACE_FILE", &trace);
    let output = traced.arg(folder.path().join("own.trace")).output().expect("start the program");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("already running: finish it first"), "{text}");
    // 111 steps of the first number, and the two ends of its span.
    assert_eq!(events_count(&trace), 113);
}

#[test]
fn probes_of_a_closed_shared_object_can_be_switched() {
    if !has("gcc", "probes of a shared object") {
        return;
    }
    let folder = tempfile::tempdir().expect("make a temporary folder");
    let object = compile("gcc", "tests/c/plugin.c", folder.path(), &["-shared", "-fPIC"]);
    let program = compile("gcc", "tests/c/unload.c", folder.path(), &["-ldl"]);
    assert_eq!(run(command(program).arg(object)), "success: 1 site\n");
}

/// Options for C code with both sanitizers. They do not check the code of the library, whose
/// allocations they see.
const SANITIZED: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

#[test]
fn examples_with_sanitizers_have_no_errors() {
    if has("gcc", "the examples with sanitizers") {
        check_examples("gcc", SANITIZED, ADDRESSES, |program| command(program));
    }
}

#[test]
fn misuse_with_sanitizers_has_no_errors() {
    if !has("gcc", "misuse with sanitizers") {
        return;
    }
    let folder = tempfile::tempdir().expect("make a temporary folder");
    let program = compile("gcc", "tests/c/misuse.c", folder.path(), SANITIZED);
    // Without fibers: AddressSanitizer takes their stacks for that of the thread.
    assert_eq!(run(command(program).arg("fibers")), REFUSED);
}

#[test]
fn examples_under_valgrind_have_no_errors() {
    if has("valgrind", "the examples under Valgrind") && has("gcc", "the examples under Valgrind") {
        // One transport, as each takes seconds; the misuse test has TCP under Valgrind.
        check_examples("gcc", &["-O2"], &["sm://"], valgrind);
    }
}

#[test]
fn misuse_under_valgrind_has_no_errors() {
    if !has("valgrind", "misuse under Valgrind") || !has("gcc", "misuse under Valgrind") {
        return;
    }
    let folder = tempfile::tempdir().expect("make a temporary folder");
    let program = compile("gcc", "tests/c/misuse.c", folder.path(), &[]);
    // Without fibers: Valgrind does not know of their stacks.
    assert_eq!(run(valgrind(&program).arg("fibers")), REFUSED);
}

#[test]
fn shared_library_has_versioned_symbols_of_its_own_alone() {
    if !has("nm", "versioned symbols") {
        return;
    }
    let library = prefix().join("lib/libhandover.so");
    let text = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let symbols: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let is_ours =
        |symbol: &&&str| symbol.starts_with("handover_") && symbol.ends_with("@@HANDOVER_0.1");
    let others: Vec<_> =
        symbols.iter().filter(|it| !is_ours(it) && **it != "HANDOVER_0.1").collect();
    assert!(symbols.len() > 100 && others.is_empty(), "{others:?}");
    let header = std::fs::read_to_string(source("include/handover.h")).expect("read the header");
    let undeclared = |symbol: &&&str| {
        let name = symbol.split('@').next().unwrap_or_default();
        // Declared by handover_probe.h.
        let is_probe = ["handover_probe_record", "handover_probe_register"].contains(&name);
        is_ours(symbol) && !is_probe && !header.contains(&format!("{name}("))
    };
    assert_eq!(symbols.iter().filter(undeclared).collect::<Vec<_>>(), [&""; 0]);
}

#[test]
fn cmake_finds_the_library() {
    if !has("cmake", "find_package") {
        return;
    }
    let folder = tempfile::tempdir().expect("make a temporary folder");
    let ring = source("examples/ring.c");
    let project = format!(
        "cmake_minimum_required(VERSION 3.10)\nproject(it C)\nfind_package(handover 0.1 CONFIG REQUIRED)\n\
         find_package(Threads REQUIRED)\nforeach(kind handover static)\n  add_executable(ring-${{kind}} {ring})\n  \
         target_link_libraries(ring-${{kind}} handover::${{kind}} Threads::Threads)\nendforeach()\n",
        ring = ring.display()
    );
    std::fs::write(folder.path().join("CMakeLists.txt"), project).expect("write the project");
    let cmake = |words: &[&str]| {
        let mut command = Command::new("cmake");
        let searched = format!("-DCMAKE_PREFIX_PATH={}", prefix().display());
        command.current_dir(folder.path()).args(words);
        run(if words[0] == "." { command.arg(searched) } else { &mut command })
    };
    cmake(&["."]);
    cmake(&["--build", "."]);
    for kind in ["handover", "static"] {
        let program = folder.path().join(format!("ring-{kind}"));
        assert_eq!(run(&mut command(program)), "samples: 25000 25000 25000 25000\n");
    }
}

#[test]
fn readme_contains_the_client() {
    let read = |path| std::fs::read_to_string(source(path)).expect("read a file of this crate");
    let (readme, client) = (read("README.md"), read("examples/rpc_client.c"));
    assert!(readme.contains(client.trim()), "copy examples/rpc_client.c into README.md");
}
