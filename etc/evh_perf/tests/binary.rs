//! The binary, run by itself: alone, and as several processes.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Far more than any step takes on busy CPUs.
const DEADLINE: Duration = Duration::from_secs(300);

fn evh_perf(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evh_perf"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

fn run(line: &str) -> Output {
    evh_perf(line).output().expect("it starts")
}

/// Waits until a server has printed its port.
fn port(out: &Path) -> String {
    let until = Instant::now() + DEADLINE;
    loop {
        let text = std::fs::read_to_string(out).expect("its output");
        let line = text.lines().find_map(|line| line.split_once("]: port: "));
        if let (Some((_, port)), true) = (line, text.contains("Server started in ")) {
            return port.trim().trim_matches('\'').to_string();
        }
        assert!(Instant::now() < until, "no port: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server, killed when this value is dropped; its other processes end with it.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_binary_is_evh_perf_without_a_subcommand() {
    let help = String::from_utf8(run("--help").stdout).expect("text");
    assert!(help.contains("--max_handles_per_thread"), "{help}");
    let both = run("-e -c -p 0 --count 3");
    let text = String::from_utf8_lossy(&both.stdout).into_owned();
    assert!(both.status.success() && text.contains("total_messages=[3],"), "{text}");
    let wrong = run("-c --min 11 --max 10");
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(2), "{text}");
    assert!(text.starts_with("evh_perf: --min 11 is above --max 10"), "{text}");
}

#[test]
fn several_processes_of_the_binary_share_the_work() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("out-{}", std::process::id()));
    let out = File::create(&path).expect("a file");
    let serving = evh_perf("-e -p 0 --processes 2").stdout(out).spawn().expect("it starts");
    let _serving = Serving(serving);
    let said = run(&format!("-c -p {} --processes 2 --count 5", port(&path)));
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success() && text.contains("total_messages=[10],"), "{text}");
    std::fs::remove_file(path).expect("the file is there");
}
