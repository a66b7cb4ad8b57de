//! Runner of commands: passes output through, counts tests, limits the time.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// Maximum number of last output lines that the error of a failed command repeats.
const END_LINES_MAX: usize = 120;

/// Command line to run. Its `Display` form can be typed in a shell.
pub struct CommandLine {
    command: Command,
    /// Text to show instead of the command; empty to show the command itself.
    display_name: String,
    /// Environment variables to show before the command, as `NAME=VALUE`.
    shown_variables: Vec<String>,
    timeout: Option<Duration>,
}

impl CommandLine {
    /// Creates a command from a program and its arguments, separated by whitespace.
    pub fn new(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default();
        let mut run = Self::program(program);
        run.command.args(words);
        run
    }

    /// Creates a command without arguments from a program, whose path may contain spaces.
    pub fn program(program: impl AsRef<OsStr>) -> Self {
        let command = Command::new(program);
        Self { command, display_name: String::new(), shown_variables: Vec::new(), timeout: None }
    }

    /// Adds arguments, which may contain spaces.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Adds an option with a path as its value.
    pub fn arg_path(mut self, option: &str, path: &Path) -> Self {
        self.command.arg(option).arg(path);
        self
    }

    /// Sets an environment variable, which is shown with the command.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self.shown_variables.push(format!("{name}={}", shell_quoted(value)));
        self
    }

    /// Sets an environment variable to a path, without showing it.
    pub fn env_path(mut self, name: &str, path: &Path) -> Self {
        self.command.env(name, path);
        self
    }

    /// Sets the text that is shown instead of the command.
    pub fn with_display_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.display_name);
        self
    }

    /// Removes an environment variable, without showing this.
    pub fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Sets the folder in which the command is run.
    pub fn current_dir(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Sets the time after which the command and its descendants are killed.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Runs the command and passes its output through. Returns an error if the command fails.
    ///
    /// # Errors
    /// If the command cannot be started, is killed, takes too long or exits with a failure.
    pub fn run(mut self) -> Result<()> {
        println!("$ {self}");
        let mut child = self.spawn()?;
        let status = self.wait(&mut child)?;
        self.ensure_success(status)
    }

    /// Runs the command and returns the number of passed tests. Its output is passed through. It
    /// counts the lines `test result: ok. N passed` of the standard test runner.
    pub fn count_tests(mut self) -> Result<u64> {
        println!("$ {self}");
        self.command.stdout(Stdio::piped());
        let mut child = self.spawn()?;
        let stdout = child.stdout.take();
        let counter = thread::spawn(move || {
            stdout.map_or(0, |from| copy_and_count_tests(from, std::io::stdout()))
        });
        let status = self.wait(&mut child)?;
        let passed = counter.join().unwrap_or(0);
        self.ensure_success(status)?;
        Ok(passed)
    }

    /// Runs the command and returns the number of passed tests. The output is printed after the
    /// command has exited. For commands that run in parallel with others.
    ///
    /// # Errors
    /// Those of [`run`](Self::run). The message contains the end of the output, so that a list of
    /// errors at the end of many commands' outputs identifies the failures.
    pub fn count_tests_buffered(mut self) -> Result<u64> {
        let mut output = tempfile::tempfile().context("cannot create a temporary file")?;
        self.command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let start = Instant::now();
        let mut child = self.spawn()?;
        let status = self.wait(&mut child);
        let elapsed_s = start.elapsed().as_secs_f64();
        let mut text = format!("$ {self} ({elapsed_s:.1} s)\n").into_bytes();
        output.rewind()?;
        let header_bytes = text.len();
        output.read_to_end(&mut text)?;
        let passed = copy_and_count_tests(&text[header_bytes..], std::io::sink());
        // Written in one piece, so that the output of other commands does not interleave. A closed
        // terminal must not fail the tests.
        let _ = std::io::stdout().lock().write_all(&text);
        let ended = status.and_then(|status| self.ensure_success(status));
        let output = String::from_utf8_lossy(&text[header_bytes..]);
        ended.map_err(|error| anyhow!("{error:#}\n{}", last_lines(&output)))?;
        Ok(passed)
    }

    /// Runs the command and returns its standard output. Standard error is passed through.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run).
    pub fn run_and_capture(mut self) -> Result<String> {
        println!("$ {self}");
        self.command.stdout(Stdio::piped());
        let mut child = self.spawn()?;
        let stdout = child.stdout.take().map(read_all);
        let status = self.wait(&mut child)?;
        let text = stdout.and_then(|reader| reader.join().ok()).unwrap_or_default();
        self.ensure_success(status)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs the command silently, and returns its standard output.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run), with the command's standard error in the message.
    pub fn capture_stdout(self) -> Result<String> {
        let shown = self.to_string();
        let output = self.output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!(
                "`{shown}` failed ({status}): {stderr}",
                status = output.status,
                stderr = stderr.trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the command silently, and returns its exit status and output.
    ///
    /// # Errors
    /// If the command cannot be started or takes too long.
    pub fn output(mut self) -> Result<Output> {
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.spawn()?;
        let stdout = child.stdout.take().map(read_all);
        let stderr = child.stderr.take().map(read_all);
        let status = self.wait(&mut child)?;
        let text = |reader: Option<thread::JoinHandle<Vec<u8>>>| {
            reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
        };
        Ok(Output { status, stdout: text(stdout), stderr: text(stderr) })
    }

    /// Returns `true` if the command can be started and succeeds within 60 s; prints nothing.
    pub fn succeeds(self) -> bool {
        self.timeout(Duration::from_secs(60)).output().is_ok_and(|output| output.status.success())
    }

    fn spawn(&mut self) -> Result<Child> {
        let command = self.to_string();
        self.command.spawn().with_context(|| format!("cannot start `{command}`"))
    }

    /// Waits for the command to exit. Kills it after its timeout.
    fn wait(&self, child: &mut Child) -> Result<ExitStatus> {
        let Some(timeout) = self.timeout else { return Ok(child.wait()?) };
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > timeout {
                kill_with_descendants(child.id());
                child.kill()?;
                child.wait()?;
                bail!(
                    "`{self}` was killed after its time limit of {limit_s} s",
                    limit_s = timeout.as_secs()
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns an error with `status`, the exit status, unless the command succeeded.
    fn ensure_success(&self, status: ExitStatus) -> Result<()> {
        if status.success() { Ok(()) } else { bail!("`{self}` failed ({status})") }
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for setting in &self.shown_variables {
            write!(f, "{setting} ")?;
        }
        if !self.display_name.is_empty() {
            return f.write_str(&self.display_name);
        }
        write!(f, "{}", shell_quoted(&self.command.get_program().to_string_lossy()))?;
        for arg in self.command.get_args() {
            write!(f, " {}", shell_quoted(&arg.to_string_lossy()))?;
        }
        Ok(())
    }
}

/// Kills a process and its descendants. A killed cargo does not end the compilers that it has
/// started.
fn kill_with_descendants(pid: u32) {
    let mut pids = vec![pid.to_string()];
    let mut at = 0;
    while at < pids.len() {
        let threads =
            fs::read_dir(format!("/proc/{}/task", pids[at])).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            pids.extend(children.split_whitespace().map(str::to_owned));
        }
        at += 1;
    }
    // Some may have exited by now.
    let _ = Command::new("kill").arg("-KILL").args(&pids).stderr(Stdio::null()).status();
}

fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+./,:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{word}'") }
}

/// Starts a thread that reads `from` to the end. Joining it returns the bytes.
fn read_all(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // On an error, the bytes read so far are returned.
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// Copies the lines from `from` to `to`. Returns the number of passed tests that they report.
fn copy_and_count_tests(from: impl Read, mut to: impl Write) -> u64 {
    let mut passed = 0;
    let mut line = Vec::new();
    let mut from = BufReader::new(from);
    while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        passed += passed_count(&String::from_utf8_lossy(&line));
        // A closed terminal must not fail the tests.
        let _ = to.write_all(&line);
        line.clear();
    }
    passed
}

/// Returns the last lines of output, at most [`END_LINES_MAX`]. For the standard test runner, they
/// are those about the failed tests.
fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let failures = lines.iter().position(|line| *line == "failures:").unwrap_or(0);
    let start = failures.max(lines.len().saturating_sub(END_LINES_MAX));
    lines[start..].join("\n")
}

/// Returns the number of passed tests that this line of the standard test runner reports. It is 0
/// for other lines.
fn passed_count(line: &str) -> u64 {
    let counted = line.trim_start().strip_prefix("test result: ok. ");
    counted.and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_displayed_in_shell_syntax() {
        let run = CommandLine::new("cargo doc --no-deps")
            .env("RUSTDOCFLAGS", "-D warnings")
            .args(["a b"]);
        assert_eq!(run.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'a b'");
    }

    #[test]
    fn passed_tests_are_counted_from_the_runner_output() {
        assert_eq!(passed_count("test result: ok. 31 passed; 0 failed; 0 ignored\n"), 31);
        assert_eq!(passed_count("test result: FAILED. 2 passed; 1 failed\n"), 0);
        assert_eq!(passed_count("test api::works ... ok\n"), 0);
        let text = "test result: ok. 2 passed; x\nno\ntest result: ok. 3 passed; x";
        let mut passed_through = Vec::new();
        assert_eq!(copy_and_count_tests(text.as_bytes(), &mut passed_through), 5);
        assert_eq!(passed_through, text.as_bytes());
    }

    #[test]
    fn error_of_failed_tests_contains_the_failures() {
        let passed = "test it ... ok\n".repeat(200);
        let part = "failures:\n---- bad ----\nleft: 1\n\nfailures:\n    bad\n";
        assert_eq!(last_lines(&format!("{passed}{part}")), part.trim_end());
        assert_eq!(last_lines(&passed).lines().count(), END_LINES_MAX);
        let run = CommandLine::new("sh -c").args(["echo why; exit 3"]).count_tests_buffered();
        let text = run.map_err(|error| format!("{error:#}"));
        assert!(text.is_err_and(|text| text.contains("why") && text.contains("status: 3")));
    }

    #[test]
    fn error_of_a_failed_command_has_its_status_and_output() {
        let error = CommandLine::new("sh -c").args(["echo away >&2; exit 3"]).capture_stdout();
        let text = error.map_err(|error| error.to_string());
        let expected = "`sh -c 'echo away >&2; exit 3'` failed (exit status: 3): away";
        assert_eq!(text, Err(expected.to_owned()));
        assert!(!CommandLine::new("handover-no-such-program").succeeds());
    }

    #[test]
    fn command_beyond_its_timeout_is_killed() {
        let start = Instant::now();
        let run = CommandLine::new("sleep 60").timeout(Duration::from_millis(50));
        assert!(run.output().is_err());
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn descendants_are_killed_with_a_process() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sh -c 'sleep 60 & echo $!; wait' & wait"]).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let mut output = BufReader::new(shell.stdout.take().expect("its output"));
        let mut pid = String::new();
        output.read_line(&mut pid).expect("the pid of `sleep`");
        kill_with_descendants(shell.id());
        shell.wait().expect("the shell's exit status");
        // Every process that could write to it has ended.
        assert_eq!(output.read_to_string(&mut pid).expect("the end of the output"), 0);
    }
}
