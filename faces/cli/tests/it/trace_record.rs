//! `handover trace record`: C programs are compiled, run and traced as a user would.
#![cfg(target_arch = "x86_64")]

use crate::common::{binary, wait_until};
use handover_probe::read::{RecordingState, Trace};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Compiles a program; returns `None`, with a message, if there is no compiler.
fn built(source: &str, flags: &[&str]) -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&path).arg(&file).args(flags).output();
    match compiled {
        Ok(output) if output.status.success() => Some((folder, path)),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: tracing a C program: there is no cc: {error}");
            None
        }
    }
}

const PATCHABLE: &str = "-fpatchable-function-entry=5";

const WORK: &str = "
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    __attribute__((noinline)) int work(int x) { __asm__ volatile(\"\"); return x + 1; }
    int main(int count, char **words) {
        int x = 0;
        for (int i = 0; i < atoi(words[1]); i++) x = work(x);
        puts(\"worked\");
        fflush(stdout);
        if (count > 2) { char byte; x += read(0, &byte, 1); }
        return 7;
    }
";

#[test]
fn program_output_and_exit_code_are_passed_through() {
    let Some((folder, path)) = built(WORK, &["-O1", PATCHABLE]) else { return };
    let output = Command::new(binary())
        .args(["trace", "record", "--wait", "1000", "--ring", "4MiB", "-o", "a.trace", "--"])
        .arg(&path)
        .arg("100")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert_eq!(output.stdout, b"worked\n");
    assert!(said.contains("a.trace: 202 events of 1 thread"), "{said}");
    let trace = Trace::open(folder.path().join("a.trace")).unwrap();
    assert_eq!((trace.state(), trace.merged_events().count()), (RecordingState::Finished, 202));
}

#[test]
fn untraceable_program_is_a_usage_error() {
    let Some((folder, path)) = built(WORK, &["-O1"]) else { return };
    let record = |words: &[&str]| {
        let mut command = Command::new(binary());
        command.args(["trace", "record", "-o"]).arg(folder.path().join("a.trace"));
        command.arg("--").args(words).output().unwrap()
    };
    for (word, reason) in
        [(path.to_str().unwrap(), "no function entries"), ("no-such-program", "no such program")]
    {
        let output = record(&[word, "1"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(reason) && output.stdout.is_empty(), "{said}");
    }
}

#[test]
fn full_disk_ends_the_recording_but_not_the_program() {
    const CALLS: u64 = 1_000_000;
    let Some((folder, path)) = built(WORK, &["-O1", PATCHABLE]) else { return };
    // The size limit on files simulates a full disk for these processes.
    let script = format!(
        "ulimit -f 1024; exec '{}' trace record -o a.trace --ring 65536 -- '{}' {CALLS}",
        binary().display(),
        path.display()
    );
    let output =
        Command::new("bash").arg("-c").arg(script).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("recording stopped early") && said.contains("are missing"), "{said}");
    let trace = Trace::open(folder.path().join("a.trace")).unwrap();
    assert!(
        matches!(trace.state(), RecordingState::Failed(errno) if errno != 0),
        "{:?}",
        trace.state()
    );
    let kept = trace.merged_events().count() as u64;
    assert!(kept > 10_000, "{kept}");
    assert_eq!(kept + trace.missing_events().lost, 2 + 2 * CALLS);
    assert!(trace.sites().iter().any(|site| site.name == "work"), "names have their room");
}

#[test]
fn rings_of_a_killed_recorder_and_program_are_read_and_named() {
    const CALLS: usize = 20_000;
    let Some((folder, path)) = built(WORK, &["-O1", PATCHABLE]) else { return };
    let file = folder.path().join("a.trace");
    let mut recorder = Command::new(binary())
        .args(["trace", "record", "-o"])
        .arg(&file)
        .arg("--")
        .arg(&path)
        .args([&CALLS.to_string(), "wait"])
        .env("TMPDIR", folder.path()) // for the files that a killed recorder leaves
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "worked\n");
    // Killed once the recorder has found the program's rings: each call has two events.
    wait_until("the rings", || {
        Trace::open(&file).is_ok_and(|it| it.merged_events().count() > 2 * CALLS)
    });
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    drop(recorder.stdin.take()); // the program ends when its input does
    let trace = Trace::open(&file).unwrap();
    assert_eq!(trace.state(), RecordingState::Unfinished);
    let count = trace.merged_events().count();
    assert!(count > 2 * CALLS, "{count}");
    assert_eq!(trace.missing_events().total_count(), 0);
    assert!(trace.sites().iter().any(|site| site.name.starts_with("program+0x")));
    let output = Command::new(binary()).args(["trace", "names"]).arg(&file).output().unwrap();
    assert!(output.status.success());
    let named = Trace::open(&file).unwrap();
    assert!(named.sites().iter().any(|site| site.name == "work"), "{:?}", named.sites());
    let rings = named.rings_path().expect("they are left").to_owned();
    std::fs::remove_dir_all(rings.parent().unwrap()).unwrap();
}

/// C program that passes its probes until its input ends.
const PROBED: &str = "
    #include \"handover_probe.h\"
    #include <poll.h>
    #include <stdio.h>
    int main(void) {
        struct pollfd input = { 0, POLLIN, 0 };
        puts(\"ready\");
        fflush(stdout);
        for (long round = 0; poll(&input, 1, 1) == 0; round++) {
            HANDOVER_SPAN(\"served.round\", round);
            HANDOVER_PROBE(\"served.other\");
        }
        return 0;
    }
";

/// Writes out the library and its header, and compiles the program that needs them.
fn probed() -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let written =
        Command::new(binary()).args(["trace", "library"]).arg(folder.path()).output().unwrap();
    assert!(written.status.success());
    let (source, path) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&source, PROBED).unwrap();
    match Command::new("cc").arg("-o").arg(&path).arg(&source).output() {
        Ok(output) if output.status.success() => Some((folder, path)),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: switching the probes of a C program: there is no cc: {error}");
            None
        }
    }
}

/// Switches the program's probes on while it runs; returns the exit code and the message, or `None`
/// if that is forbidden.
fn switched_on(folder: &TempDir, mut program: Command) -> Option<(Option<i32>, String)> {
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = Command::new(binary())
        .args(["trace", "on", &program.id().to_string(), "served.round", "-o", "a.trace"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(100);
    let count =
        || Trace::open(folder.path().join("a.trace")).map_or(0, |it| it.merged_events().count());
    while output.status.success() && count() < 10 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if said.contains("may not be traced") {
        println!("skipped: switching the probes of a C program: {said}");
        return None;
    }
    Some((output.status.code(), said))
}

#[test]
fn probes_of_a_c_program_with_the_library_are_switched_on_while_it_runs() {
    let Some((folder, path)) = probed() else { return };
    let mut program = Command::new(path);
    program.env("LD_PRELOAD", folder.path().join("libhandover-trace.so"));
    let Some((code, said)) = switched_on(&folder, program) else { return };
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 probes of process"), "{said}");
    let trace = Trace::open(folder.path().join("a.trace")).unwrap();
    assert_eq!(
        (trace.state(), trace.missing_events().total_count()),
        (RecordingState::Finished, 0)
    );
    let names: std::collections::BTreeSet<String> =
        trace.merged_events().filter_map(|it| Some(trace.site(it.site)?.name.clone())).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["served.round"]);
    assert!(trace.merged_events().count() >= 10);
}

#[test]
fn switching_probes_without_the_library_is_refused_with_a_remedy() {
    let Some((folder, path)) = probed() else { return };
    let Some((code, said)) = switched_on(&folder, Command::new(path)) else { return };
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("nothing that records"), "{said}");
    assert!(said.contains("handover trace library") && said.contains("LD_PRELOAD"), "{said}");
    assert!(!folder.path().join("a.trace").exists());
}
